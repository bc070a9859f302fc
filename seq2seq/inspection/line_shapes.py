"""The detection of shifted lines by features that translations keep: length, question marks, numbers and names.

`agreement` uses it for corpora that are too small for `word_pairs`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import regex

from seq2seq.inspection.word_pairs import FURTHEST, Shift

MOST_LINES = 2000
# Log-odds that a run of lines must gain by an offset; the first applies if the sides differ in their number of lines.
EVIDENCE, STRONG_EVIDENCE = 20.0, 40.0
# Standard deviation of the log ratio of lengths of translations; the largest log-odds of a line.
ALIGNED_SPREAD, LARGEST_SCORE = 0.3, 3.0
# Numbers, and capitalised words that are not at the beginning of the line.
_ANCHOR = regex.compile(r"\d+|(?<=\s)[\p{Lu}\p{Lt}\p{Lo}]\w+")
_QUESTION = regex.compile(r"(?:[?？؟፧⁇]|(?<=\p{Greek})[;;])[\p{Pe}\p{Pf}\p{Quotation_Mark}]*$|\p{Armenian}՞")


def find_shift_by_shapes(source: Sequence[str], target: Sequence[str], difference: int) -> list[Shift]:
    """Return the run of lines that fits best at an offset other than 0, or an empty list.

    Args:
        source: source lines, all that have a target.
        target: the same number of target lines.
        difference: number of all target lines minus number of all source lines.
    """
    sides = _shapes(source), _shapes(target)
    straight = _scores(*sides, 0)
    best, shifts = (EVIDENCE if difference else STRONG_EVIDENCE), []
    furthest = min(FURTHEST, len(source) - 1)
    for offset in filter(None, range(-furthest, furthest + 1)):
        scores = _scores(*sides, offset)
        gains = np.concatenate([[0.0], np.cumsum(scores - straight)])
        end = int((gains - np.minimum.accumulate(gains)).argmax())
        first = int(gains[: end + 1].argmin())
        if gains[end] - gains[first] > best and scores[first:end].sum() > 0:
            best, shifts = gains[end] - gains[first], [Shift(first + 1, end, offset)]
    return shifts


class _Shapes(NamedTuple):
    """Features that lines share with their translations."""

    lengths: np.ndarray
    """The logarithm of the number of characters of each line."""
    asks: np.ndarray
    """Whether each line ends with a question mark."""
    anchors: list[set[str]]
    """The numbers and names of each line."""


def _shapes(lines: Sequence[str]) -> _Shapes:
    lengths = np.log([len(line) + 2.0 for line in lines])
    asks = np.array([bool(_QUESTION.search(line)) for line in lines])
    return _Shapes(lengths, asks, [set(_ANCHOR.findall(line)) for line in lines])


def _scores(source: _Shapes, target: _Shapes, offset: int) -> np.ndarray:
    """Return the log-odds (N,) that source line i and target line i + offset are translations, not random lines."""
    size = len(source.lengths)
    first, last = max(0, -offset), size - max(0, offset)
    here = _Shapes(*(values[first:last] for values in source))
    there = _Shapes(*(values[first + offset : last + offset] for values in target))
    shared, chance = (
        np.array([min(2, len(ours & theirs)) for ours, theirs in zip(here.anchors, others, strict=True)])
        for others in (there.anchors, there.anchors[1:] + there.anchors[:1])
    )
    odds = 2.0 * (shared - chance.mean()) + 2.0 * (here.asks & there.asks) - 2.0 * (here.asks ^ there.asks)
    spread = float(np.hypot(here.lengths.std(), there.lengths.std()))
    if spread > ALIGNED_SPREAD:
        ratios = there.lengths - here.lengths
        difference = ratios - np.median(ratios)
        odds += np.log(spread / ALIGNED_SPREAD) - 0.5 * (ALIGNED_SPREAD**-2 - spread**-2) * difference**2
    scores = np.zeros(size)
    scores[first:last] = np.clip(odds, -LARGEST_SCORE, LARGEST_SCORE)
    return scores
