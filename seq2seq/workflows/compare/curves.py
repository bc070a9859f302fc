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
from seq2seq.workflows.comparable import validated_differently
from seq2seq.workflows.compare.systems import System
from seq2seq.workflows.runs import is_number

FIGURES = {"valid_loss": "validation loss", "bleu": "BLEU", "chrf": "chrF"}
AXES = ("steps", "hours", "million tokens")
KEYS = ("step", "seconds", "tokens_per_second", "tokens_per_step")
MOST_POINTS = 100


@dataclass(frozen=True)
class Curves:
    """By figure and system, the points (steps, hours, million tokens, value)."""

    points: Mapping[str, Mapping[str, list[tuple[float, float, float, float]]]] = field(default_factory=dict)
    note: str = ""
    """The curves that are left out, and why."""


def curves(systems: Sequence[System]) -> Curves:
    """Return the curves of the runs; figures that cannot be compared are left out, with a note."""
    by_figure: dict[str, dict[str, list[tuple[float, float, float, float]]]] = {figure: {} for figure in FIGURES}
    runs = {system.name: system.run for system in systems if system.run is not None}
    for name, run in runs.items():
        if not run.folder.metrics.is_file():
            continue
        try:
            records, _ = read_records(run.folder.metrics)
        except DataError:
            continue
        for figure, lines in by_figure.items():
            if points := _points(records, figure):
                lines[name] = points
    kinds = {
        figure: validated_differently([runs[name] for name in lines], figure) for figure, lines in by_figure.items()
    }
    notes = []
    for kind in dict.fromkeys(filter(None, kinds.values())):
        titles = ", ".join(title for figure, title in FIGURES.items() if kinds[figure] == kind)
        notes.append(
            f"There are no curves of {titles}: the runs have different {kind}, so these figures cannot be compared."
        )
    kept = {figure: lines for figure, lines in by_figure.items() if lines and not kinds[figure]}
    return Curves(kept, " ".join(notes))


def _points(records: Sequence[Mapping[str, Any]], figure: str) -> list[tuple[float, float, float, float]]:
    """Return the points of a figure; if a step was logged twice, after a resume, the later record counts.

    Validation records have no time, so seconds and tokens are interpolated between the log lines of training.
    """
    lines = [(0.0, 0.0, math.nan, math.nan)]  # steps, seconds, tokens a second, and tokens a step since the line before
    others, found = [], {}
    for record in records:
        step, now, speed, rate = (record.get(key) for key in KEYS)
        if not is_number(step):
            continue
        if is_number(now) and is_number(speed):
            while len(lines) > 1 and (lines[-1][0] >= step or lines[-1][1] > now):  # what a resume trained again
                lines.pop()
            lines.append((step, now, speed, rate if is_number(rate) else math.nan))
        else:
            others.append(step)
        if is_number(value := record.get(figure)):
            found[step] = value
    table = np.array(lines)
    own = sorted(found)
    columns = np.interp(own, table[:, 0], table[:, 1]) / 3600, np.interp(own, table[:, 0], _tokens(table, others)) / 1e6
    points = [tuple(map(float, point)) for point in zip(own, *columns, map(found.get, own), strict=True)]
    stride = max(1, math.ceil(len(points) / MOST_POINTS))
    return points[::-1][::stride][::-1]


def _tokens(lines: np.ndarray, others: Sequence[float]) -> np.ndarray:
    """Return the tokens until each log line of training; `others` are the steps of other records.

    Earlier versions did not log tokens a step. Seconds times tokens a second give them, except where the seconds
    include a validation: those lines have the median of the others.
    """
    num_steps, seconds = np.diff(lines[:, :2], axis=0).T
    speeds, rates = lines[1:, 2:].T
    is_logged = np.isfinite(rates)
    rates = np.where(is_logged, rates, seconds * speeds / np.maximum(num_steps, 1))
    # a record of the same step as a log line comes after it
    has_others = np.isin(np.arange(1, len(lines)), np.searchsorted(lines[:, 0], others, side="right"))
    if (is_known := is_logged | ~has_others).any():
        rates = np.where(is_known, rates, np.median(rates[is_known]))
    return np.concatenate([[0.0], np.cumsum(rates * num_steps)])
