"""Segments of XML: an element with text of its own is a segment, with the elements in it; others are structure.

expat checks whether it is well-formed. No other file is read; documents that declare entities are refused.
`translation` calls `segments`; `html` reads CDATA sections that contain HTML.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from xml.parsers import expat

from seq2seq.errors import DataError
from seq2seq.markup import html
from seq2seq.markup.attributes import UNKNOWN_LANGUAGES, LanguagePair, attributes, unescape
from seq2seq.markup.document import Document
from seq2seq.markup.items import SPACE, Item, text_item
from seq2seq.markup.protected import IsTerm, no_term
from seq2seq.markup.segments import Builder
from seq2seq.markup.tags import (
    LINE_END,
    LINE_ENDS,
    Lexeme,
    build,
    copied,
    ends,
    escape_text,
    relabelled,
    root_of,
)
from seq2seq.text.forms import QT_TS, TMX, XLIFF

_TOKEN = re.compile(
    r"(?P<literal><!\[CDATA\[.*?\]\]>)|(?P<other><!--.*?-->|<\?.*?\?>|<![^>\"']*(?:\"[^\"]*\"[^>\"']*|"
    r"'[^']*'[^>\"']*)*>)|(?P<close></[^>]*>)|(?P<open><[^>\"']*(?:\"[^\"]*\"[^>\"']*|'[^']*'[^>\"']*)*>)"
    r"|(?P<text>(?:[^<&]|&#|&(?:amp|lt|gt|quot|apos);)+)|(?P<entity>&[^;<&]*;)",
    re.DOTALL,
)
_NAME = re.compile(r"</?\s*([^\s/>]+)")
_LINE_END = re.compile(LINE_END)
_WIDE = re.compile("[ \t]{2,}|\t")
_KEPT = re.compile(f"{LINE_ENDS.pattern}|{_WIDE.pattern}")
# An atomic group reads each comment once; without it, one comment could be read as several.
_HAS_PROLOG = re.compile(r"\ufeff?(?>(?:\s*+(?:<!--.*?-->|<\?(?!xml\s).*?\?>))*)\s*+<(?:\?xml\s|!DOCTYPE)", re.DOTALL)
# Elements of XLIFF, TMX and Qt's TS, whose sources must not be replaced by translations.
_BILINGUAL = {"xliff": XLIFF, "trans-unit": XLIFF, "tmx": TMX, "tuv": TMX, "TS": QT_TS}
_CDATA_BEGIN, _CDATA_END = "<![CDATA[", "]]>"
KEEPS_LINES = "preserve"  # the name of the lexeme of a section in which line ends are content
_OTHER = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML does not have
# HTML within a text: an end tag, or an element that has none. _ESCAPES are ways to write characters other than & and <.
_IS_HTML = re.compile(r"</[A-Za-z][\w-]*\s*>|<(?:br|hr|img)\b[^<>]*>", re.IGNORECASE)
_ESCAPES = ("&#34;", "&#39;", "&#039;", "&#x27;", "&quot;", "&apos;", "&gt;")
_ESCAPED = re.compile("[&<>\"']")
_HAS_TAGS = re.compile(r"</?[A-Za-z]|&#?\w+;")


def segments(text: str, languages: LanguagePair = UNKNOWN_LANGUAGES, is_term: IsTerm = no_term) -> Document:
    """Return the segments of a document, or of a part of a document: text and any number of elements.

    Raises:
        DataError: it is not well-formed (with line and column), not in UTF-8, or declares entities.
    """
    _check(text)
    found = lexemes(text)
    closing = ends(found)
    inside, root = _inside_text(found), root_of(found)
    builder = Builder(_as_text, is_term=is_term)
    waiting: list[Lexeme] = []  # content of an element with text
    index = 0
    while index < len(found):
        if inside[index]:
            waiting.append(found[index])
            index += 1
            continue
        _insert_content(builder, waiting, languages)
        waiting = []
        lexeme = found[index]
        is_copied = copied(lexeme, False, UNKNOWN_LANGUAGES if index == root else languages)
        end = closing.get(index, index) if is_copied else index
        if lexeme.kind == "literal":
            _insert_cdata(builder, lexeme, languages)
        elif is_copied:
            builder.cut(tuple(lexeme.raw for lexeme in found[index : end + 1]))
        else:
            builder.cut((relabelled(lexeme, languages),))
        index = end + 1
    _insert_content(builder, waiting, languages)
    return builder.finish()


def beginning(text: str, length: int) -> str:
    """Return the first lexemes of a document, of at least `length` characters, with end tags for the elements that they
    leave open; or all of it. Errors are those of `segments`."""
    _check(text)
    end, opened = 0, list[str]()
    for lexeme in _lexemes(text):
        if end >= length and opened:  # before the root there is no document
            break
        end += len(lexeme.raw)
        if lexeme.kind == "open":
            opened.append(lexeme.name)
        elif lexeme.kind == "close" and opened:
            opened.pop()
    return text[:end] + "".join(f"</{name}>" for name in reversed(opened))


def lexemes(text: str) -> list[Lexeme]:
    """Return the lexemes of a well-formed text, in order."""
    return list(_lexemes(text))


def _lexemes(text: str) -> Iterator[Lexeme]:
    keeps_lines = [False]  # in each open element
    for match in _TOKEN.finditer(text):
        raw, kind, name = match.group(), match.lastgroup, ""
        if kind == "text":
            yield from _of_text(raw, keeps_lines[-1])
            continue
        if kind == "entity":  # entities of HTML need no declaration
            kind = "text" if unescape(raw) != raw else "other"
        elif kind in ("open", "close"):
            name = _NAME.match(raw)[1]  # type: ignore[index]
            kind = "empty" if kind == "open" and raw.endswith("/>") else kind
        if kind == "open":
            said = attributes(raw).get("xml:space") if "xml:space" in raw else None
            keeps_lines.append(keeps_lines[-1] if said is None else said == "preserve")
        elif kind == "close" and len(keeps_lines) > 1:
            keeps_lines.pop()
        elif kind == "literal" and keeps_lines[-1]:
            name = KEEPS_LINES
        yield Lexeme(kind, raw, name)


def _of_text(raw: str, keeps_lines: bool) -> Iterator[Lexeme]:
    """Yield the lexemes of a text.

    Line ends that are content become empty elements `br`: character references, and all others where
    `xml:space="preserve"`. There, other white space than single spaces becomes empty elements too.
    """
    position = 0
    for match in (_KEPT if keeps_lines else _LINE_END).finditer(raw):
        if position < match.start():
            yield Lexeme("text", raw[position : match.start()])
        yield Lexeme("empty", match.group(), " " if _WIDE.fullmatch(match.group()) else "br")
        position = match.end()
    if position < len(raw):
        yield Lexeme("text", raw[position:])


def _inside_text(lexemes: Sequence[Lexeme]) -> list[bool]:
    """Whether each lexeme is in an element that has text of its own, at any depth."""
    owners, parent, parents = [], -1, [-1]
    for index, lexeme in enumerate(lexemes):
        if lexeme.kind == "close" and len(parents) > 1:
            parents.pop()
            parent = parents[-1]
        owners.append(parent)
        if lexeme.kind == "open":
            parents.append(index)
            parent = index
    with_text = {
        owner
        for owner, lexeme in zip(owners, lexemes, strict=True)
        if lexeme.kind == "text" and lexeme.raw.strip(SPACE + "\ufeff")
    }
    inside: list[bool] = []
    for owner in owners:
        inside.append(owner in with_text or (owner >= 0 and inside[owner]))
    return inside


def _insert_content(builder: Builder, content: Sequence[Lexeme], languages: LanguagePair) -> None:
    """Add the content of an element; text alone may be HTML with escaped tags, as in feeds and strings of programs."""
    raw = "".join(lexeme.raw for lexeme in content)
    inner = unescape(raw) if "&" in raw and all(lexeme.kind == "text" for lexeme in content) else ""
    escapes = {"&": "&amp;", "<": "&lt;"} | {unescape(said): said for said in _ESCAPES if said in raw}
    outer = partial(_ESCAPED.sub, lambda match: escapes.get(match.group(), match.group()))
    if _IS_HTML.search(inner) and outer(inner) == raw:
        builder.insert(_as_text, lambda within: html.read(within, inner, languages), outer)
    else:
        build(builder, content, is_html=False, languages=languages)


def _insert_cdata(builder: Builder, section: Lexeme, languages: LanguagePair) -> None:
    """Add a CDATA section that is all the text of its element; it may contain HTML, as in feeds."""
    inner = section.raw[len(_CDATA_BEGIN) : -len(_CDATA_END)]
    builder.cut((_CDATA_BEGIN,))
    if _HAS_TAGS.search(inner):
        html.read(builder, inner, languages)
        builder.cut((_CDATA_END,))
        return
    for part in re.split(rf"(\r\n?|\n|{_WIDE.pattern})", inner) if section.name == KEEPS_LINES else [inner]:
        if part.strip(SPACE):
            builder.add(text_item(part))
        elif _WIDE.fullmatch(part):
            builder.add(Item("point", (part,), separates=True))
        elif part:
            builder.cut((part,), _as_cdata)
    builder.cut((_CDATA_END,), _as_cdata)


def _as_text(text: str) -> str:
    """Escape text between tags."""
    return escape_text(_OTHER.sub("\ufffd", text))


def _as_cdata(text: str) -> str:
    """Escape text of a CDATA section: an end of a section in it is divided between two sections."""
    return _OTHER.sub("\ufffd", text).replace(_CDATA_END, f"]]{_CDATA_END}{_CDATA_BEGIN}>")


def _check(text: str) -> None:
    """Check that a text is XML that can be translated.

    Raises:
        DataError: it is not well-formed, in another encoding than UTF-8, with declarations of its own, or bilingual.
    """
    root = "" if _HAS_PROLOG.match(text) else _unused(text)
    begin, end = (f"<{root}>", f"</{root}>") if root else ("", "")
    parser = expat.ParserCreate("utf-8")

    def declaration(version: str, encoding: str | None, standalone: int) -> None:
        if encoding and encoding.lower() not in ("utf-8", "utf8"):
            raise DataError(f"XML in {encoding}; convert it to UTF-8, and its declaration too")

    def doctype(name: str, system: str | None, public: str | None, has_internal_subset: int) -> None:
        if has_internal_subset:
            raise DataError("XML that declares entities or elements of its own; remove what is in [] of <!DOCTYPE>")

    opened: list[str] = []  # first that of `begin`

    def element(name: str, attributes: dict[str, str]) -> None:
        opened.append(name)
        if form := _BILINGUAL.get(name.rpartition(":")[2]):
            raise DataError(f"<{name}> holds texts and their translations; {form.way}")

    parser.XmlDeclHandler, parser.StartDoctypeDeclHandler = declaration, doctype
    parser.StartElementHandler, parser.EndElementHandler = element, lambda name: opened.pop()
    body = text.removeprefix("\ufeff")
    try:
        parser.Parse((begin + body + end).encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        lines, number = re.split(r"\r\n?|\n", body), error.lineno
        column = max(error.offset + 1 - (len(begin) if number == 1 else 0), 1)
        words = expat.ErrorString(error.code)
        if number == len(lines) and column > len(lines[-1]):  # at `end`
            column = len(lines[-1]) + 1
            words = f"<{opened[-1]}> is not closed" if len(opened) > bool(root) else words
        place = f"line {number}, column {column}" if len(lines) > 1 else f"column {column}"
        raise DataError(f"not well-formed XML: {words}, {place}") from error


def _unused(text: str) -> str:
    """Return a name that no element of the text has."""
    return max(re.findall("part_*+", text), key=len, default="part") + "_"
