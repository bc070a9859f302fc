"""An error that names a lost rank: the other ranks raise it with the report of that rank, if there is one."""

import contextlib
import time
from collections.abc import Iterator

import torch.distributed as dist

from seq2seq.errors import RunError
from seq2seq.runtime import Runtime

SECONDS_TO_REPORT = 3.0
# Words, in lower case, in errors of torch that mean that another process has ended.
LOST = ("gloo", "nccl", "closed by peer", "reset by peer", "broken pipe", "timed out waiting")


@contextlib.contextmanager
def naming_lost_ranks(runtime: Runtime) -> Iterator[None]:
    """Turn the failure of a collective call into an error that names the lost rank, with its own error if it reported.

    Raises:
        RunError: another rank failed or ended.
    """
    if runtime.world_size == 1:
        yield
        return
    store = dist.PrefixStore("ranks", dist.distributed_c10d._get_default_store())
    try:
        yield
    except Exception as error:
        with contextlib.suppress(RuntimeError):  # the store is gone when the rank that held it is
            store.set(f"{runtime.rank}", "" if _lost_contact(error) else f"{type(error).__name__}: {error}")
        if runtime.device.type == "cuda":  # leaving the group normally would wait for kernels that never end
            dist.distributed_c10d._abort_process_group()
        if not _lost_contact(error):
            raise
        lost = _who_is_lost(store, runtime)
        raise RunError(
            f"{lost}; run the same command again to continue from the last checkpoint (torchrun --max-restarts does it)"
        ) from error


def _who_is_lost(store: dist.Store, runtime: Runtime) -> str:
    """Return which ranks failed or ended, from the reports of the others: an error, or "" if they too lost contact."""
    deadline = time.monotonic() + SECONDS_TO_REPORT
    others = [rank for rank in range(runtime.world_size) if rank != runtime.rank]
    try:
        while time.monotonic() < deadline and not store.check([f"{rank}" for rank in others]):
            time.sleep(0.05)
        reports = {rank: store.get(f"{rank}").decode() for rank in others if store.check([f"{rank}"])}
    except RuntimeError:
        return "rank 0, which connects the ranks, has ended" if runtime.rank else "the other ranks cannot be reached"
    failed = [f"rank {rank} failed ({report})" for rank, report in reports.items() if report]
    silent = [f"rank {rank} of {runtime.world_size} ended without a report" for rank in others if rank not in reports]
    return "; ".join(failed or silent) or "the connection between the ranks was lost"


def _lost_contact(error: Exception) -> bool:
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in LOST)
