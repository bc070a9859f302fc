"""The detection of a corpus with swapped sides, by the letter trigrams of both sides.

`s2s check` and the start of training compare every corpus with the first training corpus.
"""

import math
from collections import Counter
from collections.abc import Sequence

# The number of lines compared, and by how much the wrong side must be closer (cosine of trigram counts).
LINES, MARGIN = 2000, 0.2


def sides_are_swapped(train: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> bool:
    """Whether each side of `other` resembles the opposite side of `train` more; both are (source, target)."""
    usual, counts = ([_trigrams(side) for side in sides] for sides in (train, other))
    return all(_cosine(usual[1 - side], counts[side]) > _cosine(usual[side], counts[side]) + MARGIN for side in (0, 1))


def _trigrams(lines: Sequence[str]) -> Counter[str]:
    texts = [f" {line.lower()} " for line in lines[:LINES]]
    return Counter(text[i : i + 3] for text in texts for i in range(len(text) - 2))


def _cosine(first: Counter[str], second: Counter[str]) -> float:
    product = sum(count * second[gram] for gram, count in first.items())
    squares = [sum(count**2 for count in counts.values()) for counts in (first, second)]
    return product / math.sqrt(squares[0] * squares[1]) if all(squares) else 0.0
