"""Agreement of predicted labels with gold labels.

`classification_report` makes a `ClassificationReport`; validation in training and `s2s classify --gold` read it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import eq
from statistics import fmean
from typing import Any

from seq2seq.errors import DataError
from seq2seq.lines import checked_texts

# The prediction of a classifier for a blank text. It misses the gold class, and is not a class itself.
NO_ANSWER = ""


@dataclass(frozen=True)
class ClassScores:
    """Scores of one class against all others; each figure is 0 if its denominator is 0."""

    precision: float
    """TP / (TP + FP): the share of the texts predicted as this class that belong to it."""
    recall: float
    """TP / (TP + FN): the share of the texts of this class that were predicted as it."""
    f1: float
    """Harmonic mean of the two: 2 TP / (2 TP + FP + FN)."""
    support: int
    """Texts of this class."""


@dataclass(frozen=True)
class ClassificationReport:
    """All figures of a classification, as shares between 0 and 1, and the confusion matrix."""

    labels: tuple[str, ...]
    """The classes in order, and last the empty label if a text has no prediction."""
    accuracy: float
    precision: float
    """Macro: the plain mean over the classes that occur in gold or predictions."""
    recall: float
    f1: float
    """Macro F1: the mean of the classes' F1."""
    classes: Mapping[str, ClassScores]
    confusion: tuple[tuple[int, ...], ...]
    """`confusion[i][j]`: the number of texts of class i that were predicted as class j, in the order of `labels`."""

    @property
    def total(self) -> int:
        return sum(map(sum, self.confusion))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"total": self.total, **asdict(self)}


def classification_report(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str] = ()
) -> ClassificationReport:
    """Compare labels position by position.

    `labels` is the order of the classes; other classes that occur follow in alphabetical order. An empty prediction,
    which classifiers give for a blank text, is an error and not a class, unless texts have this gold label.

    Raises:
        DataError: the numbers of labels differ, or there are none.
    """
    gold, predicted = checked_texts(gold, "classification_report"), checked_texts(predicted, "classification_report")
    if len(gold) != len(predicted):
        raise DataError(f"{len(predicted):,} predictions for {len(gold):,} gold labels; give one for each")
    if not gold:
        raise DataError("there are no gold labels; there is nothing to score")
    unanswered = {NO_ANSWER}.intersection(predicted) - {*labels, *gold}
    occurring = {*gold, *predicted} - unanswered
    named = (*labels, *sorted(occurring - set(labels)))
    order = (*named, *unanswered)
    counts = Counter(zip(gold, predicted, strict=True))
    confusion = tuple(tuple(counts[row, column] for column in order) for row in order)
    classes = {}
    for index, label in enumerate(named):
        hits, support = confusion[index][index], sum(confusion[index])
        given = sum(row[index] for row in confusion)
        classes[label] = ClassScores(
            precision=hits / given if given else 0.0,
            recall=hits / support if support else 0.0,
            f1=2 * hits / (given + support) if given + support else 0.0,
            support=support,
        )
    averaged = [scores for label, scores in classes.items() if label in occurring]
    return ClassificationReport(
        labels=order,
        accuracy=sum(map(eq, gold, predicted)) / len(gold),
        precision=fmean(scores.precision for scores in averaged),
        recall=fmean(scores.recall for scores in averaged),
        f1=fmean(scores.f1 for scores in averaged),
        classes=classes,
        confusion=confusion,
    )
