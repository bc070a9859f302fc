"""The files of the page of `s2s serve`, and its form without JavaScript. About 5 s."""

import html
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from support.serving import ask_inside

from seq2seq import serve
from seq2seq.serve.guard import Keys
from seq2seq.serve.http import FORM
from seq2seq.serve.limits import Limits
from seq2seq.serve.models import load
from seq2seq.serve.server import Access
from seq2seq.serve.service import Service

FILES = sorted(path.name for path in (Path(serve.__file__).parent / "page").iterdir() if path.is_file())


def test_browsers_ask_again_for_every_file_of_the_page(server):
    """All files are of one version after an upgrade; the page itself may hold a text, and is not stored."""
    assert {"page.js", "page.css", "icon.svg", "index.html"} <= set(FILES)
    for name in FILES:
        answer = server.ask("/" if name == "index.html" else f"/{name}")
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == ("no-store" if name == "index.html" else "no-cache")


@pytest.mark.parametrize(
    ("fields", "kind", "status", "words"),
    [
        ({"api_key": ""}, FORM, 403, "this server needs a key; enter it in the field Key"),
        ({"api_key": "other"}, FORM, 403, "this server does not know this key; check it"),
        ({"direction": "7"}, FORM, 400, "choose a direction"),
        ({"text": "x" * 5000}, FORM, 413, "a request has at most 4,000 bytes; send it in parts"),
        ({str(number): "" for number in range(201)}, FORM, 413, "a form has at most 200 fields"),
        ({}, f"{FORM}; charset=latin-1", 400, "the form is not in UTF-8; encode it as UTF-8, and leave out charset"),
    ],
)
def test_the_form_shows_every_refusal_in_the_page(folder, fields, kind, status, words):
    models = load([folder / "one"], {"engine": "torch", "threads": 1}, {"device": "cpu"})
    service = Service(models, Limits(body_bytes=4000))
    body = urlencode({"text": "a man", "direction": "0", "api_key": "mine", **fields}).encode()
    first, *parts = ask_inside(service, "/", body, access=Access(keys=Keys(["mine"])), kind=kind)
    page = b"".join(part.get("body", b"") for part in parts).decode()
    assert first["status"] == status
    assert b"text/html" in dict(first["headers"])[b"content-type"]
    (alert,) = re.findall('<p role="alert">(.*?)</p>', page)
    assert html.unescape(alert) == words
    assert '<input id="api_key"' in page
