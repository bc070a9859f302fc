"""The fit of source and target lines, by the words of the two sides that occur together in a sample.

`check` learns `WordPairs` from the first blocks of training, its processes compute the `misfits` of every block, and
`find_shifts` finds the runs of lines that fit lines at another offset.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from zlib import crc32

import numpy as np
import regex

from seq2seq.inspection.overlap import normalise
from seq2seq.text.writing import UNSPACED_SCRIPTS, script_of

HASH_FACTOR = 0xC2B2AE35  # of murmur3
TABLE_SIZE = 1024  # words are counted by their hashes modulo this
PAD = TABLE_SIZE
MOST_WORDS = 12  # words of a line that are used
LEAST_SAMPLE, LARGEST_SAMPLE, WINDOW = 200, 32_768, 2000
# Pseudo-counts of a pair of words, because rare words are little evidence.
PRIOR = 5.0
LARGEST_GAIN = 3.0
# The least distance of the scores of pairs and of shifted lines, in standard deviations, for a judgement of lines.
LEAST_DISTANCE = 1.0
# A sample of at least this many lines with a distance below the second number does not consist of translations: 500
# translations have a distance of 0.8 and more, and other lines one below 0.
DENYING_SAMPLE, DENYING_DISTANCE = 500, 0.2
# The least log-odds against a run of lines, which chance reaches once in e^25 lines, and the largest against one line.
EVIDENCE, LARGEST_EVIDENCE = 25.0, 4.0
FURTHEST = 20
MOST_SHIFTS = 10
LINES_COMPARED = 400
_WORD, _ASCII_WORD = regex.compile(r"[^\W_]+"), re.compile(r"[^\W_]+")  # only `regex` counts marks as parts of words

Texts = Sequence[str]


@dataclass(frozen=True)
class Shift:
    """A run of lines, `first` to `last` (from 1), in which target line i + offset translates source line i."""

    first: int
    last: int
    offset: int


@dataclass(frozen=True)
class WordPairs:
    """Ratios of how often a target word occurs opposite a source word and how often it occurs elsewhere."""

    ratios: np.ndarray
    """(TABLE_SIZE + 1, TABLE_SIZE + 1) float32, source by target; the last row is 0, for padding."""
    ratios_without: np.ndarray
    """The same without the judged pair itself, for lines that were in the sample."""
    usual: float
    """The mean score of pairs."""
    chance: float
    """The mean score of lines that are not pairs."""
    spread: float
    """The standard deviation of both kinds of scores."""

    @staticmethod
    def learn(source: Texts, target: Texts, difference: int = 0) -> "WordPairs | None":
        """Return word pairs learned from a sample of lines; None if it is too small or its words match too little.

        If the whole sample matches too little, its first and its last lines are tried at several offsets.
        """
        source, target = (_table_indices(side[:LARGEST_SAMPLE]) for side in (source, target))
        size = len(source)
        best = _learn(source, target, 0, size, 0)
        if best is not None and best._distance <= LEAST_DISTANCE:
            half = min(size // 2, WINDOW)
            parts = product((0, size - half), (0, *_offsets(difference)))
            candidates = (_counted(source, target, first, first + half, offset) for first, offset in parts)
            chosen = max(filter(None, candidates), key=lambda counts: _distance(*counts.statistics()), default=None)
            best = chosen.word_pairs() if chosen else best
        return best if best is not None and best._distance > LEAST_DISTANCE else None

    @staticmethod
    def deny(source: Texts, target: Texts) -> bool:
        """Whether a sample is large enough, and its words match no better than by chance."""
        source, target = (_table_indices(side[:LARGEST_SAMPLE]) for side in (source, target))
        pairs = _learn(source, target, 0, len(source), 0) if len(source) >= DENYING_SAMPLE else None
        return pairs is not None and pairs._distance < DENYING_DISTANCE

    @property
    def _distance(self) -> float:
        return _distance(self.usual, self.chance, self.spread)

    @property
    def _middle(self) -> float:
        return (self.usual + self.chance) / 2

    def misfits(self, source: Texts, target: Texts, is_learned: bool) -> np.ndarray:
        """Return log-odds, (N,) float32, that a line and its counterpart are not translations of each other.

        The scores of pairs and of other lines are modelled as two normal distributions. `is_learned` means that the
        lines may be in the sample.
        """
        ratios = self.ratios_without if is_learned else self.ratios
        scores = _scores_by(ratios, _table_indices(source), _table_indices(target))
        against = self._distance / self.spread * (self._middle - scores)
        return np.clip(against, -LARGEST_EVIDENCE, LARGEST_EVIDENCE).astype(np.float32)

    def fit(self, source: Texts, target: Texts) -> float:
        """Return how much better these lines fit than half way between pairs and lines that are not pairs."""
        return float(_scores_by(self.ratios, _table_indices(source), _table_indices(target)).mean()) - self._middle


def find_shifts(
    pairs: WordPairs,
    misfits: np.ndarray,
    numbers: np.ndarray,
    read: Callable[[Sequence[int]], dict[int, Texts]],
    difference: int = 0,
) -> list[Shift]:
    """Return the runs of lines that translate lines at another offset, in order.

    Args:
        pairs: word pairs of the training corpora.
        misfits: (N,) misfits of all lines.
        numbers: (N,) line numbers in the file.
        read: function that returns the two sides of lines by number.
        difference: number of target lines minus number of source lines, an offset that is tried too.
    """
    runs = list(_runs(misfits))
    compared = [range(first, min(end, first + LINES_COMPARED)) for first, end in runs]
    wanted = {i + offset for run in compared for i in run for offset in (0, *_offsets(difference))}
    texts = read([int(numbers[i]) for i in wanted if 0 <= i < len(numbers)])
    known = {i: texts.get(int(numbers[i]), ("", "")) for i in wanted if 0 <= i < len(numbers)}
    shifts = []
    for (first, end), run in zip(runs, compared, strict=True):
        fits = {
            offset: pairs.fit([known[i][0] for i in run], [known.get(i + offset, ("", ""))[1] for i in run])
            for offset in _offsets(difference)
        }
        best = max(fits, key=lambda offset: fits[offset])
        if fits[best] > 0:
            shifts.append(Shift(int(numbers[first]), int(numbers[end - 1]), best))
    return sorted(shifts, key=lambda shift: shift.first)


def _offsets(difference: int) -> list[int]:
    near = [offset for offset in range(-FURTHEST, FURTHEST + 1) if offset]
    return near if abs(difference) <= FURTHEST else [*near, difference]


def _runs(misfits: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the runs (first index, end) with the largest sums, from EVIDENCE up."""
    rest = misfits.astype(np.float64)
    for _ in range(MOST_SHIFTS if len(rest) else 0):
        sums = np.concatenate([[0.0], np.cumsum(rest)])
        lowest = np.minimum.accumulate(sums)
        end = int((sums - lowest).argmax())
        if sums[end] - lowest[end] < EVIDENCE:
            break
        begin = int(np.flatnonzero(sums[:end] == lowest[end])[-1])
        yield begin, end
        rest[begin:end] = -LARGEST_EVIDENCE


