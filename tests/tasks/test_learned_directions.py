"""A model of many directions that was trained until it answers with confidence obeys its tags, with both engines."""

import gzip
import json
import re
from pathlib import Path

import pytest
from support.many_directions import LEARNED, LONG, SPELLED, TRAINED, spelled, train
from support.number_words import sentences

from seq2seq.cli import main
from seq2seq.inference.translator import Translator
from seq2seq.serve.models import load
from seq2seq.serve.queue import Text
from seq2seq.serve.served import Settings
from seq2seq.store.model_folder import load_model

pytestmark = pytest.mark.slow

ROWS = sentences(40, 9)
# The engines end beam searches by different rules, so of two translations of about one score each may find the other.
NEAR = 0.02


@pytest.fixture(scope="module", params=["source", "both", "decoder"])
def run(request, tmp_path_factory):
    return train(tmp_path_factory.mktemp(request.param), request.param, *LEARNED)


def test_tags_are_obeyed(run):
    """Nearly every word is of the language requested, in every direction of the training."""
    for source, target in TRAINED:
        translator = Translator.load(run, engine="torch", source_language=source, target_language=target)
        found = [one.text.split() for one in translator.translate(spelled(ROWS, source))]
        words = [word in SPELLED[target].values() for words in found for word in words]
        assert sum(map(len, ROWS)) * 0.8 < len(words) < sum(map(len, ROWS)) * 1.25
        assert sum(words) >= 0.95 * len(words), (source, target)


def test_both_engines_give_the_same_translations_without_tags(run):
    """Law: CTranslate2, with tags and prefixes, equals PyTorch, text for text where the scores are apart."""
    loaded = load_model(run)
    lines = [*spelled(ROWS, "en"), LONG]
    for language in ("de", "fr"):
        options = {"source_language": "English", "target_language": language, "n_best": 2}
        ours, theirs = (
            Translator.load(run, engine=name, **options).translate(lines) for name in ("torch", "ctranslate2")
        )
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=NEAR)
        tied = [any(one.score - other.score < NEAR for other in one.alternatives) for one in ours]
        assert sum(tied) < len(lines) / 4
        for one, other, is_tied in zip(ours, theirs, tied, strict=True):
            assert one.text == other.text or is_tied
        texts = " ".join(each.text for one in (*ours, *theirs) for each in (one, *one.alternatives))
        assert not any(piece in texts for piece in loaded.tokenizers.languages.pieces.values())


def typed(capfd, run, target, *options) -> str:
    """The output of `s2s translate` from English."""
    assert main(["translate", str(run), "--engine", "torch", "--from", "en", "--to", target, *map(str, options)]) == 0
    return capfd.readouterr().out


def test_a_server_passes_a_direction_that_was_not_trained_through_the_pivot(run):
    """From German to French by way of English; what was trained is direct."""
    models = load([run], {"engine": "torch", "threads": 1}, {"device": "cpu"}, "en")
    assert all(models.translator(*sides).first is None for sides in TRAINED)
    served = models.translator("de", "fr")
    lines = [Text(line) for line in spelled(ROWS, "de")]
    answers = served.compute(lines, Settings(served.name, direction=served.direction))
    words = [word in SPELLED["fr"].values() for one in answers for word in one.text.split()]
    assert sum(words) >= 0.95 * len(words) > 0
    assert all("pivot" in one.flags for one in answers)


def test_bench_measures_a_direction(run, tmp_path, capfd):
    """All systems translate into its language: CTranslate2 alone too."""
    for language in ("en", "fr"):
        (tmp_path / language).write_text("\n".join(spelled(ROWS[:6], language)) + "\n")
    direction = "--from", "en", "--to", "fr"
    given = "-i", str(tmp_path / "en"), "--rounds", "1", "--format", "json"
    typed = *given, "--reference", str(tmp_path / "fr"), "--single", "1", "--greedy", "--threads", "1"
    engines = "--peer", "ctranslate2", "--engine", "torch", "--engine", "ctranslate2"
    assert main(["bench", "decode", str(run), *typed, *engines]) == 2
    assert "name the language" in capfd.readouterr().err
    assert main(["bench", "decode", str(run), *typed, *engines, *direction]) == 0
    systems = {one["name"]: one for one in json.loads(capfd.readouterr().out)["systems"]}
    assert {"seq2seq torch", "seq2seq ctranslate2", "ctranslate2 float32"} <= systems.keys()
    assert all(one["bleu"] > 20 for one in systems.values())
    assert main(["bench", "serve", str(run), *given, "--clients", "1", "--seconds", "0.2", *direction]) == 0
    served = json.loads(capfd.readouterr().out)["systems"][-1]
    assert (served["wrong"], served["lost"]) == (0, 0)
    assert served["answers"] > 0


