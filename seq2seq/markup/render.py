"""Rendering of a translation in the format of its source, with the source's tags and protected pieces.

`translation` makes an `Answer` for each segment, and `written` renders it with the places that `projection` finds.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product, starmap, takewhile

from seq2seq.markup.document import END, OBJECT, Node, Segment, Template, is_space, walk
from seq2seq.markup.projection import Placed, Projection
from seq2seq.text.alignment import Alignment, Link, Term, Word
from seq2seq.text.scripts import is_spaced
from seq2seq.text.words import Span

UNCHANGED, MARKUP = "unchanged", "markup"


@dataclass(frozen=True)
class Answer:
    """A translation in which OBJECTs mark the places of the pieces."""

    text: str
    alignment: Alignment
    """Alignment of the segment's text with this one."""
    flags: frozenset[str] = frozenset()
    order: tuple[int, ...] = ()
    """Index of the source's piece for each OBJECT."""
    terms: tuple[Term, ...] = ()
    """Terms of a glossary."""


def written(segment: Segment, answer: Answer) -> tuple[Template | None, frozenset[str]]:
    """Return the output for a segment, None if the segment is not changed, and the flags of its rendering."""
    if not answer.text.strip():
        return None, frozenset({UNCHANGED})
    if answer.text == segment.text:
        return None, frozenset()
    answer = _divided(segment, answer)
    output = _output(segment, answer, segment.nodes)
    if segment.holds is None or segment.holds(output):
        return output, frozenset()
    output = _output(segment, answer, segment.nodes, is_tight=True)
    if segment.holds(output):
        return output, frozenset()
    output = _output(segment, answer, _without_emphasis(segment.nodes))
    return output if segment.holds(output) else None, frozenset({MARKUP})


def _divided(segment: Segment, answer: Answer) -> Answer:
    """Return the answer with words divided where markup begins or ends within them: at the same place in a word of the
    source and in its counterpart, if these begin or end alike there, as in CO<sub>2</sub>."""
    places = sorted({place for node in walk(segment.nodes) for place in (node.begin, node.end)})
    own, words = answer.alignment, {word.span for word in answer.alignment.words}
    sources: dict[Span, Sequence[Span]] = {}  # the parts of words, and so are `targets`
    targets: dict[Span, Sequence[Span]] = {}
    for source, target, _ in sorted(own.links, key=lambda link: -link.weight):
        inner = places[bisect_right(places, source[0]) : bisect_left(places, source[1])]
        if inner and source not in sources and target in words and target not in targets:
            cuts = _cuts((segment.text, source), (answer.text, target), inner)
            sources[source], targets[target] = (
                list(pairwise([begin, *ends, end])) for ends, (begin, end) in zip(cuts, (source, target), strict=True)
            )
    if not sources:
        return answer
    links: list[Link] = []
    for source, target, weight in own.links:
        here, there = sources.get(source, [source]), targets.get(target, [target])
        is_alike = len(here) == len(there)
        parts = zip(here, there, strict=True) if is_alike else product(here, there)
        links += [Link(*part, weight if is_alike else weight / len(here)) for part in parts]
    return replace(
        answer,
        alignment=replace(
            own,
            source_words=tuple(chain.from_iterable(sources.get(word, [word]) for word in own.source_words)),
            words=tuple(
                Word(part, word.log_prob) for word in own.words for part in targets.get(word.span, [word.span])
            ),
            links=tuple(links),
        ),
    )


