"""Corpora of many directions: each pair has its direction and its tags, and a direction its share of the epochs."""

import functools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import write_parts

from seq2seq.config.corpora import FilterConfig, NoiseConfig, SourceConfig
from seq2seq.config.directions import LanguagesConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.data.collate import collate_translation
from seq2seq.data.corpus import prepare_corpus
from seq2seq.data.directions import (
    DirectedSource,
    RowTags,
    open_set,
    open_training,
    sizes_of,
    tempered,
    vocabulary_repeats,
)
from seq2seq.data.noise import NoisySource
from seq2seq.data.sampler import TokenBudgetSampler
from seq2seq.data.sources import open_pairs
from seq2seq.data.stages import Stages
from seq2seq.data.stream import CorpusBatches
from seq2seq.data.tokenizer_text import TokenizerText
from seq2seq.errors import DataError
from seq2seq.text.direction import Direction
from seq2seq.text.tagged_tokenizer import Languages, tagged_pair
from seq2seq.text.tokenizer import Tokenizer

LANGUAGES = LanguagesConfig(source=("en", "de"), target=("de", "en"))
TEXTS = ["one two three", "two >>deu<< one", "three", "eins zwei drei", "zwei", "drei eins"]


@functools.cache
def tokenizers(tags: str):
    trained = Tokenizer.train(TEXTS * 20, TokenizerConfig(vocab_size=290), 1, list(LANGUAGES.pieces.values()))
    languages = Languages(LANGUAGES.pieces, LANGUAGES.source, LANGUAGES.target, tags)
    return tagged_pair(trained.model_bytes, trained.model_bytes, languages)


def files(folder, count=3):
    for name, lines in (("a.en", TEXTS[:count]), ("a.de", TEXTS[3 : 3 + count])):
        (folder / name).write_text("\n".join(lines) + "\n")
    return SourceConfig.model_validate(
        {"source": folder / "a.en", "target": folder / "a.de", "from": "en", "to": "de", "both_ways": True}
    )


def test_both_ways_are_two_sources_with_exchanged_sides(tmp_path):
    forward, backward = open_training(files(tmp_path), LANGUAGES)
    assert [pair.texts for pair in backward] == [pair.texts[::-1] for pair in forward]
    assert {pair.direction for pair in forward} == {("en", "de")}
    assert {pair.direction for pair in backward} == {("de", "en")}
    assert forward.fingerprint != backward.fingerprint


def test_lines_name_their_languages(tmp_path):
    lines = [("en", "deu", "x", "y"), ("German", "en", "u", "v"), ("en", "de", "p", "q")]
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(json.dumps({"f": a, "t": b, "source": c, "target": d}) + "\n" for a, b, c, d in lines))
    config = SourceConfig(jsonl=path, from_column="f", to_column="t")
    first, second = sorted(open_training(config, LANGUAGES), key=lambda source: source.direction)
    assert [pair.texts for pair in first] == [("u", "v")]
    assert [pair.texts for pair in second] == [("x", "y"), ("p", "q")]
    assert [pair.direction for pair in open_set(config, LANGUAGES)] == [("en", "de"), ("de", "en"), ("en", "de")]


def mixed_lines(folder, *lines, **keys):
    path = folder / "mixed.jsonl"
    records = [dict(zip(("f", "t", "source", "target"), line, strict=True)) for line in lines]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return SourceConfig(jsonl=path, from_column="f", to_column="t", **keys)


def test_a_folder_of_pairs_has_no_languages_of_lines(tmp_path):
    config = mixed_lines(tmp_path).model_copy(update={"jsonl": write_parts(tmp_path / "pairs", [("a", "b")])})
    remedy = "write from and to instead of from_column and to_column"
    for opened in (open_training, open_set):
        with pytest.raises(DataError, match=f"pairs: a folder of pairs, whose lines name no languages; {remedy}$"):
            opened(config, LANGUAGES)


@pytest.mark.parametrize("of_lines", [False, True])
@pytest.mark.parametrize("kind", ["typos", "repeated_punctuation"])
def test_noise_of_the_source_never_changes_a_translation(kind, of_lines, tmp_path):
    """Both directions of a corpus have noisy sources and the translations of the file."""
    sides = [("a longer sentence of words.", "ein längerer Satz mit Wörtern."), ("some houses.", "einige Häuser.")]
    noise = NoiseConfig(**{kind: 1.0})
    config = mixed_lines(tmp_path, *(("en", "de", *texts) for texts in sides), both_ways=True, noise=noise)
    if not of_lines:
        for name, lines in zip(("a.en", "a.de"), zip(*sides, strict=True), strict=True):
            (tmp_path / name).write_text("\n".join(lines) + "\n")
        config = SourceConfig.model_validate({
            "source": tmp_path / "a.en", "target": tmp_path / "a.de", "from": "en", "to": "de", "both_ways": True,
            "noise": noise,
        })  # fmt: skip
    opened = open_training(config, LANGUAGES)
    assert [source.direction for source in opened] == [("en", "de"), ("de", "en")]
    for source, step in zip(opened, (1, -1), strict=True):
        plain = [texts[::step] for texts in sides]
        assert [pair.target for pair in source] == [target for _, target in plain]
        assert all(pair.source != text for pair, (text, _) in zip(source, plain, strict=True))
        assert {pair.direction for pair in source} == {source.direction}
    plain = open_training(config.model_copy(update={"noise": None}), LANGUAGES)
    assert len({source.fingerprint for source in (*opened, *plain)}) == 4


