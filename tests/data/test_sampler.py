"""Laws of the order of training: budgets hold, every index comes once an epoch, and ranks share it out evenly."""

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config.schema import TokenizerConfig
from seq2seq.data.sampler import SOURCE_SLACK, TokenBudgetSampler
from seq2seq.data.stages import Stages
from seq2seq.errors import DataError
from seq2seq.lines import read_lines
from seq2seq.text.tokenizer import Tokenizer

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


@settings(max_examples=100, deadline=None)
@given(
    pairs=LENGTHS, section=st.integers(1, 50), epoch=st.integers(0, 3), world=st.integers(1, 3),
    weight=st.sampled_from([1.0, 2.0, 2.5]),
)  # fmt: skip
def test_the_sections_of_an_epoch_are_the_epoch(pairs, section, epoch, world, weight):
    source, target = (np.array(side, dtype=np.int32) for side in zip(*pairs, strict=True))
    middle = len(pairs) // 2
    parts = [(0, middle, weight), (middle, len(pairs), 1.0)]
    with pytest.MonkeyPatch.context() as patch:
        whole = TokenBudgetSampler(source, target, 10**6, seed=1, stages=Stages.of(parts))
        patch.setattr("seq2seq.data.sampler.SECTION_EXAMPLES", section)
        ranks = [
            TokenBudgetSampler(source, target, 100, seed=1, stages=Stages.of(parts), rank=rank, world_size=world)
            for rank in range(world)
        ]
    sections = range(ranks[0].num_sections(0))
    assert whole.num_sections(0) == 1
    assert abs(len(sections) * section - (middle * weight + len(pairs) - middle)) <= section
    plans = [[sampler.plan(epoch, number) for number in sections] for sampler in ranks]
    for number in sections:
        assert len({len(plan[number]) for plan in plans}) == 1
        check_budget(ranks[0], plans[0][number], source, target, 100)
    seen, once = (
        np.bincount(np.concatenate(batches), minlength=len(pairs))
        for batches in ([batch for plan in plans for part in plan for batch in part], whole.plan(epoch))
    )
    assert (seen >= once).all()
    # single examples cannot be split, so that fewer than `world` of a section come twice
    assert (seen - once).sum() <= len(sections) * (world - 1)


def test_sections_are_other_ones_in_every_epoch_and_no_stretches_of_the_corpus(monkeypatch):
    monkeypatch.setattr("seq2seq.data.sampler.SECTION_EXAMPLES", 1000)
    sampler = TokenBudgetSampler(*lengths(4000), 200, seed=1)
    assert sampler.num_sections(0) == 4
    members = {(e, s): np.concatenate(sampler.plan(e, s)) for e in range(2) for s in range(4)}
    for some in members.values():
        assert np.histogram(some, bins=10, range=(0, 4000))[0] == pytest.approx(100, abs=5)
    for e, s in members:
        if e == 0:
            assert len(set(members[0, s].tolist()) & set(members[1, s].tolist())) < 400  # 250 by chance


def test_a_batch_is_as_large_as_the_budget_allows():
    # eight equal examples of 9 + 1 tokens under a budget of 40: two batches of four, not more
    same = np.full(8, 9, dtype=np.int32)
    assert [len(batch) for batch in TokenBudgetSampler(same, same, 40, seed=1).plan(0)] == [4, 4]
    short = np.full(8, 3, dtype=np.int32)
    # the source side may hold half as many slots again, and no more
    assert [len(batch) for batch in TokenBudgetSampler(same, short, 40, seed=1).plan(0)] in ([6, 2], [2, 6])


def test_batches_of_texts_hold_several_lengths_at_the_price_of_little_padding():
    draw = np.random.default_rng(1)
    texts = draw.geometric(0.1, 5000).astype(np.int32)
    sampler = TokenBudgetSampler(texts, None, 512, seed=1)
    batches = sampler.plan(0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(5000))
    assert np.median([len(set(texts[batch].tolist())) for batch in batches]) >= 3
    assert sampler.padding(0) < 0.2
    for batch in sampler.sorted_batches():  # validation has nothing to learn from
        assert len(set(texts[batch].tolist())) <= 2 or texts[batch].min() > 30


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


