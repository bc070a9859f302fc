"""An ordered map in several processes, to tokenise, check and compare corpora; and the memory of a process.

Results do not depend on the number of processes, and only a few items are in memory. Benchmarks read the memory.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, TypeVar

from seq2seq.errors import RunError, UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

ITEMS_AHEAD = 3  # per process: enough to keep it busy, few enough to hold in memory


class ProcessDied(Exception):
    """The error of a task whose process ended first, such as by a lack of memory."""


class _Process(SpawnProcess):
    """A process that does not import the caller's script, which may train without `if __name__ == "__main__":`."""

    _starting = threading.Lock()

    def start(self) -> None:
        """Start the process while the script looks like an interactive session, which has neither file nor spec."""
        script = vars(sys.modules["__main__"])
        with self._starting:
            seen: dict[str, Any] = {name: script[name] for name in ("__file__", "__spec__") if name in script}
            script.pop("__file__", None)
            script["__spec__"] = None
            try:
                super().start()
            finally:
                script.update(seen)


class _Spawn(SpawnContext):
    Process = _Process


_SPAWN = _Spawn()  # a fork would copy the locks of threads (torch's, the stream's) without the threads


def usable_cpus() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resident_bytes(process: int | str = "self", peak: bool = False) -> int | None:
    """Return the bytes of a process in memory, or with `peak` the most since it began.

    None where the system does not report them, or if the process has ended.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    name = "VmHWM:" if peak else "VmRSS:"
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), None)


def in_processes(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    num_workers: int,
    min_items: int,
    remedy: str = "set data.num_workers: 1",
) -> Iterator[Result]:
    """Yield `work(item)` for every item, in order.

    Args:
        work: pickled, and sent to each process once; a function of a module, as processes do not import the script.
        items: pickled; each is sent to one process, which returns its result.
        num_workers: number of processes; 0 is one per CPU.
        min_items: minimum number of items for which processes are started.
        remedy: how the user asks for a single process, for the message if one dies.

    Raises:
        RunError: a process died.
    """
    iterator = iter(items)
    workers = num_workers or usable_cpus()
    first = list(islice(iterator, min_items if workers > 1 else 0))
    items = chain(first, iterator)
    if len(first) < max(min_items, 1):
        yield from map(work, items)
        return
    processes = LocalProcesses(workers, work)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(processes.submit(_work_in_worker, item))
            if len(waiting) >= ITEMS_AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except (ProcessDied, CancelledError) as error:
        raise RunError(f"a working process died (out of memory?); {remedy} to do without them") from error
    finally:
        processes.shutdown(cancel_futures=True)


class LocalProcesses(Executor):
    """Processes that each run one task at a time, so that the death of one fails its own task alone.

    A task that fails with `ProcessDied` may be submitted again; a new process takes the place of a dead one.

    Args:
        count: number of processes.
        work: a function for tasks that belong together: each process receives it once, and if one process dies, all
            end.
    """

    def __init__(self, count: int, work: Callable[[Any], Any] | None = None):
        self._work = work
        self._threads = ThreadPoolExecutor(count, "s2s-worker")  # each has a process, and waits for it
        self._own = threading.local()
        self._lock = threading.Lock()
        self._workers: set[_Worker] = set()
        self._is_cancelled = False

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Run `work` in the next free process."""
        return self._threads.submit(self._run, partial(work, *arguments, **named))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes: after their tasks, or now with `cancel_futures`."""
        self._threads.shutdown(wait and not cancel_futures, cancel_futures=cancel_futures)
        if cancel_futures:
            self._terminate()
            self._threads.shutdown(wait)
        if wait:
            for worker in self._workers:
                worker.end()

    def _terminate(self) -> None:
        """End each process now, and start none from now on."""
        with self._lock:
            self._is_cancelled = True
            for worker in self._workers:
                worker.process.terminate()

    def _run(self, task: Callable[[], Any]) -> Any:
        """Run a task in the process of this thread."""
        try:
            if not hasattr(self._own, "worker"):
                self._start()
            return self._own.worker.run(task)
        except ProcessDied:
            self._forget_process()
            raise

    def _start(self) -> None:
        """Start the process of this thread."""
        with self._lock:
            if self._is_cancelled:
                raise CancelledError
            self._own.worker = _Worker()
            self._workers.add(self._own.worker)
        if self._work is not None:
            self._own.worker.run(partial(_receive, self._work))

    def _forget_process(self) -> None:
        """Remove the dead process of this thread, and if the tasks belong together, end the others."""
        worker = vars(self._own).pop("worker")
        with self._lock:
            self._workers.remove(worker)
        worker.end()
        if self._work is not None:
            self._terminate()


class _Worker:
    """A process that runs one task after the other.

    Python's own pool writes and reads pipes of which it has the other end open itself, so a process that dies while it
    reads a long task, or writes a long result, holds it up for ever. Here the pipe ends with the process.
    """

    def __init__(self) -> None:
        _block_interrupts()
        self._pipe, theirs = _SPAWN.Pipe()
        with theirs:
            self.process = _SPAWN.Process(target=_run_tasks, args=(theirs,), daemon=True)
            self.process.start()

    def run(self, task: Callable[[], Any]) -> Any:
        """Return what `task` returns, or raise what it raises.

        Raises:
            ProcessDied: the process ended first.
        """
        pickled = ForkingPickler.dumps(task)
        try:
            self._pipe.send_bytes(pickled)
            outcome = self._pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise ProcessDied from error
        result, error = pickle.loads(outcome)
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        """Wait until the process, which has no task, has ended."""
        self._pipe.close()
        self.process.join()


class OfProcess:
    """An object that works only in the process that made it, such as one with threads, which a fork does not copy.

    Args:
        made: the object, whose attributes this one has.
        name: of the object, for messages.
    """

    def __init__(self, made: Any, name: str):
        self._made, self._name, self._process = made, name, os.getpid()

    def __getattr__(self, name: str) -> Any:
        if os.getpid() != self._process:
            raise self._error()
        return getattr(self._made, name)

    def __reduce__(self) -> Any:
        raise self._error()

    def _error(self) -> UserError:
        return UserError(f"{self._name} works only in the process that loaded it; load it in the other process")


def _block_interrupts() -> None:
    """Block SIGINT in this thread, and in processes that it starts from now on."""
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # a process of Python's own, whose start would unblock SIGINT
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _run_tasks(pipe: Connection) -> None:
    """Run the tasks of a pipe until its other end is closed. The parent of this process handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(_outcome(pipe.recv_bytes()))


def _outcome(task: bytes) -> memoryview:
    """Return the pickled result and error of a task."""
    try:
        return ForkingPickler.dumps((pickle.loads(task)(), None))
    except BaseException as error:
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickled := ForkingPickler.dumps((None, error)))
        except Exception:
            return ForkingPickler.dumps((None, RuntimeError(traceback.format_exc())))
        return pickled


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)  # a killed parent cannot stop its workers


_work: Callable[[Any], Any] | None = None  # the function of this process, if it is a worker


def _receive(work: Callable[[Any], Any]) -> None:
    """Keep the function of this process."""
    global _work
    _work = work


def _work_in_worker(item: Any) -> Any:
    assert _work is not None
    return _work(item)
