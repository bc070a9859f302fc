"""Laws of every kind of tokenizer in every direction: all ways from text to ids have the tags, and a fingerprint knows
them."""

import inspect
import itertools
import pickle
import random

import pytest
from support.foreign_models import SOURCE, TARGET
from support.tokenizer_kinds import KINDS, TAGS, pair_of_kind

from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import ModelConfig
from seq2seq.store.direction import zero_shot
from seq2seq.text.direction import Direction
from seq2seq.text.normalization import ReadingTokenizer
from seq2seq.text.tokenizer import TokenizerPair

TEXTS = [*SOURCE[:2], *TARGET[:2], "", "\u2581", ">>deu<<", "the \u2581 cat", "\U0001f600"]
DIRECTIONS = [Direction(), *(Direction(*sides) for sides in itertools.product(TAGS, repeat=2))]
every_kind = pytest.mark.parametrize("kind", KINDS)
every_model = pytest.mark.parametrize("model", ["unigram", "bpe"])


@every_kind
def test_only_models_that_were_trained_here_have_zero_shot_directions(kind):
    """Published models of many languages do not name those that they were trained in."""
    sides = {"source_language": "deu", "target_language": "eng"}
    description = ModelDescription(model=ModelConfig(), directions=("eng-deu",), **sides)
    warning = zero_shot(description, pair_of_kind(kind, "unigram"))
    assert (warning is None) == kind.startswith("multilingual")
    assert warning is None or "(zero-shot)" in warning


def in_every_direction(kind: str, model: str) -> list[TokenizerPair]:
    pair = pair_of_kind(kind, model)
    return [pair, *(pair.directed(direction) for direction in DIRECTIONS)]


def ways_to_ids(tokenizer, text: str, seed: int) -> dict[str, list[list[int]]]:
    """The ids of a text, by the method that returns them."""
    listed = tokenizer.segmentations(text, 4) if tokenizer.lists_segmentations else []
    return {
        "encode": [tokenizer.encode(text)],
        "encode_all": tokenizer.encode_all([text]),
        "spans": [tokenizer.spans(text)[0]],
        "sample": [tokenizer.sample(text, random.Random(seed), 4, 0.3)],
        "segmentations": [ids for ids, _ in listed],
        "read": [tokenizer.read(text)],
        "read_all": tokenizer.read_all([text]),
        "read_spans": [tokenizer.read_spans(text)[0]],
        "encode_targets": tokenizer.encode_targets([text]),
        "target_spans": [tokenizer.target_spans(text)[0]],
    }


def frame(tokenizer) -> tuple:
    """All ids that are no text and are added to it."""
    return tokenizer.tag_ids, tokenizer.start_ids, tokenizer.end_ids


@every_model
@every_kind
def test_every_way_to_ids_has_the_tags(kind, model):
    """Law: the ids of a directed tokenizer are the tags, and then those of the undirected one."""
    for pair in in_every_direction(kind, model):
        for directed, plain in ((pair.source, pair.undirected.source), (pair.target, pair.undirected.target)):
            for seed, text in enumerate(TEXTS):
                ways, expected = (ways_to_ids(each, text, seed) for each in (directed, plain))
                named = [] if directed.language_named(text) is None else [directed.vocabulary[text]]
                for name, rows in ways.items():
                    rest = [row[len(named) :] for row in expected[name]]
                    assert rows == [[*(named or directed.tag_ids), *row] for row in rest], (name, text)


@every_model
@every_kind
def test_stored_sources_that_are_segmented_anew_keep_their_tags(kind, model):
    for pair in in_every_direction(kind, model):
        for text in (SOURCE[0], TARGET[0], ""):
            row = pair.source.read(text)
            for name, rows in ways_to_ids(pair.source, pair.source.decode(row), 3).items():
                assert all(tuple(ids[: len(pair.source.tag_ids)]) == pair.source.tag_ids for ids in rows), name


@every_kind
def test_all_kinds_and_all_ways_are_here(kind):
    def kinds_of(one: type) -> set[type]:
        return {one, *itertools.chain.from_iterable(map(kinds_of, one.__subclasses__()))}

    ours = {one for one in kinds_of(ReadingTokenizer) if one.__module__.startswith("seq2seq.")}
    assert ours == {ReadingTokenizer, *(type(pair_of_kind(each, "unigram").source) for each in KINDS)}
    methods = inspect.getmembers(type(pair_of_kind(kind, "unigram").source), inspect.isfunction)
    returned = {name: str(inspect.signature(method).return_annotation) for name, method in methods if name[0] != "_"}
    assert {name for name, kind in returned.items() if "list[int]" in kind} == set(
        ways_to_ids(pair_of_kind(kind, "unigram").source, "the", 0)
    )


@every_kind
def test_a_fingerprint_knows_the_tags(kind):
    """Law: tokenizers have one fingerprint if, and only if, their ids are the same."""
    seen: dict[str, set] = {}
    for pair in in_every_direction(kind, "unigram"):
        for tokenizer in (pair.source, pair.target):
            assert pickle.loads(pickle.dumps(tokenizer)).fingerprint == tokenizer.fingerprint
            seen.setdefault(tokenizer.fingerprint, set()).add(frame(tokenizer))
        assert pair.undirected.fingerprint == pair_of_kind(kind, "unigram").fingerprint
    assert all(len(frames) == 1 for frames in seen.values())
    assert len(seen) == len(set.union(*seen.values()))


@every_kind
def test_a_copy_for_another_process_has_the_same_ids(kind):
    for pair in in_every_direction(kind, "unigram"):
        copy = pickle.loads(pickle.dumps(pair))
        for ours, other in ((pair.source, copy.source), (pair.target, copy.target)):
            assert frame(other) == frame(ours)
            assert ways_to_ids(other, TEXTS[0], 1) == ways_to_ids(ours, TEXTS[0], 1)
