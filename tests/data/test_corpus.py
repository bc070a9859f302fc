"""Laws of the corpus on disk: what the sources say, built once, rebuilt when stale, and whole or not there."""

import json
import logging
import multiprocessing
import os
import random

import numpy as np
import pytest
from support.examples import write_parts

from seq2seq import processes
from seq2seq.config.corpora import FilterConfig, SourceConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.data import building, encoding, text_files
from seq2seq.data.corpus import prepare_corpus
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.data.tokenizer_text import TokenizerText
from seq2seq.errors import DataError, RunError
from seq2seq.text.stored import load_tokenizers
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

LOOSE = FilterConfig(max_ratio=100.0)
WORDS = ("the", "a", "man", "woman", "dog", "house", "reads", "writes", "sees", "big", "small", "old", "and", "with")


def sentences(count, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) + f" {i}." for i in range(count)]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    source, target = (
        Tokenizer.train(sentences(300, seed), TokenizerConfig(vocab_size=size), seed=1)
        for seed, size in ((0, 300), (1, 310))
    )
    return TokenizerPair(source, target)


def pairs_source(folder, source, target, weight=1.0, name="train"):
    paths = [folder / f"{name}.{side}" for side in ("en", "de")]
    for path, lines in zip(paths, (source, target), strict=True):
        path.write_bytes("".join(line + "\n" for line in lines).encode())
    return open_pairs(SourceConfig(source=paths[0], target=paths[1], weight=weight), "en", "de")


def labelled_source(folder, rows, name="train"):
    path = folder / f"{name}.tsv"
    path.write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    return open_labelled(SourceConfig(tsv=path))


def content(corpus):
    return {path.name: path.read_bytes() for path in corpus.folder.iterdir()}


def test_the_corpus_is_the_tokenised_source(tmp_path, tokenizers):
    source, target = sentences(50), [*sentences(48, 5), "", "\u2581 🎉"]
    corpus = prepare_corpus([pairs_source(tmp_path, source, target)], tokenizers, None, tmp_path / "cache")
    assert len(corpus) == 50
    for i in range(50):
        assert corpus.ids("source", [i])[0] == tokenizers.source.encode(source[i])
        assert corpus.ids("target", [np.uint32(i)])[0] == tokenizers.target.encode(target[i])
    order = np.random.default_rng(0).permutation(50).astype(np.uint32)
    assert corpus.source_lengths[order].tolist() == [len(corpus.ids("source", [i])[0]) for i in order]
    assert corpus.target_lengths[:].tolist() == [len(corpus.ids("target", [i])[0]) for i in range(50)]
    assert (len(corpus.target_lengths), corpus.target_lengths[order].dtype) == (50, np.int32)
    assert corpus.parts == [(0, 50, 1.0)]
    assert (corpus.counts.kept, corpus.counts.dropped) == (50, {})


def test_spaces_at_the_ends_of_a_text_are_not_learned(tmp_path, tokenizers):
    source, target = sentences(9), sentences(9, 5)
    spaced = [[f" {line}\u00a0 " for line in side] for side in (source, target)]
    corpus = prepare_corpus([pairs_source(tmp_path, *spaced)], tokenizers, None, tmp_path / "cache")
    assert [corpus.ids("source", [i])[0] for i in range(9)] == tokenizers.source.encode_all(source)
    assert [corpus.ids("target", [i])[0] for i in range(9)] == tokenizers.target.encode_all(target)
    labelled = labelled_source(tmp_path, [(f"{text} ", 1) for text in source])
    texts = prepare_corpus([labelled], tokenizers, None, tmp_path / "cache", labels=())
    assert [texts.ids("source", [i])[0] for i in range(9)] == tokenizers.source.encode_all(source)


def test_filters_leave_out_and_count(tmp_path, tokenizers):
    source = ["good one", "", "copied", "good one", "good one", "word " * 100, "x"]
    target = ["gut eins", "leer", "copied", "gut eins", "anders", "Wort " * 100, "much longer than x " * 3]
    filters = FilterConfig(max_length=100, max_ratio=3.0, drop_copies=True)
    corpus = prepare_corpus([pairs_source(tmp_path, source, target)], tokenizers, filters, tmp_path / "cache")
    assert corpus.counts.dropped == {"empty": 1, "copy": 1, "duplicate": 1, "length": 1, "ratio": 1}
    assert [tokenizers.target.decode(corpus.ids("target", [i])[0]) for i in range(len(corpus))] == [
        "gut eins",
        "anders",
    ]
    assert corpus.counts.kept == 2