def _cuts(source: tuple[str, Span], target: tuple[str, Span], places: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return those of the places within a word that its counterpart has too, in each of the two texts: both words begin
    or end alike there."""
    (text, (begin, end)), (other, (first, last)) = source, target
    found: tuple[list[int], list[int]] = [], []
    for place in places:
        head, tail = text[begin:place].casefold(), text[place:end].casefold()
        if other[first : first + place - begin].casefold() == head:
            there = first + place - begin
        elif other[last - (end - place) : last].casefold() == tail:
            there = last - (end - place)
        else:
            continue
        if max([first, *found[1]]) < there < last:
            found[0].append(place)
            found[1].append(there)
    return found


def _without_emphasis(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return a tree without the pairs that vanish; their children take their places."""
    kept: dict[int, tuple[Node, ...]] = {}  # by node: what takes its place; children come before their parents
    for node in reversed(list(walk(nodes))):
        children = tuple(chain.from_iterable(kept[id(child)] for child in node.children))
        kept[id(node)] = children if node.vanishes else (replace(node, children=children),)
    return tuple(chain.from_iterable(kept[id(node)] for node in nodes))


def _output(segment: Segment, answer: Answer, nodes: Sequence[Node], is_tight: bool = False) -> Template:
    """Return a segment's template with this translation, and with these nodes at their places in it.

    If `is_tight`, the pairs that vanish do not enclose punctuation at their ends.
    """
    source, target = answer.alignment.source_words, [word.span for word in answer.alignment.words]
    rows, columns = _Words(target), _Words(source)
    links = [(rows.index(other), columns.index(word), weight) for word, other, weight in answer.alignment.links]
    marks = tuple(
        [not any(char.isalnum() or char == OBJECT for char in text[begin:end]) for begin, end in words]
        for text, words in ((segment.text, source), (answer.text, target))
    )
    known = [(row, column, weight) for row, column, weight in links if row is not None and column is not None]
    placed = Projection(source, target, known, (marks[0], marks[1])).place(nodes)
    if is_tight:
        _tighten(placed, marks[1])
    return _Writer(segment, answer).write(placed)


def _tighten(placed: Sequence[Placed], is_mark: Sequence[bool]) -> None:
    """Take the marks at their ends out of the windows of pairs that vanish."""
    nodes = list(placed)
    for node in nodes:
        nodes += node.children
    for node in reversed(nodes):  # children come before their parents
        if not node.node.vanishes or not node.windows:
            continue
        kept = {word for child in node.children for word in chain.from_iterable(starmap(range, child.windows))}
        node.gap, tight = node.begin, []
        for begin, end in node.windows:
            words = [word for word in range(begin, end) if word in kept or not is_mark[word]]
            tight += [(words[0], words[-1] + 1)] if words else []
        node.windows = tight


class _Words:
    """Index of words by their spans."""

    def __init__(self, spans: Sequence[Span]):
        self._spans = spans
        self._known = {span: number for number, span in enumerate(spans)}

    def index(self, span: Span) -> int | None:
        """Return the index of the word that has this span, or contains its beginning; None if there is none."""
        if span in self._known:
            return self._known[span]
        number = bisect_right(self._spans, span[0], key=lambda word: word[0]) - 1
        return number if number >= 0 and span[0] < self._spans[number][1] else None


class _Writer:
    """Writer of a translation with its markup.

    At each gap between words it closes tags that only the word before has, and opens tags that only the word after has.
    Standalone tags are written where the tags around them are open.
    """

    def __init__(self, segment: Segment, answer: Answer):
        self._segment, self._answer = segment, answer
        self._pieces = (segment.pieces[number].raw for number in answer.order)
        self._tokens: list[list[str] | Template] = []  # texts in parts, and tags

    def write(self, placed: Sequence[Placed]) -> Template:
        """Return the output for nodes with their places."""
        words, text = [word.span for word in self._answer.alignment.words], self._answer.text
        stacks, gaps = _collected(placed, len(words))
        before: list[Placed] = []
        end = 0
        for gap in range(len(words) + 1):
            begin, stop = words[gap] if gap < len(words) else (len(text), len(text))
            after = stacks[gap] if gap < len(words) else []
            self._gap(before, after, (end, begin), gaps[gap])
            self._text(text[begin:stop])
            before, end = after, stop
        return self._template()

    def _gap(
        self,
        before: Sequence[Placed],
        after: Sequence[Placed],
        gap: Span,
        points: Sequence[tuple[tuple[Placed, ...], Placed]],
    ) -> None:
        """Write the white space between two words, with the tags that end before it and begin after it.

        Args:
            before: tags around the word before the gap, the outermost first.
            after: tags around the word after the gap.
            gap: span of the white space.
            points: nodes without words in this gap, in the order of the source, each with the tags around it.
        """
        if not points and not before and not after:
            self._text(self._answer.text[slice(*gap)])
            return
        shared = _shared(before, after)
        left, right = _sides(before, after, points)
        first = [point.node for depth in range(len(before), shared - 1, -1) for point in left[depth]]
        last = [point.node for depth in range(shared, len(after) + 1) for point in right[depth]]
        is_joint = len(after) > shared and any(pair.node.meets for pair in before[shared:])
        spaces = iter(self._spaces(first, last, gap, is_joint))
        for depth in range(len(before), shared - 1, -1):
            if depth < len(before):
                self._raw(before[depth].node.close or ())
            for point in left[depth]:
                self._text(next(spaces))
                self._point(point)
        self._text(next(spaces))
        for depth in range(shared, len(after) + 1):
            if depth > shared:
                self._raw(after[depth - 1].node.open)
            for point in right[depth]:
                self._point(point)
                self._text(next(spaces))

    def _spaces(self, first: Sequence[Node], last: Sequence[Node], gap: Span, is_joint: bool) -> list[str]:
        """Return the white space before, between and after the nodes without words in a gap.

        It is that of the source; next to a word, only if the gap has white space, or a language with spaces has it
        there. If it is none, and words are apart in the source, the white space of the gap is between `first` and
        `last`.

        Args:
            first: nodes before the white space of the gap.
            last: nodes after it.
            gap: its span.
            is_joint: whether the elements before and after the gap touch in the source.
        """
        nodes, text, (begin, end) = [*first, *last], self._answer.text, gap
        own, spaces = text[begin:end], [""]
        if nodes:
            is_first = own.isspace() or is_spaced(text[max(begin - 1, 0) : begin], OBJECT)
            is_last = own.isspace() or is_spaced(OBJECT, text[end : end + 1])
            before = nodes[0].space[0].replace(END, " " if begin else "") * is_first
            after = nodes[-1].space[1].replace(END, " " if end < len(text) else "") * is_last
            spaces = [before, *starmap(_between, pairwise(nodes)), after]
        is_replaced = is_joint or any(spaces) or any(node.separates for node in nodes)
        spaces[len(first)] += "" if is_replaced and own.isspace() else own
        return spaces

    def _point(self, placed: Placed) -> None:
        """Write a node without words, with its children."""
        waiting: list[Placed | Template | str] = [placed]
        while waiting:
            part = waiting.pop()
            if isinstance(part, str):
                self._text(part)
            elif not isinstance(part, Placed):
                self._raw(part)
            else:
                begin, end = ((), ()) if part.node.vanishes else (part.node.open, part.node.close or ())
                spaces = ["", *(_between(one.node, other.node) for one, other in pairwise(part.children))]
                inner = chain.from_iterable(zip(spaces, part.children, strict=False))
                waiting += reversed([begin, *inner, end])

    def _text(self, text: str) -> None:
        """Write text of the translation, with a piece in place of each OBJECT; adjacent texts become one token, so that
        they are escaped together."""
        for number, part in enumerate(text.split(OBJECT)):
            if number:
                self._raw(next(self._pieces))
            if part and self._tokens and isinstance(self._tokens[-1], list):
                self._tokens[-1].append(part)
            elif part:
                self._tokens.append([part])

    def _raw(self, raw: Template) -> None:
        if raw:
            self._tokens.append(raw)

    def _template(self) -> Template:
        """Return the tokens as a template, with the texts escaped for their places in a line."""
        found: list[Template] = []
        begins = True  # a line of the source
        for token in self._lines():
            if isinstance(token, list):
                escaped = self._segment.escape("".join(token))
                found.append((self._segment.opening(escaped) if begins else escaped,))
            else:
                found.append(token)
            begins = _is_break(token)
        return tuple(chain.from_iterable(found))

    def _lines(self) -> Iterator[list[str] | Template]:
        """Yield the tokens, with line breaks only between lines that have content."""
        is_filled, held = False, None
        for token in self._tokens:
            if _is_break(token):
                held, is_filled = (token if is_filled else held), False
            elif held is None or not isinstance(token, list) or not "".join(token).isspace():
                if held is not None:
                    yield held
                yield token
                is_filled, held = True, None


def _collected(
    placed: Sequence[Placed], num_words: int
) -> tuple[list[list[Placed]], dict[int, list[tuple[tuple[Placed, ...], Placed]]]]:
    """Return the tags around each word, the outermost first; and, by gap, the nodes without words in the order of the
    source, each with the tags around it."""
    stacks: list[list[Placed]] = [[] for _ in range(num_words)]
    gaps: dict[int, list[tuple[tuple[Placed, ...], Placed]]] = defaultdict(list)
    waiting: list[tuple[tuple[Placed, ...], Placed]] = [((), node) for node in reversed(placed)]
    while waiting:
        around, node = waiting.pop()
        if not node.windows:
            gaps[node.gap].append((around, node))
            continue
        for word in chain.from_iterable(starmap(range, node.windows)):
            stacks[word].append(node)
        within = (*around, node)  # one tuple for all children
        waiting += [(within, child) for child in reversed(node.children)]
    for points in gaps.values():
        points.sort(key=lambda point: point[1].order)
    return stacks, gaps


def _is_break(token: list[str] | Template) -> bool:
    """Whether a token is the end of a line, with the beginning of the next one."""
    return isinstance(token, tuple) and isinstance(token[0], str) and token[0].startswith(("\n", "\r"))


def _shared(one: Sequence[Placed], other: Sequence[Placed]) -> int:
    """Return the number of tags that two stacks have in common, from the outermost."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(one, other, strict=False)))


def _sides(
    before: Sequence[Placed], after: Sequence[Placed], points: Sequence[tuple[tuple[Placed, ...], Placed]]
) -> tuple[dict[int, list[Placed]], dict[int, list[Placed]]]:
    """Return the nodes to write before and after the white space of a gap, by the number of tags that are open there.

    A node is written where most of the tags around it are open. If that is equal on both sides, it is written next to
    the word that it stays with. Loose tags with the same parent keep their order, and so do nodes at one place of the
    source: after one of them is on the right, no other is on the left.
    """
    shared = _shared(before, after)
    left: dict[int, list[Placed]] = defaultdict(list)
    right: dict[int, list[Placed]] = defaultdict(list)
    passed: set[tuple[int, int]] = set()  # parents and places in the source of those on the right; -1 for loose tags
    for around, point in points:
        depths = _shared(around, before), _shared(around, after)
        is_left = depths[0] > depths[1] or (depths[0] == depths[1] and _stays_before(point))
        parent = id(around[-1]) if around else 0
        groups = {(parent, point.node.begin), (parent, -1 if point.node.is_loose else point.node.begin)}
        is_left = is_left and passed.isdisjoint(groups)
        passed |= set() if is_left else groups
        side, depth = (left, depths[0]) if is_left else (right, depths[1])
        side[max(depth, shared)].append(point)
    return left, right


def _stays_before(point: Placed) -> bool:
    """Whether a node without words is written before the white space of its gap."""
    known = point.node.stays_before
    return known if known is not None else bool(point.node.space[0]) or point.after_word


def _between(one: Node, other: Node) -> str:
    """Return the white space between two nodes without words; one that is white space itself needs no other."""
    after, before = (space.replace(END, " ") for space in (one.space[1], other.space[0]))
    if one.is_loose or other.is_loose:
        return after and before
    return ("" if is_space(other.open) else after) or ("" if is_space(one.open) else before)
