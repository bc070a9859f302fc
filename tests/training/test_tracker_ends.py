"""How a run ended is shown by its trackers, and runs that start together share one database of MLflow."""

import contextlib
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from support import toy_run
from support.toy_run import poisoned, toy_loss, toy_validation, train
from support.wandb_files import wandb_records

from seq2seq.errors import RunError
from seq2seq.training import trackers
from seq2seq.training.trackers import MLflow, Outcome, Remote, TrackedRun, WandB

_one_thread = pytest.fixture(toy_run.one_thread, autouse=True)
SHOWN = {"finished": ("FINISHED", 0), "stopped": ("KILLED", 255), "failed": ("FAILED", 1)}
SIGNALS = "SIGINT", "SIGTERM", "SIGHUP"
START = """
import sys, time
from pathlib import Path
import mlflow.tracking
from seq2seq.training.trackers import MLflow, TrackedRun

name, remote = sys.argv[1], (sys.argv[2:] or [None])[0]
Path(f"{name}.ready").touch()
while not Path("go").exists():
    time.sleep(0.01)
print(MLflow().start(TrackedRun(Path(name), 0, remote=remote)).identifier)
"""


class Noted:
    """A tracker that notes the starts and ends of its runs."""

    def __init__(self):
        self.starts, self.ends = [], []

    def start(self, run):
        self.starts.append(run.remote)
        return Remote("an-id")

    def finish(self, outcome):
        self.ends.append(outcome)

    def ignore(self, *given):
        """Receive what is not noted."""

    describe = scalars = text = ignore


def then(call, act, count):
    """Return a function as `call` that first acts when it is called for this time."""
    calls = iter(range(1, count))

    def called(*given):
        if next(calls, None) is None:
            act()
        return call(*given)

    return called


def fail():
    raise RunError("the memory is too small")


def interrupt(name):
    return lambda: signal.raise_signal(getattr(signal, name))


# How a run ends, and the settings that make it end so after its first checkpoint.
ENDS = {
    "at its limit": ("finished", {}),
    "without a checkpoint": ("stopped", {"compute_loss": then(toy_loss, interrupt("SIGTERM"), 2)}),
    **{name: ("stopped", {"compute_loss": then(toy_loss, interrupt(name), 6)}) for name in SIGNALS},
    "in a validation": ("stopped", {"validate": then(toy_validation, interrupt("SIGINT"), 2)}),
    "diverged": ("failed", {"compute_loss": poisoned(range(6, 99)), "max_bad_steps": 2, "max_rollbacks": 0}),
    "an error": ("failed", {"compute_loss": then(toy_loss, fail, 6)}),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_tracker_learns_once_how_each_start_ended_and_a_continued_run_is_finished(end, tmp_path, monkeypatch):
    outcome, settings = ENDS[end]
    monkeypatch.setitem(trackers.TRACKERS, "mlflow", lambda: noted)
    noted, common = Noted(), {"trackers": ["mlflow"], "checkpoint_every": 4, "validate_every": 5}
    with pytest.raises(RunError) if outcome == "failed" else contextlib.nullcontext():
        train(tmp_path, max_steps=10, **common, **settings)
    assert noted.ends == [outcome]
    train(tmp_path, max_steps=14, **common)
    assert noted.starts == [None, "an-id"]
    assert noted.ends == [outcome, "finished"]
    train(tmp_path, max_steps=14, **common)
    assert len(noted.starts) == 2, "nothing is left to do"


@pytest.mark.slow
def test_mlflow_shows_how_a_run_ended_until_it_is_continued(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:./ends")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "")  # MLflow sets it to the latest experiment; this takes it away later
    monkeypatch.delenv("MLFLOW_EXPERIMENT_ID")
    client, run = MlflowClient(), TrackedRun(Path("run"), 0)
    for outcome in get_args(Outcome):
        first, second = MLflow(), MLflow()
        remote = first.start(run).identifier
        shown = [client.get_run(remote).info.status]
        first.finish(outcome)
        shown.append(client.get_run(remote).info.status)
        second.start(replace(run, remote=remote))
        shown.append(client.get_run(remote).info.status)
        second.finish("finished")
        shown.append(client.get_run(remote).info.status)
        assert shown == ["RUNNING", SHOWN[outcome][0], "RUNNING", "FINISHED"]


@pytest.mark.slow
def test_wandb_shows_how_a_run_ended_until_it_is_continued(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for outcome in get_args(Outcome):
        codes, remote = [], None
        for end in (outcome, "finished"):
            (folder := tmp_path / f"{outcome}-{len(codes)}").mkdir()
            tracker = WandB()
            remote = tracker.start(TrackedRun(folder, 0, remote=remote)).identifier
            tracker.finish(end)
            wandb.teardown()  # as at the end of a process; it waits until the files are written
            (path,) = folder.glob("wandb/offline-run-*/*.wandb")
            codes += [record.exit.exit_code for record in wandb_records(path) if record.HasField("exit")]
        assert codes == [SHOWN[outcome][1], 0]


def started_together(*remotes: str | None) -> list[str]:
    """Start runs of MLflow in processes of their own at the same time, and return what each prints."""
    processes = []
    for number, remote in enumerate(remotes):
        command = [sys.executable, "-c", START, str(number), *filter(None, [remote])]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    try:
        until = time.monotonic() + 120
        while not all(Path(f"{number}.ready").exists() for number in range(len(remotes))):
            assert time.monotonic() < until
            time.sleep(0.05)
        Path("go").touch()
        return [process.communicate(timeout=120)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for path in (Path("go"), *Path().glob("*.ready")):
            path.unlink(missing_ok=True)


@pytest.mark.slow
def test_runs_that_start_together_share_a_database_of_mlflow(tmp_path, monkeypatch):
    """Also one that they make."""
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_ID", raising=False)  # MLflow sets it to the latest experiment
    monkeypatch.chdir(tmp_path)
    known = started_together(None, None)
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in known), known
    *continued, new = started_together(*known, None)
    assert continued == known
    assert len({*known, new}) == 3
