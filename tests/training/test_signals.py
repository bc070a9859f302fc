"""Ctrl-C, SIGTERM, SIGHUP: acknowledged at once, nothing lost, and a run that continues ends as if not stopped."""

import contextlib
import logging
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import pytest
import torch
from support import toy_run
from support.toy_run import make_batch, make_trainer, outcome, toy_loss, toy_validation, train

from seq2seq import runtime
from seq2seq.runtime import Runtime
from seq2seq.training.signals import leaving_at_once

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

_one_thread = pytest.fixture(toy_run.one_thread, autouse=True)

ALONE = Runtime(torch.device("cpu"), torch.float32)
ROOT = str(Path(__file__).parents[2])


def signalled(work, call, number=signal.SIGINT):
    """`work`, in whose given call, counted from 1, the signal comes; if it is not left then, it takes its time."""
    calls = []

    def wrapped(*arguments):
        calls.append(True)
        if len(calls) == call:
            os.kill(os.getpid(), number)
            time.sleep(0.5)
        return work(*arguments)

    return wrapped


def batches():
    inputs, labels = toy_run.examples()
    return [make_batch(inputs[:90], labels[:90]), make_batch(inputs[:30], labels[:30])]


SETTINGS = {"ema": 0.9, "dropout": 0.2, "log_every": 7}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    with runtime.same_threads():
        torch.set_num_threads(1)
        train(folder, rehearsal=batches(), **SETTINGS)
    return outcome(folder)


NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


@pytest.mark.parametrize("number", NAMES)
@pytest.mark.parametrize(
    ("what", "call", "step"),
    [
        ("compute_loss", 1, 0),  # the rehearsal
        ("compute_loss", 3, 1),
        ("compute_loss", 12, 10),  # a step before a validation
        ("compute_loss", 22, 20),
        ("compute_loss", 42, 40),  # the last step
        ("validate", 1, 10),
        ("validate", 2, 20),
        ("validate", 4, 40),  # at the end
    ],
)
def test_stopped_at_any_moment_nothing_is_lost(tmp_path, whole, what, call, step, number):
    work = {"compute_loss": toy_loss, "validate": toy_validation}
    work[what] = signalled(work[what], call, number)
    _, result = train(tmp_path, rehearsal=batches(), **work, **SETTINGS)
    if result.status == "stopped":
        assert result.reason == NAMES[number]
        assert result.step == step
        assert (max(toy_run.steps_of(tmp_path), default=0)) == step
        _, result = train(tmp_path, rehearsal=batches(), **SETTINGS)
    else:
        assert (what, call) == ("compute_loss", 42)
    assert result.status == "finished"
    assert outcome(tmp_path) == whole


def test_a_validation_is_left_at_once_and_made_again(tmp_path):
    begun, ended = [], []

    def endless(module):
        begun.append(time.monotonic())
        try:
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                time.sleep(0.01)
        finally:
            ended.append(time.monotonic())

    _, result = train(tmp_path, validate=endless)
    assert (result.status, result.step) == ("stopped", 10)
    assert ended[0] - begun[0] < 1
    train(tmp_path)
    assert [record["step"] for record in toy_run.records(tmp_path) if "accuracy" in record] == [10, 20, 30, 40]


def test_the_answer_names_the_work_that_the_signal_meets(tmp_path):
    """In a step after a validation or a checkpoint, too."""
    met = []

    def asked(work):
        def wrapped(*arguments):
            met.append((trainer.state.step, trainer._stop._first("Ctrl-C").partition(";")[0]))
            return work(*arguments)

        return wrapped

    work = {"compute_loss": asked(toy_loss), "validate": asked(toy_validation)}
    trainer = make_trainer(tmp_path, rehearsal=batches()[:1], max_steps=12, **work)
    trainer.run()
    (_, first), *others = met
    validated = [step for step, answer in others if answer == "leaving the validation and saving"]
    steps = [step for step, answer in others if answer == "finishing this step and saving"]
    assert first == "stopping"
    assert validated == [10, 12]
    assert set(steps) == set(range(1, 13))
    assert len(others) == len(validated) + len(steps)


