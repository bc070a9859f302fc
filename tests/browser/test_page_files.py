"""Files that are opened and saved on the page of `s2s serve`, and the clipboard. About 60 s.

In a real Chromium, skipped where there is none.
"""

from pathlib import Path

import pytest
from test_page import Shown, browser, folder, playwright, pytestmark, shown  # noqa: F401
from test_page_answers import hold, release

WRONG = {
    "Latin-1": ("one;eins\nfünf;funf\n".encode("latin-1"), "{}: line 2 is not UTF-8; save it as UTF-8 text."),
    "a picture": (b"\x89PNG\r\n\x1a\n\xff\xff", "{}: line 1 is not UTF-8; save it as UTF-8 text."),
    "UTF-16": ("one\tzwei".encode("utf-16"), "{} is UTF-16; save it as UTF-8 text."),
    "UTF-16BE": (b"\xfe\xff" + "one\tzwei".encode("utf-16-be"), "{} is UTF-16; save it as UTF-8 text."),
    "UTF-16 without a mark": ("a\nb".encode("utf-16-le"), "{}: line 1 has zero bytes; save it as UTF-8 text."),
    "half a character": ("one\nfünf ü".encode()[:-1], "{}: line 2 is not UTF-8; save it as UTF-8 text."),
}


@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.csv", "a.tsv"])
@pytest.mark.parametrize("kind", WRONG)
def test_a_file_that_is_not_utf8_is_refused(shown, tmp_path, name, kind):  # noqa: F811
    content, said = WRONG[kind]
    (tmp_path / name).write_bytes(content)
    is_glossary = name.endswith("sv")
    shown.type("one four")
    shown.page.evaluate("document.getElementById('glossary').open = true")
    shown.page.set_input_files("#open-terms" if is_glossary else "#open-text", tmp_path / name)
    shown.until(lambda: shown.page.text_content("#terms-status" if is_glossary else "#status") == said.format(name))
    assert shown.page.input_value("#text") == "one four"
    assert shown.page.locator("#terms tr").count() == 0


def test_a_byte_order_mark_is_no_text(shown, tmp_path):  # noqa: F811
    (tmp_path / "a.txt").write_bytes("\ufeffone four ü\n".encode())
    shown.page.set_input_files("#open-text", tmp_path / "a.txt")
    shown.until(lambda: shown.page.input_value("#text") == "one four ü\n")


def saved(opened):
    """Return the name and the content of what Download saves."""
    with opened.page.expect_download() as found:
        opened.page.click("#save")
    return found.value.suggested_filename, Path(found.value.path()).read_text()


@pytest.fixture
def document(tmp_path):
    (tmp_path / "a.html").write_text("<p>one four")
    return tmp_path / "a.html"


def test_a_text_that_is_typed_after_a_document_is_what_is_saved(shown, document):  # noqa: F811
    """Also if the document is translated later than the text."""
    held = hold(shown.page, "/v1/translate")
    shown.page.set_input_files("#open-text", document)
    shown.until(lambda: len(held) == 1)
    shown.page.fill("#text", "two six")
    shown.until(lambda: len(held) == 2)
    release(shown.page, held[1:])
    shown.until(lambda: shown.status == "Done.")
    release(shown.page, held)
    assert shown.status == "Done."
    assert saved(shown) == ("translation.txt", f"{shown.translation}\n")
    shown.page.unroute_all()


@pytest.mark.parametrize("act", ["look", "choose", "term"])
def test_download_saves_what_the_page_says(shown, document, act):  # noqa: F811
    shown.type("one four two")
    shown.page.set_input_files("#open-text", document)
    shown.until(lambda: shown.status == "a.html is translated; Download saves it.")
    if act == "term":
        shown.page.click("#glossary summary")
        shown.page.fill("#paste-terms", "two\tneun\n")
        shown.page.locator("#paste-terms").blur()
        shown.until(lambda: "neun" in shown.translation)
        shown.page.wait_for_timeout(300)
    else:
        shown.page.locator(".word").first.click()
        shown.until(lambda: shown.page.locator(".choices button").count() > 1)
        shown.page.keyboard.press({"look": "Escape", "choose": "Enter"}[act])
    name, _ = saved(shown)
    assert (name == "a.de.html") == (shown.status == "a.html is translated; Download saves it.")
    assert (name == "translation.txt") == (act == "choose")


