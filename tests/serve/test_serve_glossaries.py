"""Glossaries of the server, documents in turns, models of one direction, and language tags. About 10 s."""

import json
import logging
import threading
import time
from pathlib import Path

import pytest
from support.listed import Listed
from support.reversed_folder import folder  # noqa: F401 (a fixture)
from support.serving import quick_model, serving

from seq2seq.errors import UserError
from seq2seq.inference.aligner import Aligner
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.interop.m2m_settings import TOKENIZERS
from seq2seq.serve.glossaries import Glossaries
from seq2seq.serve.limits import Limits
from seq2seq.serve.models import Models
from seq2seq.text.alignment import Alignment, Link, Word
from seq2seq.text.direction import languages_meant
from seq2seq.text.glossary import Glossary
from seq2seq.text.parts import cut

# Names of languages, each with those of a model in which several languages have the name.
SEVERAL = {
    "zh": TOKENIZERS["NllbTokenizer"].codes.split(), "sr": ["en", "srp_Cyrl", "srp_Latn"],
    "pt": ["en", "pt_BR", "pt_PT"], "no": ["eng_Latn", "nob_Latn", "nno_Latn"],
}  # fmt: skip

TEXT = "one four two"


@pytest.fixture(scope="module")
def run(folder):  # noqa: F811
    return folder / "runs" / "toy"


@pytest.fixture(scope="module")
def server(run, tmp_path_factory):
    place = tmp_path_factory.mktemp("terms")
    (place / "numbers.tsv").write_text("four\tneun\nfour\tzehn\n" + "".join(f"w{n}\tx\n" for n in range(1500)))
    (place / "other.tsv").write_text("one\tsieben\n")
    named = f"sevens={place / 'other.tsv'}"
    with serving(run, run, "--glossary", place / "numbers.tsv", "--glossary", named) as served:
        yield served


def translated(server, **fields) -> str:
    answer = server.ask("/v1/translate", {"text": TEXT, **fields})
    assert answer.status == 200, answer.body
    return answer.json["translations"][0]["text"]


def test_a_glossary_of_the_server_reaches_every_door(server):
    """And larger ones than a request may hold; `[]` is none."""
    plain, own = translated(server, glossary=[]), translated(server)
    assert "neun" in own.split()
    assert "neun" not in plain.split()
    assert server.form("/translate", q=TEXT, source="en", target="de").json["translatedText"] == own
    assert own.encode() in server.form("/", text=TEXT, direction="0").body
    assert "neun" in translated(server, text=f"<p>{TEXT}</p>", format="html")
    assert "sieben" in translated(server, glossary="sevens").split()
    assert "neun" not in translated(server, glossary="sevens").split()
    both = translated(server, glossary={"entries": [["two", "acht"]], "names": ["numbers"]}).split()
    assert {"neun", "acht"} <= set(both)
    exact = {"entries": [["four", "VIER", "case"], ["two", "ZWEI"]]}  # without the option, any case will do
    assert {"VIER", "zwei"} <= set(translated(server, glossary=exact).split())
    able = server.ask("/v1/models").json["abilities"]
    assert (able["glossaries"], able["default_glossaries"]) == (["numbers", "sevens"], ["numbers"])
    assert any("four" in line and "numbers.tsv" in line for line in server.log)  # the second entry for it


def test_alternatives_keep_to_the_glossary(server):
    """With a prefix too, which stays as it is."""
    for fields in ({}, {"prefix": "zwei"}):
        answer = server.ask("/v1/translate", {"text": TEXT, "alternatives": 4, "beam_size": 8, **fields})
        (one,) = answer.json["translations"]
        texts = [one["text"], *(other["text"] for other in one["alternatives"])]
        assert all("neun" in text.split() for text in texts)
        assert len(set(texts)) == len(texts)
        assert one["text"].startswith(fields.get("prefix", ""))


