"""Segments of Markdown: `markdown_parser` finds text and markup, and the source itself is edited.

CommonMark with tables, strikethrough, and the constructs of `markdown_extensions`. Code, addresses, maths, HTML blocks
in quotes and lists, and the front matter are copied. A paragraph keeps its line breaks, next to the words that they are
next to in the source. `translation` calls `segments`.
"""

import re
from collections import Counter
from collections.abc import Container
from functools import partial
from html import unescape
from itertools import pairwise
from typing import Any, Literal

from markdown_it.common.utils import normalizeReference
from markdown_it.token import Token

from seq2seq.errors import DataError
from seq2seq.markup.attributes import UNKNOWN_LANGUAGES, LanguagePair
from seq2seq.markup.document import Document, Escape, Template
from seq2seq.markup.html import lexemes
from seq2seq.markup.html import read as read_html
from seq2seq.markup.items import Item, text_item
from seq2seq.markup.markdown_extensions import FRONT_MATTER, begins_maths
from seq2seq.markup.markdown_parser import LONGEST_NESTING, Mark, inline_marks, parser
from seq2seq.markup.protected import IsTerm, no_term
from seq2seq.markup.segments import Builder
from seq2seq.markup.tags import SEPARATING, build, divides, escape_text, may_repeat

_LINE_END = re.compile(r"\r\n?|\n")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_ESCAPES = re.compile(r"\\[!-/:-@\[-`{-~]|&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_SPECIAL = re.compile(
    r"(?P<kept>(?<=[^\]!\\^\[])\[(?![ xX]\])[^\[\]\\`*_<&!~$|{}^@\n]++\](?=[^(\[:{]))"
    r"|\\(?=[!-/:-@\[-`{-~]|\Z)|(?<!\s)[*]|[*](?!\s)|(?<![^\W_])_|_(?![^\W_])|[`\[\]]|<(?=[A-Za-z/!?])|~(?=~)"
    r"|&(?=#?\w+;)|!(?=\[)|\$"
)
_BLOCK_BEGINS = re.compile(r"(#{1,6}(?=\s|$)|[-+*](?=\s|$)|>|=+\s*$|-{2,}\s*$|~{3,}|\d{1,9}(?=[.)](?:\s|$)))")
_HEADING_ENDS = re.compile(r"(?<!\S)#+(?=\s*\Z)")
# The title at the end of a link, an image, a definition or an admonition, in one line and without escapes.
_TITLE = re.compile(r"(?<=\s)(?:\"([^\"\\&\n]++)\"|'([^'\\&\n]++)'|\(([^()\\&\n]++)\))[ \t]*\r?\n?\Z")
_CONTAINER_TITLE = re.compile(
    r":{3,}[ \t]*[\w-]+(?:[ \t]+|\[)([^\s\\`*_\[\]<>&{}|:=][^\\`*_\[\]<>&{}|:=\r\n]*)\]?[ \t]*\r?\n?\Z"
)
# A line whose first letter is that of a tag; only such a line begins a block of HTML.
_TAG_FIRST = re.compile(r"^[^A-Za-z<\n]*<", re.MULTILINE)
_TITLED = frozenset({"container", "definition"})
_SIGNS = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "s"}
_KINDS = frozenset(_SIGNS.values())


def beginning(text: str, length: int) -> str:
    """Return the front matter and the paragraphs after it, of at least `length` characters, or all of a document."""
    front = FRONT_MATTER.match(text)
    end = _BLANK_LINE.search(text, length + (front.end() if front else 0))
    return text[: end.end()] if end else text


