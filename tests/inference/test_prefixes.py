"""Translations begin with a given text exactly, wherever it ends, with both engines."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.our_models import make_ours, our_tokenizers

from seq2seq.config.schema import SearchConfig
from seq2seq.errors import DataError
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


@pytest.mark.parametrize("last", ["wo", "Lehrerinnen", "wo "])
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_every_prefix_that_the_limit_allows_is_kept(engine, last, model, engines):
    """Also with a last word that has longer spellings than the positions that are left."""
    translator = Translator(engines[engine], model.tokenizers, SearchConfig(beam_size=3), repair=False)
    count = 0
    while translator.takes_prefix(prefix := "wo " * count + last):
        assert translator.translate(["where is the cat?"], [prefix])[0].text.startswith(prefix.rstrip())
        count += 1
    assert count > 20
    with pytest.raises(DataError, match="shorten it"):
        translator.translate(["where is the cat?"], [prefix])


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
