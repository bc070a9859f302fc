"""Laws of stages: plans depend on the epoch's stage alone, and moments in training have one order."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.data.directions import tempered
from seq2seq.data.sampler import TokenBudgetSampler
from seq2seq.data.stages import Stage, Stages
from seq2seq.data.stream import BatchStream
from seq2seq.errors import DataError

COUNT, MIDDLE = 400, 150


def staged(*rows):
    """Stages over two parts of a corpus; a row is the end and the two weights."""
    return Stages(tuple(Stage([(0, MIDDLE, one), (MIDDLE, COUNT, two)], end) for end, one, two in rows))


THREE = staged((2.0, 0.5, 1.0), (3.0, 2.0, 0.0), (math.inf, 1.0, 0.25))


def sampler(stages, **options):
    target = np.random.default_rng(1).poisson(12, COUNT).astype(np.int32)
    return TokenBudgetSampler(target + 1, target, 100, seed=7, stages=stages, **options)


def plans(stages, epoch, **options):
    made = sampler(stages, **options)
    return [batch.tolist() for section in range(made.num_sections(epoch)) for batch in made.plan(epoch, section)]


@pytest.mark.parametrize("section", [50, 10**6])
@pytest.mark.parametrize("epoch", range(5))
def test_an_epoch_is_planned_as_if_its_stage_were_the_only_one(monkeypatch, epoch, section):
    monkeypatch.setattr("seq2seq.data.sampler.SECTION_EXAMPLES", section)
    alone = Stages.of(THREE.each[THREE.at(epoch)].parts)
    for rank in range(2):
        ranks = {"rank": rank, "world_size": 2}
        assert plans(THREE, epoch, **ranks) == plans(alone, epoch, **ranks)


def test_each_example_is_seen_as_often_as_the_weight_of_its_stage_says():
    seen = [np.zeros(COUNT), np.zeros(COUNT), np.zeros(COUNT)]
    for epoch in range(7):
        for batch in plans(THREE, epoch):
            np.add.at(seen[THREE.at(epoch)], batch, 1)
    assert seen[0][:MIDDLE].tolist() == [1] * MIDDLE  # twice a half
    assert seen[0][MIDDLE:].tolist() == [2] * (COUNT - MIDDLE)
    assert (seen[1][:MIDDLE] == 2).all()
    assert (seen[1][MIDDLE:] == 0).all()
    assert (seen[2][:MIDDLE] == 4).all()
    assert seen[2][MIDDLE:].tolist() == [1] * (COUNT - MIDDLE)  # four times a quarter


def read(stream, count):
    return [next(stream) for _ in range(count)]


@pytest.mark.parametrize("section", [60, 10**6])
def test_a_stream_continues_at_every_position_across_borders(monkeypatch, section):
    monkeypatch.setattr("seq2seq.data.sampler.SECTION_EXAMPLES", section)

    def stream():
        return BatchStream(sampler(THREE), lambda indices, epoch: (epoch, indices.tolist()))

    total = sum(len(plans(THREE, epoch)) for epoch in range(4))
    whole = stream()
    states, batches = [], []
    for _ in range(total):
        states.append(whole.state_dict())
        batches += read(whole, 1)
    assert whole.position == (4, 0, 0)
    whole.close()
    for start in range(0, total, 5):
        resumed = stream()
        resumed.load_state_dict(states[start])
        assert read(resumed, total - start) == batches[start:]
        resumed.close()


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 2)])
def test_a_position_stays_that_of_other_ranks_until_a_batch_is_read(monkeypatch, caplog, before, after):
    """A run that ended in the middle of an epoch has therefore ended for any number of ranks."""
    monkeypatch.setattr("seq2seq.data.sampler.SECTION_EXAMPLES", 60)
    old, new, back = (
        BatchStream(sampler(THREE, world_size=number), lambda indices, epoch: indices)
        for number in (before, after, before)
    )
    while old.epoch < 3.5:
        read(old, 1)
        for one, other in ((old, new), (new, back)):
            other.load_state_dict(one.state_dict())
            assert (other.epoch, other.state_dict()) == (old.epoch, old.state_dict())
        assert back.position == old.position
    assert "the run continues" not in caplog.text
    read(new, 1)
    assert new.state_dict()["world_size"] == after
    assert "the run continues" in caplog.text
    for each in (old, new, back):
        each.close()


def test_a_stream_that_skips_the_rest_of_a_stage_continues_as_one_that_read_it():
    def stream():
        return BatchStream(sampler(THREE), lambda indices, epoch: (epoch, indices.tolist()))

    skipping, whole = stream(), stream()
    read(skipping, 3)
    skipping.skip_to(2)
    assert (skipping.epoch, skipping.position) == (2.0, (2, 0, 0))
    read(whole, sum(len(plans(THREE, epoch)) for epoch in range(2)))
    assert read(skipping, 20) == read(whole, 20)
    assert skipping.state_dict() == whole.state_dict()
    for each in (skipping, whole):
        each.close()


def test_the_largest_batches_of_all_stages_are_tried():
    lengths = np.full(COUNT, 5, np.int32)
    lengths[MIDDLE:] = 60  # only the last stage sees them
    stages = staged((1.0, 1.0, 0.0), (math.inf, 0.0, 1.0))
    largest = TokenBudgetSampler(lengths, lengths, 100, seed=1, stages=stages).largest_batches()
    assert any((batch >= MIDDLE).any() for batch in largest)


def test_the_shapes_of_recorded_steps_hold_the_batches_of_every_stage():
    made = sampler(THREE)
    table = made.shape_table()
    shaped, target = made.with_table(table), np.random.default_rng(1).poisson(12, COUNT)
    for epoch in range(4):
        for batch in shaped.plan(epoch):
            cells = table.cells(target[batch] + 2, target[batch] + 1)
            assert len(set(cells.tolist())) == 1
            assert len(batch) <= table.shapes(cells[:1])[0][0]


@pytest.mark.parametrize(
    ("stages", "key"),
    [(staged((1.0, 1.0, 0.0), (math.inf, 0.001, 0.0)), r"data\.stages\.1\.weights"),
     (Stages.of([(0, MIDDLE, 0.001)]), r"data\.train\.weight")],
)  # fmt: skip
def test_a_stage_in_which_no_example_is_seen_is_named(stages, key):
    with pytest.raises(DataError, match=f"no example is seen in an epoch; raise {key}"):
        sampler(stages)


def test_the_temperature_compares_what_a_stage_sees():
    directions = [("en", "de"), ("en", "de"), ("en", "fr")]
    parts = [(0, 100, 1.0), (100, 900, 0.0), (900, 1000, 1.0)]
    assert [weight for _, _, weight in tempered(parts, directions, 5.0)] == [1.0, 0.0, 1.0]  # 100 pairs each


# -- moments -----------------------------------------------------------------------------------------------------------

ENDS = st.lists(st.integers(1, 20), max_size=4, unique=True).map(sorted)
EPOCHS = st.floats(0, 30)


@given(ENDS, st.lists(st.floats(0.05, 20), min_size=5, max_size=5), EPOCHS, EPOCHS)
def test_work_rises_with_the_epoch_and_can_be_turned_back(ends, lengths, one, other):
    stages = Stages(tuple(Stage(end=end, length=size) for end, size in zip([*ends, math.inf], lengths, strict=False)))
    assert stages.epoch_at(stages.work(one)) == pytest.approx(one)
    if one < other:
        assert stages.work(one) <= stages.work(other)
    index = stages.at(one)
    assert stages.start(index) <= one < stages.each[index].end
    if one < other and index == stages.at(other):
        assert stages.work(other) - stages.work(one) == pytest.approx((other - one) * stages.each[index].length)


@given(EPOCHS)
def test_a_single_stage_changes_no_number(epoch):
    assert Stages().work(epoch) == epoch == Stages().epoch_at(epoch)
    assert Stages().at(epoch) == 0
    assert Stages().schedule(0) == (0.0, math.inf)


def test_a_schedule_runs_from_a_restart_to_the_next():
    rows = [(2.0, False), (3.0, False), (5.0, True), (8.0, False), (math.inf, True)]
    stages = Stages(tuple(Stage(end=end, restarts=restarts) for end, restarts in rows))
    first, second, third = (0.0, 3.0), (3.0, 8.0), (8.0, math.inf)
    assert [stages.schedule(index) for index in range(5)] == [first, first, second, second, third]
