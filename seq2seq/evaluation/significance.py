"""Whether systems differ beyond chance: paired bootstrap, correction for several pairs, groups of equals.

The resamples are those of `sacrebleu --paired-bs` (Koehn 2004), so figures can be compared with other reports.
`evaluation.text` makes the statistics of lines; `workflows.compare` tests all pairs of systems.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

SAMPLES = 1000
ALPHA, POWER = 0.05, 0.8
_ROWS = 50  # resamples that are drawn together, for memory


@dataclass(frozen=True)
class Resampled:
    """A score of a test set, and the scores of its bootstrap resamples (SAMPLES,)."""

    score: float
    values: np.ndarray

    @property
    def mean(self) -> float:
        """Mean over the resamples."""
        return float(np.sort(self.values).mean())  # in sacreBLEU's order, to the last digit

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval."""
        ordered = np.sort(self.values)
        cut = len(ordered) // 40
        return float(0.5 * (ordered[-cut - 1] - ordered[cut]))


def seed() -> int | None:
    """Return the seed of the resamples: that of SACREBLEU_SEED, else sacreBLEU's; None draws anew each time."""
    text = os.environ.get("SACREBLEU_SEED", "12345")
    return None if text.lower() == "none" else int(text) or None


def resample(statistics: Sequence[np.ndarray], computes: Sequence[Callable[[np.ndarray], float]]) -> list[np.ndarray]:
    """Draw the lines of a test set with replacement, and compute each score of each draw.

    Args:
        statistics: (N, K) of each score, whose sums over lines make the score; the same N lines in all.
        computes: make a score of a row (K,) of sums.

    Returns:
        The values (SAMPLES,) of each score; all come from the same draws.
    """
    count = len(statistics[0])
    generator = np.random.default_rng(seed())
    joined = np.concatenate([np.asarray(each, dtype=np.float64) for each in statistics], axis=1)
    sums = []
    for first in range(0, SAMPLES, _ROWS):
        drawn = generator.choice(count, size=(min(_ROWS, SAMPLES - first), count), replace=True)
        counts = np.stack([np.bincount(row, minlength=count) for row in drawn])
        sums.append(counts.astype(np.float64) @ joined)
    table = np.concatenate(sums).astype(np.float32)  # as sacreBLEU, to the last digit
    ends = np.cumsum([each.shape[1] for each in map(np.asarray, statistics)])[:-1]
    parts = np.split(table, ends, axis=1)
    return [np.array([compute(row) for row in part]) for part, compute in zip(parts, computes, strict=True)]


def over_seeds(members: Sequence[Resampled], key: int) -> Resampled:
    """Return the mean of several trainings of one configuration; its resamples vary with the seeds too.

    Each resample of lines also draws the trainings with replacement. The deviations from their mean are multiplied by
    sqrt(k / (k - 1)), because k draws of k values vary less than k new trainings.

    Args:
        members: the k trainings, on the same draws of lines.
        key: seeds the draws of trainings, the same for the same configuration in any order.
    """
    count = len(members)
    score = float(np.mean([member.score for member in members]))
    values = np.stack([member.values for member in members])  # (k, SAMPLES)
    mean = values.mean(axis=0)
    if count == 1:
        return Resampled(score, mean)
    generator = np.random.default_rng([seed() or 0, key])
    drawn = generator.integers(count, size=values.shape)
    redrawn = np.take_along_axis(values, drawn, axis=0).mean(axis=0)
    return Resampled(score, mean + np.sqrt(count / (count - 1)) * (redrawn - mean))


def paired_p_value(first: Resampled, second: Resampled) -> float:
    """Return the p-value of `sacrebleu --paired-bs`, but 1 where nothing differs: its formula gives 1/1001 there.

    It is in effect that of a one-sided test: below 0.05 for about a tenth of pairs of equal systems.
    """
    difference = abs(first.score - second.score)
    drawn = np.abs(first.values - second.values)
    if not drawn.any() and not difference:
        return 1.0
    larger = int((drawn - drawn.mean() > difference).sum())
    return (larger + 1) / (len(drawn) + 1)


def error_of_difference(first: Resampled, second: Resampled) -> float:
    """Return the standard error of the difference of two scores on the same lines."""
    differences = first.values.astype(np.float64) - second.values  # in float32, equal ones may deviate
    return float(np.std(differences, ddof=1))


def two_sided_p_value(first: Resampled, second: Resampled) -> float:
    """Return how often equal systems differ as much, from the bootstrap's standard error of the difference.

    Unlike a count of resamples it has no lowest value, so that it can be corrected for many pairs.
    """
    difference, error = abs(first.score - second.score), error_of_difference(first, second)
    if not difference:
        return 1.0
    if error < 1e-9 * difference:  # no line differs from the others: a single line, or nothing to learn from
        return 1.0 if len(set(first.values)) == len(set(second.values)) == 1 else 0.0
    return 2 * (1 - NormalDist().cdf(difference / error))


def detectable(error: float, num_pairs: int) -> float:
    """Return the smallest difference that is found in four of five test sets, from the standard error of differences.

    `num_pairs` are tested together: the bound is that of the first step of Holm's correction.
    """
    normal = NormalDist()
    return (normal.inv_cdf(1 - ALPHA / (2 * num_pairs)) + normal.inv_cdf(POWER)) * error


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979), in the same order."""
    corrected, highest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def groups(count: int, different: Sequence[tuple[int, int]]) -> list[frozenset[int]]:
    """Return the largest sets of systems 0 to count - 1 without a pair that is different (Piepho 2004).

    Two systems share a set exactly if they are not different.
    """
    found = {frozenset(range(count))}
    for one, other in different:
        for group in [group for group in found if one in group and other in group]:
            found.remove(group)
            found |= {group - {one}, group - {other}}
        found = {group for group in found if not any(group < larger for larger in found)}
    return sorted(found, key=sorted)