def segments(text: str, languages: LanguagePair = UNKNOWN_LANGUAGES, is_term: IsTerm = no_term) -> Document:
    """Return the segments of a document.

    Raises:
        DataError: quotes and lists are nested more deeply than LONGEST_NESTING.
    """
    environment: dict[str, Any] = {}
    builder = Builder(escape, opening=block_start, holds=partial(_holds, environment), is_term=is_term)
    front = FRONT_MATTER.match(text)
    position = front.end() if front else int(text.startswith("\ufeff"))
    body = text[position:]
    builder.cut((text[:position],))
    shown = body.replace("\0", "\ufffd")  # as the parser does
    lines = [0, *(match.end() for match in _LINE_END.finditer(body)), len(body)]
    done, in_table, in_heading = 0, False, False
    for token in parser().parse(body, environment):
        if token.nesting > 0 and token.level >= LONGEST_NESTING - 1:  # the parser omits deeper content
            line = text.count("\n", 0, position) + token.map[0] + 1 if token.map else 0
            raise DataError(f"Markdown, line {line:,}: {LONGEST_NESTING} levels of quotes and lists; nest them less")
        is_inline = token.type == "inline"
        in_table = token.type in ("th_open", "td_open") or (in_table and is_inline)
        in_heading = (token.type == "heading_open" and "#" in token.markup) or (in_heading and is_inline)
        if token.map and (token.type in _TITLED or (token.type == "html_block" and token.level == 0)):
            begin, end = lines[token.map[0]], lines[min(token.map[1], len(lines) - 1)]
            if begin >= done:
                builder.cut((body[done:begin],))
                _read_lines(builder, token, body[begin:end], languages)
                done = end
        elif is_inline and (places := _places(token, shown, lines, done, in_table)):
            builder.cut((body[done : places[0]],))
            labels = environment.get("references", ())
            own = partial(escape, in_table=in_table, in_heading=in_heading, labels=labels)
            written = zip(token.content, places, strict=False)
            content = "".join("\0" if body[place] == "\0" else char for char, place in written)
            _Block(builder, content, body, places, environment, own, languages).read()
            done = places[-1]
    builder.cut((body[done:],))
    return builder.finish()


def _read_lines(builder: Builder, token: Token, raw: str, languages: LanguagePair) -> None:
    """Give lines that are a token without text to the builder."""
    match token.type:
        case "html_block":
            builder.insert(escape_text, lambda inner: read_html(inner, raw, languages))
        case "definition":
            builder.cut(_with_title(builder, raw, escape, token.meta["title"]))
        case _:
            found = _CONTAINER_TITLE.search(raw)
            builder.cut(_within(builder, raw, *found.span(1), escape) if found else (raw,))


def _with_title(builder: Builder, raw: str, escape: Escape, title: str | None = None) -> Template:
    """Return markup with the title at its end as a segment, if it has no escapes; `title` is its expected content."""
    found = _TITLE.search(raw)
    group = found.lastindex if found else None
    if found is None or group is None or (title is not None and found[group] != title):
        return (raw,)
    marks = ('"', "'", "()")[group - 1]
    return _within(builder, raw, *found.span(group), lambda text: re.sub(f"[{marks}]", r"\\\g<0>", escape(text)))


def _within(builder: Builder, raw: str, begin: int, end: int, escape: Escape) -> Template:
    """Return markup with a part of it as a segment."""
    return (raw[:begin], *builder.within(text_item(raw[begin:end]), escape), raw[end:])


def escape(text: str, in_table: bool = False, in_heading: bool = False, labels: Container[str] = ()) -> str:
    """Return plain text with escapes, so that it contains no markup.

    `in_heading` means a heading that begins with `#`; a `#` at its end is escaped. Brackets around words are kept
    if they are no link: next to other words, and not a label that the document defines.
    """

    def escaped_sign(match: re.Match[str]) -> str:
        sign, kept = match.group(), match["kept"]
        if kept and normalizeReference(kept[1:-1]) in labels:
            return f"\\{kept[:-1]}\\]"
        is_text = kept or (sign == "$" and not begins_maths(text, match.start()))
        return sign if is_text else f"\\{sign}"

    escaped = _SPECIAL.sub(escaped_sign, text)
    if in_heading:
        escaped = _HEADING_ENDS.sub(r"\\\g<0>", escaped)
    return escaped.replace("|", "\\|") if in_table else escaped


def block_start(text: str) -> str:
    """Return the first text of a block, without white space before it, with an escape if it would start a list, a
    heading or a quotation."""
    text = text.lstrip(" ")
    match = _BLOCK_BEGINS.match(text)
    if match is None:
        return text
    cut = match.end() if match.group().isdigit() else 0
    return f"{text[:cut]}\\{text[cut:]}"


