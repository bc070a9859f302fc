"""Whether systems differ beyond chance: paired bootstrap, chance of seeds, correction for several pairs, groups.

The resamples are those of `sacrebleu --paired-bs` (Koehn 2004), so figures can be compared with other reports.
`evaluation.text` makes the statistics of lines; `workflows.compare` tests all pairs of systems.
"""

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from seq2seq.errors import UserError, shown

SAMPLES = 1000
ALPHA, POWER = 0.05, 0.8
_SEED = re.compile("[0-9]{1,18}")
_ROWS = 50  # resamples that are drawn together, for memory
_NOISE = 1e-6  # relative, of sums in float32
_NODES = (20, 7)  # estimates of one variance, and of each of two, over which a power is averaged


@dataclass(frozen=True)
class Chance:
    """The variance of a score or of a difference, in two parts."""

    lines: float
    """The variance over test sets, from the bootstrap."""
    parts: tuple[tuple[float, float], ...] = ()
    """The variances over trainings of rows of several seeds, each estimated with its degrees of freedom."""

    @property
    def seeds(self) -> float:
        """The variance over trainings."""
        return sum(variance for variance, _ in self.parts)

    @property
    def freedom(self) -> float:
        """The degrees of freedom of `seeds` (Welch and Satterthwaite)."""
        terms = sum(variance**2 / freedom for variance, freedom in self.parts)
        return self.seeds**2 / terms if terms else math.inf

    @property
    def error(self) -> float:
        """The standard error."""
        return math.sqrt(self.lines + self.seeds)

    def p_value(self, difference: float) -> float:
        """Return how often chance alone makes a difference of this size or a larger one, of either sign.

        If `lines` is 0, this is Student's t-test; if `seeds` is 0, it is a test with the normal distribution. With
        both, the tail of the normal distribution is averaged over the variances of seeds that fit the estimate
        (Behrens-Fisher). Degrees of freedom for the sum would reject equal systems too often with two seeds.
        """
        if not self.seeds:
            return math.erfc(abs(difference) / self.error / math.sqrt(2))
        log_ratios, weights = _variance_ratios(self.freedom)
        errors = np.sqrt(2 * (self.lines + self.seeds / np.exp(log_ratios)))
        tails = [math.erfc(value) for value in abs(difference) / errors]
        return float(weights @ tails)

    def difference(self, p_value: float) -> float:
        """Return the difference whose two-sided p-value is `p_value`, which is between 0 and 1."""
        low, high = 0.0, self.error
        while self.p_value(high) > p_value:
            low, high = high, 2 * high
        for _ in range(18):
            middle = (low + high) / 2
            low, high = (middle, high) if self.p_value(middle) > p_value else (low, middle)
        return high


