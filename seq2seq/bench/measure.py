"""What a benchmark measures with (clock, memory, rate of matrix products), and what several rounds come to.

`training` and `decoding` take one round of every system after the other, again and again, so that a machine that
becomes slower or faster does so for all of them. What they compare are rounds that stood side by side.
"""

import contextlib
import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from seq2seq.runtime import Runtime

# Large enough that a matrix product is limited by arithmetic alone.
MATMUL_SIZES = {"cpu": 2048, "cuda": 8192, "mps": 2048}
MATMUL_TIMES = 3


@dataclass(frozen=True)
class Spread:
    """One quantity over the rounds."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def low(self) -> float:
        return min(self.rounds)

    @property
    def high(self) -> float:
        return max(self.rounds)

    def as_dict(self) -> dict[str, float | list[float]]:
        """For JSON; four significant digits are more than a clock can tell."""
        shown = {"median": self.median, "low": self.low, "high": self.high}
        return {
            **{name: significant(value) for name, value in shown.items()},
            "rounds": list(map(significant, self.rounds)),
        }


@dataclass
class PeakMemory:
    """The most memory that was held beyond what was held before, in bytes; None where the system does not tell."""

    bytes: int | None = None


def significant(value: float) -> float:
    """`value` with four significant digits."""
    return float(f"{value:.4g}")


def speed_ratio(ours: Spread, theirs: Spread) -> Spread:
    """Our rate over theirs, of the rounds that stood side by side."""
    return Spread(tuple(our / their for our, their in zip(ours.rounds, theirs.rounds, strict=True)))


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """How long `work` takes until the last of it is computed; on CUDA by the device's own events."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
        return start.elapsed_time(end) / 1000  # it tells milliseconds
    _wait_for(device)
    begun = time.perf_counter()
    work()
    _wait_for(device)
    return time.perf_counter() - begun


def matmul_rate(runtime: Runtime, size: int | None = None) -> float:
    """FLOP/s of a large square matrix product in the runtime's precision, the best of a few."""
    size = size or MATMUL_SIZES[runtime.device.type]
    left, right = (torch.randn(size, size, device=runtime.device).to(runtime.precision) for _ in range(2))
    product = left @ right
    seconds = min(seconds_of(lambda: torch.mm(left, right, out=product), runtime.device) for _ in range(MATMUL_TIMES))
    return 2 * size**3 / seconds


@contextlib.contextmanager
def peak_memory(device: torch.device) -> Iterator[PeakMemory]:
    """Watch the memory of what runs inside: the GPU's allocations, or the pages that the process has in memory.

    All systems live in one process. What earlier ones freed is given back to the system first, so that it counts for
    the one that takes it again.
    """
    peak = PeakMemory()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device) - before
        return
    _give_back_free_pages()
    can_tell = _forget_peak()
    held = _resident("VmRSS")
    yield peak
    most = _resident("VmHWM")
    if can_tell and held is not None and most is not None:
        peak.bytes = max(most - held, 0)


def _wait_for(device: torch.device) -> None:
    if device.type == "mps":
        torch.mps.synchronize()


def _give_back_free_pages() -> None:
    with contextlib.suppress(AttributeError, OSError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)


def _forget_peak() -> bool:
    """Let VmHWM begin anew at what is held now; whether the kernel does so."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _resident(name: str) -> int | None:
    """A line of /proc/self/status, in bytes."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    for line in status.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    return None
