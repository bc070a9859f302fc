"""HTML, as it is: no tree is repaired, and every byte that is not translated stays."""

import re
from html.parser import HTMLParser
from typing import Any

from seq2seq.errors import DataError
from seq2seq.markup.document import Document
from seq2seq.markup.tags import EMPTY, Lexeme, build

_CHARSET = re.compile(r"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_HEAD = 4096


def segments(text: str) -> Document:
    """The segments of a page, or of a part of one.

    Raises:
        DataError: it says that it is in another encoding than UTF-8, which a translation could not be written in.
    """
    charset = _CHARSET.search(text[:_HEAD])
    if charset and charset[1].lower() not in ("utf-8", "utf8", "unicode-1-1-utf-8"):
        raise DataError(f"HTML in {charset[1]}; convert it to UTF-8, and its <meta charset> too")
    return build(_Tokenizer(text).lexemes(), is_html=True)


class _Tokenizer(HTMLParser):
    """Notes where each thing begins; it ends where the next one begins, so that nothing can be lost."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=False)
        self._text = text
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._found: list[tuple[int, int, str, str]] = []  # begin, end (or 0), kind, name

    def lexemes(self) -> list[Lexeme]:
        self.feed(self._text)
        self.close()
        ends = [*(begin for begin, *_ in self._found), len(self._text)][1:]
        lexemes: list[Lexeme] = []
        position = 0
        for (begin, end, kind, name), following in zip(self._found, ends, strict=True):
            if following <= begin:
                continue  # read as one thing after all
            if position < begin:
                lexemes.append(Lexeme("other", self._text[position:begin]))
            position = min(end or following, following)
            if kind == "text" and lexemes and lexemes[-1].kind == "text":
                lexemes[-1] = Lexeme("text", lexemes[-1].raw + self._text[begin:position])
            else:
                lexemes.append(Lexeme(kind, self._text[begin:position], name))  # type: ignore[arg-type]
        if position < len(self._text):
            lexemes.append(Lexeme("other", self._text[position:]))
        return lexemes

    def _note(self, kind: str, name: str = "", length: int = 0) -> None:
        line, column = self.getpos()
        begin = self._lines[line - 1] + column
        self._found.append((begin, begin + length if length else 0, kind, name))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Called by the parser, as are the others."""
        self._note("empty" if tag in EMPTY else "open", tag, len(self.get_starttag_text() or ""))

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self._note("empty", tag, len(self.get_starttag_text() or ""))

    def handle_endtag(self, tag: str) -> None:
        self._note("close", tag)

    def handle_data(self, data: str) -> None:
        self._note("other" if self.cdata_elem else "text", length=len(data))

    def handle_entityref(self, name: str) -> None:
        self._note("text")

    def handle_charref(self, name: str) -> None:
        self._note("text")

    def handle_comment(self, data: str) -> None:
        self._note("other")

    def handle_decl(self, decl: str) -> None:
        self._note("other")

    def handle_pi(self, data: str) -> None:
        self._note("other")

    def unknown_decl(self, data: str) -> None:
        self._note("other")
