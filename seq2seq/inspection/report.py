"""What `check` says of one corpus: the findings of its blocks, added up.

`check` fills a `Tally` while the corpus is read and asks it for the `CorpusReport`, which `advice` judges.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from seq2seq.config import FilterConfig
from seq2seq.data.filters import FilterCounts
from seq2seq.inspection.alignment import Drift, LineShapes, find_drift, joined
from seq2seq.inspection.blocks import CorpusReader
from seq2seq.inspection.characters import SCRIPTS
from seq2seq.inspection.quality import EXAMPLES_KEPT, KINDS, RULES, BlockFindings, Example, Finding, SideFindings
from seq2seq.inspection.word_pairs import Shift, WordPairs, shifted_blocks

UNSEEN_SHOWN = 20
SIDES = ("source", "target")


@dataclass(frozen=True)
class SideReport:
    """One side of a corpus."""

    words: int
    characters: int
    distinct_characters: int
    longest: int
    """In characters."""
    mean_pieces: float
    """Estimated."""
    script: str
    """That of most letters of most lines."""
    findings: dict[str, Finding]
    unseen_characters: dict[str, int] = field(default_factory=dict)
    """Held-out sets: the most frequent characters that training never shows, with their counts."""
    unseen_character_share: float = 0.0
    """Of the running characters."""
    unseen_word_share: float = 0.0
    """Of the distinct words."""


@dataclass(frozen=True)
class CorpusReport:
    """One corpus."""

    name: str
    files: list[str]
    lines: list[int]
    """Of each file."""
    examples: int
    sides: dict[str, SideReport]
    findings: dict[str, Finding]
    """What concerns pairs."""
    drift: Drift | None
    drift_context: list[Example]
    shifts: list[Shift]
    """Blocks of lines that translate others near them."""
    filters: FilterCounts
    """What training's filters drop."""
    labels: dict[str, int]
    contradictions: Finding
    """Texts with two labels, or sources with two targets."""
    failure: str | None


class _SideTally:
    """One side of the blocks so far."""

    def __init__(self) -> None:
        self.findings: dict[str, Finding] = {}
        self.hashes: list[np.ndarray] = []
        self.shapes: list[LineShapes] = []
        self.scripts: dict[int, Finding] = {}
        self.character_counts = np.zeros(0x110000, dtype=np.int64)
        self.num_words, self.num_pieces = 0, 0.0
        self.words: np.ndarray | None = None
        """Which of the held-out words stand here."""

    def add(self, side: SideFindings) -> None:
        for kind, finding in side.findings.items():
            self.findings.setdefault(kind, Finding()).add(finding)
        for script, finding in side.scripts.items():
            self.scripts.setdefault(script, Finding()).add(finding)
        self.hashes.append(side.hashes)
        self.shapes.append(side.shapes)
        self.character_counts[side.codes] += side.code_counts
        self.num_words += side.num_words
        self.num_pieces += float(side.pieces.sum())
        self.see_words(side.held_out_words)

    def see_words(self, words: np.ndarray | None) -> None:
        if words is not None:
            self.words = words if self.words is None else self.words | words


