"""An ordered map in several processes, to tokenise, check and compare corpora; and the memory of a process.

Results do not depend on the number of processes, and only a few items are in memory. Benchmarks read the memory.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any, TypeVar

from seq2seq.errors import RunError, UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

ITEMS_AHEAD = 3  # per process: enough to keep it busy, few enough to hold in memory


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
    except (BrokenProcessPool, CancelledError) as error:
        raise RunError(f"a working process died (out of memory?); {remedy} to do without them") from error
    finally:
        processes.shutdown(cancel_futures=True)


class LocalProcesses(Executor):
    """Processes that each run one task at a time, so that the death of one fails its own task alone.

    A task that fails with `BrokenProcessPool` may be submitted again; a new process takes the place of a dead one.

    Args:
        count: number of processes.
        work: a function for tasks that belong together: each process receives it once, and if one process dies, all
            end.
    """

    def __init__(self, count: int, work: Callable[[Any], Any] | None = None):
        self._work = work
        self._threads = ThreadPoolExecutor(count, "s2s-worker")  # each starts a process and waits for it
        self._own = threading.local()
        self._lock = threading.Lock()
        self._pools: dict[int, ProcessPoolExecutor] = {}  # by the id of the process
        self._is_cancelled = False

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Run `work` in the next free process."""
        return self._threads.submit(self._run, work, *arguments, **named)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes: after their tasks, or now with `cancel_futures`."""
        self._is_cancelled = cancel_futures
        self._threads.shutdown(wait and not cancel_futures, cancel_futures=cancel_futures)
        if cancel_futures:
            self._terminate()
            self._threads.shutdown(wait)
        for pool in self._pools.values():
            pool.shutdown(wait, cancel_futures=cancel_futures)

    def _terminate(self) -> None:
        """Send SIGTERM to each process."""
        with self._lock:
            for process in self._pools:
                with contextlib.suppress(OSError):  # it has ended
                    os.kill(process, signal.SIGTERM)

    def _run(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        try:
            if not hasattr(self._own, "process"):
                self._own.process = self._start()
            if self._is_cancelled:  # while the process started
                raise CancelledError
            return self._pools[self._own.process].submit(work, *arguments, **named).result()
        except BrokenProcessPool:
            self._forget_process()
            raise

    def _start(self) -> int:
        """Start a process, and return its id when it is ready."""
        with self._lock:
            if self._is_cancelled:
                raise CancelledError
            pool = ProcessPoolExecutor(1, mp_context=_SPAWN, initializer=_start_worker)
            self._own.pool = pool
            _block_interrupts()
            # `work` is a task: what `initargs` send is written to a pipe, for ever if the process dies before it reads
            starting = pool.submit(_receive, self._work)
        process = starting.result()
        with self._lock:
            self._pools[process] = pool
        return process

    def _forget_process(self) -> None:
        """Remove the dead process of this thread, and if the tasks belong together, end the others."""
        with self._lock:
            self._pools.pop(vars(self._own).pop("process", None), None)  # none if it died while it started
        # Before Python 3.11.5, the pool writes a task that is longer than a pipe to a dead process for ever, because
        # this process itself has the other end of the pipe open (CPython issue 94777). Later versions close that end.
        if sys.version_info < (3, 11, 5):
            self._own.pool._call_queue._reader.close()
        self._own.pool.shutdown()
        if self._work is not None:
            self._is_cancelled = True
            self._terminate()


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
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


_worker: Callable[[Any], Any] | None = None  # the function of this process, if it is a worker


def _start_worker() -> None:
    """Prepare this process as a worker: its parent handles Ctrl-C, and it ends when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)  # a killed parent cannot stop its workers


def _receive(work: Callable[[Any], Any] | None) -> int:
    """Keep the function of this process, and return the id of the process."""
    global _worker
    _worker = work
    return os.getpid()


def _work_in_worker(item: Any) -> Any:
    assert _worker is not None
    return _worker(item)
