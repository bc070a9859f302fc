"""The page of `s2s serve` offers for each of several models what this one can do, and translates without details where
there are none. In a real Chromium. About 40 s.
"""

import contextlib
import os

import pytest
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


def test_the_page_names_the_glossaries_that_apply_to_the_text(browser, trained_nllb, tmp_path):  # noqa: F811
    """With Detect too, if they are of the language that was detected."""
    (tmp_path / "a.tsv").write_text("house\tHütte\n")
    with serving(trained_nllb, "--engine", "torch", "--glossary", f"eng-de={tmp_path / 'a.tsv'}") as served:
        opened = Shown(browser, served.url)
        page = opened.page
        opened.until(lambda: page.is_visible("#more"))
        page.click("#glossary summary")
        english, german = "the old house is red.", "Das alte Haus ist rot, und sie liest ein Buch."
        for source, target, text in (
            ("auto", "deu_Latn", english), ("auto", "fra_Latn", english), ("auto", "deu_Latn", german),
            ("eng_Latn", "deu_Latn", german), ("auto", "deu_Latn", english), ("deu_Latn", "deu_Latn", english),
        ):  # fmt: skip
            page.select_option("#source", source)
            page.select_option("#target", target)
            opened.type(text)
            opened.rest()
            asked = {"text": text, "source": source, "target": target, "details": ["terms"], "split": "sentences"}
            answer = served.ask("/v1/translate", asked).json
            applies = (answer["source"], target) == ("eng_Latn", "deu_Latn")
            assert page.is_visible("#served-terms") is applies
            assert bool(answer["translations"][0]["terms"]) is (applies and text == english)
        opened.close()


WHY = "details, glossaries and documents are not available; the server's log has the cause"


@contextlib.contextmanager
def no_details(run):
    """Let the server find other files than it has opened, so that it cannot load what details need."""
    weights = run / "best" / "model.safetensors"
    state = weights.stat()
    os.utime(weights, (1, 1))
    try:
        yield
    finally:
        os.utime(weights, ns=(state.st_atime_ns, state.st_mtime_ns))


@pytest.mark.parametrize("options", [[], ["--max-queue", "6"]], ids=["whole", "in parts"])
def test_a_text_is_translated_without_details_that_cannot_be_loaded(browser, folder, options):  # noqa: F811
    """This is said once; the next text has details if they can be loaded then."""
    run, text = folder / "runs" / "toy", "One four two! Three nine.\nSix. " * 4
    with serving(run, "--beam-size", "5", *options) as served:
        expected = served.ask("/v1/translate", {"text": text, "split": "sentences"}).json["translations"][0]["text"]
        with no_details(run):
            opened = Shown(browser, served.url)
            words, choices = opened.page.locator(".word"), opened.page.locator(".choices button")
            opened.type(text)
            assert opened.translation == expected
            assert opened.status.count("alignment") == 1
            assert words.count() > 6
            assert opened.page.locator(".word + .word").count() == 0  # each is a whole sentence
            words.first.click()
            opened.until(lambda: choices.count() > 1)
            chosen = choices.nth(1).text_content()
            choices.nth(1).click()
            assert opened.translation.startswith(chosen)
            opened.rest()
            assert opened.page.locator("#status.error").count() == 0
        opened.type("Three four two.")
        assert words.count() > 1
        assert "alignment" not in opened.status
        assert all("503" in problem for problem in opened.problems)  # the words of the choice
        opened.close()


def test_what_needs_details_says_why_there_are_none(browser, folder):  # noqa: F811
    """A glossary in use, and a document: their translation would be another one without."""
    run = folder / "runs" / "toy"
    with serving(run) as served:
        with no_details(run):
            opened = Shown(browser, served.url)
            page = opened.page
            opened.type("one four two")
            page.set_input_files("#open-text", {"name": "a.html", "mimeType": "text/html", "buffer": b"<p>one</p>"})
            opened.until(lambda: opened.status == WHY)
            page.click("#glossary summary")
            page.fill("#paste-terms", "four\tneun\n")
            page.locator("#paste-terms").blur()
            opened.until(lambda: "stale" in page.get_attribute("#translation", "class") and opened.status == WHY)
        page.fill("#text", "two four")
        opened.until(lambda: "neun" in opened.translation)
        opened.close()


@pytest.mark.parametrize(
    ("status", "code", "field"), [(503, "model", None), (400, "unsupported", "details")], ids=["model", "field"]
)
def test_details_may_be_refused_before_the_first_sentence(browser, server, status, code, field):  # noqa: F811
    opened = Shown(browser, server.url)
    error = {"error": {"code": code, "message": "no details", "field": field}}
    opened.page.route(
        "**/v1/translate",
        lambda route: (
            route.fulfill(status=status, json=error) if route.request.post_data_json["details"] else route.continue_()
        ),
    )
    opened.type("one four two")
    assert opened.translation == server.translations(["one four two"])[0]
    assert ("alignment" in opened.status) == (code == "model")
    opened.close()
