"""Alignments, confidence and glossaries over HTTP are those of the command, for whole texts. About 10 s."""

import json
import logging
import re
import time
from pathlib import Path

import pytest
from support.our_models import make_ours
from support.reversed_folder import folder  # noqa: F401 (a fixture)
from support.serving import ask_inside, new_process, serving, until

from seq2seq import serve
from seq2seq.cli.translate import FLAGS
from seq2seq.inference.aligner import Aligner
from seq2seq.inference.degeneration import REPAIRED, SYMPTOMS
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.translator import Translator
from seq2seq.serve.limits import Limits
from seq2seq.serve.models import Models, load
from seq2seq.serve.served import ServedTranslator
from seq2seq.serve.service import Service
from seq2seq.text.glossary import Glossary

TEXT = "one four two\n\n  three nine \nfour."
KINDS = ["alignment", "words", "confidence", "terms"]
TERMS = [["four", "neun"], ["one", "eins|Eins"]]


@pytest.fixture(scope="module")
def server(folder):  # noqa: F811
    (folder / "numbers.tsv").write_text("".join("\t".join(row) + "\n" for row in TERMS), encoding="utf-8")
    with serving(folder / "runs" / "toy", "--glossary", f"numbers={folder / 'numbers.tsv'}") as served:
        yield served


def asked(server, **fields):
    answer = server.ask("/v1/translate", {"text": TEXT, **fields})
    assert answer.status == 200, answer.body
    return answer.json["translations"][0]


def test_spans_are_those_of_the_whole_text(server, folder):  # noqa: F811
    shown = asked(server, details=KINDS)
    run = folder / "runs" / "toy"
    translator, aligner = Translator.load(run, threads=1), Aligner.load(run, device="cpu", threads=1)
    lines = TEXT.split("\n")
    expected = [details for line in aligner.explain(translator.translate(lines)) for details in line.details]
    assert len(shown["details"]) == len(expected) == 3
    for one, details in zip(shown["details"], expected, strict=True):
        shift, moved = one["source"][0] - details.source[0], one["target"][0] - details.target[0]
        same = json.loads(json.dumps(details.shifted(shift, moved).as_json(KINDS)))
        assert one == same
        assert TEXT[slice(*one["source"])].strip() == TEXT[slice(*one["source"])]
    text = "".join(shown["text"][slice(*one["target"])] for one in shown["details"])
    assert "".join(text.split()) == "".join(shown["text"].split())
    assert shown["terms"] == []
    assert set(asked(server)) == {
        "text", "log_prob", "score", "tokens", "flags", "alternatives", "translation", "normalized_score"
    }  # fmt: skip


@pytest.mark.parametrize("glossary", ["numbers", ["numbers"], {"entries": TERMS}])
def test_terms_are_those_of_the_command(server, folder, glossary):  # noqa: F811
    run = folder / "runs" / "toy"
    translator, aligner = Translator.load(run, threads=1), Aligner.load(run, device="cpu", threads=1)
    keeper = Pipeline(translator, aligner, Glossary.of(enumerate(TERMS), "de", "terms"))
    expected = keeper.translate(TEXT.split("\n"))
    shown = asked(server, glossary=glossary, details=["terms"])
    assert shown["text"] == "\n".join(one.text for one in expected)
    assert [term["status"] for term in shown["terms"]] == [term.status for one in expected for term in one.terms]
    for term in shown["terms"]:
        assert TEXT[slice(*term["source"])].casefold() == term["entry"]
        if term["target"] is not None:
            assert shown["text"][slice(*term["target"])].casefold() in ("neun", "eins")
    counts = server.metrics()
    assert sum(value for name, value in counts.items() if name.startswith("s2s_terms_total")) >= len(shown["terms"])