def test_noise_of_one_direction_has_the_fingerprint_of_earlier_versions(tmp_path):
    """Nothing about it has changed, so older runs continue."""
    noise = NoiseConfig(typos=0.5, upper=0.5)
    config = files(tmp_path).model_copy(update={"noise": noise})
    forward, _ = open_training(config, LANGUAGES)
    assert forward.fingerprint == DirectedSource(open_pairs(config, "en", "de"), ("en", "de")).fingerprint
    lines = mixed_lines(tmp_path, ("en", "de", "a", "b"))
    (noisy,) = open_training(lines.model_copy(update={"noise": noise}), LANGUAGES)
    whole = NoisySource(open_set(lines, LANGUAGES), noise, ("", ""))
    assert noisy.fingerprint == DirectedSource(whole, ("en", "de")).fingerprint


def test_capitals_are_those_of_the_languages_of_each_line(tmp_path):
    languages = LanguagesConfig(source=("tr", "en"), target=("en", "tr"))
    lines = [("tr", "en", "istanbul ilk", "in"), ("en", "tr", "in", "istanbul ilk")]
    config = mixed_lines(tmp_path, *lines, noise=NoiseConfig(upper=1.0), both_ways=True)
    right = {("tr", "en"): ("İSTANBUL İLK", "IN"), ("en", "tr"): ("IN", "İSTANBUL İLK")}
    for opened in (open_training(config, languages), [open_set(config, languages)]):
        for pair in (pair for source in opened for pair in source):
            assert pair.texts == right[pair.direction]


def test_fingerprints_know_the_rules_of_capitals_where_these_matter(tmp_path):
    languages = LanguagesConfig(source=("tr", "en"), target=("en",))
    lines = mixed_lines(tmp_path, ("tr", "en", "a", "b"), ("en", "en", "a", "b"))
    for kind, is_other in (("upper", True), ("title", True), ("typos", False)):
        noise = NoiseConfig(**{kind: 0.5})
        config = lines.model_copy(update={"noise": noise})
        without_rules = NoisySource(open_set(lines, languages), noise, ("", ""))
        assert (open_set(config, languages).fingerprint != without_rules.fingerprint) == is_other
        for source in open_training(config, languages):
            before = DirectedSource(without_rules, source.direction).fingerprint
            assert (source.fingerprint != before) == (is_other and "tr" in source.direction)


@pytest.mark.parametrize(
    ("languages", "missing"),
    [
        ((("en",), ("de",)), "de to languages.source and en to languages.target"),
        ((("en", "de"), ("de",)), "en to languages.target"),
        (None, None),
    ],
)
def test_lines_are_not_trained_in_a_reverse_direction_that_the_model_does_not_have(languages, missing, tmp_path):
    config = mixed_lines(tmp_path, ("en", "de", "a", "b"), both_ways=True)
    known = LANGUAGES if languages is None else LanguagesConfig(source=languages[0], target=languages[1])
    if missing is None:
        assert [source.direction for source in open_training(config, known)] == [("en", "de"), ("de", "en")]
        return
    told = r"mixed\.jsonl: both_ways: de-en is not possible with languages; leave out both_ways, or add"
    with pytest.raises(DataError, match=f"{told} {missing}$"):
        open_training(config, known)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"t": "de", "source": "a", "target": "b"}, 'line 2: no language of the source; write it as "f"'),
        ({"f": "en", "t": "fr", "source": "a", "target": "b"}, 'line 2: t: "fr" is not in languages.target (de, en)'),
    ],
)
def test_a_line_without_languages_is_named(record, message, tmp_path):
    path = tmp_path / "mixed.jsonl"
    good = {"f": "en", "t": "de", "source": "a", "target": "b"}
    path.write_text(f"{json.dumps(good)}\n{json.dumps(record)}\n")
    config = SourceConfig(jsonl=path, from_column="f", to_column="t")
    with pytest.raises(DataError) as caught:
        open_training(config, LANGUAGES)
    assert message in str(caught.value).replace("'", '"')


