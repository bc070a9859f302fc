"""Choices, glossaries and languages on the page of `s2s serve`: to which text, model and terms each belongs.

In a real Chromium, skipped where there is none. About 60 s.
"""

import csv
import io
import itertools

import pytest
from support.serving import serving
from test_page import Shown, browser, choose, folder, playwright, pytestmark, shown  # noqa: F401

from seq2seq.errors import DataError
from seq2seq.text.glossary import Glossary

TWICE = "One four two. One four two. Six nine."


def choose_another(opened, word=0):
    """Choose a translation that differs from the one that is shown; return the old and the new text."""
    before = opened.translation
    choose(opened, word)
    opened.until(lambda: opened.page.locator(".word").count() > word + 1)  # the words of the choice
    assert opened.translation != before
    return before, opened.translation


def add_term(opened, source, target):
    opened.page.evaluate("document.getElementById('glossary').open = true")
    opened.page.fill("#paste-terms", f"{source}\t{target}\n")
    opened.page.locator("#paste-terms").blur()


def settle(opened):
    opened.page.wait_for_timeout(400)
    opened.until(lambda: opened.status.startswith(("Done", "A part", "Term")))


@pytest.mark.parametrize("change", ["another glossary", "another model"])
def test_a_choice_falls_away_with_what_it_was_made_for(browser, both_ways, change):  # noqa: F811
    opened = Shown(browser, both_ways.url)
    opened.until(lambda: opened.page.is_visible("#swap"))
    opened.type("one four two")
    before, _ = choose_another(opened)
    if change == "another glossary":
        add_term(opened, "eleven", "elf")
    else:
        opened.page.select_option("#direction", "1")
        settle(opened)
        assert opened.translation == before  # the models are alike
        opened.page.select_option("#direction", "0")
    settle(opened)
    assert opened.translation == before
    assert opened.problems == []
    opened.close()


