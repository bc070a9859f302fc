"""The real command killed again and again ends in the bits of one that was not, with all that a run has to remember.

Subword sampling, dropout, accumulation, a moving average, early stopping and a weighted mixture at once.
SIGKILL comes at random moments, in the middle of writing a checkpoint or a model, between renamings, in mid-prune.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.whole_runs import CONFIG, corpus, differences, newest

from seq2seq.cli import main
from seq2seq.store import checkpoint, model_folder
from seq2seq.training import trainer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

RANDOM_MOMENTS = 6
PAUSE = 0.005


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_in(module: object, name: str, calls: int, half: Callable[..., None] = lambda *_: None) -> Callable[[], None]:
    """Makes a process die in its call number `calls` of a function, of which it does `half`."""

    def prepare() -> None:
        original, counter = getattr(module, name), iter(range(calls))

        def dying(*arguments, **options):
            if next(counter, None) is None:
                half(*arguments)
                die()
            return original(*arguments, **options)

        setattr(module, name, dying)

    return prepare


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


def in_a_fork(folder: Path, prepare: Callable[[], None]) -> int:
    """The id of a process that runs `s2s train`; it began with everything imported, so that it can be killed early."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(folder)
            sys.stderr = open("log", "a", buffering=1)
            slowed()
            prepare()
            code = main(["train", "toy.yaml"])
        finally:
            os._exit(code)
    return child


def killed_by_the_clock(folder: Path, draw: random.Random) -> int:
    """Every other one soon after it began, the others after they made some way."""
    before, child = newest(folder), in_a_fork(folder, lambda: None)
    if draw.random() < 0.5:
        deadline = time.monotonic() + 60
        while newest(folder) == before and time.monotonic() < deadline:
            time.sleep(0.002)
    time.sleep(draw.uniform(0, 0.15))
    os.kill(child, signal.SIGKILL)
    return child


def test_killed_at_random_and_at_the_worst_moments_ends_in_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.delenv("S2S_DATA", raising=False)
    whole, killed = (corpus(tmp_path / name) for name in ("whole", "killed"))
    for old, new in (
        ("max_steps: 120", "max_steps: 5000, best_metric: chrf"), ("patience: 12", "patience: 4"),
        ("checkpoint_every: 7", "checkpoint_every: 4"),
    ):  # fmt: skip
        assert old in CONFIG
        for folder in (whole, killed):
            path = folder / "toy.yaml"
            path.write_text(path.read_text().replace(old, new))
    assert os.waitpid(in_a_fork(whole, lambda: None), 0)[1] == 0, (whole / "log").read_text()
    draw = random.Random(5)
    plan = [None] * RANDOM_MOMENTS + [prepare for moments in MOMENTS.values() for prepare in moments]
    draw.shuffle(plan)
    for number, prepare in enumerate(plan):
        child = killed_by_the_clock(killed, draw) if prepare is None else in_a_fork(killed, prepare)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"it ended before kill {number}: " + (killed / "log").read_text()[-2000:]
    assert os.waitpid(in_a_fork(killed, lambda: None), 0)[1] == 0, (killed / "log").read_text()[-2000:]
    assert differences(whole / "runs" / "toy", killed / "runs" / "toy") == []
    records = [json.loads(line) for line in (whole / "runs/toy/metrics.jsonl").read_text().splitlines()]
    assert records[-1]["step"] < 5000, "early stopping ended it"
    assert "no significant improvement of chrf in 4 validations" in (whole / "log").read_text()
