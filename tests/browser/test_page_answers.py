"""Answers that come late or in parts, on the page of `s2s serve` in a real Chromium: whose text they belong to.

The time of the page stands still where a test decides what comes first. About 60 s.
"""

import contextlib
import time

from support.serving import serving
from test_page import Shown, browser, choose, folder, playwright, pytestmark, shown  # noqa: F401

REST = 300  # milliseconds between a key and the request, as in page.js


def hold(page, path):
    """Keep the requests to a path; `release` sends one to the server."""
    held = []
    page.route(f"**{path}", lambda route: held.append(route))
    return held


def release(page, held):
    route, ended = held.pop(0), []

    def note(request):
        ended.append(request)

    for ends in ("requestfinished", "requestfailed"):
        page.on(ends, note)
    with contextlib.suppress(playwright.Error):  # the page has given it up
        route.continue_()
    deadline = time.monotonic() + 20
    while not (route.request.failure or route.request in ended):
        assert time.monotonic() < deadline
        page.wait_for_timeout(20)
    page.wait_for_timeout(100)  # the page shows at once what came
    for ends in ("requestfinished", "requestfailed"):
        page.remove_listener(ends, note)


def test_an_answer_to_an_earlier_text_is_not_shown(browser, server):  # noqa: F811
    opened = Shown(browser, server.url, alone=True)
    page = opened.page
    opened.type("six")
    page.clock.install()
    held = hold(page, "/v1/translate")
    page.fill("#text", "one four two")
    page.clock.run_for(REST)
    opened.until(lambda: held)
    page.fill("#text", "three nine six one")
    release(page, held)
    assert "stale" in page.get_attribute("#translation", "class")
    assert opened.translation == server.translations(["six"])[0]
    page.unroute_all()
    page.clock.run_for(REST)
    opened.until(lambda: opened.status.startswith("Done"))
    assert opened.translation == server.translations(["three nine six one"])[0]
    assert opened.problems == []
    opened.close()


CLICK_AT_THE_FIRST = """() => {
  const seen = new MutationObserver(() => {
    if (document.querySelector(".stale") || !document.querySelector(".sentence")) return;
    seen.disconnect();
    window.shownThen = document.querySelectorAll(".sentence").length;
    document.getElementById("swap").click();
  });
  seen.observe(document.getElementById("translation"), {childList: true, subtree: true});
}"""


def test_swap_in_the_middle_of_an_answer_keeps_the_whole_text(browser, both_ways):  # noqa: F811
    opened = Shown(browser, both_ways.url)
    page, text = opened.page, "Two three. " * 60
    opened.until(lambda: page.is_visible("#swap"))
    page.evaluate(CLICK_AT_THE_FIRST)
    page.fill("#text", text)
    opened.until(lambda: page.input_value("#direction") == "1")
    assert page.evaluate("window.shownThen") < 60
    assert page.input_value("#text") == text
    opened.type("one four")
    translation = opened.translation
    page.click("#swap")
    assert page.input_value("#text") == translation  # of a text that is wholly translated
    assert opened.problems == []
    opened.close()


MARKED = """() => {
  const found = [];
  let end = 0;
  const texts = document.createTreeWalker(document.getElementById("mirror"), NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (node.parentElement.matches("mark")) found.push([end, node.data]);
    end += node.data.length;
  }
  return found;
}"""


def marks(opened):
    """Return what each word of the translation marks in the text: places and words."""
    found = []
    for word in opened.page.locator(".word").all():
        word.hover()
        found.append(opened.page.evaluate(MARKED))
    return found


def test_a_choice_marks_its_own_words_wherever_its_sentence_is(shown):  # noqa: F811
    sentence, others = "one four two", ("three nine\n", "six\nthree nine\n", "one four two\n", "six\none four two\n")
    shown.type(sentence)
    choose_and_wait(shown)
    expected = marks(shown)
    assert sum(map(len, expected)) > 1
    count = len(expected)
    for before in (*others, *reversed(others)):
        shown.type(before + sentence)
        found, moved = marks(shown), len(before)
        assert found[-count:] == [[[place + moved, word] for place, word in of_word] for of_word in expected]
        if sentence in before:
            moved = before.index(sentence)
            assert found[-2 * count : -count] == [[[place + moved, word] for place, word in one] for one in expected]


def test_a_choice_in_an_indented_line_is_not_one_for_another(shown):  # noqa: F811
    shown.type("  one four two")
    choose_and_wait(shown)
    assert all(word.strip() for found in marks(shown) for _, word in found)
    shown.type("one four two")
    assert shown.translation == shown.translation.strip()
    assert all(word.strip() for found in marks(shown) for _, word in found)


