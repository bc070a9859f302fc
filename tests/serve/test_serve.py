"""`s2s serve`, a real process asked over HTTP: answers, limits and errors. About 10 s."""

import contextlib
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.serving import Served, lines

from seq2seq import Classifier, Translator
from seq2seq.cli import main

HOSTILE = [
    "", " ", "\n", "a\n\nb", "a\r\nb\r\n", "\ta man  rides ", "null", "\x00", "a\x00b", "\u2028 a\u2028b", "\ufeffa",
    "🙂 " * 40, "ひらがな漢字", "<b>a</b> &amp; </script>", "x" * 2000, "%s {0} ${x}", "a" + "\u0301" * 50,
    "👩‍👩‍👧", "\x85 \x0b \x0c a",
]  # fmt: skip


def asked(server: Served, **fields):
    return server.ask("/v1/translate", {"target": "de", **fields})


def error(answer) -> tuple[int, str, str | None]:
    body = answer.json["error"]
    assert set(body) == {"code", "message", "field"}
    assert not re.search("\n|after validation", body["message"])
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["X-Request-Id"])
    return answer.status, body["code"], body["field"]


# -- translations ----------------------------------------------------------------------------------


def test_answers_are_those_of_the_command(server, folder, tmp_path):
    texts = lines(70) + [text for text in HOSTILE if "\n" not in text and "\r" not in text]
    (tmp_path / "in").write_text("\n".join(texts) + "\n", encoding="utf-8")
    assert main(["translate", str(folder / "one"), "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    expected = (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1]
    given = server.translations(texts, target="de")
    assert [text.encode("utf-8", "replace").decode() for text in given] == expected
    assert server.translations(["\n".join(texts)], target="de") == ["\n".join(given)]
    assert server.ask("/v1/translate", {"text": texts[0], "target": "de"}).json["translations"][0]["text"] == given[0]


@pytest.mark.slow
def test_64_clients_at_once_get_exactly_these_answers(server, folder, translator):
    other = Translator.load(folder / "two", threads=1)
    texts = [*lines(40), "a man. two dogs play", "", "x " * 300]
    expected = {("de", 5): translator.with_search(beam_size=5, n_best=3).translate(texts),
                ("de", 1): translator.with_search(beam_size=1).translate(texts),
                ("pt-br", 5): other.with_search(beam_size=5, n_best=3).translate(texts)}  # fmt: skip

    def client(number: int) -> int:
        target, beam = list(expected)[number % 3]
        for index in range(number, number + 6):
            index %= len(texts)
            fields = {"alternatives": 2 if beam > 1 else 0, "beam_size": beam}
            answer = server.ask("/v1/translate", {"text": texts[index], "target": target, **fields})
            shown, known = answer.json["translations"][0], expected[target, beam][index]
            assert shown["text"] == known.text
            assert [one["text"] for one in shown["alternatives"]] == [one.text for one in known.alternatives]
            assert shown["log_prob"] == pytest.approx(known.log_prob, abs=1e-4)
            assert tuple(shown["flags"]) == known.flags
        return number

    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(client, range(64))) == list(range(64))


def test_line_ends_stay_as_they_are(server):
    one, two = server.translations(["a man", "two dogs"], target="de")
    assert server.translations(["a man\r\n\ntwo dogs\n"], target="de") == [f"{one}\r\n\n{two}\n"]
    assert server.translations(["a\nman"], target="de", split="none") == server.translations(["a man"], target="de")


def test_sentences_are_translated_one_by_one(server):
    one, two = server.translations(["A man rides.", "Two dogs!"], target="de")
    assert server.translations(["A man rides.  Two dogs!\nA man rides."], target="de", split="sentences") == [
        f"{one}  {two}\n{one}"
    ]


def test_a_prefix_begins_the_translation_of_its_text(server, translator):
    texts, prefixes = ["\na man rides\ntwo dogs", "two dogs"], ["two", "a"]
    best = [translator.translate([line], [prefix])[0].text for line, prefix in
            (("a man rides", "two"), ("two dogs", ""), ("two dogs", "a"))]  # fmt: skip
    assert server.translations(texts, target="de", prefix=prefixes) == [f"\n{best[0]}\n{best[1]}", best[2]]
    assert error(asked(server, text="a", prefix="word " * 500)) == (400, "bad_request", "prefix")
    assert error(asked(server, text=["a", "b"], prefix=["a"])) == (400, "bad_request", "prefix")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.text(max_size=40), st.sampled_from(HOSTILE)), min_size=1, max_size=6),
       st.sampled_from(["lines", "sentences", "none"]))  # fmt: skip
