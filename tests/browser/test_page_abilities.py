"""The page of `s2s serve` offers for each of several models what this one can do, in a real Chromium. About 30 s."""

from support.serving import serving
from test_page import Shown, browser, folder, playwright, pytestmark  # noqa: F401

from seq2seq.cli import main


def test_the_page_has_the_abilities_of_the_chosen_model(browser, folder):  # noqa: F811
    """A CTranslate2 folder has no details, glossary and documents; the model beside it has."""
    run, fast = folder / "runs" / "toy", folder / "fast"
    assert main(["convert", str(run), "--to", "ctranslate2", "-o", str(fast), "--force"]) == 0
    with serving(fast, run) as served:
        opened = Shown(browser, served.url)
        page = opened.page
        for chosen, is_able in (("0", False), ("1", True), ("0", False)):
            page.select_option("#direction", chosen)
            opened.type("one four two")
            assert page.is_visible("#glossary") is is_able
            assert page.locator(".word").count() == (3 if is_able else 1)
            page.set_input_files("#open-text", {"name": "a.html", "mimeType": "text/html", "buffer": b"<p>one</p>"})
            opened.until(lambda able=is_able: ("is translated" if able else "does not translate") in opened.status)
            if is_able:  # the terms stay in the table, and do not stop the other model
                page.click("#glossary summary")
                page.click("#add-term")
                for label, word in (("Term", "four"), ("Translation", "neun")):
                    page.locator(f"#terms input[aria-label={label}]").fill(word)
                opened.until(lambda: "neun" in opened.translation)
        opened.close()
        assert opened.problems == []
