"""The stages of a run, from `data.stages`, and their description: the shares of sources and directions in an epoch.

`tasks.task` makes the stages from its corpus; `tasks.run` shows the lines before training.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import getLogger
from typing import Any

from seq2seq.config.corpora import DataConfig
from seq2seq.data.corpus import TokenCorpus
from seq2seq.data.directions import Group, sizes_of
from seq2seq.data.examples import Source
from seq2seq.data.stages import Part, Stage, Stages
from seq2seq.errors import DataError, some_of

logger = getLogger(__name__)

WHY_EMPTY = "sources before it in data.train have the same examples, or data.filters removes them"

Weigh = Callable[[list[Part]], list[Part]]


def stages_of(
    data: DataConfig, names: Sequence[str | None], parts: list[Part], weigh: Weigh, tokens: Callable[[list[Part]], int]
) -> Stages:
    """Return the stages of a run; a run without `data.stages` has one.

    Args:
        data: the section of the configuration.
        names: the name of the source of each part.
        parts: the parts of the corpus, with the weights of the sources.
        weigh: returns the parts of a stage with their final weights.
        tokens: returns the number of tokens of an epoch.

    Raises:
        DataError: a stage sees only sources without an example.
    """
    if not data.stages:
        return Stages.of(weigh(parts))
    found: list[Stage] = []
    for index, stage in enumerate(data.stages):
        own = zip(parts, names, strict=True)
        given = [(start, stop, stage.weights.get(name, 0.0)) for (start, stop, _), name in own]
        if not any(stop - start for start, stop, weight in given if weight):
            seen = some_of([name for name, weight in stage.weights.items() if weight])
            raise DataError(
                f"data.stages.{index}: no example of {seen} is left: {WHY_EMPTY}; "
                "reorder data.train or relax data.filters"
            )
        weighed = weigh(given)
        end = math.inf if stage.until_epoch is None else float(stage.until_epoch)
        length = max(1, tokens(weighed)) / max(1, tokens(list(found[0].parts))) if found else 1.0
        found.append(Stage(weighed, end, stage.restart, length))
    return Stages(tuple(found))


def warn_of_empty(sources: Sequence[Source], corpus: TokenCorpus) -> None:
    """Log a warning for each source without an example in the corpus that was made of them."""
    sizes = [stop - start for start, stop, _ in corpus.parts]
    for name in dict.fromkeys(one.name for one, size in zip(sources, sizes, strict=True) if not size):
        logger.warning("%s: no example is left: %s", name, WHY_EMPTY)


@dataclass(frozen=True)
class Share:
    """The share of a source or a direction in an epoch; its text is a line for people, without the name."""

    examples: int
    before: float
    """The share without temperature and weights."""
    after: float
    times: float
    """How often each example is seen in an epoch, on average."""
    noun: str = "pairs"

    def __str__(self) -> str:
        shares = f"{100 * self.before:.3g} % of all, {100 * self.after:.3g} % of an epoch"
        return f"{self.examples:,} {self.noun}, {shares}, each seen {self.times:.3g} time{'s' * (self.times != 1)}"


def shares_of(
    weighed: Sequence[Part], parts: Sequence[Part], groups: Sequence[Group], noun: str = "pairs"
) -> dict[Group, Share]:
    """Return the share of each group of parts, such as a direction.

    Args:
        weighed: the parts of a stage, as the sampler sees them.
        parts: those of the corpus.
        groups: the group of each.
        noun: the name of examples.
    """
    sizes, seen = sizes_of(parts, groups), dict.fromkeys(groups, 0.0)
    for (start, stop, weight), group in zip(weighed, groups, strict=True):
        seen[group] += (stop - start) * weight
    total, total_seen = sum(sizes.values()), sum(seen.values())
    return {
        group: Share(size, size / total, seen[group] / total_seen, seen[group] / max(size, 1), noun)
        for group, size in sizes.items()
    }


def epochs_of(records: Iterable[Mapping[str, Any]], step: int) -> dict[int, tuple[float, float]]:
    """Return the first and the last epoch of each stage that the model of a step was trained in, by the stage's index.

    The last is infinite for the stage that training was in. `records` are those of metrics.jsonl.
    """
    if step == 0:
        return {}
    borders: list[Mapping[str, Any]] = []
    for record in records:
        if "rollback" in record:  # what followed the checkpoint was forgotten
            borders = [border for border in borders if border["step"] <= record["step"]]
        elif "stage" in record and record["step"] < step:
            borders.append(record)
    found: dict[int, tuple[float, float]] = {}
    index, first = 0, 0.0
    for border in borders:
        found[index] = first, border.get("ended", border["epoch"])
        index, first = border["stage"] - 1, border["epoch"]
    return {**found, index: (first, math.inf)}


def stage_title(stages: Stages, index: int, epochs: tuple[float, float] | None = None) -> str:
    """Return the heading of a line about a stage; empty if there is only one.

    `epochs` are the first and the last, if they are not those of the plan.
    """
    if not stages.last:
        return ""
    start, end = epochs or (stages.start(index), stages.each[index].end)
    span = f"from epoch {start:g}" if math.isinf(end) else f"epochs {start:g} to {end:g}"
    restarts = ", the schedule of the learning rate starts again" * (index > 0 and stages.each[index].restarts)
    return f"stage {index + 1} of {stages.last + 1}, {span}{restarts}"
