"""A server of models of many languages: each request has its direction, over one engine, as `s2s translate` has it."""

import asyncio
import json
import shutil
import threading
from pathlib import Path

import pytest
from support.foreign_models import LANGUAGES, SOURCE, make_marian
from support.multilingual_models import make_multilingual
from support.our_models import make_many
from support.serving import quick_model, serving

from seq2seq.cli import main
from seq2seq.errors import UserError
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.translator import Translator
from seq2seq.languages import languages_named, own_code
from seq2seq.serve.limits import Limits, Refusal
from seq2seq.serve.models import Models, load
from seq2seq.serve.queue import Text
from seq2seq.serve.schemas import TranslateRequest
from seq2seq.serve.served import Settings, _fits
from seq2seq.serve.service import Service
from seq2seq.text.direction import Direction

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

DIRECTIONS = [("en", "de"), ("de", "en"), ("en", "fr"), ("fra_Latn", "jpn_Jpan")]
LINES = SOURCE[:6]


@pytest.fixture(scope="module")
def place(tmp_path_factory, trained_nllb) -> Path:
    place = tmp_path_factory.mktemp("models")
    shutil.copytree(trained_nllb, place / "nllb")
    make_multilingual(place / "mbart25", "mbart25")
    make_marian(place / "opus", languages=LANGUAGES)
    quick_model(place / "pair")
    make_many(place / "fan", ["en"], ["de", "fr"], "both")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(place / "cache"))
        yield place


@pytest.fixture(scope="module")
def expected(place) -> dict[tuple[str, str], list[str]]:
    """The lines of `s2s translate --from --to`."""
    (place / "lines").write_text("\n".join(LINES) + "\n")
    found = {}
    for source, target in DIRECTIONS:
        typed = ["translate", str(place / "nllb"), "-i", str(place / "lines"), "-o", str(place / "out")]
        assert main([*typed, "--from", source, "--to", target]) == 0
        found[source, target] = (place / "out").read_text().splitlines()
    assert len({tuple(texts) for texts in found.values()}) == len(DIRECTIONS)  # the tags are read
    return found


@pytest.fixture(scope="module")
def server(place, expected):
    with serving(place / "nllb") as running:
        yield running


