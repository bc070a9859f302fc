"""Where the two sides of a corpus drift apart: the line from which line i no longer translates line i.

`check` collects the `LineShapes` of both sides (13 bytes a line) and asks `find_drift`. A pair of lines is judged by
what translations keep: length, marks such as `?` and brackets, and words of both sides such as numbers and names.
"""

from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np

from seq2seq.inspection.characters import TextBlock

MARKS = ("?？؟", "!！", ".。", '"“”„«»「」', "()（）[]", ":;：；", "%％", "0123456789０１２３４５６７８９")
WINDOWS = (64, 512, 4096)
FURTHEST = 20
# Log-odds that a window must gain by another offset: chance reaches 20 once in e^20 lines.
EVIDENCE = 20.0
STRONG_EVIDENCE = 40.0
ALIGNED_SPREAD = 0.3
LARGEST_SCORE = 3.0


@dataclass(frozen=True)
class LineShapes:
    """What a line and its translation have in common."""

    lengths: np.ndarray
    """int32, characters."""
    marks: np.ndarray
    """uint8, a bit for each entry of MARKS that the line holds."""
    anchors: np.ndarray
    """uint64, bits of the hashes of numbers and of capitalised words after the first."""

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Drift:
    """Around `line` (from 1) the pairs stop fitting; from there target line i + offset fits source line i."""

    line: int
    offset: int


def line_shapes(block: TextBlock) -> LineShapes:
    """The shapes of the lines of a block."""
    marks = np.bitwise_or.reduceat(_mark_table()[block.codes], block.starts)
    words, lines = block.words
    bits = {word: _anchor_bit(word) for word in set(words)}
    anchor_bits = np.fromiter(map(bits.__getitem__, words), np.uint64, len(words))
    first = np.flatnonzero(np.diff(lines, prepend=-1))  # a first word has a capital letter anyway
    anchor_bits[[index for index in first.tolist() if words[index][0].isupper()]] = 0
    anchors = np.zeros(len(block), np.uint64)
    np.bitwise_or.at(anchors, lines, anchor_bits)
    return LineShapes(block.lengths.astype(np.int32), marks, anchors)


def _anchor_bit(word: str) -> int:
    return 1 << crc32(word.encode()) % 64 if word[0].isdigit() or word[0].isupper() else 0


def joined(parts: list[LineShapes]) -> LineShapes:
    """The shapes of several blocks together."""
    names = ("lengths", "marks", "anchors")
    return LineShapes(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def find_drift(source: LineShapes, target: LineShapes, difference: int) -> Drift | None:
    """The first line from which another offset fits better, or None.

    `difference` is how many lines more the whole target has than the whole source. Where it is not 0 there is always an
    answer: the shorter side's end if the sides fit up to there.
    """
    size = min(len(source), len(target))
    if size == 0:
        return None
    compare = _Comparison(source, target)
    straight = compare.scores(0)
    offsets = [offset for offset in range(-FURTHEST, FURTHEST + 1) if offset]
    offsets += [] if abs(difference) <= FURTHEST else [difference]
    wanted = EVIDENCE if difference else STRONG_EVIDENCE
    for window in WINDOWS:
        found = [
            (index, offset)
            for offset in offsets
            if abs(offset) < size
            and (index := _first_gain(compare.scores(offset), straight, window, wanted)) is not None
        ]
        if found:
            first = min(index for index, _ in found)
            near = [offset for index, offset in found if index <= first + window]
            best = max(near, key=lambda offset: compare.scores(offset)[first : first + 2 * window].sum())
            begin, end = max(first - WINDOWS[-1], 0), min(first + 2 * window, size)
            return Drift(begin + _change(straight[begin:end], compare.scores(best)[begin:end], best) + 1, best)
    if not difference:
        return None
    if abs(difference) >= size:
        return Drift(size + 1, difference)
    return Drift(_change(straight, compare.scores(difference), difference) + 1, difference)


class _Comparison:
    """Log-odds that source line i and target line i + offset are translations rather than any two lines."""

    def __init__(self, source: LineShapes, target: LineShapes):
        self._source, self._target = source, target
        self._size = min(len(source), len(target))
        self._logs = [np.log(side.lengths + 2.0).astype(np.float32) for side in (source, target)]
        self._mean = float(np.median(self._logs[1]) - np.median(self._logs[0]))
        self._spread = float(np.hypot(self._logs[0].std(), self._logs[1].std()))
        self._mark_scores = _mark_scores(source.marks, target.marks)
        chance = np.bitwise_count(source.anchors[: self._size] & np.roll(target.anchors[: self._size], self._size // 2))
        self._chance = float(np.minimum(chance, 2).mean())

    def scores(self, offset: int) -> np.ndarray:
        """(N,) float32; 0 where there is no line at that offset."""
        first, last = max(0, -offset), self._size - max(0, offset)
        here, there = slice(first, last), slice(first + offset, last + offset)
        scores = self._mark_scores[self._source.marks[here], self._target.marks[there]]
        if self._spread > ALIGNED_SPREAD:
            difference = self._logs[1][there] - self._logs[0][here] - self._mean
            narrower = 0.5 * (ALIGNED_SPREAD**-2 - self._spread**-2)
            scores = scores + np.log(self._spread / ALIGNED_SPREAD) - narrower * difference**2
        shared = np.bitwise_count(self._source.anchors[here] & self._target.anchors[there])
        scores = scores + 2.0 * (np.minimum(shared, 2) - self._chance)
        all_scores = np.zeros(self._size, dtype=np.float32)
        all_scores[here] = np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE)
        return all_scores


def _first_gain(scores: np.ndarray, straight: np.ndarray, window: int, wanted: float) -> int | None:
    """The first index from which a window of lines fits by at least `wanted` better than at offset 0."""
    if len(scores) < 8:
        return None
    window = min(window, len(scores))
    gains, sums = _sums(scores - straight), _sums(scores)
    better = (gains[window:] - gains[:-window] > wanted) & (sums[window:] - sums[:-window] > 0)
    return int(better.argmax()) if better.any() else None


def _change(before: np.ndarray, after: np.ndarray, offset: int) -> int:
    """The index where `before` ends and `after`, or lines without a counterpart (as many as the offset), begin."""
    best = int(_sums(before - after).argmax())
    first = max(best - abs(offset), 0)
    return first + int(_sums(before[first:best]).argmax())


def _sums(scores: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(scores, dtype=np.float64)])


def _mark_scores(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(256, 256) log-odds of two sets of marks, from how often each side has each."""
    patterns = np.arange(256)
    scores = np.zeros((256, 256), dtype=np.float32)
    for bit in range(len(MARKS)):
        p_source, p_target = (float((side >> bit & 1).mean()) for side in (source, target))
        both = max(0.7 * min(p_source, p_target), p_source * p_target)
        together = np.array([[1 - p_source - p_target + both, p_target - both], [p_source - both, both]])
        apart = np.outer([1 - p_source, p_source], [1 - p_target, p_target])
        odds = np.log((together + 1e-3) / (apart + 1e-3))  # (2, 2), without and with the mark
        has = patterns >> bit & 1
        scores += odds[has[:, None], has[None, :]]
    return scores


@cache
def _mark_table() -> np.ndarray:
    table = np.zeros(0x110000, dtype=np.uint8)
    for bit, characters in enumerate(MARKS):
        table[[ord(character) for character in characters]] |= 1 << bit
    return table
