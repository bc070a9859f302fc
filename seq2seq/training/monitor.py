"""The reports of a run: metrics.jsonl, samples.txt, trackers, and a progress bar or log lines.

The trainer of the main rank writes through a `Monitor`; people and plots read the files. A run that continues cuts the
files to the lengths in its checkpoint, so that they end as if the run had never been interrupted.
"""

import importlib.util
import json
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seq2seq.config.schema import TrainingConfig
from seq2seq.data.stages import ONE_STAGE, Stages
from seq2seq.errors import RunError
from seq2seq.training.activity import Activity, Phase
from seq2seq.training.progress import LiveLine, clock, estimate, foreseen_steps, too_long, unreached
from seq2seq.training.state import SE, Sample, is_standard_error
from seq2seq.training.trackers import TENSORBOARD, Outcome, TrackedRun, Trackers

METRICS, SAMPLES = "metrics.jsonl", "samples.txt"
SECONDS_TO_ESTIMATE = 5.0

log = logging.getLogger(__name__)


def _worst(name: str, record: Mapping[str, float]) -> str:
    """Return the worst direction of a metric, in brackets; empty for a model of one direction."""
    if (worst := record.get(f"{name}.worst")) is None:
        return ""
    names = [key.partition(".")[2] for key, value in record.items() if key.startswith(f"{name}.") and value == worst]
    return f" (worst: {' '.join([*[one for one in names if one != 'worst'][:1], f'{worst:.4g}'])})"


@dataclass(frozen=True)
class _Moment:
    """How far training was, and when."""

    step: int = 0
    progress: float = 0.0
    work: float = 0.0
    """See `Stages.work`."""
    time: float = field(default_factory=time.monotonic)


