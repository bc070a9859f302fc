"""Where the tags of a text belong in its translation.

A pair of tags goes to the words that stand for the words in it: the window whose weight inside minus outside is most.
Windows are chosen from the outside to the inside, each within that of the pair around it and beside those of others, so
that the result is a tree, whatever the alignment says.

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

# A pair that may be repeated is, for words apart from its best window, where they weigh this much of one word ...
LEAST_REPEATED = 0.6
# ... and this share of the best window.
LEAST_SHARE = 0.25
Region = tuple[int, int]


@dataclass
class Placed:
    """A node in the translation."""

    node: Node
    windows: list[Region] = field(default_factory=list)
    """Of target words, in order; empty for what stands at one place, or whose words have vanished."""
    gap: int = 0
    """Before which target word it stands then."""
    after_word: bool = True
    """It belongs to the word before it."""
    children: list["Placed"] = field(default_factory=list)
    order: int = 0
    """In the source."""

    @property
    def begin(self) -> int:
        """The first target word, or the gap."""
        return self.windows[0][0] if self.windows else self.gap


class Projection:
    """Both texts as words, and what links them. Each node costs what the words in it cost, and not the whole text.

    Args:
        source: words of the source, which markup is not within.
        target: words of the translation.
        links: target word, source word, and how much the one stands for the other, not negative; by index.
        is_mark: whether each word is a punctuation mark, of both sides.
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
        self._partners: dict[int, tuple[float, int]] = {}  # of source words: the most of a target word, and which
        for column, group in groupby(found, key=lambda link: link[0]):
            of_rows: dict[int, float] = defaultdict(float)
            for _, row, weight in group:
                of_rows[row] += weight
            row = min(of_rows, key=lambda row: (-of_rows[row], row))
            self._partners[column] = of_rows[row], row
        self._linked = sorted(self._partners)
        self._order = 0

    def place(self, nodes: Sequence[Node]) -> list[Placed]:
        """The nodes of a text in its translation, in the order of the source."""
        return self._within(nodes, [(0, len(self._target))], (0, len(self._source)))

    def _words(self, node: Node) -> Region:
        """The source words that a node encloses, also in part; what stands at one place stands before the first."""
        last = bisect_left(self._begins, node.end)
        first = last if node.begin == node.end else bisect_right(self._ends, node.begin)
        return first, max(first, last)

    def _support(self, words: Region) -> tuple[int, np.ndarray]:
        """How much of these source words each target word has, from the first to the last that has any; and where the
        first one is."""
        links = slice(bisect_left(self._columns, words[0]), bisect_left(self._columns, words[1]))
        rows = self._rows[links]
        if not len(rows):
            return 0, np.zeros(0)
        first = int(rows.min())
        return first, np.bincount(rows - first, self._values[links])

    def _within(self, nodes: Sequence[Node], regions: list[Region], around: Region) -> list[Placed]:
        """Nodes that are children of one whose source words and target regions these are."""
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
        taken = sorted(window for one in placed for window in one.windows)
        loose = 0  # where the last loose tag stands: they keep their order
        for one, span in zip(placed, words, strict=True):
            if not one.windows:
                one.gap, one.after_word = self._gap(one.node, span, around, regions, taken)
            if one.node.is_loose:
                one.gap = loose = max(one.gap, loose)
            one.children = self._within(one.node.children, one.windows or [(one.gap, one.gap)], span)
        return placed

    def _chosen(self, node: Node, words: Region, free: list[Region]) -> list[Region]:
        found = self._windows(words, free)
        if not found:
            return self._partner(words, free)
        found.sort(key=lambda one: (-one[0], one[1]))
        (most, window), *others = found
        chosen = [window]
        if node.repeats and not any(_is_single(child) for child in node.children):
            least = max(LEAST_REPEATED, LEAST_SHARE * most)
            chosen += [other for score, other in others if score >= least]
        return _merged(sorted(chosen))

    def _partner(self, words: Region, free: list[Region]) -> list[Region]:
        """The word that stands for them most, where none does so more than for others."""
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
        """Windows of target words that stand for source words, with their weights: in each region the best one, and
        then the best ones beside it."""
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
        """Marks at the ends stay outside, unless the source has some inside at that end."""
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
        """The place of what has no words: beside the partner of the word before or behind it, within the regions."""
        first, last = words
        if first <= around[0] and around[0] > 0:
            return regions[0][0], False
        if last >= around[1] and around[1] < len(self._source):
            return regions[-1][1], True
        gap, after_word = self._beside(node, first, last, around)
        place = bisect_right(regions, gap, key=lambda region: region[0])
        near = [min(max(gap, begin), end) for begin, end in regions[max(place - 1, 0) : place + 1]]
        gap = min(near, key=lambda place: abs(place - gap))
        for begin, end in taken[max(bisect_left(taken, gap, key=lambda window: window[0]) - 1, 0) :][:1]:
            if begin < gap < end:
                gap = begin if gap - begin < end - gap else end
        return gap, after_word

    def _beside(self, node: Node, first: int, last: int, around: Region) -> tuple[int, bool]:
        """Beside the partner of the nearest word that has one."""
        place = bisect_left(self._linked, first), bisect_left(self._linked, last)
        choices = []  # distance, weight, whether no space is between, gap, whether it is behind its word
        if place[0] and (column := self._linked[place[0] - 1]) >= around[0]:
            weight, row = self._partners[column]
            choices.append((first - 1 - column, weight, not node.space_before, row + 1, True))
        if place[1] < len(self._linked) and (column := self._linked[place[1]]) < around[1]:
            weight, row = self._partners[column]
            choices.append((column - last, weight, not node.space_behind, row, False))
        if not choices:
            return round(first / max(len(self._source), 1) * len(self._target)), True
        nearest = min(choices)[0]
        choices = [choice for choice in choices if choice[0] == nearest]
        glued = [choice for choice in choices if choice[2]] if not nearest else []
        if len(glued) == 1 and not node.is_space:
            choices = glued
        _, _, _, gap, after_word = max(choices, key=lambda choice: choice[1])
        return gap, after_word


def _is_single(node: Node) -> bool:
    """Whether it is written exactly once, and has a partner that has to be in the same window."""
    return node.is_loose or (node.close is not None and not node.repeats)


def _largest(scores: Sequence[float], begin: int, end: int) -> list[tuple[float, Region]]:
    """The windows of a region with the largest sums, each as large as it can be, and apart (Ruzzo and Tompa 1999, "A
    Linear Time Algorithm for Finding All Maximal Scoring Subsequences")."""
    # The sum before a window and behind it, where it begins and ends, and the last window before it with a smaller sum.
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
    """Take a window out of sorted regions, one of which it is in."""
    place = bisect_right(regions, window[0], key=lambda region: region[0]) - 1
    begin, end = regions[place]
    regions[place : place + 1] = [part for part in ((begin, window[0]), (window[1], end)) if part[0] < part[1]]


def _merged(windows: list[Region]) -> list[Region]:
    merged = [windows[0]]
    for begin, end in windows[1:]:
        if begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged
