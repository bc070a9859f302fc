"""The probability that a translation is good, by logistic regression on figures of the model (Platt 1999).

`calibrating` fits the map on validation sentences; `aligner` applies it. A translation is good if its chrF is at least
`GOOD`. This module does not import torch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seq2seq.store.calibration import ConfidenceMap, Reliability
from seq2seq.text.alignment import Link, Word

GOOD = 60.0
LEAST_SENTENCES, LEAST_OF_A_KIND = 100, 10
FOLDS, BINS = 5, 5
PENALTY = 1.0  # of the squares of the weights
STEPS = 25


class _Weights(NamedTuple):
    """The numbers of a `ConfidenceMap` that predict."""

    means: list[float]
    scales: list[float]
    weights: list[float]
    bias: float


def features(words: Sequence[Word], links: Sequence[Link], num_source_words: int) -> list[float]:
    """Return the features of a translation, on which its confidence depends.

    They are the mean and the lowest log-probability of a word, the log ratio of lengths in words (target to source),
    and the share of source words without a partner.
    """
    log_probs = [word.log_prob for word in words] or [0.0]
    linked = len({link.source for link in links})
    return [
        float(np.mean(log_probs)),
        min(log_probs),
        float(np.log((len(words) + 1) / (num_source_words + 1))),
        1 - linked / max(num_source_words, 1),
    ]


def confidence(
    map_: ConfidenceMap | None, words: Sequence[Word], links: Sequence[Link], num_source_words: int
) -> float | None:
    """Return the probability that a translation is good; None without a map or without source words."""
    if map_ is None or not num_source_words:
        return None
    return float(_predicted(map_, np.array([features(words, links, num_source_words)]))[0])


def unfit(is_good: np.ndarray) -> str:
    """Return why no map can be fitted to N sentences, from whether each is good (N,); empty if one can be."""
    if len(is_good) < LEAST_SENTENCES:
        return f"{len(is_good)} sentences were translated, at least {LEAST_SENTENCES} are needed"
    good = int(is_good.sum())
    if min(good, len(is_good) - good) < LEAST_OF_A_KIND:
        kinds = f"{LEAST_OF_A_KIND} translations with a chrF of {GOOD:.0f} or more and {LEAST_OF_A_KIND} with less"
        return f"{kinds} are needed, there are {good} and {len(is_good) - good}"
    return ""


def fit(rows: np.ndarray, is_good: np.ndarray) -> ConfidenceMap | None:
    """Return the map fitted to sentences (N, F) that are good or not (N,), with a table of held-out predictions.

    None if it cannot be fitted (`unfit`).
    """
    if unfit(is_good):
        return None
    folds = np.arange(len(rows)) % FOLDS
    held_out = np.empty(len(rows))
    for fold in range(FOLDS):
        held_out[folds == fold] = _predicted(_fit(rows[folds != fold], is_good[folds != fold]), rows[folds == fold])
    bins = np.array_split(np.argsort(held_out, kind="stable"), BINS)
    table = tuple(
        Reliability(
            predicted=round(float(held_out[bin].mean()), 4),
            observed=round(float(is_good[bin].mean()), 4),
            sentences=len(bin),
        )
        for bin in bins
    )
    fitted = _fit(rows, is_good)
    return ConfidenceMap(
        means=tuple(fitted.means),
        scales=tuple(fitted.scales),
        weights=tuple(fitted.weights),
        bias=fitted.bias,
        table=table,
    )


def _fit(rows: np.ndarray, is_good: np.ndarray) -> _Weights:
    """Fit a logistic regression by Newton's method."""
    means, scales = rows.mean(0), np.maximum(rows.std(0), 1e-6)
    inputs = np.column_stack([(rows - means) / scales, np.ones(len(rows))])
    penalty = np.diag([PENALTY] * rows.shape[1] + [0.0])
    weights = np.zeros(inputs.shape[1])
    for _ in range(STEPS):
        guess = _sigmoid(inputs @ weights)
        slope = inputs.T @ (is_good - guess) - penalty @ weights
        curvature = (inputs * (guess * (1 - guess) + 1e-6)[:, None]).T @ inputs + penalty
        weights = weights + np.linalg.solve(curvature, slope)
    *slopes, bias = weights.round(6).tolist()
    return _Weights(means.round(6).tolist(), scales.round(6).tolist(), slopes, bias)


def _predicted(map_: ConfidenceMap | _Weights, rows: np.ndarray) -> np.ndarray:
    return _sigmoid((rows - np.array(map_.means)) / np.array(map_.scales) @ np.array(map_.weights) + map_.bias)


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values.clip(-30, 30)))
