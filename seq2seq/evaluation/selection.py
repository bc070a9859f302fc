"""Selection of a translation among candidates by chrF: the nearest to a reference, or the nearest to all others.

`workflows.augment` selects with it. fastchrf computes sacreBLEU's chrF of sentences, bit for bit, many times faster.
"""

from collections import Counter
from collections.abc import Sequence


def nearest(candidates: Sequence[str], reference: str) -> int:
    """Return the index of the candidate with the highest chrF; of equals the first."""
    scores = [row[0] for row in _pairwise(candidates, [reference])]
    return max(range(len(candidates)), key=scores.__getitem__)


def consensus(candidates: Sequence[str]) -> int:
    """Return the index of the candidate with the highest mean chrF to the others, in which each repetition counts.

    This is minimum Bayes risk decoding (Kumar and Byrne 2004; Eikema and Aziz 2022) with equal weights. The choice of
    the text does not depend on the order of the candidates.
    """
    counts = Counter(candidates)
    texts = sorted(counts)
    rows = _pairwise(texts, texts)
    gains = [
        sum(counts[other] * score for other, score in zip(texts, row, strict=True)) - row[index]
        for index, row in enumerate(rows)
    ]
    return candidates.index(texts[max(range(len(texts)), key=gains.__getitem__)])


def _pairwise(hypotheses: Sequence[str], references: Sequence[str]) -> list[list[float]]:
    """Return the chrF of each hypothesis to each reference, (H, R)."""
    from fastchrf import pairwise_chrf

    return pairwise_chrf([list(hypotheses)], [list(references)])[0]
