"""Laws of the order of training: budgets hold, every index comes once an epoch, and ranks share it out evenly."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config import TokenizerConfig
from seq2seq.data.sampler import SOURCE_SLACK, TokenBudgetSampler, moved_position
from seq2seq.errors import DataError
from seq2seq.lines import read_lines
from seq2seq.tokenizer import Tokenizer

LENGTHS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=120)


def lengths(count, seed=0):
    draw = np.random.default_rng(seed)
    target = draw.poisson(12, count).astype(np.int32)
    return np.maximum(0, target + draw.integers(-4, 5, count)).astype(np.int32), target


def check_budget(sampler, batches, source, target, budget, rows=10**9):
    for batch in batches:
        slots = (source[batch].max() + 1) * len(batch), (target[batch].max() + 1) * len(batch)
        assert len(batch) <= rows
        assert len(batch) == 1 or (slots[0] <= SOURCE_SLACK * budget and slots[1] <= budget)


@settings(max_examples=200, deadline=None)
@given(
    pairs=LENGTHS, budget=st.integers(1, 200), rows=st.integers(1, 9), epoch=st.integers(0, 3), world=st.integers(1, 4)
)
def test_every_index_once_within_the_budget_and_evenly_among_ranks(pairs, budget, rows, epoch, world):
    source, target = (np.array(side, dtype=np.int32) for side in zip(*pairs, strict=True))
    plans = []
    for rank in range(world):
        sampler = TokenBudgetSampler(source, target, budget, batch_sentences=rows, seed=1, rank=rank, world_size=world)
        plans.append(sampler.plan(epoch))
        check_budget(sampler, plans[-1], source, target, budget, rows)
    assert len({len(plan) for plan in plans}) == 1
    seen = np.concatenate([batch for plan in plans for batch in plan])
    assert set(seen.tolist()) == set(range(len(pairs)))
    if max(len(batch) for plan in plans for batch in plan) > 1 or len(pairs) % world == 0:
        assert len(seen) == len(pairs)
    else:  # single examples cannot be split, so that fewer than `world` of them come twice
        assert len(seen) - len(pairs) < world


def test_a_batch_is_as_large_as_the_budget_allows():
    # eight equal examples of 9 + 1 tokens under a budget of 40: two batches of four, not more
    same = np.full(8, 9, dtype=np.int32)
    assert [len(batch) for batch in TokenBudgetSampler(same, same, 40, seed=1).plan(0)] == [4, 4]
    short = np.full(8, 3, dtype=np.int32)
    # the source side may hold half as many slots again, and no more
    assert [len(batch) for batch in TokenBudgetSampler(same, short, 40, seed=1).plan(0)] in ([6, 2], [2, 6])


def test_without_targets_the_budget_counts_source_tokens_with_bos_and_eos():
    same = np.full(8, 8, dtype=np.int32)
    assert [len(batch) for batch in TokenBudgetSampler(same, None, 40, seed=1).plan(0)] == [4, 4]


def test_a_plan_is_a_function_of_seed_and_epoch():
    source, target = lengths(500)

    def plan(seed, epoch):
        return [batch.tolist() for batch in TokenBudgetSampler(source, target, 200, seed=seed).plan(epoch)]

    assert plan(1, 0) == plan(1, 0)
    sampler = TokenBudgetSampler(source, target, 200, seed=1)
    sampler.plan(5)
    assert [batch.tolist() for batch in sampler.plan(0)] == plan(1, 0)  # not of what was asked before
    assert plan(1, 0) != plan(1, 1)
    assert plan(1, 0) != plan(2, 0)


def test_neighbours_and_order_change_between_epochs():
    source, target = lengths(2000)
    sampler = TokenBudgetSampler(source, target, 200, seed=1)
    first, second = ({frozenset(batch.tolist()) for batch in sampler.plan(epoch)} for epoch in (0, 1))
    assert len(first & second) < 0.1 * len(first)
    means = [target[batch].mean() for batch in sampler.plan(0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.5  # short ones do not all come first


def test_all_ranks_together_run_the_batches_of_one_rank():
    source, target = lengths(1000)
    alone = TokenBudgetSampler(source, target, 200, seed=1).plan(0)
    for world in (2, 3):
        plans = [
            TokenBudgetSampler(source, target, 200, seed=1, rank=r, world_size=world).plan(0) for r in range(world)
        ]
        dealt = [batch.tolist() for step in zip(*plans, strict=True) for batch in step]
        # only batches at the end may have been split to come out even
        assert dealt[: len(alone) - world] == [batch.tolist() for batch in alone[: len(alone) - world]]


def test_a_moved_position_leaves_nothing_out(caplog):
    assert moved_position(10, 2, 4) == 5
    assert moved_position(10, 4, 2) == 20
    assert moved_position(5, 2, 4) == 2  # 10 batches were consumed; 8 is the last step that begins before
    assert "2 batches of this epoch are seen again" in caplog.text


def test_weights_repeat_examples_and_take_turns():
    source, target = lengths(110)
    parts = [(0, 50, 1.0), (50, 70, 2.5), (70, 110, 0.25)]
    sampler = TokenBudgetSampler(source, target, 100, seed=1, parts=parts)
    epochs = [np.bincount(np.concatenate(sampler.plan(epoch)), minlength=110) for epoch in range(8)]
    for counts in epochs:
        assert (counts[:50] == 1).all()
        assert set(counts[50:70].tolist()) == {2, 3}
        assert counts[50:70].sum() == 50
        assert counts[70:].sum() == 10
    assert (epochs[0] != epochs[1]).any()
    total = np.sum(epochs, axis=0)
    assert (total[50:70] == 20).all()  # 8 epochs at 2.5
    assert (total[70:] == 2).all()  # 8 epochs at 0.25


def test_sorted_batches_hold_everything_once():
    source, target = lengths(300)
    sampler = TokenBudgetSampler(source, target, 100, seed=1)
    batches = sampler.sorted_batches()
    check_budget(sampler, batches, source, target, 100)
    assert sorted(np.concatenate(batches).tolist()) == list(range(300))


def test_the_largest_batches_are_not_outdone():
    source, target = lengths(300)
    sampler = TokenBudgetSampler(source, target, 100, seed=1)

    def slots(batch):
        return len(batch) * (source[batch].max() + target[batch].max() + 2)

    assert max(map(slots, sampler.largest_batches())) == max(map(slots, sampler.sorted_batches()))


def test_padding_is_what_the_batches_say():
    source, target = np.array([3, 1], dtype=np.int32), np.array([1, 1], dtype=np.int32)
    sampler = TokenBudgetSampler(source, target, 100, seed=1)
    assert sampler.padding(0) == pytest.approx(1 - (4 + 2 + 2 + 2) / (2 * 4 + 2 * 2))


def test_an_empty_corpus_is_an_error():
    with pytest.raises(DataError, match="no examples"):
        TokenBudgetSampler(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32), 100)


def test_padding_on_multi30k_stays_under_six_percent(real_data):
    texts = [list(read_lines(real_data / "multi30k" / f"train.{side}.gz")) for side in ("en", "de")]
    tokenizer = Tokenizer.train(texts[0] + texts[1], TokenizerConfig(vocab_size=8000), seed=1)
    english, german = (np.array([len(ids) for ids in tokenizer.encode_all(side)]) for side in texts)
    for source, target in ((english, german), (german, english)):
        sampler = TokenBudgetSampler(source, target, 4096, seed=1)
        assert all(sampler.padding(epoch) < 0.06 for epoch in range(3))


@pytest.mark.slow
def test_ten_million_pairs_are_planned_in_seconds():
    source, target = lengths(10_000_000)
    sampler = TokenBudgetSampler(source, target, 4096, seed=1)
    start = time.perf_counter()
    plan = sampler.plan(0)
    assert time.perf_counter() - start < 30
    assert sum(map(len, plan)) == 10_000_000
