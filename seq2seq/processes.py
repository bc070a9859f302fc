"""An ordered map in several processes, to tokenise, check and compare corpora; and the memory of a process.

Results do not depend on the number of processes, and only a few items are in memory. Benchmarks read the memory.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
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


SPAWN = _Spawn()
"""How workers are started: a fork would copy the locks of threads (torch's, the stream's) without the threads."""


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
    work: Callable[[Item], Result], items: Iterable[Item], num_workers: int, min_items: int
) -> Iterator[Result]:
    """Yield `work(item)` for every item, in order.

    Args:
        work: pickled, and sent to each process once; a function of a module, as processes do not import the script.
        items: pickled; each is sent to one process, which returns its result.
        num_workers: number of processes; 0 is one per CPU.
        min_items: minimum number of items for which processes are started.

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
    pool = ProcessPoolExecutor(workers, mp_context=SPAWN, initializer=_start_worker, initargs=(work,))
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(_work_in_worker, item))
            if len(waiting) >= ITEMS_AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise RunError("a working process died (out of memory?); set data.num_workers: 1 to do without them") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


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


_worker: Callable[[Any], Any] | None = None  # the function of this process, if it is a worker


def _start_worker(work: Callable[[Any], Any]) -> None:
    global _worker
    start_worker()
    _worker = work


def start_worker() -> None:
    """Prepare this process as a worker: its parent handles Ctrl-C, and it ends when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)  # a killed parent cannot stop its workers


def _work_in_worker(item: Any) -> Any:
    assert _worker is not None
    return _worker(item)
