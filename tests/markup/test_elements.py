"""Elements of HTML and XML as browsers read them: what ends them, what is text in them, what is copied. About 10 s."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.markup_answers import answered, upper

from seq2seq.errors import DataError
from seq2seq.markup.translation import translate_documents
from seq2seq.text.words import word_spans


def translated(text: str, form: str = "html", translate=upper) -> str:
    return translate_documents([text], form, translate)[0].text


# -- what is not translated --------------------------------------------------------------------------

LISTS = [
    ("<ul>", ["li"], "</ul>"), ("<dl>", ["dt", "dd"], "</dl>"), ("<table><tr>", ["td", "th"], "</tr></table>"),
    ("<table>", ["tr"], "</table>"), ("<select>", ["option"], "</select>"), ("<div>", ["p"], "</div>"),
    ("<ul><li>", ["p"], "</li></ul>"),
]  # fmt: skip
ITEMS = st.tuples(
    st.sampled_from(["", " translate=no", " class='x notranslate'"]),
    st.sampled_from(["Acme corp", "<b>Acme</b> corp", "<i title='a tip'>one</i>"]),
    st.booleans(),
)


@settings(deadline=None, max_examples=200)
@given(around=st.sampled_from(LISTS), items=st.lists(ITEMS, min_size=1, max_size=4), number=st.integers(0, 1))
def test_elements_without_end_tags_are_translated_as_those_with_them(around, items, number):
    begin, names, end = around
    texts = []
    for omits in (False, True):
        texts.append(begin)
        for place, (attribute, inner, is_omitted) in enumerate(items):
            name = names[(place + number) % len(names)]
            texts[-1] += f"<{name}{attribute}>{inner}" + ("" if omits and is_omitted else f"</{name}>")
        texts[-1] += end + "<p>and more</p>"
    whole, bare = map(translated, texts)
    assert whole.count("Acme") == sum("Acme" in inner for attribute, inner, _ in items if attribute)
    tag = rf"</(?:{'|'.join(names)})>"
    assert re.sub(tag, "", bare) == re.sub(tag, "", whole)


def test_a_list_within_an_element_without_end_tag_is_part_of_it():
    text = "<ul><li translate=no>Acme <ul><li>one<li>two</ul> corp<li>three</ul>"
    assert translated(text) == text.replace("three", "THREE")


@pytest.mark.parametrize(
    ("copied", "rest"),
    [
        ("<pre>a\n  b", ""),
        ("<pre>a\n  b", "</div><p>more</p>"),
        ("<span translate=no>Acme corp", "</p><p>more</p>"),
        ("<kbd>Enter", "<p>more</p>"),
        ("<div class=notranslate>Acme<p>corp", "</section>more"),
        ("<svg><text>one</text>", "<div>more</div>"),
        ("<script>var a = 'one'", ""),
    ],
)
def test_copied_elements_that_are_never_closed_end_with_what_is_around_them(copied, rest):
    begin = {"</div>": "<div>", "</p>": "<p>", "</section>": "<section>"}.get(
        rest.partition("<p>")[0].removesuffix("more"), ""
    )
    text = f"{begin}before {copied}{rest}"
    assert translated(text) == text.replace("before", "BEFORE").replace("more", "MORE")


@pytest.mark.parametrize(
    "tag", ["<img{} alt='Acme corp'>", "<input{} placeholder='Acme corp'>", "<x-y{} title='Acme'/>"]
)
def test_attributes_of_empty_elements_are_copied_if_these_are(tag):
    for attribute in (" class=notranslate", " translate='no'"):
        assert translated(f"see {tag.format(attribute)} here") == f"SEE {tag.format(attribute)} HERE"
    assert "ACME" in translated(tag.format(" class=x"))


@pytest.mark.parametrize("attribute", ["its:translate='no'", "translate='no'", "translatable='false'"])
def test_elements_of_xml_that_are_marked_are_copied(attribute):
    text = f"<r xmlns:its='u'><s {attribute}>Acme corp</s><s>one <t {attribute}>Acme</t> two</s></r>"
    assert translated(text, "xml") == text.replace("one", "ONE").replace("two", "TWO")
    other = text.replace("'no'", "'yes'").replace("'false'", "'true'")
    assert "ACME CORP" in translated(other, "xml")


# -- what is text ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["script", "style", "xmp", "iframe", "noembed", "noframes", "textarea", "title"])
def test_browsers_ignore_the_slash_of_elements_whose_content_has_no_tags(name):
    text = f"<{name} lang='x'>var a = <b>'one'</b></{name}><p>two</p>"
    assert translated(text.replace("'x'>", "'x'/>")) == translated(text).replace("'x'>", "'x'/>")


@pytest.mark.parametrize("name", ["script", "style", "title"])
@pytest.mark.parametrize("picture", ["svg", "math"])
def test_in_pictures_a_slash_ends_these_elements(name, picture):
    text = f"<{picture}><{name}/><path/></{picture}>one <b>two</b>"
    assert translated(text) == text.replace("one", "ONE").replace("two", "TWO")


@pytest.mark.parametrize("hidden", ["<!-- {} -->", "<script>'{}'</script>", "<title>{}</title>", ""])
def test_only_a_tag_declares_the_encoding(hidden):
    other = "<meta charset=iso-8859-1>"
    text = hidden.format(other) + "<meta charset=utf-8><p>one</p>"
    assert "<p>ONE</p>" in translated(text)
    with pytest.raises(DataError, match="HTML in iso-8859-1"):
        translated(hidden.format("<meta charset=utf-8>") + other + "<p>one</p>")


def attributes(text: str) -> list[dict[str, str | None]]:
    found: list[dict[str, str | None]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda _, values: found.append(dict(values))
    parser.feed(text)
    return found


@pytest.mark.parametrize(
    "tag",
    ["<a id=i title={}>", "<img alt={} id=i>", "<optgroup label={} id=i>", "<option id=i label={}>",
     "<input id=i aria-label={}>"],
)  # fmt: skip
@pytest.mark.parametrize("value", ["hello", "'hello'", '"hello"', "caf&eacute;"])
@pytest.mark.parametrize("said", ["two\twords = \"a\" & 'b' `c` <d>", "x/", "Grüße"])
def test_attributes_that_are_seen_are_translated_with_and_without_quotes(tag, value, said):
    (before,), (after,) = (
        attributes(text)
        for text in (tag.format(value), translated(tag.format(value), "html", lambda _: [answered(said)]))
    )
    assert after.keys() == before.keys()
    assert after == {name: "i" if name == "id" else said for name in before}


@settings(deadline=None, max_examples=150)
@given(
    words=st.lists(st.sampled_from(["one", "two", "Three", "four.", "Five", "<b>six</b>", "- a", "(b)"]), min_size=2),
    draw=st.randoms(use_true_random=False),
    is_section=st.booleans(),
)
def test_white_space_that_is_content_is_kept(words, draw, is_section):
    text = "".join(word + draw.choice([" ", "  ", "\t", "\n", "\n   ", " \n"]) for word in words)
    inner = f"<![CDATA[{text.replace('<b>', '').replace('</b>', '')}]]>" if is_section else text
    given = f"<r xml:space='preserve'>{inner}</r>"
    before, after = ("".join(ElementTree.fromstring(one).itertext()) for one in (given, translated(given, "xml")))
    assert after == before.upper()


# -- what may be written twice -----------------------------------------------------------------------


@pytest.mark.parametrize(("attribute", "count"), [("id='k'", 1), ("xml:id='k'", 1), ("role='k'", 2)])
def test_a_pair_with_an_identity_is_written_once(attribute, count):
    def apart(texts):
        """A translation that puts a word between two others."""
        (text,) = texts
        first, second, third = source = word_spans(text, ())
        said = f"{text[slice(*first)]} {text[slice(*third)]} {text[slice(*second)]}".upper()
        target = word_spans(said, ())
        return [
            answered(said, source, target, [(first, target[0], 0.9), (third, target[1], 0.9), (second, target[2], 0.9)])
        ]

    text = f"<para><emphasis {attribute}>two words</emphasis> three</para>"
    assert translated(text, "xml", apart).count(attribute) == count


@pytest.mark.parametrize(
    ("root", "way"), [("xliff", "xliff2po"), ("tmx", "data.train: {tmx: FILE}"), ("TS", "Qt Linguist")]
)
def test_what_holds_translations_is_refused_with_its_own_remedy(root, way):
    with pytest.raises(DataError, match=f"<{root}> holds texts and their translations; .*{way}"):
        translated(f"<{root}><source>one</source></{root}>", "xml")
