"""`source: auto` is the language of what would be translated, in every format and way to ask. About 20 s."""

import json
from urllib.parse import urlencode

import pytest
from support.documents import LEADS, document
from support.our_models import make_many
from support.serving import ask_inside, quick_model

from seq2seq.serve.limits import Limits
from seq2seq.serve.models import load, sample_of
from seq2seq.serve.service import Service

TEXTS = {
    "de": ["Der Bahnhof liegt am Rande der Stadt.", "Wir gehen heute Abend nach Hause und lesen ein Buch."],
    "ru": ["Вокзал находится на окраине города.", "Сегодня вечером мы идём домой и читаем книгу."],
    "ja": ["駅は町のはずれにあります。", "今夜は家に帰って本を読みます。"],
}
ALIKE = {
    "zh_Hant": "我住在北京，每天坐地鐵上班。", "zh_Hans": "我住在北京，每天坐地铁上班。", "acm": None,
    "ar": "يعيش الرجل في المدينة ويعمل في المستشفى كل يوم",
}  # fmt: skip
WAYS = [
    pytest.param(form, lead, marks=pytest.mark.slow if number % 3 else ())
    for form, leads in LEADS.items()
    for number, lead in enumerate(leads)
]


def serving_inside(folder, **limits) -> Service:
    service = Service(load([folder], {"threads": 1}, {"device": "cpu", "threads": 1}), Limits(**limits))
    service.start()
    return service


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many") / "model"
    service = serving_inside(make_many(folder, ["en", *TEXTS], ["en", "fr"], "source"))
    yield service
    service.queue.close()


@pytest.fixture(scope="module")
def russian(tmp_path_factory):
    """A server whose only source language is Russian."""
    folder = quick_model(tmp_path_factory.mktemp("one") / "model")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"source_language": "en"', '"source_language": "ru"'))
    service = serving_inside(folder)
    yield service
    service.queue.close()


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """A server of a model of languages that are not told apart, the members of a macrolanguage first."""
    folder = tmp_path_factory.mktemp("alike") / "model"
    service = serving_inside(make_many(folder, ["yue", *ALIKE, "arz", "en"], ["en", "fr"], "source"))
    yield service
    service.queue.close()


def ask(service: Service, path: str, **fields) -> tuple[int, list[dict]]:
    """The status, and the lines of an answer."""
    first, *rest = ask_inside(service, path, json.dumps({"source": "auto", **fields}).encode())
    return first["status"], [json.loads(line) for line in b"".join(one["body"] for one in rest).splitlines()]


@pytest.mark.parametrize(("form", "lead"), WAYS)
def test_the_language_of_a_document_is_that_of_its_text(many, form, lead):
    """However much stands before the text, in a document alone or among others, whole or streamed, in both APIs."""
    for language, paragraphs in TEXTS.items():
        text = document(form, lead, 40, paragraphs)
        several = [document(form, lead, 1, []), document(form, lead, 1, paragraphs)]
        for asked in ({"text": text}, {"text": several, "stream": True}):
            status, lines = ask(many, "/v1/translate", **asked, format=form, target="fr")
            assert (status, lines[-1].get("source")) == (200, language), lines
        if form == "html":
            status, lines = ask(many, "/translate", q=text, format=form, target="fr")
            assert (status, lines[0]["detectedLanguage"]["language"]) == (200, language)
            assert lines[0]["detectedLanguage"]["confidence"] > 90


@pytest.mark.parametrize(("form", "lead"), WAYS)
def test_a_document_is_refused_by_its_text_if_only_one_language_fits(russian, form, lead):
    for language, paragraphs in TEXTS.items():
        status, (answer,) = ask(russian, "/v1/translate", text=document(form, lead, 40, paragraphs), format=form)
        if language == "ru":
            assert status == 200
        else:
            assert (status, "not in Russian" in answer["error"]["message"]) == (400, True)


def test_a_text_is_judged_with_its_markup_only_if_it_has_a_format(many):
    """The sample of texts without a format, and that of `/detect`, is their beginning as it is."""
    text = document("html", "styles", 40, TEXTS["de"])
    assert sample_of([text, "x"]) == f"{text} x"[:1_000]
    assert ask(many, "/v1/translate", text=text, target="fr")[1][0]["source"] == "en"
    assert ask(many, "/detect", q=text)[1][0][0]["language"] == "en"


@pytest.mark.parametrize("place", [0, 1])
def test_a_document_that_is_not_of_its_format_is_refused_for_that(many, place):
    """And not because its language is not clear; the field is that of a request with a source."""
    texts = ["<r>Дом</r>", "<r>Дом</r>"]
    texts[place] = "<r>12</s>"
    for given in (texts, texts[place]):
        asked = {"text": given, "format": "xml", "target": "fr"}
        found, named = (ask(many, "/v1/translate", **asked, source=source) for source in ("auto", "ru"))
        assert (found[0], found[1]) == (named[0], named[1])
        assert "not well-formed" in found[1][0]["error"]["message"]


@pytest.mark.parametrize(("language", "text"), [pair for pair in ALIKE.items() if pair[1]])
def test_a_text_is_in_the_language_itself_and_in_no_member_of_it(alike, language, text):
    """Both APIs, `/detect` and the form say so."""
    (answer,) = ask(alike, "/v1/translate", text=text, target="fr")[1]
    assert answer["source"] == language
    (answer,) = ask(alike, "/translate", q=text, target="fr")[1]
    code = language.replace("_", "-")
    assert answer["detectedLanguage"]["language"] == ask(alike, "/detect", q=text)[1][0][0]["language"] == code
    forms = []
    for source in ("auto", language):
        fields = urlencode({"text": text, "direction": 0, "source": source, "target": "fr"}).encode()
        parts = ask_inside(alike, "/", fields, kind="application/x-www-form-urlencoded")
        forms.append(parts[1]["body"].partition(b"<output")[2].partition(b"</output>")[0])
    assert forms[0] == forms[1] != b""


def test_a_text_of_several_members_has_no_clear_language(tmp_path):
    service = serving_inside(make_many(tmp_path / "model", ["acm", "arz", "en"], ["en", "fr"], "source"))
    for path, field, words in (("/v1/translate", "text", "acm, arz, en"), ("/translate", "q", "not clear")):
        status, (answer,) = ask(service, path, **{field: ALIKE["ar"]}, target="fr")
        assert (status, words in str(answer["error"])) == (400, True), answer
    assert [one["language"] for one in ask(service, "/detect", q=ALIKE["ar"])[1][0]] == ["acm", "arz"]
    service.queue.close()


def test_a_request_over_a_limit_is_refused_before_it_is_read(many):
    """A refusal for its form or language would need the time of parsing."""
    for texts in ["<r>" + "a" * 300_000, ["<r>a"] * 101]:
        status, (answer,) = ask(many, "/v1/translate", text=texts, format="xml", target="fr")
        assert (status, answer["error"]["code"]) == (413, "too_large")
