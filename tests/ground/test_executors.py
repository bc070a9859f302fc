"""Every item has one outcome, whatever happens to workers: in this process, in local ones, and on a Dask cluster."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path

import pytest
from support.cluster import cluster, command_settings

from seq2seq.errors import DataError, MissingDependency, RunError, UserError
from seq2seq.executors import MOST_DEATHS, WorkerDied, Workers, completed, open_workers

needs_kill = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs SIGKILL")


def squared(item: int) -> int:
    if item == 3:
        raise DataError("three")
    return item * item


def deadly(folder: Path, item: int) -> int:
    """The square; item 3 always kills its worker, item 5 does the first time."""
    mark = folder / f"{item}-{time.monotonic_ns()}"
    mark.touch()
    if item == 3 or (item == 5 and len(list(folder.glob("5-*"))) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


def outcomes(where: str, count: int, work=squared, items=range(7)) -> dict:
    with open_workers(where, count) as workers:
        listed = list(completed(work, items, workers))
    assert sorted(item for item, _ in listed) == sorted(items)
    return dict(listed)


def assert_only_three_fails(found: dict, error: type[Exception], others=(0, 1, 2, 4, 5, 6)) -> None:
    assert isinstance(found.pop(3), error)
    assert found == {item: item * item for item in others}


def test_an_item_that_fails_does_not_stop_the_others():
    assert_only_three_fails(outcomes("local", 1), DataError)


class Ended(Executor):
    """A cluster whose scheduler ends: the tasks that run are cancelled."""

    def submit(self, work, /, *arguments, **named) -> Future:
        future: Future = Future()
        if arguments == (2,):
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_result(work(*arguments))
        return future


def test_an_executor_that_ends_is_one_line():
    outcomes = completed(squared, range(3), Workers(Ended(), 1))
    assert [next(outcomes), next(outcomes)] == [(0, 0), (1, 1)]
    with pytest.raises(RunError, match=r"the executor has ended, .*; the same command continues"):
        next(outcomes)


@pytest.mark.slow
@needs_kill
def test_local_workers_that_die_are_replaced_and_an_item_that_kills_each_of_them_is_named(tmp_path):
    found = outcomes("local", 2, partial(deadly, tmp_path))
    assert_only_three_fails(found, WorkerDied)
    assert len(list(tmp_path.glob("3-*"))) == MOST_DEATHS
    assert len(list(tmp_path.glob("5-*"))) == 2
    assert len(list(tmp_path.glob("4-*"))) == 1, "an item whose worker lives is not repeated"


UNGUARDED = """
print("imported", flush=True)
from seq2seq.executors import completed, open_workers
from seq2seq.processes import in_processes
items = ["a", "bb", "ccc", "dddd"]
print(list(in_processes(len, items, 2, 2)))
with open_workers("local", 2) as workers:
    print(sorted(completed(len, items, workers)))
print(__file__.endswith("unguarded.py"), __spec__ and __spec__.name)
"""


@pytest.mark.slow
@pytest.mark.parametrize("started", [["unguarded.py"], ["-m", "unguarded"]])
def test_workers_do_not_run_the_script_of_the_caller(tmp_path, started):
    """A script without `if __name__ == "__main__":` would begin its work again in each of them."""
    (tmp_path / "unguarded.py").write_text(UNGUARDED)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, *started], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    pairs = [("a", 1), ("bb", 2), ("ccc", 3), ("dddd", 4)]
    name = None if len(started) == 1 else "unguarded"
    assert done.stdout.splitlines() == ["imported", "[1, 2, 3, 4]", str(pairs), f"True {name}"]


def sleeping(folder: Path, item: int) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(60)


@pytest.mark.slow
@needs_kill
def test_an_interrupt_ends_local_processes_without_waiting_for_their_items(tmp_path):
    def interrupt():
        deadline = time.monotonic() + 30
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), open_workers("local", 2) as workers:
        list(completed(partial(sleeping, tmp_path), range(4), workers))
    assert time.monotonic() - began < 30
    for process in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(process.name), 0)


@pytest.mark.slow
@needs_kill
def test_a_cluster_gives_the_same_outcomes(tmp_path):
    pytest.importorskip("distributed")
    with cluster(tmp_path) as name:
        assert_only_three_fails(outcomes(name, 1), DataError)
        assert str(outcomes(name, 1, raising, [1])[1]) == "item 1"
        marks = tmp_path / "marks"
        marks.mkdir()
        assert_only_three_fails(outcomes(name, 1, partial(deadly, marks)), WorkerDied)


def deadly_again(folder: Path, item: int) -> int:
    """The square; item 3 kills its worker, except the first time."""
    mark = folder / f"{item}-{time.monotonic_ns()}"
    mark.write_text(str(os.getpid()))
    if item == 3 and len(list(folder.glob("3-*"))) > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


@pytest.mark.slow
@needs_kill
@pytest.mark.parametrize("item", [2, 3])
def test_a_result_whose_worker_dies_before_it_is_fetched_is_computed_again(tmp_path, monkeypatch, item):
    """The repeated task may work, or kill its worker too."""
    client = pytest.importorskip("distributed").Client
    marks = tmp_path / "marks"
    marks.mkdir()
    fetch, killed = client._gather_remote, []

    async def fetch_too_late(self, *arguments):
        for mark in [] if killed else marks.iterdir():
            killed.append(int(mark.read_text()))
            os.kill(killed[0], signal.SIGKILL)
        return await fetch(self, *arguments)

    monkeypatch.setattr(client, "_gather_remote", fetch_too_late)
    with cluster(tmp_path) as name:
        found = outcomes(name, 1, partial(deadly_again, marks), [item])[item]
    assert killed
    assert isinstance(found, WorkerDied) if item == 3 else found == item * item
    assert len(list(marks.iterdir())) == (1 + MOST_DEATHS if item == 3 else 2)


ENDING = """
import sys, time
from seq2seq.errors import RunError
from seq2seq.executors import completed, open_workers
try:
    with open_workers(sys.argv[1]) as workers:
        for item, _ in completed(time.sleep, [0, 60, 61], workers):
            print(item, flush=True)