@dataclass(frozen=True)
class Resampled:
    """A score of a test set, and the scores of its bootstrap resamples (SAMPLES,)."""

    score: float
    values: np.ndarray
    num_lines: int
    seed_scores: tuple[float, ...] = ()
    """The score of each training, for the mean of several."""

    @property
    def mean(self) -> float:
        """Mean over the resamples."""
        return float(np.sort(self.values).mean())  # in sacreBLEU's order, to the last digit

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval, over lines and, if there are several trainings, over seeds."""
        if self.seed_part[0]:
            return Chance(float(np.var(self.values, ddof=1)), (self.seed_part,)).difference(ALPHA)
        ordered = np.sort(self.values)
        cut = len(ordered) // 40
        return float(0.5 * (ordered[-cut - 1] - ordered[cut]))

    @property
    def seed_part(self) -> tuple[float, int]:
        """The variance of the mean over seeds, and its degrees of freedom; zeros for one training."""
        count = len(self.seed_scores)
        return (float(np.var(self.seed_scores, ddof=1)) / count, count - 1) if count > 1 else (0.0, 0)


def seed() -> int | None:
    """Return the seed of the resamples: that of SACREBLEU_SEED, else sacreBLEU's; None draws anew each time.

    Raises:
        UserError: SACREBLEU_SEED is not a seed.
    """
    text = os.environ.get("SACREBLEU_SEED", "12345")
    if text.lower() == "none":
        return None
    if not _SEED.fullmatch(text):
        raise UserError(f"SACREBLEU_SEED={shown(text)}: not a number of 1 to 18 digits, nor 'none'; change or unset it")
    return int(text) or None


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


def over_seeds(members: Sequence[Resampled]) -> Resampled:
    """Return the mean of several trainings of one configuration, whose resamples have the same lines."""
    if len(members) == 1:
        return members[0]
    scores = tuple(member.score for member in members)
    values = np.mean([member.values for member in members], axis=0)
    return Resampled(float(np.mean(scores)), values, members[0].num_lines, scores)


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


def chance_of_difference(first: Resampled, second: Resampled) -> Chance:
    """Return the variance of the difference of two scores on the same lines.

    A single training has no variance over seeds, so it gets that of the other row.
    """
    differences = first.values.astype(np.float64) - second.values  # in float32, equal ones may deviate
    lines = float(np.var(differences, ddof=1))
    parts = [side.seed_part for side in (first, second) if side.seed_part[1]]
    if not any(variance for variance, _ in parts):
        return Chance(lines)
    if len(parts) == 1:
        ((variance, freedom),) = parts
        # The variance of a mean of k trainings, and that of one training, which is k times as large.
        return Chance(lines, ((variance * (freedom + 2), freedom),))
    return Chance(lines, tuple(parts))


def two_sided_p_value(first: Resampled, second: Resampled) -> float:
    """Return how often equal systems differ at least as much, by chance of the lines and of the seeds.

    Unlike a count of resamples it has no lowest value, so that it can be corrected for many pairs.
    """
    difference, chance = abs(first.score - second.score), chance_of_difference(first, second)
    if difference <= _rounding(first, second) or first.num_lines == 1:
        return 1.0
    if not varies(first, second, chance):  # all lines differ by as much
        return 0.0
    return chance.p_value(difference)


def varies(first: Resampled, second: Resampled, chance: Chance) -> bool:
    """Whether the difference of two scores varies over test sets or seeds by more than rounding."""
    return chance.error > _rounding(first, second)


def _rounding(first: Resampled, second: Resampled) -> float:
    return _NOISE * max(abs(first.score), abs(second.score))


def detectable(chance: Chance, num_pairs: int) -> float:
    """Return the smallest difference that is found in four of five test sets, if the variances are those of `chance`.

    `num_pairs` are tested together: the bound is that of the first step of Holm's correction. Each test estimates the
    variances over seeds anew, so its power is the mean over these estimates.
    """
    level = ALPHA / num_pairs
    needed = [Chance(chance.lines, parts).difference(level) for parts in _estimates(chance.parts)]

    def power(difference: float) -> float:
        return sum(math.erfc((each - difference) / chance.error / math.sqrt(2)) / 2 for each in needed) / len(needed)

    low, high = 0.0, max(needed) + 2 * chance.error
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle) < POWER else (low, middle)
    return high


def _estimates(parts: Sequence[tuple[float, float]]) -> list[tuple[tuple[float, float], ...]]:
    """Return equally likely estimates of true variances, each with its degrees of freedom."""
    of_parts = []
    for variance, freedom in parts:
        log_ratios, weights = _variance_ratios(freedom)
        count = _NODES[len(parts) - 1]
        ratios = np.exp(np.interp((np.arange(count) + 0.5) / count, np.cumsum(weights), log_ratios))
        of_parts.append([(variance * float(ratio), freedom) for ratio in ratios])
    return list(product(*of_parts))


def _variance_ratios(freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Return logarithms of the ratio of an estimated variance to the true one, (500,), and their probabilities."""
    width = 12 / math.sqrt(freedom)
    log_ratios = np.linspace(-width - 80 / freedom, width, 500)
    weights = np.exp(freedom / 2 * (log_ratios - np.exp(log_ratios) + 1))  # chi-squared, over the logarithm
    return log_ratios, weights / weights.sum()


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
