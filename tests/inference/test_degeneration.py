"""Degenerate translations: their symptoms, the second search for them, and how they are counted."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.echo import TEXTS, EchoEngine, echo, tokenizers_of_texts

from seq2seq.config.schema import SearchConfig
from seq2seq.inference.degeneration import (
    COPY,
    EMPTY,
    LONG,
    LOOP,
    REPAIRED,
    SHORT,
    SPLIT,
    has_loop,
    remedy,
    repeats,
    summary,
    symptom_counts,
    symptoms,
)
from seq2seq.search.base import Hypothesis, Sentence
from seq2seq.text.tokenizer import TokenizerPair


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return tokenizers_of_texts()


def test_a_line_most_of_whose_many_parts_are_degenerate_is_searched_once(tokenizers):
    loop = [hypothesis(tokenizers.target.encode("na na") * 10)]
    engine = EchoEngine(answer=lambda ids, config: loop)
    long, short = " ".join(f"{number} {text}" for number, text in enumerate(TEXTS * 8)), "Where is the station?"
    translations = echo(tokenizers, engine).translate([long, short])
    assert all(LOOP in one.flags and REPAIRED not in one.flags for one in translations)
    assert len(engine.configs) == 2
    assert len(engine.seen) == len(set(engine.seen)) + 1


def test_what_is_hopeless_does_not_depend_on_other_lines(tokenizers):
    """Other lines hold the same parts, whose search they share."""
    loop = tokenizers.target.encode("na na") * 10
    engine = EchoEngine(answer=lambda ids, config: [hypothesis(ids[::-1] if config.no_repeat_ngram else loop)])
    line = " ".join(f"{number} {text}" for number, text in enumerate(TEXTS * 2))
    (alone,) = echo(tokenizers, engine).translate([line])
    assert LOOP in alone.flags
    assert REPAIRED not in alone.flags
    parts = [tokenizers.source.decode(ids) for ids in engine.seen]
    together = echo(tokenizers, engine).translate([*parts, line, *parts])
    assert together[len(parts)] == alone
    assert all(one.flags == (LOOP, REPAIRED) for one in together if one is not together[len(parts)])


def hypothesis(ids: Sequence[int], finished: bool = True) -> Hypothesis:
    return Hypothesis(tuple(ids), -1.0, -0.1, finished)


def test_symptoms_are_told():
    source, ids = "A man rides a red bicycle", list(range(20))
    good = hypothesis(range(100, 118))
    assert symptoms(source, ids, "Ein Mann fährt Rad", good) == ()
    assert symptoms(source, ids, " ", hypothesis([])) == (EMPTY,)
    assert symptoms(source, ids, "Ein", hypothesis([5])) == (SHORT,)
    assert symptoms(source, ids, "Ein Mann", hypothesis(range(18), finished=False)) == (LONG,)
    assert symptoms(source, ids, "Mann Mann", hypothesis([1, 2] * 9)) == (LOOP,)
    assert symptoms(source, [7] * 20, "nein nein", hypothesis([1] * 20)) == ()
    assert symptoms(source, ids, source, hypothesis(ids)) == (COPY,)
    assert symptoms("Angela Merkel", [1, 2], "Angela Merkel", hypothesis([1, 2])) == ()


def test_loops_are_runs_of_a_period():
    assert has_loop([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 8])
    assert has_loop([4] * 10)
    assert not has_loop([4] * 9)
    assert not has_loop([1, 2, 3] * 3)
    assert not has_loop(list(range(100)))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["no", "NO", "cat", "sat", "5", ",", "哈"]), max_size=40))
def test_repeated_words_are_found_wherever_they_begin(words):
    """Up to 8 words, 4 times in a row, at least one with a letter or digit. No word here repeats its own letters."""
    folded = [word.casefold() for word in words]
    runs = (folded[begin : begin + 4 * period] for period in range(1, 9) for begin in range(len(words)))
    loops = (run for run in runs if len(run) % 4 == 0 and run and run[: len(run) // 4] * 4 == run)
    assert repeats(" ".join(words)) == any(any(word != "," for word in run) for run in loops)


def test_remedies():
    config, sentence = SearchConfig(beam_size=2), Sentence([7] * 20)
    assert remedy((LOOP,), sentence, config) == (sentence, config.model_copy(update={"no_repeat_ngram": 3}))
    assert remedy((SHORT,), sentence, config) == (replace(sentence, min_length=6), config)
    assert remedy((EMPTY,), Sentence([7]), config) == (Sentence([7], min_length=1), config)
    assert remedy((COPY,), sentence, config) is None
    assert remedy((LOOP,), sentence, SearchConfig(no_repeat_ngram=3)) is None
    assert remedy((LOOP,), sentence, SearchConfig(sample=True)) is None


def test_second_searches_of_empty_translations_are_one_call(tokenizers):
    """Each has a minimum length of its own."""
    engine = EchoEngine(answer=lambda ids, config: [hypothesis([])])
    lines = [TEXTS[3][:count] for count in (8, 16, 24)]
    assert all(EMPTY in one.flags for one in echo(tokenizers, engine).translate(lines))
    assert len(engine.configs) == 2
    assert engine.min_lengths == [*[0] * len(lines), *(len(ids) // 3 for ids in engine.seen[: len(lines)])]
    assert len(set(engine.min_lengths)) == 1 + len(lines)


def test_degenerate_translations_are_searched_for_again(tokenizers):
    loop = tokenizers.target.encode("na na") * 10

    def stutter(ids, config):
        return [hypothesis(ids[::-1] if config.no_repeat_ngram else loop)]

    engine = EchoEngine(answer=stutter)
    (translation,) = echo(tokenizers, engine).translate(["A man rides."])
    assert translation.flags == (LOOP, REPAIRED)
    assert translation.text == tokenizers.target.decode(tokenizers.source.encode("A man rides.")[::-1])
    assert len(engine.configs) == 2

    hopeless = EchoEngine(answer=lambda ids, config: [hypothesis(loop)])
    (translation,) = echo(tokenizers, hopeless).translate(["A man rides."])
    assert translation.flags == (LOOP,)
    assert translation.text == tokenizers.target.decode(loop)
    assert len(hopeless.configs) == 2  # once more, and not again


def test_a_line_is_repaired_where_each_of_its_parts_is(tokenizers):
    loop = tokenizers.target.encode("na na") * 10
    line = " ".join(TEXTS * 3)

    def half_cured(ids, config):
        return [hypothesis(ids[::-1] if config.no_repeat_ngram and len(ids) % 2 else loop)]

    def cured(ids, config):
        return [hypothesis(ids[::-1] if config.no_repeat_ngram else loop)]

    for answer, expected in ((half_cured, (LOOP, SPLIT)), (cured, (LOOP, REPAIRED, SPLIT))):
        engine = EchoEngine(answer=answer)
        (translation,) = echo(tokenizers, engine).translate([line])
        assert {len(ids) % 2 for ids in engine.seen} == {0, 1}
        assert translation.flags == expected
        assert symptom_counts([translation.flags])[0] == (REPAIRED not in expected)


def test_the_summary_counts_lines_and_not_their_symptoms():
    flags = {(): 150, (SPLIT,): 40, (LOOP, REPAIRED): 5, (LONG, LOOP, REPAIRED, SPLIT): 1, (COPY,): 4}
    assert summary(Counter(flags)) == (
        "10 of 200 lines came out degenerate (loop 6, copy 4, long 1); "
        "a second search repaired 6, so 4 remain degenerate"
    )
    assert summary(Counter({(): 2, (SPLIT,): 1})) == "0 of 3 lines came out degenerate"
    assert summary(Counter({(EMPTY,): 1})).startswith("1 of 1 line came out degenerate (empty 1)")
