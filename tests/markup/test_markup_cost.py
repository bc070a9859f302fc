"""Documents cost what their size costs: time and memory grow with it, whatever they are made of."""

import contextlib
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it.parser_inline import ParserInline
from support.costs import GROWTH, MOST_TIMES, NESTED, families, growth
from support.markup_answers import Nonsense, upper

from seq2seq.errors import DataError
from seq2seq.markup import html, markdown, plain, xml
from seq2seq.markup.document import join
from seq2seq.markup.markdown_parser import MOST_BRACKETS, inline_marks
from seq2seq.markup.translation import translate_documents

PARSERS = {"html": html.segments, "markdown": markdown.segments, "plain": plain.segments, "xml": xml.segments}
FAMILIES = dict(families())
# Those that were slow once, and one of each kind.
QUICK = [
    "'<!-- a --> '", "'<a '", "'a.'", "'1'", "'&#'", "'[a][b'", "'[^'", "'<b>w</i>'", "'{a,plural,'", "'{/*'", "'%0'",
    "'http://)'", "'<b>w ' in each other", "'[a' in each other", "attributes", "a name of an attribute",
    "a reference of digits", "a wide table",
]  # fmt: skip


def parsed(form: str, text: str) -> None:
    with contextlib.suppress(DataError):
        PARSERS[form](text)


def translated(form: str, text: str) -> None:
    with contextlib.suppress(DataError):
        translate_documents([text], form, upper)


def wrapped(form: str, text: str) -> str:
    return f"<r>{text}</r>" if form == "xml" and not text.startswith("<!-- a") else text


@pytest.mark.parametrize("form", PARSERS)
@pytest.mark.parametrize("name", QUICK)
def test_parsing_takes_time_in_proportion(form, name):
    assert growth(lambda text: parsed(form, wrapped(form, text)), FAMILIES[name], 300) <= MOST_TIMES


@pytest.mark.parametrize("name", [name for name in FAMILIES if "[" in name])
def test_brackets_are_looked_at_a_bounded_number_of_times(name, monkeypatch):
    looks, skip = [], ParserInline.skipToken
    monkeypatch.setattr(ParserInline, "skipToken", lambda *given: looks.append(1) or skip(*given))
    text = FAMILIES[name](300)
    document = markdown.segments(text)
    assert join(document, [None] * len(document.segments)) == text
    assert len(looks) <= 3 * MOST_BRACKETS * len(text)


def test_links_after_brackets_that_are_not_closed_are_links():
    text = "[0, 1) " * (2 * MOST_BRACKETS) + "[a word](b) and ![a picture](c)"
    kinds = [mark.token.type for mark in inline_marks(text, {})]
    assert kinds == ["link_open", "link_close", "image"]


@pytest.mark.slow
@pytest.mark.parametrize("form", PARSERS)
@pytest.mark.parametrize(("call", "count"), [(parsed, 100), (translated, 70)])
def test_every_family_takes_time_in_proportion(form, call, count):
    slow = {}
    for name, family in FAMILIES.items():
        if form == "plain" and f"word {name} word" in FAMILIES:
            continue  # tags are words there, so the same unit in a paragraph is enough
        found = growth(lambda text: call(form, wrapped(form, text)), family, count)
        if found > MOST_TIMES:
            slow[name] = round(found)
    assert slow == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a long paragraph", "a link around sentences", "'<b>w ' in each other"])
@pytest.mark.parametrize("form", ["html", "markdown"])
def test_translating_takes_time_and_memory_in_proportion(form, name):
    assert growth(lambda text: translated(form, text), FAMILIES[name], 100) <= MOST_TIMES
    peaks = []
    for count in (40, 40 * GROWTH):
        text = FAMILIES[name](count)
        tracemalloc.start()
        translated(form, text)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * GROWTH * peaks[0]


DELIMITERS = "<>/!-[]()?&#;\"'`*_~|\\=+.:%{}$@ \n\t09axX漢é\u0301\ufffc\ud800\x00"
BITS = ["<![", "&#", "]]>", "<!--", "a", "<!", '<a x="', ">", " ", *(part for pair in NESTED for part in pair)]


@pytest.mark.parametrize("form", PARSERS)
@settings(deadline=None, max_examples=300)
@given(text=st.text(DELIMITERS, max_size=40) | st.lists(st.sampled_from(BITS)).map("".join))
def test_whatever_is_given_is_read_or_refused(form, text):
    try:
        document = PARSERS[form](text)
    except DataError:
        return
    assert join(document, [None] * len(document.segments)) == text
    translate_documents([text], form, Nonsense(1, 0.7))


@pytest.mark.parametrize(
    ("form", "begin", "end"),
    [
        ("html", "<b>w ", "</b>"),
        ("html", "<div>", "</div>"),
        ("html", "<b>", "</b>"),
        ("xml", "<a>w ", "</a>"),
        ("xml", "<a>", "</a>"),
        ("markdown", "<b>w ", "</b>"),
        ("markdown", "*w ", "*"),
        ("markdown", "[w ", "](x)"),
    ],
)
def test_deep_documents_are_translated(form, begin, end):
    """The tags of all levels are there, in an order that closes them."""
    depth = 2_000
    text = begin * depth + "word" + end * depth
    (marked,) = translate_documents([text], form, upper)
    assert "WORD" in marked.text
    assert marked.text.count("W") >= text.count("w")
    if begin.startswith("<"):
        assert marked.text.casefold() == text.casefold()


@pytest.mark.parametrize("seed", range(10))
def test_deep_xml_stays_well_formed(seed):
    text = "<a>w " * 300 + "<b>x</b> <c/>word" + "</a> w" * 300
    (marked,) = translate_documents([f"<r>{text}</r>"], "xml", Nonsense(seed, 0.7))
    xml.segments(marked.text)
    assert marked.text.count("<a>") == marked.text.count("</a>") == 300


@pytest.mark.parametrize("text", ["> " * 150 + "w", "".join("  " * level + "- a\n" for level in range(150))])
def test_markdown_that_its_parser_cannot_nest_is_refused(text):
    with pytest.raises(DataError, match=r"Markdown, line \d+: 100 levels"):
        markdown.segments(text)
