"""What is shown while training runs, on a terminal and in a log, and how long it says that it will take."""

import contextlib
import logging
import os
import re
import sys
import threading
import time

import pytest
from support import toy_run
from support.toy_run import make_trainer, outcome, records, toy_loss, toy_validation, train

from seq2seq.config.schema import TrainingConfig
from seq2seq.training import progress as shown
from seq2seq.training.activity import Activity
from seq2seq.training.monitor import Monitor
from seq2seq.training.progress import duration, estimate

_one_thread = pytest.fixture(toy_run.one_thread, autouse=True)


def paused(work, seconds):
    def slow(*arguments):
        time.sleep(seconds)
        return work(*arguments)

    return slow


@contextlib.contextmanager
def terminal(columns=80):
    """Standard error is a terminal inside; gives a list with all that was written to it."""
    import fcntl
    import struct
    import termios

    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    written = []

    def read():
        with contextlib.suppress(OSError):  # the other side is closed
            while data := os.read(reader, 4096):
                written.append(data)

    thread = threading.Thread(target=read)
    thread.start()
    before, sys.stderr = sys.stderr, os.fdopen(writer, "w", buffering=1, encoding="utf-8")
    try:
        yield written
    finally:
        sys.stderr.close()
        sys.stderr = before
        thread.join()
        os.close(reader)


def lines_of(written):
    return [line for line in re.split(r"[\r\n]+", b"".join(written).decode()) if line.strip()]


def clocks_in(written):
    """The clocks that were shown during a validation."""
    return set(re.findall(r"validating  \[(\d\d:\d\d)", b"".join(written).decode(errors="ignore")))


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals of POSIX")
def test_the_bar_moves_every_second_from_the_first_step_and_changes_nothing(tmp_path):
    settings = {"max_steps": 12, "log_every": 1000, "validate_every": 12}
    with terminal() as written:

        def watched(module):
            deadline = time.monotonic() + 20
            while len(clocks_in(written)) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            return toy_validation(module)

        slow = {"compute_loss": paused(toy_loss, 0.13), "validate": watched}
        train(tmp_path / "shown", rehearsal=[toy_run.make_batch(*toy_run.examples())], **slow, **settings)
    lines = lines_of(written)
    assert max(map(len, lines)) <= 77
    steps = [line for line in lines if "  loss " in line]
    assert len({re.search(r"step \d+", line)[0] for line in steps}) >= 2
    layout = r"%\|.*\| step \d+  loss \d+\.\d{3}(  [\d,]+ tokens/s)?  \[\d\d:\d\d(, \d\d:\d\d left)?]$"
    assert all(re.search(layout, line) for line in steps), steps
    assert " left]" in steps[-1]
    assert "preparing" in lines[0]
    assert len(clocks_in(written)) >= 2
    train(tmp_path / "quiet", **settings)
    assert outcome(tmp_path / "shown") == outcome(tmp_path / "quiet")


