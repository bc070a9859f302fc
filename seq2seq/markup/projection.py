"""Where the tags of a text belong in its translation.

A pair of tags goes to the words that stand for the words in it: the window whose weight inside minus outside is most.
Windows are chosen from the outside to the inside, each within that of the pair around it and beside those of others, so
that the result is a tree, whatever the alignment says.

Shapes: J target words, I source words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    """Both texts as words, and what links them.

    Args:
        source: words of the source, which markup is not within.
        target: words of the translation.
        weights: how much each target word stands for each source word, not negative, (J, I).
        is_mark: whether each word is a punctuation mark, of both sides.
    """

    def __init__(
        self,
        source: Sequence[Span],
        target: Sequence[Span],
        weights: np.ndarray,
        is_mark: tuple[Sequence[bool], Sequence[bool]],
    ):
        self._source, self._target, self._weights = source, target, weights
        self._source_marks, self._target_marks = is_mark
        self._totals = weights.sum(1)  # (J,)
        self._order = 0

    def place(self, nodes: Sequence[Node]) -> list[Placed]:
        """The nodes of a text in its translation, in the order of the source."""
        return self._within(nodes, [(0, len(self._target))], (0, len(self._source)))

    def _words(self, node: Node) -> Region:
        """The source words that a node encloses, also in part; what stands at one place stands before the first."""
        first = sum(1 for begin, end in self._source if end <= node.begin)
        last = sum(1 for begin, end in self._source if begin < node.end)
        if node.begin == node.end:
            first = last = sum(1 for begin, end in self._source if begin < node.begin)
        return first, max(first, last)

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
                free = _without(free, window)
        taken = sorted(window for one in placed for window in one.windows)
        for one, span in zip(placed, words, strict=True):
            if not one.windows:
                one.gap, one.after_word = self._gap(one.node, span, around, regions, taken)
            own = one.windows or [(one.gap, one.gap)]
            one.children = self._within(one.node.children, own, span)
        return placed

    def _chosen(self, node: Node, words: Region, free: list[Region]) -> list[Region]:
        found = self._windows(words, free)
        if not found:
            return self._partner(words, free)
        found.sort(key=lambda one: (-one[0], one[1]))
        (most, window), *others = found
        chosen = [window]
        if node.repeats and not any(child.close is not None and not child.repeats for child in node.children):
            least = max(LEAST_REPEATED, LEAST_SHARE * most)
            chosen += [other for score, other in others if score >= least]
        return _merged(sorted(chosen))

    def _partner(self, words: Region, free: list[Region]) -> list[Region]:
        """The word that stands for them most, where none does so more than for others."""
        inside = self._weights[:, words[0] : words[1]].sum(1)
        rows = [row for begin, end in free for row in range(begin, end) if inside[row] > 0]
        best = max(rows, key=lambda row: float(inside[row]), default=None)
        window = None if best is None else self._without_marks((best, best + 1), words)
        return [window] if window else []

    def _windows(self, words: Region, free: list[Region]) -> list[tuple[float, Region]]:
        """Windows of target words that stand for source words, with their weights: in each region the best one, and
        then the best ones beside it."""
        first, last = words
        if first == last:
            return []
        inside = self._weights[:, first:last].sum(1)
        scores = 2 * inside - self._totals  # inside - outside, (J,)
        found, waiting = [], list(free)
        while waiting:
            region = waiting.pop()
            score, window = _largest(scores, region)
            if score <= 1e-9:
                continue
            waiting += [(region[0], window[0]), (window[1], region[1])]
            if trimmed := self._without_marks(window, words):
                found.append((score, trimmed))
        return found

    def _without_marks(self, window: Region, words: Region) -> Region | None:
        """Marks at the ends stay outside, unless the source has some inside at that end."""
        begin, end = window
        first, last = words
        if not all(self._source_marks[first:last]):
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
        gap = min((min(max(gap, begin), end) for begin, end in regions), key=lambda place: abs(place - gap))
        for begin, end in taken:
            if begin < gap < end:
                gap = begin if gap - begin < end - gap else end
        return gap, after_word

    def _beside(self, node: Node, first: int, last: int, around: Region) -> tuple[int, bool]:
        count = max(len(self._source), 1)
        if not self._weights.size:
            return 0, False
        for distance in range(count):
            before, behind = first - 1 - distance, last + distance
            choices = []
            if before >= around[0]:
                row = int(self._weights[:, before].argmax())
                choices.append((float(self._weights[row, before]), not node.space_before, row + 1, True))
            if behind < around[1]:
                row = int(self._weights[:, behind].argmax())
                choices.append((float(self._weights[row, behind]), not node.space_behind, row, False))
            glued = [choice for choice in choices if choice[0] > 0 and choice[1]] if not distance else []
            if len(glued) == 1 and not node.is_space:
                choices = glued
            weight, _, gap, after_word = max(choices, key=lambda choice: choice[0], default=(0.0, False, 0, False))
            if weight > 0:
                return gap, after_word
        return round(first / count * len(self._target)), True


def _largest(scores: np.ndarray, region: Region) -> tuple[float, Region]:
    """The window of a region with the largest sum, the shortest and first of equal ones."""
    best, window = 0.0, (region[0], region[0])
    total, begin = 0.0, region[0]
    for index in range(*region):
        if total <= 1e-9:
            total, begin = 0.0, index
        total += float(scores[index])
        if total > best + 1e-9:
            best, window = total, (begin, index + 1)
    return best, window


def _without(regions: list[Region], window: Region) -> list[Region]:
    left = []
    for begin, end in regions:
        if window[0] >= end or window[1] <= begin:
            left.append((begin, end))
        else:
            left += [part for part in ((begin, window[0]), (window[1], end)) if part[0] < part[1]]
    return left


def _merged(windows: list[Region]) -> list[Region]:
    merged = [windows[0]]
    for begin, end in windows[1:]:
        if begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged
