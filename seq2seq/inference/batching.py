"""The protocol of engines, and how inference groups texts into batches. Nothing here imports torch."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from seq2seq.config.schema import SearchConfig
from seq2seq.search.base import Hypothesis, Sentence

# Tokens of a batch where none are given: of a search on a CPU, of other work on a CPU, and of either on a GPU, which
# computes with this many nearly as fast as with a tenth of them.
SEARCH_TOKENS, BATCH_TOKENS, GPU_TOKENS = 8192, 4096, 65536


class Engine(Protocol):
    """Translates ids to ids: any number of sentences, in any order, each as if alone."""

    max_length: int
    """Most positions of a source or a target, special ids included."""

    def translate(self, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence, best first, in the order of the sentences."""


def token_budget(given: int | None, on_cpu: int, device: str) -> int:
    """Tokens of a batch on a device of this type: those that are given, or else `on_cpu` or `GPU_TOKENS`.

    Where they do not fit in memory, the batch is halved (`memory.in_parts`).
    """
    return given or (GPU_TOKENS if device == "cuda" else on_cpu)


def token_groups(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of texts of similar lengths, the longest first, so that memory runs out at the start or never.

    A group holds as many texts as fit `budget` tokens, padding counted, and at least one.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        count = max(1, budget // lengths[order[start]])
        yield order[start : start + count]
        start += count


def equal_parts(ids: Sequence[int], count: int) -> list[Sequence[int]]:
    """`ids` in `count` consecutive parts of nearly equal length, none longer than ceil(len / count)."""
    return [ids[len(ids) * part // count : len(ids) * (part + 1) // count] for part in range(count)]
