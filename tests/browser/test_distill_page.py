"""The page of `s2s distill` in a real Chromium, from the disk; skipped where there is none. About 5 s."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install '.[browser]'")

from test_compare_page import HOSTILE, test_axe_finds_nothing_and_nothing_else_is_asked_for  # noqa: E402, F401
from test_page import Shown, browser, pytestmark  # noqa: E402, F401 (a fixture)

from seq2seq.workflows.distill.measured import Figures, MeasuredSystem, MeasuredSystems, page  # noqa: E402


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """Two test sets and four systems, with hostile text."""
    tests = {HOSTILE: 1000, "news": 2000}
    figures = {test: Figures({"bleu": 41.25, "chrf": 60.5}, 12345.6) for test in tests}
    names = ("teacher, float32", "teacher, int8", "student, float32", "student, int8")
    systems = {
        name: MeasuredSystem("CTranslate2, int8_float32 " + "of a long name" * 9, 123.4, figures) for name in names
    }
    measured = MeasuredSystems(
        tests, systems, {"bleu": "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"}
    )
    path = tmp_path_factory.mktemp("distilled") / "report.html"
    path.write_text(page("Student in models/student", measured, ["Teacher: runs/a. It gave 3 pairs.", HOSTILE]))
    return path


def test_text_is_shown_and_never_run(report, browser):  # noqa: F811
    shown = Shown(browser, report.as_uri())
    assert shown.page.title() == "Student in models/student"
    assert HOSTILE in shown.page.text_content("body")
    assert shown.page.locator("script, img").count() == 0
    assert shown.page.locator("table").count() == 3
    assert shown.problems == []
    assert shown.asked == [report.as_uri()]
    shown.close()
