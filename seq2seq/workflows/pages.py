"""HTML pages of reports: one file each, without scripts and requests, for light and dark and small screens.

`compare` and `distill` make pages of these pieces. All text is escaped, and a policy in the file forbids scripts and
requests.
"""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from seq2seq.lines import UNWRITABLE

STYLE = Path(__file__).parent / "compare" / "page.css"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, parts: Iterable[str]) -> str:
    """Return a whole file; `title` and `parts` are HTML."""
    style = STYLE.read_text(encoding="utf-8")
    head = (
        f'<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>"
    )
    body = "\n".join(parts)
    rest = f"<head>\n{head}\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    return f'<!doctype html>\n<html lang="en">\n{rest}'


def table(caption: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in a region that scrolls sideways; the first column has the names of its rows."""
    head = "".join(f'<th scope="col">{escaped(title)}</th>' if title else "<td></td>" for title in titles)
    body = "\n".join(
        "".join([f'<tr><th scope="row">{escaped(first)}</th>', *map(_figure, rest), "</tr>"]) for first, *rest in rows
    )
    label = html.escape(caption, quote=True)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{UNWRITABLE.sub("?", label)}">\n'
        f"<table>\n<caption>{escaped(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n"
        "</table>\n</div>"
    )


def _figure(text: str) -> str:
    return f'<td class="figure">{escaped(text)}</td>'


def escaped(text: str) -> str:
    """Return text of a user as HTML: it has no markup of its own."""
    return html.escape(UNWRITABLE.sub("\ufffd", text), quote=True)
