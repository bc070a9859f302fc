"""`s2s tune` keeps what it measured: settings that win on the validation set, and what they bring to users."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.domains import OLD, write_domain
from support.foreign_models import make_marian
from support.our_models import make_ours

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.schema import SearchConfig
from seq2seq.data.examples import Pair
from seq2seq.store.model_folder import load_model, load_outline, update_search
from seq2seq.tensors import read_tensors
from seq2seq.workflows.tune import BEAM_SIZES, LEAST_GAIN, LENGTH_PENALTIES, Scoring, Trial, Tuner, translated

SETTINGS = ("learning_rate=2.0e-2", "max_steps=60", "validate_every=20", "keep_last=3", "checkpoint_every=20")
ROUNDED = 0.051  # s2s bleu prints one digit


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with a run that has learned half of its task."""
    folder = tmp_path_factory.mktemp("tune")
    write_domain(folder, "numbers", 400, 1)
    write_domain(folder, "numbers-test", 30, 2)
    test = "  test:\n    held: {source: numbers-test.en, target: numbers-test.de}\n"
    (folder / "old.yaml").write_text(OLD.replace("  num_workers", test + "  num_workers"), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        changes = [part for value in SETTINGS for part in ("--set", f"training.{value}")]
        assert main(["train", "old.yaml", *changes]) == 0
    return folder


@pytest.fixture
def run(trained, monkeypatch) -> Path:
    monkeypatch.chdir(trained)
    return trained / "runs" / "old"


def tuned(*arguments: str, capsys) -> dict:
    capsys.readouterr()
    assert main(["tune", *arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def measured(model: str, capsys) -> float:
    capsys.readouterr()
    files = ["--source", "numbers-test.en", "--reference", "numbers-test.de"]
    assert main(["bleu", "--model", model, *files, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return next(score["score"] for score in found if score["name"] == "BLEU")


def test_what_is_kept_is_what_users_get(run, capsys):
    weights, before = (run / "best" / "model.safetensors").read_bytes(), measured("runs/old", capsys)
    found = tuned("runs/old", capsys=capsys)
    kept = json.loads((run / "best" / "generation_config.json").read_text())
    search = load_model(run).description.search
    assert (search.beam_size, search.length_penalty) == (found["beam_size"], found["length_penalty"])
    assert {key: kept["search"][key] for key in ("beam_size", "length_penalty")} == {
        key: kept["tuned"][key] for key in ("beam_size", "length_penalty")
    }
    change = found["scores"]["validation"]["bleu"]
    assert change["before"] == pytest.approx(before, abs=ROUNDED)
    assert change["after"] == pytest.approx(measured("runs/old", capsys), abs=ROUNDED)
    assert change["after"] >= change["before"] - LEAST_GAIN
    assert found["scores"]["held"] == found["scores"]["validation"]  # the same file
    assert kept["tuned"]["scores"] == found["scores"]
    assert (run / "best" / "model.safetensors").read_bytes() == weights
    again = tuned("runs/old", capsys=capsys)
    assert again["scores"]["validation"]["bleu"]["before"] == pytest.approx(change["after"])


def test_scores_of_a_text_of_the_user_are_not_those_of_the_validation_set(run, tmp_path, capsys):
    """The model and its card have no score of the validation set then, unless the settings stay."""
    model = str(shutil.copytree(run / "best", tmp_path / "model"))
    files = ["--source", "numbers-test.en", "--reference", "numbers-test.de"]
    update_search(Path(model), {"beam_size": 1, "length_penalty": 0.1}, {})
    found = tuned(model, *files, capsys=capsys)
    assert (found["source"], found["length_penalty"]) != ("numbers-test.en", 0.7)
    assert "bleu" not in load_outline(model).description.metrics
    assert "| valid | bleu |" not in Path(model, "README.md").read_text()


def test_means_of_checkpoints_are_tried_for_a_new_folder(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = tuned("runs/old", "-o", str(tmp_path / "new"), capsys=capsys)
    assert {trial["weights"] for trial in found["trials"]} == {"the model", "mean of 2", "mean of 3"}
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    after = found["scores"]["validation"]["bleu"]["after"]
    assert after == pytest.approx(measured(str(tmp_path / "new"), capsys), abs=ROUNDED)
    converted = {path.name.split("-")[0] for path in (tmp_path / "cache").glob("seq2seq/ctranslate2/*-*")}
    assert len(converted) == 2  # of the run and of the new folder: those of means that are gone are gone too
    members = [f"runs/old/checkpoints/step_{step:08}" for step in (20, 40, 60)]
    assert main(["average", *members, "-o", str(tmp_path / "mean of 3")]) == 0
    assert main(["average", *members[1:], "-o", str(tmp_path / "mean of 2")]) == 0
    chosen = run / "best" if found["weights"] == "the model" else tmp_path / found["weights"]
    one, other = (read_tensors(folder / "model.safetensors") for folder in (chosen, tmp_path / "new"))
    assert all(one[name].equal(other[name]) for name in one)


def test_the_table_names_settings_scores_and_signatures(run, capsys):
    assert main(["tune", "runs/old", "--metric", "chrf"]) == 0
    captured = capsys.readouterr()
    for words in (
        "beam size",
        "length penalty",
        "validation bleu",
        "held chrf",
        "bleu|nrefs:1",
        "written to runs/old/best",
    ):
        assert words in captured.out
    assert "beam 1, " in captured.err


@pytest.mark.slow
def test_a_test_set_named_validation_does_not_hide_the_validation_set(run, capsys):
    """The validation set is that of `held`, and the test set another one."""
    written, config = (run / "config.yaml").read_text(), run / "config.yaml"
    sets = "data.test={validation: {source: numbers.en, target: numbers.de}}"
    try:
        config.write_text(config_file.dump(config_file.load(config, [sets])))
        found = tuned("runs/old", capsys=capsys)["scores"]
    finally:
        config.write_text(written)
    assert set(found) == {"validation", "test set validation"}
    assert found["validation"]["bleu"]["after"] == pytest.approx(measured("runs/old", capsys), abs=ROUNDED)
    assert found["validation"] != found["test set validation"]


@pytest.mark.slow
def test_files_of_the_user_come_before_those_of_the_run(run, tmp_path, capsys):
    make_ours(tmp_path / "model", ending=3.0)
    for side in ("en", "de"):
        lines = Path(f"numbers-test.{side}").read_text().splitlines(keepends=True)[:5]
        (tmp_path / f"few.{side}").write_text("".join(lines))
    files = ["--source", str(tmp_path / "few.en"), "--reference", str(tmp_path / "few.de")]
    found = tuned(str(tmp_path / "model"), *files, capsys=capsys)
    assert list(found["scores"]) == ["validation"]
    assert {trial["weights"] for trial in found["trials"]} == {"the model"}


class Scripted(Tuner):
    """Every candidate has the score that `value` gives it."""

    def __init__(self, value):
        self.value, self.trials = value, {}

    def _value(self, trial):
        return self.value(trial)

    def _trial(self, name, folder, beam_size, length_penalty):
        return Trial(name, beam_size, length_penalty, {}, 0.0)


@pytest.fixture
def model(tmp_path) -> Path:
    make_ours(tmp_path / "model")  # beam 3, length penalty 0.7
    return tmp_path / "model"


def choice(model, value):
    tuner = Scripted(value)
    tuner._loading, tuner._scoring = {"engine": "torch"}, Scoring("bleu", None, None)
    return tuner.tune({"the model": model, "mean of 2": model})


def test_chance_changes_nothing_and_a_smaller_beam_is_taken(model):
    start, best = choice(model, lambda trial: 0.09 * (trial != Trial("the model", 3, 0.7, {}, 0.0)))
    assert best == replace(start, beam_size=min(BEAM_SIZES))
    start, best = choice(model, lambda trial: min(trial.beam_size, 4))
    assert best == replace(start, beam_size=4)


def test_a_smaller_beam_that_scores_lower_is_told(model, caplog):
    caplog.set_level("INFO", "seq2seq")
    start, best = choice(model, lambda trial: 0.02 * min(trial.beam_size, 3))
    assert (start.beam_size, best.beam_size) == (3, 1)
    assert "beam size 1 instead of 3: bleu is 0.04 lower, which is less than 0.1" in caplog.text


@pytest.mark.parametrize("penalty", LENGTH_PENALTIES)
def test_the_best_of_each_setting_is_found(model, penalty):
    def value(trial):
        return trial.beam_size - 9 * abs(trial.length_penalty - penalty) + (trial.weights == "mean of 2")

    assert choice(model, value)[1] == Trial("mean of 2", max(BEAM_SIZES), penalty, {}, 0.0)


STORED = {
    "several": {"n_best": 3},
    "samples": {"n_best": 3, "sample": True, "temperature": 2.0, "top_k": 20, "top_p": 0.9},
}
LINES = ["one two three", "four", "five six"]


@pytest.mark.parametrize("kind", STORED)
def test_one_translation_of_a_search_is_measured_whatever_the_model_returns(kind, tmp_path, caplog):
    """Settings that choose among translations, or draw them, change no trial, and the stored search is possible."""
    plain = SearchConfig(beam_size=8, max_length_ratio=1.5)
    other = SearchConfig(**plain.model_dump(include={"beam_size", "max_length_ratio"}), **STORED[kind])
    for name, search in (("plain", plain), ("other", other)):
        make_ours(tmp_path / name, search=search)
    pairs, loading = [Pair(line, line) for line in LINES], {"engine": "torch"}
    for size in (1, 2, 4):
        texts = (translated(tmp_path / name, pairs, loading, beam_size=size) for name in ("plain", "other"))
        assert next(texts) == next(texts)
    _, best = choice(tmp_path / "other", lambda trial: 0.0)
    assert best.beam_size == (4 if kind == "several" else 1), "the smallest tried that the stored search can have"
    update_search(tmp_path / "other", best.search, {})
    assert load_outline(tmp_path / "other").description.search.beam_size == best.beam_size
    assert ("draws its translations at random" in caplog.text) == (kind == "samples")


def test_a_folder_of_transformers_is_named_also_without_generation_settings(tmp_path, capsys):
    make_marian(tmp_path / "foreign")
    (tmp_path / "foreign" / "generation_config.json").unlink()
    (tmp_path / "text").write_text("a\n")
    typed = ["--source", str(tmp_path / "text"), "--reference", str(tmp_path / "text"), "-o", str(tmp_path / "new")]
    assert main(["tune", str(tmp_path / "foreign"), *typed]) == 2
    assert "a folder of transformers; import it first: s2s convert" in capsys.readouterr().err


def test_test_sets_that_a_tuned_run_gets_are_scored_with_its_settings(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(Path(shutil.copytree(run.parent.parent, tmp_path / "copy", symlinks=True)))
    update_search(Path("runs/old/best"), {"beam_size": 8, "length_penalty": 2.0}, {})
    text = Path("old.yaml").read_text()
    Path("old.yaml").write_text(
        text.replace("  test:\n", "  test:\n    more: {source: numbers.en, target: numbers.de}\n")
    )
    changes = [part for value in SETTINGS for part in ("--set", f"training.{value}")]
    assert main(["train", "old.yaml", *changes]) == 0
    capsys.readouterr()
    assert main(["bleu", "--model", "runs/old", "--engine", "torch", "-f", "json", "-w", "6"]) == 0
    printed = {
        (each["test_set"], each["name"].casefold()[:4]): each["score"] for each in json.loads(capsys.readouterr().out)
    }
    scored = json.loads(Path("runs/old/test_scores.json").read_text())["scores"]
    assert {(each["dataset"], each["metric"]): round(each["value"], 6) for each in scored} == printed
    card = Path("runs/old/best/README.md").read_text()
    assert all(f"| {data} | {metric} | {value:.2f} |" in card for (data, metric), value in printed.items())
    assert "beam_size 8 (in training 2), length_penalty 2.0 (in training 0.7)" in card
    assert main(["runs", "runs"]) == 0
    assert "tuned since" not in capsys.readouterr().out
