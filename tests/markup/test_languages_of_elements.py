"""Attributes `lang`: what is in another language is copied, and all else is marked as in the target. About 2 s."""

import html
import re

import pytest
from support.markup_answers import upper

from seq2seq.languages import known_language
from seq2seq.markup.translation import translate_documents

# What HTML may be in: the format, and the text around it.
PLACES = {
    "HTML": ("html", "<div>{}</div>"),
    "XML": ("xml", "<r>{}</r>"),
    "CDATA": ("xml", "<r><d><![CDATA[{}]]></d></r>"),
    "escaped in XML": ("xml", "<r><d>{}</d></r>"),
    "a block of Markdown": ("markdown", "- 5\n\n<div>\n{}\n</div>\n\n5"),
    "a paragraph of Markdown": ("markdown", "5\n\n{}\n"),
    "a quote of Markdown": ("markdown", "> 5\n> {}\n"),
}
# Attributes of an element, and what they become; None if the element is copied.
RULES = {
    "translate='no'": None, "class='a notranslate'": None, "translate='no' lang='en'": None,
    "lang='fr'": None, "lang = 'fr-CA' id='x'": None, "lang='de'": None, "xml:lang='fr'": None,
    "lang='en'": "lang='de'", "class='en' lang='en-US'": "class='en' lang='de'", "xml:lang='eng'": "xml:lang='de'",
    "lang='xx'": "lang='xx'", "lang=''": "lang=''", "hreflang='en'": "hreflang='en'",
}  # fmt: skip
SENTENCES = (
    "one <q {}>chat</q> two", "<q {}>chat</q> two", "one <b>big <i {}>chat</i></b>", "one <a {}>petit <b>chat</b></a>",
)  # fmt: skip
LANGUAGES = (
    "en", "eng_Latn", "German", "de-AT", "no", "nb", "nob_Latn", "nn", "sr", "hr", "srp_Cyrl", "sh", "bs", "id", "ms",
    "zh", "zho_Hant", "yue", "yue_Hant", "zh-HK", "ar", "arz_Arab", "pt-BR", "fil", "tl",
)  # fmt: skip


def placed(text, place):
    return PLACES[place][1].format(html.escape(text, quote=False) if "escaped" in place else text)


def translated(text, form, languages=("en", "de")):
    return translate_documents([text], form, upper, languages=languages)[0].text


@pytest.mark.parametrize("given", RULES)
@pytest.mark.parametrize("place", PLACES)
def test_the_rules_for_elements_hold_wherever_html_is(place, given):
    for sentence in SENTENCES:
        before = sentence.format(given)
        after = re.sub(r"(?<=>)[^<]+|^[^<]+", lambda match: match.group().upper(), sentence)
        after = after.format(RULES[given] or given)
        if RULES[given] is None:
            element = re.compile(rf"<(\w) {re.escape(given)}.*?</\1>")
            after = after.replace(element.search(after)[0], element.search(before)[0])
        assert translated(placed(before, place), PLACES[place][0]) == placed(after, place)


@pytest.mark.parametrize("given", RULES)
@pytest.mark.parametrize("place", [place for place in PLACES if place != "XML"])
def test_attributes_of_an_empty_element_are_of_its_language(place, given):
    kept = RULES[given] is None
    image = "one <img {} alt='{}'/> two"
    before, after = image.format(given, "chat"), image.format(RULES[given] or given, "chat" if kept else "CHAT")
    after = after.replace("one", "ONE").replace("two", "TWO")
    assert translated(placed(before, place), PLACES[place][0]) == placed(after, place)


@pytest.mark.parametrize("source", [*LANGUAGES, "xx"])
@pytest.mark.parametrize(("form", "name"), [("html", "lang"), ("xml", "xml:lang"), ("markdown", "lang")])
def test_an_element_is_marked_as_in_the_target_exactly_if_it_is_not_copied(form, name, source):
    for said in (*LANGUAGES, "xx"):
        before = f"<div><p {name}='{said}'>un chat</p></div>"
        after = before.replace("un chat", "UN CHAT").replace(f"'{said}'", "'el'")
        found = translated(before, form, (source, "ell_Grek"))
        if said != source and "xx" in (said, source):  # nothing is known
            assert found == before.replace("un chat", "UN CHAT")
        else:
            is_same = known_language(said) == known_language(source)
            assert found == after or (found == before and not is_same), (source, said)
            swapped = translated(f"<div><p {name}='{source}'>un chat</p></div>", form, (said, "ell_Grek"))
            assert ("UN CHAT" in found) == ("UN CHAT" in swapped), (source, said)


@pytest.mark.parametrize("source", ["nob_Latn", "no", "nb"])
def test_norwegian_pages_become_pages_in_the_target(source):
    text = "<html lang='{}'><body><p lang='{}'>en mann</p><p xml:lang='{}'>en <b lang='{}'>hund</b></p></body></html>"
    said = re.sub("(?<=>)[^<]+", lambda match: match.group().upper(), text)
    assert translated(text.format("no", "nb", "nob", "nn"), "html", (source, "en")) == said.format(*["en"] * 4)


def test_comments_code_and_the_language_of_another_page_stay():
    for form, text in (
        ("html", "<html lang='fr'><!-- lang='en' --><pre lang='en'>one</pre><p>5</p></html>"),
        ("xml", "<r xml:lang='fr'><!-- <p lang='en'> --><code xml:lang='en'>one</code></r>"),
        ("markdown", "`<p lang='en'>`\n\n    <p lang='en'>\n\n> <p lang='en'>one</p>\n"),
    ):
        assert translated(text, form) == text


def test_markup_in_another_language_is_no_markup_of_the_sentence():
    text = "one *two* <q lang='fr'>un *chat* `x` [a](b)</q> and <q lang='en'>a *cat* **_now_**</q>\n"
    expected = "ONE *TWO* <q lang='fr'>un *chat* `x` [a](b)</q> AND <q lang='de'>A *CAT* **_NOW_**</q>\n"
    (marked,) = translate_documents([text], "markdown", upper, languages=("en", "de"))
    assert (marked.text, marked.sentences) == (expected, ((),))
