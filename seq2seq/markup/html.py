"""Parser of HTML that changes nothing: no tree is repaired, and every byte that is not translated is kept.

The tokenizer follows browsers, and its time is linear for any input. `translation` and the other formats call
`segments` and `read`; `tags` makes segments of the lexemes.
"""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal

from seq2seq.errors import DataError
from seq2seq.markup.attributes import UNKNOWN_LANGUAGES, LanguagePair
from seq2seq.markup.document import Document
from seq2seq.markup.protected import IsTerm, no_term
from seq2seq.markup.segments import Builder
from seq2seq.markup.tags import EMPTY, Lexeme, build, closes_itself, escape_text

_CHARSET = re.compile(r"<meta\b[^>]{0,200}?charset\s{0,20}=\s{0,20}[\"']?\s{0,20}([\w.:-]+)", re.IGNORECASE)
_HEAD = 4096
# A tag, up to its `>`; a `>` within quotes does not end it.
_NAME = re.compile(r"</?([A-Za-z][^\s/>]*+)")
_TAG = re.compile(_NAME.pattern + r"""(?>(?:[^\s/>=]++|[\s/]++|=\s*+(?:"[^"]*+"|'[^']*+'|(?!["'])[^\s>]*+))*)>""")
_COMMENT = re.compile(r"<!--(?:-?>)?")
_ENDS = {ending: re.compile(ending) for ending in (">", "--!?>", r"\]\]>", r"\?>")}
_OWN_ENDS = {"<![CDATA[": r"\]\]>", "<?php": r"\?>", "<?=": r"\?>"}
# Elements whose content has no tags, without and with entities.
_RAW_TEXT = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext"})
_PICTURES = frozenset({"svg", "math"})
_ESCAPABLE = frozenset({"title", "textarea"})


def segments(text: str, languages: LanguagePair = UNKNOWN_LANGUAGES, is_term: IsTerm = no_term) -> Document:
    """Return the segments of a page, or of a part of a page.

    Raises:
        DataError: it declares another encoding than UTF-8; the translation is written in UTF-8.
    """
    charset = _CHARSET.search("".join(lexeme.raw for lexeme in lexemes(text[:_HEAD]) if lexeme.name == "meta"))
    if charset and charset[1].lower() not in ("utf-8", "utf8", "unicode-1-1-utf-8"):
        raise DataError(f"HTML in {charset[1]}; convert it to UTF-8, and its <meta charset> too")
    builder = Builder(escape_text, is_term=is_term)
    read(builder, text, languages)
    return builder.finish()


def beginning(text: str, length: int) -> str:
    """Return the first lexemes of a page, of at least `length` characters, or all of it."""
    ends = accumulate(len(lexeme.raw) for lexeme in _Tokenizer(text).lexemes())
    return text[: next((end for end in ends if end >= length), len(text))]


def read(builder: Builder, text: str, languages: LanguagePair = UNKNOWN_LANGUAGES) -> None:
    """Give a part of a page to a builder."""
    build(builder, lexemes(text), is_html=True, languages=languages)


def lexemes(text: str) -> list[Lexeme]:
    """Return the lexemes of a text, in order."""
    return list(_Tokenizer(text).lexemes())


class _Tokenizer:
    """Tokenizer of a text; its lexemes are the whole text, and no failed search is repeated."""

    def __init__(self, text: str):
        self._text = text
        self._pictures = 0  # open elements of SVG and MathML
        self._missing: set[str] = set()  # endings that the rest of the text does not contain

    def lexemes(self) -> Iterator[Lexeme]:
        """Yield the lexemes of the text, in order."""
        text, begin, position = self._text, 0, 0
        while (position := text.find("<", position)) >= 0:
            found = self._markup(position)
            if found is None:
                position += 1
                continue
            if begin < position:
                yield Lexeme("text", text[begin:position])
            yield found
            if found.name in _PICTURES and found.kind != "empty":
                self._pictures = max(self._pictures + (1 if found.kind == "open" else -1), 0)
            begin = position = position + len(found.raw)
            if found.kind == "open" and found.name in _RAW_TEXT | _ESCAPABLE:
                position = _end_of_content(text, found.name, begin)
                if begin < position:
                    yield Lexeme("text" if found.name in _ESCAPABLE else "other", text[begin:position])
                begin = position
        if begin < len(text):
            yield Lexeme("text", text[begin:])

    def _markup(self, begin: int) -> Lexeme | None:
        """Return the lexeme that begins with this `<`; None if it is text."""
        text = self._text
        if comment := _COMMENT.match(text, begin):
            is_empty = comment.group().endswith(">")
            end = comment.end() if is_empty else self._find("--!?>", comment.end()) or len(text)
            return Lexeme("other", text[begin:end])  # an unclosed comment is the rest of the page
        end = self._find(">", begin)
        if not end:
            return None
        if name := _NAME.match(text, begin):
            # a quotation mark without a partner is an ordinary character
            tag = _TAG.match(text, begin)
            raw, lower = text[begin : tag.end() if tag else end], name[1].lower()
            if raw.startswith("</"):
                kind: Literal["open", "close", "empty"] = "close"
            else:
                # browsers ignore the slash in HTML, so that all after a <script/> is a script, but not in a picture
                is_closed = closes_itself(raw) and (self._pictures > 0 or lower not in _RAW_TEXT | _ESCAPABLE)
                kind = "empty" if lower in EMPTY or is_closed else "open"
            return Lexeme(kind, raw, lower)
        if text.startswith(("<!", "<?", "</"), begin):
            own = next((ending for start, ending in _OWN_ENDS.items() if text.startswith(start, begin)), ">")
            return Lexeme("other", text[begin : self._find(own, begin) or end])
        return None

    def _find(self, ending: str, begin: int) -> int:
        """Return the place after an ending; 0 if there is none."""
        found = None if ending in self._missing else _ENDS[ending].search(self._text, begin)
        if found is None:
            self._missing.add(ending)
        return found.end() if found else 0


def _end_of_content(text: str, name: str, begin: int) -> int:
    """Return the place of the end tag of an element whose content has no tags; the end of the text if there is none."""
    end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, begin)
    return end.start() if end and name != "plaintext" else len(text)
