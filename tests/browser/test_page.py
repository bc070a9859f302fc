"""The page of `s2s serve` in a real Chromium, over a real server; skipped where there is none. About 30 s.

`python -m pytest tests/browser`, with the extra `browser` and a Chromium of the system.
"""

import shutil
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install '.[browser]'")

from support.reversed_folder import folder  # noqa: E402, F401 (a fixture)
from support.serving import serving  # noqa: E402

# The first has no windows, and a page takes half the time in it.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium on the path")]
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
TEXT = "one four two! Three nine.\nsix."


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        chromium.new_context().new_page()  # a page beside an open one opens in less than half the time
        yield chromium
        chromium.close()


class Shown:
    """A page, and what went wrong in it.

    A page with options, or whose clock or network a test changes, is `alone`, in a context of its own.
    """

    def __init__(self, browser, url, *, alone=False, **options):
        self.context = browser.new_context(**options) if alone or options else browser.contexts[0]
        self.page = self.context.new_page()
        self.close = (self.context if alone or options else self.page).close
        self.problems, self.asked, self.awaited = [], [], set()
        self.page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: (self.asked.append(request.url), self.awaited.add(request)))
        for ends in ("requestfinished", "requestfailed"):
            self.page.on(ends, lambda request: self.awaited.discard(request))
        self.page.goto(url)

    def until(self, true, seconds=20):
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, (self.status, self.translation, self.problems)
            self.page.wait_for_timeout(20)

    def rest(self, milliseconds=100):
        """Wait until the page waits for no answer, and for this time more, in which it shows what came."""
        self.until(lambda: not self.awaited)
        self.page.wait_for_timeout(milliseconds)
        self.until(lambda: not self.awaited)

    def type(self, text):
        self.page.fill("#text", text)
        self.until(lambda: self.status.startswith(("Done", "A part", "Term")))

    @property
    def status(self):
        return self.page.text_content("#status")

    @property
    def translation(self):
        return self.page.text_content("#translation")


@pytest.fixture
def shown(server, browser):
    opened = Shown(browser, server.url)
    yield opened
    opened.close()
    assert opened.problems == []
    assert all(url.startswith((server.url, "blob:")) for url in opened.asked)
    assert all("four" not in url for url in opened.asked)


def test_what_is_typed_is_translated_sentence_by_sentence(server, shown):
    shown.type(TEXT)
    answer = server.ask("/v1/translate", {"text": TEXT, "split": "sentences"}).json["translations"][0]["text"]
    assert shown.translation == answer
    assert shown.page.locator(".sentence").count() == 3
    assert [shown.page.get_attribute(place, "lang") for place in ("#text", ".sentence >> nth=0")] == ["en", "de"]
    shown.type("two")
    assert shown.translation == server.translations(["two"])[0]
    shown.page.fill("#text", "")
    shown.until(lambda: shown.translation == "")


def test_hover_and_focus_mark_partners_on_both_sides(shown):
    shown.type("one four two")  # the model reverses the words
    words = shown.page.locator(".word")
    words.nth(2).hover()
    assert shown.page.locator("#mirror mark").all_text_contents() == ["one"]
    assert shown.page.locator(".word.partner").all_text_contents() == ["eins"]
    words.nth(0).focus()
    assert shown.page.locator("#mirror mark").all_text_contents() == ["two"]
    shown.page.keyboard.press("ArrowRight")
    assert shown.page.locator("#mirror mark").all_text_contents() == ["four"]
    shown.page.focus("#text")
    shown.page.keyboard.press("Control+Home")
    shown.until(lambda: shown.page.locator(".word.partner").all_text_contents() == ["eins"])


def test_the_box_grows_with_a_long_text(shown):
    shown.type("one four two\n" * 60)
    box, answer = (shown.page.locator(name).bounding_box() for name in ("#text", "#translation"))
    assert box["height"] > 1000
    assert abs(box["height"] - answer["height"]) < 50
    inside = shown.page.evaluate("[text.scrollHeight, text.clientHeight]")
    assert inside[0] <= inside[1]
    shown.page.locator(".word").last.hover()
    marked, word = (shown.page.locator(name).bounding_box() for name in ("#mirror mark", ".word.partner"))
    assert abs(marked["y"] - word["y"]) < 5


def test_alternatives_begin_as_the_translation_does_up_to_the_word(shown):
    shown.type("one four two")
    shown.page.locator(".word").nth(1).focus()
    shown.page.keyboard.press("Enter")
    shown.until(lambda: shown.page.locator(".choices button").count() > 1)
    choices = shown.page.locator(".choices button").all_text_contents()
    assert all(choice.split()[0] == "zwei" for choice in choices)
    shown.page.locator(".choices button").nth(1).focus()
    shown.page.keyboard.press("Enter")
    assert shown.translation == choices[1]
    assert shown.page.locator(".choices").count() == 0


def choose(shown, word=0, choice=1):
    """Choose another translation of the sentence of a word; return it."""
    shown.page.locator(".word").nth(word).click()
    shown.until(lambda: shown.page.locator(".choices button").count() > 1)
    text = shown.page.locator(".choices button").nth(choice).text_content()
    shown.page.locator(".choices button").nth(choice).click()
    return text


