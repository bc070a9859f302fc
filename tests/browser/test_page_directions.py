"""Lines that are written from right to left, and lines of both directions, on the page of `s2s serve` in a real
Chromium: where marks are, which direction alternatives and terms have, where arrow keys go. About 20 s.
"""

import json

import pytest
from test_page import Shown, browser, playwright, pytestmark  # noqa: F401

LETTERS = "abcdefghijklmnopqrstuvwxyzü"
HEBREW = "".join(map(chr, range(ord("א"), ord("א") + len(LETTERS))))
TO_HEBREW, TO_LATIN = str.maketrans(LETTERS, HEBREW), str.maketrans(HEBREW, LETTERS)
TEXTS = {
    "left to right": "one four two three\nsix nine",
    "right to left": "one four two three\nsix nine".translate(TO_HEBREW),
    "right to left first": "one four two three".translate(TO_HEBREW) + "\nsix nine",
    "left to right first": "one four two three\n\n" + "six nine".translate(TO_HEBREW),
}
LINES = [
    "One two.", "12 13 one", "שלום עולם טוב.", "12 13 שלום", "שלום 12 IBM Works 13.", "Hello שלום עולם (abc).",
    "14 15.", "", "  مرحبا بالعالم، ١٢ ١٣? ", "- (שלום) one, " * 12, "(One) שלום, " * 12,
]  # fmt: skip


def is_hebrew(text):
    return not text.isascii()


def in_both_scripts(page):
    """Let the server translate Hebrew letters like Latin ones, each by one letter, so that all places are its own."""

    def shown(one, source):
        if is_hebrew(source):
            for each in (one, *one.get("alternatives", ())):
                each["text"] = each["text"].translate(TO_HEBREW)
        return one

    def answer(route):
        asked = route.request.post_data_json
        text = asked["text"]
        response = route.fetch(post_data=json.dumps(asked, ensure_ascii=False).translate(TO_LATIN).encode())
        found = [json.loads(line) for line in response.text().splitlines()]
        for line in found:
            if "translations" in line:
                shown(line["translations"][0], text)
            elif "text" in line:
                shown(line, text[slice(*line["source"])])
        route.fulfill(response=response, body="".join(f"{json.dumps(line)}\n" for line in found))

    page.route("**/v1/translate", answer)


@pytest.fixture
def opened(browser, server):  # noqa: F811
    found = Shown(browser, server.url)
    in_both_scripts(found.page)
    yield found
    found.close()
    assert found.problems == []


@pytest.mark.parametrize("line", LINES)
def test_the_text_in_which_words_are_marked_lies_below_that_of_the_box(opened, line):
    """For every pair of lines, of which one follows the other: the same picture."""
    page = opened.page
    page.route("**/v1/translate", lambda route: None)
    page.fill("#text", "\n".join(one for other in LINES for one in (line, other)))
    page.evaluate("document.getElementById('status').hidden = true")  # it lies above what is scrolled
    pictures = []
    for seen, hidden in (("text", "mirror"), ("mirror", "text")):
        page.evaluate(f"{hidden}.style.color = 'transparent'; {seen}.style.color = 'black'")
        pictures.append(page.locator(".layers").screenshot())
    page.evaluate("mirror.style.color = 'transparent'")
    assert pictures[0] == pictures[1] != page.locator(".layers").screenshot()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_first_word_of_a_line_is_marked_where_the_line_begins(opened, text):
    opened.type(text)
    words = opened.page.locator(".word")
    box, end = opened.page.locator("#mirror").bounding_box(), 0
    for line in filter(None, text.split("\n")):
        end += len(line.split())
        words.nth(end - 1).hover()  # the model reverses the words
        mark = opened.page.locator("#mirror mark")
        assert mark.all_text_contents() == line.split()[:1]
        place = mark.bounding_box()
        distances = place["x"] - box["x"], box["x"] + box["width"] - place["x"] - place["width"]
        assert distances[is_hebrew(line)] < 20 < 100 < distances[not is_hebrew(line)]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_arrow_keys_go_to_the_word_on_their_side(opened, text):
    """At the end of a line, they go to the line before or after it, as the cursor in a box does."""
    opened.type(text)
    page, words = opened.page, opened.page.locator(".word")
    places = [word.bounding_box() for word in words.all()]
    ends = [sum(len(line.split()) for line in text.split("\n")[:count]) for count in range(text.count("\n") + 2)]
    hebrew = [is_hebrew(word) for word in text.split()]
    for at, place in enumerate(places):
        for key, side in (("ArrowRight", 1), ("ArrowLeft", -1)):
            words.nth(at).focus()
            page.keyboard.press(key)
            now = page.evaluate("[...document.querySelectorAll('.word')].indexOf(document.activeElement)")
            after = at + (-side if hebrew[at] else side)
            assert now == min(max(after, 0), len(places) - 1)
            if max(at, now) not in ends and now != at:
                assert (places[now]["x"] - place["x"]) * side > 0


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_alternatives_and_terms_have_the_direction_of_their_letters(opened, text):
    def direction(name):
        return opened.page.locator(name).evaluate_all(
            "all => [...new Set(all.map(one => getComputedStyle(one).direction))]"
        )

    opened.type(text)
    for number, line in enumerate(filter(None, text.split("\n"))):
        own = ["rtl" if is_hebrew(line) else "ltr"]
        opened.page.locator(".sentence:has(.word)").nth(number).locator(".word").first.click()
        opened.until(lambda: opened.page.locator(".choices button").count() > 1)
        assert direction(".choices button") == own
        opened.page.keyboard.press("Escape")
        opened.page.wait_for_timeout(350)  # a click that closes a list may open another after 300 ms
    opened.page.click("#glossary summary")
    opened.page.click("#add-term")
    for name in ("[aria-label=Term]", "[aria-label=Translation]", "#paste-terms"):
        opened.page.fill(name, line)
        assert direction(name) == own
