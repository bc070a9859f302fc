"""Parser of Markdown that records where markup is in the source: markdown-it-py, with extensions.

`markdown` reads blocks with `parser`, and the markup in the text of a block with `inline_marks`.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from markdown_it import MarkdownIt, rules_inline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from seq2seq.markup.attributes import UNKNOWN_LANGUAGES, LanguagePair
from seq2seq.markup.html import lexemes
from seq2seq.markup.markdown_extensions import ATTRIBUTES, EXTENSION_BEGINS, add_extensions, extension
from seq2seq.markup.tags import copied, ends

# Brackets, and what may hide some from the parser.
_BRACKET = re.compile(r"[\[\]]|\\.|`[^`]*+`", re.DOTALL)
LONGEST_NESTING = 100
# Brackets within each other, beyond which no links are looked for: each level costs as much as the text in it.
MOST_BRACKETS = 32
# Types of the tokens of elements that are copied, by their roles (`tags.copied`).
_COPIED = {"block": "cut", "point": "point", "word": "piece"}

_Rule = Callable[[StateInline, bool], bool]


class Mark(NamedTuple):
    """Markup in the text of a block, with its place."""

    begin: int
    end: int
    """End with the attribute list after it."""
    token: Token
    """Token of the parser, which may still change its type."""
    own_end: int
    """End without the attribute list."""


def inline_marks(content: str, environment: dict[str, Any], languages: LanguagePair = UNKNOWN_LANGUAGES) -> list[Mark]:
    """Return the markup in the text of a block, in order; images and elements that are copied include the markup in
    them, and a mark includes the attribute list after it."""
    state_environment = {**environment, "marks": []}
    parser().parseInline(content, state_environment)
    found = []
    for begin, end, token in state_environment["marks"]:
        if token.type.startswith("strong_"):  # made of two marks, one of which has become empty
            begin, end = (begin - 1, end) if token.nesting > 0 else (begin, end + 1)
        if token.type not in ("text", "text_special"):
            found.append(Mark(begin, end, token, end))
    kept: list[Mark] = []
    in_order = sorted(found, key=lambda mark: (mark.begin, -mark.end))
    for mark in _with_elements(content, in_order, languages):
        last = kept[-1] if kept else None
        if last and mark.token.type == "attributes" and mark.begin == last.end and last.token.nesting <= 0:
            kept[-1] = last._replace(end=mark.end)
        elif last is None or mark.begin >= last.end:
            kept.append(mark)
    return kept


def _with_elements(content: str, marks: list[Mark], languages: LanguagePair) -> Iterator[Mark]:
    """Yield the marks, with one for each element of HTML that is copied in place of its start tag."""
    tags = {index: lexemes(content[mark.begin : mark.end]) for index, mark in enumerate(marks) if _is_tag(mark)}
    places = [index for index, found in tags.items() if len(found) == 1]
    partner = ends([tags[index][0] for index in places])
    last = {places[begin]: places[end] for begin, end in partner.items()}
    for index, mark in enumerate(marks):
        if index in last and (role := copied(tags[index][0], is_html=True, languages=languages)):
            mark.token.type = _COPIED[role]
            end = marks[last[index]].end
            yield mark._replace(end=end, own_end=end)
        else:
            yield mark


def _is_tag(mark: Mark) -> bool:
    return mark.token.type == "html_inline"


@cache
def parser() -> MarkdownIt:
    """Return the one parser, whose rules record in `environment["marks"]` the places of their tokens in the text."""
    options = {"maxNesting": LONGEST_NESTING, "inline_definitions": True}
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    parser.disable("fragments_join")
    parser.core.ruler.disable("text_join")
    add_extensions(parser)
    parser.inline.ruler.before("text", "extension", extension)
    parser.inline.ruler.after("link", "span", _span)
    for name, rule, first in (
        ("extension", extension, EXTENSION_BEGINS),
        ("newline", rules_inline.newline, "\n"),
        ("escape", rules_inline.escape, "\\"),
        ("backticks", rules_inline.backtick, "`"),
        ("strikethrough", rules_inline.strikethrough.tokenize, "~"),
        ("emphasis", rules_inline.emphasis.tokenize, "*_"),
        ("link", rules_inline.link, "["),
        ("span", _span, "[^"),
        ("image", rules_inline.image, "!"),
        ("autolink", rules_inline.autolink, "<"),
        ("html_inline", rules_inline.html_inline, "<"),
    ):
        parser.inline.ruler.at(name, _noting(rule, name, first))
    return parser


def _span(state: StateInline, silent: bool) -> bool:
    """Read text in brackets that is a note, `^[text]`, or has an attribute list, `[text]{.wide}` (Pandoc)."""
    begin, end = state.pos, state.posMax
    is_note = state.src.startswith("^[", begin)
    place = begin + is_note
    may_begin = is_note or (state.src[begin] == "[" and _has_spans(state.src))
    if not may_begin or place in _no_links(state.src):
        return False
    label_end = state.md.helpers.parseLinkLabel(state, place)
    if label_end < 0 or not (is_note or ATTRIBUTES.match(state.src, label_end + 1, end)):
        return False
    if is_note and not silent:
        state.push("note", "", 0)
    elif not silent:
        state.push("span_open", "", 1)
        state.pos, state.posMax = place + 1, label_end
        state.md.inline.tokenize(state)
        state.push("span_close", "", -1)
    state.pos, state.posMax = label_end + 1, end
    return True


def _noting(rule: _Rule, name: str, first: str) -> _Rule:
    """Return an inline rule that records its marks, and that is run at the characters `first` alone, where it can
    begin: the parser tries all rules at each place."""

    def noting(state: StateInline, silent: bool) -> bool:
        return state.src[state.pos] in first and _run(rule, name, state, silent)

    return noting


def _run(rule: _Rule, name: str, state: StateInline, silent: bool) -> bool:
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
        marks[known:] = [(begin, state.pos, state.tokens[-1])]  # its text is the name of the reference
        marks[known][2].type = "reference"
    return True


@lru_cache(maxsize=8)
def _has_spans(text: str) -> bool:
    return "]{" in text


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
            place = state.pos
            first_sign = len(new)
            while place > begin:
                first_sign -= 1
                place -= len(new[first_sign].content)
            for token in new[first_sign:]:
                yield place, place + len(token.content), token
                place += len(token.content)
        case "link":
            opening = next(token for token in new if token.type == "link_open")
            last.attrs = opening.attrs
            yield begin, begin + 1, opening
            yield label_end, state.pos, last
        case "span" if last.type != "note":
            opening = next(token for token in new if token.type == "span_open")
            yield begin, begin + 1, opening
            yield state.pos - 1, state.pos, last
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
