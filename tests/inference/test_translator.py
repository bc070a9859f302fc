"""Laws of `Translator`: a translation for each line, whatever its neighbours; how models are loaded."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.echo import TEXTS, EchoEngine, echo, make_transformer, make_translator, tokenizers_of_texts

from seq2seq.config.corpora import DataConfig, SourceConfig
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import Config, ModelConfig, SearchConfig, TokenizerConfig
from seq2seq.errors import DataError, ModelError, UserError
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.translation import PartSpans
from seq2seq.inference.translator import Translator
from seq2seq.model.transformer import Transformer
from seq2seq.store.direction import single_languages
from seq2seq.store.model_folder import save_model
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

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


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return tokenizers_of_texts()


@pytest.fixture(scope="module")
def transformer(tokenizers) -> Transformer:
    return make_transformer(tokenizers)


@pytest.mark.parametrize("n_best", [1, 3])
def test_white_space_around_a_line_changes_only_places(tokenizers, transformer, n_best):
    translator = make_translator(transformer, tokenizers, beam_size=4, n_best=n_best)
    alone, between = translator.translate(TEXTS), translator.translate([f"  {text} " for text in TEXTS])
    for plain, spaced in zip(alone, between, strict=True):
        assert spaced.text == f"  {plain.text} "
        for one, other in zip([plain, *plain.alternatives], [spaced, *spaced.alternatives], strict=True):
            assert (one.log_prob, one.score, one.tokens) == (other.log_prob, other.score, other.tokens)
        assert plain.parts == (PartSpans((0, len(plain.source)), (0, len(plain.text)), False, plain.flags),)
        assert replace(plain.shifted(2, 2), source=spaced.source).parts == spaced.parts
        assert (plain.flags, plain.source, spaced.source) == (spaced.flags, spaced.source[2:-1], f"  {plain.source} ")


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


@pytest.mark.slow
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
        (dict(engine="tensorrt"), "engine 'tensorrt': choose one of auto, torch, ctranslate2"),
        (dict(quantization="int9"), "quantization 'int9': choose one of float32, .*did you mean 'int8'"),
        (dict(threads=0), "threads 0: must be a number of at least 1"),
        (dict(threads="2"), "threads '2': must be a number of at least 1"),
    ):
        with pytest.raises(UserError, match=problem):
            Translator.load(folder, **{"device": "cpu", **changes})
    with pytest.raises(UserError, match="must be text or a path; give several models one by one"):
        Translator.load([folder, folder])


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


def test_ensemble_of_two_directions_is_refused(tokenizers, tmp_path):
    for name in ("one", "two"):
        save(tmp_path / name, tokenizers)
    path = tmp_path / "two" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "source_language": "de", "target_language": "en"}))
    with pytest.raises(ModelError, match=r"two: translates de-en, but .*one translates en-de; an ensemble needs"):
        Translator.load(tmp_path / "one", tmp_path / "two", device="cpu")


def test_a_side_whose_language_each_text_chooses_has_none():
    """A model of OPUS-MT into a group of languages has no single target, because its texts begin with a tag."""
    described = [ModelDescription(source_language="en", target_language=name, model=ModelConfig()) for name in
                 ("roa", "spa")]  # fmt: skip
    tagged, plain = (SimpleNamespace(choices=names) for names in ({"target": ["spa", "fra"]}, {}))
    assert [single_languages(one, tagged) for one in described] == [("en", None), ("en", "spa")]
    assert [single_languages(one, plain) for one in described] == [("en", "roa"), ("en", "spa")]


def test_missing_model_is_said(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="no such folder"):
        Translator.load(tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="no run under runs/"):
        Translator.load()


def test_impossible_search_still_answers(tokenizers, transformer):
    for translation in make_translator(transformer, tokenizers, min_length=60).translate(TEXTS):
        assert math.isfinite(translation.score)
