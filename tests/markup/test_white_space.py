"""White space beside what is not text: emoji, images, icons, comments. Slow: about 15 s."""

import re
from itertools import product

import pytest
from support.markup_answers import answered, upper
from test_touching import swapped

from seq2seq.markup import html, markdown, xml
from seq2seq.markup.translation import translate_documents
from seq2seq.text.words import word_spans

READERS = {"html": html.segments, "markdown": markdown.segments, "xml": xml.segments}
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
LINKED = "<a href='1'> <img src='1'/></a>"
MARKS = {
    "html": ["😀", SCOTLAND, "→", "<img src='1'>", "<svg> </svg>", "<i class='1'></i>", "<a id='1'></a>", LINKED],
    "markdown": ["😀", SCOTLAND, "→", "![](1)", "[![](1)](1)", "<svg></svg>", "<i class='1'></i>", LINKED],
    "xml": ["😀", SCOTLAND, "→", "<x-1/>", "<x-1></x-1>", "<x-1> <x-2/></x-1>"],
}
HIDDEN = {
    "html": ["<!-- 1 -->", "<wbr>", "<b></b>"],
    "markdown": [],
    "xml": ["<!-- 1 -->", "<ph id='1'/>", "<ph></ph>"],
}
PLACES = [
    "The man[]rides a bike.", "The man<b>[]rides a</b> bike.", "The <b>man[]</b>rides a bike.",
    "The man<b>[]</b>rides a bike.", "The <u>man<b>[]rides</b></u> a bike.", "<b>The man</b>[]<u>rides a</u> bike.",
    "A man rides a bike[].", "A man rides?[]The bike.", "A <b>man[]</b><u>[]rides</u> a bike.",
    "One <b>[]man[]</b> rides[]a bike.", "<b>[]The man</b> rides.", "The man <b>rides[]</b>",
]  # fmt: skip
QUICK = {"markdown": ["![](1)"], "html": ["😀", "<i class='1'></i>"], "xml": ["<!-- 1 -->", "<x-1/>"]}
CASES = [
    pytest.param(form, mark, marks=() if mark in QUICK[form] else pytest.mark.slow)
    for form, marks in MARKS.items()
    for mark in [*marks, *HIDDEN[form]]
]


def runs(mark: str) -> list[str]:
    return [mark, mark * 2, f"{mark} {mark}", mark * 3, f"{mark} {mark} {mark}", f"{mark}🎉", f"😀 {mark}"]


def around(form: str) -> list[tuple[str, str]]:
    return list(product(["", " ", "\n"] if form == "markdown" else ["", " "], repeat=2))


def written(form: str, text: str) -> str:
    return f"<r>{text}</r>" if form == "xml" else f"{text}\n" if form == "markdown" else text


def seen(text: str) -> str:
    """The text without emphasis, at whose tags white space may be on either side, and without what lines begin with."""
    return re.sub(" *\n *", "\n", re.sub(" +", " ", re.sub("</?[bu]>", "", text))).strip(" ")


def is_block(text: str) -> bool:
    """Whether a line of Markdown with only a tag is a block of HTML."""
    return text.startswith("<b>\n")


@pytest.mark.parametrize(("form", "mark"), CASES)
def test_white_space_beside_a_mark_is_that_of_the_source(form, mark):
    texts = [
        written(form, place.replace("[]", before + run + after))
        for place, run, (before, after) in product(PLACES, runs(mark), around(form))
        if not is_block(place.replace("[]", before))
    ]
    for text, marked in zip(texts, translate_documents(texts, form, upper), strict=True):
        expected = re.sub(r"(<[^<>]*>)|[^<]+", lambda part: part[0] if part[1] else part[0].upper(), text)
        assert seen(marked.text) == seen(expected)


@pytest.mark.parametrize(("form", "mark"), CASES)
def test_what_separates_words_on_the_screen_separates_them_for_the_model(form, mark):
    for place, (before, after) in product(PLACES, around(form)):
        text = written(form, place.replace("[]", before + mark + after))
        if is_block(text) or "[]." in place or (mark in HIDDEN[form] and "<b>[]</b>" in place):
            continue  # a block; a mark of punctuation; a pair that is seen although its content is not
        is_apart = before or after or mark not in HIDDEN[form]
        expected = re.sub("<.*?>", "", place.replace("[]", " " if is_apart else ""))
        given = " ".join(segment.text for segment in READERS[form](text).segments)
        assert given.split() == expected.split()


