"""Segments of Markdown: markdown-it-py finds text and markup, and the source itself is edited.

CommonMark with tables and strikethrough. Code, addresses, HTML blocks in quotes and lists, and the front matter are
copied. A paragraph keeps its line breaks, next to the words that they are next to in the source. `translation` calls
`segments`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from html import unescape
from itertools import pairwise
from typing import Any, NamedTuple

from markdown_it import MarkdownIt, rules_inline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from seq2seq.errors import DataError
from seq2seq.markup.document import Document, Escape, Template
from seq2seq.markup.html import read as read_html
from seq2seq.markup.protected import EMOJI, Found, find
from seq2seq.markup.segments import Builder, Item, text_item
from seq2seq.markup.tags import EMPTY, FORMATTING, SEPARATING, closes_itself, escape_text

# Its first line is a key, so that text between two thematic breaks is none.
_FRONT_MATTER = re.compile(
    r"\ufeff?---[ \t]*\r?\n(?:[ \t\r]*(?:#.*)?\n)*?(?:\{|[\"']?[\w.-]+[\"']?[ \t]*:\s|(?=---|\.\.\.))"
    r"(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)"
)
_LINE_END = re.compile(r"\r\n?|\n")
_ESCAPES = re.compile(r"\\[!-/:-@\[-`{-~]|&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
# Marks of footnotes and boxes of tasks are standalone markup.
_MARKS = re.compile(r"\[\^[^\[\]\s]++\]:?|^\[[ xX]\](?=\s)")
_TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*)")
_SPECIAL = re.compile(
    r"\\(?=[!-/:-@\[-`{-~]|\Z)|(?<!\s)[*]|[*](?!\s)|(?<![^\W_])_|_(?![^\W_])|[`\[\]]|<(?=[A-Za-z/!?])|~(?=~)"
    r"|&(?=#?\w+;)|!(?=\[)"
)
# Brackets, and what may hide some from the parser.
_BRACKET = re.compile(r"[\[\]]|\\.|`[^`]*+`", re.DOTALL)
_BLOCK_BEGINS = re.compile(r"(#{1,6}(?=\s|$)|[-+*](?=\s|$)|>|=+\s*$|-{2,}\s*$|~{3,}|\d{1,9}(?=[.)](?:\s|$)))")
_HEADING_ENDS = re.compile(r"(?<!\S)#+(?=\s*\Z)")
LONGEST_NESTING = 100
# Brackets within each other, beyond which no links are looked for: each level costs as much as the text in it.
MOST_BRACKETS = 32
_SIGNS = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "s"}
_KINDS = frozenset(_SIGNS.values())


class _Mark(NamedTuple):
    """Markup in the text of a block, with its place."""

    begin: int
    end: int
    token: Token
    """Token of the parser, which may still change its type."""


def segments(text: str) -> Document:
    """Return the segments of a document.

    Raises:
        DataError: quotes and lists are nested more deeply than LONGEST_NESTING.
    """
    environment: dict[str, Any] = {}
    builder = Builder(escape, _find, block_start, partial(_holds, environment))
    front = _FRONT_MATTER.match(text)
    position = front.end() if front else int(text.startswith("\ufeff"))
    body = text[position:]
    builder.cut((text[:position],))
    shown = body.replace("\0", "\ufffd")  # as the parser does
    lines = [0, *(match.end() for match in _LINE_END.finditer(body)), len(body)]
    done, in_table, in_heading = 0, False, False
    for token in _parser().parse(body, environment):
        if token.nesting > 0 and token.level >= LONGEST_NESTING - 1:  # the parser omits deeper content
            line = text.count("\n", 0, position) + token.map[0] + 1 if token.map else 0
            raise DataError(f"Markdown, line {line:,}: {LONGEST_NESTING} levels of quotes and lists; nest them less")
        is_inline = token.type == "inline"
        in_table = token.type in ("th_open", "td_open") or (in_table and is_inline)
        in_heading = (token.type == "heading_open" and "#" in token.markup) or (in_heading and is_inline)
        if token.type == "html_block" and token.level == 0 and token.map:
            begin, end = lines[token.map[0]], lines[min(token.map[1], len(lines) - 1)]
            if begin >= done:
                builder.cut((body[done:begin],))
                builder.insert(escape_text, partial(_read_html, body[begin:end]))
                done = end
        elif is_inline and (places := _places(token, shown, lines, done, in_table)):
            builder.cut((body[done : places[0]],))
            own = partial(escape, in_table=in_table, in_heading=in_heading)
            written = zip(token.content, places, strict=False)
            content = "".join("\0" if body[place] == "\0" else char for char, place in written)
            _Block(builder, content, body, places, environment, own).read()
            done = places[-1]
    builder.cut((body[done:],))
    return builder.finish()


def _read_html(text: str, builder: Builder) -> None:
    read_html(builder, text)


def escape(text: str, in_table: bool = False, in_heading: bool = False) -> str:
    """Return plain text with escapes, so that it contains no markup.

    `in_heading` means a heading that begins with `#`; a `#` at its end is escaped.
    """
    escaped = _SPECIAL.sub(lambda match: "\\" + match.group(), text)
    if in_heading:
        escaped = _HEADING_ENDS.sub(r"\\\g<0>", escaped)
    return escaped.replace("|", "\\|") if in_table else escaped


def block_start(text: str) -> str:
    """Return the first text of a block with an escape if it would start a list, a heading or a quotation."""
    match = _BLOCK_BEGINS.match(text)
    if match is None:
        return text
    cut = match.end() if match.group().isdigit() else 0
    return f"{text[:cut]}\\{text[cut:]}"


def _find(text: str) -> list[Found]:
    """Return protected pieces, and marks of footnotes and of boxes of tasks as standalone tags; none overlap."""
    marks = [Found(*match.span(), EMOJI) for match in _MARKS.finditer(text)]
    found: list[Found] = []
    for piece in sorted([*marks, *find(text)], key=lambda piece: (piece.begin, piece.kind != EMOJI)):
        if not found or piece.begin >= found[-1].end:
            found.append(piece)
    return found


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
    ):
        self._builder, self._content, self._escape = builder, content, escape
        self._body, self._places = body, places
        self._marks = inline_marks(content, environment)

    def read(self) -> None:
        """Give the items of the block to the builder."""
        position = 0
        for mark in self._marks:
            if mark.begin < position:
                continue  # within an image
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

    def _put(self, mark: _Mark) -> None:
        """Give markup to the builder."""
        token, builder = mark.token, self._builder
        raw: Template = (self._raw(mark.begin, mark.end),)
        match token.type:
            case "softbreak":
                builder.add(Item("point", raw, separates=True))
            case "hardbreak":
                builder.cut(raw, self._escape)
            case "code_inline" | "autolink" | "reference":
                builder.add(Item("piece", raw, name=token.type))
            case "image":
                builder.add(Item("point", self._image(mark, str(raw[0])), separates=True))
            case "html_inline":
                self._put_tag(str(raw[0]))
            case _ if token.nesting:
                kind = "open" if token.nesting > 0 else "close"
                name = token.type.removesuffix("_open").removesuffix("_close")
                builder.add(Item(kind, raw, name=name, repeats=name != "link", vanishes=name != "link"))
            case _:
                builder.add(Item("point", raw))

    def _put_tag(self, raw: str) -> None:
        """Give a tag of HTML to the builder."""
        found = _TAG.match(raw)
        name = found[2].lower() if found else ""
        if not found or name in EMPTY or closes_itself(raw):
            self._builder.add(Item("point", (raw,), separates=name in SEPARATING))
            return
        kind = "close" if found[1] else "open"
        self._builder.add(Item(kind, (raw,), name=f"<{name}>", repeats=name in FORMATTING))  # type: ignore[arg-type]

    def _image(self, mark: _Mark, raw: str) -> Template:
        """Return an image with its alternative text as a segment, unless that text is the name of the image, or has
        markup."""
        end = mark.token.meta["label_end"]
        begin, label = mark.begin + 2, self._content[mark.begin + 2 : end]
        is_inline = self._content[end + 1 : end + 2] == "(" or (
            self._content[end + 1 : end + 2] == "[" and self._content[end + 2 : end + 3] != "]"
        )
        if not label or not is_inline or re.search(r"[\\`*_\[\]<&\n|]", label):
            return (raw,)
        inner = self._builder.within(text_item(label), self._escape)
        return (self._raw(mark.begin, begin), *inner, self._raw(end, mark.end))


def _unescaped(raw: str) -> str:
    return raw[1:] if raw.startswith("\\") else unescape(raw)


def inline_marks(content: str, environment: dict[str, Any]) -> list[_Mark]:
    """Return the markup in the text of a block, in order; an image includes the markup in its text."""
    state_environment = {**environment, "marks": []}
    _parser().parseInline(content, state_environment)
    found = []
    for begin, end, token in state_environment["marks"]:
        if token.type.startswith("strong_"):  # made of two marks, one of which has become empty
            begin, end = (begin - 1, end) if token.nesting > 0 else (begin, end + 1)
        if token.type not in ("text", "text_special"):
            found.append(_Mark(begin, end, token))
    return sorted(found, key=lambda mark: (mark.begin, -mark.end))


def _holds(environment: dict[str, Any], raw: str, output: Template) -> bool:
    """Whether an output has the markup of its source, and all signs of emphasis in it are read as emphasis, which may
    be repeated or missing."""
    before, now = (_kinds(text, environment) for text in (raw, "".join(map(str, output))))
    signs = Counter(_SIGNS[part] for part in output if part in _SIGNS)  # text has escapes, so it equals no sign
    read = Counter({kind: now[kind] for kind in signs | now if kind in _KINDS})
    return read == signs and all(now[kind] == before[kind] for kind in (now | before).keys() - _KINDS)


def _kinds(text: str, environment: dict[str, Any]) -> Counter[str]:
    """Return the number of signs of each kind of emphasis, and of other marks by kind and content, except line
    breaks."""
    kinds = ((mark.token.type.partition("_")[0], mark) for mark in inline_marks(text, environment))
    return Counter(
        kind if kind in _KINDS else f"{mark.token.type} {text[mark.begin : mark.end]}"
        for kind, mark in kinds
        if kind != "softbreak"
    )


@cache
def _parser() -> MarkdownIt:
    """Return the one parser, whose rules record in `environment["marks"]` the places of their tokens in the text."""
    parser = MarkdownIt("commonmark", {"maxNesting": LONGEST_NESTING}).enable(["table", "strikethrough"])
    parser.disable("fragments_join")
    parser.core.ruler.disable("text_join")
    for name, rule in (
        ("newline", rules_inline.newline),
        ("escape", rules_inline.escape),
        ("backticks", rules_inline.backtick),
        ("strikethrough", rules_inline.strikethrough.tokenize),
        ("emphasis", rules_inline.emphasis.tokenize),
        ("link", rules_inline.link),
        ("image", rules_inline.image),
        ("autolink", rules_inline.autolink),
        ("html_inline", rules_inline.html_inline),
    ):
        parser.inline.ruler.at(name, partial(_noting, rule, name))
    return parser


def _noting(rule: Callable[[StateInline, bool], bool], name: str, state: StateInline, silent: bool) -> bool:
    """Run an inline rule of the parser, and record the marks that it makes.

    A rule moves `state.pos` over the source of its tokens and appends them to `state.tokens`; `_noted` derives their
    places from these two. The places of links and images also need the end of their label, which the parser's own
    function finds before the rule runs.
    """
    marks = state.env.get("marks")
    if name in ("link", "image") and state.pos + (name == "image") in _no_links(state.src):
        return False
    if silent or marks is None:
        return rule(state, silent)
    begin, first, known = state.pos, len(state.tokens), len(marks)
    bracket = state.src.startswith("![", begin) if name == "image" else state.src.startswith("[", begin)
    label_end = -1
    if name in ("link", "image") and bracket:
        label_end = state.md.helpers.parseLinkLabel(state, begin + (name == "image"), name == "link")
    if not rule(state, silent):
        return False
    marks += _noted(name, state, begin, first, label_end) if len(state.tokens) > first else []
    if name == "image":
        del marks[known:-1]  # marks within an image belong to another text
    elif name == "link" and state.src[label_end : state.pos] in ("]", "][]"):
        marks[known:] = [(begin, state.pos, marks[known][2])]  # its text is the name of the reference
        marks[known][2].type = "reference"
    return True


@lru_cache(maxsize=8)
def _no_links(text: str) -> frozenset[int]:
    """Return the places of brackets where no link begins, in a text with more than MOST_BRACKETS open at a place.

    Those are brackets that are not closed, and those with as many levels of brackets in them.
    """
    opened: list[tuple[int, int]] = []  # place, levels in it
    deepest, found = 0, set()
    for match in _BRACKET.finditer(text):
        if match.group() == "[":
            opened.append((match.start(), 0))
            deepest = max(deepest, len(opened))
        elif match.group() == "]" and opened:
            place, levels = opened.pop()
            if levels >= MOST_BRACKETS:
                found.add(place)
            if opened:
                opened[-1] = (opened[-1][0], max(opened[-1][1], levels + 1))
    return frozenset(found).union(place for place, _ in opened) if deepest > MOST_BRACKETS else frozenset()


def _noted(name: str, state: StateInline, begin: int, first: int, label_end: int) -> Iterator[tuple[int, int, Token]]:
    """Yield begin, end and token of each mark that a rule has just made."""
    new, last = state.tokens[first:], state.tokens[-1]
    match name:
        case "emphasis" | "strikethrough":
            end = state.pos
            for token in reversed(new):
                if end > begin:
                    yield end - len(token.content), end, token
                    end -= len(token.content)
        case "link":
            opening = next(token for token in new if token.type == "link_open")
            yield begin, begin + 1, opening
            yield label_end, state.pos, last
        case "autolink":
            opening = next(token for token in new if token.type == "link_open")
            opening.type = "autolink"
            yield begin, state.pos, opening
        case "image":
            last.meta["label_end"] = label_end
            yield begin, state.pos, last
        case "backticks" if last.type != "code_inline":
            return
        case _:
            yield begin, state.pos, last
