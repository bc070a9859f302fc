"""A refusal of `s2s serve` has its true cause and is counted once, whichever way the request came. About 5 s."""

import json
import logging
import re
import threading
from urllib.parse import urlencode

import pytest
from support.serving import ask_inside

from seq2seq.serve.guard import Keys
from seq2seq.serve.http import FORM, JSON
from seq2seq.serve.limits import Limits
from seq2seq.serve.models import Models, load
from seq2seq.serve.served import ServedTranslator
from seq2seq.serve.server import Access
from seq2seq.serve.service import Service

# Each way in which a text comes: path, type of the body, the field of the text, and other fields.
WAYS = {
    "v1": ("/v1/translate", JSON, "text", {}),
    "a stream": ("/v1/translate", JSON, "text", {"stream": True}),
    "LibreTranslate": ("/translate", JSON, "q", {"source": "en", "target": "de"}),
    "a form of LibreTranslate": ("/translate", FORM, "q", {"source": "en", "target": "de"}),
    "the page": ("/", FORM, "text", {"direction": "0"}),
}
# Each reason, with the limits and the text that lead to it.
REASONS = {
    "deadline": (Limits(deadline_seconds=0.2), "wait"),
    "internal_error": (Limits(), "fail"),
    "key": (Limits(), "a man"),
    "too_large": (Limits(request_characters=9), "a man rides"),
}


def told_and_counted(reason, way, folder, translator):
    """The last bytes of the answer, and how often each reason was counted."""
    leave = threading.Event()

    class Failing(ServedTranslator):
        def compute(self, texts, settings):
            if texts[0].text == "fail":
                raise RuntimeError("no")
            leave.wait(20)
            return super().compute(texts, settings)

    limits, text = REASONS[reason]
    path, kind, field, fields = WAYS[way]
    service = Service(Models([Failing("one", folder / "one", translator, {})]), limits)
    service.worker.start()
    access = Access(keys=Keys(["mine"])) if reason == "key" else Access()
    body = {field: text, **fields}
    sent = (json.dumps(body) if kind == JSON else urlencode(body)).encode()
    first, *parts = ask_inside(service, path, sent, access=access, kind=kind)
    leave.set()
    service.queue.close()
    counted = re.findall(r's2s_refused_total\{reason="(\w+)"\} (\S+)', service.metrics.text().decode())
    return first["status"], b"".join(part.get("body", b"") for part in parts), dict(counted)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reason", REASONS)
def test_each_refusal_is_counted_once_and_an_internal_error_is_logged(reason, way, folder, translator, caplog):
    with caplog.at_level(logging.ERROR, "seq2seq.serve.guard"):
        status, answer, counted = told_and_counted(reason, way, folder, translator)
    assert counted == {reason: "1.0"}, answer
    is_begun = way == "a stream" and reason in ("deadline", "internal_error")
    assert (status == 200) is is_begun
    if is_begun:
        assert json.loads(answer.splitlines()[-1])["error"]["code"] == reason
    assert ["internal error: RuntimeError" in line for line in caplog.messages] == [True] * (reason == "internal_error")


@pytest.mark.parametrize("texts", [["a"] * 4, ["a" * 300, "b" * 201], "a" * 501])
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/translate", {}),
        ("/v1/translate", {"stream": True}),
        ("/v1/translate", {"format": "html"}),
        ("/v1/classify", {}),
        ("/translate", {"source": "en", "target": "de"}),
        ("/translate", {"source": "de", "target": "de"}),  # returned unchanged
        ("/translate", {"source": "auto", "target": "de"}),
        ("/detect", {}),
    ],
)
def test_texts_over_the_limits_are_refused_by_every_path(path, fields, texts, folder):
    """Whatever is done with them; a request at the limits is answered."""
    models = load([folder / "one", folder / "labels"], {"engine": "torch", "threads": 1}, {"device": "cpu"})
    service = Service(models, Limits(texts=3, request_characters=500, line_characters=1000))
    service.worker.start()
    name = "text" if path.startswith("/v1") else "q"
    for sent, status in ((texts, 413), (["a" * 300, "b" * 200, ""], 200)):
        first, *parts = ask_inside(service, path, json.dumps({name: sent, **fields}).encode())
        assert first["status"] == status, parts
    service.queue.close()


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_the_beam_of_the_model_is_always_allowed(limit, folder, translator):
    """And a wider one up to `--max-beam`; the description and the help say so."""
    own = translator.config.beam_size
    service = Service(load([folder / "one"], {"engine": "torch"}, {"device": "cpu"}), Limits(beam_size=limit))
    service.worker.start()
    for beam in range(1, 8):
        first, *_ = ask_inside(service, "/v1/translate", json.dumps({"text": "a", "beam_size": beam}).encode())
        assert (first["status"] == 200) is (beam <= max(own, limit))
    service.queue.close()


