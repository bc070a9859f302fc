"""How well line i translates line i, by which words of the two sides occur together in a sample.

`check` learns `WordPairs` from the first blocks of training, its processes ask `misfits` of every block, and
`find_shifts` finds the runs of lines that fit other lines.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from zlib import crc32

import numpy as np
import regex

from seq2seq.inspection.oddities import UNSPACED_SCRIPTS, script_of
from seq2seq.inspection.overlap import normalise

HASH_FACTOR = 0xC2B2AE35  # of murmur3
TABLE_SIZE = 1024  # words are counted by their hashes modulo this
PAD = TABLE_SIZE
MOST_WORDS = 12  # of a line
LEAST_SAMPLE, LARGEST_SAMPLE, WINDOW = 200, 32_768, 2000
# Pseudo-counts of a pair of words: a word that was seen rarely says little.
PRIOR = 5.0
LARGEST_GAIN = 3.0
# How far the scores of pairs and of shifted lines must be apart, in standard deviations, to judge lines at all.
LEAST_DISTANCE = 1.0
# A sample of this many lines or more, with a distance below the second number, is not of translations: 500 translations
# have 0.8 and more, and any other lines less than 0.
DENYING_SAMPLE, DENYING_DISTANCE = 500, 0.2
# Log-odds against a run of lines, and at most against one line; chance reaches the first once in e^25 lines.
EVIDENCE, LARGEST_EVIDENCE = 25.0, 4.0
FURTHEST = 20
MOST_SHIFTS = 10
LINES_COMPARED = 400
_WORD, _ASCII_WORD = regex.compile(r"[^\W_]+"), re.compile(r"[^\W_]+")  # marks are in words by `regex` alone

Texts = Sequence[str]


@dataclass(frozen=True)
class Shift:
    """Lines `first` to `last` (from 1): there target line i + offset translates source line i."""

    first: int
    last: int
    offset: int


@dataclass(frozen=True)
class WordPairs:
    """How much more often a target word occurs opposite a source word than elsewhere."""

    ratios: np.ndarray
    """(TABLE_SIZE + 1, TABLE_SIZE + 1) float32, source by target; the last ones are 0, for padding."""
    ratios_without: np.ndarray
    """The same without the pair that is judged, for pairs that were learned from."""
    usual: float
    """The mean score of pairs, and of lines that are none."""
    chance: float
    spread: float

    @staticmethod
    def learn(source: Texts, target: Texts, difference: int = 0) -> "WordPairs | None":
        """From a sample of lines; None where they are too few or show nothing.

        Where most of all lines do not translate each other, the first or the last ones may, or may by an offset.
        """
        source, target = (_table_indices(side[:LARGEST_SAMPLE]) for side in (source, target))
        size = len(source)
        best = _learn(source, target, 0, size, 0)
        if best is not None and best._distance <= LEAST_DISTANCE:
            half = min(size // 2, WINDOW)
            parts = product((0, size - half), (0, *_offsets(difference)))
            candidates = [_learn(source, target, first, first + half, offset) for first, offset in parts]
            best = max(filter(None, candidates), key=lambda found: found._distance, default=best)
        return best if best is not None and best._distance > LEAST_DISTANCE else None

    @staticmethod
    def deny(source: Texts, target: Texts) -> bool:
        """Whether a sample is large enough to learn from, and its words go together no better than by chance."""
        source, target = (_table_indices(side[:LARGEST_SAMPLE]) for side in (source, target))
        found = _learn(source, target, 0, len(source), 0) if len(source) >= DENYING_SAMPLE else None
        return found is not None and found._distance < DENYING_DISTANCE

    @property
    def _distance(self) -> float:
        return (self.usual - self.chance) / self.spread

    @property
    def _middle(self) -> float:
        return (self.usual + self.chance) / 2

    def misfits(self, source: Texts, target: Texts, is_learned: bool) -> np.ndarray:
        """(N,) float32: log-odds that a line and its counterpart are no translations, of two normal distributions.

        `is_learned` says that they may be among the pairs that were learned from.
        """
        ratios = self.ratios_without if is_learned else self.ratios
        scores = _scores(ratios, _table_indices(source), _table_indices(target))
        against = self._distance / self.spread * (self._middle - scores)
        return np.clip(against, -LARGEST_EVIDENCE, LARGEST_EVIDENCE).astype(np.float32)

    def fit(self, source: Texts, target: Texts) -> float:
        """How much better these lines fit than half way between pairs and lines that are none."""
        return float(_scores(self.ratios, _table_indices(source), _table_indices(target)).mean()) - self._middle


def find_shifts(
    pairs: WordPairs,
    misfits: np.ndarray,
    numbers: np.ndarray,
    read: Callable[[Sequence[int]], dict[int, Texts]],
    difference: int = 0,
) -> list[Shift]:
    """The runs of lines that translate others near them, in their order.

    Args:
        pairs: of the corpus.
        misfits: of all its lines.
        numbers: of these lines in the file.
        read: gives the two sides of lines by number.
        difference: how many lines more the target has, which is another offset by which they may fit.
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
    """The runs (first index, end) with the largest sums, those beyond EVIDENCE."""
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


