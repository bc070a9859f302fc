"""The agreement of the two sides of a corpus as translations: of lines, by words and lengths, and of languages.

`report` makes the `Agreement` of each corpus of pairs from its `CorpusTally`; `advice` judges it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seq2seq.inspection.blocks import CorpusReader, Finding
from seq2seq.inspection.correspondence import FEWEST_LINES, Unrelated, find_unrelated
from seq2seq.inspection.examiner import CorpusTally
from seq2seq.inspection.line_languages import language_findings, unexpected_languages, usual_languages
from seq2seq.inspection.line_shapes import MOST_LINES, find_shift_by_shapes
from seq2seq.inspection.word_pairs import Shift, WordPairs, find_shifts


@dataclass(frozen=True)
class Expected:
    """The expectations that the sides of all corpora are compared with."""

    languages: Sequence[str | None]
    """The named languages of the two sides."""
    word_pairs: WordPairs | None
    """Word pairs, learned from the training corpora."""
    words_deny: bool
    """Whether the words of the training corpora match no better than by chance."""


@dataclass(frozen=True)
class Agreement:
    """Findings about the two sides of a corpus as translations of each other."""

    shifts: list[Shift] | None = None
    """Runs of lines that translate lines at another offset; None if the words give too little evidence."""
    unrelated: list[Unrelated] | None = None
    """Runs of lines whose sides do not belong together at any offset; None if the lengths give too little evidence."""
    languages: list[str | None] = field(default_factory=list)
    """The language of most lines of each side; None if it is unclear."""
    unexpected_languages: list[tuple[int, str, float]] = field(default_factory=list)
    """Sides that are not in their named language: (side, language of most lines, its share)."""
    num_identified: int = 0
    """Number of pairs in the sample of languages."""
    language_findings: dict[str, Finding] = field(default_factory=dict)
    """The swapped pairs, and the pairs with a side in another language, of the sample."""
    not_judged: list[str] = field(default_factory=list)
    """Properties of this corpus that cannot be judged, with the reason."""


def agreement_of(
    tally: CorpusTally, reader: CorpusReader, expected: Expected, is_train: bool, difference: int
) -> Agreement:
    """Judge the sides of the corpus that `reader` has read.

    Args:
        tally: sum over all blocks of the corpus.
        reader: reader that returns lines by number.
        expected: expectations to compare with.
        is_train: whether it is a training corpus.
        difference: number of target lines minus number of source lines.
    """
    if len(tally.sides) != 2 or not tally.examples:
        return Agreement()
    numbers, word_pairs, names = np.concatenate(tally.numbers), expected.word_pairs, expected.languages
    misfits = np.concatenate(tally.misfits) if word_pairs is not None else None
    shifts = _shifts(tally, reader, numbers, word_pairs, misfits, difference)
    unrelated = find_unrelated(
        np.concatenate(tally.log_lengths, axis=1), misfits, numbers, is_train and expected.words_deny
    )
    if unrelated:
        unrelated = [run for run in unrelated if not _is_explained(run, shifts or ())]
    languages = usual_languages(tally.directions, names)
    return Agreement(
        shifts=shifts,
        unrelated=unrelated,
        languages=languages,
        unexpected_languages=list(unexpected_languages(tally.directions, names)),
        num_identified=sum(finding.count for finding in tally.directions.values()),
        language_findings=language_findings(tally.directions, languages),
        not_judged=list(_not_judged(tally.examples, word_pairs, unrelated, languages)),
    )


def _shifts(
    tally: CorpusTally,
    reader: CorpusReader,
    numbers: np.ndarray,
    word_pairs: WordPairs | None,
    misfits: np.ndarray | None,
    difference: int,
) -> list[Shift] | None:
    shifts = None
    if word_pairs is not None and misfits is not None:
        shifts = find_shifts(word_pairs, misfits, numbers, reader.examples_at, difference)
    if not shifts and tally.examples <= MOST_LINES:
        lines = reader.examples_at(numbers.tolist())
        if lines and all(len(texts) == 2 for texts in lines.values()):
            rows = find_shift_by_shapes(*zip(*lines.values(), strict=True), difference)
            places = [[int(numbers[number - 1]) for number in (run.first, run.last)] for run in rows]
            shifts = [replace(run, first=a, last=b) for run, (a, b) in zip(rows, places, strict=True)] or shifts
    return shifts


def _is_explained(run: Unrelated, shifts: Sequence[Shift]) -> bool:
    """Whether shifts, which do not overlap, cover at least half of the run."""
    shared = sum(max(0, min(run.last, shift.last) - max(run.first, shift.first) + 1) for shift in shifts)
    return 2 * shared >= run.last - run.first + 1


def _not_judged(
    examples: int, word_pairs: WordPairs | None, unrelated: list[Unrelated] | None, languages: Sequence[str | None]
) -> Iterator[str]:
    if unrelated is None and word_pairs is None:
        reason = "their lengths and words give too little evidence"
        if examples < FEWEST_LINES:
            reason = f"at least {FEWEST_LINES} lines are necessary"
        yield f"whether line i of the target translates line i of the source: {reason}"
    for name, language in zip(("source", "target"), languages, strict=True):
        if language is None:
            yield f"the language of the {name}: too few lines are clearly in one language"
