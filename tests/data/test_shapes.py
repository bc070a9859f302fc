"""Laws of shape tables: few shapes with the least padding, which hold every example and every batch of an epoch."""

import functools
import itertools
import random

import numpy as np
import pytest
from support.foreign_models import SOURCE, TARGET
from support.tokenizer_kinds import KINDS, pair_of_kind

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.data.corpus import prepare_corpus
from seq2seq.data.directions import RowTags
from seq2seq.data.sampler import TokenBudgetSampler
from seq2seq.data.segmentations import prepare_segmentations
from seq2seq.data.shapes import NUM_SOURCES, NUM_TARGETS, _least_padding
from seq2seq.data.sources import open_pairs
from seq2seq.data.stream import CorpusBatches
from seq2seq.text.direction import Direction


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


# -- batches of a corpus -----------------------------------------------------------------------------------------------

COUNT, SIDES = 120, (("eng", "deu"), ("deu", "eng"))
MIXED = [kind for kind in KINDS if kind.startswith("tagged") or kind == "multilingual-first-second"]
every_corpus = pytest.mark.parametrize(
    ("kind", "is_mixed"), [*((kind, False) for kind in KINDS), *((kind, True) for kind in MIXED)]
)


@functools.cache
def prepared(kind: str, is_mixed: bool, folder) -> tuple:
    """A corpus in one direction, or in two; its tokenizers, and the tags of its examples."""
    words, draw = [" ".join(lines).split() for lines in (SOURCE, TARGET)], random.Random(1)
    for name, side in zip(("a.en", "a.de"), words, strict=True):
        lines = [" ".join(draw.choices(side, k=draw.randint(1, 14))) for _ in range(COUNT)]
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    pair = pair_of_kind(kind, "unigram")
    pair = pair if is_mixed else pair.directed(Direction(*SIDES[0]))
    source = open_pairs(SourceConfig(source=folder / "a.en", target=folder / "a.de"), *SIDES[0])
    corpus = prepare_corpus([source], pair, None, folder / f"{kind}-{is_mixed}", 1)
    return corpus, pair, RowTags(pair, SIDES, [COUNT // 3, COUNT - COUNT // 3]) if is_mixed else None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shapes")


def sampler_of(corpus, tags, batch_tokens):
    before, after = (0, 0) if tags is None else (side.shape[1] for side in tags(np.array([0])))
    sides = corpus.source_lengths.with_tags(before), corpus.target_lengths.with_tags(after)
    plain = TokenBudgetSampler(*sides, batch_tokens, seed=1)
    return plain.with_table(plain.shape_table())


def rows_of(batch) -> list[tuple]:
    """For each example, its ids without padding: source, first input to last, and output."""
    found = []
    for row in range(int((batch.indices >= 0).sum())):
        mask = batch.target_mask[row]
        read = batch.target_input[row][: int(mask.nonzero().max()) + 1]
        found.append((batch.source_ids[row][batch.source_mask[row]], read, batch.target_output[row][mask]))
    return [tuple(tuple(ids.tolist()) for ids in row) for row in found]


@every_corpus
@pytest.mark.parametrize("batch_tokens", [30, 100, 1000])
def test_a_planned_batch_is_filled_with_the_pieces_of_its_examples(kind, is_mixed, batch_tokens, folder):
    """Law: every batch has a shape of the table, the same for all of its cell, and nothing is cut."""
    corpus, pair, tags = prepared(kind, is_mixed, folder)
    sampler = sampler_of(corpus, tags, batch_tokens)
    plain, filling = (CorpusBatches(corpus, pair, tags=tags, table=table) for table in (None, sampler.table))
    used = set()
    for indices in sampler.plan(0):
        batch = filling(indices, 0)
        assert batch.is_filled
        assert rows_of(batch) == rows_of(plain(indices, 0))
        used.add((*batch.source_ids.shape, *batch.target_input.shape))
    assert len(used) <= NUM_TARGETS * NUM_SOURCES


@every_corpus
def test_no_batch_is_cut_whatever_its_examples(kind, is_mixed, folder):
    """Law: a batch that does not fit a shape of the table is an ordinary batch."""
    corpus, pair, tags = prepared(kind, is_mixed, folder)
    sampler, draw = sampler_of(corpus, tags, 100), np.random.default_rng(1)
    plain, filling = (CorpusBatches(corpus, pair, tags=tags, table=table) for table in (None, sampler.table))
    filled = 0
    for size in (1, 1, 1, 2, 2, 3, 5, 20) * 5:
        indices = draw.choice(COUNT, size, replace=False)
        batch = filling(indices, 0)
        assert rows_of(batch) == rows_of(plain(indices, 0))
        filled += batch.is_filled
    assert 0 < filled < 40


@every_corpus
@pytest.mark.parametrize("is_stored", [True, False])
def test_random_segmentations_fit_the_shape_and_keep_the_text(kind, is_mixed, is_stored, folder):
    corpus, pair, tags = prepared(kind, is_mixed, folder)
    sampler, config = sampler_of(corpus, tags, 100), TokenizerConfig(sampling=0.7, sampling_nbest=6, sampling_alpha=0.1)
    stored = prepare_segmentations(corpus, pair, config, 1, 1) if is_stored else None
    plain = CorpusBatches(corpus, pair, tags=tags)
    filling = CorpusBatches(corpus, pair, config, 1, segmentations=stored, tags=tags, table=sampler.table)
    num_new = 0
    for indices in sampler.plan(0)[:6]:
        batch = filling(indices, 0)
        assert batch.is_filled
        for drawn, given in zip(rows_of(batch), rows_of(plain(indices, 0)), strict=True):
            assert [side.decode(ids) for side, ids in zip((pair.source, pair.target), drawn[::2], strict=True)] == [
                side.decode(ids) for side, ids in zip((pair.source, pair.target), given[::2], strict=True)
            ]
            num_new += drawn != given
    assert num_new
