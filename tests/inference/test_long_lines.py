"""Lines that are translated in parts, and parts that are copied: nothing is lost, and each part is searched once."""

import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.echo import TEXTS, EchoEngine, echo, make_transformer, make_translator, tokenizers_of_texts

from seq2seq.config.schema import TokenizerConfig
from seq2seq.inference.degeneration import (
    SPLIT,
)
from seq2seq.model.transformer import Transformer
from seq2seq.search.base import Hypothesis, normalized_score
from seq2seq.text.splitting import split_text
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.text.untranslatable import VERBATIM


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return tokenizers_of_texts()


@pytest.fixture(scope="module")
def transformer(tokenizers) -> Transformer:
    return make_transformer(tokenizers)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab .!?。」 \t\u00a0"), max_size=200), st.integers(1, 30))
def test_parts_fit_and_nothing_is_lost(text, limit):
    parts = split_text(text, lambda part: len(part.strip()) <= limit)
    assert "".join(parts) == text
    assert all(len(part.strip()) <= limit for part in parts)


def test_cuts_stand_at_sentence_ends_then_at_spaces():
    text = 'One two three. "Four five?" Six seven eight nine ten eleven!'
    assert split_text(text, lambda part: len(part) <= 35) == [
        'One two three. "Four five?" ',
        "Six seven eight nine ten eleven!",
    ]
    assert split_text("一二三。四五六。", lambda part: len(part) <= 4) == ["一二三。", "四五六。"]
    assert split_text("aaaa bbbb cccc dddd", lambda part: len(part) <= 10) == ["aaaa bbbb ", "cccc dddd"]
    assert split_text("abcdefgh", lambda part: len(part) <= 4) == ["abcd", "efgh"]


@settings(max_examples=50, deadline=None)
@example([TEXTS[4], "\u2028", TEXTS[4], "x" * 150], "")
@given(
    st.lists(st.sampled_from([*TEXTS, "  ", "\u2028", "日本語。", "x" * 150]), min_size=1, max_size=30),
    st.sampled_from(["", " ", "  "]),
)
def test_long_line_comes_back_whole(tokenizers, sentences, space):
    line = space.join(sentences)
    (translation,) = echo(tokenizers).translate([line])
    # what is left beside a copied run may be one short part, in which the model reads a space
    kept = "\u2028" if VERBATIM not in translation.flags else " "
    assert translation.text.strip().replace("\u2028", kept) == line.strip().replace("\u2028", kept)
    is_short = len(tokenizers.source.read(line)) <= 27
    assert is_short or {SPLIT, VERBATIM}.intersection(translation.flags)
    assert not is_short or "日" in line or SPLIT not in translation.flags


URL = "https://example.com/" + "a1-" * 40
RUNS = ["," * 900, "a" * 3000, "ha" * 400, URL, "é中😀" * 60]
NO_TEXT = [*RUNS, "3.14 " * 100 + "2", "! ? " * 50 + "!", "漢" * 60]


@pytest.mark.parametrize("text", NO_TEXT, ids=range(len(NO_TEXT)))
def test_what_is_no_text_is_copied_and_never_reaches_the_model(tokenizers, text):
    engine = EchoEngine()
    (translation,) = echo(tokenizers, engine).translate([f" {text}  "])
    assert (translation.text, translation.flags) == (f" {text}  ", (VERBATIM,))
    assert engine.seen == []


@pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))
def test_words_around_a_long_run_are_translated(tokenizers, run):
    line, engine = f"{TEXTS[0]}  {run} {TEXTS[1]}", EchoEngine()
    (translation,) = echo(tokenizers, engine).translate([line])
    assert translation.text == line
    assert {SPLIT, VERBATIM}.issubset(translation.flags)
    assert [tokenizers.source.decode(ids) for ids in engine.seen] == TEXTS[:2]


@pytest.mark.parametrize("text", ["ride. 5", " ".join(TEXTS * 3), "A 3D film", "rides"])
def test_text_is_not_copied(tokenizers, text):
    (translation,) = echo(tokenizers).translate([text])
    assert translation.text == text
    assert VERBATIM not in translation.flags


def test_scripts_without_spaces_are_text():
    text = "日本語を勉強しています。" * 10
    tokenizer = Tokenizer.train([text, "に行く。"], TokenizerConfig(vocab_size=300), seed=1)
    engine = EchoEngine()
    (translation,) = echo(TokenizerPair(tokenizer, tokenizer), engine).translate([text])
    assert translation.text == text
    assert VERBATIM not in translation.flags
    assert engine.seen