def test_a_stream_has_the_same_parts(server):
    whole = asked(server, details=KINDS, glossary="numbers")
    body = {"text": TEXT, "details": KINDS, "glossary": "numbers", "stream": True}
    *parts, end = map(json.loads, server.ask("/v1/translate", body).body.splitlines())
    assert end["done"]
    assert "".join(part["before"] + part["text"] for part in parts) == whole["text"]
    position, sentences, terms = 0, [], []
    for part in parts:
        position += len(part["before"])
        sentences += [[position + place for place in one["target"]] for one in part["details"]]
        terms += [one["source"] for one in part["terms"]]
        position += len(part["text"])
    assert sentences == [one["target"] for one in whole["details"]]
    assert terms == [one["source"] for one in whole["terms"]]


@pytest.mark.parametrize("text", ["one。two！six", "one。\n二。two。 six", "。one"])
def test_a_stream_has_the_spaces_that_a_script_without_them_needs(server, text):
    fields = {"text": [text, text], "split": "sentences"}
    whole = [one["text"] for one in server.ask("/v1/translate", fields).json["translations"]]
    *parts, _ = map(json.loads, server.ask("/v1/translate", {**fields, "stream": True}).body.splitlines())
    found = ["".join(part["before"] + part["text"] for part in parts if part["index"] == index) for index in (0, 1)]
    assert found == whole


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"glossary": "other"}, "glossary"),
        ({"glossary": {"entries": [["a"]]}}, "glossary.entries.0"),
        ({"glossary": {"entries": [["", "b"]]}}, "glossary"),
        ({"glossary": {"entries": [["a", "b"]] * 2000}}, "glossary"),
        ({"glossary": {"entries": [], "terms": []}}, "glossary.terms"),
        ({"glossary": {"entries": [["a", "|".join(map(str, range(6000)))]]}}, "glossary"),
        ({"glossary": {"entries": [["a", "b"]], "names": ["other"]}}, "glossary"),
        ({"glossary_mode": "soft"}, "glossary_mode"),
        ({"details": ["alignments"]}, "details.0"),
    ],
)
def test_a_wrong_field_is_named(server, fields, field):
    answer = server.ask("/v1/translate", {"text": TEXT, **fields})
    assert answer.status in (400, 413)
    assert answer.json["error"]["field"] == field


PAGE = "<p>one <b>four</b> two {x}</p>\n<ul><li>nine <a href='/'>three</a></ul>"


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_documents_are_those_of_the_command(server, folder, form):  # noqa: F811
    run = folder / "runs" / "toy"
    translator = Translator.load(run, threads=1), Aligner.load(run, device="cpu", threads=1)
    (expected,) = Pipeline(*translator).translate([PAGE], form=form)
    shown = asked(server, text=PAGE, format=form)
    assert (shown["text"], shown["score"]) == (expected.text, None)
    assert asked(server, text=PAGE, format=form, glossary="numbers")["text"].count("neun") > 0
    if form == "html":
        libre = {"q": [PAGE, "six"], "source": "en", "target": "de", "format": "html"}
        assert server.ask("/translate", libre).json["translatedText"][0] == expected.text


def test_terms_of_documents_are_counted(server):
    def counts():
        return {name: value for name, value in server.metrics().items() if name.startswith("s2s_terms_total")}

    before = sum(counts().values())
    asked(server, text="<p>one four two</p>", format="html", glossary="numbers")
    assert sum(counts().values()) == before + 2


def test_the_usage_of_a_document_is_that_of_its_sentences(server):
    def counts():
        return server.metrics()["s2s_tokens_total"]

    lines, found = ["one four two", "nine three"], []
    for text, form in (("\n".join(lines), "text"), ("".join(f"<p>{line}</p>" for line in lines), "html")):
        before = counts()
        usage = server.ask("/v1/translate", {"text": text, "format": form}).json["usage"]
        found.append((usage["sentences"], usage["target_tokens"]))
        assert counts() - before == usage["target_tokens"] > 2
    assert found[0] == found[1]
    assert found[0][0] == 2


