"""Translated documents: what goes in comes out, well-formed, whatever the model says. About 20 s."""

import html
import re
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.markup_answers import WORDS, Nonsense, answered, upper
from test_markup_parsing import ODD_MARKDOWN

from seq2seq.errors import DataError
from seq2seq.markup.placeholders import CLASSES
from seq2seq.markup.tags import closes_itself
from seq2seq.markup.translation import translate_documents
from seq2seq.text.alignment import Term
from seq2seq.text.words import word_spans

PIECES = ("{name}", "%s", "https://a.example/x?y=1", "me@a.example", "<code>x &lt; 1</code>", "{{ user.name }}", "v{n}")
REPEATED, UNIQUE = ("b", "i", "em", "strong"), ("a", "g")
VOID = ("<br>", "<img src='x'>", "<!-- note -->", "😀")


@st.composite
def fragments(draw, depth=3, gap=""):
    """A sentence with markup, with a gap around pairs of tags."""
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.integers(0, 5))
        if kind == 0 and depth:
            name = draw(st.sampled_from((*REPEATED, *UNIQUE)))
            inside = draw(fragments(depth - 1, gap))
            parts.append(f"{gap}<{name} n='{draw(st.integers(0, 99))}'>{inside}</{name}>{gap}")
        elif kind == 1:
            parts.append(draw(st.sampled_from(VOID)))
        elif kind == 2:
            parts.append(f" {draw(st.sampled_from(PIECES))} ")
        else:
            parts.append(draw(st.sampled_from([*WORDS, ",", "town. The", "&amp; more"])))
        parts.append(draw(st.sampled_from([" ", " ", "", "\n"])))
    return "".join(parts)


def tags(text: str) -> Counter[str]:
    return Counter(re.findall(r"<[^<>]+>", text))