def _places(token: Token, body: str, lines: list[int], done: int, in_table: bool) -> list[int]:
    """Return the place in the source of each code point of a block's content, and of its end; empty if it is not
    found."""
    places: list[int] = []
    if not token.map or not token.content:
        return []
    for number, content in enumerate(token.content.split("\n"), start=token.map[0]):
        if number + 1 >= len(lines):
            return []
        begin, end = max(lines[number], done), lines[number + 1]
        if in_table:
            return _places_in_cell(body, content, begin, end)
        found = body.rfind(content, begin, end) if content else begin
        if found < 0:
            return []
        if places:
            line_end = lines[number] - (2 if body.startswith("\r\n", lines[number] - 2) else 1)
            places.append(max(places[-1] + 1, line_end))
        places += range(found, found + len(content))
    places.append(places[-1] + 1 if places else done)
    return places if all(place < following for place, following in pairwise(places)) else []


def _places_in_cell(body: str, content: str, begin: int, end: int) -> list[int]:
    """Return the places for the content of a table cell, where a bar is escaped with a backslash."""
    written = content.replace("|", "\\|")
    found = body.find(written, begin, end)
    if found < 0:
        return []
    places, position = [], found
    for char in content:
        places.append(position)
        position += 1 + (char == "|")
    return [*places, position]


class _Block:
    """The text of a paragraph, a heading or a cell."""

    def __init__(
        self,
        builder: Builder,
        content: str,
        body: str,
        places: list[int],
        environment: dict[str, Any],
        escape: Escape,
        languages: LanguagePair,
    ):
        self._builder, self._content, self._escape = builder, content, escape
        self._body, self._places = body, places
        self._environment, self._languages = environment, languages
        self._marks = inline_marks(content, environment, languages)
        self._is_title = False  # whether the line is a title, or has no text

    def read(self) -> None:
        """Give the items of the block to the builder."""
        position = 0
        for mark in self._marks:
            self._text(position, mark.begin)
            self._put(mark)
            position = mark.end
        self._text(position, len(self._content))
        self._builder.cut(escape=self._escape)

    def _raw(self, begin: int, end: int) -> str:
        """Return a part of the content as it is written in the source."""
        return self._body[self._places[begin] : self._places[end]]

    def _text(self, begin: int, end: int) -> None:
        """Give a stretch of text to the builder, with the place of each of its code points in the source."""
        if begin < end:
            text = text_item(self._content[begin:end], _ESCAPES, _unescaped)
            offsets = text.offsets or range(len(text.text) + 1)
            first = self._places[begin]
            moved = [self._places[begin + offset] - first for offset in offsets]
            self._builder.add(Item("text", (self._raw(begin, end),), text.text, moved))

    def _put(self, mark: Mark) -> None:
        """Give markup to the builder."""
        token, builder = mark.token, self._builder
        raw: Template = (self._raw(mark.begin, mark.end),)
        match token.type:
            case "softbreak" if self._is_title:
                builder.cut(raw, self._escape)
                self._is_title = False
            case "softbreak":
                builder.add(Item("point", raw, separates=True))
            case "hardbreak":
                builder.cut(raw, self._escape)
            case "cut":
                builder.cut(escape=self._escape)
                builder.cut(_with_title(builder, str(raw[0]), self._escape))
                self._is_title = self._content.startswith("[!", mark.begin) or self._content.startswith("\n", mark.end)
            case "code_inline" | "autolink" | "reference" | "piece":
                builder.add(Item("piece", raw, name=token.type))
            case "image":
                builder.add(Item("point", self._image(mark), separates=True))
            case "point":
                builder.add(Item("point", raw, divides=True))
            case "note":
                builder.add(Item("point", self._note(mark)))
            case "html_inline":
                self._put_tag(mark)
            case "link_close":
                builder.add(Item("close", self._address(mark, mark.begin), name="link"))
            case _ if token.nesting:
                kind = "open" if token.nesting > 0 else "close"
                name = token.type.removesuffix("_open").removesuffix("_close")
                is_sign = name in _KINDS
                builder.add(Item(kind, self._sign(mark), name=name, repeats=is_sign, vanishes=is_sign))
            case _:
                builder.add(Item("point", raw))

    def _sign(self, mark: Mark) -> Template:
        """Return a sign of emphasis, and the attribute list after it as another part."""
        return tuple(filter(None, (self._raw(mark.begin, mark.own_end), self._raw(mark.own_end, mark.end))))

    def _put_tag(self, mark: Mark) -> None:
        """Give a tag of HTML to the builder."""
        raw = self._raw(mark.begin, mark.end)
        tag, *others = lexemes(self._content[mark.begin : mark.own_end])
        if others or tag.kind not in ("open", "close", "empty"):
            self._builder.add(Item("point", (raw,)))
            return
        is_written = tag.kind != "close" and raw == tag.raw
        texts = partial(build, lexemes=[tag], is_html=True, languages=self._languages)
        changed = (self._languages.relabelled(raw),)
        template = self._builder.part(Builder(escape_text), texts) if is_written else changed
        is_boundary = divides(tag, is_html=True)
        if tag.kind == "empty":
            self._builder.add(Item("point", template, separates=tag.name in SEPARATING, divides=is_boundary))
            return
        kind: Literal["open", "close"] = "open" if tag.kind == "open" else "close"
        self._builder.add(Item(kind, template, name=f"<{tag.name}>", repeats=may_repeat(tag), divides=is_boundary))

    def _image(self, mark: Mark) -> Template:
        """Return an image with its title as a segment, and its alternative text, unless that is the name of the image,
        or has markup."""
        end = mark.token.meta["label_end"]
        begin, label = mark.begin + 2, self._content[mark.begin + 2 : end]
        is_inline = self._content[end + 1 : end + 2] == "(" or (
            self._content[end + 1 : end + 2] == "[" and self._content[end + 2 : end + 3] != "]"
        )
        if not label or not is_inline or re.search(r"[\\`*_\[\]<&\n|]", label):
            return (self._raw(mark.begin, end), *self._address(mark, end))
        inner = self._builder.within(text_item(label), self._escape)
        return (self._raw(mark.begin, begin), *inner, *self._address(mark, end))

    def _note(self, mark: Mark) -> Template:
        """Return a note within a sentence, whose text is read as another block."""
        begin, end = mark.begin + 2, mark.own_end - 1
        content, places = self._content[begin:end], self._places[begin : end + 1]
        block = partial(_Block, content=content, body=self._body, places=places)
        inner = Builder(self._escape, holds=partial(_holds, self._environment))
        text = self._builder.part(
            inner,
            lambda inner: block(
                inner, environment=self._environment, escape=self._escape, languages=self._languages
            ).read(),
        )
        return (self._raw(mark.begin, begin), *text, self._raw(end, mark.end))

    def _address(self, mark: Mark, begin: int) -> Template:
        """Return the end of a link or an image, with its title as a segment."""
        raw, title = self._raw(begin, mark.own_end - 1), mark.token.attrs.get("title")
        template = _with_title(self._builder, raw, self._escape, str(title)) if title else (raw,)
        return (*template, self._raw(mark.own_end - 1, mark.end))


