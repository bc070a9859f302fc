"""Structured text is recognised at every door: refused with the way, read where there is a reader, and text is text."""

import gzip
import io
import json
import os
import sys
from pathlib import Path

import pytest
from support import wrong_files
from support.environment import REAL_DATA
from support.plain_words import python_words

from seq2seq.cli import main
from seq2seq.config.corpora import SourceConfig
from seq2seq.data.examples import Pair
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import DataError
from seq2seq.files import shipped_folder
from seq2seq.lines import read_lines
from seq2seq.text import forms

CORPORA = Path(os.environ.get(REAL_DATA, Path(__file__).parents[3] / "shared" / "data"))
SENTENCES = ["A dog runs.", "Two men sit, and one stands.", "Where is the station?", "I speak Russian.", "It is 12:30."]
RECORDS = [{"en": text, "de": text.upper()} for text in SENTENCES]
FORMS = {
    forms.SRT: "".join(f"{i}\n00:00:0{i},000 --> 00:00:0{i},900\n{text}\n\n" for i, text in enumerate(SENTENCES)),
    forms.VTT: "WEBVTT\n\n" + "".join(f"00:0{i}.000 --> 00:0{i}.900\n{text}\n\n" for i, text in enumerate(SENTENCES)),
    forms.ASS: "[Script Info]\nTitle: x\n\n[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,A dog runs.\n",
    forms.PO: "# A comment\n" + "".join(f'#: a.c:{i}\nmsgid "{t}"\nmsgstr ""\n\n' for i, t in enumerate(SENTENCES)),
    forms.STRINGS: "".join(f'"key{i}" = "{text}";\n' for i, text in enumerate(SENTENCES)),
    forms.JSON: "".join(json.dumps(record) + "\n" for record in RECORDS),
    forms.JSON_ARRAY: json.dumps(RECORDS, indent=1),
    forms.TMX: '<?xml version="1.0"?>\n<tmx version="1.4"><header/><body>'
    + "".join(f"<tu><tuv xml:lang='en'><seg>{t}</seg></tuv><tuv xml:lang='de'><seg>x</seg></tuv></tu>" for t in "abc")
    + "</body></tmx>\n",
    forms.XLIFF: '<?xml version="1.0"?>\n<xliff version="1.2"><file><body><trans-unit id="1"><source>A dog.</source>'
    '<target state="final">Ein Hund rennt.</target></trans-unit></body></file></xliff>\n',
    forms.HTML: "<!DOCTYPE html>\n<html><body>\n<p>A dog runs.</p>\n</body></html>\n",
    forms.XML: '<?xml version="1.0"?>\n<resources><string name="a">A dog runs.</string></resources>\n',
    forms.MOSES: "".join(f"{text} ||| {text.upper()}\n" for text in SENTENCES),
    forms.TSV: "".join(f"{text}\t{text.upper()}\n" for text in SENTENCES),
    forms.CSV: "id,text\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(SENTENCES)),
    forms.BPE: "A do@@ g run@@ s.\nTw@@ o men si@@ t.\n",
    forms.PIECES: "▁A ▁do g ▁run s .\n▁Two ▁men ▁sit .\n",
    forms.JOINERS: "A do ￭g run ￭s ￭.\nTwo m￭ en sit ￭.\n",
    forms.WORD_PIECES: "A do ##g run ##s .\nTwo men si ##t .\n",
    forms.ESCAPED: "It &apos;s a dog .\nTwo men sit .\nA well @-@ known man .\n",
    forms.OLD_MAC: "\r".join(SENTENCES) + "\r",
}  # fmt: skip
OTHERS = {
    forms.JSON: ['{"a": {"b": "A dog."}}\n', '{\n "a": "A dog."\n}\n', '{"title": "A dog", "body": "It runs'],
    forms.JSON_ARRAY: ['["A dog.", "A cat."]\n', '[{"en":"Hello.","de":"Hallo."},\n{"en":"Bye.","de":"Bye."}]\n',
                       '[\n {\n  "a": 1}]'],
    forms.XLIFF: ['<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0"><file id="f"><unit id="1">'
                  "<segment><source>A dog.</source></segment></unit></file></xliff>", "<!-- a licence -->\n<xliff>\n"],
    forms.HTML: ["<p>A dog runs.</p>\n", "<div class='x'>\n<p>A dog.</p>\n</div>", "<html lang='en'>"],
    forms.ESCAPED: ["He said &quot; yes &quot; .\nl&apos; eau est froide\n", "see &#91; 1 &#93;\nsee &#91; 2 &#93;\n"],
    forms.CSV: ["text;label\nA dog.;1\nA cat.;2\n", "A dog,1,2\nA cat,3,4\nBirds,5,6\n",
                '"A dog, a cat",x\n"Two, three",y\n"Four",z\n'],
    forms.PO: ['msgid ""\nmsgstr ""\n"Language: de\\n"\n\nmsgid "A dog"\nmsgstr "Ein Hund"\n'],
    forms.SRT: ["1\r\n00:00:01,000 --> 00:00:02,000\r\nA dog.\r\n"],
}  # fmt: skip
CASES = [*FORMS.items(), *((form, text) for form, texts in OTHERS.items() for text in texts)]
IDS = [f"{form.name}-{number}" for number, (form, _) in enumerate(CASES)]
ORDINARY = [
    "A dog runs.\n", "", "\n\n", "1\n2\n3\n", "12:30\n12:31\n", "<3 you\n", "a < b and c > d\n", "[Music]\nHello.\n",
    "[1] See there.\n", "{laughs} Hello.\n", "{name} runs.\n", '"Yes," he said.\n"No," she said.\n"So," I said.\n',
    "Yes, no.\nOne, two.\nA, b.\n", "Hello --> world\n", "#hash @home\n", "a|b|c\n", "user@@home\n", "WEB\n", "a\tb\n",
    "One;\nTwo;\nThree;\n", "Dear Sir,\nI am,\nYours,\n", "1,000 dogs\n2,000 cats\nno birds\n", "a\rb\n",
    "msgid is a word of gettext.\n", "<b>A dog</b> runs.\nA cat.\n", "12,5\n13,5\n14,5\n",
    "It&apos;s so.\nIt&apos;s &quot;so&quot;.\nA &amp; B\n", "## Heading\n### Another\n", "I was like @-@ what\n",
    "# One ## two\n", "issue #12\nissue ##\n", "It costs 2,50 euros.\nTea costs 1,80.\nBeer costs 3,20.\n",
    "Over 1,000 came.\nThen 2,000 came.\nThen 3,000.\n", "你好,再见。\n早上,晚上。\n天,地。\n",
]  # fmt: skip


