"""Where two sides of few lines drift apart, by what translations keep: length, questions, numbers and names.

For corpora that are too small for `word_pairs`.
"""

import re
from collections.abc import Sequence

import numpy as np

from seq2seq.inspection.word_pairs import FURTHEST, Shift

MOST_LINES = 2000
# Log-odds that a run of lines must gain by an offset: the first where the sides have unequal lines.
EVIDENCE, STRONG_EVIDENCE = 20.0, 40.0
# Standard deviation of the log ratio of lengths of translations; the most that one line can say.
ALIGNED_SPREAD, LARGEST_SCORE = 0.3, 3.0
# Numbers, and words with a capital letter that do not begin the line.
_ANCHOR = re.compile(r"\d+|(?<=\s)[^\W\d_a-z]\w+")


def find_shift_by_shapes(source: Sequence[str], target: Sequence[str], difference: int) -> list[Shift]:
    """The run of lines that fits best at another offset than 0, if there is one.

    Args:
        source: all lines.
        target: as many.
        difference: how many lines more the whole target has.
    """
    straight = _scores(source, target, 0)
    best, found = (EVIDENCE if difference else STRONG_EVIDENCE), []
    furthest = min(FURTHEST, len(source) - 1)
    for offset in filter(None, range(-furthest, furthest + 1)):
        scores = _scores(source, target, offset)
        gains = np.concatenate([[0.0], np.cumsum(scores - straight)])
        end = int((gains - np.minimum.accumulate(gains)).argmax())
        first = int(gains[: end + 1].argmin())
        if gains[end] - gains[first] > best and scores[first:end].sum() > 0:
            best, found = gains[end] - gains[first], [Shift(first + 1, end, offset)]
    return found


def _scores(source: Sequence[str], target: Sequence[str], offset: int) -> np.ndarray:
    """(N,) log-odds that source line i and target line i + offset are translations rather than any two lines."""
    first, last = max(0, -offset), len(source) - max(0, offset)
    here, there = source[first:last], target[first + offset : last + offset]
    scores = np.zeros(len(source))
    lengths = [np.log([len(line) + 2.0 for line in side]) for side in (here, there)]
    spread = float(np.hypot(lengths[0].std(), lengths[1].std()))
    ratios = lengths[1] - lengths[0]
    anchors = [[set(_ANCHOR.findall(line)) for line in side] for side in (here, there)]
    shared, chance = (
        np.array([min(2, len(one & other)) for one, other in zip(anchors[0], side, strict=True)])
        for side in (anchors[1], anchors[1][1:] + anchors[1][:1])
    )
    asks = [np.array([line.endswith(("?", "？", "؟", '?"')) for line in side]) for side in (here, there)]
    found = 2.0 * (shared - chance.mean()) + 2.0 * (asks[0] & asks[1]) - 2.0 * (asks[0] ^ asks[1])
    if spread > ALIGNED_SPREAD:
        difference = ratios - np.median(ratios)
        found += np.log(spread / ALIGNED_SPREAD) - 0.5 * (ALIGNED_SPREAD**-2 - spread**-2) * difference**2
    scores[first:last] = np.clip(found, -LARGEST_SCORE, LARGEST_SCORE)
    return scores
