"""Executors of independent tasks: this process, processes of this machine, or a Dask cluster.

A task is a call of a picklable function with one item; it may be repeated, so its effects must not depend on how often
it runs. `completed` yields the outcome of every item, also if workers die. Nothing here needs torch.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from dataclasses import dataclass
from functools import partial
from logging import CRITICAL
from typing import Any, TypeVar

from seq2seq.errors import MissingDependency, RunError, UserError, did_you_mean, quiet
from seq2seq.processes import LocalProcesses, ProcessDied

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")

LOCAL, DASK = "local", "dask:"
MOST_DEATHS = 3  # of workers that had the same item; one may be killed for another reason, such as memory
WAIT_SECONDS = 30  # for the scheduler of a cluster, and for its first worker
ITEMS_AHEAD = 2  # per worker of a cluster: enough to keep it busy


@dataclass(frozen=True)
class Workers:
    """An open executor, and the number of items to submit ahead of their results."""

    executor: Executor
    ahead: int


class WorkerDied(Exception):
    """The error of an item whose workers died each time."""


def check_executor(where: str) -> None:
    """Refuse a name that `open_workers` does not know.

    Raises:
        UserError: there is no such executor.
    """
    if where != LOCAL and (not where.startswith(DASK) or where == DASK):
        hint = did_you_mean(where, (LOCAL, DASK)) or "; give local, or dask:ADDRESS of a scheduler"
        raise UserError(f"executor {where!r}: not an executor{hint}")


@contextlib.contextmanager
def open_workers(where: str = LOCAL, count: int = 1) -> Iterator[Workers]:
    """Yield the executor that `where` names; an error in the block cancels its tasks and ends local processes.

    Args:
        where: `local`, or `dask:` with the address of a scheduler or the name of its JSON file.
        count: number of local processes; 1 is this process.

    Raises:
        MissingDependency: the package distributed is not installed.
        RunError: no scheduler or no worker answers.
        UserError: there is no such executor.
    """
    check_executor(where)
    if where != LOCAL:
        with _cluster(where.removeprefix(DASK)) as workers:
            yield workers
        return
    executor = _ThisProcess() if count == 1 else LocalProcesses(count)
    try:
        yield Workers(executor, count)
    except BaseException:
        executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()


def completed(
    work: Callable[[Item], Result], items: Iterable[Item], workers: Workers
) -> Iterator[tuple[Item, Result | Exception]]:
    """Yield each item with its result, or with the error that it raised, in the order of completion.

    An item whose worker dies is tried again, after the others and alone: the scheduler of a cluster blames a death on
    every item that waits for the same worker. After `MOST_DEATHS` deaths the error of the item is `WorkerDied`. The
    other items are not affected.

    Raises:
        RunError: the executor has ended.
    """
    waiting, suspects = deque(items), deque[Item]()
    deaths: Counter[Item] = Counter()
    running: dict[Future[Result], Item] = {}
    while waiting or running or suspects:
        while (waiting and len(running) < workers.ahead) or (suspects and not running):
            item = (waiting or suspects).popleft()
            running[workers.executor.submit(work, item)] = item
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            item, error = running.pop(future), CancelledError() if future.cancelled() else future.exception()
            if isinstance(error, CancelledError | asyncio.CancelledError):  # asyncio passes on the one as the other
                raise RunError("the executor has ended, such as the scheduler of a cluster; the same command continues")
            has_died = _is_death(error)
            deaths[item] += has_died
            if has_died and deaths[item] < MOST_DEATHS:
                suspects.append(item)
            elif has_died:
                yield item, WorkerDied("its worker died each time (out of memory?)")
            elif error is None:
                yield item, future.result()
            elif isinstance(error, Exception):
                yield item, error
            else:
                raise error


def _is_death(error: BaseException | None) -> bool:
    """Whether the error of an item means that its worker died, here or in a Dask cluster."""
    return isinstance(error, ProcessDied) or type(error).__name__ == "KilledWorker"


class _ThisProcess(Executor):
    """An executor that runs a task when it is submitted."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments, **named))
        except Exception as error:  # the caller reads it from the future, as with other executors
            future.set_exception(error)
        return future


class _Cluster(Executor):
    """An executor of the client of a Dask cluster.

    The client's own `get_executor` loses outcomes: if a worker dies while its result is fetched, the future gets a
    `TypeError` in place of the result, and if the repeated task fails then, the future never ends.
    """

    def __init__(self, client: Any):
        self._client = client

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        running = self._run(partial(work, *arguments, **named))
        return asyncio.run_coroutine_threadsafe(running, self._client.loop.asyncio_loop)

    async def _run(self, work: Callable[[], Any]) -> Any:
        task = self._client.submit(work, pure=False)  # not pure: it would get the error of its first try again
        try:
            return await task
        except Exception as error:
            if task.status != "error":  # the client itself failed, such as the connection to the scheduler
                raise CancelledError from error
            raise


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[Workers]:
    """Yield the workers of a Dask cluster, whose scheduler listens at `address` or wrote the file of that name."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingDependency("distributed", "dask", "--executor dask") from error
    named = {"scheduler_file": address} if address.endswith(".json") else {"address": address}
    # the client itself logs tracebacks of connections that end
    with quiet("distributed", CRITICAL), quiet("distributed.client", CRITICAL):
        try:
            client = Client(**named, timeout=WAIT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            remedy = f"start it with dask scheduler, and workers with dask worker {address} --nthreads 1"
            raise RunError(f"executor {DASK}{address}: no scheduler answers; {remedy}") from error
        with client:
            yield _workers(client, address)


def _workers(client: Any, address: str) -> Workers:
    """Return the workers of a cluster; closing the client cancels their tasks."""
    try:
        client.wait_for_workers(1, timeout=WAIT_SECONDS)
    except TimeoutError as error:
        raise RunError(f"executor {DASK}{address}: it has no workers; start them with dask worker") from error
    return Workers(_Cluster(client), ITEMS_AHEAD * max(sum(client.ncores().values()), 1))
