"""Where two sides of few lines drift apart, by what translations keep: length, questions, numbers and names.

For corpora that are too small for `word_pairs`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import regex

from seq2seq.inspection.word_pairs import FURTHEST, Shift

MOST_LINES = 2000
# Log-odds that a run of lines must gain by an offset: the first where the sides have unequal lines.
EVIDENCE, STRONG_EVIDENCE = 20.0, 40.0
# Standard deviation of the log ratio of lengths of translations; the most that one line can say.
ALIGNED_SPREAD, LARGEST_SCORE = 0.3, 3.0
# Numbers, and words with a capital letter that do not begin the line.
_ANCHOR = regex.compile(r"\d+|(?<=\s)[\p{Lu}\p{Lt}\p{Lo}]\w+")
_QUESTION = regex.compile(r"(?:[?？؟፧⁇]|(?<=\p{Greek})[;;])[\p{Pe}\p{Pf}\p{Quotation_Mark}]*$|\p{Armenian}՞")


def find_shift_by_shapes(source: Sequence[str], target: Sequence[str], difference: int) -> list[Shift]:
    """The run of lines that fits best at another offset than 0, if there is one.

    Args:
        source: all lines.
        target: as many.
        difference: how many lines more the whole target has.
    """
    sides = _shapes(source), _shapes(target)
    straight = _scores(*sides, 0)
    best, found = (EVIDENCE if difference else STRONG_EVIDENCE), []
    furthest = min(FURTHEST, len(source) - 1)
    for offset in filter(None, range(-furthest, furthest + 1)):
        scores = _scores(*sides, offset)
        gains = np.concatenate([[0.0], np.cumsum(scores - straight)])
        end = int((gains - np.minimum.accumulate(gains)).argmax())
        first = int(gains[: end + 1].argmin())
        if gains[end] - gains[first] > best and scores[first:end].sum() > 0:
            best, found = gains[end] - gains[first], [Shift(first + 1, end, offset)]
    return found


class _Shapes(NamedTuple):
    """What lines have in common with their translations."""

    lengths: np.ndarray
    """Log of the characters."""
    asks: np.ndarray
    anchors: list[set[str]]


def _shapes(lines: Sequence[str]) -> _Shapes:
    lengths = np.log([len(line) + 2.0 for line in lines])
    asks = np.array([bool(_QUESTION.search(line)) for line in lines])
    return _Shapes(lengths, asks, [set(_ANCHOR.findall(line)) for line in lines])


def _scores(source: _Shapes, target: _Shapes, offset: int) -> np.ndarray:
    """(N,) log-odds that source line i and target line i + offset are translations rather than any two lines."""
    size = len(source.lengths)
    first, last = max(0, -offset), size - max(0, offset)
    here = _Shapes(*(values[first:last] for values in source))
    there = _Shapes(*(values[first + offset : last + offset] for values in target))
    shared, chance = (
        np.array([min(2, len(one & other)) for one, other in zip(here.anchors, others, strict=True)])
        for others in (there.anchors, there.anchors[1:] + there.anchors[:1])
    )
    found = 2.0 * (shared - chance.mean()) + 2.0 * (here.asks & there.asks) - 2.0 * (here.asks ^ there.asks)
    spread = float(np.hypot(here.lengths.std(), there.lengths.std()))
    if spread > ALIGNED_SPREAD:
        ratios = there.lengths - here.lengths
        difference = ratios - np.median(ratios)
        found += np.log(spread / ALIGNED_SPREAD) - 0.5 * (ALIGNED_SPREAD**-2 - spread**-2) * difference**2
    scores = np.zeros(size)
    scores[first:last] = np.clip(found, -LARGEST_SCORE, LARGEST_SCORE)
    return scores
