"""A run of many directions: its laws, and its model in the commands that know directions.

The corpora are number words in three languages. The run is made once, and is too short to learn them.
"""

import contextlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from support.echo import EchoEngine
from support.many_directions import CONFIG, LONG, TRAINED, train, write_corpora
from support.our_models import make_many

from seq2seq import runtime
from seq2seq.cli import main
from seq2seq.cli.train import _named_languages
from seq2seq.config import file as config_file
from seq2seq.config.schema import SearchConfig, TrainingConfig
from seq2seq.errors import UserError
from seq2seq.evaluation.uncertainty import Measured
from seq2seq.inference.degeneration import REPAIRED
from seq2seq.inference.translator import Translator
from seq2seq.plots import _curves, learning_curves
from seq2seq.search.base import Hypothesis
from seq2seq.store.averaging import average_models
from seq2seq.store.model_folder import load_model, save_model
from seq2seq.tasks.directions import by_direction, changes
from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.run import build
from seq2seq.text.direction import Direction
from seq2seq.training.activity import Activity
from seq2seq.training.judged import standard_error
from seq2seq.training.monitor import Monitor
from seq2seq.training.state import is_standard_error


@pytest.fixture(scope="module", params=["source", pytest.param("both", marks=pytest.mark.slow), "decoder"])
def run(request, tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp(request.param), request.param)


def test_the_folder_has_its_directions(run):
    loaded = load_model(run)
    assert loaded.description.directions == ("en-de", "de-en", "en-fr")
    assert Translator.load(run, all_languages=True).choices == {"source": ["en", "de"], "target": ["de", "en", "fr"]}
    with pytest.raises(UserError, match=r"name the languages? with .*--to; it has"):
        loaded.directed()
    with pytest.raises(UserError, match="--to it: not a language of the model; it has de, en, fr"):
        loaded.directed(Direction("en", "it"))


def test_a_part_of_a_long_line_is_the_part_alone(run):
    """Law: every part of a long line has the tags of the direction."""
    translator = Translator.load(run, engine="torch", source_language="en", target_language="fr")
    whole = translator.translate([LONG])[0]
    assert len(whole.parts) > 1
    for part in whole.parts:
        alone = translator.translate([whole.source[slice(*part.source)]])[0]
        assert alone.text == whole.text[slice(*part.target)]


def test_tags_decide_and_never_come_out(run):
    """A tag changes what the model reads, and is suppressed even where the model prefers it."""
    loaded = load_model(run)
    ids = {name: list(loaded.tokenizers.directed(Direction("en", name)).source.read("one")) for name in ("de", "fr")}
    starts = {name: loaded.tokenizers.directed(Direction("en", name)).target.start_ids for name in ("de", "fr")}
    assert (ids["de"], starts["de"]) != (ids["fr"], starts["fr"])
    tags = list(loaded.tokenizers.target.ids_of(loaded.tokenizers.languages.pieces.values()))
    assert set(tags) <= set(loaded.tokenizers.never_generated)


def test_a_second_search_has_the_tags_of_the_first(run):
    """Law: whatever is decoded again, because a translation is degenerate, begins with the same tags."""
    directed = load_model(run).tokenizers.directed(Direction("en", "fr"))
    loop, good = (Hypothesis(tuple(directed.target.encode(text)), -1.0, -0.1, True) for text in ("un " * 30, "deux"))
    engine = EchoEngine(answer=lambda ids, config: [good if config.no_repeat_ngram else loop])
    asked = []

    def translate(sentences, config):
        asked.append([(each.source_ids, each.start) for each in sentences])
        return EchoEngine.translate(engine, sentences, config)

    engine.translate = translate
    (answer,) = Translator(engine, directed, SearchConfig()).translate(["one two"])
    assert REPAIRED in answer.flags
    first, second = asked
    assert first == second == [(tuple(directed.source.read("one two")), directed.target.start_ids)]
    assert set(directed.source.tag_ids) <= set(first[0][0])