def test_a_document_that_is_none_fails_alone(server):
    answer = server.ask("/v1/translate", {"text": "<a>one</b>", "format": "xml"})
    assert (answer.status, answer.json["error"]["field"]) == (400, "text")
    assert ", column 9" in answer.json["error"]["message"]
    answer = server.ask("/v1/translate", {"text": ["<p>one</p>", "<p>two"], "format": "xml"})
    assert (answer.status, answer.json["error"]["field"]) == (400, "text.1")
    assert "<p> is not closed, column 7" in answer.json["error"]["message"]


@pytest.mark.parametrize("error", [RuntimeError("no such event\nCompile with"), MemoryError(), OSError(28, "full")])
def test_an_aligner_that_cannot_be_loaded_is_one_line_and_tried_again(error, folder, monkeypatch, caplog):  # noqa: F811
    """In the background and for a request: a GPU may refuse what a thread does while another one records."""
    models = load([folder / "runs" / "toy"], {"engine": "torch", "threads": 1}, {"device": "cpu"})
    service = Service(Models(models), Limits())
    service.worker.start()
    bodies = {"text": "one\ntwo\nfour", "details": ["words"]}, {"text": "<p>one</p>", "format": "html"}

    def statuses():
        answers = [ask_inside(service, "/v1/translate", json.dumps(body).encode()) for body in bodies]
        return [first["status"] for first, *_ in answers]

    def fail(*arguments, **options):
        raise error

    with monkeypatch.context() as patched, caplog.at_level(logging.INFO, "seq2seq.serve.served"):
        patched.setattr(Aligner, "load", fail)
        service.prepare_details()
        until(lambda: not service._preparing.is_alive())
        (line,) = caplog.messages
        assert "\n" not in line
        assert caplog.records[0].exc_info is None
        assert statuses() == [503, 503]
        assert caplog.messages == [line] * 3
    assert statuses() == [200, 200]
    service.queue.close()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_whoever_opens_the_page_does_not_wait_for_torch_with_the_first_text(folder):  # noqa: F811
    with serving(folder / "runs" / "toy", start=new_process) as served:

        def has_torch():
            return "libtorch" in Path(f"/proc/{served.process.pid}/maps").read_text()

        served.ask("/v1/translate", {"text": "one"})
        assert not has_torch()
        served.ask("/")
        deadline = time.monotonic() + 30
        while not has_torch():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert served.stop() == 0  # in the midst of loading


def test_the_page_has_words_for_each_flag_of_a_translation():
    page = (Path(serve.__file__).parent / "page" / "parts.js").read_text(encoding="utf-8")
    named = re.search(r"const FLAGS = \{(.*?)\};", page, re.DOTALL)[1]
    assert {*FLAGS, *SYMPTOMS, REPAIRED} - {"markup", "placeholder"} <= set(re.findall(r"(\w+): \"", named))


@pytest.mark.parametrize("beam_size", [3, 9])
@pytest.mark.parametrize(("form", "text"), [("plain", "{}"), ("html", "<p>{}</p>"), ("markdown", "- {}\n")])
def test_no_sentence_of_a_document_is_longer_than_a_line_may_be(tmp_path, form, text, beam_size):
    """Because a sentence is computed without interruption, whatever waits behind it."""
    lengths = []

    class Measuring(ServedTranslator):
        def compute(self, texts, settings):
            lengths.extend(len(text.text) for text in texts)
            return super().compute([text._replace(text="a man") for text in texts], settings)

    make_ours(tmp_path / "model", ending=4.0, d_model=32)
    translator = Translator.load(tmp_path / "model", engine="torch", threads=1)
    service = Service(Models([Measuring("one", tmp_path / "model", translator, {})]), Limits(line_characters=300))
    service.worker.start()
    fields = {"text": text.format("a man rides " * 200), "format": form, "beam_size": beam_size}
    answer = ask_inside(service, "/v1/translate", json.dumps(fields).encode())
    service.queue.close()
    assert answer[0]["status"] == 200
    assert sum(lengths) > 2000
    assert max(lengths) <= 300 * 3 / beam_size
