"""Laws of stored segmentations: the tokenizer lists them, and they are drawn by probability, for each example alone."""

import random
from collections import Counter

import numpy as np
import pytest

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.data import segmentations
from seq2seq.data.corpus import prepare_corpus
from seq2seq.data.segmentations import MOST_STORED, prepare_segmentations
from seq2seq.data.sources import open_pairs
from seq2seq.data.stream import CorpusBatches
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

WORDS = ("the", "a", "man", "woman", "reads", "writes", "bicycle", "newspaper", "\u2581", "\U0001f600")
CONFIG = TokenizerConfig(vocab_size=310, sampling=0.4, sampling_nbest=6, sampling_alpha=0.3)
COUNT = 40


def sentences(seed):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 6))) for _ in range(COUNT)]


def prepared(folder, kind="unigram"):
    config = CONFIG.model_copy(update={"kind": kind})
    tokenizers = TokenizerPair(*(Tokenizer.train(sentences(seed) * 5, config, seed=1) for seed in (0, 1)))
    for name, seed in (("train.en", 2), ("train.de", 3)):
        (folder / name).write_text("".join(f"{line}\n" for line in sentences(seed)), encoding="utf-8")
    source = open_pairs(SourceConfig(source=folder / "train.en", target=folder / "train.de"), "en", "de")
    return prepare_corpus([source], tokenizers, None, folder / "cache"), tokenizers


@pytest.fixture(scope="module")
def corpus_and_tokenizers(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("segmentations"))


def drawn_rows(stored, side, indices, epoch, most=10**6):
    is_drawn, ids, lengths = stored.draw(side, indices, epoch, np.full(len(indices), most))
    rows = np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else []
    return dict(zip(indices[is_drawn].tolist(), (tuple(row.tolist()) for row in rows), strict=True))


def test_segmentations_are_drawn_by_their_probabilities(corpus_and_tokenizers):
    corpus, tokenizers = corpus_and_tokenizers
    stored, everything, epochs = prepare_segmentations(corpus, tokenizers, CONFIG, 1, 1), np.arange(COUNT), 3000
    found = {index: Counter() for index in range(COUNT)}
    for epoch in range(epochs):
        for index, row in drawn_rows(stored, "target", everything, epoch).items():
            found[index][row] += 1
    for index, row in enumerate(corpus.ids("target", everything)):
        listed = tokenizers.target.segmentations(tokenizers.target.decode(row), CONFIG.sampling_nbest)
        weights = np.exp(CONFIG.sampling_alpha * np.array([score for _, score in listed]))
        expected = CONFIG.sampling * weights / weights.sum()
        shares = np.array([found[index][tuple(ids)] for ids, _ in listed]) / epochs
        assert set(found[index]) <= {tuple(ids) for ids, _ in listed}
        assert np.abs(shares - expected).max() < 5 * np.sqrt(0.25 / epochs)


def test_a_draw_depends_on_seed_epoch_side_and_example_alone(corpus_and_tokenizers):
    corpus, tokenizers = corpus_and_tokenizers
    stored = prepare_segmentations(corpus, tokenizers, CONFIG, 1, 1)
    everything, draw = np.arange(COUNT), np.random.default_rng(1)
    whole = drawn_rows(stored, "source", everything, 3)
    assert 0.15 * COUNT < len(whole) < 0.7 * COUNT
    for _ in range(5):
        shuffled = draw.permutation(COUNT)
        parts = [drawn_rows(stored, "source", part, 3) for part in np.array_split(shuffled, 3)]
        assert {index: row for part in parts for index, row in part.items()} == whole
    other = prepare_segmentations(corpus, tokenizers, CONFIG, 2, 1)
    assert drawn_rows(other, "source", everything, 3) != whole
    assert drawn_rows(stored, "source", everything, 4) != whole
    assert set(drawn_rows(stored, "target", everything, 3)) != set(whole)


