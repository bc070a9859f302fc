"""Tags that touch without white space: the model reads words, and each element keeps its own. About 10 s."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.markup_answers import WORDS, answered, upper

from seq2seq.markup import html, xml
from seq2seq.markup.translation import translate_documents
from seq2seq.text.words import word_spans

READERS = {"html": html.segments, "xml": xml.segments}
DIVIDING = ("a", "span", "x-y", "time")
PHRASES = st.lists(st.sampled_from([word for word in WORDS if len(word) > 1]), min_size=1, max_size=3).map(" ".join)
ELEMENTS = st.tuples(st.sampled_from(DIVIDING), PHRASES)


def read(form: str, text: str) -> list[str]:
    """The texts that a model is given."""
    return [segment.text for segment in READERS[form](text).segments]


def swapped(texts):
    """The words of each text in capitals, the last first."""
    answers = []
    for text in texts:
        source = word_spans(text, ())
        said = " ".join(text[begin:end].upper() for begin, end in reversed(source))
        target = word_spans(said, ())
        answers.append(
            answered(
                said, source, target, [(one, other, 0.9) for one, other in zip(source, reversed(target), strict=True)]
            )
        )
    return answers


@settings(deadline=None, max_examples=150)
@given(
    elements=st.lists(ELEMENTS, min_size=2, max_size=5),
    ends=st.sampled_from([("", ""), ("see ", " now"), ("<b>", "</b>")]),
    gap=st.sampled_from(["", "<!-- note -->", "<i></i>"]),
    form=st.sampled_from(["html", "xml"]),
)
def test_elements_that_touch_keep_their_words(elements, ends, gap, form):
    body = gap.join(f"<{name} n='{number}'>{words}</{name}>" for number, (name, words) in enumerate(elements))
    text = f"<p>{ends[0]}{body}{ends[1]}</p>"
    expected = re.sub(r"(?<=>)[^<]+", lambda match: match.group().upper(), text).replace("<!-- NOTE -->", gap)
    assert translate_documents([text], form, upper)[0].text == expected
    given = " ".join(read(form, text)).split()
    assert (
        given
        == " ".join([ends[0], *(words for _, words in elements), ends[1]])
        .replace("<b>", "")
        .replace("</b>", "")
        .split()
    )


@pytest.mark.parametrize("gap", ["", "<input name='n'>", "\n", " "])
def test_labels_that_touch_are_translated_apart(gap):
    """With white space between them they may be a sentence."""
    text = f"<nav><a href='x'>Home page</a>{gap}<a href='y'>About us</a></nav>"
    assert len(read("html", text)) == (1 if gap.isspace() else 2)


@pytest.mark.parametrize("form", ["html", "xml"])
@pytest.mark.parametrize("mark", ["1", "[1]", "2,3", "*", "−2", "<a href='#n'>[1]</a>"])
@pytest.mark.parametrize("said", [upper, swapped])
def test_marks_of_notes_and_exponents_stay_with_their_word(form, mark, said):
    text = f"<p>big town<sup>{mark}</sup> and bicycle<sup>{mark}</sup>.</p>"
    assert read(form, text) == ["big town and bicycle."]
    (marked,) = translate_documents([text], form, said)
    assert f"TOWN<sup>{mark}</sup>" in marked.text
    assert f"BICYCLE<sup>{mark}</sup>" in marked.text


def test_a_fraction_is_text():
    assert read("html", "use <sup>1</sup>/<sub>2</sub> cup") == ["use 1/2 cup"]


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("<b>Un</b>believable town", "Unbelievable town"),
        ("a <b>w</b>ord", "a word"),
        ("an <b>in</b><i>side</i> joke", "an inside joke"),
        ("the <a>dog</a>s here", "the dogs here"),
        ("<span>O</span><span>nce upon</span> a time", "Once upon a time"),
        ("the H<sub>2</sub>O of CO<sub>2</sub>", "the H2O of CO2"),
        ("the 10<sup>th</sup> of May", "the 10th of May"),
        ("Ba<!-- c -->na<wbr>na <i>split</i>", "Banana split"),
        ("the <em>well</em>-<a>known</a> <a>dog</a><span>'s</span>", "the well-known dog's"),
        ("<a>he said</a><span>, yes</span> (<a>no</a>)", "he said, yes (no)"),
    ],
)
def test_a_word_with_markup_in_it_is_one_word_of_the_model(text, given):
    """If the model writes it alike, its tags keep their places in it."""
    assert read("html", text) == [given]
    expected = re.sub(r"<!.*?>|<.*?>|[^<]+", lambda part: part[0] if part[0][0] == "<" else part[0].upper(), text)
    assert translate_documents([text], "html", upper)[0].text == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [("unglaublich", "<b>un</b>glaublich"), ("ungewiss", "<b>un</b>gewiss"), ("sagenhaft", "<b>sagenhaft</b>")],
)
def test_markup_in_a_word_goes_to_the_same_part_or_to_the_whole_word(said, expected):
    def translate(texts):
        return [
            answered(said, word_spans(one, ()), [(0, len(said))], [((0, len(one)), (0, len(said)), 0.9)])
            for one in texts
        ]

    (marked,) = translate_documents(["<b>un</b>believable"], "html", translate)
    assert marked.text == expected


@pytest.mark.parametrize("between", ["<tab/>", "<t:line-break/>", "<lb/><lb/>", "<lb n='2'/>"])
def test_an_empty_element_of_xml_is_between_words(between):
    text = f"<r xmlns:t='u'>one{between}two, three{between}. Four</r>"
    assert read("xml", text) == ["one two, three. Four"]
    assert (
        translate_documents([text], "xml", upper)[0].text == f"<r xmlns:t='u'>ONE{between}TWO, THREE{between}. FOUR</r>"
    )


@pytest.mark.parametrize("within", ["<ph id='1'/>", "<x/>", "<lb break='no'/>", "<!-- c -->"])
def test_a_code_of_xml_may_be_within_a_word(within):
    text = f"<r>one in{within}side</r>"
    assert read("xml", text) == ["one inside"]
    assert translate_documents([text], "xml", upper)[0].text == f"<r>ONE IN{within}SIDE</r>"