def test_a_choice_stays_until_its_sentence_changes(shown):
    shown.type("one four two.")
    text = choose(shown)
    assert shown.translation == text
    shown.type("one four two. Three nine.")
    assert shown.translation.startswith(text)
    shown.page.locator(".word").first.click()  # the way back: what the model said by itself is in the list
    shown.until(lambda: shown.page.locator(".choices button").count() > 1)
    original = shown.page.locator(".choices button").nth(1).text_content()
    assert original != text
    shown.page.locator(".choices button").nth(1).click()
    assert shown.translation.startswith(original)
    text = choose(shown)
    shown.type("one four three. Three nine.")
    assert not shown.translation.startswith(text)


@pytest.mark.parametrize("act", ["type", "clear", "outside", "Escape"])
def test_the_list_closes_with_everything_that_makes_it_old(shown, act):
    shown.type("one four two")
    shown.page.locator(".word").first.click()
    shown.until(lambda: shown.page.locator(".choices").count() == 1)
    match act:
        case "type":
            shown.page.locator("#text").press_sequentially("x")
        case "clear":
            shown.page.click("#clear")
        case "outside":
            shown.page.locator("h1").click()
        case "Escape":
            shown.page.keyboard.press("Escape")
            assert shown.status == "Done."
            assert shown.page.evaluate("document.activeElement.className").startswith("word")
    assert shown.page.locator(".choices").count() == 0


def test_quick_clicks_open_one_list(shown):
    shown.type("one four two")
    shown.page.locator(".word").first.dblclick()
    shown.page.locator(".word").nth(1).click()
    shown.until(lambda: shown.page.locator(".choices").count() == 1)
    shown.rest(350)  # a click that closes a list may open another after 300 ms
    assert shown.page.locator(".choices").count() == 1


def test_the_list_is_below_its_word_and_moves_nothing(shown):
    shown.type("one four two\n" * 60)
    word = shown.page.locator(".word").nth(90)
    word.scroll_into_view_if_needed()
    before = word.bounding_box()
    word.click()
    shown.until(lambda: shown.page.locator(".choices").count() == 1)
    box = shown.page.locator(".choices").bounding_box()
    assert abs(word.bounding_box()["y"] - before["y"]) <= box["height"]  # no further than the list needs
    assert abs(box["y"] - word.bounding_box()["y"] - before["height"]) < 20
    shown.page.keyboard.press("ArrowDown")
    assert shown.page.evaluate("document.activeElement === document.querySelectorAll('.choices button')[1]")
    shown.page.keyboard.press("Enter")
    place = "document.querySelector('.word:focus')?.getBoundingClientRect().y ?? -1"
    shown.until(lambda: 0 <= shown.page.evaluate(place) <= 800)


def test_the_tab_key_passes_the_words_by(shown):
    shown.type(TEXT)
    shown.page.locator(".word").nth(2).focus()
    shown.page.keyboard.press("Tab")
    assert shown.page.evaluate("document.activeElement.id") == "copy"


def test_what_was_typed_survives_a_reload(shown):
    shown.type("one four two")
    shown.page.click("#glossary summary")
    shown.page.click("#add-term")
    shown.page.keyboard.type("four")
    shown.page.keyboard.press("Tab")
    shown.page.keyboard.type("neun")
    shown.until(lambda: "neun" in shown.translation)
    shown.page.reload()
    shown.until(lambda: "neun" in shown.translation)
    assert shown.page.input_value("#text") == "one four two"


@pytest.mark.parametrize(
    "text", ["four;neun\none;eins\n", '"four","neun"\none,eins', "four\tneun\r\none\teins\nno table"]
)
def test_terms_are_read_from_pasted_tables_and_files(shown, text, tmp_path):
    shown.type("one four two")
    shown.page.click("#glossary summary")
    (tmp_path / "terms.csv").write_text(text)
    shown.page.set_input_files("#open-terms", tmp_path / "terms.csv")
    shown.until(lambda: "neun" in shown.translation)
    assert shown.page.text_content("#terms-status").startswith("2 terms added.")
    shown.page.set_input_files("#open-terms", tmp_path / "terms.csv")
    shown.until(lambda: shown.page.text_content("#terms-status").startswith("0 terms added."))
    shown.page.fill("#paste-terms", "no table")
    shown.page.locator("#paste-terms").blur()
    assert shown.page.text_content("#terms-status").startswith("No terms in the box: write")


def test_documents_and_texts_are_opened_and_saved(shown, tmp_path):
    (tmp_path / "a.txt").write_text("one four")
    shown.page.set_input_files("#open-text", tmp_path / "a.txt")
    shown.until(lambda: shown.translation == "vier eins")
    with shown.page.expect_download() as saved:
        shown.page.click("#save")
    assert Path(saved.value.path()).read_text() == "vier eins\n"
    (tmp_path / "b.html").write_text("<p>one <b>four</b></p>")
    shown.page.set_input_files("#open-text", tmp_path / "b.html")
    shown.until(lambda: "is translated" in shown.status)
    with shown.page.expect_download() as saved:
        shown.page.click("#save")
    assert saved.value.suggested_filename.startswith("b.")
    assert Path(saved.value.path()).read_text() == "<p><b>vier</b> eins</p>"