@pytest.mark.slow
def test_a_log_has_a_line_soon_whatever_log_every_is(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(shown, "FIRST_LINE", 1.0)
    caplog.set_level(logging.INFO)
    train(tmp_path, compute_loss=paused(toy_loss, 0.1), max_steps=25, log_every=1000, validate_every=1000)
    told = [
        message
        for message in caplog.messages
        if re.match(r"step \d+  loss \d+\.\d+  \[00:\d\d, 00:\d\d left]$", message)
    ]
    assert 1 <= len(told) <= 2  # after one second, and perhaps after two more
    assert re.search(r"\[00:0[1-9]", told[0])


@pytest.mark.slow
def test_what_else_takes_long_is_told_in_a_log_too(caplog, monkeypatch):
    monkeypatch.setattr(shown, "FIRST_LINE", 0.1)
    caplog.set_level(logging.INFO)
    with shown.waiting_for("training the tokenizer"):
        time.sleep(1.3)
    assert caplog.messages == ["training the tokenizer [00:01]"]
    with shown.waiting_for("nothing", shown=False):
        time.sleep(1.2)
    assert len(caplog.messages) == 1


def test_a_run_that_is_shorter_than_log_every_has_its_loss(tmp_path):
    train(tmp_path, max_steps=3, log_every=50)
    assert [record["step"] for record in records(tmp_path) if "loss" in record] == [3]


def test_samples_are_separated_by_blank_lines(tmp_path):
    train(tmp_path, max_steps=20)
    blocks = (tmp_path / "samples.txt").read_text().split("\n\n")
    assert [block.splitlines()[0] for block in blocks if block.startswith("==")] == ["== step 10", "== step 20"]


# -- how long it will take ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 second"), (61, "61 seconds"), (150, "2 minutes"), (16_200, "4 hours 30 minutes"),
        (7_200, "2 hours"), (90_000, "25 hours"), (3 * 86_400 + 3_600, "3 days 1 hour"),
    ],
)  # fmt: skip
def test_durations_in_words(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("limit", "done", "words"),
    [
        ({"max_steps": 20_000}, 0.0, "about 4 hours 27 minutes for 20,000 steps (40.0 epochs, 0.8 s per step)"),
        ({"max_steps": 20_000}, 0.25, "about 3 hours 20 minutes left for 15,000 steps (30.0 epochs, 0.8 s per step)"),
        ({}, 0.0, "for 20,000 steps"),
        ({"max_epochs": 3}, 0.0, "about 20 minutes for 1,500 steps (3.0 epochs, 0.8 s per step)"),
        (
            {"max_minutes": 1.5},
            0.0,
            "training.max_minutes ends it in about 90 seconds, after about 110 steps (0.2 epochs",
        ),
        ({"max_minutes": 60, "max_steps": 10}, 0.0, "about 8 seconds for 10 steps"),
        ({"max_minutes": 0.001}, 0.0, "after about 1 step ("),
        ({"patience": 5}, 0.0, "at most about"),
    ],
)
def test_an_estimate_names_the_limit_that_is_reached_first(limit, done, words):
    assert words in estimate(TrainingConfig(**limit), seconds_per_step=0.8, epochs_per_step=0.002, done=done)


def test_the_time_of_a_run_is_foretold(tmp_path):
    slow = {"compute_loss": paused(toy_loss, 0.03)}
    seconds, epochs = make_trainer(tmp_path / "timed", **slow).time_steps()
    assert not (tmp_path / "timed").exists()
    begun = time.monotonic()
    trainer, _ = train(tmp_path / "run", **slow)
    assert 0.5 < seconds * 40 / (time.monotonic() - begun) < 2
    assert epochs * 40 == pytest.approx(trainer.stream.epoch, rel=0.3)


def test_a_run_says_in_its_first_seconds_how_long_it_takes(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("seq2seq.training.monitor.SECONDS_TO_ESTIMATE", 0.5)
    caplog.set_level(logging.INFO)
    slow = {"compute_loss": paused(toy_loss, 0.05)}
    train(tmp_path / "run", **slow)
    (told,) = (message for message in caplog.messages if message.startswith("time: "))
    number = int(re.search(r"about \d+ seconds? left for (\d+) steps", told)[1])
    assert 15 <= number <= 33
    assert 0.05 <= float(re.search(r"([\d.]+) s per step", told)[1]) < 0.1
    train(tmp_path / "plain")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "plain")


def test_the_estimate_leaves_out_the_first_steps_which_are_slower(monkeypatch, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("seq2seq.training.monitor.SECONDS_TO_ESTIMATE", 0.3)
    monitor = Monitor(tmp_path, TrainingConfig(max_steps=1000), Activity())
    for step in range(1, 60):
        time.sleep(0.1 if step < 5 else 0.01)
        monitor.step(step, step / 1000, step / 100)
    (told,) = caplog.messages
    assert float(re.search(r"([\d.]+) s per step", told)[1]) < 0.05


def test_a_roll_back_within_the_first_seconds_starts_the_estimate_anew(monkeypatch, tmp_path, caplog):
    """The steps before it are made again: their number may be that of the first step, or less."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("seq2seq.training.monitor.SECONDS_TO_ESTIMATE", 1e-9)
    for steps in ([5, 5, 6, 7], [5, 3, 4, 5], [5, 6, 5, 6, 7], [1, 1, 1, 2, 3]):
        monitor = Monitor(tmp_path, TrainingConfig(max_steps=100), Activity())
        for step in steps:
            monitor.step(step, step / 100, step / 10)
    assert all(re.match(r"time: about \d+ seconds? left for \d+ steps", message) for message in caplog.messages)
    assert len(caplog.messages) == 4