def _unescaped(raw: str) -> str:
    return raw[1:] if raw.startswith("\\") else unescape(raw)


def _holds(environment: dict[str, Any], source: Template, output: Template) -> bool:
    """Whether an output has the markup of its source, and all signs of emphasis in it are read as emphasis, which may
    be repeated or missing. An element such as <div> at the beginning of a line would end the paragraph."""
    raw, written = ("".join(map(str, template)) for template in (source, output))
    if _has_html_block(written) and not _has_html_block(raw):
        return False
    before, now = (_kinds(text, environment) for text in (raw, written))
    # Text has escapes, so it equals no sign. Elements in another language are one part, but their signs are read here.
    given, signs = (Counter(_SIGNS[part] for part in template if part in _SIGNS) for template in (source, output))
    copied = Counter({kind: before[kind] for kind in _KINDS}) - given
    read = Counter({kind: now[kind] for kind in _KINDS})
    return read == signs + copied and all(now[kind] == before[kind] for kind in (now | before).keys() - _KINDS)


def _has_html_block(text: str) -> bool:
    return _TAG_FIRST.search(text) is not None and any(token.type == "html_block" for token in parser().parse(text))


def _kinds(text: str, environment: dict[str, Any]) -> Counter[str]:
    """Return the number of signs of each kind of emphasis, and of other marks by kind and content, except line
    breaks."""
    kinds = ((mark.token.type.partition("_")[0], mark) for mark in inline_marks(text, environment))
    return Counter(
        kind if kind in _KINDS else f"{mark.token.type} {text[mark.begin : mark.end]}"
        for kind, mark in kinds
        if kind not in ("softbreak", "cut") and not text.startswith("\\[", mark.begin)  # may be escaped brackets
    )
