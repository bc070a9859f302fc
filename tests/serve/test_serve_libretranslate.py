"""LibreTranslate's dialect of `s2s serve`: its own client and page, another client, and its fields. About 5 s."""

import json
from urllib.parse import quote

import pytest
from deep_translator import LibreTranslator
from deep_translator.exceptions import AuthorizationException
from libretranslatepy import LibreTranslateAPI
from support.serving import ask_inside, quick_model

from seq2seq.serve.limits import Limits
from seq2seq.serve.models import Models, load
from seq2seq.serve.service import Service


def test_libretranslates_own_client_works(alone, translator):
    client = LibreTranslateAPI(alone.url, api_key="first-key")
    assert client.translate("A man rides.", "en", "de") == translator.translate(["A man rides."])[0].text
    assert client.translate("", "auto", "de") == ""
    assert client.detect("a man")[0]["language"] == "en"
    assert {"code": "en", "name": "English", "targets": ["de", "en"]} in client.languages()


def test_another_client_of_libretranslate_works(alone, translator):
    client = LibreTranslator("en", "de", "first-key", custom_url=f"{alone.url}/")
    texts = ["A man rides.", "100 % of two dogs & a cat"]
    assert client.translate_batch(texts) == [one.text for one in translator.translate(texts)]
    with pytest.raises(AuthorizationException):
        LibreTranslator("en", "de", "none", custom_url=f"{alone.url}/").translate("A man rides.")


def test_libretranslates_own_page_sends_parts(server, translator):
    """What a browser makes of the FormData of its page, which always asks for three alternatives."""

    def parts(kind="multipart/form-data; boundary=x-y", file="", **fields):
        body = "".join(
            f'--x-y\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{value}\r\n'
            for name, value in fields.items()
        )
        return server.ask("/translate", f"{body}--x-y--\r\n".encode(), Content_Type=kind)

    fields = {"q": "a man\r\ntwo dogs “ü”", "source": "en", "target": "de", "format": "text", "api_key": ""}
    known = server.ask("/translate", {**fields, "alternatives": 2}).json
    assert parts(**fields, alternatives=3).json == known
    assert len(known["alternatives"]) == 2  # the model's beam is of 3
    assert known["translatedText"].split("\r\n")[0] == translator.translate(["a man"])[0].text
    quoted = 'multipart/form-data; boundary="x-y"'
    assert parts(**fields, alternatives=3, kind=quoted).json == known
    body = b'--x y\r\nContent-Disposition: form-data; name="q"\r\n\r\n%b\r\n--x y--\r\n'
    for sent in ("schön ".encode() + b"\xff", "schön".encode("utf-16")):
        # an invalid byte changes nothing before it, as in other forms
        spaced = 'multipart/form-data; boundary="x y"'
        path = "/translate?source=en&target=en"
        answer = server.ask(path, body % sent, Content_Type=spaced).json["translatedText"]
        assert answer == server.ask(f"{path}&q={quote(sent)}", b"").json["translatedText"]
    document = parts(**{**fields, "q": "<b>a man</b>", "format": "html"}, alternatives=3)
    assert document.status == 200
    assert document.json["alternatives"] == []
    for wrong in (
        parts(**fields, kind="multipart/form-data"),
        parts(**fields, kind="multipart/form-data; boundary=other"),
        parts(**fields, kind='multipart/form-data; boundary="; charset=punycode'),
        parts(**fields, kind="multipart/form-data; boundary*=utf-8''%E2%82%AC"),
        parts(**fields, file='; filename="a.txt"'),
        parts(**{f"field{number}": "" for number in range(201)}),
        server.ask("/translate", b"--x-y", Content_Type="multipart/form-data; boundary=x-y"),
    ):
        assert wrong.status == 400
        assert "form" in wrong.json["error"] or "missing q" in wrong.json["error"]
    assert "boundary" not in "".join(server.log)


