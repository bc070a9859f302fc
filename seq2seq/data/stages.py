"""Stages of training: how often each part of the corpus is seen in an epoch, and from which epoch on.

`tasks` makes the `Stages` of a run from `data.stages`; the sampler plans epochs with them, and the trainer finds the
borders. Stages are functions of the epoch alone, so a plan is one of (seed, epoch, section), and nothing about them has
to be stored with a stream: a stage that ends early is a stream that continues at the stage's end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Part = tuple[int, int, float]
"""A range of the corpus: start, stop, and the number of times that each of its examples is seen in an epoch."""


@dataclass(frozen=True)
class Stage:
    """One stage; a run without `data.stages` has one without an end."""

    parts: Sequence[Part] = ()
    """The whole corpus, in order; parts that the stage does not see have weight 0."""
    end: float = math.inf
    """The epoch, counted from 0, that begins the next stage."""
    restarts: bool = False
    """Whether the schedule of the learning rate starts again."""
    length: float = 1.0
    """Tokens of an epoch, as a multiple of those of the first stage."""

    @property
    def examples(self) -> float:
        """Number of examples of an epoch."""
        return sum((stop - start) * weight for start, stop, weight in self.parts)


@dataclass(frozen=True)
class Stages:
    """The stages of a run, in order; their ends rise, and the last has none."""

    each: tuple[Stage, ...] = (Stage(),)

    @classmethod
    def of(cls, parts: Sequence[Part]) -> "Stages":
        """Return a single stage."""
        return cls((Stage(parts),))

    @property
    def last(self) -> int:
        """Index of the last stage."""
        return len(self.each) - 1

    def at(self, epoch: float) -> int:
        """Return the index of the stage that an epoch belongs to."""
        return sum(stage.end <= epoch for stage in self.each)

    def start(self, index: int) -> float:
        """Return the epoch with which a stage begins."""
        return self.each[index - 1].end if index else 0.0

    def work(self, epoch: float) -> float:
        """Return how much of training lies before a moment, in epochs of the first stage."""
        done, start = 0.0, 0.0
        for stage in self.each:
            done += (min(epoch, stage.end) - start) * stage.length
            if epoch <= stage.end:
                break
            start = stage.end
        return done

    def epoch_at(self, work: float) -> float:
        """Return the moment before which there is this much work; the inverse of `work`."""
        start = 0.0
        for stage in self.each:
            if work <= (stage.end - start) * stage.length:
                break
            work, start = work - (stage.end - start) * stage.length, stage.end
        return start + work / stage.length

    def schedule(self, index: int) -> tuple[float, float]:
        """Return the epochs between which the schedule of the learning rate runs that is in use in a stage."""
        first = max((number for number in range(index + 1) if self.each[number].restarts), default=0)
        later = (number for number in range(index + 1, len(self.each)) if self.each[number].restarts)
        return self.start(first), self.start(next(later, len(self.each)))


ONE_STAGE = Stages()
"""A stage without an end, for whoever needs only the position in training."""
