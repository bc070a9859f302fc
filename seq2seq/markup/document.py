"""A text with markup as a skeleton and segments: what parsers make, and `translation` fills.

A template is raw text with the numbers of segments that stand in it. A segment can stand within a tag of another one,
such as the title of a link.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Template = tuple[str | int, ...]
Escape = Callable[[str], str]
"""Turns plain text into text of the format."""

# Stands in the text of a segment for a piece that is not translated.
OBJECT = "\ufffc"


@dataclass(frozen=True)
class Piece:
    """What is not translated, but has a place in the sentence: a variable, an address, code."""

    raw: Template
    kind: str
    """variable, address, code or object."""


@dataclass(frozen=True)
class Node:
    """A pair of tags, or something that stands at one place: an empty tag, a tag without its partner, a comment."""

    begin: int
    """In code points of the segment's text; so is `end`, which equals it for what stands at one place."""
    end: int
    open: Template
    close: Template | None
    """None for what stands at one place."""
    repeats: bool = False
    """The pair may be written more than once: it formats what it encloses, and names nothing."""
    children: tuple["Node", ...] = ()
    space_before: bool = False
    """Of what stands at one place: white space before it, and `space_behind` it."""
    space_behind: bool = False
    is_space: bool = False
    """It separates words as white space does, and there is none beside it."""
    vanishes: bool = False
    """A pair without words is not written, because it would mean something else."""
    is_loose: bool = False
    """A tag whose place among the other loose ones counts: it has no partner here, or is nested too deeply."""


@dataclass(frozen=True)
class Segment:
    """A stretch of text that is translated as a whole, with the markup in it.

    What encloses all of it or stands at its ends is part of the skeleton.
    """

    raw: Template
    """As it stands in the document."""
    text: str
    """Without markup, white space folded, with OBJECT for each piece."""
    pieces: tuple[Piece, ...]
    nodes: tuple[Node, ...]
    """In the order of the text."""
    escape: Escape
    opening: Escape = str
    """Applied to the first text of an output: signs mean something at the beginning of a line of Markdown."""
    holds: Callable[[str], bool] | None = None
    """Whether an output still has the markup of the segment, where a format depends on what stands beside a sign."""


@dataclass(frozen=True)
class Document:
    """`join(document, [None] * len(document.segments))` is the text that it was made of."""

    template: Template
    segments: tuple[Segment, ...]


def join(document: Document, outputs: Sequence[Template | None]) -> str:
    """The document with an output in place of each segment; where it is None, the segment stays as it was."""
    return "".join(_filled(document, document.template, outputs))


def _filled(document: Document, template: Template, outputs: Sequence[Template | None]) -> Iterator[str]:
    for part in template:
        if isinstance(part, str):
            yield part
        else:
            output = outputs[part]
            yield from _filled(document, document.segments[part].raw if output is None else output, outputs)


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """All nodes of a tree, each before those in it."""
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)
