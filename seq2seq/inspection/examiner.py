"""What each block of a corpus shows, and the sum over the blocks.

`check` has one `Examiner` in each process and gives it blocks; each `Tally` that comes back is small, and `report`
reads their sum over a corpus.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from seq2seq.config import FilterConfig
from seq2seq.data.columns import looks_like_header
from seq2seq.data.filters import PairFilter
from seq2seq.inspection.alignment import LineShapes, line_shapes
from seq2seq.inspection.blocks import Block, Finding
from seq2seq.inspection.characters import TextBlock, line_hashes
from seq2seq.inspection.near_duplicates import NearDuplicates
from seq2seq.inspection.oddities import oddities_of, script_of
from seq2seq.inspection.overlap import HeldOut, Match, Matches, normalise, texts_of
from seq2seq.inspection.word_pairs import WordPairs
from seq2seq.text.tokenizer import Tokenizer

_SOURCE_FACTOR, _TARGET_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class Sums:
    """Fields that are added up over blocks: numbers, lists, sets, counts and findings."""

    def add(self, other: "Sums") -> None:
        """Add the fields of a later block."""
        for name, value in vars(other).items():
            total = getattr(self, name)
            if isinstance(value, Counter | set):
                total.update(value)
            elif isinstance(value, dict):
                for kind, finding in value.items():
                    total.setdefault(kind, Finding()).add(finding)
            else:
                total += value
                setattr(self, name, total)


@dataclass
class SideTally(Sums):
    """One side."""

    findings: dict[str, Finding] = field(default_factory=dict)
    """By the name of the oddity."""
    scripts: dict[str, Finding] = field(default_factory=dict)
    """Lines by the script of most of their letters."""
    hashes: list[np.ndarray] = field(default_factory=list)
    """uint64, one for each line."""
    shapes: list[LineShapes] = field(default_factory=list)
    characters: Counter[str] = field(default_factory=Counter)
    num_words: int = 0
    num_pieces: float = 0.0
    held_out_words: set[str] = field(default_factory=set)
    """The words of the held-out sets that occur here."""


@dataclass
class Tally(Sums):
    """Examples of one corpus."""

    sides: list[SideTally] = field(default_factory=list)
    examples: int = 0
    pairs: dict[str, Finding] = field(default_factory=dict)
    """Oddities of pairs."""
    numbers: list[np.ndarray] = field(default_factory=list)
    """int32, line numbers."""
    pair_hashes: list[np.ndarray] = field(default_factory=list)
    is_kept: list[np.ndarray] = field(default_factory=list)
    """bool, whether the filters keep an example, repeated ones too."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Examples by the filter rule that drops them."""
    labels: Counter[str] = field(default_factory=Counter)
    misfits: list[np.ndarray] = field(default_factory=list)
    """float32, log-odds that the sides of a pair do not translate each other, where word pairs were learned."""
    matches: list[tuple[str, Match]] = field(default_factory=list)
    """Held-out examples that occur here."""

    def add(self, other: "Tally") -> None:  # type: ignore[override]
        """Add the examples of a later block, or of another corpus of the same kind."""
        sides = self.sides or [SideTally() for _ in other.sides]
        for side, later in zip(sides, other.sides, strict=True):
            side.add(later)
        self.sides = []
        super().add(other)
        self.sides = sides


@dataclass(frozen=True)
class PieceLengths:
    """Lengths in pieces, of each side by a tokenizer of the configured kind, or estimated by characters."""

    tokenizers: Sequence[Tokenizer | None]
    pieces_per_character: Sequence[float]
    is_exact: bool
    """Whether the tokenizers are those of training, so that no length is estimated."""

    def __call__(self, texts: Sequence[TextBlock], filters: FilterConfig) -> list[np.ndarray]:
        """(N,) float32 for each side; exact where a filter could decide either way."""
        lengths = [
            np.where(text.lengths > 0, np.maximum(text.lengths * rate, 1), 0).astype(np.float32)
            for text, rate in zip(texts, self.pieces_per_character, strict=True)
        ]
        shorter, longer = np.minimum(lengths[0], lengths[-1]), np.maximum(lengths[0], lengths[-1])
        near = (longer > 0.4 * filters.max_length) & (longer < 2.5 * filters.max_length)
        near |= (longer > 4) & (longer > 0.5 * filters.max_ratio * shorter)
        near |= (filters.min_length > 1) & (shorter < 2.5 * filters.min_length)
        lines = np.flatnonzero(near | self.is_exact)
        for text, tokenizer, of_side in zip(texts, self.tokenizers, lengths, strict=True):
            if tokenizer is not None:
                of_side[lines] = list(map(len, tokenizer.encode_all([text.lines[line].strip() for line in lines])))
        return lengths


@dataclass(frozen=True)
class Examiner:
    """Looks at blocks; it can be sent to another process."""

    filters: FilterConfig
    lengths: PieceLengths
    held_out: HeldOut
    near_duplicates: NearDuplicates
    held_out_words: tuple[set[str], ...]
    """For each side."""
    word_pairs: WordPairs | None

    def __call__(self, block: Block, skip: str | None = None) -> Tally:
        """What `block` shows; if it is of the held-out set `skip`, overlap with that set is left out."""
        texts = list(map(TextBlock, block.columns))
        pieces = self.lengths(texts, self.filters)
        tally = Tally(examples=len(block.numbers), labels=Counter(block.labels or ()))
        tally.numbers.append(np.array(block.numbers, np.int32))
        for side, (text, lengths) in enumerate(zip(texts, pieces, strict=True)):
            tally.sides.append(self._side(side, text, block, float(lengths.sum())))
        others = tally.sides[-1].hashes[0] if block.labels is None else line_hashes(block.labels)
        tally.pair_hashes.append(tally.sides[0].hashes[0] * _SOURCE_FACTOR ^ others * _TARGET_FACTOR)
        self._examine_pairs(tally, block, pieces)
        tally.matches += self._overlap(block, skip)
        if self.word_pairs is not None:
            tally.misfits.append(self.word_pairs.misfits(*texts, is_learned=skip is None))
        return tally

    def _side(self, side: int, text: TextBlock, block: Block, num_pieces: float) -> SideTally:
        odd: dict[str, list[int]] = {}
        scripts: dict[str, list[int]] = {}
        for index, line in enumerate(text.lines):
            for name in oddities_of(line):
                odd.setdefault(name, []).append(index)
            if script := script_of(line):
                scripts.setdefault(script, []).append(index)
        words = " ".join(text.lines).split()
        counts = np.bincount(text.codes)
        counts[ord("\n")] = 0
        codes = np.flatnonzero(counts)
        return SideTally(
            findings={name: block.finding(indices, block.columns[side]) for name, indices in odd.items()},
            scripts={script: block.finding(indices, block.columns[side]) for script, indices in scripts.items()},
            hashes=[line_hashes(text.lines)],
            shapes=[line_shapes(text)],
            characters=Counter(dict(zip(map(chr, codes), counts[codes].tolist(), strict=True))),
            num_words=len(words),
            num_pieces=num_pieces,
            held_out_words=self.held_out_words[side].intersection(words),
        )

    def _examine_pairs(self, tally: Tally, block: Block, pieces: Sequence[np.ndarray]) -> None:
        """Pairs that are odd, and the rule by which the filters drop an example, the first that applies."""
        found: dict[str, list[int]] = {}
        rules = {
            index: "empty"
            for index, texts in enumerate(zip(*block.columns, strict=True))
            if not all(map(str.strip, texts))
        }
        shorter, longer = np.minimum(pieces[0], pieces[-1]), np.maximum(pieces[0], pieces[-1])
        doubtful = (longer > self.filters.max_length) | (longer > self.filters.max_ratio * np.maximum(shorter, 0.1))
        for index in np.flatnonzero(doubtful | (shorter < self.filters.min_length)).tolist():
            rule = PairFilter(self.filters).rejects_lengths(float(pieces[0][index]), float(pieces[-1][index]))
            if rule is not None and index not in rules:
                rules[index] = rule
                if rule == "ratio" or longer[index] > self.filters.max_length:
                    found.setdefault("ratio" if rule == "ratio" else "over_long", []).append(index)
        if len(block.columns) == 2:
            for index, (source, target) in enumerate(zip(*block.columns, strict=True)):
                if source[:1] == target[:1] and source.strip() == target.strip() != "":
                    found.setdefault("copy", []).append(index)
            if block.numbers[0] == 1 and looks_like_header([column[0] for column in block.columns]):
                found["header"] = [0]
        if self.filters.drop_copies:
            rules |= dict.fromkeys(found.get("copy", ()), "copy")
        tally.pairs |= {kind: block.finding(indices, *block.columns) for kind, indices in found.items()}
        tally.dropped.update(rules.values())
        is_kept = np.ones(len(block.numbers), bool)
        is_kept[list(rules)] = False
        tally.is_kept.append(is_kept)

    def _overlap(self, block: Block, skip: str | None) -> Matches:
        matches = Matches()
        for number, example in enumerate(block.examples(), start=block.first_example):
            texts = texts_of(example)
            normalised = tuple(map(normalise, texts))
            for finder in (self.held_out, self.near_duplicates):
                for name, match in finder.matches(number, texts, normalised):
                    if name != skip:
                        matches.add([(name, match)])
        return matches
