"""Texts of every kind on the page of `s2s serve`: their translation is that of the API, and takes no longer in a long
text. In a real Chromium, skipped where there is none. About 60 s.
"""

import json

import pytest
from support.serving import serving
from test_page import Shown, browser, folder, playwright, pytestmark, shown  # noqa: F401

TEXTS = [
    "One. " + " ".join(f"Two three costs 3.{n} nine. Mr. Four sees Dr. Six, e.g. No. {n} of 7." for n in range(8)),
    "One two.\n" + "\n".join(f"Mr. Four has {n}.5 nines. and six! Is it? “Two.” Three" for n in range(8)),
    "\n\n  one two.   Three nine. \n\tSix.  \n\n four" + ". Five" * 9 + ".  ",
    "😍 One. " * 5 + "Two " * 30 + "… three. Nine?! " + "six 7. eight " * 5,
    "一二。三四！「五六。」七八？" * 4,
    "One two。Three nine！" * 5,
]
BUSY = {"error": {"code": "deadline", "message": "the request took too long; send less text", "field": None}}


@pytest.fixture(scope="module")
def narrow(folder):  # noqa: F811
    """A server to which the page sends 3 sentences at a time."""
    with serving(folder / "runs" / "toy", "--max-queue", "6") as served:
        yield served


@pytest.fixture
def opened(browser, narrow):  # noqa: F811
    found = Shown(browser, narrow.url)
    yield found
    found.close()
    assert found.problems == []


