"""Make the picture of the page of `s2s serve` that the README shows: `screenshot.py MODEL OUTPUT.png`.

MODEL is an English-German translation model, such as `runs/demo`. It needs the extra `browser` and a Chromium on the
path, as `test_page.py` does.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.sync_api import sync_playwright
from support.serving import serving
from test_page import ARGUMENTS, CHROMIUM, Shown

TEXT = (
    "My parents are going to Hamburg by car tomorrow evening.\nWhen my mother has time, she plays table tennis.\n"
    "The tie is more modern than the scarf."
)
TERMS = "car\tWagen\n"


def take(model: str, output: str) -> None:
    """Write a picture of the page with a text, a term of a glossary, and the pointer on a word."""
    with serving(model) as served, sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        shown = Shown(chromium, served.url, viewport={"width": 900, "height": 805})
        shown.page.click("#glossary summary")
        shown.page.fill("#paste-terms", TERMS)
        shown.page.locator("#paste-terms").blur()
        shown.type(TEXT)
        shown.until(lambda: "Wagen" in shown.translation and shown.page.locator(".chip").count() == 1)
        shown.page.locator(".word", has_text="morgen").hover()
        shown.page.screenshot(path=output)
        chromium.close()


if __name__ == "__main__":
    take(*sys.argv[1:])
