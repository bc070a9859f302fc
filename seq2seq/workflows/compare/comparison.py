"""The record of a comparison: scores with intervals, tests of all pairs, views and sentences.

`compare` makes a `SystemComparison`; table, JSON and page show the same record of plain values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from seq2seq.errors import DataError, counted
from seq2seq.evaluation.significance import (
    ALPHA,
    Resampled,
    chance_of_difference,
    detectable,
    groups,
    holm,
    over_seeds,
    paired_p_value,
    two_sided_p_value,
    varies,
)  # fmt: skip
from seq2seq.evaluation.text import Score, resampled, score_texts
from seq2seq.workflows.compare.curves import Curves, curves
from seq2seq.workflows.compare.sentences import PairSentences, most_different
from seq2seq.workflows.compare.systems import Row, System, check_sources, rows
from seq2seq.workflows.compare.views import Lines, View, views

LOWER_IS_BETTER = {"ter"}
VIEW_METRIC = "chrf"


@dataclass(frozen=True)
class Figure:
    """One metric of one row."""

    score: float
    """The mean over the seeds."""
    mean: float
    """Mean over the bootstrap resamples, and half the width of their 95 % interval."""
    half_width: float
    sd: float | None
    """Standard deviation over the seeds; None for one training."""
    letters: str
    """Rows that share a letter are not different."""
    members: Mapping[str, float]
    """The score of each training."""


@dataclass(frozen=True)
class PairTest:
    """The test of two rows by one metric."""

    first: str
    second: str
    metric: str
    difference: float
    """First minus second."""
    p_value: float
    """The p-value of `sacrebleu --paired-bs`; for a row of several seeds, two-sided, over lines and seeds."""
    corrected: float
    """Two-sided, corrected for all pairs by Holm's method: it decides."""
    is_different: bool
    detectable: float | None
    """A difference that four of five such test sets would have shown; None for translations without a difference."""
    seeds: tuple[int, int] = (1, 1)
    """The number of trainings of each row."""

    @property
    def is_over_seeds(self) -> bool:
        """Whether the test is over several seeds too."""
        return max(self.seeds) > 1


@dataclass(frozen=True)
class SystemComparison:
    """Everything that is shown; `as_json` gives it as plain values."""

    test_set: str
    num_lines: int
    signatures: Mapping[str, str]
    """By metric, in sacreBLEU's form."""
    titles: Mapping[str, str]
    """sacreBLEU's name of each metric."""
    rows: Mapping[str, Mapping[str, Figure]]
    """By row and metric, in the order of the arguments."""
    seeds: Mapping[str, list[int | None]]
    """The seeds of each row."""
    pairs: Sequence[PairTest]
    notes: Sequence[str]
    """Reasons to doubt figures, such as a system that is the reference, or a run that is not finished."""
    views: Sequence[View]
    sentences: Sequence[PairSentences]
    curves: Curves = field(default_factory=Curves)

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        return asdict(self)


@dataclass(frozen=True)
class TestLines:
    """A test set, and what is known of the training data."""

    name: str
    references: Sequence[Sequence[str]]
    sources: Sequence[str] = ()
    """Empty where they are not known."""
    training_counts: Mapping[str, int] | None = None
    """How often the words of the sources occur in the training data; None where that is not known."""
    training_note: str = ""
    """The lines in which they were counted, if not in all."""


def compare(
    systems: Sequence[System],
    test: TestLines,
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
    apart: bool = False,
    most_sentences: int = 10,
    **scoring: Any,
) -> SystemComparison:
    """Compare systems on one test set.

    Args:
        systems: in the order in which they are shown.
        test: references and sources.
        metrics: as of `score_texts`.
        apart: seeds of one configuration are rows of their own.
        most_sentences: sentences shown for each side of each pair.
        scoring: further options of `score_texts`.

    Raises:
        DataError: the systems do not belong to one test set.
    """
    check_sources(systems, test.sources)
    own = rows(systems, apart)
    wanted = list(dict.fromkeys([*metrics, VIEW_METRIC]))
    scores = {system.name: _scored(system, test, wanted, scoring) for system in systems}
    drawn = dict(zip(scores, resampled([list(by.values()) for by in scores.values()]), strict=True))
    order = list(next(iter(scores.values())))
    figures: dict[str, dict[str, Figure]] = {row.name: {} for row in own}
    pairs: list[PairTest] = []
    for index, metric in enumerate(order):
        if metric not in metrics:
            continue
        by_row = [over_seeds([drawn[member.name][index] for member in row.members]) for row in own]
        tests = _tested(own, by_row, metric)
        pairs += tests
        letters = _letters(by_row, tests, metric in LOWER_IS_BETTER)
        for row, found, letter in zip(own, by_row, letters, strict=True):
            members = {member.name: scores[member.name][metric].score for member in row.members}
            sd = float(np.std(list(members.values()), ddof=1)) if len(members) > 1 else None
            figures[row.name][metric] = Figure(found.score, found.mean, found.half_width, sd, letter, members)
    first = next(iter(scores.values()))
    by_line = {row.name: _mean_of([scores[member.name][VIEW_METRIC] for member in row.members]) for row in own}
    lines = Lines(own, test.references[0], test.sources, test.training_counts, test.training_note)
    in_rows = {row.name: [scores[member.name][VIEW_METRIC] for member in row.members] for row in own}
    return SystemComparison(
        test_set=test.name,
        num_lines=len(test.references[0]),
        signatures={metric: first[metric].paired_signature for metric in order if metric in metrics},
        titles={metric: first[metric].result.name for metric in order if metric in metrics},
        rows=figures,
        seeds={row.name: [member.seed for member in row.members] for row in own},
        pairs=pairs,
        notes=[*_notes(systems, test), *_run_notes(systems), *_single_notes(own)],
        views=views(lines, in_rows),
        sentences=most_different(own, by_line, test.references[0], test.sources, most_sentences),
        curves=curves(systems),
    )