@pytest.mark.parametrize("nbest", [6, MOST_STORED + 1], ids=["stored", "for each batch"])
def test_a_text_with_an_unknown_character_has_only_its_own_pieces(tmp_path, nbest):
    """Its pieces do not tell the text: others would be those of a question mark."""
    config = CONFIG.model_copy(update={"byte_fallback": False, "sampling": 1.0, "sampling_nbest": nbest})
    tokenizer = Tokenizer.train(["the red man reads a newspaper"] * 9, config.model_copy(update={"vocab_size": 30}), 1)
    (tmp_path / "text").write_text("the réd man\nthe red man\n", encoding="utf-8")
    source = open_pairs(SourceConfig(source=tmp_path / "text", target=tmp_path / "text"), "en", "de")
    tokenizers = TokenizerPair(tokenizer, tokenizer)
    corpus = prepare_corpus([source], tokenizers, None, tmp_path / "cache")
    stored = prepare_segmentations(corpus, tokenizers, config, 1, 1)
    assert (stored is None) == (nbest > MOST_STORED)
    batches = CorpusBatches(corpus, tokenizers, config, 1, segmentations=stored)
    unknown, _ = corpus.ids("source", np.arange(2))
    assert tokenizer.unk_id in unknown
    drawn = [batches(np.arange(2), epoch).source_ids.tolist() for epoch in range(20)]
    assert all(first[: len(unknown)] == unknown for first, _ in drawn)
    assert len({tuple(second) for _, second in drawn}) > 1


def test_segmentations_that_are_too_long_are_not_drawn(corpus_and_tokenizers):
    corpus, tokenizers = corpus_and_tokenizers
    stored, everything = prepare_segmentations(corpus, tokenizers, CONFIG, 1, 1), np.arange(COUNT)
    whole, short = (drawn_rows(stored, "source", everything, 0, most) for most in (10**6, 8))
    assert short == {index: row for index, row in whole.items() if len(row) <= 8}
    assert 0 < len(short) < len(whole)


@pytest.mark.parametrize(
    "changes", [dict(sampling=0.0), dict(sampling_nbest=MOST_STORED + 1)], ids=["nothing is drawn", "a long list"]
)
def test_what_cannot_be_stored_is_made_for_each_batch(corpus_and_tokenizers, changes):
    config = CONFIG.model_copy(update=changes)
    assert prepare_segmentations(*corpus_and_tokenizers, config, 1) is None


def test_bpe_lists_no_segmentations(tmp_path):
    assert prepare_segmentations(*prepared(tmp_path, "bpe"), CONFIG, 1) is None


def test_damaged_segmentations_are_built_again(tmp_path):
    corpus, tokenizers = prepared(tmp_path)
    everything = np.arange(COUNT)
    whole = drawn_rows(prepare_segmentations(corpus, tokenizers, CONFIG, 1, 1), "source", everything, 0)
    (scores,) = (tmp_path / "cache").glob("*/source.scores")
    scores.write_bytes(scores.read_bytes()[:-4])
    assert drawn_rows(prepare_segmentations(corpus, tokenizers, CONFIG, 1, 1), "source", everything, 0) == whole


def test_complete_segmentations_are_not_built_again(tmp_path):
    corpus, tokenizers = prepared(tmp_path)
    files = []
    for _ in range(2):
        prepare_segmentations(corpus, tokenizers, CONFIG, 1, 1)
        files.append({path: path.stat().st_ino for path in (tmp_path / "cache").rglob("*")})
    assert files[0] == files[1]


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(corpus_and_tokenizers, tmp_path, monkeypatch):
    corpus, tokenizers = corpus_and_tokenizers
    built = []
    monkeypatch.setattr(segmentations, "CHUNK_EXAMPLES", 5)
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        sides = {"source": tokenizers.source, "target": tokenizers.target}
        segmentations._build(folder, "name", corpus, sides, 6, workers)
        built.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert built[0] == built[1]
