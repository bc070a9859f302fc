"""Contributions of the examples of a test or validation set to its score; standard errors follow from them.

A score has one contribution for each example, and their mean is about the score. Contributions are pseudo-values of the
jackknife (Tukey 1958): n times the score, minus n - 1 times the score without the example. For accuracy they are 0 or
1. `tasks` computes them at each validation; the trainer compares models by them (`training.judged`).
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from seq2seq.evaluation.classification import NO_ANSWER


@dataclass(frozen=True)
class Measured:
    """A score of a set, and the contribution of each of its N examples (N,)."""

    value: float
    contributions: np.ndarray


def pseudo_values(score: float, without: np.ndarray) -> np.ndarray:
    """Return the contributions to a score, (N,), from the score of the set without each example, (N,)."""
    return len(without) * score - (len(without) - 1) * without


def of_ratio(numerators: np.ndarray, denominators: np.ndarray) -> Measured:
    """Return a ratio of sums with its contributions, such as the loss of all targets divided by their number."""
    above, below = numerators.sum(), denominators.sum()
    score = float(above / below)
    rest = below - denominators
    without = np.divide(above - numerators, rest, out=np.full(len(rest), score), where=rest > 0)
    return Measured(score, pseudo_values(score, without))


def of_sums(score: float, statistics: np.ndarray, compute: Callable[[list], float]) -> Measured:
    """Return a score that `compute` derives from the sums of statistics (N, K), such as the n-gram counts of BLEU."""
    total = statistics.sum(axis=0)
    without = np.array([compute((total - row).tolist()) for row in statistics])
    return Measured(score, pseudo_values(score, without))


def of_macro_scores(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> dict[str, Measured]:
    """Return accuracy, and precision, recall and F1 as means over the classes that occur (`ClassificationReport`)."""
    labels = {label: index for index, label in enumerate(dict.fromkeys([*gold, *predicted]))}
    is_class = np.array([label != NO_ANSWER or label in gold for label in labels])
    rows = np.array([labels[label] for label in gold])
    columns = np.array([labels[label] for label in predicted])
    hits = np.bincount(rows[rows == columns], minlength=len(labels)).astype(float)
    support, given = (np.bincount(side, minlength=len(labels)).astype(float) for side in (rows, columns))
    scores = _macro(hits[is_class], support[is_class], given[is_class])
    kinds, kind_of = np.unique(np.stack([rows, columns]), axis=1, return_inverse=True)
    without = np.empty((kinds.shape[1], 3))
    for kind, (row, column) in enumerate(kinds.T):
        rest = [part.copy() for part in (hits, support, given)]
        rest[0][row] -= row == column
        rest[1][row] -= 1
        rest[2][column] -= 1
        without[kind] = _macro(*(part[is_class] for part in rest))
    values = without[kind_of.ravel()]  # (N, 3)
    found = {"accuracy": Measured(float(np.mean(rows == columns)), (rows == columns).astype(float))}
    for index, name in enumerate(("precision", "recall", "f1")):
        found[name] = Measured(scores[index], pseudo_values(scores[index], values[:, index]))
    return found


def _macro(hits: np.ndarray, support: np.ndarray, given: np.ndarray) -> tuple[float, float, float]:
    """Return precision, recall and F1, from the true positives, gold labels and predictions of each class."""
    occurs = support + given > 0
    if not occurs.any():
        return 0.0, 0.0, 0.0
    hits, support, given = hits[occurs], support[occurs], given[occurs]
    return (
        float(np.mean(hits / np.maximum(given, 1))),
        float(np.mean(hits / np.maximum(support, 1))),
        float(np.mean(2 * hits / (support + given))),
    )
