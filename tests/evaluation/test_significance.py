"""Tests of differences: their rates of error, Holm's correction, groups of equals and the chance of seeds."""

import math
import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from seq2seq.cli import main
from seq2seq.evaluation.significance import (
    Chance,
    Resampled,
    chance_of_difference,
    detectable,
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
    return [Resampled(float(side.mean()), value, count) for side, value in zip(sides, values, strict=True)]


def test_equal_systems_differ_in_a_twentieth_of_test_sets_and_detectable_differences_are_found_in_four_of_five():
    generator = np.random.default_rng(1)
    equal = [two_sided_p_value(*drawn(generator, 0.0)) for _ in range(200)]
    assert sum(p < 0.05 for p in equal) <= 20  # 10 by chance, with a standard deviation of 3
    size = detectable(Chance(lines=1 / 50), 1)
    power = sum(two_sided_p_value(*drawn(generator, size)) < 0.05 for _ in range(100))
    assert 68 <= power <= 92
    assert detectable(Chance(1.0), 36) > detectable(Chance(1.0), 1)


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
        assert chance_of_difference(one, other).error == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("count", [2, 60])
def test_systems_that_differ_alike_in_all_lines_are_different(metric, count):
    references = [f"the man number {number} reads a long book" for number in range(count)]
    scores = [score_texts(texts, references, [metric]) for texts in (references, [""] * count)]
    ((one,), (other,)) = resampled(scores)
    assert two_sided_p_value(one, other) == 0.0
    assert two_sided_p_value(one, one) == 1.0


@pytest.mark.parametrize("score", [55.7, 0.1, 33.3])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_mean_of_equal_seeds_is_not_another_system(score, count):
    """It may differ in its last bit."""
    values = np.full(1000, score, np.float32)
    single = Resampled(score, values, 100)
    assert two_sided_p_value(over_seeds([single] * count), single) == 1.0


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
    found = over_seeds([Resampled(1.0, values, 100)] * 3)
    np.testing.assert_allclose(found.values, values)
    assert chance_of_difference(found, Resampled(2.0, values + 1, 100)).seeds == 0


def trained(generator, counts, line_error, seed_error=0.4, difference=0.0):
    """Two rows of trainings, whose scores vary with the seed and, by row, with the lines."""
    rows = []
    for row, count in enumerate(counts):
        lines, *draws = generator.normal(0, line_error / math.sqrt(2), 201)
        scores = 30 + row * difference + lines + generator.normal(0, seed_error, count)
        rows.append(over_seeds([Resampled(score, score + np.array(draws), 100) for score in map(float, scores)]))
    return rows


@pytest.mark.parametrize("counts", [(2, 2), (3, 3), (3, 1), (1, 2)])
@pytest.mark.parametrize("line_error", [1e-6, 0.1, 0.3])
def test_trainings_of_one_configuration_seldom_differ(counts, line_error):
    generator = np.random.default_rng(1)
    p_values = [two_sided_p_value(*trained(generator, counts, line_error)) for _ in range(200)]
    assert sum(p < 0.05 for p in p_values) <= 18  # at most 10 by chance, with a standard deviation of 3
    assert sum(p < 0.001 for p in p_values) <= 2


@pytest.mark.parametrize("counts", [(2, 2), (3, 3), (5, 1), (5, 5)])
@pytest.mark.parametrize("line_error", [1e-3, 0.1, 0.5])
def test_a_detectable_difference_of_seeds_is_found_in_four_of_five_times(counts, line_error):
    generator = np.random.default_rng(1)
    parts = [(0.4**2 / count, count - 1.0) for count in counts if count > 1]
    if 1 in counts:  # it gets the variance of the other row
        parts = [(0.4**2 * sum(1 / count for count in counts), parts[0][1])]
    size = detectable(Chance(line_error**2, tuple(parts)), 1)
    found = [two_sided_p_value(*trained(generator, counts, line_error, difference=size)) < 0.05 for _ in range(200)]
    assert 0.72 < np.mean(found) < 0.9


def test_the_chance_of_seeds_alone_is_students_distribution():
    # Two-sided quantiles, as in any printed table of Student's t.
    table = {(1, 0.05): 12.706, (2, 0.05): 4.303, (4, 0.05): 2.776, (10, 0.05): 2.228, (30, 0.05): 2.042,
             (1, 0.001): 636.62, (2, 0.001): 31.599, (4, 0.4): 0.941, (120, 0.01): 2.617}  # fmt: skip
    for (freedom, p_value), quantile in table.items():
        chance = Chance(0.0, ((4.0, freedom),))
        assert chance.p_value(-2 * quantile) == pytest.approx(p_value, rel=2e-3)
        assert chance.difference(p_value) == pytest.approx(2 * quantile, rel=1e-3)
    for freedom in (1, 1.5, 7.3, 60):
        parts = [Chance(lines, ((1 - lines, freedom),)).p_value(2.5) for lines in (0, 0.3, 0.7, 1)]
        assert parts == sorted(parts, reverse=True)  # what is known of the lines is more certain
    assert Chance(1.0).p_value(1.959964) == pytest.approx(0.05)


def test_an_interval_over_seeds_contains_the_mean_of_many_trainings():
    generator = np.random.default_rng(1)
    rows = [trained(generator, (count, count), 0.2)[0] for count in (2, 3, 5) for _ in range(40)]
    assert np.mean([abs(row.score - 30) < row.half_width for row in rows]) >= 0.91  # of 120
    assert rows[0].half_width > 1.96 * 0.4 / math.sqrt(2)


def compared(command: str, folder: Path) -> list[str]:
    """Write the files of two systems, and return the arguments that compare them."""
    for name in ("one", "two", "reference"):
        (folder / name).write_text("a man rides\nthe dog\n")
    one, two, reference = (str(folder / name) for name in ("one", "two", "reference"))
    return {"bleu": ["bleu", reference, one, two], "compare": ["compare", one, two, "-r", reference]}[command]


@pytest.mark.parametrize("value", ["abc", "-3", "1.5", "", "9" * 5000])
@pytest.mark.parametrize("command", ["bleu", "compare"])
def test_a_seed_that_is_none_is_refused_before_any_work(command, value, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SACREBLEU_SEED", value)
    assert main(compared(command, tmp_path)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("s2s: SACREBLEU_SEED=")
    one, reference = str(tmp_path / "one"), str(tmp_path / "reference")
    assert main(["bleu", reference, one]) == 0, "one system is not resampled"
    assert main(["bleu", reference, one, "--confidence"]) == 2


@pytest.mark.parametrize("seed", ["7", "none", "NONE", "0"])
@pytest.mark.parametrize("command", ["bleu", "compare"])
def test_a_number_and_none_are_seeds(command, seed, tmp_path, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    assert main(compared(command, tmp_path)) == 0