def test_each_direction_is_that_of_translate(server, expected):
    """At the same time, so that sentences of all directions wait together."""
    found = {}

    def ask(pair):
        found[pair] = server.translations(LINES, source=pair[0], target=pair[1])

    threads = [threading.Thread(target=ask, args=(pair,)) for pair in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_the_dialect_of_libretranslate_has_all_directions(server, expected):
    for (source, target), texts in expected.items():
        answer = server.ask("/translate", {"q": LINES, "source": source, "target": target})
        assert answer.json["translatedText"] == texts
    found = {one["code"]: one for one in server.ask("/languages").json}
    assert {"en", "de", "fr", "zho-Hans", "zho-Hant"} <= set(found)
    assert found["de"]["name"] == "German"
    assert set(found["en"]["targets"]) == set(found)
    alike = server.ask("/translate", {"q": LINES[0], "source": "en", "target": "eng_Latn"})
    assert alike.json["translatedText"] == LINES[0]


def test_models_lists_the_languages_and_answers_name_them(server):
    (model,) = server.ask("/v1/models").json["models"]
    assert {"eng_Latn", "zho_Hans"} <= set(model["languages"]["source"])
    assert model["languages"]["source"] == model["languages"]["target"]
    answer = server.ask("/v1/translate", {"text": "the house", "source": "English", "target": "deu"}).json
    assert (answer["source"], answer["target"]) == ("eng_Latn", "deu_Latn")


@pytest.mark.parametrize(
    ("languages", "field", "words"),
    [
        ({"target": "de"}, "source", "name the source language"),
        ({"source": "en"}, "target", "name the target language"),
        ({}, "source", "name the source language"),
        ({"source": "auto", "target": "germn"}, "source", "the language of the text is not clear; name the source"),
        ({"source": "auto", "target": "de", "text": "12 + 30"}, "source", "not clear; name the source: "),
        ({"source": "en", "target": "germn"}, "target", "did you mean 'german'"),
        ({"source": "englsh", "target": "de"}, "source", "did you mean 'english'"),
        ({"source": "en", "target": "zh"}, "target", "zho_Hans, zho_Hant"),
    ],
)
def test_a_language_that_is_missing_or_unknown_is_refused(server, languages, field, words):
    answer = server.ask("/v1/translate", {"text": "xyz", **languages})
    assert answer.status == 400
    assert answer.json["error"]["field"] == field
    assert words in answer.json["error"]["message"]
    assert "\n" not in answer.json["error"]["message"]


def test_a_source_that_is_not_named_is_that_of_the_text(server, expected):
    """In both APIs and on the form; the answer names it."""
    text = "The old house is red, and she reads a book in the park."
    asked = {"text": text, "target": "de"}
    found, named = (server.ask("/v1/translate", {**asked, "source": source}).json for source in ("auto", "en"))
    assert found["translations"] == named["translations"]
    assert found["source"] == named["source"] == "eng_Latn"
    german = server.ask(
        "/v1/translate", {"text": ["Das alte Haus ist rot,", "sagt er."], "source": "auto", "target": "en"}
    )
    assert german.json["source"] == "deu_Latn"
    answer = server.ask("/translate", {"q": text, "source": "auto", "target": "de"}).json
    assert answer["detectedLanguage"]["language"] == "en"
    assert answer["detectedLanguage"]["confidence"] > 90
    detected = server.ask("/detect", {"q": "Das alte Haus ist rot, und sie liest ein Buch."}).json
    assert detected[0]["language"] == "de"
    forms = [
        server.form("/", text=text, direction=0, source=source, target="deu_Latn") for source in ("auto", "eng_Latn")
    ]
    outputs = [form.body.decode().partition("<output")[2].partition("</output>")[0] for form in forms]
    assert outputs[0] == outputs[1] != ""
    assert server.ask("/v1/models").json["abilities"]["detects_languages"]


@pytest.mark.slow
def test_a_glossary_of_a_direction_applies_to_its_requests(place, expected, capfd):
    """By both APIs and in documents; other directions, and requests with `[]`, have none."""
    (place / "terms.tsv").write_text("house\tHütte\n")
    (place / "any.tsv").write_text("house\tBude\n")
    line = next(line for line in LINES if "house" in line)
    options = "--glossary", f"eng-de={place / 'terms.tsv'}", "--glossary", f"mine={place / 'any.tsv'}"
    with serving(place / "nllb", *options, "--glossary", place / "any.tsv") as server:
        assert any("glossaries (any) apply only if a request names them" in told for told in server.log)
        able = server.ask("/v1/models").json["abilities"]
        assert able["default_glossaries"] == []
        assert able["glossaries_of_directions"] == {"eng-de": [{"source": "eng_Latn", "target": "deu_Latn"}]}
        german = {"source": "en", "target": "de"}
        assert "Hütte" in server.translations([line], **german)[0]
        assert "Bude" in server.translations([line], glossary="mine", **german)[0]
        assert server.translations(LINES, glossary=[], **german) == expected["en", "de"]
        assert server.translations(LINES, source="en", target="fr") == expected["en", "fr"]
        assert "Hütte" in server.ask("/translate", {"q": line, **german}).json["translatedText"]
        assert "Hütte" in server.translations([f"<p>{line}</p>"], format="html", **german)[0]


def test_a_translation_in_another_language_has_the_flag(server):
    asked = {"text": LINES[0], "source": "en", "target": "fr", "prefix": "die Katze saß auf der Matte"}
    assert "language" in server.ask("/v1/translate", asked).json["translations"][0]["flags"]


def test_details_and_documents_are_of_the_direction(place, server):
    for source, target in DIRECTIONS[:2]:
        named = {"source": source, "target": target}
        found = server.ask("/v1/translate", {"text": LINES, "details": ["alignment", "words"], **named}).json
        languages = {f"{side}_language": language for side, language in named.items()}
        own = Pipeline.load(place / "nllb", with_aligner=True, threads=1, **languages)
        for one, answer in zip(own.translate(LINES, details=["words"]), found["translations"], strict=True):
            assert answer["text"] == one.text
            words = [
                [word["probability"] for word in details[0]["words"]]
                for details in (answer["details"], one.as_json(["words"])["details"])
            ]
            assert words[0] == pytest.approx(words[1], abs=2e-3)
        document = server.ask("/v1/translate", {"text": f"<p>{LINES[0]}</p>", "format": "html", **named}).json
        assert document["translations"][0]["text"] == own.translate([f"<p>{LINES[0]}</p>"], form="html")[0].text


def test_the_form_without_javascript_has_the_languages(server, expected):
    page = server.ask("/").body.decode()
    assert '<option value="deu_Latn" data-target="de">German</option>' in page
    texts = expected["en", "de"]
    answer = server.form("/", text=LINES[0], direction=0, source="eng_Latn", target="deu_Latn")
    assert answer.status == 200
    assert texts[0].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:20] in answer.body.decode()
    assert '<output dir="auto" lang="de">' in answer.body.decode()
    assert server.form("/", text=LINES[0], direction=0, source="eng_Latn", target="xx").status == 400


