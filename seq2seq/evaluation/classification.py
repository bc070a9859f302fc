"""How well predicted labels agree with gold ones.

`classification_report` makes a `ClassificationReport`; validation in training and `s2s classify --gold` read it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seq2seq.errors import DataError


@dataclass(frozen=True)
class ClassScores:
    """One class against all others; each figure is 0 where its denominator is 0."""

    precision: float
    """Share of the texts given this label that have it: TP / (TP + FP)."""
    recall: float
    """Share of the texts that have this label that were given it: TP / (TP + FN)."""
    f1: float
    """Harmonic mean of the two: 2 TP / (2 TP + FP + FN)."""
    support: int
    """Texts that have this label."""


@dataclass(frozen=True)
class ClassificationReport:
    """All figures as shares between 0 and 1."""

    labels: tuple[str, ...]
    accuracy: float
    precision: float
    """Macro: the plain mean over the classes that occur in gold or predictions."""
    recall: float
    f1: float
    """Macro F1: the mean of the classes' F1."""
    classes: Mapping[str, ClassScores]
    confusion: tuple[tuple[int, ...], ...]
    """`confusion[i][j]` texts have label i and were given label j, in the order of `labels`."""

    @property
    def total(self) -> int:
        return sum(map(sum, self.confusion))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "total": self.total,
            "accuracy": self.accuracy,
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
            "classes": {label: vars(scores) for label, scores in self.classes.items()},
            "labels": list(self.labels),
            "confusion": [list(row) for row in self.confusion],
        }


def classification_report(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str] = ()
) -> ClassificationReport:
    """Compare labels position by position.

    `labels` gives the order of the classes; what occurs beyond them follows in alphabetical order.

    Raises:
        DataError: the numbers differ, or there are none.
    """
    if len(gold) != len(predicted):
        raise DataError(f"{len(predicted):,} predictions for {len(gold):,} gold labels; give one for each")
    if not gold:
        raise DataError("there are no gold labels; there is nothing to score")
    order = (*labels, *sorted({*gold, *predicted} - set(labels)))
    counts = Counter(zip(gold, predicted, strict=True))
    confusion = tuple(tuple(counts[row, column] for column in order) for row in order)
    classes = {label: _class_scores(confusion, index) for index, label in enumerate(order)}
    # A class that occurs nowhere has no figures to average.
    present = {*gold, *predicted}
    averaged = [scores for label, scores in classes.items() if label in present]
    return ClassificationReport(
        labels=order,
        accuracy=sum(row[index] for index, row in enumerate(confusion)) / len(gold),
        precision=sum(scores.precision for scores in averaged) / len(averaged),
        recall=sum(scores.recall for scores in averaged) / len(averaged),
        f1=sum(scores.f1 for scores in averaged) / len(averaged),
        classes=classes,
        confusion=confusion,
    )


def _class_scores(confusion: Sequence[Sequence[int]], index: int) -> ClassScores:
    hits = confusion[index][index]
    support = sum(confusion[index])
    given = sum(row[index] for row in confusion)
    return ClassScores(
        precision=hits / given if given else 0.0,
        recall=hits / support if support else 0.0,
        f1=2 * hits / (given + support) if given + support else 0.0,
        support=support,
    )