def test_figures_are_by_direction_and_the_worst_decides(run):
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validations = [record for record in records if "valid_loss" in record]
    for record in validations:
        for metric in ("valid_loss", "bleu", "chrf"):
            each = [record[f"{metric}.en-de"], record[f"{metric}.en-fr"]]
            assert record[metric] == pytest.approx(sum(each) / 2)
            assert record[f"{metric}.worst"] == (max(each) if metric == "valid_loss" else min(each))
    state = json.loads(max((run / "checkpoints").glob("step_*")).joinpath("state.json").read_text())["run"]
    metric = state["metric"]
    assert [value for _, value in state["validations"]] == [record[f"{metric}.worst"] for record in validations]


def test_contributions_to_the_worst_lie_in_the_rows_of_its_direction():
    """Law: two validations are compared row by row, also if another direction has become the worst."""
    rows = {("en", "de"): [0, 2, 4], ("en", "fr"): [1, 3]}
    values = {sides: np.array([0.0, 1.0, 5.0][: len(own)]) * (2 if len(own) == 2 else 1) for sides, own in rows.items()}
    found = {sides: {"bleu": Measured(float(each.mean()), each)} for sides, each in values.items()}
    named = by_direction(found, rows)
    worst = named["bleu.worst"]
    assert (worst.value, len(worst.contributions)) == (1.0, 5)
    assert list(np.flatnonzero(worst.contributions != worst.value)) == [1, 3]
    alone = named["bleu.en-fr"].contributions
    assert standard_error(worst.contributions) == pytest.approx(standard_error(alone), rel=0.35)
    assert np.sum((worst.contributions - 1.0) ** 2) / 5**2 == pytest.approx(np.sum((alone - 1.0) ** 2) / 2**2)


def test_a_direction_may_be_called_like_a_standard_error(tmp_path):
    """A curve and a row of the log, for a language such as Swedish, whose name may end with `_se`."""
    record = {"step": 1, "bleu": 2.0, "bleu_se": 0.5, "bleu.en-sv_se": 2.0, "bleu.en-sv_se_se": 0.5, "bleu.worst": 2.0}
    assert [name for name in record if is_standard_error(name, record)] == ["bleu_se", "bleu.en-sv_se_se"]
    assert set(_curves([record], {"bleu": "BLEU"})) == {"BLEU", "BLEU en-sv_se"}
    (line,) = changes({**record, "bleu.en-sv_se": 1.0}, record)
    assert line == "en-sv_se: bleu 2 (initial model 1, +1)"


def test_the_command_that_the_log_suggests_names_a_trained_direction(run):
    config = config_file.load(run / "config.yaml")
    _, source, _, target = _named_languages(config).split()
    assert (source, target) == ("en", "de")
    Translator.load(run, source_language=source, target_language=target)
    reverse = config.data.train[0].model_copy(update={"from_": "de", "to": "en"})
    changed = config.model_copy(update={"data": config.data.model_copy(update={"train": (reverse,)})})
    assert _named_languages(changed) == " --from de --to en"


