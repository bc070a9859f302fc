"""Parts of a document that are texts of their own: escaped HTML, notes, other languages. About 15 s."""

import html
import re
from functools import partial

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.markup_answers import Nonsense, upper
from test_markup import fragments

from seq2seq.markup import xml
from seq2seq.markup.translation import translate_documents

ESCAPES = (
    partial(html.escape, quote=False),
    html.escape,
    lambda text: text.replace("&", "&amp;").replace("<", "&lt;"),
    lambda text: html.escape(text).replace("&#x27;", "&#039;"),
)


@settings(deadline=None, max_examples=150)
@given(text=fragments(), escape=st.sampled_from(ESCAPES), seed=st.integers(0, 10**6))
def test_escaped_html_in_xml_is_translated_as_html(text, escape, seed):
    assume(re.search("</|<br|<img", text))
    as_html, as_xml = (
        translate_documents([one], form, Nonsense(seed, 0.7))[0].text
        for one, form in ((text, "html"), (f"<r><d>{escape(text)}</d></r>", "xml"))
    )
    assert as_xml == f"<r><d>{escape(as_html)}</d></r>"


@pytest.mark.parametrize("text", ["a &lt; b &gt; c", "the &lt;name&gt; of it", "&lt;b&#62;one&lt;/b>"])
def test_other_escapes_in_xml_are_text(text):
    assert [segment.text for segment in xml.segments(f"<r>{text}</r>").segments] == [html.unescape(text)]


@pytest.mark.parametrize("name", ["footnote", "indexterm", "fn", "text:note"])
@pytest.mark.parametrize(
    ("inner", "given"),
    [
        ("The note here.", ["The note here."]),
        ("<para>The note.</para><para>Another</para>", ["The note.", "Another"]),
        ("<primary>milk</primary><secondary>a cup</secondary>", ["milk", "a cup"]),
        ("", []),
    ],
)
@pytest.mark.parametrize("place", ["Big word{} more.", "Buy {}milk now.", "Yes{}. No.", "Big <b>word{}</b> more."])
def test_notes_in_a_sentence_of_xml_are_texts_of_their_own(name, inner, given, place):
    note = f"<{name} xmlns:text='u'>{inner}</{name}>"
    text = f"<r>{place.format(note)}</r>"
    read = [segment.text for segment in xml.segments(text).segments]
    assert read == [*given, re.sub("<.*?>", "", place.format(""))]
    expected = re.sub(r"(?<=>)[^<]+", lambda match: match.group().upper(), text)
    assert translate_documents([text], "xml", upper)[0].text == expected


@pytest.mark.parametrize("form", ["html", "xml"])
@pytest.mark.parametrize(
    ("source", "tag", "is_copied"),
    [
        ("en", "fr", True), ("eng_Latn", "fr-CA", True), ("English", "de", True), ("en", "en-US", False),
        ("en", "xx", False), ("en", "", False), ("no", "nb", False), (None, "fr", False),
    ],
)  # fmt: skip
def test_elements_in_other_languages_are_copied(form, source, tag, is_copied):
    """The language of the whole page is often wrong."""
    name, root = ("lang", "html") if form == "html" else ("xml:lang", "r")
    text = f"<{root} {name}='{tag}'><p {name}='{tag}'>un chat</p><p>one <q {name}='{tag}'>chat</q> two</p></{root}>"
    (marked,) = translate_documents([text], form, upper, languages=source and (source, "de"))
    assert ("UN CHAT" in marked.text, "CHAT</q>" in marked.text) == (not is_copied, not is_copied)
    assert ">ONE " in marked.text
    if is_copied:
        assert marked.text == text.replace("one", "ONE").replace("two", "TWO")
