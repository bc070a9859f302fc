"""Translations begin with a given text exactly, wherever it ends, with both engines."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.our_models import make_ours, our_tokenizers

from seq2seq.config.schema import SearchConfig
from seq2seq.inference.ctranslate2_engine import CTranslate2Engine
from seq2seq.inference.prefixes import MOST_SPELLINGS, Prefixes
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator
from seq2seq.interop import ctranslate2_export
from seq2seq.text.scripts import lower, title
from seq2seq.text.spellings import Spellings


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_ours(tmp_path_factory.mktemp("prefixes") / "model", ending=4.0)


@pytest.fixture(scope="module")
def engines(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefixes") / "export"
    folder.mkdir()
    ctranslate2_export.write_ctranslate2(folder, model.model, model.description, model.tokenizers, "float32")
    torch_engine = TorchEngine(TransformerSteps(model.model, model.tokenizers, torch.device("cpu")))
    return {"torch": torch_engine, "ctranslate2": CTranslate2Engine(folder, model.tokenizers, 80)}


TEXT = "die Katze saß auf  der Matte, und 你 niemand 😀 kennt ihn. "
PREFIXES = [TEXT[:end] for end in range(len(TEXT) + 1)] + ["  wo is", "\two ", "猫", "ß", "e\u0301", "\u2581x"]


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_text_that_is_cut_anywhere_is_kept(engine, beam_size, model, engines):
    config = SearchConfig(beam_size=beam_size, n_best=beam_size)
    translator = Translator(engines[engine], model.tokenizers, config, repair=False)
    found = translator.translate(["where is the cat?"] * len(PREFIXES), PREFIXES)
    for prefix, one in zip(PREFIXES, found, strict=True):
        texts = [other.text for other in (one, *one.alternatives)]
        assert not prefix.strip() or all(text.startswith(prefix.replace("\n", " ")) for text in texts), prefix
        assert len({" ".join(text.split()) for text in texts}) == len(texts)


@pytest.mark.parametrize("text", ["wo ist die Lehrerin", "wo ist die ", "你"])
def test_every_spelling_of_the_last_word_leaves_room_for_the_end(text):
    """Else CTranslate2 ends in an error, because it has no position for the last ids of some spellings."""
    tokenizers = our_tokenizers(True)
    prefixes, usual = Prefixes(tokenizers), len(tokenizers.target.encode(text.strip()))
    assert prefixes.prefix(text).opening
    for max_length in range(usual + 1, usual + 40):
        found = prefixes.prefix(text, max_length=max_length)
        longest = len(found.ids) + (len(found.opening.steps) if found.opening else 0)
        assert longest + bool(found.opening) < max_length
        assert found.text.strip() == text.strip()
    assert found.opening


@settings(max_examples=80, deadline=None)
@given(word=st.text(st.sampled_from("aehnst ßü"), min_size=1, max_size=6).filter(str.strip))
def test_a_suppressed_word_is_not_the_beginning_of_another(word):
    """Only where longer words are asked for too."""
    tokenizers = our_tokenizers(True)
    spellings, prefixes = Spellings(tokenizers), Prefixes(tokenizers)
    whole, longer = (prefixes.forbidden({word: has_longer}) for has_longer in (False, True))
    forms = {
        spellings.spelled(tokenizers.target.encode(form))
        for form in (word, lower(word[:1], None) + word[1:], title(word, None))
    }
    assert {spellings.spelled(ids) for ids in whole} == forms
    assert set(longer) >= {ids for ids in whole if len(longer) < MOST_SPELLINGS}
    assert all(any(spellings.spelled(ids).startswith(form) for form in forms) for ids in longer)


@settings(max_examples=80, deadline=None)
@given(text=st.text(st.sampled_from("aehnst ßü你"), min_size=1, max_size=12).filter(str.strip))
def test_every_way_to_spell_an_opening_begins_with_the_text(text):
    tokenizers = our_tokenizers(True)
    prefix = Prefixes(tokenizers).prefix(text)
    assert prefix.restored(prefix.spelled) == text
    if prefix.opening and not text[-1].isspace():
        rest = Spellings(tokenizers).spelled(tokenizers.target.encode(text.strip()))
        for ids in Spellings(tokenizers).sequences(rest[len(rest) - len(prefix.opening.steps) :], 200, 3):
            whole = tokenizers.target.decode((*prefix.ids, *ids)).split("\ufffd")[0]
            assert prefix.restored(whole).startswith(text)