def test_from_and_to_restrict_a_server_to_one_direction(place, expected):
    with serving(place / "nllb", "--from", "en", "--to", "de") as server:
        assert server.translations(LINES) == expected["en", "de"]
        (model,) = server.ask("/v1/models").json["models"]
        assert (model["source"], model["target"]) == ("eng_Latn", "deu_Latn")
        assert "languages" not in model
        assert server.ask("/v1/translate", {"text": "the house", "target": "fr"}).status == 400
        assert 'name="target"' not in server.ask("/").body.decode()


def test_a_pivot_serves_the_directions_without_it(place, expected):
    """The server answers what `s2s translate --pivot` does, with its flag; directions of the pivot are direct."""
    with serving(place / "nllb", "--pivot", "English") as server:
        alone = Pipeline.load(place / "nllb", pivot="en", threads=1, source_language="fr", target_language="de")
        asked = {"text": [*LINES, "12:30"], "source": "fr", "target": "de"}
        found = server.ask("/v1/translate", asked).json
        assert [one["text"] for one in found["translations"]] == [
            *(one.text for one in alone.translate(LINES)),
            "12:30",
        ]
        assert ["pivot" in one["flags"] for one in found["translations"]] == [True] * len(LINES) + [False]
        assert (found["source"], found["target"]) == ("fra_Latn", "deu_Latn")
        assert server.translations(LINES, source="en", target="de") == expected["en", "de"]
        assert server.ask("/v1/models").json["models"][0]["pivot"] == "eng_Latn"
        for more, field in (({"details": ["words"]}, "details"), ({"format": "html"}, "format")):
            error = server.ask("/v1/translate", {**asked, **more}).json["error"]
            assert (error["field"], "two passes" in error["message"]) == (field, True)


@pytest.mark.parametrize(
    ("model", "languages", "pivot", "words"),
    [
        ("pair", {}, "fr", "needs a model of many source and target languages"),
        ("opus", {}, "fr", "needs a model of many source and target languages"),
        ("nllb", {}, "germn", "--pivot germn: not a language of the model; did you mean 'german'"),
        ("nllb", {"source_language": "en", "target_language": "de"}, "en", "eng_Latn to deu_Latn needs no pivot"),
        ("nllb", {"source_language": "fr"}, "en", "name the languages with --from and --to"),
    ],
)
def test_a_server_refuses_an_impossible_pivot(place, model, languages, pivot, words):
    with pytest.raises(UserError, match=words):
        load([place / model], {"engine": "torch", **languages}, {"device": "cpu"}, pivot)


def test_a_server_of_one_direction_may_pass_through_a_pivot(place):
    named = {"source_language": "fr", "target_language": "de"}
    models = load([place / "nllb"], {"engine": "torch", "threads": 1, **named}, {"device": "cpu"}, "en")
    served = models.translator("fr", "de")
    alone = Pipeline.load(place / "nllb", engine="torch", pivot="en", threads=1, **named).translate(LINES)
    found = served.compute([Text(line) for line in LINES], Settings(served.name))
    assert [one.text for one in found] == [one.text for one in alone]


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_tags_at_the_end_of_sources_are_those_of_the_direction(place, engine):
    """mBART puts tags at the end; all directions share one model in memory."""
    (model,) = load([place / "mbart25"], {"engine": engine, "threads": 1}, {"device": "cpu"})
    models = Models([model])
    for source, target in (("en", "de"), ("fr", "ja"), ("en", "de")):
        served = models.translator(source, target)
        settings = Settings(model.name, direction=served.direction)
        assert models.computing(settings) is served
        named = {"source_language": source, "target_language": target}
        alone = Translator.load(place / "mbart25", engine=engine, threads=1, **named).translate(LINES)
        found = served.compute([Text(line) for line in LINES], settings)
        assert [one.text for one in found] == [one.text for one in alone]
        assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in alone], abs=1e-3)


@pytest.mark.parametrize(
    ("asked", "has", "fits"),
    [
        ("zh-Hans", "zho_Hans", True), ("zh_hant", "zho_Hant", True), ("por-BR", "pt_BR", True), ("pt", "por_BR", True),
        ("zh-Hans", "zho_Hant", False), ("yue", "zh", False),
        ("pt-PT", "por_BR", False), ("de-Latn", "eng_Latn", False),
    ],
)  # fmt: skip
def test_a_language_may_be_spelled_in_another_way_with_its_script_or_region(asked, has, fits):
    assert _fits(asked, has) is fits


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("srp_Latn", ["eng_Latn", "srp_Cyrl"], []),
        ("sr-Latn", ["srp_Cyrl", "srp_Latn"], ["srp_Latn"]),
        ("sr", ["srp_Cyrl"], ["srp_Cyrl"]),
        ("srp_Latn", ["sr"], ["sr"]),
        ("pt_BR", ["pt"], ["pt"]),
        ("pt_BR", ["pt_PT"], ["pt_PT"]),
        ("zh", ["zho_Hans", "zho_Hant"], ["zho_Hans", "zho_Hant"]),
        ("zh-Hans-CN", ["zho_Hans", "zho_Hant"], ["zho_Hans"]),
    ],
)
def test_another_script_is_another_language(name, known, found):
    assert languages_named(name, known) == found