def answer_of(service, path, body, kind, access=None):
    first, *parts = ask_inside(service, path, body, access=access, kind=kind)
    return first["status"], json.loads(b"".join(part.get("body", b"") for part in parts))


@pytest.fixture(scope="module")
def quiet(folder):
    """A service that computes."""
    service = Service(load([folder / "one"], {"engine": "torch", "threads": 1}, {"device": "cpu"}), Limits())
    service.worker.start()
    yield service
    service.queue.close()


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/classify"])
@pytest.mark.parametrize(
    ("text", "is_half"),
    [
        (r"a \ud83d", True), (r"a \udc00", True), (r"\ud83d\ud83d", True), (r"\ud83d\n", True), (r"\uD83Dx", True),
        (r"\uZZZZ", False), (r"\u12", False), ("\x00", False),
    ],
)  # fmt: skip
def test_half_of_a_character_is_told_from_what_is_not_json(quiet, path, text, is_half):
    status, answer = answer_of(quiet, path, f'{{"text": "{text}"}}'.encode(), JSON)
    words = r"a text has half of a character (a lone surrogate, such as \ud83d); do not cut texts within a character"
    assert (status, answer["error"]["code"]) == (400, "bad_json")
    assert answer["error"]["message"] == (words if is_half else "the body is not JSON in UTF-8")


@pytest.mark.parametrize("kind", [FORM, 'multipart/form-data; boundary="x"'])
@pytest.mark.parametrize(
    ("charset", "is_read"),
    [
        ("", True), ("; charset=utf-8", True), ('; charset="UTF-8"', True), ("; Charset=utf8", True),
        ("; charset=ISO-8859-1", False), ('; charset="latin1"', False), ("; charset=utf-16", False),
        ("; charset=punycode", False), ("; charset=", False),
    ],
)  # fmt: skip
def test_a_form_in_another_encoding_is_refused(quiet, kind, charset, is_read):
    """Rather than read as other characters."""
    fields = {"q": "Café", "source": "de", "target": "de"}
    parts = (f'--x\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{each}\r\n' for key, each in fields.items())
    body = urlencode(fields) if kind == FORM else f"{''.join(parts)}--x--\r\n"
    status, answer = answer_of(quiet, "/translate", body.encode(), kind + charset)
    if is_read:
        assert (status, answer) == (200, {"translatedText": "Café"})
    else:
        words = "the form is not in UTF-8; encode it as UTF-8, and leave out charset"
        assert (status, answer) == (400, {"error": words})


@pytest.mark.parametrize(
    ("path", "way"),
    [
        ("/v1/translate", "send Authorization: Bearer KEY"),
        ("/v1/classify", "send Authorization: Bearer KEY"),
        ("/translate", "send Authorization: Bearer KEY, or the field api_key"),
        ("/detect", "send Authorization: Bearer KEY, or the field api_key"),
    ],
)
def test_a_missing_key_is_told_with_the_ways_that_the_path_takes(quiet, path, way):
    status, answer = answer_of(quiet, path, b"{}", JSON, Access(keys=Keys(["mine"])))
    message = answer["error"] if isinstance(answer["error"], str) else answer["error"]["message"]
    assert (status, message) == (403, f"this server needs a key; {way}")
