"""The real command killed again and again ends in the bits of one that was not, with all that a run has to remember.

Subword sampling, dropout, accumulation, a moving average, early stopping and a weighted mixture at once.
SIGKILL comes at random moments, in the middle of writing a checkpoint or a model, between renamings, in mid-prune.
"""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.forked import Forked, dies_in
from support.whole_runs import CONFIG, corpus, differences, newest

from seq2seq.cli import main
from seq2seq.store import checkpoint, model_folder
from seq2seq.training import trainer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

# It learns slowly and is judged often, so that it ends early, but has more checkpoints than kills.
CHANGED = (
    ("max_steps: 120", "max_steps: 5000, best_metric: chrf, precision: float32"), ("patience: 12", "patience: 5"),
    ("checkpoint_every: 7", "checkpoint_every: 2"), ("validate_every: 20", "validate_every: 12"),
    ("learning_rate: 3.0e-3", "learning_rate: 1.0e-3"), ("dropout_epochs: 4", "dropout_epochs: 2"),
)  # fmt: skip
RANDOM_MOMENTS = 6
PAUSE = 0.005


def half_a_file(path: Path, *_: object) -> None:
    path.write_bytes(b"\x10" * 1000)


def half_a_folder(path: Path, *_: object) -> None:
    for file in [entry for entry in path.iterdir() if entry.is_file()][:1]:  # none in what an early kill left
        file.unlink()


MOMENTS = {
    "writing a checkpoint": [dies_in(checkpoint, "write_tensors", calls, half_a_file) for calls in (0, 5, 10)],
    "writing the best model": [dies_in(model_folder, "write_tensors", 0, half_a_file)],
    "renaming": [dies_in(os, "rename", calls) for calls in (0, 1, 2, 3)],
    "bringing files to the disk": [dies_in(os, "fsync", calls) for calls in (4, 9, 23)],
    "pruning": [dies_in(shutil, "rmtree", calls, half_a_folder) for calls in (0, 1, 2)],
}


def slowed() -> None:
    """So that there is time to kill it on any machine."""
    original = trainer.learning_rate

    def slow(*arguments):
        time.sleep(PAUSE)
        return original(*arguments)

    trainer.learning_rate = slow


def started(folder: Path, prepare: Callable[[], None]) -> Forked:
    """A process that runs `s2s train`; it has everything imported, so that it can be killed early."""

    def work() -> int:
        slowed()
        prepare()
        return main(["train", "toy.yaml"])

    return Forked(work, folder)


def killed_by_the_clock(folder: Path, draw: random.Random) -> Forked:
    """Every other one soon after it began, the others after they made some way."""
    before, process = newest(folder), started(folder, lambda: None)
    if draw.random() < 0.5:
        deadline = time.monotonic() + 60
        while newest(folder) == before and time.monotonic() < deadline:
            time.sleep(0.002)
    time.sleep(draw.uniform(0, 0.15))
    process.kill()
    return process


def finished(process: Forked) -> str:
    """Wait for a process to end by itself, and return its log."""
    _, said = process.communicate(300)
    assert process.returncode == 0, said
    return said


def test_killed_at_random_and_at_the_worst_moments_ends_in_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.delenv("S2S_DATA", raising=False)
    whole, killed = (corpus(tmp_path / name) for name in ("whole", "killed"))
    for old, new in CHANGED:
        assert old in CONFIG
        for folder in (whole, killed):
            path = folder / "toy.yaml"
            path.write_text(path.read_text().replace(old, new))
    said = finished(started(whole, lambda: None))
    draw = random.Random(5)
    plan = [None] * RANDOM_MOMENTS + [prepare for moments in MOMENTS.values() for prepare in moments]
    draw.shuffle(plan)
    for number, prepare in enumerate(plan):
        process = killed_by_the_clock(killed, draw) if prepare is None else started(killed, prepare)
        _, err = process.communicate(300)
        assert process.returncode == -signal.SIGKILL, f"it ended before kill {number}: " + err
    finished(started(killed, lambda: None))
    assert differences(whole / "runs" / "toy", killed / "runs" / "toy") == []
    records = [json.loads(line) for line in (whole / "runs/toy/metrics.jsonl").read_text().splitlines()]
    assert records[-1]["step"] < 5000, "early stopping ended it"
    assert "no significant improvement of chrf in 5 validations" in said