@pytest.mark.parametrize("size", [1, 5, 97, 131])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 8), (2, 1), (2, 4), (3, 2), (4, 2), (4, 3), (8, 1), (8, 3)])
def test_with_another_number_of_ranks_nothing_is_skipped_and_little_repeated(caplog, size, before, after):
    """From every position, also where the last batches were split for the ranks."""
    source, target = lengths(size)

    def plans(world_size):
        ranks = range(world_size)
        return [TokenBudgetSampler(source, target, 64, seed=1, rank=r, world_size=world_size) for r in ranks]

    old = [sampler.plan(0) for sampler in plans(before)]
    for batch in range(len(old[0])):
        caplog.clear()
        moved = {sampler.moved_position(0, 0, batch, before) for sampler in plans(after)}
        (position,) = moved
        new = [sampler.plan(0) for sampler in plans(after)]
        seen = {index for plan in old for rows in plan[:batch] for index in rows.tolist()}
        following = [index for plan in new for rows in plan[position:] for index in rows.tolist()]
        step = {index for plan in new for index in plan[position].tolist()}
        assert seen | set(following) == set(range(size))
        assert len(set(following)) == size - len(seen) or not step <= seen or position == len(new[0]) - 1
        assert ("seen again" in caplog.text) == (len(seen & set(following)) > 0)


def test_weights_repeat_examples_and_take_turns():
    source, target = lengths(110)
    parts = [(0, 50, 1.0), (50, 70, 2.5), (70, 110, 0.25)]
    sampler = TokenBudgetSampler(source, target, 100, seed=1, stages=Stages.of(parts))
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

    def weights(batch):
        return len(batch) * (max(source[batch].max(), target[batch].max()) + 1) ** 2

    largest = sampler.largest_batches()
    for size in (slots, weights):
        assert max(map(size, largest)) == max(map(size, sampler.plan(0)))


def test_padding_is_what_the_batches_say():
    source, target = np.array([3, 1], dtype=np.int32), np.array([1, 1], dtype=np.int32)
    sampler = TokenBudgetSampler(source, target, 100, seed=1)
    assert sampler.padding(0) == pytest.approx(1 - (4 + 2 + 2 + 2) / (2 * 4 + 2 * 2))
    texts = TokenBudgetSampler(source, None, 100, seed=1)
    assert texts.padding(0) == pytest.approx(1 - (5 + 3) / (2 * 5))


def test_an_empty_corpus_is_an_error():
    with pytest.raises(DataError, match="no examples"):
        TokenBudgetSampler(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32), 100)


@pytest.mark.slow
def test_padding_on_multi30k_stays_under_six_percent(real_data):
    texts = [list(read_lines(real_data / "multi30k" / f"train.{side}.gz")) for side in ("en", "de")]
    tokenizer = Tokenizer.train(texts[0] + texts[1], TokenizerConfig(kind="bpe", vocab_size=8000), seed=1)
    english, german = (np.array([len(ids) for ids in tokenizer.encode_all(side)]) for side in texts)
    for source, target in ((english, german), (german, english)):
        sampler = TokenBudgetSampler(source, target, 4096, seed=1)
        assert all(sampler.padding(epoch) < 0.06 for epoch in range(3))


@pytest.mark.slow
def test_ten_million_pairs_are_planned_a_section_at_a_time_whatever_their_number():
    source, target = lengths(10_000_000)
    sampler = TokenBudgetSampler(source, target, 4096, seed=1)
    tracemalloc.start()
    start = time.process_time()
    plan = sampler.plan(0)
    seconds, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 5
    assert peak < 200 * 2**20
    assert sampler.padding(0) < 0.02
    seen = len(np.concatenate(plan)) + sum(len(np.concatenate(sampler.plan(0, s))) for s in range(1, 10))
    assert (sampler.num_sections(0), seen) == (10, 10_000_000)