def test_the_log_has_the_worst_beside_the_mean(run, tmp_path, caplog):
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    record = next(record for record in records if "chrf" in record)
    monitor = Monitor(tmp_path, TrainingConfig(), Activity())
    with caplog.at_level("INFO"):
        monitor.validation(record, (), better=True)
    worst = min(("en-de", "en-fr"), key=lambda name: record[f"chrf.{name}"])
    assert f"(worst: {worst} {record['chrf.worst']:.4g})" in caplog.text
    assert "chrf.en-de " not in caplog.text
    learning_curves(records, tmp_path / "curves.svg")
    assert "chrF en-fr" in (tmp_path / "curves.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_dry_run_has_a_line_for_each_direction(run, monkeypatch, capfd):
    monkeypatch.chdir(run.parent)
    Path("few.en").write_text("one two\nten >>deu<< ten\n", encoding="utf-8")
    Path("few.fr").write_text("un deux\ndix dix ×\n", encoding="utf-8")
    text = Path("many.yaml").read_text(encoding="utf-8").replace("small.", "few.")
    text = text.replace("  valid: {en-de: {source: valid.en, target: valid.de}, ", "  valid: {")
    Path("dry.yaml").write_text(text.replace("temperature: 3", "temperature: 100"), encoding="utf-8")
    assert main(["train", "dry.yaml", "--run-dir", "dry", "--dry-run"]) == 0
    out, err = capfd.readouterr()
    lines = [line.removeprefix("# ") for line in out.splitlines()]
    shown = next(line for line in lines if line.startswith("en-fr: "))
    assert re.match(r"en-fr: 2 pairs, 0\.\d+ % of all, 3\d(\.\d)? % of an epoch, each seen \d+ times; unknown", shown)
    assert "1 texts contain the tag of a language, which is read as text" in lines
    assert re.search(r"en-fr: each pair is seen \d+ times an epoch; lower data.temperature", err)
    assert "data.valid: no set for en-de, de-en; these directions do not count for the best model" in err


def test_info_bleu_and_the_card_name_directions(run, capfd, monkeypatch):
    monkeypatch.chdir(run.parent)
    assert main(["info", str(run)]) == 0
    rows = dict(line.strip().split(None, 1) for line in capfd.readouterr().out.splitlines())
    assert rows["task"] == "translation, trained in 3 of 4 directions"
    assert rows["de-fr"] == "zero-shot"
    assert rows["de-en"] == "not validated"
    assert rows["en-fr"].startswith("valid_loss ")
    assert main(["bleu", "--model", str(run), "-m", "chrf", "--engine", "torch"]) == 0
    out = capfd.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in out] == ["zero (zero-shot)", "en-de", "mean of 2"]
    figures = [float(line.rpartition("= ")[2]) for line in out]
    assert figures[2] == pytest.approx(sum(figures[:2]) / 2, abs=0.1)
    card = (run / "best" / "README.md").read_text(encoding="utf-8")
    assert "zero (de-fr, zero-shot)" in card
    assert "s2s translate THIS_FOLDER --from en --to de < input.txt" in card
    assert ModelCard(card).data.language == ["en", "de", "fr"]
    assert "valid (en-fr)" in card
    assert "mean of 2 directions" in card


def test_info_lists_a_language_into_itself_where_that_was_trained(tmp_path, capfd):
    folder = make_many(tmp_path / "many", ["en", "de"], ["de"], "source")
    names = [f"{one}-de" for one in ("en", "de")]
    for trained in (names[:1], names):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "directions": trained}))
        assert main(["info", str(folder)]) == 0
        found = [line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("  ")]
        assert [first for first, *_ in found] == trained