class Balanced(HTMLParser):
    """Raises where tags are not closed in their order."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def assert_kept(before: str, after: str) -> None:
    parser = Balanced()
    parser.feed(after)
    parser.close()
    assert parser.open == []
    old, new = tags(before), tags(after)
    assert old.keys() == new.keys()
    for tag, count in old.items():
        repeats = re.match(rf"</?({'|'.join(REPEATED)})\b", tag)
        assert new[tag] >= count if repeats else new[tag] == count
    for piece in (*PIECES, "😀"):
        assert after.count(piece) == before.count(piece), piece


@settings(deadline=None, max_examples=300)
@given(text=fragments(), seed=st.integers(0, 10**6), keeps=st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_whatever_the_model_says_nothing_is_lost(text, seed, keeps):
    (marked,) = translate_documents([text], "html", Nonsense(seed, keeps))
    assert_kept(text, marked.text)


@settings(deadline=None, max_examples=200)
@given(text=fragments(), longest=st.sampled_from([1, 10, 60, sys.maxsize]))
def test_an_identity_changes_nothing(text, longest):
    """However sentences are cut."""

    def same(texts):
        return [
            answered(text, words := word_spans(text, ()), words, [(one, one, 1.0) for one in words]) for text in texts
        ]

    assert translate_documents([text], "html", same, longest=longest)[0].text == text


AMPERSANDS = ("&", "R&", "&amp", "&amp;", "&nbsp", "&copy", "&page=", "&#59;", "&semi;", ";", "a")


@settings(deadline=None, max_examples=200)
@given(parts=st.lists(st.sampled_from([*PIECES[:4], *AMPERSANDS, " "]), max_size=8))
def test_an_identity_changes_no_character_where_an_ampersand_is_no_entity(parts):
    text = "".join(parts)
    (marked,) = translate_documents([f"<p>{text}</p>"], "html", lambda texts: [answered(one) for one in texts])
    written = html.unescape(marked.text.removeprefix("<p>").removesuffix("</p>"))
    assert re.sub(" +", " ", written).strip(" ") == re.sub(" +", " ", html.unescape(text)).strip(" ")


@settings(deadline=None, max_examples=300)
@given(text=fragments(gap=" "))
def test_words_in_their_places_have_their_tags(text):
    """With capitals for a translation, taking tags and white space out of both leaves the same text."""
    (marked,) = translate_documents([text], "html", upper)
    assert_kept(text, marked.text)
    bare = [re.sub(r"<code>.*?</code>|<[^<>]+>|\s|😀", "", one) for one in (text, marked.text)]
    assert bare[0].casefold() == bare[1].casefold()
    for tag in (*REPEATED, *UNIQUE):
        ours, theirs = (sorted(inner(tag, one)) for one in (text, marked.text))
        if tag in UNIQUE:
            assert ours == theirs


@pytest.mark.parametrize("form", ["html", "markdown"])
@pytest.mark.parametrize("value", ["http://x.org/a/", "/"])
def test_a_slash_at_the_end_of_a_value_without_quotes_belongs_to_it(form, value):
    """The element is the same as with quotes, and is not empty."""
    text = "Go <a href={}>to the shop</a> today, <b>now</b>."
    bare, quoted = (
        translate_documents([text.format(attribute)], form, upper)[0].text for attribute in (value, f"'{value}'")
    )
    assert bare.replace(f"={value}>", f"='{value}'>") == quoted
    assert quoted.index("<a ") < quoted.index("SHOP") < quoted.index("</a>")
    assert closes_itself("<br/>")
    assert closes_itself("<img alt='a'/>")
    assert closes_itself("<img alt=a />")


@pytest.mark.parametrize("text", ["<r>hello there</r>", "<r><![CDATA[hello there]]></r>"])
def test_characters_that_xml_does_not_have_are_replaced(text):
    """Byte pieces of a model may spell them."""
    said = "a\x03b \ufffe\U0001f600 \x1f]]>"

    (marked,) = translate_documents([text], "xml", lambda lines: [answered(said) for _ in lines])
    assert "".join(ElementTree.fromstring(marked.text).itertext()) == "a\ufffdb \ufffd\U0001f600 \ufffd]]>"


def inner(tag: str, text: str) -> list[str]:
    """The letters in each pair of a name, innermost first, capitals or not, without marks."""
    found = []
    pattern = re.compile(rf"<{tag} n='\d+'>((?:(?!<{tag}\b).)*?)</{tag}>", re.DOTALL)
    while match := pattern.search(text):
        found.append("".join(filter(str.isalpha, re.sub("<code>.*?</code>|<[^<>]+>", "", match[1]).casefold())))
        text = text[: match.start()] + match[1] + text[match.end() :]
    return found


@pytest.mark.parametrize(
    ("source", "said", "expected"),
    [
        ("<h1>My <b>town</b></h1>", "Meine Stadt.", "<h1>Meine <b>Stadt</b></h1>"),
        ("<p>My town.</p>", "Meine Stadt.", "<p>Meine Stadt.</p>"),
        ("<p>My town</p>", "Meine Stadt!", "<p>Meine Stadt!</p>"),
        ("<td>Road no</td>", "Straße Nr.", "<td>Straße Nr.</td>"),
        ("<td>my town</td>", "私の町。", "<td>私の町</td>"),
        ("<li>Hello {name}</li>", f"Hallo {CLASSES[0].words[0]}.", "<li>Hallo {name}</li>"),
    ],
)
def test_what_is_no_sentence_gets_no_full_stop(source, said, expected):
    def translate(texts):
        return [
            answered(said, *(word_spans(one, ()) for one in (text, said)), [((3, 7), (6, 11), 0.9)]) for text in texts
        ]

    (marked,) = translate_documents([source], "html", translate)
    assert marked.text == expected


GERMAN = {
    "the red bicycle": ("das rote Fahrrad", "0-0 1-1 2-2"),
    "he gave it up": ("er gab es auf", "0-0 1-1 2-2 3-3"),
    "the red bicycle he gave it up": ("das rote Fahrrad er gab es auf", "0-0 1-1 2-2 3-3 4-4 5-5 6-6"),
    "a man in a red shirt rides": ("ein Mann fährt in einem roten Hemd", "0-0 1-1 6-2 2-3 3-4 4-5 5-6"),
}


def known(texts):
    answers = []
    for text in texts:
        target, links = GERMAN[text.rstrip(" .")]
        target += "." if text.endswith(".") else ""
        source, words = word_spans(text, ()), word_spans(target, ())
        pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
        pairs += [(len(source) - 1, len(words) - 1)] if text.endswith(".") else []
        answers.append(answered(target, source, words, [(source[i], words[j], 0.9) for i, j in pairs]))
    return answers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>the <b>red</b> bicycle.</p>", "<p>das <b>rote</b> Fahrrad.</p>"),
        ("he <em>gave</em> it <em>up</em>", "er <em>gab</em> es <em>auf</em>"),
        ("he <em>gave it up</em>", "er <em>gab es auf</em>"),
        ("a man in a <a href='x'>red shirt</a> rides", "ein Mann fährt in einem <a href='x'>roten Hemd</a>"),
        ("a man <b>in a red shirt rides</b>", "ein Mann <b>fährt in einem roten Hemd</b>"),
        ("a <i>man</i> in a red shirt <b>rides</b>.", "ein <i>Mann</i> <b>fährt</b> in einem roten Hemd."),
        ("<b>the red bicycle.</b>", "<b>das rote Fahrrad.</b>"),
        ("<b>the</b> red bicycle<br>he gave it up", "<b>das</b> rote Fahrrad<br>er gab es auf"),
        ("the red<img src=x> bicycle", "das rote<img src=x> Fahrrad"),
        ("the red <img src=x> bicycle", "das rote <img src=x> Fahrrad"),
        ("the red bicycle 😀.", "das rote Fahrrad 😀."),
        ("the red bicycle😀.", "das rote Fahrrad😀."),
    ],
)
def test_tags_stand_where_their_words_stand(text, expected):
    assert translate_documents([text], "html", known)[0].text == expected


REAL = {
    "html": [
        ("<p>Hi <strong>{{ name }}</strong>,</p>\n<p>see <a href='/x' title='Go'>our page</a>.</p>",
         "<p>HI <strong>{{ name }}</strong>,</p>\n<p>SEE <a href='/x' title='GO'>OUR PAGE</a>.</p>"),
        ("<p title='Tom&{name}, one&#10;two\nthree'>Mail R&D@example.com; Q&%s:&nbsp{x}, y&page={page}, &#59;{z}</p>",
         "<p title='TOM&amp;{name}, ONE&#10;TWO\nTHREE'>MAIL R&amp;D@example.com; Q&amp;%s:\u00a0{x}, "
         "Y&amp;PAGE={page}, ;{z}</p>"),
        ("You have %(n)d new <b>messages</b>&nbsp;&ndash; yes", "YOU HAVE %(n)d NEW <b>MESSAGES</b>\u00a0– YES"),
        ("<!-- wp:paragraph -->\n<p>A <em>post</em></p>\n<!-- /wp:paragraph -->",
         "<!-- wp:paragraph -->\n<p>A <em>POST</em></p>\n<!-- /wp:paragraph -->"),
        ("<p translate='no'>Brand</p><p>x &lt; y &amp; z</p>", "<p translate='no'>Brand</p><p>X &lt; Y &amp; Z</p>"),
    ],
    "xml": [
        ("<source>Press <ph id=\"1\"/> to <g id=\"2\">start</g></source>",
         "<source>PRESS <ph id=\"1\"/> TO <g id=\"2\">START</g></source>"),
        ("<string name='hello'>Hello, %1$s &amp; all</string>", "<string name='hello'>HELLO, %1$s &amp; ALL</string>"),
        # line ends that are content, and those that are not
        ("<r>one&#10;two&#xD;&#xA;Three</r>", "<r>ONE&#10;TWO&#xD;&#xA;THREE</r>"),
        ("<r>one\n  two <b xml:space='preserve'>Three\nFour</b> five\n six</r>",
         "<r>ONE TWO <b xml:space='preserve'>THREE\nFOUR</b> FIVE SIX</r>"),
        ("<r xml:space='preserve'><![CDATA[one\n Two\r\n\nthree]]></r>",
         "<r xml:space='preserve'><![CDATA[ONE\n TWO\r\n\nTHREE]]></r>"),
        ("<r><![CDATA[one\n two]]></r>", "<r><![CDATA[ONE TWO]]></r>"),
        ("<r xml:space=\"preserve\"> one\r\nTwo <b xml:space='default'>three\n Four</b>\n Five\n</r>",
         "<r xml:space=\"preserve\"> ONE\r\nTWO <b xml:space='default'>THREE FOUR</b>\n FIVE\n</r>"),
    ],
    "plain": [
        ("%d files in {folder}\n\n  see <b> & http://a.b/c.\r\nHello, %(name)s\n",
         "%d FILES IN {folder}\n\n  SEE <B> & http://a.b/c.\r\nHELLO, %(name)s\n"),
    ],
    "markdown": [
        ("# Getting *started*\n\nRun `pip install x` and see [the docs](https://a.b/c).\n",
         "# GETTING *STARTED*\n\nRUN `pip install x` AND SEE [THE DOCS](https://a.b/c).\n"),
        ("* one\n* two **and** three\n\n| a | b |\n|---|---|\n| x1 | y_z |\n",
         "* ONE\n* TWO **AND** THREE\n\n| A | B |\n|---|---|\n| X1 | y_z |\n"),
        # front matter, and text between two thematic breaks
        ("---\n# note\n\ntitle: one\n---\ntwo\n", "---\n# note\n\ntitle: one\n---\nTWO\n"),
        ("---\r\n---\r\ntwo\r\n", "---\r\n---\r\nTWO\r\n"),
        ("---\n\none two: three\n\n---\n\nfour\n", "---\n\nONE TWO: THREE\n\n---\n\nFOUR\n"),
        ("```\ncode\n```\n\n> quoted text\n", "```\ncode\n```\n\n> QUOTED TEXT\n"),
        # line ends of Windows in a paragraph, a quote and a list
        ("Hello world is\r\nsecond line.\r\n\r\nnext\r\n", "HELLO WORLD IS\r\nSECOND LINE.\r\n\r\nNEXT\r\n"),
        ("> Hello world\r\n> and more\r\n", "> HELLO WORLD\r\n> AND MORE\r\n"),
        ("- Hello world\r\n  and more\r\n", "- HELLO WORLD\r\n  AND MORE\r\n"),
        # a backslash before the markup that ends a text
        ("[Open the folder C:\\\\](http://x.y)", "[OPEN THE FOLDER C:\\\\](http://x.y)"),
        ("**Open the folder C:\\\\**", "**OPEN THE FOLDER C:\\\\**"),
        # a number sign that does not close a heading
        ("# Learn C \\#\n", "# LEARN C \\#\n"),
        ("## Learn **F** \\## ##\n", "## LEARN **F** \\## ##\n"),
        ("Learn C #\n\nmore\n-\n", "LEARN C #\n\nMORE\n-\n"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "text", "expected"), [(form, *pair) for form, pairs in REAL.items() for pair in pairs]
)
def test_what_people_write(form, text, expected):
    assert translate_documents([text], form, upper)[0].text == expected


@settings(deadline=None, max_examples=150)
@given(text=fragments(), seed=st.integers(0, 10**6))
def test_xml_stays_well_formed(text, seed):
    whole = "<r>" + re.sub(r"<br>|<img [^>]*>", "<x/>", text) + "</r>"
    (marked,) = translate_documents([whole], "xml", Nonsense(seed, 0.7))
    ElementTree.fromstring(marked.text)


@pytest.mark.parametrize(
    ("text", "where"),
    [("<a><b></a>", ", column 9"), ("one\n<b", "line 2, column"), ("a & b", ", column 4"),
     ("<a>\nb <i>c", "<i> is not closed, line 2, column 7"), ("<?xml version='1.0'?><r>", "column 25")],
)  # fmt: skip
def test_xml_that_is_not_well_formed_is_one_clear_line(text, where):
    with pytest.raises(DataError, match=where):
        translate_documents([text], "xml", upper)


def shape(text: str) -> list[str]:
    """The blocks of a document and, in each, its links, images, code and tags."""
    found = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        found.append(token.type)
        for child in token.children or ():
            if child.type in ("link_open", "image", "code_inline", "html_inline"):
                is_raw = child.type in ("code_inline", "html_inline")
                attributes = {**child.attrs, "title": "title" in child.attrs}  # a title is text
                found.append(f"{child.type} {attributes} {child.content if is_raw else ''}")
    return sorted(found)


@pytest.mark.parametrize("keeps", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("text", [text for text in ODD_MARKDOWN if "[^1]:" not in text])  # a note may look like a link
def test_markdown_keeps_its_blocks_links_and_code(text, keeps):
    for seed in range(20):
        (marked,) = translate_documents([text], "markdown", Nonsense(seed, keeps))
        assert shape(marked.text) == shape(text), marked.text


def test_a_paragraph_with_a_nul_is_translated():
    text = "one\0 two\n\n*three* four\0 [fi\0ve](/u) `a\0b`\n\n| six\0 |\n|---|\n| seven |\n"
    (marked,) = translate_documents([text], "markdown", upper)
    expected = "ONE TWO\n\n*THREE* FOUR [FIVE](/u) `ab`\n\n| SIX |\n|---|\n| SEVEN |\n"
    assert marked.text.replace("\0", "").replace("\ufffd", "") == expected


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("html", "<p>Where is</i> the station?</p>", "<p>WHERE IS</i> THE STATION?</p>"),
        ("html", "<p>Where is <i>the station?</p>", "<p>WHERE IS <i>THE STATION?</p>"),
        ("html", "<p>Where is</div> the</li> station?</p>", "<p>WHERE IS</div> THE</li> STATION?</p>"),
        ("html", "a <![ b", "A &lt;![ B"),
        ("html", f"<p>&#{'9' * 5000}; x</p>", "<p>\ufffd X</p>"),
        ("html", "-Wait, he said -finally- and Nord- und -süd", "-WAIT, HE SAID -FINALLY- AND NORD- UND -SÜD"),
        ("html", "the end.it was, stop.in", "THE END.IT WAS, STOP.IN"),
        ("html", "run --dry-run or -v at docs.example.it", "RUN --dry-run OR -v AT docs.example.it"),
        ("html", "<td>AB-1200</td><td>one</td>", "<td>AB-1200</td><td>ONE</td>"),
        ("markdown", "one two\nthree *four\nfive*\n", "ONE TWO\nTHREE *FOUR\nFIVE*\n"),
        ("markdown", "> one\n> two\n", "> ONE\n> TWO\n"),
        ("markdown", "| AB-1 | b |\n|---|---|\n| X2 | y |\n", "| AB-1 | B |\n|---|---|\n| X2 | Y |\n"),
        ("markdown", "Use a | b.\n", "USE A | B.\n"),
    ],
)
def test_what_is_markup_and_what_is_text(form, text, expected):
    assert translate_documents([text], form, upper)[0].text == expected


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("html", '<html lang="en"><p lang=en-US>a</p>', '<html lang="de"><p lang=de>A</p>'),
        ("html", "<html lang='fr'><p lang=en translate=no>a</p>", "<html lang='fr'><p lang=en translate=no>a</p>"),
        ("xml", "<r xml:lang=\"en\" title='lang'>a</r>", "<r xml:lang=\"de\" title='lang'>A</r>"),
    ],
)
def test_a_translation_is_marked_as_in_its_language(form, text, expected):
    assert translate_documents([text], form, upper, languages=("en", "de"))[0].text == expected


@pytest.mark.parametrize(
    ("target", "tag"),
    [("deu_Latn", "de"), ("German", "de"), ("pt_BR", "pt-BR"), ("zho_Hant", "zh-Hant"), ("xx", ""), (None, "")],
)
def test_a_language_is_marked_by_its_tag_whatever_the_model_calls_it(target, tag):
    """An empty value says that the language is unknown."""
    text = "<p lang=en-GB class=b>a</p><p class='b' lang = 'en'>a</p>"
    found = translate_documents([text], "html", upper, languages=("eng_Latn", target))[0].text
    read = []
    parser = HTMLParser()
    parser.handle_starttag = lambda name, attributes: read.append(dict(attributes))
    parser.feed(found)
    assert read == [{"lang": tag, "class": "b"}] * 2


@pytest.mark.parametrize(("said", "terms"), [("EINS", ("kept",)), ("one", ("kept",)), ("", ())])
def test_terms_count_where_the_translation_is_used(said, terms):
    kept = (Term((0, 3), (0, len(said)), "kept", "one"),)
    (marked,) = translate_documents(["<p>one</p>"], "html", lambda _: [replace(answered(said), terms=kept)])
    assert marked.terms == terms
