"""LibreTranslate's own page, unchanged, over `s2s serve`; skipped without its package or a Chromium. About 10 s.

`pip install --no-deps libretranslate`: its templates and static files are what is needed, none of its code runs.
"""

import json
import mimetypes
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit

import pytest

jinja2 = pytest.importorskip("jinja2")
from test_page import ARGUMENTS, CHROMIUM, browser, folder, playwright, pytestmark  # noqa: E402, F401

try:
    PACKAGE = Path(str(distribution("libretranslate").locate_file("libretranslate")))
except PackageNotFoundError:
    pytest.skip("needs LibreTranslate's files: pip install --no-deps libretranslate", allow_module_level=True)


def rendered(name: str) -> str:
    """A template of the page, as a server with its default settings renders it, in English."""

    def plain(text, **values):
        return text % values if values else text

    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(PACKAGE / "templates"), autoescape=False)
    environment.globals |= {
        "_": plain, "_h": plain, "_e": lambda text, **values: json.dumps(plain(text, **values)),
        "url_for": lambda _, filename="": f"/static/{filename}" if filename else "/",
    }  # fmt: skip
    settings = {"url_prefix": "", "api_secret": "", "current_locale": "en", "version": "", "api_keys": True}
    return environment.get_template(name).render(settings)


def answer(route) -> None:
    """The page's own files come from its package; what it asks its server for, from ours."""
    path = urlsplit(route.request.url).path
    if path in ("/", "/js/app.js"):
        name, kind = ("index.html", "text/html") if path == "/" else ("app.js.template", "text/javascript")
        route.fulfill(body=rendered(name), content_type=f"{kind}; charset=utf-8")
    elif path.startswith("/static/"):
        file = PACKAGE / path.lstrip("/")
        route.fulfill(body=file.read_bytes(), content_type=mimetypes.guess_type(file.name)[0] or "font/woff2")
    else:
        route.continue_()


def test_its_page_translates(server, browser):  # noqa: F811
    page = browser.new_page()
    problems, asked = [], []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("response", lambda response: asked.append((urlsplit(response.url).path, response.status)))
    page.route(f"{server.url}/**", answer)
    page.goto(server.url)
    page.locator("#textarea1").fill("one four two\nthree")
    expect = playwright.expect
    lines = server.translations(["one four two", "three"])
    expect(page.locator("#textarea2")).to_have_value("\n".join(lines), timeout=20_000)
    assert "source=en&target=de" in page.url  # what the settings of ours say
    page.locator("#textarea1").fill("<b>one</b> four")
    expect(page.locator("#textarea2")).to_have_value("vier <b>eins</b>", timeout=20_000)
    assert ("/translate", 200) in asked
    assert {status for path, status in asked if not path.startswith("/static")} == {200}
    assert problems == []
    page.close()