def test_a_prefix_is_kept_where_there_is_no_text(tokenizers):
    engine = EchoEngine()
    (translation,) = echo(tokenizers, engine).translate(["." * 200], prefixes=["Ein"])
    assert VERBATIM not in translation.flags
    assert engine.seen


def test_line_of_a_hundred_thousand_characters(tokenizers):
    for line in ("A man rides. " * 7_700, "x" * 100_000, "日" * 30_000, "." * 100_000):
        (translation,) = echo(tokenizers, EchoEngine(max_length=1024)).translate([line])
        assert translation.text == line


def test_scores_of_parts_add_up(tokenizers, transformer):
    long = " ".join(TEXTS * 3)
    translator = make_translator(transformer, tokenizers, n_best=2)
    (translation,) = translator.translate([long])
    assert SPLIT in translation.flags
    assert translation.score == pytest.approx(translation.log_prob / translation.tokens)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
def test_the_first_of_the_n_best_is_the_translation_without_them(tokenizers, length_penalty):
    """Also of lines in parts, though what the parts' second translations make together may score better."""

    def ranked(ids, config):
        draw, found = random.Random(str(ids)), []
        for _ in range(5):
            target, log_prob = draw.choices(ids, k=draw.randint(1, 9)), draw.uniform(-5, 0)
            found.append(
                Hypothesis(tuple(target), log_prob, normalized_score(log_prob, len(target) + 1, length_penalty), True)
            )
        return sorted(found, key=lambda one: -one.score)[: config.n_best]

    draw, words = random.Random(3), " ".join(TEXTS).split()
    lines = [" ".join(draw.choices(words, k=draw.choice([1, 4, 20, 40, 60]))) for _ in range(200)]
    engine = EchoEngine(answer=ranked)
    alone = echo(tokenizers, engine, length_penalty=length_penalty).translate(lines)
    several = echo(tokenizers, engine, length_penalty=length_penalty, n_best=5).translate(lines)
    assert sum(SPLIT in one.flags for one in alone) > 50
    assert [replace(one, alternatives=()) for one in several] == alone
    for one in several:
        scores = [other.score for other in one.alternatives]
        assert scores == sorted(scores, reverse=True)
    overtaken = [one for one in several if one.alternatives[0].score > one.score]
    assert all(SPLIT in one.flags for one in overtaken)
    assert overtaken or length_penalty < 2


@pytest.mark.parametrize("tag", [">>deu<<", ">>pt_BR<< ", ">>zho_Hans<<  "])
def test_each_part_of_a_long_line_begins_with_its_language(tokenizers, tag):
    engine, line = EchoEngine(max_length=128), " ".join(f"{number}: {text}" for number, text in enumerate(TEXTS * 6))
    (translation,) = echo(tokenizers, engine).translate([tag + line])
    read = [tokenizers.source.decode(ids) for ids in engine.seen]
    assert SPLIT in translation.flags
    assert all(text.startswith(tag) for text in read)
    assert " ".join(text.removeprefix(tag) for text in read) == line
    assert len(set(map(len, read))) > 1


def test_what_is_no_language_stands_where_it_stood(tokenizers):
    for line in (">>Hello there<< ", ">>deu ", "x >>deu<< ", ">>d<< ", ">>deu<<" * 30):
        engine = EchoEngine(max_length=128)
        text = line + " ".join(TEXTS * 6)
        (translation,) = echo(tokenizers, engine).translate([text])
        if not line.startswith(">>deu<<"):
            assert translation.text == text
        assert len(engine.seen) > 1


def test_equal_parts_are_searched_once_unless_they_are_sampled(tokenizers):
    lines = [TEXTS[0], TEXTS[1], TEXTS[0], "x" * 20_000]
    engine = EchoEngine()
    found = echo(tokenizers, engine).translate(lines, ["", "", "Der", ""])
    assert [one.text for one in found] == lines
    assert len(engine.seen) <= 3 + 2
    assert engine.seen.count(tuple(tokenizers.source.encode(TEXTS[0]))) == 2, "another prefix is another search"
    sampled = EchoEngine()
    echo(tokenizers, sampled, sample=True).translate([TEXTS[0]] * 3)
    assert len(sampled.seen) == 3
