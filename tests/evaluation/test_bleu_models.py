"""`s2s bleu --model` and the attention of a model: what is scored, by which settings, and what is refused."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from support.our_models import make_many, make_ours
from support.scored import SENTENCES, failing, s2s, small_run

from seq2seq.cli import main
from seq2seq.cli.bleu import _print
from seq2seq.cli.test_sets import TestSet as Given
from seq2seq.config.file import load
from seq2seq.config.schema import SearchConfig
from seq2seq.evaluation.text import score_texts
from seq2seq.inference.attention import sentence_attention
from seq2seq.inference.translator import Translator
from seq2seq.text.stored import load_tokenizers


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("runs") / "small")


def test_a_run_is_scored_on_all_its_test_sets_by_name_and_with_its_metrics(run, tmp_path):
    kept = tmp_path / "out.txt"
    records = json.loads(s2s("--model", run, "--device", "cpu", "-f", "json", "-w", 4, "-o", kept))
    assert [(record["test_set"], record["name"]) for record in records] == [
        ("plain", "chrF2"), ("plain", "TER"), ("odd", "chrF2"), ("odd", "TER"),
    ]  # fmt: skip
    translator = Translator.load(run, device="cpu")
    for index, (name, reference) in enumerate((("plain", SENTENCES[::-1]), ("odd", [f"{s} ." for s in SENTENCES[:3]]))):
        sources = SENTENCES[: len(reference)]
        hypotheses = [translation.text for translation in translator.translate(sources)]
        assert (tmp_path / f"out.{name}.txt").read_text().split("\n") == [*hypotheses, ""]
        scores = score_texts(hypotheses, reference, ["chrf", "ter"])
        assert [record["score"] for record in records[2 * index : 2 * index + 2]] == [round(s.score, 4) for s in scores]


def test_translating_and_scoring_is_the_same_in_one_step_and_in_two(run, tmp_path):
    source, reference = run.parent / "test.en", run.parent / "test.de"
    options = ("--metrics", "bleu,chrf", "-w", 6)
    kept = tmp_path / "hypothesis"
    one = s2s("--model", run / "best", "--source", source, "--reference", reference, "-o", kept, *options)
    assert one == s2s(reference, kept, *options)
    assert one.startswith("BLEU|nrefs:1|")


def test_search_options_reach_the_translator(run, tmp_path):
    greedy, wide = tmp_path / "greedy", tmp_path / "wide"
    for path, beam_size in ((greedy, 1), (wide, 5)):
        s2s("--model", run, "--test-set", "plain", "--beam-size", beam_size, "--length-penalty", 0.5, "-o", path)
    assert greedy.read_text() != wide.read_text()
    for path, beam_size in ((greedy, 1), (wide, 5)):
        translator = Translator.load(run, beam_size=beam_size, length_penalty=0.5)
        assert path.read_text().splitlines() == [translation.text for translation in translator.translate(SENTENCES)]


def test_a_number_of_translations_that_the_model_stores_does_not_matter(tmp_path):
    """Only the best one is scored, or is in a pair, so a narrower beam is possible."""
    for n_best in (1, 4):
        make_ours(tmp_path / f"{n_best}", ending=2.0, search=SearchConfig(beam_size=4, n_best=n_best))
    (tmp_path / "text").write_text("\n".join(SENTENCES) + "\n")
    files = ["--source", str(tmp_path / "text"), "--reference", str(tmp_path / "text"), "--beam-size", "2"]
    models = [str(tmp_path / "1"), str(tmp_path / "4")]
    one, other = (s2s("--model", model, *files, "-f", "json", "-o", f"{model}.out") for model in models)
    assert one == other.replace(models[1], models[0])
    assert main(["compare", *models, *files, "-o", str(tmp_path / "report.html")]) == 0
    typed = ["--text", str(tmp_path / "text"), "--kind", "forward", "--force", "--beam-size", "2"]
    for model in models:
        assert main(["augment", model, *typed, "-o", f"{model}.pairs"]) == 0
    one, other = (gzip.decompress((tmp_path / f"{n}.pairs" / "part-00000.jsonl.gz").read_bytes()) for n in (1, 4))
    assert one == other


@pytest.fixture(scope="module")
def shelf(run, tmp_path_factory) -> Path:
    """Models that cannot be compared with that of the run."""
    folder = tmp_path_factory.mktemp("shelf")
    for name in ("turned", "damaged"):
        shutil.copytree(run / "best", folder / name)
    path = folder / "turned" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "source_language": "de", "target_language": "en"}))
    (folder / "damaged" / "model.safetensors").write_bytes(b"text")
    make_many(folder / "many", ["en", "fr"], ["de", "fr"], "source")
    return folder


@pytest.mark.parametrize(
    ("other", "languages", "said"),
    [
        ("turned", [], "{other}: translates de-en, but {run} translates en-de; name models of the same direction"),
        ("many", [], "{other}: name the language with --to; it has de, fr"),
        ("many", ["--from", "en", "--to", "fr"], "--to fr: {run} has de alone; name another model"),
        ("many", ["--from", "de", "--to", "de"], "--from de: {run} has en alone; name another model"),
        ("many", ["--to", "xx"], "--to xx: "),
        ("damaged", [], "damaged"),
    ],
)
@pytest.mark.parametrize("command", ["bleu", "compare"])
def test_models_that_cannot_be_compared_are_refused_before_one_translates(
    command, other, languages, said, run, shelf, capsys
):
    models = [str(run), str(shelf / other)]
    typed = models if command == "compare" else [part for model in models for part in ("--model", model)]
    assert main([command, *typed, "--test-set", "odd", *languages]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "no view by rare words" not in line]
    assert line.startswith("s2s: ")
    assert said.format(run=models[0], other=models[1]) in line


@pytest.mark.parametrize("command", ["bleu", "compare"])
def test_a_model_of_many_languages_is_compared_in_the_direction_of_another(command, run, shelf, capsys):
    models = [str(run), str(shelf / "many")]
    typed = models if command == "compare" else [part for model in models for part in ("--model", model)]
    assert main([command, *typed, "--test-set", "odd", "--from", "en", "--to", "de"]) == 0
    printed = capsys.readouterr().out
    assert all(model in printed for model in models)


@pytest.mark.parametrize("width", [0, 1])
def test_the_mean_is_that_of_scores_that_are_not_rounded(width, capsys):
    for seed in range(8):
        references = ["a man rides a bicycle", "two dogs run along the beach"]
        systems = [[references[seed % 2], f"a man {'x' * seed}"], [f"two dogs run {'y' * seed}", "a"]]
        sets = [
            Given(f"set {language}", [references], translations={"m": lines}, direction=("en", language))
            for language, lines in zip(("de", "fr"), systems, strict=True)
        ]
        _print(sets, {"metrics": ["chrf"]}, "text", width, False, False, True)
        exact = [score_texts(lines, references, ["chrf"])[0].score for lines in systems]
        assert capsys.readouterr().out.splitlines()[-1] == f"mean of 2: {sum(exact) / 2:.{width}f}"


def test_test_sets_are_named_in_text_too(run):
    lines = s2s("--model", run, "-m", "bleu").splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["plain", "odd"]
    assert s2s("--model", run, "--test-set", "odd", "-m", "bleu").splitlines() == lines[1:]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--test-set", "plane"], ["'plain'", "odd"]),
        (["--source", "{en}", "--reference", "{odd}"], ["5", "6", "test.en", "odd.en"]),
        (["--metrics", "bleu,rouge"], ["rouge"]),
        (["--tokenize", "13b"], ["13b"]),
        (["--beam-size", "0"], ["--beam-size"]),
        (["--device", "tpu"], ["tpu"]),
    ],
)
def test_wrong_use_with_a_model_is_one_line_and_exit_2(run, capsys, arguments, words):
    places = {"en": run.parent / "test.en", "odd": run.parent / "odd.en"}
    code, message = failing(capsys, "--model", run, *(argument.format(**places) for argument in arguments))
    assert code == 2
    for word in words:
        assert word in message


def test_a_model_without_its_run_asks_for_files(run, tmp_path, capsys):
    shutil.copytree(run / "best", tmp_path / "alone")
    code, message = failing(capsys, "--model", tmp_path / "alone")
    assert code == 2
    assert "--source" in message


def test_a_run_whose_training_data_is_gone_is_still_scored(run, tmp_path):
    moved = tmp_path / "run"
    shutil.copytree(run, moved)
    text = (moved / "config.yaml").read_text()
    config = load(moved / "config.yaml", check_files=False)
    text = text.replace(str(config.data.valid.source), str(tmp_path / "gone"), 2)  # train and valid
    (moved / "config.yaml").write_text(text)
    assert s2s("--model", moved) == s2s("--model", run)


@pytest.mark.slow
def test_attention_of_the_models_own_and_of_a_given_translation(run, tmp_path, capsys):
    own, given = tmp_path / "own.png", tmp_path / "given.png"
    assert main(["plot", str(run), "--attention", SENTENCES[0], "-o", str(own)]) == 0
    assert (
        main(["plot", str(run), "--attention", SENTENCES[0], "--target", "a b", "--layer", "1", "-o", str(given)]) == 0
    )
    assert own.read_bytes() != given.read_bytes()
    seen = sentence_attention(run, SENTENCES[0], "two dogs", layer=2)
    tokenizer = load_tokenizers(run / "best").source
    assert seen.weights.shape == (2, len(tokenizer.encode("two dogs")) + 1, len(tokenizer.encode(SENTENCES[0])) + 1)
    assert seen.weights.shape[1:] == (len(seen.target_pieces), len(seen.source_pieces))
    assert main(["plot", str(run), "--attention", "x", "--layer", "9"]) == 2
    assert "layer 9" in capsys.readouterr().err


def test_a_test_set_that_no_file_can_be_named_after_is_refused_before_translating(run, tmp_path, capsys):
    moved = tmp_path / "run"
    shutil.copytree(run, moved)
    config = moved / "config.yaml"
    config.write_text(config.read_text().replace("plain:", "news/2016:"))
    (moved / "best" / "model.safetensors").write_bytes(b"not read")
    code, message = failing(capsys, "--model", moved, "-o", tmp_path / "out.txt")
    assert code == 2
    assert "data.test.news/2016: the name of a test set" in message


def test_several_models_are_compared_as_their_translations_are(run, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(run / "best", other)
    generation = json.loads((other / "generation_config.json").read_text())
    (other / "generation_config.json").write_text(json.dumps({**generation, "num_beams": 1, "beam_size": 1}))
    source, reference = run.parent / "test.en", run.parent / "test.de"
    files = []
    for number, model in enumerate((run, other)):
        files.append(tmp_path / f"{number}")
        s2s("--model", model, "--source", source, "--reference", reference, "-o", files[-1])
    expected = s2s(reference, *files, "-m", "chrf,ter")
    table = s2s("--model", run, "--model", other, "--source", source, "--reference", reference, "-m", "chrf,ter")
    named = dict(zip((str(run), str(other)), map(str, files), strict=True))
    for model, file in named.items():
        table, expected = (text.replace(name, "X") for text, name in ((table, model), (expected, file)))
    assert [line.split() for line in table.splitlines()] == [line.split() for line in expected.splitlines()]
    records = json.loads(s2s("--model", run, "--model", other, "-f", "json"))
    assert [(record["test_set"], record["system"]) for record in records] == [
        (name, system) for name in ("plain", "odd") for system in (f"Baseline: {run}", str(other))
    ]
    lines = s2s("--model", run, "--model", other).splitlines()
    assert (lines[0], lines.count("plain"), lines.count("odd")) == ("plain", 1, 1)
    for arguments, words in (
        (["--model", run, "--model", run / "best"], "given twice"),
        (["--model", run, "--model", other, "-o", tmp_path / "x"], "one model"),
        (["--model", run, "--model", tmp_path / "none"], "none"),
    ):
        code, message = failing(capsys, *arguments)
        assert code == 2
        assert words in message


@pytest.mark.slow
def test_attention_is_drawn_beside_the_model_and_not_into_it(run, tmp_path, monkeypatch, capsys):
    moved = tmp_path / "run"
    shutil.copytree(run, moved)
    (moved / "metrics.jsonl").touch()
    shutil.copytree(run / "best", tmp_path / "alone")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    models = moved / "best", tmp_path / "alone"
    before = [sorted(model.iterdir()) for model in models]
    for model, place in ((moved, moved), (moved / "best", moved), (tmp_path / "alone", Path())):
        assert main(["plot", str(model), "--attention", SENTENCES[0]]) == 0
        assert capsys.readouterr().out == f"{place / 'attention.png'}\n"
        (place / "attention.png").unlink()
    assert [sorted(model.iterdir()) for model in models] == before


@pytest.mark.parametrize("long", [["two dogs " * 40], ["two dogs", "--target", "two dogs " * 40]])
def test_a_sentence_that_the_model_has_no_positions_for_is_one_line(run, capsys, long):
    assert main(["plot", str(run), "--attention", *long]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    given = "translation" if "--target" in long else "sentence"
    assert line.endswith(f"pieces, more than the model's 62; take a shorter {given}")