def test_augmented_pairs_have_a_direction(run, monkeypatch, capfd):
    """Back-translation of English by en-de is training data of de-en, for `s2s check` and `s2s train` too."""
    monkeypatch.chdir(run.parent)
    assert main(["augment", str(run), "--text", "small.en", "-o", "back", "--from", "en", "--to", "de"]) == 0
    assert "50 pairs of 50 lines" in capfd.readouterr().err
    text = Path("many.yaml").read_text()
    for name, direction, code in (("wrong", "from: en, to: de", 1), ("right", "from: de, to: en", 0)):
        more = f"  train:\n    - {{jsonl: back, {direction}}}"
        Path(f"{name}.yaml").write_text(text.replace("  train:", more, 1))
        assert main(["check", f"{name}.yaml"]) == code
        out = capfd.readouterr().out
        assert ("its pairs are de-en, but the config translates en-de" in out) == (name == "wrong")
        assert "would fit" not in out  # sizes of the model depend on all directions
    assert main(["train", "right.yaml", "--run-dir", "dry", "--dry-run"]) == 0
    assert "train de-en back" in capfd.readouterr().out


def test_tune_and_compare_are_of_a_direction(run, monkeypatch, capfd):
    """On the pairs of the run that have it; the tuned model is compared as `s2s translate` translates."""
    monkeypatch.chdir(run.parent)
    direction = "--from", "en", "--to", "fr"
    assert main(["tune", "run", "-o", "tuned", "--engine", "torch", "--format", "json", *direction]) == 0
    tuned = json.loads(capfd.readouterr().out)
    assert tuned["scores"].keys() == {"validation"}  # no test set is of en-fr
    files = "--source", "valid.en", "--reference", "valid.fr"
    options = "--engine", "torch", "--format", "json", *direction
    assert main(["compare", "run", "tuned", *files, *options]) == 0
    rows = json.loads(capfd.readouterr().out)["rows"]
    found = [rows[name]["chrf"]["score"] for name in ("run", "tuned")]
    expected = [tuned["scores"]["validation"]["chrf"][time] for time in ("before", "after")]
    assert found == pytest.approx(expected, abs=0.01)


def test_filter_scores_both_ways_with_one_model(run, tmp_path, monkeypatch, capfd):
    """It finds the pairs that do not translate each other, by the tags of both directions."""
    monkeypatch.chdir(tmp_path)
    rows, wrong = ROWS[:30], list(range(0, 30, 6))
    german = spelled(rows, "de")
    for place, other in zip(wrong, wrong[1:] + wrong[:1], strict=True):
        german[place] = spelled(rows, "de")[other]
    Path("a.en").write_text("\n".join(spelled(rows, "en")) + "\n")
    Path("a.de").write_text("\n".join(german) + "\n")
    models = "--model", str(run), "--reverse", str(run), "--from", "en", "--to", "de"
    assert main(["filter", "a.en", "a.de", *models, "--keep", str(1 - len(wrong) / len(rows)), "-o", "kept"]) == 0
    kept = [json.loads(line) for line in gzip.decompress(Path("kept/part-00000.jsonl.gz").read_bytes()).splitlines()]
    assert len(kept) == len(rows) - len(wrong)
    right = set(zip(spelled(rows, "en"), spelled(rows, "de"), strict=True))
    assert sum((pair["source"], pair["target"]) in right for pair in kept) >= len(kept) - 1