@pytest.mark.parametrize(("form", "text"), CASES, ids=IDS)
def test_every_form_is_recognised(form, text):
    assert forms.form_of(text) is form
    assert forms.form_of("\ufeff" + text) is form
    assert "\n" not in str(form)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_text(text):
    assert forms.form_of(text) is None


def corpora():
    shipped = [*(shipped_folder() / "data" / "phrasebook").glob("*.en"), *(shipped_folder() / "data").rglob("*.de")]
    return [*shipped, *CORPORA.rglob("*.gz")]


@pytest.mark.parametrize("path", corpora(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_real_text_is_text(path):
    expected = forms.TSV if ".tsv" in path.name else None
    assert forms.form_of_file(path) is expected
    if expected is None:
        lines = list(read_lines(path))
        for start in range(0, len(lines), max(1, len(lines) // 300)):
            for count in (1, 2, 3, 5):
                assert forms.form_of("\n".join(lines[start : start + count])) is None


# -- doors -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return wrong_files.save(tmp_path_factory.mktemp("model") / "model")


def told(capfd, *arguments: str) -> str:
    """The one line with which a command refuses."""
    assert main(list(arguments)) == 2
    out, err = capfd.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith("s2s: engine: ")]
    assert len(lines) == 1
    assert not python_words(err)
    return lines[0]


@pytest.mark.parametrize(("form", "text"), CASES, ids=IDS)
def test_translate_refuses_a_file(form, text, model, tmp_path, capfd):
    for name, raw in (("x", text.encode()), ("x.gz", gzip.compress(text.encode()))):
        (tmp_path / name).write_bytes(raw)
        said = told(capfd, "translate", str(model), "-i", str(tmp_path / name), "-o", str(tmp_path / "out"))
        assert form.name in said
        assert form.way in said
        assert "--force" in said
    assert not (tmp_path / "out").exists()


def test_force_goes_on_line_by_line(model, tmp_path, capfd):
    (tmp_path / "x").write_text(FORMS[forms.TSV])
    arguments = ["translate", str(model), "-i", str(tmp_path / "x"), "--max-length-ratio", "1"]
    assert main([*arguments, "--force"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == len(SENTENCES)
    assert "--force" in told(capfd, *arguments, "--force", "--input-format", "html")


class Pipe(io.BytesIO):
    """Standard input that is not a file."""

    name = "<stdin>"

    def fileno(self):
        raise io.UnsupportedOperation


@pytest.mark.parametrize(
    ("form", "is_refused"), [(forms.XML, True), (forms.JSON, True), (forms.TSV, False), (forms.SRT, False)]
)
def test_of_a_pipe_the_first_lines_are_looked_at(form, is_refused, model, monkeypatch, capfd):
    stdin = io.TextIOWrapper(Pipe(FORMS[form].encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["translate", str(model), "--max-length-ratio", "1"]) == (2 if is_refused else 0)
    out, err = capfd.readouterr()
    assert form.name in err
    assert len(out.splitlines()) == (0 if is_refused else FORMS[form].count("\n"))


@pytest.mark.parametrize("form", [form for form in FORMS if not form.has_sentences])
def test_no_corpus_is_made_of_it(form, tmp_path, capfd):
    path, plain = tmp_path / "x.txt", tmp_path / "plain"
    path.write_bytes(FORMS[form].encode())
    plain.write_text("a\n" * 9)
    sources = [SourceConfig(source=path, target=plain), SourceConfig(source=plain, target=path)]
    sources += [SourceConfig(tsv=path)] * (form is not forms.TMX) + [SourceConfig(jsonl=path)] * (
        form is not forms.JSON
    )
    for source in sources:
        with pytest.raises(DataError) as caught:
            open_pairs(source, "en", "de")
        assert str(caught.value) == f"{path}: {form}"
    assert main(["check", str(path), str(plain), "--workers", "1"]) == 1
    assert form.way in capfd.readouterr().out


def test_columns_of_moses_are_read(tmp_path):
    path = tmp_path / "x"
    path.write_text(FORMS[forms.MOSES])
    assert list(open_pairs(SourceConfig(tsv=path), "en", "de")) == [Pair(text, text.upper()) for text in SENTENCES]


@pytest.mark.parametrize("form", [forms.XLIFF, forms.TMX])
@pytest.mark.parametrize("each_line", [False, True])
def test_sources_of_xliff_are_never_overwritten(form, each_line, model, tmp_path, capfd):
    path, out = tmp_path / "x", tmp_path / "out"
    texts = [FORMS[form], *OTHERS.get(form, [])[:1], "<!-- x -->" * 9000 + FORMS[form].split("?>")[1].strip()]
    for text in texts:
        path.write_text(" ".join(text.split("\n")) if each_line and "<?xml" not in text else text)
        if each_line and "<?xml" in text:
            path.write_text(text.split("?>\n")[1])
        arguments = ["translate", str(model), "--input-format", "xml", "-i", str(path), "-o", str(out)]
        said = told(capfd, *arguments, *["--each-line"] * each_line)
        assert "holds texts and their translations" in said
    assert not out.exists()


# -- tables ----------------------------------------------------------------------------------------

WORDS = [
    f"{a} {b} {c}."
    for a in ("The dog", "A cat", "One man")
    for b in ("runs", "sees 2 of them", "sits")
    for c in ("here", "now")
]
KINDS = {
    "addresses": [f"https://a.example/{i}" for i in range(len(WORDS))],
    "numbers": [f"0.{i}" for i in range(len(WORDS))],
    "identifiers": [f"doc-{i:04}:{i % 3}" for i in range(len(WORDS))],
    "'web' in each line": ["web"] * len(WORDS),
    "'en' in each line": ["en"] * len(WORDS),
    "languages": ["en", "pt-BR", "zho_Hans"] * (len(WORDS) // 3),
    "nothing": [""] * len(WORDS),
}  # fmt: skip


@pytest.mark.parametrize("suffix", ["tsv", "csv"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_other_columns_in_front_are_named(kind, count, suffix, tmp_path):
    columns = [KINDS[kind]] * count + [WORDS, [text.upper() for text in WORDS]]
    path = tmp_path / f"x.{suffix}"
    delimiter = {"tsv": "\t", "csv": ","}[suffix]
    path.write_text("".join(delimiter.join(row) + "\n" for row in zip(*columns, strict=True)))
    with pytest.raises(DataError) as caught:
        open_pairs(SourceConfig(tsv=path), "en", "de")
    said = f"column 0 has {kind}"
    assert said in str(caught.value)
    assert f"text is in {count} and {count + 1}" in str(caught.value)
    assert "source_column" in str(caught.value)
    numbered = SourceConfig(tsv=path, source_column=count, target_column=count + 1)
    assert len(list(open_pairs(numbered, "en", "de"))) == len(WORDS)


@pytest.mark.parametrize("count", [2, 3, 9])
def test_languages_in_each_line_are_no_header(count, tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("".join(f"en\tde\t{text}\t{text.upper()}\n" for text in WORDS[:count]))
    for languages in (("en", "de"), ("de", "en"), ("eng", "ger")):
        with pytest.raises(DataError, match=r"column 0 has 'en' in each line, .*; text is in 2 and 3"):
            open_pairs(SourceConfig(tsv=path), *languages)
    path.write_text("en\tde\nno\tnein\n" + "so\tso\n" * count)
    assert len(list(open_pairs(SourceConfig(tsv=path), "en", "de"))) == count + 1


def test_columns_behind_the_text_do_no_harm(tmp_path):
    path = tmp_path / "x.tsv"
    for other in KINDS.values():
        path.write_text("".join("\t".join(row) + "\n" for row in zip(WORDS, WORDS, other, strict=True)))
        assert len(list(open_pairs(SourceConfig(tsv=path), "en", "de"))) == len(WORDS)
        labels = ["good", "bad"] * 9
        path.write_text("".join("\t".join(row) + "\n" for row in zip(WORDS, labels, other, strict=True)))
        assert len(list(open_labelled(SourceConfig(tsv=path)))) == len(WORDS)
