"""From what parsers read to segments: pieces found, tags paired, ends peeled off, white space folded."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain
from re import Pattern
from typing import Literal

from seq2seq.markup.document import OBJECT, Document, Escape, Node, Piece, Segment, Template
from seq2seq.markup.pieces import EMOJI, Found, find

# White space that formats fold; a no-break space is none.
SPACE = " \t\n\r\f"
# Pairs of tags in a segment that are nested more deeply keep their order, and stay near the words beside them.
MOST_LEVELS = 64


@dataclass(frozen=True)
class Item:
    """A stretch of a text with markup."""

    kind: Literal["text", "open", "close", "point", "piece"]
    raw: Template
    text: str = ""
    """Of text: what it says, without escapes."""
    offsets: Sequence[int] | None = None
    """Where each code point of `text`, and its end, is in `raw`; None where they are the same."""
    name: str = ""
    """Of tags, and the kind of a piece."""
    repeats: bool = False
    separates: bool = False
    """Words before and behind it are two words, though there is no white space."""
    vanishes: bool = False
    is_loose: bool = False
    """A tag that is written for itself; the builder finds out which."""

    def part(self, begin: int, end: int) -> "Item":
        """Code points of a text."""
        offsets = self.offsets or range(len(self.text) + 1)
        raw = "".join(map(str, self.raw))[offsets[begin] : offsets[end]]
        shifted = self.offsets and [offset - offsets[begin] for offset in offsets[begin : end + 1]]
        return replace(self, raw=(raw,), text=self.text[begin:end], offsets=shifted)

    @property
    def is_blank(self) -> bool:
        """Whether it is white space alone."""
        return self.kind == "text" and not self.text.strip(SPACE)


def text_item(raw: str, escapes: Pattern[str] | None = None, unescape: Callable[[str], str] = str) -> Item:
    """A text whose escapes, such as entities, are found by a pattern."""
    if escapes is None or not escapes.search(raw):
        return Item("text", (raw,), raw)
    text, offsets, position = [], [], 0
    for match in escapes.finditer(raw):
        text.append(raw[position : match.start()])
        offsets += range(position, match.start())
        said = unescape(match.group())
        text.append(said)
        offsets += [match.start()] * len(said)
        position = match.end()
    text.append(raw[position:])
    return Item("text", (raw,), "".join(text), [*offsets, *range(position, len(raw) + 1)])


class Builder:
    """Collects items; whatever ends a segment is given to `cut`."""

    def __init__(
        self,
        escape: Escape,
        finder: Callable[[str], list[Found]] = find,
        opening: Escape = str,
        holds: Callable[[str, str], bool] | None = None,
    ):
        self._escape, self._find, self._opening, self._holds = escape, finder, opening, holds
        self._template: list[str | int] = []
        self._segments: list[Segment] = []
        self._items: list[Item] = []

    def add(self, item: Item) -> None:
        """The next stretch of the current segment."""
        self._items.append(item)

    def cut(self, raw: Template = (), escape: Escape | None = None) -> None:
        """End the current segment; `raw` is copied behind it. `escape` is that of this segment."""
        if self._items:
            self._template += self._built(self._items, escape or self._escape)
            self._items = []
        self._template += raw

    def within(self, item: Item, escape: Escape) -> Template:
        """A text inside a tag, as a template with a segment of its own."""
        return tuple(self._built([item], escape))

    def insert(self, escape: Escape, read: Callable[["Builder"], None]) -> None:
        """A part in another format, which `read` gives to a builder of its own."""
        self.cut()
        inner = Builder(escape)
        inner._segments = self._segments
        read(inner)
        inner.cut()
        self._template += inner._template

    def finish(self) -> Document:
        """The document of everything that was given."""
        self.cut()
        return Document(tuple(self._template), tuple(self._segments))

    def _built(self, items: Sequence[Item], escape: Escape) -> Iterator[str | int]:
        """The items as a template; a tag without a partner is no boundary: browsers read on, too."""
        items = list(chain.from_iterable(map(self._divided, items)))
        partner = _partners(items)
        items = [_loosened(item) if index not in partner else item for index, item in enumerate(items)]
        first, last = _peeled(items, partner)
        core = items[first:last]
        if not any(item.kind == "text" and item.text.strip() for item in core):
            yield from _raw(items)
            return
        before, core, behind = _trimmed(core)
        segment = _segment(core, escape)
        before = (*_raw(items[:first]), *before)
        if all(isinstance(part, str) and not part.strip(SPACE) for part in before):
            segment = replace(segment, opening=self._opening)
        if self._holds is not None and segment.nodes:
            segment = replace(segment, holds=partial(self._holds, "".join(map(str, segment.raw))))
        yield from before
        yield len(self._segments)
        self._segments.append(segment)
        yield from (*behind, *_raw(items[last:]))

    def _divided(self, item: Item) -> Iterator[Item]:
        """A text as its pieces and what is between them."""
        position = 0
        for found in self._find(item.text) if item.kind == "text" else ():
            if found.begin > position:
                yield item.part(position, found.begin)
            kind: Literal["point", "piece"] = "point" if found.kind == EMOJI else "piece"
            yield Item(kind, item.part(found.begin, found.end).raw, name=found.kind)
            position = found.end
        if position == 0:
            yield item
        elif position < len(item.text):
            yield item.part(position, len(item.text))


def _raw(items: Sequence[Item]) -> Template:
    return tuple(chain.from_iterable(item.raw for item in items))


def _partners(items: Sequence[Item]) -> dict[int, int]:
    """The indices of pairs of tags, in both directions; pairs do not overlap."""
    partner: dict[int, int] = {}
    opened: list[int] = []
    names: Counter[str] = Counter()  # of those that are open
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


def _loosened(item: Item) -> Item:
    """A tag without its partner is at one place."""
    return replace(item, kind="point", is_loose=True) if item.kind in ("open", "close") else item


def _peeled(items: Sequence[Item], partner: dict[int, int]) -> tuple[int, int]:
    """First and last item of what is left without tags that stand at the ends or enclose everything."""

    def says_nothing(index: int) -> bool:
        item = items[index]
        return item.is_blank or item.kind == "point"

    filled = [0, *accumulate(item.kind in ("text", "piece") and not item.is_blank for item in items)]

    def is_empty(begin: int, end: int) -> bool:
        return filled[begin] == filled[end]

    first, last = 0, len(items)
    while True:
        before = first, last
        while first < last and says_nothing(first):
            first += 1
        while first < last and says_nothing(last - 1):
            last -= 1
        if first == last:
            return first, last
        end, begin = partner.get(first, -1), partner.get(last - 1, len(items))
        if first < end and is_empty(first, end):
            first = end + 1
        elif first < begin < last and is_empty(begin, last):
            last = begin
        elif end == last - 1 and end > first:
            first, last = first + 1, last - 1
        if before == (first, last):
            return before


def _trimmed(items: Sequence[Item]) -> tuple[Template, list[Item], Template]:
    """The white space before and behind a text, and the items without it."""
    items = list(items)
    before: Template = ()
    behind: Template = ()
    if items[0].kind == "text":
        size = len(items[0].text) - len(items[0].text.lstrip(SPACE))
        before, items[0] = items[0].part(0, size).raw, items[0].part(size, len(items[0].text))
    if items[-1].kind == "text":
        size = len(items[-1].text.rstrip(SPACE))
        behind, items[-1] = items[-1].part(size, len(items[-1].text)).raw, items[-1].part(0, size)
    return before, items, behind


def _segment(items: Sequence[Item], escape: Escape) -> Segment:
    text: list[str] = []
    pieces: list[Piece] = []
    levels: list[list[Node]] = [[]]
    opened: list[tuple[int, Item]] = []
    waits = False  # white space that was read before the next character
    following = _first_behind(items)
    depth = 0
    for index, item in enumerate(items):
        depth += item.kind == "open"
        is_deep = depth > MOST_LEVELS and item.kind in ("open", "close")
        depth -= item.kind == "close"
        if item.kind in ("text", "piece"):
            for char in item.text if item.kind == "text" else OBJECT:
                if char not in SPACE:
                    text += [" ", char] if waits and text else [char]
                waits = char in SPACE
            if item.kind == "piece":
                pieces.append(Piece(item.raw, item.name))
        elif item.kind == "open" and not is_deep:
            levels.append([])
            opened.append((len(text), item))
        elif item.kind == "close" and not is_deep:
            begin, opening = opened.pop()
            children = tuple(levels.pop())
            levels[-1].append(
                Node(begin, len(text), opening.raw, item.raw, opening.repeats, children, vanishes=opening.vanishes)
            )
        else:
            behind = following[index] in tuple(SPACE)
            is_space = item.separates and not waits and not behind
            node = Node(len(text), len(text), item.raw, None, False, (), waits, behind, is_space)
            # a tag without a partner may belong to one outside of the pair that it is in
            levels[0 if item.is_loose else -1].append(replace(node, is_loose=is_deep or item.is_loose))
            waits = waits or is_space
    return Segment(_raw(items), "".join(text), tuple(pieces), tuple(levels[0]), escape)


def _first_behind(items: Sequence[Item]) -> list[str]:
    """The first character of text behind each item, empty at the end."""
    found, char = [], ""
    for item in reversed(items):
        found.append(char)
        if item.kind in ("text", "piece"):
            char = (item.text if item.kind == "text" else OBJECT)[:1] or char
    return found[::-1]
