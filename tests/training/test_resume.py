"""Going on: a run that was stopped, killed or damaged at any moment ends as one that was not."""

import dataclasses
import itertools
import os
import random
import signal
import sys
import time

import pytest
import torch
from support import toy_run
from support.toy_run import Killed, killed_at, make_trainer, outcome, steps_of, toy_loss, train

from seq2seq import runtime
from seq2seq.errors import CheckpointError, RunError
from seq2seq.files import read_object
from seq2seq.store import checkpoint

CPU = runtime.Runtime(torch.device("cpu"), torch.float32)


_one_thread = pytest.fixture(toy_run.one_thread, autouse=True)


# -- going on ----------------------------------------------------------------------------------------------------------

FULL = dict(ema=0.9, accumulate=2, patience=3)


def test_two_equal_runs_end_in_the_same_bits(tmp_path):
    train(tmp_path / "a", **FULL)
    train(tmp_path / "b", **FULL)
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")


def test_interrupted_anywhere_ends_in_the_same_bits(tmp_path):
    train(tmp_path / "whole", **FULL)
    for count in (1, 13, 15, 29, 52, 79):
        folder = tmp_path / f"{count}"
        with pytest.raises(Killed):
            train(folder, compute_loss=killed_at(count), **FULL)
        train(folder, **FULL)
        assert outcome(folder) == outcome(tmp_path / "whole"), f"interrupted after {count} micro-batches"


def test_interrupted_in_a_write_or_a_prune_ends_in_the_same_bits(tmp_path, monkeypatch):
    """The process dies at each renaming, syncing and deleting of files in turn."""
    train(tmp_path / "whole", **FULL)
    expected = outcome(tmp_path / "whole")
    moments = [("os.rename", 3), ("os.rename", 8), ("shutil.rmtree", 1), ("shutil.rmtree", 4), ("os.fsync", 30)]
    moments += [("os.rename", 11), ("os.rename", 12), ("shutil.rmtree", 2), ("os.fsync", 77)]
    later_processes = itertools.count()
    for name, count in moments:
        folder = tmp_path / f"{name}-{count}"
        with monkeypatch.context() as patch:
            module, _, function = name.partition(".")
            original, calls = getattr(sys.modules[module], function), iter(range(count))

            def dying(*args, original=original, calls=calls, **kwargs):
                if not kwargs.get("ignore_errors") and next(calls, None) is None:
                    raise Killed
                return original(*args, **kwargs)

            patch.setattr(f"{module}.{function}", dying)
            with pytest.raises(Killed):
                train(folder, **FULL)
        monkeypatch.setattr("seq2seq.atomic._TOKEN", f"{next(later_processes):08x}")
        train(folder, **FULL)
        assert outcome(folder) == expected, f"died at call {count} of {name}"


def slowly(work, events, name):
    """`work`, which takes its time, and when it began and ended."""

    def wrapped(*arguments):
        events.append(f"{name} begins")
        time.sleep(0.03)
        try:
            return work(*arguments)
        finally:
            events.append(f"{name} ends")

    return wrapped


def test_a_checkpoint_written_while_training_goes_on_is_of_its_step(tmp_path, monkeypatch):
    train(tmp_path / "whole", **FULL)
    events = []
    monkeypatch.setattr(checkpoint, "save_checkpoint", slowly(checkpoint.save_checkpoint, events, "a checkpoint"))

    def loss(module, batch):
        events.append("a batch")
        return toy_loss(module, batch)

    trainer = make_trainer(tmp_path / "slow", compute_loss=loss, **FULL)
    save_best = slowly(trainer._work.save_best, events, "a best model")
    trainer._work = dataclasses.replace(trainer._work, save_best=save_best)
    trainer.run()
    assert outcome(tmp_path / "slow") == outcome(tmp_path / "whole")
    at = {event: [place for place, other in enumerate(events) if other == event] for event in events}
    writes = list(zip(at["a checkpoint begins"], at["a checkpoint ends"], strict=True))
    assert "a batch" in {event for begin, end in writes for event in events[begin:end]}, "training goes on"
    written = [event for event in events if event != "a batch"]
    assert [event.replace("ends", "begins") for event in written[1::2]] == written[::2], "one folder at a time"


@pytest.mark.parametrize(("failing", "most_steps"), [(7, 13), (40, 40)])
def test_a_checkpoint_that_fails_ends_the_run_before_the_next_is_due(tmp_path, monkeypatch, failing, most_steps):
    """In the middle, and at the end of a run that was about to say that it finished."""
    original, steps = checkpoint.save_checkpoint, []

    def save(parent, step, *rest):
        if step == failing:
            raise RunError("no room")
        return original(parent, step, *rest)

    def loss(module, batch):
        steps.append(time.sleep(0.005))
        return toy_loss(module, batch)

    monkeypatch.setattr(checkpoint, "save_checkpoint", save)
    with pytest.raises(RunError, match="no room"):
        train(tmp_path, compute_loss=loss, validate_every=40)
    assert failing <= len(steps) <= most_steps


