"""How well line i translates line i, by which words of the two sides occur together in a sample.

`check` learns `WordPairs` from the first blocks of training, its processes ask `misfits` of every block, and
`shifted_blocks` finds the runs of lines that fit other lines.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from seq2seq.inspection.characters import TextBlock
from seq2seq.inspection.oddities import script_of
from seq2seq.inspection.overlap import normalise

HASH_FACTOR = 0xC2B2AE35  # of murmur3
TABLE_SIZE = 1024  # words are counted by their hashes modulo this
MOST_WORDS = 12  # of a line
LEAST_SAMPLE = 200
# Pseudo-counts of a pair of words: a word that was seen rarely says little.
PRIOR = 5.0
LARGEST_GAIN = 3.0
# How far the scores of pairs and of shifted lines must be apart, in standard deviations, to judge lines at all.
LEAST_DISTANCE = 1.0
# Log-odds against a run of lines, and at most against one line; chance reaches the first once in e^25 lines.
EVIDENCE, LARGEST_EVIDENCE = 25.0, 4.0
FURTHEST = 20
MOST_BLOCKS = 20
LINES_COMPARED = 400

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
    """(TABLE_SIZE, TABLE_SIZE) float32, source by target."""
    ratios_without: np.ndarray
    """The same without the pair that is judged, for pairs that were learned from."""
    usual: float
    """The mean score of pairs, and of lines that are none."""
    chance: float
    spread: float

    @staticmethod
    def learn(source: Texts, target: Texts) -> "WordPairs | None":
        """From pairs, most of which translate each other; None where they are too few or show nothing."""
        size = len(source)
        if size < LEAST_SAMPLE:
            return None
        sides = [_indices(TextBlock(lines)) for lines in (source, target)]
        pairs, _ = _crossed(*sides, size)
        together = np.bincount(pairs, minlength=TABLE_SIZE**2).reshape(TABLE_SIZE, TABLE_SIZE).astype(np.float32)
        alone, expected = (np.bincount(words, minlength=TABLE_SIZE).astype(np.float32) for _, words in sides)
        expected = (expected + 0.5) / size
        ratios, ratios_without = (
            (np.maximum(together - own, 0) + PRIOR * expected)
            / ((np.maximum(alone - own, 0)[:, None] + PRIOR) * expected)
            for own in (0, 1)
        )
        apart = _indices(TextBlock([*target[1:], target[0]]))
        scores, others = _scores(ratios_without, *sides, size), _scores(ratios, sides[0], apart, size)
        spread = float(np.sqrt((scores.var() + others.var()) / 2))
        learned = WordPairs(ratios, ratios_without, float(scores.mean()), float(others.mean()), spread)
        return learned if learned.usual - learned.chance > LEAST_DISTANCE * spread > 0 else None

    def misfits(self, source: TextBlock, target: TextBlock, is_learned: bool) -> np.ndarray:
        """(N,) float32: log-odds that a line and its counterpart are no translations, of two normal distributions.

        `is_learned` says that they may be among the pairs that were learned from.
        """
        ratios = self.ratios_without if is_learned else self.ratios
        scores = _scores(ratios, _indices(source), _indices(target), len(source))
        against = (self.usual - self.chance) / self.spread**2 * (self._middle - scores)
        return np.clip(against, -LARGEST_EVIDENCE, LARGEST_EVIDENCE).astype(np.float32)

    def offset(self, source: Texts, target: Texts, around: int) -> int | None:
        """By how many lines target must be moved to translate source; it has `around` lines more at both ends."""
        words, size = _indices(TextBlock(source)), len(source)
        means = {
            offset: _scores(self.ratios, words, _indices(TextBlock(target[around + offset :][:size])), size).mean()
            for offset in range(-around, around + 1)
            if offset
        }
        best = max(means, key=lambda offset: means[offset])
        return best if means[best] > self._middle else None

    @property
    def _middle(self) -> float:
        return (self.usual + self.chance) / 2


def shifted_blocks(
    pairs: WordPairs, misfits: np.ndarray, numbers: np.ndarray, read: Callable[[Sequence[int]], dict[int, Texts]]
) -> list[Shift]:
    """The runs of lines that translate others near them, in their order.

    Args:
        pairs: of the corpus.
        misfits: of all its lines.
        numbers: of these lines in the file.
        read: gives the two sides of lines by number.
    """
    found = _runs(misfits)
    runs = [range(first, min(end, first + LINES_COMPARED)) for first, end in found]
    around = [range(run.start - FURTHEST, run.stop + FURTHEST) for run in runs]
    known = range(len(numbers))
    texts = read([int(numbers[i]) for indices in around for i in indices if i in known])

    def lines(indices: range, side: int) -> list[str]:
        return [texts.get(int(numbers[i]), ("", ""))[side] if i in known else "" for i in indices]

    shifts = []
    for (first, end), run, near in zip(found, runs, around, strict=True):
        if (offset := pairs.offset(lines(run, 0), lines(near, 1), FURTHEST)) is not None:
            shifts.append(Shift(int(numbers[first]), int(numbers[end - 1]), offset))
    return sorted(shifts, key=lambda shift: shift.first)


def _runs(misfits: np.ndarray) -> list[tuple[int, int]]:
    """The runs (first index, end) with the largest sums, those beyond EVIDENCE."""
    rest, found = misfits.astype(np.float64), []
    while len(found) < MOST_BLOCKS and len(rest):
        sums = np.concatenate([[0.0], np.cumsum(rest)])
        lowest = np.minimum.accumulate(sums)
        end = int((sums - lowest).argmax())
        if sums[end] - lowest[end] < EVIDENCE:
            break
        begin = int(np.flatnonzero(sums[:end] == lowest[end])[-1])
        found.append((begin, end))
        rest[begin:end] = -LARGEST_EVIDENCE
    return found


def _words(block: TextBlock) -> tuple[list[str], np.ndarray]:
    """The words of all lines, and the line of each; of ideographs each two that are adjacent."""
    if script_of("".join(block.lines[:LINES_COMPARED])) != "Han or kana":
        return block.words
    texts = list(map(normalise, block.lines))
    words = [text[first : first + 2] for text in texts for first in range(len(text) - 1)]
    return words, np.repeat(np.arange(len(texts)), [max(len(text) - 1, 0) for text in texts])


def _indices(block: TextBlock) -> tuple[np.ndarray, np.ndarray]:
    """(line, index in the table) of distinct words, at most MOST_WORDS of a line."""
    words, lines = _words(block)
    hashes = {word: HASH_FACTOR * crc32(word.lower().encode()) >> 16 & TABLE_SIZE - 1 for word in set(words)}
    keys = np.unique(lines * TABLE_SIZE + np.fromiter(map(hashes.__getitem__, words), np.int64, len(words)))
    lines, indices = keys // TABLE_SIZE, keys % TABLE_SIZE
    kept = np.arange(len(lines)) - np.searchsorted(lines, lines) < MOST_WORDS
    return lines[kept].astype(np.int32), indices[kept].astype(np.int32)


def _crossed(
    source: tuple[np.ndarray, np.ndarray], target: tuple[np.ndarray, np.ndarray], size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Each target word with each source word of its line: index in the flat table, and index of the target word."""
    counts = np.bincount(source[0], minlength=size)
    firsts = np.concatenate([[0], np.cumsum(counts)])
    repeats = counts[target[0]]
    owners = np.repeat(np.arange(len(repeats), dtype=np.int32), repeats)
    behind = np.concatenate([[0], np.cumsum(repeats)])[:-1]
    partners = np.arange(len(owners)) + np.repeat(firsts[target[0]] - behind, repeats)
    return source[1][partners] * np.int32(TABLE_SIZE) + target[1][owners], owners


def _scores(
    ratios: np.ndarray, source: tuple[np.ndarray, np.ndarray], target: tuple[np.ndarray, np.ndarray], size: int
) -> np.ndarray:
    pairs, owners = _crossed(source, target, size)
    num_words = len(target[0])
    counts = np.bincount(owners, minlength=num_words)
    means = np.bincount(owners, weights=ratios.ravel()[pairs], minlength=num_words) / np.maximum(counts, 1)
    gains = np.where(counts > 0, np.clip(np.log(np.maximum(means, 1e-3)), -1.0, LARGEST_GAIN), 0.0)
    return np.bincount(target[0], weights=gains, minlength=size).astype(np.float32)
