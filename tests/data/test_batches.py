"""Laws of batches and streams: shift, padding and counts; an exact, resumable order; repeatable segmentations."""

import itertools
import random
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.data.collate import collate_classification, collate_translation
from seq2seq.data.corpus import prepare_corpus
from seq2seq.data.sampler import TokenBudgetSampler
from seq2seq.data.segmentations import prepare_segmentations
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.data.stream import SAMPLED_GROWTH, SAMPLED_MORE, BatchStream, CorpusBatches, validation_batches
from seq2seq.errors import CheckpointError
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

WORDS = ("the", "a", "man", "woman", "dog", "house", "reads", "writes", "carries", "repairs", "bicycle", "newspaper")
IDS = st.lists(st.integers(4, 250), max_size=12)


def sentences(count, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    config = TokenizerConfig(vocab_size=310)
    return TokenizerPair(*(Tokenizer.train(sentences(300, seed), config, seed=1) for seed in (0, 1)))


@pytest.fixture(scope="module")
def corpus(tokenizers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    paths = [folder / "train.en", folder / "train.de"]
    for path, seed in zip(paths, (2, 3), strict=True):
        path.write_text("".join(f"{line}\n" for line in sentences(150, seed)))
    source = open_pairs(SourceConfig(source=paths[0], target=paths[1]), "en", "de")
    return prepare_corpus([source], tokenizers, None, folder / "cache")


@pytest.fixture(scope="module")
def labelled(tokenizers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    rows = [f"{line}\t{number % 3}\n" for number, line in enumerate(sentences(80))]
    (folder / "train.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    source = open_labelled(SourceConfig(tsv=folder / "train.tsv"))
    return prepare_corpus([source], tokenizers, None, folder / "cache", labels=())


def make_stream(corpus, make, **options):
    sampler = TokenBudgetSampler(corpus.source_lengths, corpus.target_lengths, 150, seed=4, **options)
    return BatchStream(sampler, make)


@pytest.fixture
def streams():
    """A list of streams that are closed when the test ends."""
    opened = []
    yield opened
    for stream in opened:
        stream.close()


def tensors(batch):
    return [getattr(batch, name) for name in batch.__dataclass_fields__]


def equal(first, second):
    return all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(tensors(first), tensors(second), strict=True)
    )


@settings(max_examples=100, deadline=None)
@given(pairs=st.lists(st.tuples(IDS, IDS), min_size=1, max_size=8))
def test_a_translation_batch_is_shifted_padded_and_counted(tokenizers, pairs):
    source, target = zip(*pairs, strict=True)
    batch = collate_translation(source, target, tokenizers, range(len(pairs)))
    assert len(batch) == len(pairs)
    assert batch.source_ids.shape == batch.source_mask.shape == (len(pairs), 1 + max(map(len, source)))
    assert batch.target_input.shape == batch.target_output.shape == batch.target_mask.shape
    for row, (source_ids, target_ids) in enumerate(pairs):
        assert batch.source_ids[row][batch.source_mask[row]].tolist() == [*source_ids, tokenizers.source.eos_id]
        assert (batch.source_ids[row][~batch.source_mask[row]] == tokenizers.source.pad_id).all()
        real = batch.target_mask[row]
        assert batch.target_output[row][real].tolist() == [*target_ids, tokenizers.target.eos_id]
        assert batch.target_input[row][real].tolist() == [tokenizers.target.start_id, *target_ids]
        assert (batch.target_output[row][~real] == tokenizers.target.pad_id).all()
        assert (batch.target_input[row][~real] == tokenizers.target.pad_id).all()
    assert batch.num_targets == sum(len(ids) + 1 for ids in target) == batch.target_mask.sum()
    assert batch.num_tokens == batch.num_targets + batch.source_mask.sum()
    assert batch.source_ids.dtype == batch.indices.dtype == torch.int64
    assert batch.source_mask.dtype == torch.bool


def test_a_classification_batch_has_bos_in_front_and_eos_behind(tokenizers):
    tokenizer = tokenizers.source
    batch = collate_classification([[5, 6], [], [7]], [2, 0, 1], tokenizer, [9, 8, 7])
    expected = [[tokenizer.bos_id, *ids, tokenizer.eos_id] for ids in ([5, 6], [], [7])]
    assert [row[mask].tolist() for row, mask in zip(batch.source_ids, batch.source_mask, strict=True)] == expected
    assert (batch.labels.tolist(), batch.indices.tolist()) == ([2, 0, 1], [9, 8, 7])
    assert (batch.num_targets, batch.num_tokens) == (3, 9)


@settings(max_examples=50, deadline=None)
@given(pairs=st.lists(st.tuples(IDS, IDS), min_size=2, max_size=9))
def test_the_halves_of_a_batch_are_the_batches_of_its_halves(tokenizers, pairs):
    def collate(rows):
        source, target = zip(*(pairs[i] for i in rows), strict=True)
        return collate_translation(source, target, tokenizers, rows)

    def collate_texts(rows):
        return collate_classification([pairs[i][0] for i in rows], list(rows), tokenizers.source, rows)

    middle = len(pairs) // 2
    for make in (collate, collate_texts):
        first, second = make(range(len(pairs))).split()
        assert equal(first, make(range(middle)))
        assert equal(second, make(range(middle, len(pairs))))


def padded(rows, pad_id):
    """Row by row: (ids, mask)."""
    width = max(map(len, rows))
    ids = [[*row, *[pad_id] * (width - len(row))] for row in rows]
    mask = [[True] * len(row) + [False] * (width - len(row)) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


@pytest.mark.parametrize("max_pieces", [None, 4])
def test_batches_of_a_corpus_equal_those_made_row_by_row(corpus, tokenizers, max_pieces):
    draw = np.random.default_rng(3)
    make, (one, other) = (
        CorpusBatches(corpus, tokenizers, max_pieces=max_pieces),
        (tokenizers.source, tokenizers.target),
    )
    for _ in range(100):
        indices = draw.integers(0, len(corpus), 10)
        source, target = ([row[:max_pieces] for row in corpus.ids(side, indices)] for side in ("source", "target"))
        batch = make(indices, 0)
        for ids, rows, pad_id in (
            (batch.source_ids, [[*row, one.eos_id] for row in source], one.pad_id),
            (batch.target_input, [[other.start_id, *row] for row in target], other.pad_id),
            (batch.target_output, [[*row, other.eos_id] for row in target], other.pad_id),
        ):
            expected, mask = padded(rows, pad_id)
            assert torch.equal(ids, expected)
            assert torch.equal(batch.source_mask if ids is batch.source_ids else batch.target_mask, mask)
        assert equal(batch, collate_translation(source, target, tokenizers, indices))


def test_a_batch_moves_as_a_whole(tokenizers):
    batch = collate_translation([[5]], [[6]], tokenizers, [0])
    moved = batch.to("meta", non_blocking=True)
    assert all(tensor.is_meta for tensor in tensors(moved) if isinstance(tensor, torch.Tensor))
    assert (moved.num_targets, moved.num_tokens) == (batch.num_targets, batch.num_tokens)


def test_batches_hold_the_corpus_rows_they_name(corpus, labelled, tokenizers):
    batch = CorpusBatches(corpus, tokenizers)(np.array([3, 140]), 0)
    assert batch.indices.tolist() == [3, 140]
    assert batch.source_ids[1][batch.source_mask[1]].tolist()[:-1] == corpus.ids("source", [140])[0]
    assert batch.target_output[0][batch.target_mask[0]].tolist()[:-1] == corpus.ids("target", [3])[0]
    batch = CorpusBatches(labelled, tokenizers)(np.array([4, 2]), 0)
    assert batch.labels.tolist() == [1, 2]
    assert batch.source_ids[0][batch.source_mask[0]].tolist()[1:-1] == labelled.ids("source", [4])[0]


SAMPLING = TokenizerConfig(vocab_size=310, sampling=0.9, sampling_nbest=8, sampling_alpha=0.1)


@pytest.fixture(params=["made for each batch", "stored"])
def resegmenting(request):
    """Makes batches with random segmentations."""

    def make(corpus, tokenizers, config=SAMPLING, seed=1, max_pieces=None):
        is_stored = request.param == "stored"
        stored = prepare_segmentations(corpus, tokenizers, config, seed, 1) if is_stored else None
        assert is_stored == (stored is not None)
        return CorpusBatches(corpus, tokenizers, config, seed, max_pieces, stored)

    return make


def rows_of(batch):
    return [row[mask].tolist() for row, mask in zip(batch.source_ids, batch.source_mask, strict=True)]


def test_random_segmentations_keep_the_text_and_repeat(corpus, tokenizers, resegmenting):
    plain, sampled = CorpusBatches(corpus, tokenizers), resegmenting(corpus, tokenizers)
    indices = np.arange(0, 150, 5)
    stored, drawn = plain(indices, 0), sampled(indices, 0)
    for batch in (stored, drawn):
        texts = [tokenizers.source.decode(row.tolist()) for row in batch.source_ids]
        assert texts == [tokenizers.source.decode(corpus.ids("source", [i])[0]) for i in indices]
    assert not equal(stored, drawn)
    assert equal(drawn, resegmenting(corpus, tokenizers)(indices, 0))
    assert not equal(drawn, sampled(indices, 1))
    assert not equal(drawn, resegmenting(corpus, tokenizers, seed=2)(indices, 0))


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_the_share_of_new_segmentations_is_that_of_the_sampler(corpus, tokenizers, resegmenting, share):
    """However long the draws are: in batches of similar lengths, longer ones must not be lost."""
    sampling = TokenizerConfig(vocab_size=310, sampling=share, sampling_nbest=8, sampling_alpha=0.1)
    sampled, stored = resegmenting(corpus, tokenizers, sampling), corpus.ids("source", range(150))
    sampler = TokenBudgetSampler(corpus.source_lengths, corpus.target_lengths, 150, seed=4)
    new = longer = drawn_new = 0
    for epoch in range(8):
        for indices in sampler.plan(epoch):
            for index, row in zip(indices, rows_of(sampled(indices, epoch)), strict=True):
                new += row[:-1] != stored[index]
                longer += len(row) - 1 > len(stored[index])
                assert len(row) - 1 <= SAMPLED_GROWTH * len(stored[index]) + SAMPLED_MORE
    for index, row in enumerate(stored):
        text, draw = tokenizers.source.decode(row), random.Random(index)
        drawn_new += sum(tokenizers.source.sample(text, draw, 8, 0.1) != row for _ in range(8))
    assert longer > new / 2
    assert new == pytest.approx(share * drawn_new, rel=0.15)


def test_a_random_segmentation_does_not_depend_on_the_rest_of_the_batch(corpus, tokenizers, resegmenting):
    sampled = resegmenting(corpus, tokenizers)
    for i in range(20):
        assert rows_of(sampled(np.array([i, 149]), 0))[0] == rows_of(sampled(np.array([77, i, 7]), 0))[1]


def test_a_random_segmentation_fits_the_models_positions(corpus, tokenizers, resegmenting):
    longest = max(map(len, corpus.ids("source", range(150))))
    made = resegmenting(corpus, tokenizers, max_pieces=longest)(np.arange(150), 0)
    assert max(map(len, rows_of(made))) <= longest + 1


@pytest.mark.parametrize("kind", ["translation", "classification"])
@pytest.mark.parametrize("consumed", [0, 1, 5, 23, 24, 60])
def test_a_stream_resumed_at_k_equals_the_uninterrupted_one_from_k(
    kind, consumed, corpus, labelled, tokenizers, streams, resegmenting
):
    def stream():
        examples = corpus if kind == "translation" else labelled
        made = make_stream(examples, resegmenting(examples, tokenizers))
        streams.append(made)
        return made

    whole, first, resumed = stream(), stream(), stream()
    expected = list(itertools.islice(whole, consumed + 30))[consumed:]
    for _ in range(consumed):
        next(first)
    state = first.state_dict()
    next(first)  # what is made or consumed after the state was taken does not matter
    resumed.load_state_dict(state)
    assert resumed.position == (state["epoch"], state["section"], state["batch"])
    assert resumed.state_dict() == state
    assert all(equal(a, b) for a, b in zip(expected, resumed, strict=False))
    first.load_state_dict(state)  # back in the same stream
    assert all(equal(a, b) for a, b in zip(expected, first, strict=False))


def test_every_epoch_of_a_stream_is_its_plan(corpus, tokenizers, streams):
    stream = make_stream(corpus, CorpusBatches(corpus, tokenizers))
    streams.append(stream)
    sampler = TokenBudgetSampler(corpus.source_lengths, corpus.target_lengths, 150, seed=4)
    for epoch in range(2):
        assert stream.epoch == epoch
        plan = sampler.plan(epoch)
        for number, indices in enumerate(plan):
            assert stream.position == (epoch, 0, number)
            assert stream.epoch == pytest.approx(epoch + number / len(plan))
            assert next(stream).indices.tolist() == indices.tolist()


def test_sections_follow_each_other_and_a_stream_goes_on_in_the_middle_of_one(corpus, tokenizers, streams, monkeypatch):
    monkeypatch.setattr("seq2seq.data.sampler.SECTION_EXAMPLES", 30)
    make = CorpusBatches(corpus, tokenizers)
    streams += [make_stream(corpus, make), make_stream(corpus, make)]
    sampler = TokenBudgetSampler(corpus.source_lengths, corpus.target_lengths, 150, seed=4)
    assert sampler.num_sections(0) > 2
    states, epochs, read = [], [], []
    for epoch, section in itertools.product(range(2), range(sampler.num_sections(0))):
        for number, indices in enumerate(sampler.plan(epoch, section)):
            assert streams[0].position == (epoch, section, number)
            states.append(streams[0].state_dict())
            epochs.append(streams[0].epoch)
            read.append(next(streams[0]).indices.tolist())
            assert read[-1] == indices.tolist()
    assert epochs == sorted(set(epochs))
    assert 1.0 in epochs
    for place in (1, len(states) // 2, len(states) - 3):
        streams[1].load_state_dict(states[place])
        assert [next(streams[1]).indices.tolist() for _ in range(3)] == read[place : place + 3]


def test_ranks_read_disjoint_slices_that_are_the_corpus_together(corpus, tokenizers, streams):
    make = CorpusBatches(corpus, tokenizers)
    ranks = [make_stream(corpus, make, rank=rank, world_size=3) for rank in range(3)]
    streams.extend(ranks)
    read = [[], [], []]
    for stream, indices in zip(ranks, read, strict=True):
        while stream.epoch < 1:
            indices += next(stream).indices.tolist()
    assert sorted(itertools.chain.from_iterable(read)) == list(range(len(corpus)))
    assert len({stream.position for stream in ranks}) == 1


def test_ranks_that_change_in_number_go_on_where_the_others_were(corpus, tokenizers, streams):
    make = CorpusBatches(corpus, tokenizers)
    alone = make_stream(corpus, make)
    streams.append(alone)
    for _ in range(6):
        next(alone)
    ranks = [make_stream(corpus, make, rank=rank, world_size=2) for rank in range(2)]
    streams.extend(ranks)
    for stream in ranks:
        stream.load_state_dict(alone.state_dict())
        assert stream.position == (0, 0, 3)
    assert [next(stream).indices.tolist() for stream in ranks] == [next(alone).indices.tolist() for _ in range(2)]


def test_another_corpus_under_a_position_is_refused(corpus, tokenizers, streams):
    stream = make_stream(corpus, CorpusBatches(corpus, tokenizers))
    streams.append(stream)
    next(stream)
    state = stream.state_dict()
    stream.load_state_dict({**state, "num_batches": state["num_batches"] + 1})
    with pytest.raises(CheckpointError, match="the corpus changed"):
        next(stream)


def test_an_error_while_making_a_batch_reaches_the_reader_every_time(corpus, streams):
    def fail(indices, epoch):
        raise ValueError("broken")

    stream = make_stream(corpus, fail)
    streams.append(stream)
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            next(stream)


def test_the_thread_works_a_bounded_way_ahead_and_ends_when_closed(corpus):
    made = []
    ahead = threading.Event()

    def count(indices, epoch):
        made.append(indices)
        if len(made) == 5:
            ahead.set()
        return indices

    before = threading.active_count()
    stream = make_stream(corpus, count)
    next(stream)
    assert ahead.wait(10)  # one consumed, four ahead
    assert not threading.Event().wait(0.2)
    assert len(made) == 5
    stream.close()
    assert threading.active_count() == before


def test_the_thread_pins_memory_for_the_gpu_of_its_reader(corpus, tokenizers, streams, monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: chosen.append((threading.current_thread().name, index)))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    sampler = TokenBudgetSampler(corpus.source_lengths, corpus.target_lengths, 150)
    for is_pinned in (False, True):
        streams.append(BatchStream(sampler, CorpusBatches(corpus, tokenizers), pin_memory=is_pinned))
        next(streams[-1])
    assert chosen == [("batches_0", 3)]


@pytest.mark.parametrize("world", [1, 3])
def test_validation_sees_every_example_once_whatever_its_length(world, corpus, labelled, tokenizers):
    for data, make in (
        (corpus, CorpusBatches(corpus, tokenizers)),
        (labelled, CorpusBatches(labelled, tokenizers)),
    ):
        ranks = [list(validation_batches(data, 8, make, rank, world)) for rank in range(world)]
        seen = torch.cat([batch.indices for batches in ranks for batch in batches])
        assert sorted(seen.tolist()) == list(range(len(data)))
        assert max(batch.source_ids.shape[1] for batches in ranks for batch in batches) > 8  # whole, over the budget