def test_copies_from_a_gpu_are_complete_before_they_are_written(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.cuda, "synchronize", calls.append)
    held, gpu = make_trainer(tmp_path)._snapshots, torch.device("cuda", 1)
    held._runtime = dataclasses.replace(held._runtime, device=gpu)
    tensor = torch.arange(3.0)
    copied = held._copied({"model": {"weight": tensor}})
    tensor.zero_()
    assert copied["model"]["weight"].tolist() == [0, 1, 2]
    assert calls == [gpu]


def test_a_finished_run_says_so_and_trains_nothing(tmp_path):
    train(tmp_path)
    before = outcome(tmp_path)
    _, result = train(tmp_path, compute_loss=killed_at(0))
    assert result.status == "already finished"
    assert "max_steps 40" in result.reason
    assert outcome(tmp_path) == before


def test_a_finished_run_that_goes_on_is_not_finished_for_readers_of_the_folder(tmp_path):
    """Killed before its first new checkpoint, it would lose its checkpoints to `s2s runs clean`."""
    train(tmp_path, max_steps=20)
    with pytest.raises(Killed):
        train(tmp_path, max_steps=40, compute_loss=killed_at(1))
    state = read_object(tmp_path / "checkpoints" / "step_00000020" / "state.json")["run"]
    assert (state["step"], state["finished"]) == (20, None)
    train(tmp_path, max_steps=40)
    train(tmp_path / "whole", max_steps=40)
    assert outcome(tmp_path)["metrics"] == outcome(tmp_path / "whole")["metrics"]


def test_raised_max_steps_go_on_as_if_they_had_been_there_from_the_start(tmp_path):
    train(tmp_path / "a", max_steps=20)
    _, result = train(tmp_path / "a", max_steps=40)
    train(tmp_path / "b", max_steps=40)
    assert result.status == "finished"
    assert result.step == 40
    a, b = outcome(tmp_path / "a"), outcome(tmp_path / "b")
    assert a["files"] == b["files"]
    assert a["metrics"] == b["metrics"]


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(tmp_path, caplog):
    with pytest.raises(Killed):
        train(tmp_path, compute_loss=killed_at(38))
    newest = tmp_path / "checkpoints" / f"step_{steps_of(tmp_path)[-1]:08d}"
    (newest / "model.safetensors").write_bytes(b"")
    train(tmp_path)
    train(tmp_path / "whole")
    assert f"{newest}: damaged checkpoint, not used" in caplog.text
    assert outcome(tmp_path)["files"] == outcome(tmp_path / "whole")["files"]


def test_only_damaged_checkpoints_stop_the_run_with_nothing_overwritten(tmp_path):
    train(tmp_path)
    for path in (tmp_path / "checkpoints").glob("*/manifest.json"):
        path.write_text("{")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match="every checkpoint is damaged"):
        train(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_checkpoint_of_another_model_is_refused(tmp_path, monkeypatch):
    train(tmp_path)
    monkeypatch.setattr(toy_run, "CLASSES", 7)
    with pytest.raises(CheckpointError, match=r"last\.weight has shape"):
        train(tmp_path)


def test_validation_frequency_does_not_change_what_is_learned(tmp_path):
    few, _ = train(tmp_path / "few", validate_every=40)
    many, _ = train(tmp_path / "many", validate_every=3)
    for one, other in zip(few.module.parameters(), many.module.parameters(), strict=True):
        assert torch.equal(one, other)


# -- processes ---------------------------------------------------------------------------------------------------------


def in_a_fork(folder, **settings):
    """The id of a process that trains; it began with everything imported, so that it can be killed early."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            train(folder, **settings)
            code = 0
        finally:
            os._exit(code)
    return child


@pytest.mark.slow
def test_killed_at_random_moments_ends_in_the_same_bits(tmp_path):
    """Every other one soon after it began, the others after they made some way."""
    settings = {**FULL, "max_steps": 150, "checkpoint_every": 2, "compute_loss": slow_loss, "patience": None}
    train(tmp_path / "whole", **settings)
    draw, kills, finished = random.Random(1), 0, False
    while not finished:
        assert kills < 500
        before, child = steps_of(tmp_path / "killed"), in_a_fork(tmp_path / "killed", **settings)
        deadline = time.monotonic() + 60
        while kills % 2 and steps_of(tmp_path / "killed") == before and time.monotonic() < deadline:
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.05) if kills % 2 else draw.uniform(0.02, 0.3))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        finished = status == 0
        assert finished or os.WIFSIGNALED(status)
        kills += not finished
    assert kills >= 25
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")


def slow_loss(module, batch):
    time.sleep(0.01)
    return toy_loss(module, batch)