def test_a_tag_hides_neither_copies_nor_blank_sources(tmp_path, tokenizers):
    """Also next to a source without tags, and in the text of the tokenizers."""
    pairs = [("good one", "gut eins"), ("", "leer"), ("copied", "copied"), (" copied  ", "copied"), ("a", "b")]
    filters = FilterConfig(drop_copies=True)
    plain = pairs_source(tmp_path, ["old dog"], ["alter Hund"])
    sources = [plain, open_pairs(SourceConfig(jsonl=write_parts(tmp_path / "back", pairs, "<back>")), "en", "de")]
    corpus = prepare_corpus(sources, tokenizers, filters, tmp_path / "cache")
    assert corpus.counts.dropped == {"copy": 2, "empty": 1}
    text = TokenizerText(sources, filters, TokenizerConfig(), seed=1)
    assert list(text.side(0)) == ["old dog", "<back> good one", "<back> a"]


def test_several_sources_are_parts_with_weights_and_share_their_duplicates(tmp_path, tokenizers):
    first = pairs_source(tmp_path, sentences(10), sentences(10), 1.0, "first")
    second = pairs_source(tmp_path, sentences(14), sentences(14), 2.5, "second")
    corpus = prepare_corpus([first, second], tokenizers, LOOSE, tmp_path / "cache")
    assert corpus.parts == [(0, 10, 1.0), (10, 14, 2.5)]
    assert corpus.counts.dropped == {"duplicate": 10}
    # a weight is no property of the ids: another one is used at once, from the same cache
    lighter = pairs_source(tmp_path, sentences(14), sentences(14), 0.5, "second")
    again = prepare_corpus([first, lighter], tokenizers, LOOSE, tmp_path / "cache")
    assert again.folder == corpus.folder
    assert again.parts[1] == (10, 14, 0.5)


def test_processes_change_nothing_but_the_time(tmp_path, tokenizers, monkeypatch):
    monkeypatch.setattr(text_files, "CHUNK_BYTES", 250)
    monkeypatch.setattr(building, "CHUNKS_WORTH_A_POOL", 3)
    source, target = sentences(200) * 2, sentences(200, 3) * 2
    opened = pairs_source(tmp_path, source, target)
    alone = prepare_corpus([opened], tokenizers, LOOSE, tmp_path / "1", num_workers=1)
    started = []
    pool = processes.LocalProcesses
    monkeypatch.setattr(processes, "LocalProcesses", lambda *a, **k: started.append(1) or pool(*a, **k))
    together = prepare_corpus([opened], tokenizers, LOOSE, tmp_path / "2", num_workers=2)
    assert started
    assert content(alone) == content(together)
    assert alone.counts.dropped == {"duplicate": 200}


class Shifted(Tokenizer):
    """A tokenizer of another kind: the same pieces under other numbers."""

    def __reduce__(self):
        return Shifted, (self.model_bytes,)

    def encode_all(self, texts, threads=1):
        return [[i + 1 for i in ids] for ids in super().encode_all(texts, threads)]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_ids_are_those_of_the_tokenizer_not_of_its_model_file(workers, tmp_path, tokenizers, monkeypatch):
    monkeypatch.setattr(text_files, "CHUNK_BYTES", 250)
    monkeypatch.setattr(building, "CHUNKS_WORTH_A_POOL", 3)
    shifted = Shifted(tokenizers.source.model_bytes)
    opened = pairs_source(tmp_path, sentences(30), sentences(30, 3))
    pair = TokenizerPair(shifted, tokenizers.target)
    corpus = prepare_corpus([opened], pair, None, tmp_path / "cache", num_workers=workers)
    assert corpus.ids("source", [20])[0] == [i + 1 for i in tokenizers.source.encode(sentences(30)[20])]


