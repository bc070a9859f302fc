"""A finished run whose limits changed is not finished until training has ended with them, whatever is killed."""

import dataclasses
import os
import shutil
from pathlib import Path

import pytest
from support.toy_run import Killed
from test_run_identity import BASE, write_all

from seq2seq.cli import main
from seq2seq.tasks.run_folder import LIMITS
from seq2seq.training.trainer import Trainer
from seq2seq.workflows.cleaning import removals, remove
from seq2seq.workflows.runs import find_runs

RUN = Path("runs/one")
NO_LIMIT = ("training.max_steps=null", "training.max_epochs=1000", "training.max_minutes=100")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """A folder with a corpus and a run that is finished after 4 steps."""
    folder = tmp_path_factory.mktemp("shelf")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("S2S_DATA", raising=False)
        write_all()
        Path("base.yaml").write_text(BASE)
        assert train() == 0
    return folder


@pytest.fixture(autouse=True)
def folder(shelf, tmp_path, monkeypatch) -> None:
    """A copy of the shelf is the current folder."""
    monkeypatch.delenv("S2S_DATA", raising=False)
    shutil.copytree(shelf, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(tmp_path / "copy")


def train(*changes: str) -> int:
    settings = [part for change in changes for part in ("--set", change)]
    return main(["train", "base.yaml", "--run-dir", str(RUN), *settings])


def state() -> str:
    (run,) = find_runs(RUN)
    return run.state


def steps() -> list[str]:
    return sorted(os.listdir(RUN / "checkpoints"))


def die(*_):
    raise Killed


PLACES = ["run", "_rehearse", "_train_step"]
KILLS = [
    pytest.param(place, limit, marks=[] if (row - column) % 3 == 0 else [pytest.mark.slow])
    for row, limit in enumerate(LIMITS)
    for column, place in enumerate(PLACES)
]


@pytest.mark.parametrize(("place", "limit"), KILLS)
def test_killed_before_its_next_checkpoint_it_keeps_the_last_one(monkeypatch, limit, place):
    """Else `s2s runs clean` would delete the checkpoint from which the run continues."""
    changes, before = (*NO_LIMIT, f"{limit}=6"), steps()
    assert state() == "finished"
    for _ in ("the limits are new", "the limits are those of config.yaml"):
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, place, die)
            assert train(*changes) != 0
        assert state() == "stopped"
    (removal,) = removals([dataclasses.replace(run, state="finished") for run in find_runs(RUN)])
    assert removal.folders
    assert remove(removal) == 0
    assert steps() == before
    assert train(*NO_LIMIT, "training.max_steps=6") == 0
    assert (state(), steps()[-1]) == ("finished", "step_00000006")


def test_a_kill_while_the_new_limits_are_stored_loses_nothing(monkeypatch):
    monkeypatch.setattr("seq2seq.config.file.dump", die)
    assert train("training.max_steps=6") != 0
    assert state() == "stopped"


@pytest.mark.parametrize("limit", ["3", "4"])
def test_limits_that_still_end_the_run_leave_it_finished(limit):
    before = steps()
    assert train("training.max_epochs=1000", f"training.max_steps={limit}") == 0
    assert (state(), steps()) == ("finished", before)
    assert not (RUN / "new_limits.json").exists()


def test_a_run_that_has_not_begun_has_no_new_limits():
    shutil.rmtree(RUN / "checkpoints")
    shutil.rmtree(RUN / "best")
    assert train("training.max_steps=2") == 0
    assert state() == "finished"
