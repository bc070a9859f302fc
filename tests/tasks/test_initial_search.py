"""A run takes the search settings that are not written from its initial model when it begins, and keeps them."""

import json
import shutil
from pathlib import Path

import pytest
from support.domains import DOMAINS, OLD, write_domain

from seq2seq.cli import main
from seq2seq.config import file as config_file

TUNE = """
source_language: en
target_language: de
data:
  train: {source: colours.en, target: colours.de}
  valid: {source: colours-test.en, target: colours-test.de}
  num_workers: 1
training: {init_from: old, max_steps: 4, validate_every: 2, checkpoint_every: 2, batch_tokens: 512, threads: 1,
  learning_rate: 1.0e-3}
"""
TUNED = {"beam_size": 3, "length_penalty": 0.3}  # neither those of OLD nor the defaults


@pytest.fixture(scope="module")
def began(tmp_path_factory) -> Path:
    """A folder with a model in `old`, and in `runs/new` a run that began from it."""
    folder = tmp_path_factory.mktemp("initial")
    for domain in DOMAINS:
        write_domain(folder, domain, 60, 1)
        write_domain(folder, f"{domain}-test", 6, 2)
    (folder / "old.yaml").write_text(OLD)
    (folder / "new.yaml").write_text(TUNE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("S2S_DATA", raising=False)
        assert main(["train", "old.yaml", "--run-dir", "old", "--set", "training.max_steps=4"]) == 0
        assert main(["train", "new.yaml", "--run-dir", "runs/new"]) == 0
    return folder


@pytest.fixture
def run(began, tmp_path, monkeypatch) -> Path:
    """The run in a copy of the folder, whose initial model was tuned after the run began."""
    folder = Path(shutil.copytree(began, tmp_path / "copy", symlinks=True))
    monkeypatch.chdir(folder)
    monkeypatch.delenv("S2S_DATA", raising=False)
    path = folder / "old" / "best" / "generation_config.json"
    generation = json.loads(path.read_text())
    generation["search"] |= TUNED
    path.write_text(json.dumps(generation))
    return folder / "runs" / "new"


def search(run: Path):
    return config_file.load(run / "config.yaml", check_files=False).search


def train(capfd, *settings: str) -> str:
    """The log of the run, continued with these settings."""
    changes = [word for setting in settings for word in ("--set", setting)]
    assert main(["train", "new.yaml", "--run-dir", "runs/new", *changes]) == 0
    return capfd.readouterr().err


@pytest.mark.parametrize("steps", [4, pytest.param(6, marks=pytest.mark.slow)])
def test_tuning_the_initial_model_changes_no_run_that_began_from_it(run, capfd, steps):
    """A finished run, a continued one and what `--dry-run` says of it stay as they were."""
    before = search(run)
    longer = f"training.max_steps={steps}"
    assert main(["train", "new.yaml", "--run-dir", "runs/new", "--set", longer, "--dry-run"]) == 0
    out, err = capfd.readouterr()
    assert f"beam_size: {before.beam_size}" in out
    assert "refused" not in err
    log = train(capfd, longer)
    assert "search or evaluation changed" not in log
    assert ("already finished" in log) == (steps == 4)
    assert search(run) == before


def test_a_setting_that_is_written_holds_until_it_is_written_no_more(run, capfd):
    """The value after that is the one that the initial model had at the beginning."""
    before = search(run)
    assert "search or evaluation changed" in train(capfd, "search.beam_size=4")
    assert search(run) == before.model_copy(update={"beam_size": 4})
    train(capfd)
    assert search(run) == before


def test_a_new_run_takes_the_present_settings(run, capfd):
    """A run that starts over in the same folder is a new one too."""
    assert main(["train", "new.yaml", "--run-dir", "runs/new", "--overwrite"]) == 0
    assert search(run).model_dump(include=set(TUNED)) == TUNED
    assert "already finished" in train(capfd)
    assert search(run).model_dump(include=set(TUNED)) == TUNED