def _scored(system: System, test: TestLines, metrics: Sequence[str], scoring: Mapping[str, Any]) -> dict[str, Score]:
    first, *others = test.references
    if len(system.translations) != len(first):
        translations, wanted = counted(len(system.translations), "translation"), counted(len(first), "reference")
        raise DataError(f"{system.name} has {translations} for {wanted}; give one line for each")
    found = score_texts(system.translations, first, metrics, other_references=others, **scoring)
    return {score.metric: score for score in found}


def _tested(own: Sequence[Row], by_row: Sequence[Resampled], metric: str) -> list[PairTest]:
    """Return all pairs by one metric, corrected together."""
    indices = list(combinations(range(len(own)), 2))
    two_sided = [two_sided_p_value(by_row[one], by_row[other]) for one, other in indices]
    found = []
    for (one, other), plain, p_value in zip(indices, two_sided, holm(two_sided), strict=True):
        first, second = by_row[one], by_row[other]
        chance, seeds = chance_of_difference(first, second), (len(own[one].members), len(own[other].members))
        size = detectable(chance, len(indices)) if varies(first, second, chance) else None
        found.append(
            PairTest(
                own[one].name, own[other].name, metric, first.score - second.score,
                plain if max(seeds) > 1 else paired_p_value(first, second),
                p_value, p_value < ALPHA, size, seeds,
            )
        )  # fmt: skip
    return found


def _letters(by_row: Sequence[Resampled], tests: Sequence[PairTest], lower_is_better: bool) -> list[str]:
    """Return for each row the letters of its groups; a is the group with the best row."""
    sign = 1 if lower_is_better else -1
    order = sorted(range(len(by_row)), key=lambda index: sign * by_row[index].score)
    place = {row: rank for rank, row in enumerate(order)}
    indices = combinations(range(len(by_row)), 2)
    different = [
        tuple(sorted((place[one], place[other])))
        for (one, other), test in zip(indices, tests, strict=True)
        if test.is_different
    ]
    found = groups(len(by_row), different)
    return [
        "".join(_letter(number) for number, group in enumerate(found) if place[row] in group)
        for row in range(len(by_row))
    ]


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else f"({number + 1})"


def _mean_of(scores: Sequence[Score]) -> list[float]:
    """Return the score of each line, as the mean over the trainings of a row."""
    by_member = [[score.compute(row) for row in score.table] for score in scores]
    return [float(value) for value in np.mean(by_member, axis=0)]


def _notes(systems: Sequence[System], test: TestLines) -> list[str]:
    found = []
    if len(test.references[0]) == 1:
        found.append("one line cannot show whether systems differ; give a longer test set")
    texts = {system.name: [line.strip() for line in system.translations] for system in systems}
    for name, lines in texts.items():
        for reference in test.references:
            if lines == [line.strip() for line in reference]:
                found.append(f"{name}: this file is the reference")
        if test.sources and lines == [line.strip() for line in test.sources]:
            found.append(f"{name}: this file is the source")
    for one, other in combinations(texts, 2):
        if texts[one] == texts[other]:
            found.append(f"{one} and {other} have the same translations")
    return found


def _run_notes(systems: Sequence[System]) -> list[str]:
    return [
        f"{system.name}: this run is not finished ({system.run.state} at step {system.run.step:,}), so it has a row "
        "of its own"
        for system in systems
        if system.run is not None and not system.is_finished
    ]


def _single_notes(own: Sequence[Row]) -> list[str]:
    """Name the rows of one training next to rows of several."""
    if not any(len(row.members) > 1 for row in own):
        return []
    return [
        f"{row.name}: one training; tests against rows of several seeds assume that its scores vary with the seed as "
        "much as theirs"
        for row in own
        if len(row.members) == 1
    ]
