"""Projection of the tags of a text to its translation.

A pair of tags is placed around the window of target words with the largest alignment weight to the words in the pair,
minus the weight to other words. Outer pairs are placed first; an inner pair is placed within the window of its outer
pair and apart from other windows, so that the result is a tree for any alignment. `render` makes a `Projection` of each
segment, and writes the nodes that it returns as `Placed`.

Shapes: J target words, I source words.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, islice

import numpy as np

from seq2seq.markup.document import Node
from seq2seq.text.words import Span

# A repeatable pair is also written around words outside its best window if their weight is at least this, in words, ...
LEAST_REPEATED = 0.6
# ... and at least this share of the weight of the best window.
LEAST_SHARE = 0.25
Region = tuple[int, int]


@dataclass
class Placed:
    """A node with its place in the translation."""

    node: Node
    windows: list[Region] = field(default_factory=list)
    """Windows of target words, in order; empty for a standalone tag, or if its words have no counterpart."""
    gap: int = 0
    """Index of the target word that it precedes, if it has no windows."""
    after_word: bool = True
    """Whether it belongs to the word before the gap rather than the word after it."""
    children: list["Placed"] = field(default_factory=list)
    order: int = 0
    """Position among the nodes of the source."""

    @property
    def begin(self) -> int:
        """The first target word, or the gap if there are no windows."""
        return self.windows[0][0] if self.windows else self.gap


class Projection:
    """The words of both texts and their alignment. The cost of placing a node depends on its words, not on the whole
    text.

    Args:
        source: words of the source; one in which markup begins or ends counts as inside.
        target: words of the translation.
        links: indices of a target word and a source word, and the weight of their alignment, not negative.
        is_mark: whether each word is a punctuation mark, for the source and for the target.
    """

    def __init__(
        self,
        source: Sequence[Span],
        target: Sequence[Span],
        links: Iterable[tuple[int, int, float]],
        is_mark: tuple[Sequence[bool], Sequence[bool]],
    ):
        self._source, self._target = source, target
        self._begins, self._ends = [begin for begin, _ in source], [end for _, end in source]
        self._source_marks, self._target_marks = is_mark
        self._words_before = [0, *accumulate(not mark for mark in is_mark[0])]  # of the source, without marks
        found = sorted((column, row, weight) for row, column, weight in links if weight > 0)
        self._columns = [column for column, _, _ in found]
        self._rows = np.array([row for _, row, _ in found], np.int64)
        self._values = np.array([weight for _, _, weight in found])
        self._totals = np.bincount(self._rows, self._values, len(target)) if found else np.zeros(len(target))  # (J,)
        self._partners: dict[
            int, tuple[float, int]
        ] = {}  # of source words: the largest weight of a target word, and its index
        for column, group in groupby(found, key=lambda link: link[0]):
            of_rows: dict[int, float] = defaultdict(float)
            for _, row, weight in group:
                of_rows[row] += weight
            row = min(of_rows, key=lambda row: (-of_rows[row], row))
            self._partners[column] = of_rows[row], row
        self._linked = sorted(self._partners)
        self._order = 0

    def place(self, nodes: Sequence[Node]) -> list[Placed]:
        """Return the nodes of a text with their places in its translation, in the order of the source."""
        placed: list[Placed] = []
        waiting = [(nodes, [(0, len(self._target))], (0, len(self._source)), placed)]
        while waiting:
            siblings, regions, around, found = waiting.pop()
            found += self._within(siblings, regions, around)
            for parent in reversed(found):
                within = parent.windows or [(parent.gap, parent.gap)]
                waiting.append((parent.node.children, within, self._words(parent.node), parent.children))
        return placed

    def _words(self, node: Node) -> Region:
        """Return the range of source words that a node encloses, even in part; a standalone tag has an empty range
        before the next word."""
        last = bisect_left(self._begins, node.end)
        first = last if node.begin == node.end else bisect_right(self._ends, node.begin)
        return first, max(first, last)

    def _support(self, words: Region) -> tuple[int, np.ndarray]:
        """Return the first target word with a link to these source words, and the weights of the target words from
        there to the last one."""
        links = slice(bisect_left(self._columns, words[0]), bisect_left(self._columns, words[1]))
        rows = self._rows[links]
        if not len(rows):
            return 0, np.zeros(0)
        first = int(rows.min())
        return first, np.bincount(rows - first, self._values[links])

    def _within(self, nodes: Sequence[Node], regions: list[Region], around: Region) -> list[Placed]:
        """Return sibling nodes, without their children, at places in these target regions; `around` is the range of
        source words of their parent."""
        placed = []
        for node in nodes:
            placed.append(Placed(node, order=self._order))
            self._order += 1
        words = [self._words(node) for node in nodes]
        pairs = [index for index, node in enumerate(nodes) if node.close is not None]
        best = {
            index: max((score for score, _ in self._windows(words[index], regions)), default=0.0) for index in pairs
        }
        free = list(regions)
        for index in sorted(pairs, key=lambda index: (-best[index], index)):
            placed[index].windows = self._chosen(nodes[index], words[index], free)
            for window in placed[index].windows:
                _take(free, window)
        taken = sorted(window for sibling in placed for window in sibling.windows)
        loose = 0  # the gap of the last loose tag, because loose tags keep their order
        for sibling, span in zip(placed, words, strict=True):
            if not sibling.windows:
                sibling.gap, sibling.after_word = self._gap(sibling.node, span, around, regions, taken)
            if sibling.node.is_loose:
                sibling.gap = loose = max(sibling.gap, loose)
        return placed

    def _chosen(self, node: Node, words: Region, free: list[Region]) -> list[Region]:
        """Return the windows of a pair in free regions: the best one, and others if the pair may be repeated."""
        found = self._windows(words, free)
        if not found:
            return self._partner(words, free)
        found.sort(key=lambda scored: (-scored[0], scored[1]))
        (most, window), *others = found
        chosen = [window]
        if node.repeats and not any(_is_single(child) for child in node.children):
            least = max(LEAST_REPEATED, LEAST_SHARE * most)
            chosen += [other for score, other in others if score >= least]
        return _merged(sorted(chosen))

    def _partner(self, words: Region, free: list[Region]) -> list[Region]:
        """Return the window of the target word with the largest weight, if no window has more weight inside than
        outside."""
        first, inside = self._support(words)
        rows = [
            row
            for begin, end in _overlapping(free, first, first + len(inside))
            for row in range(begin, end)
            if inside[row - first] > 0
        ]
        best = max(rows, key=lambda row: float(inside[row - first]), default=None)
        window = None if best is None else self._without_marks((best, best + 1), words)
        return [window] if window else []

    def _windows(self, words: Region, free: list[Region]) -> list[tuple[float, Region]]:
        """Return windows of target words that correspond to source words, with their weights: all maximal windows of
        each region."""
        first, inside = self._support(words)
        if not len(inside):
            return []
        scores = (2 * inside - self._totals[first : first + len(inside)]).tolist()  # inside - outside
        found = []
        for begin, end in _overlapping(free, first, first + len(inside)):
            for score, window in _largest(scores, begin - first, end - first):
                if trimmed := self._without_marks((window[0] + first, window[1] + first), words):
                    found.append((score, trimmed))
        return found

    def _without_marks(self, window: Region, words: Region) -> Region | None:
        """Return a window without punctuation marks at its ends, unless the source has marks inside at that end; None
        if nothing remains."""
        begin, end = window
        first, last = words
        if self._words_before[first] < self._words_before[last]:
            while begin < end and self._target_marks[begin] and not self._source_marks[first]:
                begin += 1
            while begin < end and self._target_marks[end - 1] and not self._source_marks[last - 1]:
                end -= 1
        return (begin, end) if begin < end else None

    def _gap(
        self, node: Node, words: Region, around: Region, regions: list[Region], taken: list[Region]
    ) -> tuple[int, bool]:
        """Return the gap of a node without words, next to the counterpart of the word before or after it and within the
        regions, and whether it belongs to the word before the gap."""
        first, last = words
        if first <= around[0] and around[0] > 0:
            return regions[0][0], False
        if last >= around[1] and around[1] < len(self._source):
            return regions[-1][1], True
        gap, after_word = self._beside(node, words, around)
        place = bisect_right(regions, gap, key=lambda region: region[0])
        near = [min(max(gap, begin), end) for begin, end in regions[max(place - 1, 0) : place + 1]]
        gap = min(near, key=lambda place: abs(place - gap))
        for begin, end in taken[max(bisect_left(taken, gap, key=lambda window: window[0]) - 1, 0) :][:1]:
            if begin < gap < end:
                gap = begin if gap - begin < end - gap else end
        return gap, after_word

    def _beside(self, node: Node, words: Region, around: Region) -> tuple[int, bool]:
        """Return the gap next to the counterpart of a word near the node, and whether it is after that word.

        Of the nearest word before and the nearest word after the node that have a counterpart, the nearer one decides.
        If both are equally near, it is the neighbour that the node touches, if it touches only one; else the word with
        the larger weight. Without such words the gap is proportional to the place of the node.
        """
        first, last = words
        place = bisect_left(self._linked, first), bisect_left(self._linked, last)
        before = [column for column in self._linked[max(place[0] - 1, 0) : place[0]] if column >= around[0]]
        after = [column for column in self._linked[place[1] : place[1] + 1] if column < around[1]]
        if not before and not after:
            return round(first / max(len(self._source), 1) * len(self._target)), True
        after_word = not after
        if before and after:
            distances = first - 1 - before[0], after[0] - last
            if distances[0] != distances[1]:
                after_word = distances[0] < distances[1]
            elif distances[0] == 0 and node.stays_before is not None:
                after_word = node.stays_before
            else:
                after_word = self._partners[before[0]][0] >= self._partners[after[0]][0]
        _, row = self._partners[before[0] if after_word else after[0]]
        return row + after_word, after_word


def _is_single(node: Node) -> bool:
    """Whether a node must be written exactly once, and with its partner in the same window."""
    return node.is_loose or (node.close is not None and not node.repeats)


def _largest(scores: Sequence[float], begin: int, end: int) -> list[tuple[float, Region]]:
    """Return the maximal windows of a region with the largest sums, which do not overlap (Ruzzo and Tompa 1999, "A
    Linear Time Algorithm for Finding All Maximal Scoring Subsequences")."""
    # Sums before and after a window, its begin and end, and the index of the last earlier window with a smaller sum.
    found: list[tuple[float, float, int, int, int]] = []
    total = 0.0
    for index in range(begin, end):
        before, total = total, total + scores[index]
        if scores[index] <= 1e-9:
            continue
        first, smaller = index, len(found) - 1
        while True:
            while smaller >= 0 and found[smaller][0] >= before:
                smaller = found[smaller][4]
            if smaller < 0 or found[smaller][1] >= total:
                found.append((before, total, first, index + 1, smaller))
                break
            before, _, first, _, next_smaller = found[smaller]
            del found[smaller:]
            smaller = next_smaller
    return [(after - before, (first, last)) for before, after, first, last, _ in found]


def _overlapping(regions: list[Region], begin: int, end: int) -> list[Region]:
    """Return the parts of sorted regions that are between two places."""
    first = bisect_right(regions, begin, key=lambda region: region[1])
    found = []
    for left, right in islice(regions, first, None):
        if left >= end:
            break
        found.append((max(left, begin), min(right, end)))
    return found


def _take(regions: list[Region], window: Region) -> None:
    """Remove a window from the one of the sorted regions that contains it."""
    place = bisect_right(regions, window[0], key=lambda region: region[0]) - 1
    begin, end = regions[place]
    regions[place : place + 1] = [part for part in ((begin, window[0]), (window[1], end)) if part[0] < part[1]]


def _merged(windows: list[Region]) -> list[Region]:
    """Return sorted windows with adjacent ones joined."""
    merged = [windows[0]]
    for begin, end in windows[1:]:
        if begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged
