"""What the server counts, as text for Prometheus. No label is made of what a client sends."""

import bisect
import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

HELP = {
    "s2s_requests_total": "Requests answered; status 499 is a client that left.",
    "s2s_refused_total": "Requests refused, by reason.",
    "s2s_sentences_total": "Sentences accepted, and what became of them: done, failed, or withdrawn as nobody waits.",
    "s2s_tokens_total": "Target pieces of translations.",
    "s2s_characters_total": "Characters of sentences that were answered.",
    "s2s_flags_total": "Translations with a flag.",
    "s2s_terms_total": "Terms of glossaries: kept, forced or missing.",
    "s2s_request_seconds": "From the first line of a request to the end of its answer.",
    "s2s_queue_wait_seconds": "From the arrival of a sentence's request to the batch that it is computed in.",
    "s2s_batch_seconds": "To compute a batch.",
    "s2s_batch_sentences": "Sentences of a batch.",
    "s2s_queue_sentences": "Sentences that wait.",
    "s2s_queue_characters": "Characters that wait.",
    "process_resident_memory_bytes": "Memory of this process.",
}


class Histogram:
    """How many values were at most each bound, their sum and their number."""

    def __init__(self, bounds: Sequence[float]):
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterator[str]:
        """In Prometheus' format."""
        totals = list(itertools.accumulate(self._counts))
        for bound, total in zip([*map(str, self._bounds), "+Inf"], totals, strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._sum:.6g}"
        yield f"{name}_count {totals[-1]}"


class Metrics:
    """Counters, histograms, and gauges that are asked when they are shown. Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, Counter[str]] = defaultdict(Counter)
        self._gauges: dict[str, Callable[[], float]] = {}
        self._histograms = {
            "s2s_request_seconds": Histogram(SECONDS),
            "s2s_queue_wait_seconds": Histogram(SECONDS),
            "s2s_batch_seconds": Histogram(SECONDS),
            "s2s_batch_sentences": Histogram(SIZES),
        }

    def count(self, name: str, amount: float = 1, **labels: str | int) -> None:
        """Add to a counter; labels come from a fixed set."""
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
        with self._lock:
            self._counters[name][f"{{{shown}}}" if shown else ""] += amount

    def batch(self, sentences: int, seconds: float, waited: Sequence[float]) -> None:
        """Count a batch that was computed, and how long each of its sentences had waited."""
        with self._lock:
            self._histograms["s2s_batch_sentences"].add(sentences)
            self._histograms["s2s_batch_seconds"].add(seconds)
            for wait in waited:
                self._histograms["s2s_queue_wait_seconds"].add(wait)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.count("s2s_requests_total", route=route, status=status)
        with self._lock:
            self._histograms["s2s_request_seconds"].add(seconds)

    def value(self, name: str, labels: str) -> float:
        """Of a counter."""
        with self._lock:
            return self._counters[name][f"{{{labels}}}"]

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Show the value that `read` gives."""
        self._gauges[name] = read

    def text(self) -> str:
        """All of them."""
        gauges = {**self._gauges, "process_resident_memory_bytes": resident_memory}
        with self._lock:
            return "".join(f"{line}\n" for name in HELP for line in self._lines(name, gauges))

    def _lines(self, name: str, gauges: dict[str, Callable[[], float]]) -> Iterator[str]:
        if name in self._histograms:
            lines, kind = list(self._histograms[name].lines(name)), "histogram"
        elif name in gauges:
            lines, kind = [f"{name} {gauges[name]():.12g}"], "gauge"
        else:
            lines, kind = [f"{name}{labels} {value:.12g}" for labels, value in self._counters[name].items()], "counter"
        if lines:
            yield f"# HELP {name} {HELP[name]}"
            yield f"# TYPE {name} {kind}"
            yield from lines


def resident_memory() -> float:
    """Bytes of this process in memory, 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)