def test_a_damaged_description_is_one_line_of_bleu(run, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(run.parent)
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "best" / "config.json").write_text("{")
    assert main(["bleu", "--model", str(tmp_path / "run")]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "config.json is not JSON" in line


def test_a_mean_has_the_directions_of_its_members(run, tmp_path):
    """In the order of the members, without those of weight 0."""
    description, members = load_model(run).description, []
    for number, directions in enumerate((("en-de",), ("de-en", "en-de"), ("en-fr",))):
        members.append(shutil.copytree(run / "best", tmp_path / f"{number}"))
        loaded = load_model(members[-1])
        changed = description.model_copy(update={"directions": directions})
        save_model(members[-1], loaded.weights, changed, loaded.tokenizers)
    mean = load_model(average_models(members, tmp_path / "mean", [1, 1, 0]))
    assert mean.description.directions == ("en-de", "de-en")
    card = ModelCard((tmp_path / "mean" / "README.md").read_text(encoding="utf-8"))
    assert card.data.language == ["en", "de"]
    assert "THIS_FOLDER --from en --to de" in card.text


def test_a_direction_that_was_not_trained_is_told_with_a_way_through_others(run, tmp_path, capfd):
    main(["convert", "--to", "ctranslate2", str(run), "-o", str(tmp_path / "out"), "--force"])
    (tmp_path / "in").write_text("one\n", encoding="utf-8")
    for model in (run, tmp_path / "out"):
        for source, target in (*TRAINED, ("de", "fr")):
            capfd.readouterr()
            assert main(["translate", str(model), "--from", source, "--to", target, "-i", str(tmp_path / "in")]) == 0
            told = [line for line in capfd.readouterr().err.splitlines() if "zero-shot" in line]
            assert len(told) == ((source, target) not in TRAINED)
            assert all(line.endswith("s2s translate --pivot en") for line in told)


def test_tune_needs_pairs_of_the_direction(run, monkeypatch, capfd):
    monkeypatch.chdir(run.parent)
    assert main(["tune", "run", "--from", "de", "--to", "fr"]) == 2
    assert "data.valid has no pairs from de to fr; give --source and --reference" in capfd.readouterr().err


def test_the_reverse_of_a_filter_needs_the_other_language(run, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(run.parent)
    models = ["--model", "run", "--reverse", "run", "--keep", "1", "--force"]
    assert main(["filter", "valid.de", "valid.en", *models, "--to", "en", "-o", str(tmp_path / "out")]) == 2
    assert re.search(r"name the languages? with --from( and --to)?; it has", capfd.readouterr().err)


@pytest.mark.parametrize(
    ("kind", "message"),
    [("marian", "tags of languages; export it with --to ctranslate2"),
     ("argos", "Argos Translate has no tags of languages, which this model needs")],
)  # fmt: skip
def test_formats_without_tags_refuse_the_model(run, kind, message, tmp_path, capfd):
    output = tmp_path / {"marian": "out", "argos": "out.argosmodel"}[kind]
    assert main(["convert", "--to", kind, str(run), "-o", str(output)]) != 0
    assert message in capfd.readouterr().err
    assert not output.exists()


def test_ctranslate2_folders_have_all_directions(run, tmp_path):
    main(["convert", "--to", "ctranslate2", str(run), "-o", str(tmp_path / "out"), "--force"])
    exported = Translator.load(tmp_path / "out", all_languages=True)
    assert exported.choices == {"source": ["en", "de"], "target": ["de", "en", "fr"]}
    with pytest.raises(UserError, match=r"needs languages; translate with directed\(Direction\(source, target\)\)"):
        exported.translate(["one"])
    for direction in (Direction("en", "fr"), Direction("de", "en")):
        ours = Translator.load(run, engine="ctranslate2", all_languages=True).directed(direction)
        texts = [[one.text for one in each.translate([LONG, "one"])] for each in (exported.directed(direction), ours)]
        assert texts[0] == texts[1]


def test_another_order_of_the_corpora_is_another_run(run, tmp_path, monkeypatch, capfd):
    """Law: the order of `data.train` is part of the identity; the same order continues."""
    shutil.copytree(run.parent, tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    text = Path("many.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    first = next(index for index, line in enumerate(lines) if "both_ways" in line)
    lines[first], lines[first + 1] = lines[first + 1], lines[first]
    Path("other.yaml").write_text("\n".join(lines), encoding="utf-8")
    assert main(["train", "other.yaml", "--run-dir", "run"]) == 2
    assert "was trained with other settings" in capfd.readouterr().err


ALONE = """
source_language: en
target_language: de
data: {train: {source: train.en, target: train.de}, valid: {source: valid.en, target: valid.de}, num_workers: 1}
tokenizer: {sampling: 0.5}
training: {init_from: run, batch_tokens: 256, threads: 1, device: cpu}
"""


def test_a_run_of_one_direction_has_its_tags_in_every_batch(run, tmp_path, monkeypatch):
    """Law: also if segmentations are drawn, and if runs of other directions share the files and the cache."""
    monkeypatch.chdir(run.parent)
    (tmp_path / "alone.yaml").write_text(ALONE, encoding="utf-8")
    identities, whole = set(), load_model(run).tokenizers
    for direction in TRAINED[1:]:
        changes = [f"{side}_language={name}" for side, name in zip(("source", "target"), direction, strict=True)]
        inputs, rows = Inputs.open(config_file.load(tmp_path / "alone.yaml", changes), tmp_path / "cache"), set()
        with contextlib.closing(runtime.start("cpu", "float32")) as here:
            make_batch = build(inputs, None, here).make_batch
        directed = whole.directed(Direction(*direction))
        tags, start = list(directed.source.tag_ids), list(directed.target.start_ids)
        for epoch in range(3):
            batch = make_batch(np.arange(40), epoch)
            for ids, mask in zip(batch.source_ids, batch.source_mask, strict=True):
                rows.add(tuple(ids[mask].tolist()))
            assert all(row[: len(start)] == start for row in batch.target_input.tolist())
        assert all(list(row[: len(tags)]) == tags for row in rows)
        assert len(rows) > len({directed.source.decode(row) for row in rows})  # segmentations were drawn
        identities.add(inputs.identity()["training.init_from"])
    assert len(identities) == 1  # as in earlier versions; the direction is in the settings


def test_batches_with_tags_have_the_shapes_of_a_table(run, tmp_path, monkeypatch):
    """Law: recorded steps, which need shapes, get every batch of a run of many directions."""
    monkeypatch.chdir(run.parent)
    inputs = Inputs.open(config_file.load(Path("many.yaml"), ["training.device=cpu"]), tmp_path / "cache")
    with contextlib.closing(runtime.start("cpu", "float32")) as here:
        task = build(inputs, Path("run/tokenizer"), here, fixed_shapes=True)
    assert all(task.make_batch(indices, 0).is_filled for indices in task.sampler.plan(0))


@pytest.mark.slow
def test_one_of_each_trains_the_bits_of_a_single_direction(tmp_path, monkeypatch):
    """Law: `languages` with one source and one target is today's run, file for file."""
    write_corpora(tmp_path)
    monkeypatch.chdir(tmp_path)
    rest = CONFIG[CONFIG.index("tokenizer:") :].replace(", best_of: worst", "").replace("max_steps: 6", "max_steps: 3")
    data = "data: {train: {source: train.en, target: train.de}, valid: {source: valid.en, target: valid.de}}\n"
    for name, head in (
        ("a", "source_language: en\ntarget_language: de\n"),
        ("b", "languages: {source: en, target: de}\n"),
    ):
        Path(f"{name}.yaml").write_text(head + data + rest, encoding="utf-8")
        assert main(["train", f"{name}.yaml", "--run-dir", name]) == 0
    ours, theirs = load_model("a"), load_model("b")
    for name, tensor in ours.model.state_dict().items():
        assert torch.equal(tensor, theirs.model.state_dict()[name]), name
    names = sorted(path.name for path in Path("a/best").iterdir())
    assert names == sorted(path.name for path in Path("b/best").iterdir())
    assert "languages.json" not in names
    assert Path("a/best/config.json").read_bytes() == Path("b/best/config.json").read_bytes()
    assert "directions" not in json.loads(Path("a/best/config.json").read_text())


def test_a_validation_set_of_a_direction_that_no_line_has_is_refused(tmp_path, monkeypatch, capsys):
    """A corpus whose lines have their own languages must be read before its directions are known."""
    monkeypatch.chdir(tmp_path)
    write_corpora(tmp_path)
    sides = [(tmp_path / f"train.{language}").read_text().splitlines() for language in ("en", "de")]
    lines = [{"source": one, "target": other, "a": "en", "b": "de"} for one, other in zip(*sides, strict=True)]
    (tmp_path / "mixed.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    mixed = "{jsonl: mixed.jsonl, from_column: a, to_column: b}"
    (tmp_path / "many.yaml").write_text(CONFIG.replace("TAGS", "source"))
    arguments = ["train", "many.yaml", "--run-dir", "run", "--set", "data.temperature=1", "--set"]
    assert main([*arguments, f"data.train={mixed}"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    remedy = "move such sets to data.test, or add pairs to data.train"
    assert error == f"s2s: data.valid: data.train has no pairs for en-fr; {remedy}"
    assert not (tmp_path / "run" / "checkpoints").exists()
    trained = f"data.train=[{mixed}, {{source: small.en, target: small.fr, from: en, to: fr}}]"
    valid = "data.valid={jsonl: mixed.jsonl, from_column: a, to_column: b}"
    assert main([*arguments, trained, "--set", valid, "--set", "training.best_of=en-dee"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.endswith("training.best_of: en-dee is not one of mean, worst, en-de; did you mean 'en-de'?")
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert main([*arguments, trained]) == 0
