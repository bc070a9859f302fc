"""Batches of texts: how many tokens they have, which texts are computed together, and where long ones are cut.

Both engines, the scorer, the aligner and the classifier group their texts here. This module does not import torch.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Default tokens of a batch: of a search on a CPU, of other work on a CPU, and of both on a GPU, which needs hardly more
# time for this many than for a tenth of them.
SEARCH_TOKENS, BATCH_TOKENS, GPU_TOKENS = 8192, 4096, 65536


def token_budget(given: int | None, on_cpu: int, device: str) -> int:
    """Return the tokens of a batch on a device of this type: `given`, or else `on_cpu` or `GPU_TOKENS`.

    A batch that does not fit in memory is halved later (`memory.in_parts`).
    """
    return given or (GPU_TOKENS if device == "cuda" else on_cpu)


def token_groups(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield groups of indices of texts with similar lengths, the longest first, so that memory runs out early or never.

    A group has as many texts as fit in `budget` tokens, padding included, and at least one.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        count = max(1, budget // lengths[order[start]])
        yield order[start : start + count]
        start += count


class PairPart(NamedTuple):
    """A pair of texts, or a part of a pair that is too long for the model."""

    pair: int
    source: Sequence[int]
    target: Sequence[int]
    is_last: bool
    """Whether the end of the target belongs to this part."""


def pair_parts(pair: int, source: Sequence[int], target: Sequence[int], most: tuple[int, int]) -> list[PairPart]:
    """Return a pair in the smallest number of equal parts whose sides have at most `most` ids; usually one."""
    sides = source, target
    count = max(1, *(math.ceil(len(ids) / limit) for ids, limit in zip(sides, most, strict=True)))
    cut = zip(*(equal_parts(ids, count) for ids in sides), strict=True)
    return [PairPart(pair, *both, is_last=number == count) for number, both in enumerate(cut, start=1)]


def equal_parts(ids: Sequence[int], count: int) -> list[Sequence[int]]:
    """Return `ids` in `count` consecutive parts of nearly equal length, at most ceil(len(ids) / count) each."""
    return [ids[len(ids) * part // count : len(ids) * (part + 1) // count] for part in range(count)]