EDITS = {
    "before": ("Home", "Three nine. "),
    "as the sentence": ("Home", "One four two. "),
    "after": ("End", " Three nine."),
    "after, as the sentence": ("End", " One four two."),
    "line ends": ("Home", "\n\n"),
    "other characters": ("Home", "😍😍! "),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("which", [0, 1])
def test_a_choice_belongs_to_one_place_and_moves_with_it(shown, edit, which):  # noqa: F811
    shown.type(TWICE)
    choose_another(shown, word=which * shown.page.locator(".sentence").first.locator(".word").count())
    sentences = shown.page.locator(".sentence").all_text_contents()
    assert sentences[which] != sentences[1 - which]
    key, typed = EDITS[edit]
    shown.page.focus("#text")
    shown.page.keyboard.press(f"ControlOrMeta+{key}")
    shown.page.keyboard.insert_text(typed)
    settle(shown)
    found = shown.page.locator(".sentence").all_text_contents()
    assert found.count(sentences[which]) == 1
    others = len(found) - len(sentences) if key == "Home" else 0
    assert found[others : others + 3] == sentences


@pytest.mark.parametrize("taken", ["first", "between"])
def test_a_choice_stays_when_other_sentences_are_taken_out(shown, taken):  # noqa: F811
    shown.type("Six nine. One four two. Six nine. One four two.")
    choose_another(shown, word=-4)
    chosen = shown.page.locator(".sentence").last.text_content()
    begin, end = (0, 10) if taken == "first" else (10, 34)
    shown.page.evaluate(f"text.focus(); text.setSelectionRange({begin}, {end})")
    shown.page.keyboard.press("Delete")
    settle(shown)
    assert shown.page.locator(".sentence").last.text_content() == chosen
    assert shown.page.locator(".sentence").all_text_contents().count(chosen) == 1


def test_chips_describe_the_text_that_is_shown(server, shown):  # noqa: F811
    add_term(shown, "four", "neun")
    shown.type("one four two")
    chips = shown.page.locator(".chip")
    shown.until(lambda: chips.all_text_contents() == ["forced"])
    text = shown.translation
    shown.page.locator(".word").first.click()
    shown.page.locator(".choices button").first.click()  # the same words; none of them is forced then
    asked = {"text": "one four two", "split": "none", "glossary": {"entries": [["four", "neun"]]}, "details": ["terms"]}
    answer = server.ask("/v1/translate", {**asked, "prefix": text}).json["translations"][0]
    assert answer["text"] == text
    shown.until(lambda: chips.all_text_contents() == [term["status"] for term in answer["terms"]])
    assert chips.all_text_contents() == ["kept"]


@pytest.mark.parametrize("word", [0, 1, 2])
def test_the_focus_stays_on_the_word_that_was_chosen(shown, word):  # noqa: F811
    shown.type("Six nine. One four two three")
    shown.page.locator(".word").nth(3 + word).focus()
    shown.page.keyboard.press("Enter")
    shown.until(lambda: shown.page.locator(".choices button").count() > 1)
    shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("Enter")
    shown.until(lambda: shown.page.locator(".sentence").last.locator(".word").count() > 1)
    focused = "[...document.querySelectorAll('.word')].indexOf(document.activeElement)"
    shown.until(lambda: shown.page.evaluate(focused) == 3 + word)


def test_a_reload_keeps_the_languages(browser, both_ways):  # noqa: F811
    opened = Shown(browser, both_ways.url)
    opened.until(lambda: opened.page.is_visible("#swap"))
    opened.page.select_option("#direction", "1")
    opened.type("one four two")
    for kept, expected in (("back", "1"), ("gone", "0")):  # a model that is still there, and one that is not
        opened.page.evaluate(
            f"sessionStorage.languages = JSON.stringify({{...JSON.parse(sessionStorage.languages), name: '{kept}'}})"
        )
        opened.page.reload()
        opened.until(lambda: opened.page.is_visible("#swap"))
        settle(opened)
        assert opened.page.input_value("#direction") == expected
        assert opened.page.get_attribute("#text", "lang") == ["en", "de"][int(expected)]
    assert opened.problems == []
    opened.close()


GLOSSARIES = {
    "a.tsv": '# The shop\tversion 2\nsource\ttarget\none\tEins\tcase\n\nfour\tneun|zehn\n#2\tx\n"six"\t"s"\n',
    "b.tsv": "one\teins, zwei; drei\nfour*\t=\n-\tneun\tcase\nnine\t\n two  three \tdrei\t\n",
    "c.csv": 'source,target\none,"eins, zwei",en,de\n"a ""b""",c\n5" disk,Scheibe; rund\n',
    "d.csv": "\ufeff#no,term\nfour;six,acht\nnine,neun,case\n",
}


@pytest.mark.parametrize("name", GLOSSARIES)
def test_the_page_reads_and_writes_glossaries_as_the_commands_do(shown, name, tmp_path):  # noqa: F811
    page, sent = shown.page, []
    (tmp_path / name).write_text(GLOSSARIES[name])
    expected = Glossary.read(tmp_path / name).rows
    page.evaluate("document.getElementById('glossary').open = true")
    page.set_input_files("#open-terms", tmp_path / name)
    shown.until(lambda: page.text_content("#terms-status") == f"{len(expected)} terms added.")
    with page.expect_download() as saved:
        page.click("#export-terms")
    saved.value.save_as(tmp_path / "export.tsv")
    assert Glossary.read(tmp_path / "export.tsv").rows == expected
    page.on("request", lambda request: sent.append(request.post_data_json))
    shown.type("one two")
    rows = [(number, row) for number, row in enumerate(sent[0]["glossary"]["entries"], start=1)]
    assert Glossary.of(rows, None, "sent").rows == expected
    page.reload()
    shown.until(lambda: page.locator("#terms tr").count() == len(expected))
    with page.expect_download() as saved:
        page.click("#export-terms")
    saved.value.save_as(tmp_path / "again.tsv")
    assert Glossary.read(tmp_path / "again.tsv").rows == expected


ENTRIES = [
    [("invoice", "Rechnung"), ("customer", "Kunde")],
    [("invoice, monthly", "Rechnung"), ("3,5 mm", "3.5 mm"), ("customer", "Kunde")],
    [("a;b", "c;d"), ("Acme, Inc.", "")],
    [('the "A" team', 'A-Team; "A"'), ("x\ty", "z,z"), ('5" disk', "=")],
]
REASONS = ("sep=", "not one record", "is not an option")
QUOTINGS = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE]


def tables():
    """Yield the mark and the text of tables over marks, quoting, marks within fields, and first lines."""
    for mark, quoting, entries in itertools.product(",;\t", QUOTINGS, ENTRIES):
        table = io.StringIO()
        if quoting != csv.QUOTE_NONE:
            csv.writer(table, delimiter=mark, quoting=quoting).writerows(entries)
        else:
            table.writelines(f"{mark.join(entry)}\n" for entry in entries)
        for start in ("", f"source{mark}target\n", f"sep={mark}\n"):
            yield mark, start + table.getvalue()


@pytest.mark.parametrize("way", ["a.csv", "a.tsv", "pasted"])
def test_the_page_chooses_mark_and_quotes_as_the_commands_do(shown, way, tmp_path):  # noqa: F811
    """Once for all lines; those without the mark are left out. What is pasted is a CSV if it has no tab, or names its
    mark."""
    page, found, expected = shown.page, {}, {}
    page.evaluate("document.getElementById('glossary').open = true")
    columns = "[...terms.rows].map((row) => [...row.querySelectorAll('input')].slice(0, 2).map((cell) => cell.value))"
    for mark, text in tables():
        if way == "a.tsv" and (mark != "\t" or text.startswith("sep=")):
            continue
        is_csv = "\t" not in text or text.startswith("sep=")
        path = tmp_path / (way if way != "pasted" else "b.csv" if is_csv else "b.tsv")
        path.write_text(text, newline="")
        try:
            whole = {" ".join(line.split()) for line in text.splitlines() if line[-1] != "\t"}
            expected[text] = [list(row[:2]) for row in Glossary.read(path).rows if row[0] not in whole]
        except DataError as error:
            expected[text] = [why for why in REASONS if why in str(error)]
        page.evaluate("document.getElementById('terms').replaceChildren()")
        page.evaluate("document.getElementById('terms-status').textContent = ''")
        if way == "pasted":
            page.fill("#paste-terms", text)
            page.locator("#paste-terms").blur()
        else:
            page.set_input_files("#open-terms", path)
        shown.until(lambda: page.text_content("#terms-status"))
        said = page.text_content("#terms-status")
        shown_rows = [[" ".join(cell.split()) for cell in row] for row in page.evaluate(columns)]
        found[text] = shown_rows or [why for why in REASONS if why in said]
    assert found == expected


