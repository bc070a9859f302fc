"""Batches of texts: how many tokens they have, and which texts are computed together.

Both engines, the scorer, the aligner and the classifier group their texts here. This module does not import torch.
"""

from collections.abc import Iterator, Sequence

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


def equal_parts(ids: Sequence[int], count: int) -> list[Sequence[int]]:
    """Return `ids` in `count` consecutive parts of nearly equal length, at most ceil(len(ids) / count) each."""
    return [ids[len(ids) * part // count : len(ids) * (part + 1) // count] for part in range(count)]
