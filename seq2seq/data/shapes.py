"""Few shapes of batches: a table of widths, to which training pads, so that each shape can be recorded once.

`tasks` makes a table from the lengths of a corpus where steps are recorded (`training.recorded`). The sampler fills the
shapes, and `stream` pads to them.
"""

from dataclasses import dataclass

import numpy as np

NUM_TARGETS, NUM_SOURCES = 12, 4
# Widths that are tried as bounds: if more lengths occur, only this many of them.
MOST_BOUNDS = 400


@dataclass(frozen=True)
class ShapeTable:
    """Shapes (rows, source width, target width), special ids included.

    An example belongs to the first target width, and the first source width of this target width, that are not shorter.
    """

    targets: np.ndarray  # ascending
    sources: tuple[np.ndarray, ...]  # for each target width, ascending
    rows: np.ndarray  # (targets, NUM_SOURCES), as many as fit in the budgets

    @classmethod
    def of(cls, source: np.ndarray, target: np.ndarray, budgets: tuple[int, int], most_rows: int) -> "ShapeTable":
        """Return the table for examples with these lengths that pads least.

        Args:
            source: lengths of the sources.
            target: lengths of the targets.
            budgets: source and target tokens of a batch.
            most_rows: maximum number of examples in a batch.
        """
        targets = _least_padding(target, NUM_TARGETS)
        group = np.searchsorted(targets, target)
        sources = tuple(_least_padding(source[group == index], NUM_SOURCES) for index in range(len(targets)))
        rows = np.ones((len(targets), NUM_SOURCES), np.int64)
        for index, widths in enumerate(sources):
            fitting = np.minimum(budgets[0] // widths, budgets[1] // targets[index])
            rows[index, : len(widths)] = np.clip(fitting, 1, most_rows)
        return cls(targets, sources, rows)

    def cells(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the number of the shape of each example, for lengths that the table was made for."""
        group, found = np.searchsorted(self.targets, target), np.zeros(len(target), np.int64)
        for index, widths in enumerate(self.sources):
            own = group == index
            found[own] = np.minimum(np.searchsorted(widths, source[own]), len(widths) - 1)
        return group * NUM_SOURCES + found

    def shapes(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows, source widths and target widths of these shapes."""
        group, place = np.divmod(cells, NUM_SOURCES)
        widths = np.array([np.resize(own, NUM_SOURCES) for own in self.sources])
        return self.rows[group, place], widths[group, place], self.targets[group]


def _least_padding(lengths: np.ndarray, count: int) -> np.ndarray:
    """Return at most `count` ascending bounds, the last of which is the longest length, with the least padding if each
    length is padded to the next bound.

    A dynamic programme: the best bounds up to a length are the best with one bound less up to an earlier one, and it.
    """
    bounds, counts = np.unique(lengths, return_counts=True)
    if len(bounds) > MOST_BOUNDS:
        kept = np.unique(np.quantile(lengths, np.linspace(0, 1, MOST_BOUNDS), method="higher").astype(bounds.dtype))
        counts = np.bincount(np.searchsorted(kept, bounds), weights=counts, minlength=len(kept))
        bounds = kept
    before = np.concatenate([[0], np.cumsum(counts)])  # examples up to each bound
    cost = (before[1:, None] - before[None, :]) * bounds[:, None].astype(float)  # to j, from after i: (j, i)
    cost[np.arange(len(before))[None, :] > np.arange(len(bounds))[:, None]] = np.inf
    best, choices = np.concatenate([[0.0], np.full(len(bounds), np.inf)]), []
    for _ in range(min(count, len(bounds))):
        sums = cost + best[None, :]
        choices.append(sums.argmin(axis=1))
        best = np.concatenate([[np.inf], sums.min(axis=1)])
    chosen, end = [], len(bounds)
    for choice in reversed(choices):
        chosen.append(bounds[end - 1])
        end = int(choice[end - 1])
        if end == 0:
            break
    return np.array(chosen[::-1])