def test_n_texts_in_n_out_whatever_they_hold(server, texts, split):
    answer = asked(server, text=texts, split=split)
    assert answer.status == 200
    translations = answer.json["translations"]
    assert len(translations) == len(texts)
    for text, one in zip(texts, translations, strict=True):
        if split == "lines":
            assert one["text"].count("\n") == text.count("\n")
        assert bool(text.strip()) or not one["text"].strip()
    streamed = asked(server, text=texts, split=split, stream=True)
    *parts, last = [json.loads(line) for line in streamed.body.splitlines()]
    assert last["done"] is True
    for number, (text, one) in enumerate(zip(texts, translations, strict=True)):
        mine = [part for part in parts if part["index"] == number]
        assert "".join(part["before"] + part["text"] for part in mine) == one["text"]
        spans = [tuple(part["source"]) for part in mine]
        assert spans == sorted(spans)
        assert not "".join(
            text[b:e] for (_, b), (e, _) in zip([(0, 0), *spans], [*spans, (len(text), 0)], strict=True)
        ).strip()


def test_what_else_an_answer_says(server, folder):
    answer = asked(server, text="a man\ntwo dogs")
    body = answer.json
    assert (body["source"], body["target"], body["model"]["name"]) == ("en", "de", "one")
    assert body["usage"]["characters"] == len("a mantwo dogs")
    assert set(body["timing"]) == {"queued_ms", "compute_ms"}
    assert answer.headers["Cache-Control"] == "no-store"
    models = server.ask("/v1/models").json
    assert [one["name"] for one in models["models"]] == ["one", "two", "labels"]
    assert models["models"][0]["fingerprint"] == body["model"]["fingerprint"] != models["models"][1]["fingerprint"]
    assert models["limits"]["texts"] == 100
    assert models["abilities"]["formats"] == ["text", "html", "markdown", "plain", "xml"]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "status", "code", "field"),
    [
        ({"format": "html", "alternatives": 1}, 400, "bad_request", "alternatives"),
        ({"format": "html", "prefix": "x"}, 400, "bad_request", "prefix"),
        ({"format": "html", "details": ["words"]}, 400, "unsupported", "details"),
        ({"format": "html", "details": ["terms"]}, 400, "unsupported", "details"),
        ({"format": "xml", "text": "<a>"}, 400, "bad_request", "text"),
        ({"format": "doc"}, 400, "bad_request", "format"),
        ({"details": ["word"]}, 400, "bad_request", "details.0"),
        ({"glossary": {"entries": [["a"]]}}, 400, "bad_request", "glossary.entries.0"),
        ({"glossary": "g"}, 400, "bad_request", "glossary"),
        ({"alternatives": 11}, 400, "too_large", "alternatives"),
        ({"alternatives": 3, "beam_size": 3}, 400, "bad_request", "alternatives"),
        ({"alternatives": -1}, 400, "bad_request", "alternatives"),
        ({"alternatives": True}, 400, "bad_request", "alternatives"),
        ({"beam_size": 11}, 400, "too_large", "beam_size"),
        ({"beam_size": 0}, 400, "bad_request", "beam_size"),
        ({"beam_size": "2"}, 400, "bad_request", "beam_size"),
        ({"text": 5}, 400, "bad_request", "text"),
        ({"text": ["a", None]}, 400, "bad_request", "text.1"),
        ({"text": ["a"] * 101}, 413, "too_large", "text"),
        ({"text": "a\n" * 100_001}, 413, "too_large", "text"),
        ({"text": "x" * 5_000, "beam_size": 10}, 413, "too_large", "text"),
        ({"model": "labels"}, 400, "bad_request", "model"),
        ({"model": "two"}, 400, "bad_request", "target"),
        ({"text": "x" * 10_001}, 413, "too_large", "text"),
        ({"text": ["x" * 9000] * 50}, 413, "too_large", "text"),
        ({"target": "fr"}, 400, "bad_request", "target"),
        ({"source": "de"}, 400, "bad_request", "source"),
        ({"target": "pt-PT"}, 400, "bad_request", "target"),
        ({"target": None}, 400, "bad_request", "target"),
        ({"temperature": 1}, 400, "bad_request", "temperature"),
        ({"stream": "yes"}, 400, "bad_request", "stream"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(server, fields, status, code, field):
    assert error(asked(server, **{"text": "a man", **fields})) == (status, code, field)


def test_languages_in_any_spelling(server):
    for target in ("pt", "PT", "pt_BR", "pt-br", "por"):
        assert server.ask("/v1/translate", {"text": "a", "source": "EN_us", "target": target}).json["target"] == "pt_BR"
    assert server.ask("/v1/translate", {"text": "a", "source": "auto", "target": "ger"}).json["source"] == "en"


BAD_BODIES = [
    b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"text": "\\ud800"}', b'{"text": NaN}', b"[" * 100_000, b"{}",
    b'{"text": "a", "text": 5}', b'{"text": 1e999}', b'{"text": "\xff"}', b'{"te\x00xt": "a"}',
]  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/classify", "/translate", "/detect"])
def test_bad_json_is_one_line(server, path):
    for body in BAD_BODIES:
        answer = server.ask(path, body, Content_Type="application/json")
        assert answer.status == 400, body
        shown = answer.json["error"]
        assert shown if path[1:3] != "v1" else error(answer)
        assert b"Traceback" not in answer.body


def test_other_types_and_methods_and_places(server):
    assert error(server.ask("/v1/translate", b"text=a", Content_Type="text/plain")) == (415, "bad_type", None)
    assert server.ask("/translate", b"q=a", Content_Type="text/plain").status == 415
    assert error(server.ask("/nowhere")) == (404, "not_found", None)
    assert error(server.ask("/%2e%2e/%2e%2e/etc/passwd")) == (404, "not_found", None)
    assert error(server.ask("/v1/translate/")) == (404, "not_found", None)
    for path in ("/v1/translate", "/translate"):
        answer = server.ask(path)
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    assert server.ask("/health", method="HEAD").body == b""


def test_a_body_over_the_limit_is_refused(server, alone):
    assert error(asked(server, text="x" * 2**21)) == (413, "too_large", None)
    chunks = (b"x" * 1000 for _ in range(100))
    with contextlib.closing(alone.connect()) as connection:
        connection.request("POST", "/v1/translate", chunks, {"Authorization": "Bearer first-key"}, encode_chunked=True)
        assert connection.getresponse().status == 413
    many = alone.ask("/v1/translate", {"text": "a\n" * 5_000}, Authorization="Bearer first-key")
    assert error(many) == (413, "too_large", "text")


@pytest.mark.parametrize(
    "sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40_000,
             b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", b"\x16\x03\x01\x02\x00"],
)  # fmt: skip
def test_what_is_no_http_is_told_so(server, sent):
    with socket.create_connection((server.host, server.port), timeout=20) as connection:
        connection.sendall(sent)
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code": "bad_http"' in answer


# -- who may ask -----------------------------------------------------------------------------------


def test_a_key_is_wanted_where_there_is_a_key_file(alone):
    body = {"text": "a man"}
    for shown in ("", "Bearer", "Bearer other", "Basic first-key", "Bearer first-key second-key", "Bearer # who"):
        assert error(alone.ask("/v1/translate", body, Authorization=shown)) == (403, "key", None)
    for path in ("/v1/models", "/metrics"):
        assert alone.ask(path).status == 403
        assert alone.ask(path, Authorization="bearer second-key").status == 200
    for path in ("/health", "/ready", "/openapi.json", "/languages", "/frontend/settings"):
        assert alone.ask(path).status == 200
    assert alone.ask("/v1/translate", body, Authorization="Bearer first-key").status == 200
    assert alone.ask("/v1/translate", body, Authorization="DeepL-Auth-Key first-key").status == 200
    fields = {"q": "a man", "source": "en", "target": "de"}
    assert alone.form("/translate", **fields).json.keys() == {"error"}
    assert alone.form("/translate", **fields, api_key="nope").status == 403
    assert alone.form("/translate", **fields, api_key="first-key").status == 200
    assert alone.ask("/translate", {**fields, "api_key": "second-key"}).status == 200
    assert alone.ask("/translate", {**fields, "api_key": ["first-key"]}).status == 403
    assert alone.ask("/translate?api_key=first-key&q=a&source=en&target=de", b"").status == 200


def test_a_web_page_may_not_use_a_server_on_this_machine(server, alone):
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil", "a@localhost", "localhost:x", "[::1"):
        assert error(server.ask("/v1/models", Host=host)) == (403, "host", None)
    for host in ("localhost", "LOCALHOST:99", "127.0.0.1:5000", "[::1]:5000"):
        assert server.ask("/v1/models", Host=host).status == 200
    for origin in ("https://evil.example", "null", "http://localhost.evil", f"{server.url}.evil"):
        assert error(server.ask("/v1/models", Origin=origin)) == (403, "origin", None)
    assert server.ask("/v1/models", Origin=server.url).status == 200
    assert "access-control-allow-origin" not in server.ask("/v1/models", Origin=server.url).headers
    assert alone.ask("/health", Host="t.example").status == 200
    assert alone.ask("/health", Host="u.example").status == 403


def test_an_origin_that_is_named_may_ask(alone):
    allowed = {"Origin": "https://a.example"}
    asking = {**allowed, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    answer = alone.ask("/v1/translate", method="OPTIONS", **asking)
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, "https://a.example")
    for status, key in ((200, "first-key"), (403, "none")):
        answer = alone.ask("/v1/translate", {"text": "a"}, Authorization=f"Bearer {key}", **allowed)
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (status, "https://a.example")
    assert alone.ask("/v1/translate", {"text": "a"}, Origin="https://b.example").status == 403


# -- classification, the page, and what the server says of itself ----------------------------------


def test_classification_is_that_of_the_library(server, folder):
    texts = [*lines(20), "", *HOSTILE]
    known = Classifier.load(folder / "labels").classify([text.replace("\n", " ").replace("\r", " ") for text in texts])
    answer = server.ask("/v1/classify", {"text": texts}).json
    for shown, expected in zip(answer["classifications"], known, strict=True):
        assert shown["label"] == expected.label
        assert shown["probabilities"] == pytest.approx(expected.probabilities, abs=1e-4)
    assert answer["model"]["name"] == "labels"
    assert error(server.ask("/v1/classify", {"text": "a", "model": "one"})) == (400, "bad_request", "model")


def test_a_server_without_a_model_of_a_kind_says_so(alone):
    asking = {"Authorization": "Bearer first-key"}
    assert error(alone.ask("/v1/classify", {"text": "a"}, **asking)) == (400, "no_model", None)
    assert error(alone.ask("/")) == (404, "not_found", None)


def test_the_page_translates_without_javascript(server, translator):
    page = server.ask("/")
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    assert b"<!--" not in page.body
    known = translator.translate(["a man"])[0].text
    shown = server.form("/", text="a man", direction="0").body.decode()
    assert known.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in shown
    hostile = "</textarea><script>alert(1)</script><!--answer--><!--text-->"
    shown = server.form("/", text=hostile, direction="0").body.decode()
    assert shown.count("<script") == 1  # the page's own
    assert shown.count("<form") == 1
    refused = server.form("/", text="a man", direction="7")
    assert refused.status == 400
    assert b'role="alert"' in refused.body


def test_metrics_add_up(server):
    before = server.metrics()
    asked(server, text="a man\ntwo dogs")
    asked(server, text=["a man"] * 5, stream=True)
    asked(server, text="a", format="html", details=["words"])
    after = server.metrics()

    def more(name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    assert more('s2s_sentences_total{state="accepted"}') == 7 == more('s2s_sentences_total{state="done"}')
    assert more('s2s_requests_total{route="/v1/translate",status="200"}') == 2
    assert more('s2s_requests_total{route="/v1/translate",status="400"}') == 1
    assert more('s2s_refused_total{reason="unsupported"}') == 1
    assert more("s2s_batch_sentences_sum") == 7 == more("s2s_queue_wait_seconds_count")
    assert more("s2s_characters_total") == len("a mantwo dogs") + 25
    assert after["s2s_queue_sentences"] == 0
    states = server.counts()
    assert states["accepted"] == states["done"] + states.get("failed", 0) + states.get("withdrawn", 0)
    for name in after:
        base = name.partition("{")[0]
        if base.endswith("_bucket"):
            assert after[name] <= after[base.replace("_bucket", "_count")]


def test_no_text_of_a_client_is_in_logs_or_metrics(server):
    secret = "Geheimnis"
    for path in (f"/{secret}", f"/translate?q={secret}&source=en&target=de", f"/{secret}/../health"):
        server.ask(path)
        server.ask(path, b"", Host=f"{secret}.example", X_Request_Id=secret)
    asked(server, text=secret)
    asked(server, text=secret, format=secret, source=secret)
    assert secret not in server.ask("/metrics").body.decode()
    assert secret not in "".join(server.log)


def test_ready_and_health(server):
    assert server.ask("/health").json == {"status": "ok"}
    assert server.ask("/ready").json == {"status": "ready"}
