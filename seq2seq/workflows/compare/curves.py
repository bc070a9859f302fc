"""Learning curves of the runs in a comparison: validation figures over steps, hours and tokens.

`comparison` takes them from each run's metrics.jsonl; the page draws them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seq2seq.errors import DataError
from seq2seq.lines import read_records
from seq2seq.workflows.compare.systems import System
from seq2seq.workflows.runs import is_number, tokenizers, validation_sets

FIGURES = {"valid_loss": "validation loss", "bleu": "BLEU", "chrf": "chrF"}
AXES = ("steps", "hours", "million tokens")
MOST_POINTS = 100


@dataclass(frozen=True)
class Curves:
    """By figure and system, the points (steps, hours, million tokens, value)."""

    points: Mapping[str, Mapping[str, list[tuple[float, float, float, float]]]] = field(default_factory=dict)
    note: str = ""
    """The curves that are left out, and why."""


def curves(systems: Sequence[System]) -> Curves:
    """Return the curves of the runs; figures that cannot be compared are left out, with a note.

    These are the losses of different tokenizers, and all figures on different validation sets.
    """
    by_figure: dict[str, dict[str, list[tuple[float, float, float, float]]]] = {}
    runs = [system.run for system in systems if system.run is not None]
    if len(validation_sets(runs)) > 1:
        return Curves({}, "Curves are not shown: the runs have different validation sets, so their figures are not "
                      "comparable.")  # fmt: skip
    for system in systems:
        if system.run is None or not system.run.folder.metrics.is_file():
            continue
        try:
            records, _ = read_records(system.run.folder.metrics)
        except DataError:
            continue
        for figure in FIGURES:
            if points := _points(records, figure):
                by_figure.setdefault(figure, {})[system.name] = points
    note = ""
    if len(tokenizers(runs)) > 1 and by_figure.pop("valid_loss", None):
        note = "Losses are not shown: the runs have different tokenizers, so their losses are not comparable."
    return Curves({figure: by_figure[figure] for figure in FIGURES if figure in by_figure}, note)


def _points(records: Sequence[Mapping[str, Any]], figure: str) -> list[tuple[float, float, float, float]]:
    """Return the points of a figure; if a step was logged twice, after a resume, the later record counts.

    Validation records have no time, so seconds and tokens are interpolated between the log lines of training.
    """
    done = [(0.0, 0.0, 0.0)]  # steps, seconds, and the tokens until then
    found: dict[float, float] = {}
    for record in records:
        now, speed, step = (record.get(key) for key in ("seconds", "tokens_per_second", "step"))
        if not is_number(step):
            continue
        if is_number(now) and is_number(speed):
            while len(done) > 1 and (done[-1][0] >= step or done[-1][1] > now):  # what a resume trained again
                done.pop()
            _, before, tokens = done[-1]
            done.append((step, now, tokens + max(0.0, now - before) * speed))
        if is_number(value := record.get(figure)):
            found[step] = value
    steps, seconds, tokens = np.array(done).T
    own = sorted(found)
    columns = own, np.interp(own, steps, seconds) / 3600, np.interp(own, steps, tokens) / 1e6, map(found.get, own)
    points = [tuple(map(float, point)) for point in zip(*columns, strict=True)]
    stride = max(1, math.ceil(len(points) / MOST_POINTS))
    return points[::-1][::stride][::-1]
