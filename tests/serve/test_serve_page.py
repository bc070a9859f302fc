"""The files of the page of `s2s serve`, and its form without JavaScript. About 5 s."""

from pathlib import Path

from seq2seq import serve

FILES = sorted(path.name for path in (Path(serve.__file__).parent / "page").iterdir() if path.is_file())


def test_browsers_ask_again_for_every_file_of_the_page(server):
    """So that all of them are of one version after an upgrade; the page itself may hold a text, and is not stored."""
    assert {"page.js", "page.css", "icon.svg", "index.html"} <= set(FILES)
    for name in FILES:
        answer = server.ask("/" if name == "index.html" else f"/{name}")
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == ("no-store" if name == "index.html" else "no-cache")