def whole(served, text):
    return served.ask("/v1/translate", {"text": text, "split": "sentences"}).json["translations"][0]["text"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_in_parts_is_translated_as_a_whole_one(opened, narrow, text):
    sent = []
    opened.page.on("request", lambda request: sent.append(request.post_data))
    opened.type(text)
    assert opened.translation == whole(narrow, text)
    assert len(sent) > 2
    opened.page.locator(".word").last.hover()
    assert opened.page.text_content("#mirror") == f"{text}\n"
    last = whole(narrow, text).split()[-1]
    assert opened.page.locator(".word").last.text_content() in last
    assert all(word in text for word in opened.page.locator("#mirror mark").all_text_contents())


def test_a_text_over_the_limits_is_sent_in_parts(opened, narrow):
    limit, sent = narrow.ask("/v1/models").json["limits"]["queue_sentences"], []
    opened.page.on("request", lambda request: sent.append((request.post_data_json or {"text": ""})["text"]))
    lines = limit + 100
    opened.page.fill("#text", "two\n" * lines)
    opened.until(lambda: opened.status.startswith(("Done", "A part")), 120)
    assert opened.translation.count("zwei") >= lines == opened.translation.count("\n")
    assert max(text.count("two") for text in sent) <= limit
    opened.page.locator(".word").last.hover()
    assert opened.page.locator("#mirror mark").all_text_contents() == ["two"]


@pytest.mark.parametrize("length", [7, 40, 90])
def test_a_request_holds_no_more_than_it_may(folder, browser, length):  # noqa: F811
    with serving(folder / "runs" / "toy", "--max-characters", str(length)) as served:
        found = Shown(browser, served.url)
        sent = []
        found.page.on("request", lambda request: sent.append(json.loads(request.post_data or '{"text": ""}')["text"]))
        text = "Two 😍😍😍😍😍 three. " * 5
        found.type(text)
        assert found.translation.count("drei") == text.count("three")
        assert max(map(len, sent)) <= length
        if length >= len("One two three four. "):
            found.page.fill("#text", "")
            found.until(lambda: found.translation == "")
            found.type("One two three four. " * 6)
            assert found.translation.split() == served.translations(["One two three four."])[0].split() * 6
            assert max(map(len, sent)) <= length
        assert found.problems == []
        found.close()


def hindered(page, may_have):
    """Let the server take too long for requests with more sentences: it answers the first ones of these alone."""

    def answer(route):
        text = route.request.post_data_json["text"]
        lines = route.fetch().text().splitlines()
        if text.count(".") > 1:
            lines = [*lines[:may_have], json.dumps(BUSY)]
        route.fulfill(body="".join(f"{line}\n" for line in lines))

    page.route("**/v1/translate", answer)


@pytest.mark.parametrize("text", ["One two. Three nine.  Six four. Two.", "One.\n Two three.\nNine. Six. Four"])
@pytest.mark.parametrize("done", [0, 1, 2])
def test_what_takes_too_long_is_sent_in_smaller_parts(server, shown, text, done):  # noqa: F811
    hindered(shown.page, done)
    shown.type(text)
    assert shown.translation == whole(server, text)
    shown.page.unroute_all()


def test_a_sentence_that_takes_too_long_is_said(shown):  # noqa: F811
    answers = []
    shown.page.route("**/v1/translate", lambda route: (answers.append(1), route.fulfill(body=json.dumps(BUSY) + "\n")))
    shown.page.fill("#text", "One two. Three.\nNine. " * 20)
    shown.until(lambda: shown.status == BUSY["error"]["message"])
    assert 1 < len(answers) < 6


def test_an_answer_that_ends_early_is_asked_for_again(server, shown):  # noqa: F811
    page, ends = shown.page, [0, 1]

    def answer(route):
        lines = route.fetch().text().splitlines()
        route.fulfill(body="".join(f"{line}\n" for line in lines[: ends.pop(0) if ends else None]))

    page.route("**/v1/translate", answer)
    page.fill("#text", "One two. Three.")
    shown.until(lambda: "trying again" in shown.status)
    shown.until(lambda: shown.status.startswith("Done"))
    assert shown.translation == whole(server, "One two. Three.")
    page.unroute_all()


def test_half_a_character_is_text(shown):  # noqa: F811
    for half in ("\\ud83d", "\\ude0d"):
        shown.page.evaluate(f"text.value = 'One {half} two.'; text.dispatchEvent(new Event('input'))")
        shown.until(lambda: shown.status.startswith(("Done", "A part")))
        shown.page.evaluate("text.value = ''; text.dispatchEvent(new Event('input'))")
        shown.until(lambda: shown.status == "")


COUNTING = """
window.visited = {elements: 0, characters: 0};
for (const kind of [Document, Element]) {
  const find = kind.prototype.querySelectorAll;
  kind.prototype.querySelectorAll = function (...names) {
    const found = find.apply(this, names);
    visited.elements += found.length;
    return found;
  };
}
const list = Array.from;
Array.from = function (...given) {
  const made = list.apply(this, given);
  visited.characters += made.length;
  return made;
};
"""


def test_a_sentence_costs_the_same_in_a_long_text(browser, server):  # noqa: F811
    """Elements that are visited, and characters that are counted, for texts of 30 and 240 sentences."""
    found = Shown(browser, "about:blank")
    page = found.page
    page.add_init_script(COUNTING)
    page.goto(server.url)
    costs = []
    for count in (30, 240):
        own, text = [], "One four two. " * count
        page.mouse.move(0, 0)
        for act in (
            lambda text=text: found.type(text),
            lambda: page.locator(".word").nth(40).hover(),
            lambda: page.locator(".word").nth(50).focus(),
            lambda: page.keyboard.press("ArrowRight"),
            lambda: page.locator("#text").press("ControlOrMeta+End"),
            lambda: page.locator("#text").press_sequentially("x"),
        ):
            page.evaluate("visited.elements = visited.characters = 0")
            act()
            page.route("**/v1/translate", lambda route: None)  # nothing more comes
            own.append(page.evaluate("[visited.elements, visited.characters]"))
        page.fill("#text", "")
        page.unroute_all()
        found.until(lambda: found.status == "")
        costs.append(own)
    (few, *moves), (many, *others) = costs
    assert all(more <= 8 * less + 200 for less, more in zip(few, many, strict=True)), costs
    assert [elements for elements, _ in moves] == [elements for elements, _ in others], costs
    assert found.problems == []
    found.close()