def test_a_prefix_holds_where_a_term_would_replace_it(run):
    translator, aligner = Translator.load(run, threads=1), Aligner.load(run, device="cpu", threads=1)
    keeper = Pipeline(translator, aligner, Glossary.of([(1, ["two", "neun"])], "de", "terms"))
    (free,) = translator.translate([TEXT])
    first = free.text.split()[0]
    for found in (keeper.translate([TEXT], prefixes=[first]), keeper.translate([TEXT, TEXT], prefixes=["", first])[1:]):
        assert found[0].text.startswith(first)
    assert "neun" in keeper.translate([TEXT])[0].text


def test_names_of_glossaries_are_unique_and_files_are_told(tmp_path, caplog):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"terms.{name}.tsv").write_text("one\teins\none\tzwei\n")
    paths = [str(tmp_path / name / f"terms.{name}.tsv") for name in ("a", "b")]
    with pytest.raises(UserError, match="name terms; give it as NAME="):
        Glossaries.read(paths)
    with caplog.at_level(logging.WARNING):
        found = Glossaries.read([paths[0], f"second={paths[1]}"])
    assert (set(found.named), found.default_names) == ({"terms", "second"}, ("terms",))
    assert caplog.text.count("one") >= 2
    with pytest.raises(UserError):
        Glossaries.read([f"x={tmp_path / 'missing'}"])


