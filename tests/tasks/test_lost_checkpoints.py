"""A run whose checkpoints are gone: the same command keeps its model and says what can be done."""

import shlex
import shutil
from pathlib import Path

import pytest
from test_new_limits import RUN, die, folder, shelf, train  # noqa: F401 (two are fixtures)

from seq2seq.cli import main
from seq2seq.training.trainer import Trainer


def best() -> bytes:
    return (RUN / "best" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("change", [(), pytest.param(("training.max_steps=6",), marks=pytest.mark.slow)])
def test_a_best_model_is_not_replaced_by_a_run_from_the_beginning(change, capfd):
    assert train() == 0
    before, metrics = best(), (RUN / "metrics.jsonl").read_bytes()
    shutil.rmtree(RUN / "checkpoints")
    capfd.readouterr()
    assert train(*change) == 2
    told = capfd.readouterr().err.splitlines()[-1]
    assert "its checkpoints are missing, so the run cannot continue; start over with --overwrite" in told
    assert (best(), (RUN / "metrics.jsonl").read_bytes()) == (before, metrics)
    command = shlex.split(told.partition("best model: ")[2])
    assert main(["train", "base.yaml", *command]) == 0
    assert main(["train", "base.yaml", "--run-dir", str(RUN), "--overwrite"]) == 0


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_save", die)
        assert main(["train", "base.yaml", "--run-dir", "runs/new"]) == 1
    assert Path("runs/new/best").is_dir()
    assert not any(Path("runs/new/checkpoints").glob("step_*"))
    assert main(["train", "base.yaml", "--run-dir", "runs/new"]) == 0


def test_commands_that_are_told_hold_a_folder_with_a_space(capfd):
    arguments = ["train", "base.yaml", "--run-dir", "runs/a b"]
    assert main(arguments) == 0
    (told,) = [line for line in capfd.readouterr().err.splitlines() if "try: " in line]
    assert shlex.split(told.partition("| s2s ")[2]) == ["translate", "runs/a b"]
    assert main([*arguments, "--set", "seed=7"]) == 2
    command = shlex.split(capfd.readouterr().err.splitlines()[-1].partition("best model: ")[2])
    assert command == ["--set", "training.init_from=runs/a b", "--run-dir", "runs/a b-2"]
    assert main(["train", "base.yaml", *command]) == 0
