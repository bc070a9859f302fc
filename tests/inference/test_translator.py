"""Laws of `Translator`: a translation for each line, whatever the line, its length and its neighbours."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config.corpora import DataConfig, SourceConfig
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import Config, ModelConfig, SearchConfig, TokenizerConfig
from seq2seq.errors import DataError, ModelError, UserError
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
    summary,
    symptom_counts,
    symptoms,
)
from seq2seq.inference.engines import TorchEngine
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.translator import Translator
from seq2seq.model.transformer import Transformer
from seq2seq.search.base import Hypothesis, normalized_score
from seq2seq.store.model_folder import save_model
from seq2seq.text.splitting import split_text
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.text.untranslatable import VERBATIM

TEXTS = [
    "A man rides a red bicycle.",
    "Two dogs play in the snow!",
    "Eine Frau liest ein Buch.",
    "Der Hund schläft, und die Katze sieht zu.",
    "Where is the station?",
]
ANY_LINE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "",
            " ",
            "\t",
            "\u00a0",
            "\u2028",
            "\x85",
            "\f",
            "\r",
            "\x00",
            "\ud800",
            "\u200f",
            "😀😀",
            "日本語。",
            "▁",
            "a\nb",
        ]
    ),
    st.sampled_from(TEXTS),
)


class EchoEngine:
    """Answers with the source, or with what `answer` makes of it."""

    def __init__(self, max_length: int = 64, answer=lambda ids, config: [Hypothesis(tuple(ids), -1.0, -0.1, True)]):
        self.max_length, self.answer = max_length, answer
        self.seen: list[tuple[int, ...]] = []
        self.configs: list[SearchConfig] = []

    def translate(self, sentences, config):
        assert all(0 < len(sentence.source_ids) < self.max_length for sentence in sentences)
        self.seen += [tuple(sentence.source_ids) for sentence in sentences]
        self.configs.append(config)
        return [self.answer(sentence.source_ids, config) for sentence in sentences]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    tokenizer = Tokenizer.train(TEXTS * 10, TokenizerConfig(vocab_size=330), seed=1)
    return TokenizerPair(tokenizer, tokenizer)


@pytest.fixture(scope="module")
def transformer(tokenizers) -> Transformer:
    return make_transformer(tokenizers)


def make_transformer(tokenizers: TokenizerPair, seed: int = 0, **shape) -> Transformer:
    torch.manual_seed(seed)
    config = ModelConfig(**{"preset": "tiny", "d_model": 32, "d_ff": 64, "max_length": 64, **shape})
    model = Transformer(config, tokenizers.source.vocab_size, tokenizers.target.vocab_size).eval()
    with torch.no_grad():
        model.output.weight.mul_(3)  # an untrained model is nearly indifferent: its choices would be coin tosses
    return model


def make_translator(model: Transformer, tokenizers: TokenizerPair, **search) -> Translator:
    search = {"beam_size": 3, "max_length_ratio": 1.0, "max_length_offset": 3, **search}
    steps = TransformerSteps(model, tokenizers, torch.device("cpu"))
    return Translator(TorchEngine(steps), tokenizers, SearchConfig(**search))


def echo(tokenizers: TokenizerPair, engine: EchoEngine | None = None, **search) -> Translator:
    return Translator(engine or EchoEngine(), tokenizers, SearchConfig(**search))


@settings(max_examples=20, deadline=None)
@given(lines=st.lists(ANY_LINE, max_size=8))
def test_every_line_has_one_line_of_translation(tokenizers, transformer, lines):
    translations = make_translator(transformer, tokenizers, max_length_offset=1).translate(lines)
    assert len(translations) == len(lines)
    for line, translation in zip(lines, translations, strict=True):
        assert "\n" not in translation.text
        assert "\r" not in translation.text
        translation.text.encode("utf-8")
        assert translation.source == line
        if not line.strip():
            assert (translation.text, translation.tokens, translation.score) == ("", 0, 0.0)
            assert translation.flags == ()


def test_blank_lines_never_reach_the_model(tokenizers):
    engine = EchoEngine()
    echo(tokenizers, engine).translate(["", "  ", "\t\u2028\u00a0", "\r\n", "A man."])
    assert engine.seen == [tuple(tokenizers.source.encode("A man."))]


@pytest.mark.parametrize("search", [dict(beam_size=1), dict(), dict(n_best=3), dict(sample=True)])
def test_neighbours_and_batches_change_nothing(tokenizers, transformer, search):
    lines = [*TEXTS, "", "A man rides a red bicycle in the snow. " * 4, TEXTS[0]]
    several = make_translator(transformer, tokenizers, **search).translate(lines)
    small = make_translator(transformer, tokenizers, **search, batch_tokens=1).translate(lines)
    translator = make_translator(transformer, tokenizers, **search)
    alone = [translator.translate([line], first_line=number)[0] for number, line in enumerate(lines)]
    for one, two, three in zip(several, small, alone, strict=True):
        assert one.text == two.text == three.text
        assert [a.text for a in one.alternatives] == [a.text for a in three.alternatives]


def test_stream_is_translated_as_the_lines_at_once(tokenizers, transformer):
    translator = make_translator(transformer, tokenizers, sample=True)
    streamed = list(Pipeline(translator).translate_stream([TEXTS[:2], [""], TEXTS[2:]]))
    assert [len(batch) for batch in streamed] == [2, 1, 3]
    at_once = translator.translate([*TEXTS[:2], "", *TEXTS[2:]])
    assert [t.text for batch in streamed for t in batch] == [t.text for t in at_once]


def test_forced_prefix_begins_the_text(tokenizers, transformer):
    prefixes = ["Der Hund", "", "Zwei Hunde spielen ", "x", "日本"]
    free = make_translator(transformer, tokenizers).translate(TEXTS)
    forced = make_translator(transformer, tokenizers).translate(TEXTS, prefixes)
    for prefix, without, translation in zip(prefixes, free, forced, strict=True):
        assert translation.text.startswith(prefix.rstrip())
        assert prefix or translation == without
    assert make_translator(transformer, tokenizers).translate([""], ["Der"])[0].text == ""


def test_prefixes_that_do_not_fit_are_said(tokenizers, transformer):
    translator = make_translator(transformer, tokenizers)
    with pytest.raises(DataError, match="prefixes: 1, lines: 2;"):
        translator.translate(["a", "b"], ["c"])
    with pytest.raises(DataError, match=r"prefix of line 2: \d+ pieces, but the model has room for 63"):
        translator.translate(["a", "b"], ["", "x" * 300])
    with pytest.raises(DataError, match="prefixes: 3, lines: more than 3;"):
        list(Pipeline(translator).translate_stream([["a", "b"], ["c", "d"]], iter(["", "", ""])))
    with pytest.raises(DataError, match="prefixes: 6, lines: 4;"):
        list(Pipeline(translator).translate_stream([["a", "b"], ["c", "d"]], iter([""] * 6)))
    with pytest.raises(TypeError):
        translator.translate("one text")


def test_alternatives_are_ranked(tokenizers, transformer):
    for translation in make_translator(transformer, tokenizers, beam_size=5, n_best=5).translate(TEXTS):
        texts = [one.text for one in (translation, *translation.alternatives)]
        assert len(set(texts)) == len(texts) <= 5
        every = [translation, *translation.alternatives]
        finished = [one for one in every if one.tokens > 0]
        assert translation.score == pytest.approx(translation.log_prob / translation.tokens)
        assert len({one.score for one in finished}) > 1


# --- long lines ---


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
@given(
    st.lists(st.sampled_from([*TEXTS, "  ", "\u2028", "日本語。", "x" * 150]), min_size=1, max_size=30),
    st.sampled_from(["", " ", "  "]),
)
def test_long_line_comes_back_whole(tokenizers, sentences, space):
    line = space.join(sentences)
    (translation,) = echo(tokenizers).translate([line])
    assert translation.text.strip() == line.strip()
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


# --- degenerate output ---


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


def test_remedies():
    config = SearchConfig(beam_size=2)
    assert remedy((LOOP,), 20, config).no_repeat_ngram == 3
    assert remedy((SHORT,), 20, config).min_length == 6
    assert remedy((EMPTY,), 1, config).min_length == 1
    assert remedy((COPY,), 20, config) is None
    assert remedy((LOOP,), 20, SearchConfig(no_repeat_ngram=3)) is None
    assert remedy((LOOP,), 20, SearchConfig(sample=True)) is None


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


# --- loading ---


def save(folder, tokenizers: TokenizerPair, seed: int = 0, search: dict | None = None):
    model = make_transformer(tokenizers, seed)
    source = SourceConfig(source="a", target="b")
    config = Config(
        source_language="en",
        target_language="de",
        data=DataConfig(train=source, valid=source),
        model=model.config,
        search=SearchConfig(**(search or {})),
    )
    return save_model(folder, model.state_dict(), ModelDescription.of(config), tokenizers)


def test_loaded_model_translates_as_the_one_saved(tokenizers, tmp_path):
    search = dict(beam_size=3, max_length_ratio=1.0, max_length_offset=3)
    folder = save(tmp_path / "model", tokenizers, search=search)
    loaded = Translator.load(folder, engine="torch", device="cpu")
    assert loaded.config.beam_size == 3
    made = make_translator(make_transformer(tokenizers), tokenizers)
    assert [t.text for t in loaded.translate(TEXTS)] == [t.text for t in made.translate(TEXTS)]


def test_overrides_are_checked(tokenizers, tmp_path):
    folder = save(tmp_path / "model", tokenizers)
    assert Translator.load(folder, device="cpu", beam_size=2, length_penalty=0.5).config.beam_size == 2
    for changes, problem in (
        (dict(beam_size=0), "search.beam_size"),
        (dict(n_best=9), "n_best 9 is more than beam_size 5"),
        (dict(temperature=2.0), "need sample: true"),
        (dict(beam_sise=3), "did you mean 'beam_size'"),
    ):
        with pytest.raises(UserError, match=problem):
            Translator.load(folder, device="cpu", **changes)


def test_ensemble_of_a_model_with_itself_is_the_model(tokenizers, tmp_path):
    one, two = save(tmp_path / "one", tokenizers, 1), save(tmp_path / "two", tokenizers, 2)
    search = dict(engine="torch", device="cpu", max_length_ratio=1.0, max_length_offset=3, no_repeat_ngram=3)
    single = [t.text for t in Translator.load(one, **search).translate(TEXTS)]
    assert [t.text for t in Translator.load(one, one, **search).translate(TEXTS)] == single
    assert [t.text for t in Translator.load(one, two, **search).translate(TEXTS)] != single


def test_ensemble_of_two_vocabularies_is_refused(tokenizers, tmp_path):
    other = Tokenizer.train(["Something else entirely."] * 9, TokenizerConfig(vocab_size=300), seed=1)
    one = save(tmp_path / "one", tokenizers)
    two = save(tmp_path / "two", TokenizerPair(other, other))
    with pytest.raises(ModelError, match="vocabulary"):
        Translator.load(one, two, device="cpu")


def test_missing_model_is_said(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="no such folder"):
        Translator.load(tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="no run under runs/"):
        Translator.load()


def test_impossible_search_still_answers(tokenizers, transformer):
    for translation in make_translator(transformer, tokenizers, min_length=60).translate(TEXTS):
        assert math.isfinite(translation.score)