@pytest.mark.parametrize("spelled", ["terms.tsv", "./terms.tsv", "in//terms.tsv", "in/../terms.tsv", "a=b.tsv"])
def test_a_file_applies_by_default_however_it_is_spelled(spelled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in ("terms.tsv", "in/terms.tsv", "a=b.tsv"):
        (tmp_path / name).write_text("one\tsieben\n")
    found = Glossaries.read([spelled])
    assert found.default_names == tuple(found.named) == (Path(spelled).stem,)
    assert Glossaries.read([f"own={spelled}"]).default_names == ()


@pytest.mark.parametrize("language", SEVERAL)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_glossary_applies_to_each_model_that_knows_its_direction(language, place, tmp_path, caplog):
    """Wherever a model stands in which several languages have the name; the log says that it does not apply to that."""
    several, exact = SEVERAL[language], [("en", language), ["de", "en", language]]
    served = [
        Listed(f"model {number}", known) for number, known in enumerate([*exact[:place], several, *exact[place:]])
    ]
    (tmp_path / "a.tsv").write_text("one\tsieben\n")
    name = f"en-{language}"
    with caplog.at_level(logging.WARNING):
        fitting = Glossaries.read([f"{name}={tmp_path / 'a.tsv'}"]).fitting(Models(served))
    unclear = served.pop(place)
    assert all(fitting.of_direction(one.towards("en", language)) == [name] for one in served)
    told = [line for line in caplog.messages if line.startswith(f"glossary {name} does not apply to requests to ")]
    own = languages_meant(language, several)
    assert len(own) > 1
    words = f"{unclear.name}: several languages have this name; name one of {', '.join(own)}"
    assert [line.endswith(words) for line in told] == [True]
    for target in own:
        assert fitting.of_direction(unclear.towards("en", target)) == []
        (one,) = Glossaries.read([f"en-{target}={tmp_path / 'a.tsv'}"]).fitting(Models([unclear])).directions.values()
        assert [direction.target for direction in one] == [target]


def test_two_models_of_one_direction_are_chosen_by_name(tmp_path):
    for name, seed in (("old", 1), ("new", 4)):
        quick_model(tmp_path / name, seed)
    known = {name: Translator.load(tmp_path / name, threads=1).translate(["a man"])[0].text for name in ("old", "new")}
    assert known["old"] != known["new"]
    with serving(tmp_path / "old", tmp_path / "new") as served:
        for name in known:
            fields = {"text": "a man", "model": name, "source": "en", "target": "de"}
            answer = served.ask("/v1/translate", fields).json
            assert (answer["model"]["name"], answer["translations"][0]["text"]) == (name, known[name])
        assert served.translations(["a man"]) == [known["old"]]
        assert served.form("/translate", q="a man", source="en", target="de").json["translatedText"] == known["old"]
        assert known["new"] in served.form("/", text="a man", direction="1").body.decode()
        page = served.ask("/").body.decode()
        assert "(old)" in page
        assert "(new)" in page
        unknown = served.ask("/v1/translate", {"text": "a man", "model": "none"})
        assert (unknown.status, unknown.json["error"]["field"]) == (400, "model")


# -- size and turns --------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_the_settings_promise_fits(server):
    """A document and a text of the advertised size: they come to the deadline at worst."""
    most = server.ask("/frontend/settings").json["charLimit"]
    assert most == Limits().request_characters
    # What is not language costs nothing, so that the test is quick.
    for fields in ({"q": "1. " * (most // 3)}, {"q": "7" * most}, {"q": "<p>7</p>" * (most // 8), "format": "html"}):
        answer = server.ask("/translate", {**fields, "source": "en", "target": "de"})
        assert answer.status in (200, 504), answer.body
        over = {**fields, "q": fields["q"] + "7" * 9, "source": "en", "target": "de"}
        refused = server.ask("/translate", over)
        assert (refused.status, "200,000 characters" in refused.json["error"]) == (413, True)


def test_a_long_document_does_not_hold_up_a_line(server):
    begun, ends = time.monotonic(), []
    page = "".join(f"<p>one four two {number % 7} three</p>" for number in range(400))

    def ask() -> None:
        server.ask("/v1/translate", {"text": page, "format": "html"})
        ends.append(time.monotonic() - begun)

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(3):
        asked = time.monotonic()
        translated(server, text="one two", glossary=[])
        assert time.monotonic() - asked < 20
    thread.join()
    counts = server.counts()
    assert counts["accepted"] == sum(count for state, count in counts.items() if state != "accepted")


# -- language tags ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "split", "expected"),
    [
        (">>fra<< The cat sleeps. We buy bread.", "sentences", [">>fra<< The cat sleeps.", ">>fra<< We buy bread."]),
        (" >>fra<< Yes. No.\nAnd you?", "sentences", [">>fra<< Yes.", ">>fra<< No.", ">>fra<< And you?"]),
        (">>fra<< Yes.\n>>deu<< No. You?", "sentences", [">>fra<< Yes.", ">>deu<< No.", ">>deu<< You?"]),
        ("Yes. >>fra<< No.", "sentences", ["Yes.", ">>fra<< No."]),
        (">>fra<< Yes. No.\nYou?", "lines", [">>fra<< Yes. No.", "You?"]),
    ],
)
def test_every_sentence_has_the_language_tag(text, split, expected):
    pieces = cut(text, split)
    assert [(piece.tag + piece.text).strip() for piece in pieces] == expected
    assert all(text[piece.begin :].startswith(piece.text) for piece in pieces)


def test_no_copied_sentence_has_a_tag_that_was_added(server):
    for text in (">>fra<< One seven. 4242. One.", ">>fra<< One seven.\n4242.\nOne."):
        assert "4242." in translated(server, text=text, split="sentences", glossary=[]).split()


def test_spans_are_of_the_text_without_a_tag_that_was_added():
    words = (Word((0, 3), -0.1),)
    links = Link((0, 7), (0, 3), 0.1), Link((8, 11), (0, 3), 0.9)
    details = Alignment((0, 11), (0, 3), ((0, 7), (8, 11)), words, links, 1)
    (shown,) = Translation("oui", 0, 0, 1, source=">>fra<< yes", details=(details,)).without_tag(8).details
    assert (shown.source, shown.source_words) == ((0, 3), ((0, 3),))
    assert shown.links == (Link((0, 3), (0, 3), 0.9),)
    assert json.dumps(shown.as_json())
