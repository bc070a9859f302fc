"""The measurement of benchmarks: alternating rounds, and functions for time, memory and matrix products.

Each benchmark says what a round of its entrants is. `take_rounds` repeats one round of every entrant after the other,
so that changes in the speed of the machine affect all of them, and `figures` computes the ratios of adjacent rounds.
`training` and `decoding` leave it to `compare` to open the systems of several toolkits.
"""

import contextlib
import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import truediv
from pathlib import Path
from typing import Any

import torch

from seq2seq.config.schema import ModelConfig
from seq2seq.errors import UserError, reason
from seq2seq.model.transformer import Transformer
from seq2seq.processes import resident_bytes
from seq2seq.runtime import Runtime

Progress = Callable[[str], object]

OURS = "seq2seq"
# Large enough that only arithmetic limits a matrix product.
MATMUL_SIZES = {"cpu": 2048, "cuda": 8192, "mps": 2048}
MATMUL_TIMES = 3


@dataclass
class Entrant:
    """A system that does one kind of work, and the rates of its rounds."""

    name: str
    work: str
    """The kind of work, empty if there is only one; entrants are compared with the first one of the same work."""
    take_round: Callable[[], dict[str, float]]
    """Times one round and returns rates by name (higher is faster)."""
    facts: dict[str, Any]
    """The figures that are the same in every round, for the report."""
    rates: dict[str, list[float]] = field(default_factory=dict)


def compare(
    openings: Iterable[tuple[str, Callable[[], Iterable[Entrant]]]],
    rounds: int,
    runtime: Runtime,
    matmul_size: int | None,
    progress: Progress,
) -> tuple[list[dict[str, Any]], dict[str, str], dict[str, Any]]:
    """Open all systems, then take every round of every entrant.

    Returns:
        The figures of each entrant, grouped by work; the systems that could not be measured, with the reason; and the
        number of rounds, with the machine's FLOP/s before each round.

    Raises:
        UserError: our system cannot be measured in any form.
    """
    entrants: list[Entrant] = []
    left_out: dict[str, str] = {}
    threads = torch.get_num_threads()
    for name, enter in openings:
        progress(f"opening {name}")
        try:
            entrants += enter()
        except Exception as error:  # whatever another toolkit raises, the others are measured
            if not entrants or (name == OURS and not isinstance(error, UserError)):
                raise
            told = str(error) if isinstance(error, UserError) else reason(error)
            left_out[name] = "; ".join(filter(None, (left_out.get(name), told)))
    works = [entrant.work for entrant in entrants]
    entrants.sort(key=lambda entrant: works.index(entrant.work))
    matmul_size = matmul_size or MATMUL_SIZES[runtime.device.type]
    peaks: list[float] = []

    def begin() -> None:
        torch.set_num_threads(threads)  # CTranslate2 changes the number for the whole process
        peaks.append(matmul_rate(runtime, matmul_size))

    take_rounds(entrants, rounds, progress, begin)
    work = {"rounds": rounds, "matmul_size": matmul_size, "matmul_flops_a_second": spread(peaks)}
    return list(figures(entrants, peaks)), left_out, work


def take_rounds(
    entrants: Sequence[Entrant], rounds: int, progress: Progress, begin: Callable[[], object] = lambda: None
) -> None:
    """Add the rates of so many rounds to each entrant; `begin` is called before each round."""
    for number in range(rounds):
        begin()
        for entrant in entrants:
            progress(f"round {number + 1} of {rounds}: {', '.join(filter(None, (entrant.name, entrant.work)))}")
            for name, rate in entrant.take_round().items():
                entrant.rates.setdefault(name, []).append(rate)


def figures(entrants: Sequence[Entrant], peaks: Sequence[float] = ()) -> Iterator[dict[str, Any]]:
    """Yield each entrant's facts and rates, and the ratios of the first to it.

    With `peaks`, the FLOP/s of the machine before each round, a rate `flops_per_second` is given as a share of these.
    """
    for entrant in entrants:
        first = next(other for other in entrants if other.work == entrant.work)
        rates = dict(entrant.rates)
        flops = rates.pop("flops_per_second") if peaks else []
        ratios = {
            f"{name}_ratio": spread(list(map(truediv, first.rates[name], values)))
            if entrant is not first and all(values)
            else None
            for name, values in rates.items()
        }
        if peaks:
            rates["matmul_share"] = list(map(truediv, flops, peaks))
        yield (
            {"name": entrant.name}
            | ({"work": entrant.work} if entrant.work else {})
            | entrant.facts
            | {name: spread(values) for name, values in rates.items()}
            | ratios
        )


def spread(rounds: Sequence[float]) -> dict[str, Any]:
    """Return median, lowest, highest and all values of the rounds, for JSON."""
    shown = {"median": statistics.median(rounds), "low": min(rounds), "high": max(rounds)}
    return {name: significant(value) for name, value in shown.items()} | {"rounds": list(map(significant, rounds))}


def significant(value: float) -> float:
    """Return `value` with four significant digits, which is more than a clock resolves."""
    return float(f"{value:.4g}")


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that `work` takes until the device has finished it."""

    def synchronize() -> None:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    synchronize()
    begun = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - begun


def matmul_rate(runtime: Runtime, size: int) -> float:
    """Return the FLOP/s of a large square matrix product in the runtime's precision, the best of a few."""
    left, right = (torch.randn(size, size, device=runtime.device).to(runtime.precision) for _ in range(2))
    product = left @ right
    seconds = min(seconds_of(lambda: torch.mm(left, right, out=product), runtime.device) for _ in range(MATMUL_TIMES))
    return 2 * size**3 / seconds


def forward_flops(model: Transformer, source_tokens: int, target_tokens: int) -> int:
    """Return the FLOPs of the products with weights, 2 for each weight and token.

    The formula is that of Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1. Padding and the
    products of queries, keys and values are not counted.
    """
    matrices = {name: weight.numel() for name, weight in model.named_parameters() if ".layers." in f".{name}"}
    matrices = {name: size for name, size in matrices.items() if name.endswith("weight") and "norm" not in name}
    source = sum(size for name, size in matrices.items() if "encoder." in name or "cross_attention.key_value" in name)
    target = sum(matrices.values()) - source + model.output.weight.numel()
    return 2 * (source * source_tokens + target * target_tokens)


def sizes(config: ModelConfig) -> dict[str, int]:
    """Return the sizes of a model, for the report."""
    names = ("num_encoder_layers", "num_decoder_layers", "d_model", "num_heads", "d_ff")
    return {name.removeprefix("num_") if "layers" in name else name: getattr(config, name) for name in names}


@contextlib.contextmanager
def peak_memory(device: torch.device) -> Iterator[list[int]]:
    """Measure the growth of memory inside the context, at its peak.

    Afterwards the list contains the highest number of bytes in use, minus those in use before. It is empty if the
    system does not report them. On a GPU, allocations are counted, and on a CPU the resident pages of the process. All
    systems run in one process, so memory that earlier systems freed is first returned to the operating system.
    """
    peak: list[int] = []
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.append(torch.cuda.max_memory_allocated(device) - before)
        return
    with contextlib.suppress(AttributeError, OSError):  # only glibc has this function
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current value
    except OSError:
        yield peak
        return
    before = resident_bytes()
    yield peak
    most = resident_bytes(peak=True)
    if before is not None and most is not None:
        peak.append(max(most - before, 0))
