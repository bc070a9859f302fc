"""Laws of the filters: each rule drops what it says and counts it, and what was seen once is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.config.corpora import FilterConfig
from seq2seq.data.examples import LabelledText, Pair
from seq2seq.data.filters import FilterCounts, PairFilter, SeenBefore, example_key


@pytest.mark.parametrize(
    ("example", "rule"),
    [
        (Pair("a", "b"), None),
        (Pair("", "b"), "empty"),
        (Pair("a", " \u00a0\u2028"), "empty"),
        (Pair("same", " same "), "copy"),
        (LabelledText("a", "1"), None),
        (LabelledText("  ", "1"), "empty"),
        (LabelledText("same", "same"), None),
    ],
)
def test_rules_over_text(example, rule):
    assert PairFilter(FilterConfig(drop_copies=True)).rejects_text(example) == rule


def test_copies_are_kept_unless_asked():
    assert PairFilter(FilterConfig()).rejects_text(Pair("same", "same")) is None


@pytest.mark.parametrize(
    ("lengths", "rule"),
    [
        ((5, 5), None),
        ((1, 10), None),  # a ratio says nothing about short sentences
        ((3, 11), "ratio"),
        ((11, 3), "ratio"),
        ((4, 12), None),  # exactly max_ratio
        ((20, 20), None),
        ((20, 21), "length"),
        ((21, 20), "length"),
        ((1, 5), None),
        ((0, 5), "length"),
        ((5, None), None),
        ((21, None), "length"),
    ],
)
def test_rules_over_lengths(lengths, rule):
    assert PairFilter(FilterConfig(max_length=20, min_length=1, max_ratio=3.0)).rejects_lengths(*lengths) == rule


def test_counts_add_up_and_speak():
    counts, other = FilterCounts(), FilterCounts(kept=3)
    counts.kept = 2
    counts.drop("length")
    counts.drop("ratio", 0)
    other.drop("length", 4)
    counts.add(other)
    assert (counts.kept, counts.dropped, counts.total) == (5, {"length": 5}, 10)
    assert str(counts) == "5 of 10 kept (dropped: length 5)"


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=20))
def test_seen_before_is_a_set(calls):
    seen, known = SeenBefore(), set()
    for keys in calls:
        expected = []
        for key in keys:
            expected.append(key not in known)
            known.add(key)
        assert seen.first_time(keys).tolist() == expected


def test_seen_before_keeps_few_runs_of_extreme_keys():
    seen = SeenBefore()
    keys = np.random.default_rng(0).integers(0, 2**64 - 1, 100_000, dtype=np.uint64, endpoint=True)
    keys[:2] = 0, 2**64 - 1
    for part in np.split(keys, 100):
        assert seen.first_time(part).all()
    assert not seen.first_time(keys).any()
    assert len(seen._runs) <= 18


def test_keys_tell_sides_and_labels_apart():
    examples = [
        Pair("a", "b"),
        Pair("b", "a"),
        Pair("ab", ""),
        Pair("", "ab"),
        LabelledText("a", "1"),
        Pair("a\ud800", "b"),
    ]
    assert len({example_key(example) for example in examples}) == len(examples)
    assert example_key(Pair("a", "b")) == example_key(Pair("a", "b"))
