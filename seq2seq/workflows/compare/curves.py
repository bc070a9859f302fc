"""Learning curves of the runs in a comparison: validation figures over steps, hours and tokens.

`comparison` takes them from each run's metrics.jsonl; the page draws them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seq2seq.errors import DataError
from seq2seq.lines import read_records
from seq2seq.tasks.run_folder import TOKENIZER, read_note
from seq2seq.workflows.compare.systems import System
from seq2seq.workflows.runs import is_number

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
    """Return the curves of the runs; losses of different tokenizers cannot be compared and are left out."""
    by_figure: dict[str, dict[str, list[tuple[float, float, float, float]]]] = {}
    tokenizers = set()
    for system in systems:
        if system.run is None or not system.run.folder.metrics.is_file():
            continue
        try:
            records, _ = read_records(system.run.folder.metrics)
        except DataError:
            continue
        tokenizers.add(read_note(system.run.folder.identity).get(TOKENIZER))
        for figure in FIGURES:
            if points := _points(records, figure):
                by_figure.setdefault(figure, {})[system.name] = points
    note = ""
    if len(tokenizers) > 1 and by_figure.pop("valid_loss", None):
        note = "Losses are not shown: the runs have different tokenizers, so their losses are not comparable."
    return Curves({figure: by_figure[figure] for figure in FIGURES if figure in by_figure}, note)


def _points(records: Sequence[Mapping[str, Any]], figure: str) -> list[tuple[float, float, float, float]]:
    """Return the points of a figure; if a step was logged twice, after a resume, the later record counts."""
    done = [(0.0, 0.0)]  # seconds, and the tokens until then
    found: dict[float, tuple[float, float, float, float]] = {}
    for record in records:
        now, speed, step = (record.get(key) for key in ("seconds", "tokens_per_second", "step"))
        if is_number(now):
            while len(done) > 1 and done[-1][0] > now:  # what was trained after the checkpoint of a resume
                done.pop()
            before, tokens = done[-1]
            done.append((now, tokens + max(0.0, now - before) * (speed if is_number(speed) else 0.0)))
        if is_number(step) and is_number(value := record.get(figure)):
            found[step] = step, done[-1][0] / 3600, done[-1][1] / 1e6, value
    points = [found[step] for step in sorted(found)]
    stride = max(1, math.ceil(len(points) / MOST_POINTS))
    return points[::-1][::stride][::-1]