def test_two_documents_are_saved_as_the_last_one(shown, document):  # noqa: F811
    other = document.with_name("b.html")
    other.write_text("<p>two six")
    held = hold(shown.page, "/v1/translate")
    for number, path in enumerate((document, other), start=1):
        shown.page.set_input_files("#open-text", path)
        shown.until(lambda number=number: len(held) == number)
    release(shown.page, held[1:])
    release(shown.page, held)
    shown.until(lambda: shown.status == "b.html is translated; Download saves it.")
    assert saved(shown) == ("b.de.html", "<p>sechs zwei")
    shown.page.unroute_all()


def test_the_name_of_a_document_has_its_own_language(browser, both_ways, document):  # noqa: F811
    opened = Shown(browser, both_ways.url)
    opened.until(lambda: opened.page.is_visible("#swap"))
    held = hold(opened.page, "/v1/translate")
    opened.page.set_input_files("#open-text", document)
    opened.until(lambda: held)
    opened.page.select_option("#direction", "1")
    opened.page.wait_for_timeout(400)
    assert opened.status == "Translating a.html"
    release(opened.page, held)
    opened.until(lambda: opened.status == "a.html is translated; Download saves it.")
    assert saved(opened) == ("a.de.html", "<p>vier eins")
    assert opened.problems == []
    opened.close()


@pytest.mark.parametrize("button", ["#copy", "#save"])
def test_nothing_is_copied_or_saved_before_it_is_translated(shown, button):  # noqa: F811
    page, downloads = shown.page, []
    page.on("download", lambda download: downloads.append(download.suggested_filename))
    page.click(button)
    shown.until(lambda: shown.status == "There is no translation; type a text.")
    shown.type("one four")
    held = hold(page, "/v1/translate")
    page.fill("#text", "two six")
    for _ in range(2):  # before the request, and after it
        page.click(button)
        assert shown.status == "The text is not translated yet; wait until it is."
        shown.until(lambda: held)
    release(page, held)
    shown.until(lambda: shown.status == "Done.")
    page.unroute_all()
    assert downloads == []


@pytest.mark.parametrize("act", ["#copy", "#save", "document"])
def test_what_is_asked_before_the_models_are_known_is_answered_after(shown, document, act):  # noqa: F811
    """No answer is given that the list of models then overwrites, or that is true only until then."""
    page = shown.page
    held = hold(page, "/v1/models")
    page.reload()
    shown.until(lambda: held)
    if act == "document":
        page.set_input_files("#open-text", document)
        expected = "a.html is translated; Download saves it."
    else:
        page.click(act)
        expected = "There is no translation; type a text."
    page.wait_for_timeout(500)
    assert shown.status == ""
    release(page, held)
    shown.until(lambda: shown.status == expected)
    page.wait_for_timeout(500)
    assert shown.status == expected
    page.unroute_all()


@pytest.mark.parametrize("clipboard", ["undefined", "{ writeText: () => Promise.reject(new Error()) }"])
def test_the_translation_is_copied_where_the_browser_has_no_clipboard_of_its_own(browser, server, clipboard):  # noqa: F811
    """It has none at an address with http:// of another machine."""
    opened = Shown(browser, "about:blank")
    opened.page.add_init_script(f"Object.defineProperty(navigator, 'clipboard', {{ get: () => ({clipboard}) }})")
    opened.page.goto(server.url)
    opened.type("one four")
    opened.page.click("#copy")
    opened.until(lambda: opened.status == "Copied.")
    opened.page.focus("#text")
    opened.page.keyboard.press("ControlOrMeta+A")
    opened.page.keyboard.press("ControlOrMeta+V")
    assert opened.page.input_value("#text") == "vier eins"
    opened.page.evaluate("document.execCommand = () => false")
    opened.until(lambda: opened.status.startswith("Done"))
    opened.page.click("#copy")
    opened.until(lambda: opened.status.startswith("The browser does not allow copying"))
    assert opened.problems == []
    opened.close()