def _learn(source: np.ndarray, target: np.ndarray, start: int, stop: int, offset: int) -> WordPairs | None:
    """From source lines `start` to `stop` and target lines `offset` further, by table indices; None for too few."""
    start, stop = max(start, -offset), min(stop, len(target) - offset)
    size, is_whole = stop - start, stop - start == len(target)
    if size < LEAST_SAMPLE:
        return None
    source, target = source[start:stop], target[start + offset : stop + offset]
    width = TABLE_SIZE + 1
    pairs = source[:, :, None] * width + target[:, None, :]
    together = np.bincount(pairs.ravel(), minlength=width**2).reshape(width, width).astype(np.float32)
    alone, expected = (np.bincount(side.ravel(), minlength=width).astype(np.float32) for side in (source, target))
    expected = (expected + 0.5) / size
    both = []
    for own in (0, 1):
        ratios = (np.maximum(together - own, 0) + PRIOR * expected) / (
            (np.maximum(alone - own, 0)[:, None] + PRIOR) * expected
        )
        ratios[PAD] = 0
        both.append(ratios)
    scores = _scores(both[1], source, target)
    others = _scores(both[0], source, np.roll(target, -1, axis=0))
    spread = float(np.sqrt((scores.var() + others.var()) / 2)) or 1.0  # no spread, no distance either
    return WordPairs(both[0], both[is_whole], float(scores.mean()), float(others.mean()), spread)


def _table_indices(lines: Texts) -> np.ndarray:
    """(N, MOST_WORDS) int32, the indices in the table of distinct words of each line, padded with PAD.

    In scripts without spaces, each two characters that are adjacent are a word."""
    if script_of("".join(lines[:LINES_COMPARED])) in UNSPACED_SCRIPTS:
        texts = list(map(normalise, lines))
        words = [[text[first : first + 2] for first in range(len(text) - 1)] for text in texts]
    else:
        words = [(_ASCII_WORD if line.isascii() else _WORD).findall(line.lower()) for line in lines]
    flat = list(chain.from_iterable(words))
    hashes = {word: HASH_FACTOR * crc32(word.encode()) >> 16 & TABLE_SIZE - 1 for word in set(flat)}
    rows = np.repeat(np.arange(len(words)), list(map(len, words)))
    keys = np.unique(rows * TABLE_SIZE + np.fromiter(map(hashes.__getitem__, flat), np.int64, len(flat)))
    rows, indices = keys // TABLE_SIZE, keys % TABLE_SIZE
    columns = np.arange(len(rows)) - np.searchsorted(rows, rows)
    table = np.full((len(lines), MOST_WORDS), PAD, np.int32)
    table[rows[columns < MOST_WORDS], columns[columns < MOST_WORDS]] = indices[columns < MOST_WORDS]
    return table


def _scores(ratios: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(N,) how well the words of each target line are explained by those of its source line."""
    counts = (source < PAD).sum(axis=1, keepdims=True)  # (N, 1)
    means = ratios[source[:, :, None], target[:, None, :]].sum(axis=1) / np.maximum(counts, 1)  # (N, MOST_WORDS)
    gains = np.clip(np.log(np.maximum(means, 1e-3)), -1.0, LARGEST_GAIN)
    return (gains * ((target < PAD) & (counts > 0))).sum(axis=1)