def test_auto_needs_no_language_where_the_target_has_one_source(place, tmp_path):
    """A text from which the language is not clear is refused only by a server of several sources for the target."""
    quick_model(tmp_path / "back")
    config = tmp_path / "back" / "config.json"
    named = json.loads(config.read_text())
    config.write_text(json.dumps({**named, "source_language": "de", "target_language": "en"}))
    models = load([place / "pair", tmp_path / "back"], {"engine": "torch"}, {"device": "cpu"})
    assert models.translator(models.source_of(["12"], "auto", "de", None), "de").name == "pair"
    assert models.translator(models.source_of(["12"], "auto", "en", None), "en").name == "back"
    with pytest.raises(Refusal, match="not clear"):
        models.translator("auto", None)


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("Tom ist hier und schläft im Haus.", True),  # in the target language
        ("今日はとても良い天気ですね。", True),  # in a script that no model has
        ("Tom is here and sleeps in the house.", False),
        ("Das", False),  # too short to be clear
        ("12 + 30", False),
        ("", False),
    ],
)
def test_auto_refuses_what_is_clearly_not_in_the_only_source_language(place, text, is_refused):
    """In the models of one direction, of one source and many targets, and of both with the same source."""
    for names in (["pair"], ["fan"], ["pair", "fan"]):
        models = load([place / name for name in names], {"engine": "torch"}, {"device": "cpu"})
        service = Service(models, Limits())
        asked = TranslateRequest(text=["", text], source="auto", target="de")
        if is_refused:
            with pytest.raises(Refusal, match="not in English, the only source language that fits; name the source"):
                asyncio.run(service.sourced(asked))
        else:
            found = asyncio.run(service.sourced(asked))
            assert own_code(models.translator(found.source, found.target).source) == "en"
        named = asyncio.run(service.sourced(asked.model_copy(update={"source": "en"})))
        assert named.source == "en"


def test_the_only_language_of_a_side_needs_no_name(tmp_path):
    """`s2s translate` needs no name for it either."""
    make_many(tmp_path / "many", ["en"], ["de", "fr"], "both")
    models = load([tmp_path / "many"], {"engine": "torch"}, {"device": "cpu"})
    assert models.translator(None, "fr").direction == Direction("en", "fr")
    with pytest.raises(Refusal, match="name the target language; many has de, fr"):
        models.translator("en", None)


def test_a_tag_that_texts_may_begin_with_is_not_added_unasked(tmp_path):
    """Law: a request without a target is answered as by `s2s translate` without `--to`."""
    make_marian(tmp_path / "opus", languages=LANGUAGES[:1])
    models = load([tmp_path / "opus"], {"engine": "torch"}, {"device": "cpu"})
    assert models.translator("en", None).direction == Direction()


def test_each_language_that_is_listed_is_answered(tmp_path):
    """Cantonese is listed under its own code, because it is not Chinese."""
    quick_model(tmp_path / "pair")
    config = tmp_path / "pair" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "target_language": "yue"}))
    with serving(tmp_path / "pair") as running:
        targets = next(one["targets"] for one in running.ask("/languages").json if one["code"] == "en")
        assert targets == ["en", "yue"]
        for target in targets:
            answer = running.ask("/translate", {"q": "the house", "source": "en", "target": target})
            assert answer.status == 200, answer.json


def test_a_model_of_one_pair_comes_before_one_of_many(place):
    models = load([place / "nllb", place / "opus", place / "pair"], {"engine": "torch"}, {"device": "cpu"})
    assert models.translator("en", "de").name == "pair"
    assert models.translator("en", "fr").direction == Direction("eng_Latn", "fra_Latn")
    assert models.translator("en", "de", "nllb").direction == Direction("eng_Latn", "deu_Latn")
    assert models.translator("en", "nl", "opus").direction == Direction(None, "nld")
    assert models.translator(None, None, "opus").direction == Direction()  # texts begin with tags
    with pytest.raises(Refusal, match="did you mean 'german'"):
        models.translator("en", "germn", "opus")
