"""Glossaries as files and rules: read or refused in one line, matched in every script, at a cost of the text alone."""

import codecs
import csv
import gzip
import io
import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_scripts import ANY_TEXT, TEXTS

from seq2seq.errors import DataError
from seq2seq.text.glossary import MOST_ENTRIES, MOST_FORMS, MOST_TOLD, Glossary, occurrences, places
from seq2seq.text.words import word_spans


def glossary(*rows: tuple[str, ...], source: str | None = None, target: str | None = None) -> Glossary:
    return Glossary.of(enumerate(rows, start=1), target, "terms", source)


def found(entries: Glossary, text: str) -> list[tuple[str, str]]:
    return [(match.entry.source, text[slice(*match.span)]) for match in entries.matches(text)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("station\tStraße\n".encode("latin-1"), ("line 1 is not UTF-8", "iconv -f WINDOWS-1252")),
        ("a\tb\nstation\tStraße\n".encode("cp1252"), ("line 2 is not UTF-8", "iconv")),
        ("вокзал\tstation\n".encode("cp1251"), ("line 1 is not UTF-8", "iconv")),
        ("駅\tstation\n".encode("shift-jis"), ("line 1 is not UTF-8", "iconv")),
        (codecs.BOM_UTF16_LE + "station\tStraße\n".encode("utf-16-le"), ("iconv -f UTF-16",)),
        (codecs.BOM_UTF16_BE + "station\tStraße\n".encode("utf-16-be"), ("iconv -f UTF-16",)),
        ("station\tHalt\n".encode("utf-16-le"), ("iconv -f UTF-16",)),
        ("station\tHaltestelle\n".encode("utf-32-le"), ("iconv -f UTF-",)),
        (b"a\tb\rc\td\r", ("line 1 has carriage returns", "tr ")),
        (b"", ("no entries",)),
        (b"# nothing\n\nsource\ttarget\n", ("no entries",)),
        (b"a\t" + b"x" * 100_000 + b"\n", ("line 1 has more than",)),
        (b"a\t" + b"|".join(b"q%d" % number for number in range(60)) + b"\n", ("60 forms", f"at most {MOST_FORMS}")),
        (b"-\t" + b"|".join(b"q%d" % number for number in range(60)) + b"\n", ("60 forms", f"at most {MOST_FORMS}")),
        ("\u200b\tx\n".encode(), ("no source term",)),
    ],
)
@pytest.mark.parametrize("name", ["terms.tsv", "terms.csv"])
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path, content, words, name):
    path = tmp_path / name
    path.write_bytes(content.replace(b"\t", b",") if name.endswith("csv") else content)
    with pytest.raises(DataError) as raised:
        Glossary.read(path)
    message = str(raised.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 400
    assert all(word in message for word in words)


ENTRIES = [("dog", "Hund"), ("red, big car", "rotes; großes Auto"), ('say "x"', 'sag "x"'), ("Acme", "=")]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("start", ["", "\ufeff", "# a remark\n\n", "source{0}target\n", "sep={0}\n"])
@pytest.mark.parametrize("name", ["g.csv", "g.CSV", "Glossar.Csv", "g.csv.gz"])
@pytest.mark.parametrize("more", [(), ("en", "de")])
def test_the_tables_of_spreadsheets_are_read(tmp_path, delimiter, start, name, more):
    """With any delimiter that Excel writes, and quotes where they are needed."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerows((*entry, *more) for entry in ENTRIES)
    raw = (start.format(delimiter) + text.getvalue()).encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    glossary = Glossary.read(tmp_path / name)
    assert [(source, target) for source, target, _ in glossary.rows] == ENTRIES
    assert not glossary.problems


def test_the_quotes_of_a_spreadsheet_are_no_part_of_terms(tmp_path):
    """In a TSV as in other tables; quotes that no spreadsheet wrote are text."""
    text = io.StringIO()
    csv.writer(text, delimiter="\t").writerows(ENTRIES)
    (tmp_path / "g.tsv").write_text(text.getvalue(), newline="")
    assert [(source, target) for source, target, _ in Glossary.read(tmp_path / "g.tsv").rows] == ENTRIES
    (tmp_path / "g.tsv").write_text('5" pipe\tRohr\n"Acme"\t=\n')
    assert [entry.source for entry in Glossary.read(tmp_path / "g.tsv").entries] == ['5" pipe', '"Acme"']


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("g.csv", '"a\nb",c\n', "line 1: not one record"),
        ("g.csv", 'd,e\n"a\r\nb",c\n', "line 2: not one record"),
        ("g.csv", 'd;e\nf;"a\nb"\n', "line 2: not one record"),
        ("g.csv", "a;b,c;d\n", "write a first line such as sep=;"),
    ],
)
def test_an_entry_is_one_line_with_one_delimiter(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=words):
        Glossary.read(tmp_path / name)


def test_a_line_of_a_csv_with_another_delimiter_is_told(tmp_path):
    (tmp_path / "g.csv").write_text("dog;Hund\ncat,Katze\n")
    assert Glossary.read(tmp_path / "g.csv").problems == (
        "line 2: no target for 'cat,Katze', so translations must copy it; write = to say so",
    )


def test_a_form_that_is_also_forbidden_is_told(tmp_path):
    rows = ("cat", "Katze"), ("dog", "Hund|kleine Katze"), ("-", "Katze"), ("-", "HUND", "case"), ("hut", "Katzenhaus")
    (tmp_path / "terms.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    assert Glossary.read(tmp_path / "terms.tsv").problems == (
        "line 1: 'Katze' contains what line 3 forbids", "line 2: 'kleine Katze' contains what line 3 forbids",
    )  # fmt: skip


def test_what_is_doubtful_is_told_but_not_for_ever(tmp_path):
    path = tmp_path / "terms.tsv"
    lines = ["station   Haltestelle", "dog;Hund", "Firefox", "cat\tKatze", "CAT\tKater", "cat\tKätzchen", "bird\t"]
    path.write_text("\ufeff" + "\n".join(lines) + "\n", encoding="utf-8")
    problems = Glossary.read(path).problems
    assert [problem.split(":")[0] for problem in problems] == ["line 1", "line 2", "line 6", "line 7"]
    assert "no tab in 'station Haltestelle'" in problems[0]
    assert "already in line 4" in problems[2]
    assert "no target for 'bird', so translations must copy it" in problems[3]
    path.write_text("".join(f"two words {number}\n" for number in range(500)), encoding="utf-8")
    problems = Glossary.read(str(path)).problems
    assert len(problems) == MOST_TOLD + 1
    assert problems[-1].startswith("490 more lines")


@pytest.mark.parametrize("forms", [("NFC", "NFC"), ("NFC", "NFD"), ("NFD", "NFC"), ("NFD", "NFD")])
@pytest.mark.parametrize("language", TEXTS)
def test_every_word_of_every_script_is_found_whole(language, forms):
    """In any normal form, where the text has it, and in compounds of its letters only where words are not separated."""
    first = TEXTS[language][1].split("|")
    text = unicodedata.normalize(forms[0], " ".join(first))
    for word in {word for word in first if word[-1].isalnum()}:
        entries = glossary((unicodedata.normalize(forms[1], word), "x"), source=language, target=language)
        spans = [match.span for match in entries.matches(text)]
        assert [unicodedata.normalize("NFC", text[begin:end]) for begin, end in spans] == [
            unicodedata.normalize("NFC", other) for other in first if other == word
        ]
        assert set(spans) <= set(word_spans(text, ()))
        assert set(spans) <= set(occurrences(word, text, language=language))


@pytest.mark.parametrize(
    ("term", "longer"),
    [
        ("राम", "रामायण"), ("हिन", "हिन्दी"), ("cafe", "cafe\u0301"), ("caf", "café"), ("قط", "قِطَّة"), ("می", "می‌روم"),
        ("அவ", "அவன்"), ("අව", "ශ්‍රී"), ("बात", "बातें"), ("ва", "вай\u0306"), ("이것", "이것은"), ("ক", "কি"), ("צה", "צהּ"),
        ("น", "น้ำ"), ("ក", "ក្រ"), ("Hund", "Hunde"), ("а", "а\u0301"), ("wo", "wo\u00adrd"), ("re", "c\u2060re"),
        ("👨", "👨‍👩‍👧"), ("e", "e\u0323\u0302"),
    ],
)  # fmt: skip
def test_a_term_is_not_found_in_a_longer_word(term, longer):
    for text in (longer, f"x {longer} y", unicodedata.normalize("NFD", longer), unicodedata.normalize("NFC", longer)):
        assert not glossary((term, "x")).matches(text)
        assert not occurrences(term, text)
        assert not glossary(("-", term)).said(text)
    text = f"{longer} {term}"
    assert [match.span for match in glossary((term, "x")).matches(text)] == [(len(longer) + 1, len(text))]
    assert occurrences(term, text) == [(len(longer) + 1, len(text))]


@pytest.mark.parametrize(
    ("source", "target", "row", "text", "forms"),
    [
        ("en", "tr", ("cat", "şehir"), "THE CAT", "ŞEHİR"),
        ("en", "tr", ("cat", "ispanya"), "The Cat", "İspanya"),
        ("en", "az", ("cat", "işıq"), "THE CAT", "İŞIQ"),
        ("en", "el", ("cat", "αθήνα"), "THE CAT", "ΑΘΗΝΑ"),
        ("en", "nl", ("cat", "ijs"), "The Cat", "IJs"),
        ("en", "de", ("cat", "straße"), "THE CAT", "STRASSE"),
        ("tr", "en", ("ışık", "light"), "IŞIK", "LIGHT"),
        ("tr", "en", ("istanbul", "x"), "İSTANBUL", "X"),
        ("el", "en", ("αθήνα", "athens"), "ΑΘΗΝΑ", "ATHENS"),
        ("el", "en", ("οδός", "street"), "ΟΔΟΣ", "STREET"),
        ("de", "en", ("straße", "street"), "STRASSE", "STREET"),
        ("fr", "en", ("eau", "water"), "l’eau", "water"),
        ("fr", "en", ("aujourd'hui", "today"), "aujourd’hui", "today"),
        ("hy", "en", ("և", "and"), "ԵՎ", "AND"),
        ("lt", "en", ("i\u0307\u0300", "x"), "tai \u00cc", "X"),
    ],
)
def test_case_is_that_of_both_languages(source, target, row, text, forms):
    matches = glossary(row, source=source, target=target).matches(text)
    assert [match.forms for match in matches] == [(forms,)]
    assert places(matches, f"a {forms} b") == [(2, 2 + len(forms))]


@pytest.mark.parametrize(
    ("language", "term", "text"), [("tr", "ışık", "ISIK"), ("tr", "ilk", "ILK"), ("el", "πότε", "ποτέ")]
)
def test_other_letters_are_other_words(language, term, text):
    assert not glossary((term, "x"), source=language).matches(text)
    assert not occurrences(term, text, language=language)


@given(ANY_TEXT, st.lists(ANY_TEXT.map(str.strip).filter(bool), min_size=1, max_size=4))
def test_spans_are_in_order_and_hold_their_terms(text, terms):
    rows = [(term[:20], "x") for term in terms if term[:20].strip("\u200b \t\r\n*") and "-" not in term]
    entries = glossary(*rows)
    spans = [match.span for match in entries.matches(text)]
    assert all(begin < end for begin, end in spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    for match in entries.matches(text):
        assert entries.matches(text[slice(*match.span)])


def test_the_cost_is_that_of_the_text_and_not_of_the_terms():
    """As many forbidden words and terms as there may be, all with one beginning."""
    text = "the station and the house " * 20
    few, many = (
        glossary(
            *((f"station {number}", "|".join(f"q{form}" for form in range(3))) for number in range(count // 2)),
            *(("-", f"the verbot{number}") for number in range(count // 2 - 1)), ("-", "house"),
        )
        for count in (100, MOST_ENTRIES)
    )  # fmt: skip

    def seconds(entries: Glossary) -> float:
        taken = []
        for _ in range(5):
            start = time.process_time()
            assert not entries.matches(text)
            assert [one.words for one in entries.said(text)] == ["house"]
            taken.append(time.process_time() - start)
        return min(taken)

    assert seconds(many) < 5 * seconds(few) + 0.01
    assert glossary(("station", "|".join(f"q{form}" for form in range(MOST_FORMS)))).matches(text)


@pytest.mark.parametrize("answer", ["forma1", "wort"])
def test_places_of_many_terms_cost_what_the_text_costs(answer):
    entries = glossary(("word", "|".join(f"forma{form}" for form in range(MOST_FORMS))))

    def seconds(count: int) -> float:
        matches = entries.matches("word " * count)
        assert len(matches) == count
        taken = []
        for _ in range(3):
            start = time.process_time()
            where = places(matches, f"{answer} " * count)
            taken.append(time.process_time() - start)
        assert all(where) if answer == "forma1" else not any(where)
        return min(taken)

    assert seconds(4000) < 24 * seconds(500) + 0.01
