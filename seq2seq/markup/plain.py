"""Plain text whose variables, addresses and code are kept; each line is a segment. `translation` uses it for program
messages such as `%d files in {folder}`."""

import re

from seq2seq.markup.document import Document
from seq2seq.markup.items import text_item
from seq2seq.markup.protected import IsTerm, no_term
from seq2seq.markup.segments import Builder

_LINE = re.compile(r"([^\r\n]*)([\r\n]*)")


def beginning(text: str, length: int) -> str:
    """Return the first lines of a text, of at least `length` characters, or all of it."""
    return text[: text.find("\n", length) + 1] or text


def segments(text: str, is_term: IsTerm = no_term) -> Document:
    """Return the lines of a text as segments."""
    builder = Builder(str, is_term=is_term)
    for line in _LINE.finditer(text):
        if line[1]:
            builder.add(text_item(line[1]))
        builder.cut((line[2],) if line[2] else ())
    return builder.finish()
