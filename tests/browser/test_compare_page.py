"""The page of `s2s compare` in a real Chromium, from the disk; skipped where there is none. About 10 s."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install '.[browser]'")

from support.compared import REFERENCE, seeded, sentences, spoiled  # noqa: E402
from test_page import Shown, browser, pytestmark  # noqa: E402, F401 (a fixture)

from seq2seq.workflows.compare.comparison import TestLines as Lines  # noqa: E402
from seq2seq.workflows.compare.comparison import compare  # noqa: E402
from seq2seq.workflows.compare.page import page  # noqa: E402

HOSTILE = "<script>document.title = 'harm'</script><img src=x onerror=\"document.title = 'harm'\">"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """Three seeds of three configurations, with curves and hostile text."""
    folder = tmp_path_factory.mktemp("report")
    systems = []
    for place, name in enumerate(("base", "wide", "deep")):
        for seed in (1, 2, 3):
            lines = [
                HOSTILE if name == "base" else "nothing",
                *spoiled(REFERENCE, 0.1 + 0.1 * place, 10 * place + seed),
            ]
            system = seeded(folder, name, seed, 0.1 + place / 10, lines)
            records = [{"step": 10 * at, "seconds": at, "bleu": place + at, "valid_loss": 9 - at} for at in range(1, 5)]
            system.run.folder.metrics.write_text("".join(f"{json.dumps(record)}\n" for record in records))
            systems.append(system)
    test = Lines("news", [[HOSTILE, *REFERENCE]], [HOSTILE, *sentences(len(REFERENCE), 9)])
    path = folder / "report.html"
    path.write_text(page(compare(systems, test, ["bleu", "chrf"])), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "options",
    [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 640}}],
    ids=["light", "dark", "phone"],
)
def test_axe_finds_nothing_and_nothing_else_is_asked_for(report, browser, options):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe: pip install '.[browser]'")
    shown = Shown(browser, report.as_uri(), bypass_csp=True, **options)  # axe is a script
    shown.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    found = axe.Axe().run(shown.page)
    assert [problem["id"] for problem in found.response["violations"]] == []
    width = shown.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0
    assert shown.asked == [report.as_uri()]
    shown.close()


def test_text_is_shown_and_never_run(report, browser):  # noqa: F811
    shown = Shown(browser, report.as_uri())
    assert shown.page.title() == "Comparison on news"
    assert HOSTILE in shown.page.text_content("body")
    assert shown.page.locator("script, img").count() == 0
    assert shown.page.locator("polyline").count() == 2 * 3 * 9
    assert shown.problems == []
    assert shown.asked == [report.as_uri()]
    shown.close()
