"""The `CorpusReport` of one corpus, made from the `CorpusTally` of all its blocks.

`check` makes it, `advice` judges it, and `layout` prints it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from seq2seq.data.filters import FilterCounts
from seq2seq.inspection.agreement import Agreement, Expected, agreement_of
from seq2seq.inspection.blocks import EXAMPLES_KEPT, CorpusReader, Finding
from seq2seq.inspection.examiner import CorpusTally, SideTally
from seq2seq.inspection.oddities import ODDITIES

UNSEEN_SHOWN = 20


@dataclass(frozen=True)
class SideReport:
    """The figures and findings of one side of a corpus."""

    words: int
    characters: int
    distinct_characters: int
    longest: int
    """The length of the longest line, in characters."""
    mean_pieces: float
    """The estimated mean number of pieces per line."""
    script: str
    """The script of most letters of most lines."""
    findings: dict[str, Finding]
    unseen_characters: dict[str, int] = field(default_factory=dict)
    """The most frequent characters of a held-out set that do not occur in training, with their counts."""
    unseen_character_share: float = 0.0
    """The share of such characters in the running text."""
    unseen_word_share: float = 0.0
    """The share of the distinct words that do not occur in training."""


@dataclass(frozen=True)
class CorpusReport:
    """The report on one corpus."""

    name: str
    files: list[str]
    lines: list[int]
    """The number of lines of each file; a single number if both sides are in one file."""
    examples: int
    sides: dict[str, SideReport]
    findings: dict[str, Finding]
    """The findings on pairs."""
    agreement: Agreement
    """The findings on the sides as translations of each other."""
    shift_context: list[tuple[int, tuple[str, ...]]]
    """The lines around the beginning of the first shift."""
    filters: FilterCounts
    """The numbers of examples that the filters of training keep and drop; what a corpus before it has too is dropped as
    a duplicate."""
    labels: dict[str, int]
    contradictions: Finding
    """The texts with several labels, or sources with several targets."""
    failure: str | None


def report_on(
    tally: CorpusTally,
    reader: CorpusReader,
    train: CorpusTally | None,
    expected: Expected,
) -> CorpusReport:
    """Return the report on the corpus that `reader` has read; `train` is the sum of training, for a held-out set."""
    numbers, keys = _joined(tally.numbers), _joined(tally.keys)
    difference = reader.line_counts[-1] - reader.line_counts[0]
    agreement = agreement_of(tally, reader, expected, train is None, difference)
    shifts = agreement.shifts
    around = [shifts[0].first + step for step in (-1, 0, 1)] if shifts else []
    repeated_pairs = _repeats(keys)
    repeated_lines = [_repeats(_joined(side.hashes)) for side in tally.sides]
    contradictions = _contradictions(keys, _joined(tally.sides[0].hashes)) if tally.examples else (0, [])
    repeats = [repeated_pairs, contradictions, *repeated_lines]
    invalid = [number for lines in (*reader.invalid, reader.elsewhere) for number in lines[:EXAMPLES_KEPT]]
    texts = reader.examples_at([*(int(numbers[i]) for _, indices in repeats for i in indices), *around, *invalid])

    def finding(count: int, indices: Sequence[int]) -> Finding:
        return Finding(count, [(n, texts[n]) for n in numbers[indices].tolist() if n in texts])

    names = ("source", "target") if len(tally.sides) == 2 else ("text",)
    sides = {}
    for index, (name, side) in enumerate(zip(names, tally.sides, strict=False)):
        findings = dict(side.findings) | {"repeated": finding(*repeated_lines[index])}
        if lines := reader.invalid[index] if index < len(reader.invalid) else []:
            # each of these lines was decoded with U+FFFD; those after the end of the shorter file are not in the tally
            others, decoded = findings.pop("replacement", Finding()), int(np.isin(lines, numbers).sum())
            findings["replacement"] = Finding(others.count - decoded, others.examples)
        if lines := [*lines, *(reader.elsewhere if index == 0 else ())]:
            shown = [(n, texts[n][index : index + 1]) for n in lines[:EXAMPLES_KEPT] if n in texts]
            findings["invalid_utf8"] = Finding(len(lines), shown)
        sides[name] = _side_report(side, findings, tally.examples, train.sides[index] if train else None)
    return CorpusReport(
        name=reader.name,
        files=reader.files,
        lines=reader.line_counts,
        examples=tally.examples,
        sides=sides,
        findings=_in_order(tally.pairs | agreement.language_findings | {"duplicate": finding(*repeated_pairs)}),
        agreement=agreement,
        shift_context=[(number, texts[number]) for number in around if number in texts],
        filters=tally.filters,
        labels=dict(sorted(tally.labels.items())),
        contradictions=finding(*contradictions),
        failure=reader.failure,
    )


def _side_report(side: SideTally, findings: dict[str, Finding], examples: int, train: SideTally | None) -> SideReport:
    usual = max(side.scripts, key=lambda script: side.scripts[script].count, default="none")
    foreign = Finding()
    for script in sorted(side.scripts.keys() - {usual}):
        foreign.add(side.scripts[script])
    total = side.characters.total()
    unseen = Counter(
        {character: n for character, n in side.characters.items() if train and not train.characters[character]}
    )
    unseen_words = side.held_out_words - train.held_out_words if train else set()
    return SideReport(
        words=side.num_words,
        characters=total,
        distinct_characters=len(side.characters),
        longest=max(side.longest, default=0),
        mean_pieces=round(side.num_pieces / max(examples, 1), 1),
        script=usual,
        findings=_in_order(findings | {"foreign_script": foreign}),
        unseen_characters=dict(unseen.most_common(UNSEEN_SHOWN)),
        unseen_character_share=unseen.total() / max(total, 1),
        unseen_word_share=len(unseen_words) / max(len(side.held_out_words), 1),
    )


def _repeats(hashes: np.ndarray) -> tuple[int, list[int]]:
    """Return the number of repetitions, and the indices of the first group of equal hashes."""
    _, first, inverse, counts = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    if not (counts > 1).any():
        return 0, []
    earliest = np.where(counts > 1, first, len(hashes)).argmin()
    return int((counts - 1).sum()), np.flatnonzero(inverse == earliest)[:EXAMPLES_KEPT].tolist()


def _contradictions(keys: np.ndarray, source_hashes: np.ndarray) -> tuple[int, list[int]]:
    """Return how many distinct sources have several targets, and the indices of the first such source."""
    distinct = np.sort(np.unique(keys, return_index=True)[1])
    _, inverse, counts = np.unique(source_hashes[distinct], return_inverse=True, return_counts=True)
    several = counts > 1
    earliest = inverse[several[inverse].argmax()]
    return int(several.sum()), distinct[inverse == earliest][:EXAMPLES_KEPT].tolist() if several.any() else []


def _in_order(findings: dict[str, Finding]) -> dict[str, Finding]:
    return {name: findings[name] for name in ODDITIES if name in findings and findings[name].count > 0}


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
