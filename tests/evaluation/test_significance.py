"""Tests of differences: their rates of error, Holm's correction, groups of equals and the chance of seeds."""

import math
import random
from itertools import combinations

import numpy as np
import pytest

from seq2seq.evaluation.significance import (
    Resampled,
    detectable,
    error_of_difference,
    groups,
    holm,
    over_seeds,
    paired_p_value,
    resample,
    two_sided_p_value,
)  # fmt: skip
from seq2seq.evaluation.text import METRICS, resampled, score_texts


def drawn(generator, difference, count=50):
    """Two systems whose lines have normal scores, and the resamples of their means."""
    base = generator.normal(size=(count, 1))
    sides = [base, base + difference + generator.normal(size=(count, 1))]
    values = resample(sides, [lambda sums: float(sums[0]) / count] * 2)
    return [Resampled(float(side.mean()), value) for side, value in zip(sides, values, strict=True)]


def test_equal_systems_differ_in_a_twentieth_of_test_sets_and_detectable_differences_are_found_in_four_of_five():
    generator = np.random.default_rng(1)
    equal = [two_sided_p_value(*drawn(generator, 0.0)) for _ in range(200)]
    assert sum(p < 0.05 for p in equal) <= 20  # 10 by chance, with a standard deviation of 3
    size = detectable(1 / math.sqrt(50), 1)
    power = sum(two_sided_p_value(*drawn(generator, size)) < 0.05 for _ in range(100))
    assert 68 <= power <= 92
    assert detectable(1.0, 36) > detectable(1.0, 1)


def test_more_than_36_pairs_can_still_be_different():
    generator = np.random.default_rng(1)
    one, other = drawn(generator, 2.0)
    assert paired_p_value(one, other) >= 1 / 1001
    assert two_sided_p_value(one, other) < 1e-6


@pytest.mark.parametrize("metric", METRICS)
def test_one_line_shows_no_difference(metric):
    texts = ("one", "two three", "a man reads", "")
    scores = [score_texts([text], ["one two three four"], [metric]) for text in texts]
    for (one,), (other,) in combinations(resampled(scores), 2):
        assert two_sided_p_value(one, other) == 1.0
        assert error_of_difference(one, other) == pytest.approx(0.0, abs=1e-9)


def test_holm_rejects_as_the_procedure_does_step_by_step():
    draw = random.Random(1)
    for _ in range(50):
        p_values = [draw.random() ** 4 for _ in range(draw.randint(1, 8))]
        rejected = set()
        for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
            if p_values[index] >= 0.05 / (len(p_values) - rank):
                break
            rejected.add(index)
        assert {index for index, p in enumerate(holm(p_values)) if p < 0.05} == rejected


def test_two_systems_share_a_group_exactly_if_they_are_not_different():
    draw = random.Random(1)
    for _ in range(60):
        count = draw.randint(1, 7)
        pairs = list(combinations(range(count), 2))
        different = [pair for pair in pairs if draw.random() < 0.5]
        found = groups(count, different)
        for pair in pairs:
            assert any(set(pair) <= group for group in found) == (pair not in different)
        assert not any(one < other for one in found for other in found)


def test_seeds_that_agree_are_one_system():
    values = np.random.default_rng(1).normal(size=1000)
    found = over_seeds([Resampled(1.0, values)] * 3, 7)
    np.testing.assert_allclose(found.values, values)