def test_lines_without_the_mark_of_a_file_are_left_out(shown, tmp_path):  # noqa: F811
    """They are no terms with another mark, which the commands would not read either."""
    shown.page.evaluate("document.getElementById('glossary').open = true")
    for name, text, said in (
        ("a.tsv", "one\teins\nAcme, Inc.\n", "1 term added. Lines without a translation: 1."),
        ("a.csv", "two;zwei\nthree;drei\nAcme, Inc.\n", "2 terms added. Lines without a translation: 1."),
        ("b.tsv", "Acme, Inc.\n", "No terms in b.tsv: write a term and its translation in each line, with a tab"),
    ):
        (tmp_path / name).write_text(text)
        shown.page.set_input_files("#open-terms", tmp_path / name)
        shown.until(lambda said=said: shown.page.text_content("#terms-status").startswith(said))
    assert shown.page.locator("#terms tr").count() == 3


def test_a_term_with_a_sign_of_a_comment_is_exported_as_a_term(shown, tmp_path):  # noqa: F811
    shown.page.click("#glossary summary")
    for term in ("source", "#2"):
        shown.page.click("#add-term")
        shown.page.keyboard.type(term)
        shown.page.keyboard.press("Tab")
        shown.page.keyboard.type("target")
    with shown.page.expect_download() as saved:
        shown.page.click("#export-terms")
    saved.value.save_as(tmp_path / "export.tsv")
    assert [row[0] for row in Glossary.read(tmp_path / "export.tsv").rows] == ["source", "#2"]


def test_an_option_that_is_none_is_refused(shown, tmp_path):  # noqa: F811
    (tmp_path / "a.tsv").write_text("one\teins\nfour\tvier\tnoun\n")
    shown.page.click("#glossary summary")
    shown.page.set_input_files("#open-terms", tmp_path / "a.tsv")
    said = 'a.tsv: "noun" of four is not an option; the only one is "case".'
    shown.until(lambda: shown.page.text_content("#terms-status") == said)
    assert shown.page.locator("#terms tr").count() == 0


def test_the_case_of_a_term_is_obeyed(shown):  # noqa: F811
    shown.type("one four two")
    add_term(shown, "four", "VIER")
    shown.until(lambda: shown.page.locator(".chip").all_text_contents() == ["kept"])
    shown.page.get_by_label("Only in this case").check()
    shown.until(lambda: shown.page.locator(".chip").all_text_contents() == ["forced"])
    assert "VIER" in shown.translation


@pytest.mark.parametrize("width", [320, 360, 600])
def test_a_row_of_terms_fits_a_narrow_page(browser, server, width):  # noqa: F811
    opened = Shown(browser, server.url, viewport={"width": width, "height": 600})
    add_term(opened, "four", "neun")
    opened.type("one four two")
    opened.until(lambda: opened.page.locator(".chip").count() == 1)
    assert opened.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert opened.page.locator("#terms input").first.bounding_box()["width"] > 60
    opened.close()


def test_keys_of_any_letters_are_asked_for_and_sent(folder, browser, tmp_path):  # noqa: F811
    """Also by a page that was opened before the server had keys."""
    (tmp_path / "keys").write_text("ключ-один\nschlüssel\nkey\n")
    with serving(folder / "runs" / "toy") as served:
        opened = Shown(browser, served.url)
        opened.type("one")
        port = served.port
    with serving(folder / "runs" / "toy", "--key-file", tmp_path / "keys", port=port):
        opened.page.fill("#text", "one four")
        opened.until(lambda: opened.status == "This server needs a key.")
        for key in ("ключ-один", "ключ-два", "schlüssel", "key"):
            opened.page.fill("#api_key", key)
            opened.page.keyboard.press("Tab")
            said = "The server does not accept this key." if key == "ключ-два" else "Done."
            opened.until(lambda said=said: opened.status == said)
            opened.page.evaluate("document.getElementById('status').textContent = ''")
        opened.page.reload()  # now the page has the field
        opened.until(lambda: opened.status == "This server needs a key.")
        assert opened.page.locator("#api_key").count() == 1
    opened.close()