def test_a_click_just_after_a_choice_opens_its_list(shown):  # noqa: F811
    """The words of the choice come while the list is on its way, and replace the word that was clicked."""
    shown.type("one four two.")
    shown.page.locator(".word").first.click()
    choices = shown.page.locator(".choices button")
    shown.until(lambda: choices.count() > 1)
    text, held = choices.nth(1).text_content(), hold(shown.page, "/v1/translate")
    choices.nth(1).click()
    shown.until(lambda: len(held) == 1)
    shown.page.locator(".word").first.click()
    shown.until(lambda: len(held) == 2)
    release(shown.page, held)
    release(shown.page, held)
    shown.until(lambda: choices.count() > 1)
    shown.page.keyboard.press("Escape")
    shown.until(lambda: shown.page.locator(".word").count() > 1)
    assert shown.translation == text


def choose_and_wait(opened):
    """Choose the translation that is shown: the model can link the words of this one for certain."""
    text = opened.translation
    assert choose(opened, choice=0) == text
    opened.until(lambda: opened.page.locator(".word").count() > 1)


def test_parts_of_a_text_have_its_detected_language(browser, trained_nllb):  # noqa: F811
    """A sentence alone may say less of its language than its text, and so may the last part of a long text."""
    with serving(trained_nllb, "--engine", "torch", "--max-characters", "60") as served:
        asked = {"target": "deu_Latn", "source": "auto"}
        assert "not clear" in served.ask("/v1/translate", {"text": "Taxi.", **asked}).json["error"]["message"]
        opened = Shown(browser, served.url)
        page, clear, sources = opened.page, "the old house is red.", []
        opened.until(lambda: page.is_visible("#more"))
        page.select_option("#target", "deu_Latn")
        page.on("request", lambda sent: sources.append(sent.post_data_json["source"]) if sent.post_data else None)
        for text, expected in ((f"{clear} Taxi.", 1), (f"{clear} the cat sat on the mat. she reads a book. Taxi.", 2)):
            sources.clear()
            opened.type(text)
            assert sources == ["auto", "eng_Latn"][:expected]
            page.locator(".sentence").last.locator(".word").first.click()
            opened.until(lambda: page.locator(".choices button").count())
            page.locator(".choices button").first.click()
            opened.until(lambda count=expected + 2: len(sources) == count)  # alternatives, and their words
            assert sources[1:] == ["eng_Latn"] * (expected + 1)
        page.select_option("#source", "deu_Latn")  # what is chosen goes before what was detected
        opened.until(lambda: sources[-1] == "deu_Latn")
        assert not opened.problems
        opened.close()


def test_a_page_whose_server_was_busy_at_first_works_whatever_is_typed_meanwhile(browser, server):  # noqa: F811
    opened = Shown(browser, server.url)
    page = opened.page
    page.route("**/v1/models", lambda route: route.fulfill(status=503, headers={"Retry-After": "2"}))
    page.reload()
    opened.until(lambda: "trying again" in opened.status)
    page.focus("#text")
    page.keyboard.type("one four")
    page.evaluate("document.getElementById('direction').dispatchEvent(new Event('change'))")
    page.evaluate("document.querySelector('form').requestSubmit()")
    page.wait_for_timeout(2 * REST)
    assert "trying again" in opened.status
    page.unroute_all()
    opened.until(lambda: opened.status.startswith("Done"))
    assert opened.translation == server.translations(["one four"])[0]
    assert all("503" in problem for problem in opened.problems)
    opened.close()


def test_it_is_tried_again_where_the_page_says_so(browser, server, tmp_path):  # noqa: F811
    opened = Shown(browser, server.url, alone=True)
    page, asked = opened.page, opened.asked
    opened.type("one four")
    page.clock.install()
    opened.context.set_offline(True)
    (tmp_path / "a.html").write_text("<p>one")
    for act in (
        lambda: page.locator(".word").first.click(),
        lambda: page.set_input_files("#open-text", tmp_path / "a.html"),
        lambda: page.fill("#text", "two six"),
    ):
        asked.clear()
        act()
        page.clock.run_for(REST)
        opened.until(lambda: "does not answer" in opened.status)
        said, count = opened.status, len(asked)
        page.clock.run_for(2500)  # more than the page waits
        opened.rest()
        assert (len(asked) > count) == ("trying again" in said), said
    opened.context.set_offline(False)
    page.clock.run_for(10_000)
    opened.until(lambda: opened.status.startswith("Done"))
    assert opened.translation == server.translations(["two six"])[0]
    opened.close()