class Tally:
    """The blocks of a corpus so far."""

    def __init__(self) -> None:
        self.sides: list[_SideTally] = []
        self.examples = 0
        self._pairs: dict[str, Finding] = {}
        self._numbers: list[np.ndarray] = []
        self._rules: list[np.ndarray] = []
        self._pair_hashes: list[np.ndarray] = []
        self._labels: Counter = Counter()
        self._misfits: list[np.ndarray] = []

    def add(self, block: BlockFindings) -> None:
        """Take the findings of the next block."""
        self._open(len(block.sides))
        for side, findings in zip(self.sides, block.sides, strict=True):
            side.add(findings)
        for kind, finding in block.pairs.items():
            self._pairs.setdefault(kind, Finding()).add(finding)
        self.examples += len(block.numbers)
        self._numbers.append(block.numbers)
        self._rules.append(block.rules)
        self._pair_hashes.append(block.pair_hashes)
        self._labels.update(block.labels)
        self._misfits.append(block.misfits)

    def merge(self, other: "Tally") -> None:
        """Take the characters, words and sizes of another corpus of the same role."""
        self._open(len(other.sides))
        for mine, theirs in zip(self.sides, other.sides, strict=True):
            mine.character_counts += theirs.character_counts
            mine.num_words += theirs.num_words
            mine.num_pieces += theirs.num_pieces
            mine.see_words(theirs.words)
        self.examples += other.examples

    def report(
        self, reader: CorpusReader, filters: FilterConfig, train: "Tally | None", word_pairs: WordPairs | None
    ) -> CorpusReport:
        """Everything of this corpus, which `reader` has read; against the training corpus if it is held out."""
        rules, pair_hashes, numbers = map(_concatenated, (self._rules, self._pair_hashes, self._numbers))
        findings = dict(self._pairs)
        duplicates, places = _repeats(pair_hashes)
        contradictions, contradicting = self._contradictions(pair_hashes)
        repeated = [_repeats(_concatenated(side.hashes)) for side in self.sides]
        drift = self._drift(reader)
        around = [drift.line + step for step in (-1, 0, 1)] if drift else []
        asked = [*places, *contradicting, *(place for _, some in repeated for place in some)]
        texts = reader.examples_at([*numbers[asked].tolist(), *around])
        if duplicates:
            findings["duplicate"] = _found(duplicates, numbers[places], texts)
        for side, (count, some) in zip(self.sides, repeated, strict=True):
            if count:
                side.findings["repeated"] = _found(count, numbers[some], texts)
        return CorpusReport(
            name=reader.name,
            files=reader.files,
            lines=reader.line_counts,
            examples=self.examples,
            sides=dict(self._side_reports(reader, train)),
            findings=_in_order(findings),
            drift=drift,
            drift_context=[(number, texts[number]) for number in around if number in texts],
            shifts=self._shifts(reader, numbers, word_pairs) if drift is None else [],
            filters=_filter_counts(rules, pair_hashes, filters),
            labels=dict(sorted(self._labels.items())),
            contradictions=_found(contradictions, numbers[contradicting], texts),
            failure=reader.failure,
        )

    def _open(self, num_sides: int) -> None:
        if not self.sides:
            self.sides = [_SideTally() for _ in range(num_sides)]

    def _drift(self, reader: CorpusReader) -> Drift | None:
        if len(self.sides) != 2 or not self.examples:
            return None
        difference = reader.line_counts[1] - reader.line_counts[0] if len(reader.line_counts) == 2 else 0
        return find_drift(joined(self.sides[0].shapes), joined(self.sides[1].shapes), difference)

    def _shifts(self, reader: CorpusReader, numbers: np.ndarray, word_pairs: WordPairs | None) -> list[Shift]:
        if word_pairs is None or not self.examples:
            return []
        return shifted_blocks(word_pairs, np.concatenate(self._misfits), numbers, reader.examples_at)

    def _contradictions(self, pair_hashes: np.ndarray) -> tuple[int, list[int]]:
        """How many distinct first sides have several second sides, and a few examples that show it."""
        if not self.examples:
            return 0, []
        _, first = np.unique(pair_hashes, return_index=True)
        first.sort()
        keys = _concatenated(self.sides[0].hashes)[first]
        _, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
        several = counts[places] > 1
        shown = first[several & np.isin(keys, keys[several][:1])][:EXAMPLES_KEPT]
        return int((counts > 1).sum()), shown.tolist()

    def _side_reports(self, reader: CorpusReader, train: "Tally | None") -> Iterator[tuple[str, SideReport]]:
        names = SIDES if len(self.sides) == 2 else ("text",)
        for place, (name, side) in enumerate(zip(names, self.sides, strict=False)):
            invalid = reader.invalid[place] if place < len(reader.invalid) else Finding()
            if invalid.count:
                side.findings["invalid_utf8"] = invalid
                lost = side.findings.pop("replacement", Finding())  # every line that was decoded so holds one
                if lost.count > invalid.count:
                    side.findings["replacement"] = Finding(lost.count - invalid.count, lost.examples)
            usual = max(side.scripts, key=lambda script: side.scripts[script].count, default=0)
            for script in sorted(side.scripts.keys() - {usual}):
                side.findings.setdefault("foreign_script", Finding()).add(side.scripts[script])
            unseen = _unseen(side, train.sides[place]) if train is not None and train.sides else {}
            yield (
                name,
                SideReport(
                    words=side.num_words,
                    characters=int(side.character_counts.sum()),
                    distinct_characters=int((side.character_counts > 0).sum()),
                    longest=max((int(shapes.lengths.max(initial=0)) for shapes in side.shapes), default=0),
                    mean_pieces=round(side.num_pieces / max(self.examples, 1), 1),
                    script=SCRIPTS[usual],
                    findings=_in_order(side.findings),
                    **unseen,
                ),
            )


def _unseen(side: _SideTally, train: _SideTally) -> dict:
    counts = np.where(train.character_counts == 0, side.character_counts, 0)
    most = np.argsort(-counts, kind="stable")[:UNSEEN_SHOWN]
    result = {
        "unseen_characters": {chr(code): int(counts[code]) for code in most if counts[code]},
        "unseen_character_share": float(counts.sum() / max(side.character_counts.sum(), 1)),
    }
    if side.words is not None and train.words is not None:
        result["unseen_word_share"] = float((side.words & ~train.words).sum() / max(side.words.sum(), 1))
    return result


def _repeats(hashes: np.ndarray) -> tuple[int, list[int]]:
    """How many were there before, and where a few of them stand: those of the first value that repeats."""
    if not len(hashes):
        return 0, []
    values, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    repeated = counts > 1
    if not repeated.any():
        return 0, []
    value = values[repeated][first[repeated].argmin()]
    return int((counts - 1).sum()), np.flatnonzero(hashes == value)[:EXAMPLES_KEPT].tolist()


def _filter_counts(rules: np.ndarray, pair_hashes: np.ndarray, filters: FilterConfig) -> FilterCounts:
    """The rules in the order in which training tries them."""
    counts = FilterCounts()
    for place, rule in enumerate(RULES[1:], start=1):
        counts.drop(rule, int((rules == place).sum()))
    kept = pair_hashes[rules == 0]
    counts.kept = len(np.unique(kept)) if filters.drop_duplicates else len(kept)
    counts.drop("duplicate", len(kept) - counts.kept)
    return counts


def _found(count: int, numbers: np.ndarray, texts: dict[int, tuple[str, ...]]) -> Finding:
    return Finding(count, [(number, texts[number]) for number in numbers.tolist() if number in texts])


def _in_order(findings: dict[str, Finding]) -> dict[str, Finding]:
    return {kind: findings[kind] for kind in KINDS if kind in findings}


def _concatenated(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