@pytest.mark.parametrize("target", ["de", "fr"])
def test_sentences_of_documents_have_the_tags(run, target, tmp_path, capfd):
    lines = spelled(ROWS[:8], "en")
    (tmp_path / "lines").write_text("\n".join(lines) + "\n")
    marked = [re.sub(r"(?<= )(\w+)$", r"<b>\1</b>", line) for line in lines]
    (tmp_path / "page.html").write_text("<ul>" + "".join(f"<li>{line}</li>\n" for line in marked) + "</ul>")
    page = typed(capfd, run, target, "-i", tmp_path / "page.html", "--input-format", "html")
    assert page.count("<b>") == len(lines)
    assert re.sub("<.*?>", "", page) == typed(capfd, run, target, "-i", tmp_path / "lines")


@pytest.mark.parametrize("target", ["de", "fr"])
def test_the_searches_of_a_glossary_have_the_tags(run, target, tmp_path, capfd):
    """A term that the model would not choose is put in, and the rest stays in the language of the direction."""
    words = SPELLED[target]
    (tmp_path / "terms.tsv").write_text(f"three\t{words['ten']}\n")
    rows = [row for row in ROWS if "three" in row and "ten" not in row]
    (tmp_path / "lines").write_text("\n".join(spelled(rows, "en")) + "\n")
    options = "-i", tmp_path / "lines", "--glossary", tmp_path / "terms.tsv", "--format", "jsonl"
    found = [json.loads(line) for line in typed(capfd, run, target, *options).splitlines()]
    assert len(found) == len(rows) > 5
    terms = [term["status"] for one in found for term in one["terms"]]
    assert terms.count("forced") > 0.7 * len(terms)
    said = [word for one in found for word in one["text"].split()]
    assert sum(word in words.values() for word in said) >= 0.9 * len(said)


TUNE = """
languages: {source: [en, de], target: [de, en, fr], tags: TAGS}
data:
  train:
    - {source: train.en, target: train.fr, from: en, to: fr}
  valid: {en-de: {source: valid.en, target: valid.de}, de-en: {source: valid.de, target: valid.en},
    en-fr: {source: valid.en, target: valid.fr}}
  num_workers: 1
training: {init_from: run, max_steps: 60, batch_tokens: 256, learning_rate: 0.003, warmup_steps: 1, ema: 0.0,
  validate_every: 60, checkpoint_every: 60, log_every: 20, threads: 1, best_of: en-fr, best_metric: chrf,
  precision: float32}
"""
REPLAY = "    - {source: train.en, target: train.de, from: en, to: de, both_ways: true, weight: 0.2}\n"


def test_replay_keeps_the_other_directions(run, monkeypatch, capfd):
    """Tuned on one direction, a model forgets the others, which a share of their pairs prevents; both are reported."""
    monkeypatch.chdir(run.parent)
    tags = load_model("run").tokenizers.languages.tags
    alone = TUNE.replace("TAGS", tags)
    records, logs = {}, {}
    for name, text in (("alone", alone), ("replay", alone.replace("  valid:", REPLAY + "  valid:"))):
        Path(f"{name}.yaml").write_text(text)
        assert main(["train", f"{name}.yaml", "--run-dir", name]) == 0, capfd.readouterr().err
        logs[name] = capfd.readouterr().err
        records[name] = [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
        assert load_model(name).description.directions == ("en-de", "de-en", "en-fr")
    assert "en-de, de-en: trained before but not now, so the model may forget them" in logs["alone"]
    assert "trained before" not in logs["replay"]
    before, after = records["replay"][0], records["replay"][-1]
    assert (before["step"], after["step"]) == (0, 60)
    for direction in ("en-de", "de-en", "en-fr"):
        figures = f"chrf {after[f'chrf.{direction}']:.4g} (initial model {before[f'chrf.{direction}']:.4g}"
        assert any(f"{direction}: " in line and figures in line for line in logs["replay"].splitlines())
    losses = [records[name][-1]["valid_loss.en-de"] for name in ("replay", "alone")]
    assert losses[0] < 0.7 * losses[1]
    assert after["valid_loss.en-fr"] < before["valid_loss.en-fr"]