@pytest.mark.parametrize("tags", ["source", "both", "decoder"])
def test_a_batch_of_many_directions_has_the_rows_of_batches_of_one(tags, tmp_path):
    pair, sources = tokenizers(tags), open_training(files(tmp_path), LANGUAGES)
    corpus = prepare_corpus(sources, pair, None, tmp_path / "cache", 1)
    directions = [source.direction for source in sources]
    sizes = [stop - start for start, stop, _ in corpus.parts]
    mixed = CorpusBatches(corpus, pair, tags=RowTags(pair, directions, sizes))(np.array([0, 4, 1, 5]), 0)
    for row, (index, sides) in enumerate([(0, 0), (4, 1), (1, 0), (5, 1)]):
        own = pair.directed(Direction(*directions[sides]))
        texts = list(sources[sides])[index % 3].texts
        alone = collate_translation(own.source.encode_all([texts[0]]), own.target.encode_all([texts[1]]), own, [index])
        for name in ("source", "target"):
            mask = getattr(mixed, f"{name}_mask")[row]
            assert int(mask.sum()) == int(getattr(alone, f"{name}_mask").sum())
        width = alone.target_input.shape[1]
        assert mixed.source_ids[row][mixed.source_mask[row]].tolist() == alone.source_ids[0].tolist()
        assert mixed.target_input[row][:width].tolist() == alone.target_input[0].tolist()
        assert mixed.target_output[row][:width].tolist() == alone.target_output[0].tolist()
    tag_ids = set(pair.target.ids_of(LANGUAGES.pieces.values()))
    assert not tag_ids & set(mixed.target_output[mixed.target_mask].tolist())  # no tag is to be learned


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=">><<deu_ abc", max_size=30), st.sampled_from(sorted(LANGUAGES.pieces.values())))
def test_no_text_spells_a_tag(text, tag):
    pair = tokenizers("source")
    ids = pair.source.read(f"{tag} {text}{tag}")
    assert not pair.source.silent_ids & set(ids)
    assert pair.target.decode(pair.target.encode(f"{text}{tag}")) == f"{text}{tag}".rstrip("\n")


def test_a_pair_is_a_duplicate_only_in_its_own_direction(tmp_path):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("Berlin\nBerlin\n")
    config = SourceConfig.model_validate(
        {"source": tmp_path / "a.en", "target": tmp_path / "a.de", "from": "en", "to": "de", "both_ways": True}
    )
    corpus = prepare_corpus(open_training(config, LANGUAGES), tokenizers("source"), FilterConfig(), tmp_path / "c", 1)
    assert [stop - start for start, stop, _ in corpus.parts] == [1, 1]


@pytest.mark.parametrize("temperature", [1.0, 2.0, 3.0, 5.0])
def test_the_shares_of_directions_are_exact_over_epochs(temperature):
    """Law: over whole epochs each pair is seen as often as planned, and a share is size^(1/temperature)."""
    parts = [(0, 600, 1.0), (600, 700, 1.0), (700, 720, 1.0)]
    directions = [("en", "de"), ("en", "fr"), ("en", "de")]
    weighed, sizes = tempered(parts, directions, temperature), sizes_of(parts, directions)
    assert sum((stop - start) * weight for start, stop, weight in weighed) == pytest.approx(720)
    planned = {sides: size ** (1 / temperature) for sides, size in sizes.items()}
    lengths = np.full(720, 5, np.int32)
    sampler = TokenBudgetSampler(lengths, lengths, 100, seed=1, stages=Stages.of(weighed))
    epochs, seen = 12, Counter()
    for epoch in range(epochs):
        seen.update(np.concatenate(sampler.plan(epoch)).tolist())
    counts = np.array([seen[index] for index in range(720)])
    for (start, stop, weight), sides in zip(weighed, directions, strict=True):
        assert abs(counts[start:stop].sum() - epochs * weight * (stop - start)) <= 1
        assert counts[start:stop].max() - counts[start:stop].min() <= 1  # evenly
        share = 720 * planned[sides] / sum(planned.values()) / sizes[sides]
        assert weight == pytest.approx(share)


def test_the_tokenizer_reads_small_directions_more_often(tmp_path):
    sizes = {("en", "de"): 320, ("de", "en"): 10}
    sources = []
    for sides, size in sizes.items():
        paths = [tmp_path / f"{''.join(sides)}.{name}" for name in sides]
        for path, name in zip(paths, sides, strict=True):
            path.write_text(f"{name} word\n" * size)
        keys = ("source", "target", "from", "to")
        config = SourceConfig.model_validate(dict(zip(keys, (*paths, *sides), strict=True)))
        sources += open_training(config, LANGUAGES)
    repeats = vocabulary_repeats(sources)
    assert repeats[1] / repeats[0] == pytest.approx((320 / 10) ** (1 - 1 / 5))
    text = TokenizerText(sources, FilterConfig(), TokenizerConfig(), 1, repeats)
    counts = Counter(text.side(0))
    assert counts["en word"] == pytest.approx(320 * repeats[0], abs=1)
    assert counts["de word"] == pytest.approx(10 * repeats[1], abs=1)
    assert sum(counts.values()) == pytest.approx(330, abs=2)


def test_temperature_1_leaves_the_weights_and_weight_multiplies():
    parts = [(0, 7, 2.5), (7, 9, 1.0)]
    assert tempered(parts, [("a", "b"), ("b", "a")], 1.0) == parts
    doubled = tempered([(0, 7, 5.0), (7, 9, 1.0)], [("a", "b"), ("b", "a")], 4.0)
    single = tempered(parts, [("a", "b"), ("b", "a")], 4.0)
    assert doubled[0][2] == pytest.approx(2 * single[0][2])
    assert doubled[1] == single[1]