except RunError as error:
    print(error)
"""


@pytest.mark.slow
@needs_kill
def test_a_scheduler_that_ends_is_one_line(tmp_path):
    """Dask's client would log tracebacks to standard error."""
    pytest.importorskip("distributed")
    (tmp_path / "ending.py").write_text(ENDING)
    with cluster(tmp_path, processes=(processes := [])) as name:
        script = subprocess.Popen(
            [sys.executable, "ending.py", name], cwd=tmp_path, env=command_settings(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert script.stdout.readline() == "0\n"
        for process in processes:  # workers, which would wait for their tasks, end too
            process.kill()
        said, logged = script.communicate(timeout=60)
    assert said == "the executor has ended, such as the scheduler of a cluster; the same command continues\n"
    assert logged == ""


@pytest.mark.slow
@needs_kill
def test_a_scheduler_that_ends_before_a_result_is_fetched_has_ended(tmp_path, monkeypatch):
    client = pytest.importorskip("distributed").Client
    fetch, processes = client._gather_remote, []

    async def fetch_too_late(self, *arguments):
        for process in processes:
            process.kill()
            process.wait()
        return await fetch(self, *arguments)

    monkeypatch.setattr(client, "_gather_remote", fetch_too_late)
    with cluster(tmp_path, processes=processes) as name, pytest.raises(RunError, match=r"the executor has ended"):
        outcomes(name, 1, squared, [1])


def raising(item: int) -> None:
    raise TypeError(f"item {item}")


def test_an_error_of_a_task_is_not_taken_for_a_death():
    ((_, error),) = outcomes("local", 1, raising, [1]).items()
    assert str(error) == "item 1"


def deadly_to_its_neighbours(item: int) -> int:
    """The square of `item`; 3 kills its worker while the others are still at work."""
    time.sleep(0.5 if item == 3 else 2)
    if item == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


@pytest.mark.slow
@needs_kill
def test_items_beside_one_that_kills_their_worker_keep_their_outcomes(tmp_path):
    """The scheduler counts each death of a worker for all items that the worker has."""
    pytest.importorskip("distributed")
    with cluster(tmp_path, count=1, threads=3) as name:
        assert_only_three_fails(outcomes(name, 1, deadly_to_its_neighbours, [3, 1, 2]), WorkerDied, [1, 2])


@pytest.mark.parametrize("name", ["dask:", "daks:tcp://a:1", "ray", ""])
def test_an_unknown_executor_is_refused(name):
    with pytest.raises(UserError, match=r"not an executor"), open_workers(name):
        pass


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingDependency, match=r"seq2seq-toolkit\[dask\]"), open_workers("dask:tcp://127.0.0.1:1"):
        pass


def test_a_scheduler_that_is_not_there_is_named(monkeypatch, tmp_path):
    pytest.importorskip("distributed")
    monkeypatch.setattr("seq2seq.executors.WAIT_SECONDS", 0.5)
    with (
        pytest.raises(RunError, match=r"dask:tcp://127.0.0.1:9: no scheduler answers; start it with dask scheduler"),
        open_workers("dask:tcp://127.0.0.1:9"),
    ):
        pass