def test_libretranslates_fields(server, translator):
    best = translator.with_search(n_best=3).translate(["a man", "two dogs"])
    fields = {"source": "en", "target": "de"}
    both = server.ask("/translate", {"q": ["a man", "two dogs"], **fields, "alternatives": 2}).json
    assert both == {
        "translatedText": [one.text for one in best],
        "alternatives": [[other.text for other in one.alternatives] for one in best],
    }
    one = server.ask("/translate", {"q": "a man", **fields, "source": "auto", "format": None, "other": 1}).json
    assert one == {"translatedText": best[0].text, "detectedLanguage": {"language": "en", "confidence": 0.0}}
    german, english = "Guten Morgen, wie geht es dir heute?", "Where is the station, and how are you today?"
    for text, language in ((german, "de"), (english, "en")):
        (found,) = server.form("/detect", q=text).json
        assert (found["language"], found["confidence"] > 90) == (language, True)
    for text in ("7", "Bonjour, comment allez-vous aujourd'hui ?"):
        assert server.form("/detect", q=text).json == [{"language": "en", "confidence": 0.0}]
    known = server.ask("/translate", {"q": german, **fields, "source": "auto"}).json
    assert (known["translatedText"], known["detectedLanguage"]["language"]) == (german, "de")
    assert server.form("/translate", q="a man", **fields, alternatives="").json == {"translatedText": best[0].text}
    assert server.form("/translate", q=["a man", "two dogs"], **fields).json == {
        "translatedText": both["translatedText"]
    }
    assert server.ask("/translate?q=a+man&source=en&target=de", b"").json == {"translatedText": best[0].text}
    assert server.ask("/translate", {"q": "a", "source": "en", "target": "pb"}).status == 200
    assert server.ask("/translate", {"q": "\ud800", **fields}).status == 200
    assert server.ask("/frontend/settings").json["language"]["target"] == {"code": "de", "name": "German"}
    assert [one["code"] for one in server.ask("/languages").json] == ["de", "en", "pt-BR"]
    assert server.ask("/translate", {"q": "a", **fields, "alternatives": -1}).json.keys() == {"translatedText"}
    many = server.ask("/translate", {"q": "a man", **fields, "alternatives": 15}).json
    assert len(many["alternatives"]) == 2
    same = {"q": ["a", ""], "source": "de", "target": "de", "alternatives": 1}
    assert server.ask("/translate", same).json == {"translatedText": ["a", ""], "alternatives": [[], []]}
    assert all(one["code"] in one["targets"] for one in server.ask("/languages").json)
    assert server.ask("/detect", {"q": ["a man", "two dogs"]}).json[0]["language"] == "en"
    suggestion = {"q": "a", "s": "b", "source": "en", "target": "de"}
    for path, status in (("/suggest", 403), ("/translate_file", 404), ("/download_file/x", 404)):
        answer = server.ask(path, suggestion)
        assert (answer.status, type(answer.json["error"])) == (status, str)
    for wrong, words in (
        ({"source": "en", "target": "de"}, "missing q"),
        ({"q": "a", "target": "de"}, "missing source"),
        ({"q": "a", "source": "en"}, "missing target"),
        ({"q": "a", "source": "en", "target": "xx"}, "xx is not supported"),
        ({"q": "a", "source": "zz", "target": "de"}, "zz is not supported"),
        ({"q": "a", "source": "de", "target": "en"}, "English (en) is not available as a target language from"),
        ({"q": "a", "source": "<b>" * 99, "target": "de"}, "this language is not supported"),
        ({"q": {"a": 1}, **fields}, "q"),
        ({"q": ["a"] * 101, **fields}, "100 texts"),
    ):
        answer = server.ask("/translate", wrong)
        assert answer.status in (400, 413)
        assert words in answer.json["error"]


@pytest.mark.parametrize("text", ["a man", ["a man", "two dogs"]])
def test_auto_needs_no_names_of_languages(text, tmp_path):
    """A model whose folder names no languages translates; no language is reported as detected."""
    config = quick_model(tmp_path / "model") / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "source_language": None, "target_language": None}))
    models = Models(load([tmp_path / "model"], {"engine": "torch", "threads": 1}, {"device": "cpu"}))
    service, answers = Service(models, Limits()), []
    service.worker.start()
    for source in ("auto", "en"):
        body = json.dumps({"q": text, "source": source, "target": "de"}).encode()
        head, *parts = ask_inside(service, "/translate", body)
        assert head["status"] == 200
        answers.append(json.loads(b"".join(part["body"] for part in parts)))
    service.queue.close()
    assert answers[0] == answers[1]
    assert answers[0].keys() == {"translatedText"}