# -- in processes of their own -----------------------------------------------------------------------------------------


def busy(seconds):
    """A loss that waits in C, for a lock of SQLite, where no Python code of the main thread runs."""
    folder = tempfile.TemporaryDirectory()
    holder, waiting = (sqlite3.connect(f"{folder.name}/locked", timeout=seconds) for _ in range(2))
    holder.execute("BEGIN EXCLUSIVE")

    def compute(module, batch):
        assert holder.in_transaction, folder
        with contextlib.suppress(sqlite3.OperationalError):  # locked: the wait is over
            waiting.execute("BEGIN EXCLUSIVE")
        return toy_loss(module, batch)

    return compute


def in_a_fork(log, work):
    """The id of a process that logs to a file and ends with 0, or 130 after an interrupt."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sys.stderr = open(log, "w", buffering=1)
            logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
            work()
            code = 0
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def seconds_until(words, log):
    begun = time.monotonic()
    while not log.exists() or not re.search(words, log.read_text()):
        assert time.monotonic() - begun < 30, log.read_text()
        time.sleep(0.01)
    return time.monotonic() - begun


def code_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_the_first_signal_is_answered_in_the_middle_of_a_step_and_the_second_ends_it(tmp_path, name):
    number = signal.Signals[name]
    train(tmp_path / "run", max_steps=7)  # to a checkpoint
    log = tmp_path / "log"
    child = in_a_fork(log, lambda: train(tmp_path / "run", compute_loss=busy(5), log_every=1))
    seconds_until("continuing", log)
    time.sleep(0.5)
    os.kill(child, number)
    again = {"SIGINT": "press Ctrl-C again", "SIGTERM": "send SIGTERM again"}[name]
    assert seconds_until(f"finishing this step and saving; {again}.*last checkpoint: step 7", log) < 2
    time.sleep(0.4)
    begun = time.monotonic()
    os.kill(child, number)
    assert code_of(child) == 130
    assert time.monotonic() - begun < 2
    assert re.search(
        "stopped without saving; [01] steps? since step 7 lost; .* continues from there$", log.read_text().strip()
    )


def test_a_signal_that_comes_twice_at_the_same_time_is_one(tmp_path):
    child = in_a_fork(tmp_path / "log", lambda: train(tmp_path / "run", compute_loss=busy(0.1), max_steps=1000))
    seconds_until("step 4 ", tmp_path / "log")
    os.kill(child, signal.SIGINT)
    os.kill(child, signal.SIGTERM)
    os.kill(child, signal.SIGINT)
    assert code_of(child) == 0
    assert len(toy_run.steps_of(tmp_path / "run")) == 1


@pytest.mark.slow
def test_a_terminal_that_closes_saves_and_its_further_signals_lose_nothing(tmp_path):
    """The run leads the session of a terminal; it also gets SIGHUP again and again, as from a shell that ends."""
    child, terminal = pty.fork()
    if child == 0:
        code = 1
        try:
            sys.stderr = open(2, "w", buffering=1, closefd=False)
            logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
            train(tmp_path / "run", compute_loss=busy(0.3), max_steps=100)
            code = 0
        finally:
            os._exit(code)
    told = b""
    while b"loss" not in told:  # the bar, drawn on the terminal
        told += os.read(terminal, 1000)
    os.close(terminal)
    for _ in range(8):
        time.sleep(0.1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGHUP)
    assert code_of(child) == 0
    assert 0 < toy_run.steps_of(tmp_path / "run")[-1] < 100


@pytest.mark.slow
def test_sigterm_after_sighup_is_a_first_one(tmp_path):
    log = tmp_path / "log"
    child = in_a_fork(log, lambda: train(tmp_path / "run", compute_loss=busy(1.5), max_steps=1000))
    seconds_until("step 1 |loss", log)
    os.kill(child, signal.SIGHUP)
    seconds_until("send SIGTERM twice to quit without saving", log)
    time.sleep(0.4)
    os.kill(child, signal.SIGTERM)
    assert code_of(child) == 0
    assert 0 < toy_run.steps_of(tmp_path / "run")[-1] < 1000


def test_what_nohup_ignores_stays_ignored(tmp_path):
    def ignoring():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        train(tmp_path / "run", compute_loss=busy(0.1), max_steps=12)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN

    child = in_a_fork(tmp_path / "log", ignoring)
    seconds_until("step 4 ", tmp_path / "log")
    os.kill(child, signal.SIGHUP)
    assert code_of(child) == 0
    assert toy_run.steps_of(tmp_path / "run")[-1] == 12


def test_work_with_nothing_to_save_is_left(tmp_path):
    log = tmp_path / "log"

    def sleep():
        with leaving_at_once(ALONE, "stopping"):
            print("begun", file=sys.stderr)
            time.sleep(60)

    child = in_a_fork(log, sleep)
    seconds_until("begun", log)
    os.kill(child, signal.SIGINT)
    assert code_of(child) == 130
    assert "Ctrl-C: stopping" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_work_in_c_that_hears_of_no_signal_ends_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("seq2seq.training.signals.SECONDS_TO_LEAVE", 0.2)
    log = tmp_path / "log"

    def compute():
        with leaving_at_once(ALONE, "stopping"):
            work = busy(20)
            print("begun", file=sys.stderr)
            work(toy_run.ToyModel(), batches()[1])

    child = in_a_fork(log, compute)
    seconds_until("begun", log)
    time.sleep(0.1)
    os.kill(child, signal.SIGTERM)
    begun = time.monotonic()
    assert code_of(child) == 130
    assert time.monotonic() - begun < 2


def test_handlers_are_as_before_when_a_run_has_ended(tmp_path):
    before, threads = [*map(signal.getsignal, NAMES)], set(threading.enumerate())
    train(tmp_path, max_steps=2)
    with pytest.raises(ValueError, match="as it was"), leaving_at_once(ALONE, ""):
        raise ValueError("as it was")
    deadline = time.monotonic() + 5
    while set(threading.enumerate()) - threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [*map(signal.getsignal, NAMES)] == before
    assert not set(threading.enumerate()) - threads
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["training the tokenizer", "scoring the test sets"])
def test_the_command_is_left_before_and_after_training(tmp_path, moment):
    phrasebook = Path(ROOT) / "data" / "phrasebook"
    (tmp_path / "demo.yaml").write_text(
        f"""source_language: en
target_language: de
data:
  train: {{source: train.en, target: train.de}}
  valid: {{source: valid.en, target: valid.de}}
  test: {{many: {{source: {phrasebook}/test.en, target: {phrasebook}/test.de}}}}
tokenizer: {{vocab_size: 1000}}
model: {{preset: tiny}}
training: {{max_steps: 1, batch_tokens: 512, threads: 1}}
"""
    )
    for language, greeting in (("en", "Good morning."), ("de", "Guten Morgen.")):
        lines = (phrasebook / f"train.{language}").read_text().splitlines(keepends=True)
        (tmp_path / f"train.{language}").write_text("".join(lines[:3000]))
        (tmp_path / f"valid.{language}").write_text(f"{greeting}\n")
    command = [sys.executable, "-m", "seq2seq", "train", "demo.yaml"]
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=log)
    seconds_until(moment, tmp_path / "log")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=6) == 130
    told = (tmp_path / "log").read_text().splitlines()
    assert all(line.startswith("s2s: ") for line in told), "\n".join(told)
    assert told[-1].startswith("s2s: Ctrl-C: "), told
