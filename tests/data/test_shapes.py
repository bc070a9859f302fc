"""Laws of shape tables: few shapes with the least padding, which hold every example and every batch of an epoch."""

import itertools

import numpy as np
import pytest

from seq2seq.data.sampler import TokenBudgetSampler
from seq2seq.data.shapes import NUM_SOURCES, NUM_TARGETS, _least_padding


def lengths(count=3000, seed=0):
    draw = np.random.default_rng(seed)
    target = np.clip(draw.lognormal(2.5, 0.5, count), 1, 90).astype(np.int32)
    return np.clip(target + draw.integers(-4, 9, count), 1, 100).astype(np.int32), target


def padding(lengths, bounds):
    return sum(min(bound for bound in bounds if bound >= length) - length for length in lengths)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_bounds_have_the_least_padding_of_all(count):
    found = np.random.default_rng(count).choice([2, 3, 5, 8, 13, 14], 40)
    present = sorted(set(found.tolist()))
    bounds = _least_padding(found, count)
    assert (bounds[-1], list(bounds)) == (max(present), sorted(set(bounds.tolist())))
    choices = itertools.combinations(present, min(count, len(present)))
    assert padding(found, bounds) == min(padding(found, each) for each in choices if each[-1] == present[-1])


def test_many_lengths_are_bounded_too():
    found = np.arange(1, 3000)
    bounds = _least_padding(found, 5)
    assert bounds[-1] == 2999
    assert padding(found, bounds) < 1.05 * 3000 * 600 / 2


@pytest.mark.parametrize("settings", [{}, {"batch_sentences": 7}, {"world_size": 3}])
def test_the_batches_of_an_epoch_have_the_shapes_of_the_table(settings):
    source, target = lengths()
    plain = TokenBudgetSampler(source, target, 500, seed=1, **settings)
    sampler = plain.with_table(plain.shape_table())
    seen, used = [], set()
    for indices in sampler.plan(0):
        cells = sampler.table.cells(source[indices] + 1, target[indices] + 1)
        rows, *widths = (int(size[0]) for size in sampler.table.shapes(cells[:1]))
        assert len(set(cells.tolist())) == 1
        assert len(indices) <= rows <= settings.get("batch_sentences", 10**6)
        assert (source[indices].max() < widths[0], target[indices].max() < widths[1]) == (True, True)
        assert rows == 1 or (rows * widths[1] <= 500 and rows * widths[0] <= 750)
        used.add((rows, *widths))
        seen += indices.tolist()
    assert len(used) <= NUM_TARGETS * NUM_SOURCES
    if "world_size" not in settings:
        assert sorted(seen) == list(range(len(source)))
        assert plain.padding(0) < sampler.padding(0) < 0.25
    assert [part.tolist() for part in sampler.plan(1)] != [part.tolist() for part in sampler.plan(2)]
    again = plain.with_table(plain.shape_table())
    assert [part.tolist() for part in again.plan(1)] == [part.tolist() for part in sampler.plan(1)]