def test_a_glossary_changes_the_translation_and_shows_a_status(shown):
    shown.type("one four two")
    shown.page.click("#glossary summary")
    shown.page.fill("#paste-terms", "four\tneun\none\teins\n")
    shown.page.locator("#paste-terms").blur()
    shown.until(lambda: "neun" in shown.translation)
    shown.until(lambda: shown.page.locator(".chip").all_text_contents() == ["forced", "kept"])
    shown.page.get_by_role("button", name="Remove").first.click()
    shown.until(lambda: "neun" not in shown.translation)


def test_alternatives_keep_to_the_glossary(shown):
    shown.type("one four two")
    shown.page.click("#glossary summary")
    shown.page.fill("#paste-terms", "four\tneun\n")
    shown.page.locator("#paste-terms").blur()
    shown.until(lambda: "neun" in shown.translation)
    for word in (0, 2):
        shown.page.locator(".word").nth(word).click()
        shown.until(lambda: shown.page.locator(".choices button").count() > 0)
        choices = shown.page.locator(".choices button").all_text_contents()
        assert all("neun" in choice for choice in choices), choices
        shown.page.keyboard.press("Escape")


def test_hostile_text_is_text_and_other_scripts_have_their_direction(shown):
    shown.type('<img src=x onerror="alert(1)"> one')
    assert shown.page.locator("#translation img").count() == 0
    shown.page.fill("#text", "שלום עולם")
    shown.until(lambda: shown.page.evaluate("getComputedStyle(document.getElementById('text')).direction") == "rtl")
    shown.until(lambda: shown.status != "Translating")


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 700}}])
def test_axe_finds_nothing(server, browser, options):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe: pip install '.[browser]'")
    shown = Shown(browser, server.url, **options)
    for state in (lambda: None, lambda: shown.type(TEXT), lambda: shown.page.click("#glossary summary")):
        state()
        found = axe.Axe().run(shown.page)
        assert [problem["id"] for problem in found.response["violations"]] == []
    width = shown.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0
    shown.close()


def test_a_server_that_is_gone_is_said_and_found_again(folder, browser):  # noqa: F811
    with serving(folder / "runs" / "toy") as served:
        shown = Shown(browser, served.url)
        shown.type("one")
        port = served.port
    shown.page.fill("#text", "two")
    shown.until(lambda: "does not answer" in shown.status)
    shown.page.locator(".word").first.hover()  # of the translation of what stood there before
    assert shown.page.locator("mark, .partner").count() == 0
    with serving(folder / "runs" / "toy", port=port) as served:
        shown.until(lambda: shown.status.startswith("Done"))
        assert shown.translation == served.translations(["two"])[0]
    shown.close()


def test_without_javascript_the_form_translates(server, browser):
    shown = Shown(browser, server.url, java_script_enabled=False)
    shown.page.fill("#text", "one two")
    shown.page.click("#submit")
    assert shown.page.text_content("output").split() == ["zwei", "eins"]
    shown.close()


def test_languages_are_chosen_from_lists_with_the_keyboard(browser, trained_nllb):
    """The page of a model of many languages has two lists; `Swap` exchanges their values."""
    with serving(trained_nllb, "--engine", "torch") as served:
        opened = Shown(browser, served.url)
        page = opened.page
        opened.until(lambda: page.get_by_label("From").is_visible())
        assert page.input_value("#source") == "auto"
        assert not page.is_visible("#swap")  # the language of the text is not known yet
        for label, typed in (("From", "Engl"), ("To", "Germ")):
            page.get_by_label(label, exact=True).focus()
            page.keyboard.type(typed)
        assert [page.input_value(name) for name in ("#source", "#target")] == ["eng_Latn", "deu_Latn"]
        opened.until(lambda: page.is_visible("#swap"))
        for pair in (("eng_Latn", "deu_Latn"), ("deu_Latn", "eng_Latn")):
            page.fill("#text", "the old house is red")
            opened.until(lambda: "stale" not in (page.get_attribute("#translation", "class") or ""))
            opened.until(lambda: opened.status.startswith(("Done", "A part")))
            expected = served.translations(["the old house is red"], source=pair[0], target=pair[1])[0]
            assert opened.translation == expected
            tags = [page.get_attribute(place, "lang") for place in ("#text", ".sentence")]
            assert tags == [{"eng_Latn": "en", "deu_Latn": "de"}[name] for name in pair]
            assert [page.input_value(name) for name in ("#source", "#target")] == list(pair)
            page.click("#swap")
        page.reload()  # the lists keep their values
        opened.until(lambda: opened.status.startswith(("Done", "A part")))
        assert [page.input_value(name) for name in ("#source", "#target")] == ["eng_Latn", "deu_Latn"]
        assert not opened.problems