def test_the_chunk_size_changes_nothing(tmp_path, tokenizers, monkeypatch):
    opened = pairs_source(tmp_path, sentences(60) * 2, sentences(60, 3) * 2)
    whole = prepare_corpus([opened], tokenizers, LOOSE, tmp_path / "1")
    monkeypatch.setattr(text_files, "CHUNK_BYTES", 100)
    cut = prepare_corpus([opened], tokenizers, LOOSE, tmp_path / "2", num_workers=1)
    assert content(cut) == content(whole)


def test_a_whole_corpus_is_reused_and_a_stale_one_is_built_anew(tmp_path, tokenizers):
    cache = tmp_path / "cache"

    def prepare(lines, filters=LOOSE, pair=tokenizers):
        return prepare_corpus([pairs_source(tmp_path, lines, sentences(len(lines), 2))], pair, filters, cache)

    lines = sentences(20)
    first = prepare(lines)
    stamp = (first.folder / "source.ids").stat().st_mtime_ns
    os.utime(tmp_path / "train.en")  # a newer date alone makes nothing stale
    again = prepare(lines)
    assert again.folder == first.folder
    assert (again.folder / "source.ids").stat().st_mtime_ns == stamp
    other_text = prepare([*lines[:-1], "changed"])
    other_filters = prepare(lines, FilterConfig(max_ratio=100.0, max_length=150))
    other_tokenizers = prepare(lines, pair=TokenizerPair(tokenizers.target, tokenizers.source))
    folders = {corpus.folder for corpus in (first, other_text, other_filters, other_tokenizers)}
    assert len(folders) == 4
    assert other_text.ids("source", [19])[0] == tokenizers.source.encode("changed")


@pytest.mark.parametrize("damage", ["truncated", "missing file", "no manifest", "manifest cut"])
def test_a_damaged_cache_is_built_anew_with_a_warning(damage, tmp_path, tokenizers, caplog):
    opened = pairs_source(tmp_path, sentences(20), sentences(20, 2))
    corpus = prepare_corpus([opened], tokenizers, LOOSE, tmp_path / "cache")
    before = content(corpus)
    ids, manifest = corpus.folder / "target.ids", corpus.folder / "corpus.json"
    if damage == "truncated":
        os.truncate(ids, ids.stat().st_size - 2)
    elif damage == "missing file":
        ids.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_bytes(manifest.read_bytes()[:-30])
    with caplog.at_level(logging.WARNING):
        again = prepare_corpus([opened], tokenizers, LOOSE, tmp_path / "cache")
    assert "damaged" in caplog.text
    assert content(again) == before


def test_a_byte_that_changed_anywhere_in_the_cache_is_noticed(tmp_path, tokenizers):
    texts = labelled_source(tmp_path, [(text, number % 3) for number, text in enumerate(sentences(20))], "labelled")
    pairs = pairs_source(tmp_path, sentences(20), sentences(20, 2))
    draw = random.Random(1)
    for prepare in (
        lambda: prepare_corpus([pairs], tokenizers, LOOSE, tmp_path / "cache"),
        lambda: prepare_corpus([texts], tokenizers, LOOSE, tmp_path / "cache", labels=()),
    ):
        folder = prepare().folder
        before = content(prepare())
        for name in before:
            for place in (0, draw.randrange(len(before[name])), len(before[name]) - 1):
                damaged = bytearray(before[name])
                damaged[place] ^= 1 << draw.randrange(8)
                (folder / name).write_bytes(damaged)
                assert content(prepare()) == before, (name, place)


def _prepare_and_report(folder, results):
    source = open_pairs(SourceConfig(source=folder / "train.en", target=folder / "train.de"), "en", "de")
    corpus = prepare_corpus([source], load_tokenizers(folder), None, folder / "cache")
    results.put((len(corpus), (corpus.folder / "source.ids").stat().st_ino))


def test_processes_that_want_one_corpus_build_it_once(tmp_path, tokenizers):
    pairs_source(tmp_path, sentences(200), sentences(200, 2))
    tokenizers.save(tmp_path)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_prepare_and_report, args=(tmp_path, results)) for _ in range(2)]
    for process in processes:
        process.start()
    assert results.get(timeout=60) == results.get(timeout=60)
    for process in processes:
        process.join()


