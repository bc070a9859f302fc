"""Segments of a document, made of the items that a parser has read.

The parsers `tags` (HTML, XML), `markdown` and `plain` give each `Item` to a `Builder`, which finds protected pieces,
pairs tags, unites markup without text that touches, moves tags at the ends of a segment to the skeleton, and folds
white space. `translation` reads the `Document` that it returns.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Literal

from seq2seq.markup.document import (
    END,
    OBJECT,
    Document,
    Escape,
    MarkupPiece,
    Node,
    Segment,
    Template,
    escaped,
    escaped_template,
    is_space,
)
from seq2seq.markup.items import SPACE, Item
from seq2seq.markup.protected import EMOJI, IsTerm, find, no_term
from seq2seq.text.scripts import is_spaced

# Maximum nesting of pairs; deeper tags are placed like single tags: in order, near the words next to them.
MOST_LEVELS = 64
# Marks that join parts of a word.
JOINTS = frozenset("'’-\u2010/")


class Builder:
    """Collector of items; markup that ends a segment is given to `cut`. No term (`is_term`) is protected."""

    def __init__(
        self,
        escape: Escape,
        opening: Escape = str,
        holds: Callable[[Template, Template], bool] | None = None,
        is_term: IsTerm = no_term,
    ):
        self.escape, self._opening, self._holds, self._is_term = escape, opening, holds, is_term
        self._template: list[str | int] = []
        self._segments: list[Segment] = []
        self._items: list[Item] = []

    def add(self, item: Item) -> None:
        """Add the next stretch of the current segment."""
        self._items.append(item)

    def cut(self, raw: Template = (), escape: Escape | None = None) -> None:
        """End the current segment, and copy `raw` after it; `escape` overrides the escape of this segment."""
        if self._items:
            self._template += self._built(self._items, escape or self.escape)
            self._items = []
        self._template += raw

    def within(self, item: Item, escape: Escape) -> Template:
        """Return a text inside a tag as a template with its own segment."""
        return tuple(self._built([item], escape))

    def insert(self, escape: Escape, read: Callable[["Builder"], None], outer: Escape | None = None) -> None:
        """Add a part in another format, which `read` gives to a separate builder; `outer` escapes all of it."""
        self.cut()
        first = len(self._segments)
        template = self.part(Builder(escape), read)
        self._template += escaped_template(template, outer) if outer else template
        if outer:
            self._segments[first:] = [escaped(segment, outer) for segment in self._segments[first:]]

    def finish(self) -> Document:
        """Return the document of everything that was added."""
        self.cut()
        return Document(tuple(self._template), tuple(self._segments))

    def part(self, inner: "Builder", read: Callable[["Builder"], None]) -> Template:
        """Return a part, which `read` gives to the builder `inner`, as a template with segments of this builder."""
        inner._segments, inner._is_term = self._segments, self._is_term
        read(inner)
        inner.cut()
        return tuple(inner._template)

    def _built(self, items: Sequence[Item], escape: Escape) -> Iterator[str | int]:
        """Yield the items as a template; a tag without a partner is not a boundary, because browsers ignore it."""
        items = list(chain.from_iterable(map(self._divided, items)))
        partner = _partners(items)
        for index, item in enumerate(items):
            if item.kind in ("open", "close") and index not in partner:
                items[index] = replace(item, kind="stray")
        items = list(_united(items, partner))
        for label in _labels(items, *_peeled(items, _partners(items))):
            yield from self._with_segment(label, escape)

    def _with_segment(self, items: Sequence[Item], escape: Escape) -> Iterator[str | int]:
        """Yield the items as a template with one segment, or none if there is no text."""
        first, last = _peeled(items, _partners(items))
        core = items[first:last]
        if not any(item.kind == "text" and item.text.strip() for item in core):
            yield from _raw(items)
            return
        before, core, after = _trimmed(core)
        segment = _segment(core, escape)
        before = (*_raw(items[:first]), *before)
        if all(isinstance(part, str) and not part.strip(SPACE) for part in before):
            segment = replace(segment, opening=self._opening)
        if self._holds is not None and segment.nodes:
            segment = replace(segment, holds=partial(self._holds, segment.raw))
        yield from before
        yield len(self._segments)
        self._segments.append(segment)
        yield from (*after, *_raw(items[last:]))

    def _divided(self, item: Item) -> Iterator[Item]:
        """Yield the protected pieces of a text, and the texts between them."""
        position = 0
        for found in find(item.text, self._is_term) if item.kind == "text" else ():
            if found.begin > position:
                yield item.part(position, found.begin)
            kind: Literal["point", "piece"] = "point" if found.kind == EMOJI else "piece"
            yield Item(kind, item.part(found.begin, found.end).raw, name=found.kind, divides=kind == "point")
            position = found.end
        if position == 0:
            yield item
        elif position < len(item.text):
            yield item.part(position, len(item.text))


def _raw(items: Sequence[Item]) -> Template:
    return tuple(chain.from_iterable(item.raw for item in items))


def _partners(items: Sequence[Item]) -> dict[int, int]:
    """Return the indices of pairs of tags, in both directions; pairs do not overlap."""
    partner: dict[int, int] = {}
    opened: list[int] = []
    names: Counter[str] = Counter()  # number of open tags by name
    for index, item in enumerate(items):
        if item.kind == "open":
            opened.append(index)
            names[item.name] += 1
        elif item.kind == "close" and names[item.name]:
            match = opened.pop()
            while items[match].name != item.name:
                names[items[match].name] -= 1
                match = opened.pop()
            names[item.name] -= 1
            partner[match], partner[index] = index, match
    return partner


def _united(items: Sequence[Item], partner: dict[int, int]) -> Iterator[Item]:
    """Yield the items with one standalone tag in place of a pair without content, and of such tags that touch."""
    filled = [0, *accumulate(bool(item.content.strip(SPACE)) or item.vanishes for item in items)]
    begin = 0
    while begin < len(items):
        end = begin
        while end < len(items):
            last = partner.get(end, end)
            is_one = items[end].kind in ("point", "open") and not is_space(items[end].raw)
            if not is_one or filled[end] < filled[last + 1]:
                break
            end = last + 1
        parts = items[begin : max(end, begin + 1)]
        begin += len(parts)
        yield parts[0] if len(parts) == 1 else _unit(parts)


def _unit(parts: Sequence[Item]) -> Item:
    """Return items without content as one standalone tag."""
    return Item(
        "stray" if any(part.kind == "stray" for part in parts) else "point",
        _raw(parts),
        separates=any(part.separates or part.kind == "text" for part in parts),
        divides=any(part.divides for part in parts if part.kind != "close"),
        clings=parts[0].clings,
    )


def _peeled(items: Sequence[Item], partner: dict[int, int]) -> tuple[int, int]:
    """Return the range of items that remain when the ends are moved to the skeleton.

    The rule, applied as long as it can be: at either end, an item without content (white space, a standalone or stray
    tag) goes, and so does a pair without content; a pair that encloses the range goes. All other pairs are whole in the
    range, so the skeleton is well-formed.
    """
    filled = [0, *accumulate(bool(item.content.strip(SPACE)) for item in items)]

    def is_empty(begin: int, end: int) -> bool:
        return filled[begin] == filled[end]

    first, last = 0, len(items)
    while not is_empty(first, last):
        end, begin = partner.get(first, first), partner.get(last - 1, last - 1)
        if is_empty(first, end + 1):
            first = end + 1
        elif is_empty(begin, last):
            last = begin
        elif end == last - 1 > first:
            first, last = first + 1, last - 1
        else:
            break
    return first, last


def _boundaries(items: Sequence[Item]) -> set[int]:
    """Return the indices of tags at which a word ends without white space: standalone tags that separate or divide
    words, and the first tag of an element that touches the element before it.

    Elements that touch are parts of one word if neither joins words, one joins letters, or the text of one is a single
    letter.
    """
    partner = _partners(items)
    found: set[int] = set()
    before, tags = "", list[int]()  # the text before, and the tags since then
    for index, item in enumerate(items):
        if not item.content:
            tags.append(index)
            continue
        touching = before[-1:], item.content[:1]
        if before and tags and not any(map(str.isspace, touching)):
            found |= {tag for tag in tags if items[tag].kind == "point" and items[tag].separates}
        if tags and is_spaced(*touching) and JOINTS.isdisjoint(touching):
            first = tags[0]
            around = [tag for tag in tags if tag in partner and not first <= partner[tag] < index]
            joins = {items[tag].joins for tag in around}
            closed = any(items[tag].kind == "close" for tag in around)
            opened = next((tag for tag in around if items[tag].kind == "open"), None)
            is_word = "letters" in joins or "words" not in joins or _is_letter(before) or _is_letter(item.content)
            found |= {opened} if closed and opened is not None and not is_word else set()
            found |= {tag for tag in tags if items[tag].kind == "point" and items[tag].divides}
        before, tags = item.content, []
    return found


def _is_letter(text: str) -> bool:
    return len(text) == 1 and text.isalpha()


def _labels(items: list[Item], first: int, last: int) -> Iterator[list[Item]]:
    """Yield the items in parts that are translated apart, such as the links of a menu.

    They are cut where the elements in the range touch each other, if none is in a sentence: all text of the range is in
    elements.
    """
    core, depth, cuts = items[first:last], 0, [0]
    boundaries = _boundaries(core)
    for index, item in enumerate(core):
        if depth == 0 and item.content.strip(SPACE):
            boundaries.clear()
            break
        if depth == 0 and index in boundaries and not item.separates:
            cuts.append(first + index)
        depth += (item.kind == "open") - (item.kind == "close")
    cuts = cuts if boundaries else [0]
    yield from (items[begin:end] for begin, end in pairwise([*cuts, len(items)]))


def _trimmed(items: Sequence[Item]) -> tuple[Template, list[Item], Template]:
    """Return the white space before and after the items, and the items without it, in the order of the text."""
    items = list(items)
    before: Template = ()
    after: Template = ()
    if items[0].kind == "text":
        size = len(items[0].text) - len(items[0].text.lstrip(SPACE))
        before, items[0] = items[0].part(0, size).raw, items[0].part(size, len(items[0].text))
    if items[-1].kind == "text":
        size = len(items[-1].text.rstrip(SPACE))
        after, items[-1] = items[-1].part(size, len(items[-1].text)).raw, items[-1].part(0, size)
    return before, items, after


def _flattened(items: Sequence[Item]) -> Iterator[Item]:
    """Yield the items; tags of pairs that are nested deeper than MOST_LEVELS are `deep`."""
    depth = 0
    for item in items:
        depth += item.kind == "open"
        is_deep = depth > MOST_LEVELS and item.kind in ("open", "close")
        depth -= item.kind == "close"
        yield replace(item, kind="deep") if is_deep else item


class _Folded:
    """Text with folded white space: a run of it becomes one space, which is written with the character after it."""

    def __init__(self) -> None:
        self.chars: list[str] = []
        self.is_after_space = False

    def add(self, text: str) -> None:
        for char in text:
            if char not in SPACE:
                self.chars += [" ", char] if self.is_after_space else [char]
            self.is_after_space = char in SPACE


def _segment(items: Sequence[Item], escape: Escape) -> Segment:
    """Return the segment of items in which every open tag has its partner.

    Pairs are the inner nodes of a tree, and all other tags are its leaves, in the order of the text. A leaf is a child
    of the pair around it; a stray tag is at the top, because its partner may be outside of the pairs around it.
    """
    folded = _Folded()
    pieces: list[MarkupPiece] = []
    levels: list[list[Node]] = [[]]  # the nodes at the top, and those in each open pair so far
    opened: list[tuple[int, Item]] = []
    boundaries = _boundaries(items)
    items = list(_flattened(items))
    for index, (item, space) in enumerate(zip(items, _spaces(items), strict=True)):
        if index in boundaries and item.kind == "open":
            folded.add(" ")
            level = levels[-1]
            last = next(place for place in reversed(range(len(level))) if level[place].begin < level[place].end)
            level[last] = replace(level[last], meets=True)
        folded.add(item.content)
        place = len(folded.chars)
        if item.kind == "piece":
            pieces.append(MarkupPiece(item.raw, item.name))
        elif item.kind == "open":
            levels.append([])
            opened.append((place, item))
        elif item.kind == "close":
            begin, opening = opened.pop()
            children = tuple(levels.pop())
            outer = (children[0].space[0], children[-1].space[1]) if children else ("", "")
            pair = Node(begin, place, opening.raw, item.raw, opening.repeats, children, outer)
            levels[-1].append(replace(pair, vanishes=opening.vanishes))
        elif item.kind != "text":
            level = levels[0] if item.kind == "stray" else levels[-1]
            point = Node(place, place, item.raw, None, space=space, clings=item.clings)
            level.append(replace(point, separates=index in boundaries, is_loose=item.kind != "point"))
            folded.add(" " if index in boundaries else "")
    text = "".join(folded.chars) + " " * folded.is_after_space
    return Segment(_raw(items), text, tuple(pieces), tuple(levels[0]), escape)


def _spaces(items: Sequence[Item]) -> list[tuple[str, str]]:
    """Return the white space directly before and after each item (`Node.space`). Tags that belong to a pair, here or
    elsewhere, do not count."""

    def beside(characters: Iterable[str]) -> list[str]:
        folded = (" " if char and char in SPACE else char for char in characters)
        last = accumulate(folded, lambda last, char: char or last, initial=END)
        return [char if char.isspace() else "" for char in last]

    seen = [(" " if is_space(item.raw) else OBJECT) if item.kind == "point" else item.content for item in items]
    before, after = beside(text[-1:] for text in seen), beside(text[:1] for text in reversed(seen))
    return list(zip(before[:-1], after[-2::-1], strict=True))