@pytest.mark.parametrize(("form", "mark"), CASES)
def test_a_mark_moves_with_the_word_that_it_touches(form, mark):
    """Its white space moves too; the translation has the words in reverse order."""
    for run, (before, after) in product([mark, mark * 2], product(["", " "], repeat=2)):
        text = written(form, f"one two{before}{run}{after}three four")
        (marked,) = translate_documents([text], form, swapped)
        touching = [f"TWO{run}", f"{run}THREE"] if before == after == "" else [f"{before and ' '}{run}{after and ' '}"]
        touching = [f" {run}THREE"] if before > after else [f"TWO{run} "] if after > before else touching
        assert any(one in marked.text for one in touching), marked.text


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (
            "markdown",
            "in [![bike](b.png) red bicycle](b) a **✅ red** one, [🎓 **Docs**](x) [🔎 **Find data**](y) now\n",
        ),
        ("markdown", "✅ fast and\n✅ easy and\n🎉\n*done* 🎉\nnow\n"),
        ("html", "<p>✅<b> done</b> and <u>more </u><img src='1'></p>"),
        ("html", "<p>Press <i class='1'></i>&nbsp;save or cancel&nbsp;<i class='1'></i> now 🎉&nbsp;!</p>"),
        ("html", f"<p>{SCOTLAND}{SCOTLAND} win{SCOTLAND} and {SCOTLAND}.</p>"),
        ("xml", "<r xml:space='preserve'>one  <x/> two \n<x/> three<x/>\n 😀  <b>  four\n</b>five</r>"),
    ],
)
def test_capitals_change_no_white_space(form, text):
    def same(document: str) -> str:
        return seen(document).replace("&nbsp;", "\xa0").casefold()

    assert same(translate_documents([text], form, upper)[0].text) == same(text)


@pytest.mark.parametrize(("sign", "escaped"), [("#", "\\#"), ("-", "\\-"), ("1.", "1\\."), (">", "\\>")])
def test_white_space_at_the_beginning_of_a_line_of_markdown_hides_no_sign(sign, escaped):
    said = f"{sign} zwei eins"

    def translate(texts):
        one, two = word_spans(texts[0], ())
        target = word_spans(said, ())
        return [answered(said, (one, two), target, [(one, target[-1], 0.9), (two, target[-2], 0.9)])]

    (marked,) = translate_documents(["<b> one</b> two\n"], "markdown", translate)
    assert marked.text == f"{escaped} zwei <b>eins</b>\n"


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        ("he ✅ rides bikes.", "他骑车。", "他骑车✅。"),
        ("he rides 😀.", "他骑车。", "他骑车😀。"),
        ("he <img>rides<img> bikes.", "他骑车。", "<img>他骑车<img>。"),
        ("he rides 😀!", "Er fährt!", "Er fährt 😀!"),
        ("he rides 😀 !", "Er fährt!", "Er fährt 😀!"),
        ("he <b>✅ rides</b> now.", "er fährt nun.", "er <b>✅ fährt</b> nun."),
    ],
)
def test_white_space_is_written_where_the_language_has_it(text, said, expected):
    def translate(texts):
        source, target = word_spans(texts[0], ()), word_spans(said, ())
        words = [*target[:-1], *[target[-2]] * (len(source) - len(target)), target[-1]]
        links = [(one, other, 0.9) for one, other in zip(source, words, strict=True)]
        return [answered(said, source, target, links)]

    assert translate_documents([text], "html", translate)[0].text == expected


@pytest.mark.parametrize("mark", ["😀", "→", "<svg></svg>", "<i class='1'></i>", "<!-- 1 -->"])
def test_words_of_languages_without_spaces_get_none_for_the_model(mark):
    assert [segment.text for segment in html.segments(f"文件{mark}保存。").segments] == ["文件保存。"]