@pytest.mark.parametrize(
    ("sides", "dropped"),
    [((["", "a"], ["b", " "]), "empty 2"), (([" ".join(map(str, range(2000)))] * 3,) * 2, "length 3")],
)
def test_nothing_left_to_train_a_tokenizer_on_is_an_error_with_the_counts(tmp_path, sides, dropped):
    opened = pairs_source(tmp_path, *sides)
    filters = FilterConfig(drop_copies=False)
    text = TokenizerText([opened], filters, TokenizerConfig(vocab_size=300), 1)
    with pytest.raises(DataError, match=rf"0 of {len(sides[0])} kept \(dropped: {dropped}\); nothing is left to train"):
        list(text.side(0))


def test_nothing_left_is_an_error_with_the_counts(tmp_path, tokenizers):
    opened = pairs_source(tmp_path, ["", "a"], ["b", " "])
    with pytest.raises(DataError, match=r"0 of 2 kept \(dropped: empty 2\); nothing is left: loosen data.filters"):
        prepare_corpus([opened], tokenizers, LOOSE, tmp_path / "cache")
    with pytest.raises(DataError, match="no examples"):
        prepare_corpus([pairs_source(tmp_path, [], [])], tokenizers, None, tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path, tokenizers):
    (tmp_path / "file").write_text("not a folder")
    opened = pairs_source(tmp_path, ["a"], ["b"])
    with pytest.raises(RunError, match=r"cannot be written.*data\.cache_dir") as error:
        prepare_corpus([opened], tokenizers, None, tmp_path / "file" / "cache")
    assert "\n" not in str(error.value)


def test_labels_are_ordered_by_value_or_by_name_whatever_comes_first(tmp_path, tokenizers):
    rows = [("ten", "10"), ("two", "2"), ("also ten", "10"), ("one", "1")]
    corpus = prepare_corpus([labelled_source(tmp_path, rows)], tokenizers, None, tmp_path / "cache", labels=())
    assert corpus.labels == ("1", "2", "10")
    assert [corpus.labels[corpus.label_ids([i])[0]] for i in range(4)] == ["10", "2", "10", "1"]
    assert corpus.target_lengths is None
    assert corpus.ids("source", [1])[0] == tokenizers.source.encode("two")
    rows = [("a", "positive"), ("b", "negative")]
    named = prepare_corpus([labelled_source(tmp_path, rows)], tokenizers, None, tmp_path / "cache", labels=())
    assert named.labels == ("negative", "positive")


def test_a_validation_corpus_takes_the_labels_of_the_training_corpus(tmp_path, tokenizers):
    source = labelled_source(tmp_path, [("a", "1")], name="valid")
    labels = ("0", "1", "2")
    corpus = prepare_corpus([source], tokenizers, None, tmp_path / "cache", labels=labels)
    assert (corpus.labels, corpus.label_ids([0])[0]) == (labels, 1)
    source = labelled_source(tmp_path, [("a", "postive")], name="bad")
    with pytest.raises(DataError, match=r"label 'postive' .*did you mean 'positive'"):
        prepare_corpus([source], tokenizers, None, tmp_path / "cache", labels=("negative", "positive"))


def test_labelled_filters_drop_empty_long_and_duplicate_texts(tmp_path, tokenizers):
    rows = [("good", "1"), ("good", "0"), ("good", "1"), (" ", "1"), ("word " * 50, "0")]
    source = labelled_source(tmp_path, rows)
    corpus = prepare_corpus([source], tokenizers, FilterConfig(max_length=40), tmp_path / "cache", labels=())
    assert corpus.counts.dropped == {"duplicate": 1, "empty": 1, "length": 1}
    assert [corpus.label_ids([i])[0] for i in range(len(corpus))] == [1, 0]


def test_a_large_vocabulary_takes_wider_ids(tmp_path, tokenizers):
    assert encoding.id_type(2**16) == np.uint16
    assert encoding.id_type(2**16 + 1) == np.uint32
    opened = pairs_source(tmp_path, ["a"], ["b"])
    corpus = prepare_corpus([opened], tokenizers, None, tmp_path / "cache")
    assert json.loads((corpus.folder / "corpus.json").read_text())["types"] == {"source": "uint16", "target": "uint16"}
