"""The languages of LibreTranslate's API: each is listed once, under a code that leads to it and a name of its own.

The names of languages mean the same in both APIs and in the commands.
"""

import asyncio
import random
from itertools import product

import pytest
from support.listed import Listed

from seq2seq.errors import UserError
from seq2seq.languages import is_same_language
from seq2seq.serve.guard import Keys
from seq2seq.serve.libretranslate import LibreTranslate
from seq2seq.serve.limits import Limits, Refusal
from seq2seq.serve.models import Models
from seq2seq.serve.service import Service
from seq2seq.text.direction import find_language

tokenization = pytest.importorskip("transformers.models.nllb.tokenization_nllb")
NLLB = list(tokenization.FAIRSEQ_LANGUAGE_CODES)
MBART = ["ar_AR", "cs_CZ", "de_DE", "en_XX", "fr_XX", "ja_XX", "pt_XX", "zh_CN"]
M2M = ["ar", "de", "en", "fa", "fr", "ja", "pt", "sr", "zh"]
# The languages of served models: a pair, or many.
SERVERS = {
    "one pair": [("en", "de")],
    "many": [NLLB],
    "a pair and many": [("en", "de"), NLLB],
    "three of many": [MBART, M2M, NLLB],
    "a pair with the short name of several": [("zh", "en"), NLLB],
    "a pair with a script": [("zh-Hans", "en"), NLLB],
    "two regions and many": [("en", "pt_BR"), ("en", "pt_PT"), NLLB],
    "a region and many": [("en", "pt_BR"), NLLB, MBART],
    "another script": [("en", "srp_Latn"), ["eng_Latn", "srp_Cyrl", "deu_Latn"]],
    "a member and its macrolanguage": [("en", "yue"), ("en", "zh"), M2M],
    "two languages with one code": [("en", "fa"), ["eng_Latn", "pes_Arab", "prs_Arab"]],
}


def api_of(*known) -> LibreTranslate:
    models = Models(Listed(f"model {number}", languages) for number, languages in enumerate(known))
    return LibreTranslate(Service(models, Limits()), Keys())


@pytest.mark.parametrize("known", SERVERS.values(), ids=SERVERS)
def test_each_listed_direction_is_answered_and_each_entry_is_told_apart(known):
    api = api_of(*known)
    codes, names = ([one[key] for one in api._languages] for key in ("code", "name"))
    assert (len(set(codes)), len(set(names))) == (len(codes), len(codes))
    assert {code for one in api._languages for code in one["targets"]} <= set(codes)
    directions = [(one["code"], target) for one in api._languages for target in one["targets"]]
    for source, target in random.Random(1).sample(directions, min(300, len(directions))):
        model = api._model(source, target)
        if source != target:
            assert is_same_language(source, model.source)
            assert is_same_language(target, model.target)
    for answer in (asyncio.run(api._guess(["12"])), [{"language": api._first["code"]}]):
        assert answer[0]["language"] in codes


@pytest.mark.parametrize("known", [SERVERS["a pair and many"], SERVERS["three of many"], SERVERS["one pair"]])
def test_a_language_of_several_models_is_one_language_with_the_targets_of_all(known):
    listed = {one["code"]: one for one in api_of(*known)._languages}
    for code, name in (("en", "English"), ("de", "German")):
        assert [one["code"] for one in listed.values() if one["name"].startswith(name)] == [code]
    if len(known) > 1:
        assert {"en", "de", "fr"} <= set(listed["de"]["targets"]) & set(listed["en"]["targets"])


@pytest.mark.parametrize("known", [[NLLB], [("en", "de"), NLLB], [("en", "pt_BR"), ("en", "pt_PT")]])
def test_a_name_of_several_languages_is_refused_with_their_names(known):
    """The message is that of `/v1`, on either side, and also where the source is that of the text."""
    name, words = ("pt", "en to pt_BR, en to pt_PT") if len(known) > 1 and NLLB not in known else ("zh", "zho_Hans")
    api = api_of(*known)
    with pytest.raises(Refusal, match=words):
        api._model("en", name)
    if name == "zh":
        with pytest.raises(Refusal, match="several languages have this name; name one of zho_Hans, zho_Hant"):
            api._model("zh", "en")
    assert api._has("en", name)


def test_a_pair_that_no_model_has_is_refused_as_by_libretranslate():
    with pytest.raises(Refusal, match=r"English \(en\) is not available as a target language from German \(de\)"):
        api_of(("en", "de"))._model("de", "en")


# The languages of models with members of macrolanguages or several forms, and names of these.
FORMS = [
    ["en", "no"], ["en", "nb"], ["en", "nn"], ["en", "nob_Latn", "nno_Latn"], ["en", "no", "nn"], ["en", "zh"],
    ["en", "yue"], ["en", "zho_Hans", "zho_Hant", "yue_Hant"], ["en", "ar"], ["en", "arz"], ["en", "acm", "arb_Arab"],
    ["en", "srp_Cyrl", "srp_Latn"], ["en", "kat"], M2M, MBART, NLLB,
]  # fmt: skip
NAMES = ["no", "nb", "nn", "nor", "nob_Latn", "Norwegian", "norsk", "bokmål", "zh", "yue", "cmn", "zho_Hant", "Chinese"]
NAMES += ["ar", "arz", "arb", "Arabic", "sr", "srp_Cyrl", "xx"]


@pytest.mark.parametrize("known", FORMS, ids=lambda known: " ".join(known[:4]))
def test_a_name_means_the_same_in_both_apis_and_in_the_commands(known):
    """The same language, the same languages of which one has to be named, or none."""
    api = api_of(known)
    sides = {"source": lambda name: (name, "en"), "target": lambda name: ("en", name)}
    for name, side, ask in product(NAMES, sides, (api._model, api._service.models.translator)):
        try:
            expected = find_language(name, known, "--to")
        except UserError as error:
            listed = str(error).partition("several such languages: ")[2].partition(";")[0]
            expected = f"several languages have this name; name one of {listed}" if listed else None
        try:
            found = getattr(ask(*sides[side](name)), side)
        except Refusal as refusal:
            is_unknown = "is not supported" in refusal.message or "no model translates" in refusal.message
            found = None if is_unknown else refusal.message
        assert found == expected, (name, side)