def _distance(usual: float, chance: float, spread: float) -> float:
    return (usual - chance) / spread


def _learn(source: np.ndarray, target: np.ndarray, start: int, stop: int, offset: int) -> WordPairs | None:
    """Return word pairs learned from source lines `start` to `stop` and target lines `offset` further.

    The lines are rows of table indices; None if there are fewer than LEAST_SAMPLE.
    """
    counts = _counted(source, target, start, stop, offset)
    return counts.word_pairs() if counts else None


def _counted(source: np.ndarray, target: np.ndarray, start: int, stop: int, offset: int) -> "_Counts | None":
    """Return the counts of the words in lines, as `_learn` takes them."""
    start, stop = max(start, -offset), min(stop, len(target) - offset)
    if stop - start < LEAST_SAMPLE:
        return None
    return _Counts(source[start:stop], target[start + offset : stop + offset], stop - start == len(target))


class _Counts:
    """How often words occur in the lines of a sample, alone and opposite each other."""

    def __init__(self, source: np.ndarray, target: np.ndarray, is_whole: bool):
        self._source, self._target, self._is_whole = source, target, is_whole
        width = TABLE_SIZE + 1
        pairs = source[:, :, None] * width + target[:, None, :]
        self._together = np.bincount(pairs.ravel(), minlength=width**2).reshape(width, width)
        self._alone, expected = (
            np.bincount(side.ravel(), minlength=width).astype(np.float32) for side in (source, target)
        )
        self._expected = (expected + 0.5) / len(source)

    def word_pairs(self) -> WordPairs:
        """Return the ratios of all words, with the statistics of the sample."""
        together, alone = self._together.astype(np.float32), self._alone[:, None]
        both = [_ratios(together, alone, self._expected, left_out) for left_out in (0, 1)]
        for ratios in both:
            ratios[PAD] = 0
        source, target = self._source, self._target
        scores = _scores_by(both[1], source, target), _scores_by(both[0], source, np.roll(target, -1, axis=0))
        return WordPairs(both[0], both[self._is_whole], *_statistics(*scores))

    def statistics(self) -> tuple[float, float, float]:
        """Return the statistics of the sample, from the ratios of the words that are opposite each other alone, which
        are fewer in a small sample than those of all words."""
        scores = self._scores(self._target, 1), self._scores(np.roll(self._target, -1, axis=0), 0)
        return _statistics(*scores)

    def _scores(self, target: np.ndarray, left_out: int) -> np.ndarray:
        """Return the scores of the source lines with these target lines."""
        source = self._source
        together = self._together[source[:, :, None], target[:, None, :]].astype(np.float32)
        ratios = _ratios(together, self._alone[source][:, :, None], self._expected[target][:, None, :], left_out)
        ratios[source == PAD] = 0
        return _scores(ratios, source, target)


