"""Workers that are killed or interrupted at any moment: one line or none, and the command always ends."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.forked import Forked, workers_of

from seq2seq import processes
from seq2seq.cli import main
from seq2seq.errors import RunError
from seq2seq.executors import completed, open_workers
from seq2seq.inspection import blocks

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="/proc, and signals of POSIX")]

MODULE = """
import time
time.sleep(0.3)

def work(payload, item):
    time.sleep(0.05)
    return item

def long_result(item):
    return bytes(20_000_000)
"""
LONGER_THAN_A_PIPE = 1_000_000  # bytes
INTERRUPTED = 130


class Group(Forked):
    """Work in a process group of its own."""

    modules = ()

    def __init__(self, work: Callable[[], int | None]):
        super().__init__(lambda: self._as_leader(work))

    @staticmethod
    def _as_leader(work: Callable[[], int | None]) -> int | None:
        os.setsid()
        return work()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that takes a while to import."""
    (tmp_path / "slow_to_import.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("slow_to_import")


@pytest.fixture
def work(module):
    """A function that takes a while to send."""
    return partial(module.work, bytes(LONGER_THAN_A_PIPE))


def first_worker(process: Forked | subprocess.Popen) -> int:
    """The id of a worker of a process, as soon as there is one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if workers := workers_of(process.pid):
            return workers[0]
        time.sleep(0.002)
    raise AssertionError(process.communicate(timeout=1))


def is_alone(process: int) -> bool:
    """Whether no process of a group lives, except those that have ended and that nobody waits for."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, _, group, *_ = status.read_text().rpartition(")")[2].split()
            if int(group) == process and state != "Z":
                return False
    return True


def ended(process: Forked | subprocess.Popen) -> tuple[int, str]:
    """The exit code and standard error of a process, all of whose workers end too."""
    _, err = process.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while not is_alone(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process.returncode, err


def mapped(work) -> int:
    """Work until something ends it."""
    try:
        endless = iter(int, 1)
        list(processes.in_processes(work, endless, 2, 2))
    except RunError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


MOMENTS = [0, 0.1, 0.5]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_that_is_killed_at_any_moment_ends_the_work_with_one_line(work, moment):
    process = Group(lambda: mapped(work))
    worker = first_worker(process)
    time.sleep(moment)
    os.kill(worker, signal.SIGKILL)
    code, err = ended(process)
    assert code == 1, err
    assert err == "a working process died (out of memory?); set data.num_workers: 1 to do without them\n"


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["the process", "the group"])
def test_an_interrupt_at_any_moment_prints_nothing(work, send, moment):
    process = Group(lambda: mapped(work))
    first_worker(process)
    time.sleep(moment)
    send(process.pid, signal.SIGINT)
    assert ended(process) == (INTERRUPTED, "")


@pytest.mark.parametrize("moment", [0.6, 0.8, 1.0])
def test_a_worker_that_ends_while_it_sends_a_long_result_holds_nothing_up(module, moment):
    interrupted, killed = (Group(lambda: mapped(module.long_result)) for _ in range(2))
    worker = first_worker(killed)
    first_worker(interrupted)
    time.sleep(moment)
    os.kill(worker, signal.SIGKILL)
    os.killpg(interrupted.pid, signal.SIGINT)
    assert ended(killed)[0] == 1
    assert ended(interrupted) == (INTERRUPTED, "")


def test_an_interrupt_of_a_starting_worker_alone_changes_nothing(work):
    def few() -> None:
        assert list(processes.in_processes(work, range(6), 2, 2)) == list(range(6))

    process = Group(few)
    os.kill(first_worker(process), signal.SIGINT)
    assert ended(process) == (0, "")


def test_a_worker_of_independent_tasks_that_is_killed_while_it_starts_is_replaced(work):
    def few() -> None:
        with open_workers("local", 2) as workers:
            assert sorted(completed(work, range(6), workers)) == [(item, item) for item in range(6)]

    process = Group(few)
    os.kill(first_worker(process), signal.SIGKILL)
    assert ended(process) == (0, "")


CHECK = """
import sys
from seq2seq.cli import main
from seq2seq.inspection import blocks
blocks.BLOCK_LINES = 500
sys.exit(main(["check", "text", "text", "--workers", "2"]))
"""


def test_the_remedies_start_no_workers(work, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("".join(f"a man and {number} dogs\n" for number in range(5000)))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", CHECK], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    os.kill(first_worker(process), signal.SIGKILL)
    code, err = ended(process)
    assert code == 1, err
    assert err == "s2s: a working process died (out of memory?); give --workers 1 to do without them\n"
    monkeypatch.setattr(processes, "LocalProcesses", None)
    monkeypatch.setattr(blocks, "BLOCK_LINES", 500)
    assert main(["check", "text", "text", "--workers", "1"]) == 1
    assert "the target is the source" in capsys.readouterr().out
    assert list(processes.in_processes(work, range(4), 1, 2)) == list(range(4))
