"""A text with markup as a skeleton and segments, which `segments` makes and `translation` fills.

A template is raw text with numbers of segments at their places. A segment can be within a tag of another one, such as
the title of a link.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

Template = tuple[str | int, ...]
Escape = Callable[[str], str]
"""Function that escapes plain text for the format."""

# Placeholder, in the text of a segment, for a piece that is not translated.
OBJECT = "\ufffc"
# An end of a segment, which is white space to what is next to it.
END = "\n"


@dataclass(frozen=True)
class MarkupPiece:
    """A part of a sentence that is not translated: a variable, an address, code."""

    raw: Template
    kind: str
    """variable, address, code or object."""


@dataclass(frozen=True)
class Node:
    """A pair of tags, or a standalone tag at one place: an empty tag, a tag without a partner, a comment."""

    begin: int
    """Begin in code points of the segment's text; so is `end`, which equals it for a standalone tag."""
    end: int
    open: Template
    close: Template | None
    """Raw end tag; None for a standalone tag."""
    repeats: bool = False
    """Whether the pair may be written more than once, because it only formats its content and has no identity."""
    children: tuple["Node", ...] = ()
    space: tuple[str, str] = ("", "")
    """White space directly before and after a standalone tag, as one character, or END; of a pair, before its first
    child and after its last."""
    clings: bool = False
    """Whether it stays with the word before it if it touches that, such as the mark of a note."""
    separates: bool = False
    """Whether it is between two words without white space, and the text has a space in its place."""
    vanishes: bool = False
    """Whether the pair is omitted if it has no words, because its signs would then have another meaning."""
    is_loose: bool = False
    """Whether its order among other such tags must be kept: it has no partner here, or is nested too deeply."""
    meets: bool = False
    """Whether it touches the pair after it, although the text has a space between their words."""

    @property
    def stays_before(self) -> bool | None:
        """Whether it stays with the word before it, not with the word after it, because it touches only that word; None
        if it touches both or neither."""
        before, after = map(bool, self.space)
        if self.clings and not before:
            return True
        return None if before == after else after


@dataclass(frozen=True)
class Segment:
    """A stretch of text that is translated as a whole, with the markup in it.

    Markup that encloses all of it, or is at its ends, is part of the skeleton.
    """

    raw: Template
    """Text in the document."""
    text: str
    """Text without markup, with folded white space, and OBJECT for each piece."""
    pieces: tuple[MarkupPiece, ...]
    nodes: tuple[Node, ...]
    """Markup in the order of the text."""
    escape: Escape
    opening: Escape = str
    """Escape of the first text of an output, for signs that have a meaning at the beginning of a line of Markdown."""
    holds: Callable[[Template], bool] | None = None
    """Test whether an output has the markup of the segment, for formats whose signs depend on their context."""


@dataclass(frozen=True)
class Document:
    """Skeleton and segments of a text; `join(document, [None] * len(document.segments))` equals the text, except for
    the languages in its tags."""

    template: Template
    segments: tuple[Segment, ...]


def is_space(raw: Template) -> bool:
    """Whether markup is white space, such as a line break in a paragraph of Markdown."""
    return "".join(map(str, raw[:1]))[:1].isspace()


def join(document: Document, outputs: Sequence[Template | None]) -> str:
    """Return the document with an output in place of each segment; a segment whose output is None is unchanged."""
    joined: list[str] = []
    waiting = list(reversed(document.template))
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            joined.append(part)
        else:
            output = outputs[part]
            waiting += reversed(document.segments[part].raw if output is None else output)
    return "".join(joined)


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield all nodes of a tree, each before its children."""
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def escaped_template(template: Template, outer: Escape) -> Template:
    """Return a template whose texts are escaped once more, for a format within another one."""
    return tuple(outer(part) if isinstance(part, str) else part for part in template)


def escaped(segment: Segment, outer: Escape) -> Segment:
    """Return a segment whose raw texts are escaped once more, and so is its output."""
    made: dict[int, Node] = {}  # by node; children come before their parents
    for node in reversed(list(walk(segment.nodes))):
        close = None if node.close is None else escaped_template(node.close, outer)
        children = tuple(made[id(child)] for child in node.children)
        made[id(node)] = replace(node, open=escaped_template(node.open, outer), close=close, children=children)
    return replace(
        segment,
        raw=escaped_template(segment.raw, outer),
        pieces=tuple(replace(piece, raw=escaped_template(piece.raw, outer)) for piece in segment.pieces),
        nodes=tuple(made[id(node)] for node in segment.nodes),
        escape=lambda text: outer(segment.escape(text)),
    )