def _ratios(together: np.ndarray, alone: np.ndarray, expected: np.ndarray, left_out: int) -> np.ndarray:
    """Return the ratios of pairs of words from their counts, without `left_out` occurrences of each pair."""
    return (np.maximum(together - left_out, 0) + PRIOR * expected) / (
        (np.maximum(alone - left_out, 0) + PRIOR) * expected
    )


def _statistics(scores: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """Return the means of the scores of pairs and of other lines, and the standard deviation of both."""
    spread = float(np.sqrt((scores.var() + others.var()) / 2)) or 1.0  # without spread, the distance is 0 too
    return float(scores.mean()), float(others.mean()), spread


def _table_indices(lines: Texts) -> np.ndarray:
    """Return the table indices of the distinct words of each line, (N, MOST_WORDS) int32, padded with PAD.

    In scripts without spaces, each two adjacent characters are a word.
    """
    if script_of("".join(lines[:LINES_COMPARED])) in UNSPACED_SCRIPTS:
        texts = list(map(normalise, lines))
        words = [[text[first : first + 2] for first in range(len(text) - 1)] for text in texts]
    else:
        words = [(_ASCII_WORD if line.isascii() else _WORD).findall(line.lower()) for line in lines]
    flat = list(chain.from_iterable(words))
    hashes = {word: HASH_FACTOR * crc32(word.encode()) >> 16 & TABLE_SIZE - 1 for word in set(flat)}
    rows = np.repeat(np.arange(len(words)), list(map(len, words)))
    keys = np.sort(rows * TABLE_SIZE + np.fromiter(map(hashes.__getitem__, flat), np.int64, len(flat)))
    keys = keys[np.diff(keys, prepend=-1) > 0]  # faster than np.unique
    rows, indices = keys // TABLE_SIZE, keys % TABLE_SIZE
    columns = np.arange(len(rows)) - np.searchsorted(rows, rows)
    table = np.full((len(lines), MOST_WORDS), PAD, np.int32)
    table[rows[columns < MOST_WORDS], columns[columns < MOST_WORDS]] = indices[columns < MOST_WORDS]
    return table


def _scores_by(table: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the scores of lines by the ratios of all words."""
    return _scores(table[source[:, :, None], target[:, None, :]], source, target)


def _scores(ratios: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return how well the words of each source line explain those of its target line, (N,), by the ratios of their
    words, (N, MOST_WORDS, MOST_WORDS)."""
    counts = (source < PAD).sum(axis=1, keepdims=True)  # (N, 1)
    means = ratios.sum(axis=1) / np.maximum(counts, 1)  # (N, MOST_WORDS)
    gains = np.clip(np.log(np.maximum(means, 1e-3)), -1.0, LARGEST_GAIN)
    return (gains * ((target < PAD) & (counts > 0))).sum(axis=1)
