"""`s2s tune` on a model of many directions: the mean over the directions decides, and the directions are named."""

import json
import shutil
from pathlib import Path

import pytest
from support.many_directions import train

from seq2seq.cli import main
from seq2seq.store.model_folder import load_model

ROUNDED = 0.051  # s2s bleu prints one digit
DIRECTIONS = [("en", "de"), ("en", "fr")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("tuned"), "source")


@pytest.fixture
def run(trained, tmp_path, monkeypatch) -> Path:
    """A copy of the run, which a test may tune, in the current folder."""
    shutil.copytree(trained.parent, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return Path("run")


def scored(direction: tuple[str, str], capfd) -> dict[str, float]:
    """The figures of `s2s bleu --model` in one direction."""
    capfd.readouterr()
    source, target = direction
    files = ["--source", f"valid.{source}", "--reference", f"valid.{target}"]
    assert main(["bleu", "--model", "run", *files, "--from", source, "--to", target, "--format", "json"]) == 0
    return {
        found["name"].lower().replace("chrf2", "chrf"): found["score"] for found in json.loads(capfd.readouterr().out)
    }


@pytest.mark.slow
def test_the_mean_over_the_directions_decides(run, capfd):
    """Law: each figure is that of `s2s bleu --model` in its direction, before and after; the others are their means."""
    before = {direction: scored(direction, capfd) for direction in DIRECTIONS}
    assert main(["tune", "run", "--metric", "chrf", "--format", "json"]) == 0
    out, err = capfd.readouterr()
    assert "tuning on en-de, en-fr; the settings apply to all directions of the model" in err
    found = json.loads(out)
    assert found["directions"] == ["en-de", "en-fr"]
    for trial in found["trials"]:
        for metric in ("bleu", "chrf"):
            each = [trial["scores"][f"{metric}.{source}-{target}"] for source, target in DIRECTIONS]
            assert trial["scores"][metric] == pytest.approx(sum(each) / 2)
    after = {direction: scored(direction, capfd) for direction in DIRECTIONS}
    change = found["scores"]["validation"]
    for metric in ("bleu", "chrf"):
        for moment, measured in (("before", before), ("after", after)):
            for source, target in DIRECTIONS:
                ours, theirs = change[f"{metric}.{source}-{target}"][moment], measured[source, target][metric]
                assert ours == pytest.approx(theirs, abs=ROUNDED)
    assert set(found["scores"]["zero"]) == {"bleu", "chrf"}  # one direction
    best = max(found["trials"], key=lambda trial: trial["scores"]["chrf"])
    assert change["chrf"]["after"] >= best["scores"]["chrf"] - 0.5
    kept = json.loads(Path("run/best/generation_config.json").read_text())
    assert kept["tuned"]["directions"] == ["en-de", "en-fr"]
    search = load_model("run").description.search
    assert (search.beam_size, search.length_penalty) == (found["beam_size"], found["length_penalty"])


def test_languages_choose_among_the_directions_which_are_named(run, capfd):
    assert main(["tune", "run", "--to", "French"]) == 0
    out, err = capfd.readouterr()
    assert "tuning on en-fr; the settings apply to all directions of the model" in err
    assert "tuned on en-fr, for all directions of the model" in out
    assert "bleu.en-fr" not in out
    kept = json.loads(Path("run/best/generation_config.json").read_text())["tuned"]
    assert kept["directions"] == ["en-fr"]
    assert sorted(kept["scores"]) == ["validation", "zero"]  # the test sets into French
    validation = kept["scores"]["validation"]["chrf"]["after"]
    assert validation == pytest.approx(scored(("en", "fr"), capfd)["chrf"], abs=ROUNDED)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["--from", "de"], "data.valid has no pairs from de; give --source and --reference"),
        (["--to", "en"], "data.valid has no pairs to en; give --source and --reference"),
        (["--to", "it"], "--to it: not a language of the model; it has de, en, fr"),
        (["--source", "valid.en", "--reference", "valid.fr"], "name the language with --to; it has de, en, fr"),
    ],
)
def test_a_direction_that_cannot_be_tuned_on_is_one_line(run, typed, words, capfd):
    before = Path("run/best/generation_config.json").read_bytes()
    assert main(["tune", "run", *typed]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert words in line
    assert Path("run/best/generation_config.json").read_bytes() == before