class Monitor:
    """The writer of the records of one run; silent on ranks other than the main one (`folder` None)."""

    def __init__(self, folder: Path | None, config: TrainingConfig, activity: Activity, stages: Stages = ONE_STAGE):
        self._folder, self._config, self._stages, self._activity = folder, config, stages, activity
        self._line: LiveLine | None = None
        self._trackers: Trackers | None = None
        self._now, self._first, self._opened = _Moment(), None, time.monotonic()
        self._speed, self._is_warm, self._has_estimated = "", False, False

    def open(self, step: int, progress: float, lengths: Mapping[str, int] | None) -> None:
        """Begin at `step`, and cut the files to the `lengths` that `lengths()` returned at that step.

        They are None if no checkpoint is continued.
        """
        if self._folder is None:
            return
        is_new, lengths = lengths is None, lengths or {}
        for path in (self._folder / METRICS, self._folder / SAMPLES):
            if path.exists() and path.stat().st_size > lengths.get(path.name, 0):
                os.truncate(path, lengths.get(path.name, 0))
        names = self._config.trackers
        if names is None:
            names = (TENSORBOARD,) if importlib.util.find_spec(TENSORBOARD) else ()
        self._now = _Moment(step, progress)
        self._line = LiveLine(self._text, lambda: self._now.progress)
        self._trackers = Trackers(names, TrackedRun(self._folder, step, is_new), self.say)

    def lengths(self) -> dict[str, int]:
        """Write the files to the disk, and return the size of each in bytes, which a checkpoint keeps."""
        if self._folder is None:
            return {}
        lengths = {}
        for path in (self._folder / METRICS, self._folder / SAMPLES):
            if path.exists():
                with open(path, "rb") as stream:
                    os.fsync(stream.fileno())
                lengths[path.name] = path.stat().st_size
        return lengths

    def step(self, step: int, progress: float, epoch: float) -> None:
        """Show a step; after two windows of 5 seconds, log how long the run will take, from the pace in window 2.

        Window 1 is slower, because kernels for the shapes of batches are made in it.
        """
        self._now = _Moment(step, progress, self._stages.work(epoch))
        if self._first is None or step <= self._first.step:  # the first step, or the first after a roll-back
            self._first = self._now
        first = self._first
        seconds = self._now.time - first.time
        if seconds < SECONDS_TO_ESTIMATE or self._has_estimated:
            return
        if not self._is_warm:
            self._is_warm, self._first = True, self._now
        else:
            self._has_estimated = True
            steps = step - first.step
            pace, stages = (seconds / steps, (self._now.work - first.work) / steps), self._stages
            self.say(f"time: {estimate(self._config, *pace, progress, stages)}")
            if self._config.max_minutes:  # without max_minutes, they are reported before the first step
                for line in too_long(self._config, foreseen_steps(self._config, *pace, stages)):
                    self.say(line, logging.WARNING)
                for line in unreached(self._config, *pace, stages):
                    self.say(line, logging.WARNING)

    def training(self, record: Mapping[str, float]) -> None:
        """Write a training record, which has at least step, loss and tokens_per_second."""
        self._record(record)
        self._speed = f"  {record['tokens_per_second']:,.0f} tokens/s"
        if self._line is None or not self._line.is_on_terminal:
            self.say(f"step {record['step']:,}{self._figures(record['loss'])}{self._clocks()}")

    def validation(self, record: Mapping[str, float], samples: Sequence[Sample], better: bool) -> None:
        """Write a validation record, and some of its translations."""
        self._record(record)
        errors = {name: f" ± {record[name + SE]:.2g}" for name in record if name + SE in record}
        names = [name for name in record if name != "step" and not is_standard_error(name, record) and "." not in name]
        shown = "  ".join(f"{name} {record[name]:.4g}{errors.get(name, '')}{_worst(name, record)}" for name in names)
        self.say(f"step {record['step']:,}  validation: {shown}{'  (best)' if better else ''}")
        if samples:
            texts = (
                f"source:    {each.source}\nreference: {each.reference}\noutput:    {each.output}\n\n"
                for each in samples
            )
            text = "".join(texts).encode("utf-8", "replace").decode()  # lone surrogates stand for invalid bytes
            self._append(SAMPLES, f"== step {record['step']}\n{text}")
            if self._trackers is not None and self._config.track_samples:
                self._trackers.text(int(record["step"]), "samples", text)

    def stage(self, step: int, index: int, epoch: float, ended: float, remark: str) -> None:
        """Write that a stage begins with `epoch` after a step; the pace is measured anew.

        `ended` is the epoch with which the stage before ended, which is lower if patience ended it.
        """
        self._first = None
        early = {"ended": round(ended, 4)} if ended < epoch else {}
        self.event({"step": step, "stage": index + 1, "epoch": round(epoch, 4), **early})
        self.say(f"step {step:,}: stage {index + 1} of {len(self._stages.each)} begins, at epoch {epoch:.4g}{remark}")

    def event(self, record: Mapping[str, Any]) -> None:
        """Write a record of another kind, such as a roll-back; numbers that are not finite become null."""
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }
        self._append(METRICS, json.dumps(finite) + "\n")

    def say(self, text: str, level: int = logging.INFO) -> None:
        """Log one line, above the progress bar if there is one."""
        if self._folder is None:
            return
        if self._line is not None:
            self._line.postpone()
        log.log(level, "%s", text)

    def close(self, outcome: Outcome) -> None:
        """Remove the bar, and end the runs of trackers, unless they have ended."""
        if self._line is not None:
            self._line.close()
        if self._trackers is not None:
            self._trackers.close(outcome)
        self._line = self._trackers = None

    def _record(self, record: Mapping[str, float]) -> None:
        self.event(record)
        if self._trackers is not None:
            finite = {name: value for name, value in record.items() if name != "step" and math.isfinite(value)}
            self._trackers.scalars(int(record["step"]), finite)

    def _append(self, name: str, text: str) -> None:
        if self._folder is None:
            return
        path = self._folder / name
        try:
            with open(path, "a", encoding="utf-8", newline="\n", errors="replace") as stream:
                stream.write(text)
        except OSError as error:
            raise RunError(
                f"{path}: cannot be written ({error.strerror}); run the same command again to continue from the last "
                "checkpoint"
            ) from error

    def _text(self) -> str:
        phase, loss = self._activity.phase, self._activity.loss
        figures = self._figures(loss) if phase is Phase.STEP else f"  {phase.value}"
        return f"step {self._now.step:,}{figures}{self._clocks()}"

    def _figures(self, loss: float) -> str:
        return ("" if math.isnan(loss) else f"  loss {loss:.3f}") + self._speed

    def _clocks(self) -> str:
        """Return the time since the start, and an estimate of the time left from the pace since the first step.

        Both advance during a long step.
        """
        first, now = self._first or self._now, self._now
        left = ""
        if now.progress > first.progress:
            pace = (now.time - first.time) / (now.progress - first.progress)
            left = f", {clock(max(0.0, pace * (1 - now.progress) - (time.monotonic() - now.time)))} left"
        return f"  [{clock(time.monotonic() - self._opened)}{left}]"
