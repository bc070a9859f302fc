"""What a run tells: metrics.jsonl, a progress bar or log lines, TensorBoard, samples.txt.

The trainer of the main rank writes through a `Monitor`; people and plots read the files. A run that goes on cuts the
files back to what they were at its checkpoint, so that they end as if it had never been interrupted.
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

from seq2seq.config import TrainingConfig
from seq2seq.errors import RunError
from seq2seq.training.progress import LiveLine, clock, estimate
from seq2seq.training.state import Sample

METRICS, SAMPLES, TENSORBOARD = "metrics.jsonl", "samples.txt", "tensorboard"
SECONDS_TO_ESTIMATE = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Moment:
    """Where training was, and when."""

    step: int = 0
    progress: float = 0.0
    epoch: float = 0.0
    time: float = field(default_factory=time.monotonic)


class Monitor:
    """Writes the records of one run; on other ranks than the main one (`folder` None) it is silent."""

    def __init__(self, folder: Path | None, config: TrainingConfig):
        self._folder, self._config = folder, config
        self._line: LiveLine | None = None
        self._board: Any = None
        self._now, self._loss, self._speed, self.doing = _Moment(), math.nan, "", "preparing"
        self._first: _Moment | None = None
        self._opened = time.monotonic()
        self._has_estimated = False

    def open(self, step: int, progress: float, lengths: Mapping[str, int]) -> None:
        """Begin at `step`, with the files cut to the `lengths` that `lengths()` gave there."""
        if self._folder is None:
            return
        for name in (METRICS, SAMPLES):
            _cut(self._folder / name, lengths.get(name, 0))
        if importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            try:
                self._board = SummaryWriter(str(self._folder / TENSORBOARD), purge_step=step + 1 if step else None)
            except UnicodeError:
                log.warning("TensorBoard is left out: it cannot write to a folder whose name is not UTF-8")
        self._now = _Moment(step, progress)
        self._line = LiveLine(self._text, lambda: self._now.progress)

    def step(self, step: int, progress: float, epoch: float) -> None:
        """A step was made: shown, and the first seconds of them tell how long the run will take."""
        self._now, self.doing = _Moment(step, progress, epoch), ""
        first = self._first = self._first or self._now
        seconds = self._now.time - first.time
        if seconds >= SECONDS_TO_ESTIMATE and not self._has_estimated and self._line is not None:
            self._has_estimated = True
            steps = step - first.step
            text = estimate(self._config, seconds / steps, (epoch - first.epoch) / steps, progress)
            self.say(f"time: {text}")

    def loss(self, value: float) -> None:
        """The loss of the latest step that is known."""
        self._loss = value

    def lengths(self) -> dict[str, int]:
        """Bytes of each file, after bringing them to the disk; part of a checkpoint."""
        if self._folder is None:
            return {}
        lengths = {}
        for path in (self._folder / METRICS, self._folder / SAMPLES):
            if path.exists():
                with open(path, "rb") as stream:
                    os.fsync(stream.fileno())
                lengths[path.name] = path.stat().st_size
        return lengths

    def training(self, record: Mapping[str, float]) -> None:
        """A training record: step, loss, tokens_per_second, learning_rate, grad_norm."""
        if self._folder is None:
            return
        self._record(record)
        self._loss, self._speed = record["loss"], f"  {record['tokens_per_second']:,.0f} tokens/s"
        if self._line is None or not self._line.is_on_terminal:
            self.say(f"step {record['step']:,}{self._figures()}{self._clocks()}")

    def validation(self, record: Mapping[str, float], samples: Sequence[Sample], better: bool) -> None:
        """A validation record, and the translations of that moment."""
        if self._folder is None:
            return
        self._record(record)
        shown = "  ".join(f"{name} {value:.4g}" for name, value in record.items() if name != "step")
        self.say(f"step {record['step']:,}  validation: {shown}{'  (best)' if better else ''}")
        if samples:
            lines = [f"== step {record['step']}"]
            for sample in samples:
                lines += [
                    f"source:    {sample.source}",
                    f"reference: {sample.reference}",
                    f"output:    {sample.output}",
                    "",
                ]
            self._append(SAMPLES, "\n".join([*lines, ""]))

    def measured_anew(self, step: int, best_step: int, metric: str, value: float, before: float | None) -> None:
        """The best model has another value than `before`, because it is measured in another way from `step` on."""
        self.event({"step": step, "measured_anew": best_step, "was": before, "now": value})
        was = "" if before is None else f", {before:.4g} before"
        self.say(
            f"search or evaluation changed: measured as it is now, the best model (step {best_step:,}) has "
            f"{metric} {value:.4g}{was}; validations before it do not count"
        )

    def event(self, record: Mapping[str, Any]) -> None:
        """A record that is neither of these, such as a roll-back."""
        if self._folder is not None:
            self._append(METRICS, _line(record))

    def say(self, text: str, level: int = logging.INFO) -> None:
        """One line for the person who watches, above the bar where there is one."""
        if self._folder is None:
            return
        if self._line is not None:
            self._line.told()
        log.log(level, "%s", text)

    def close(self) -> None:
        """Take the line away and close TensorBoard."""
        if self._line is not None:
            self._line.close()
        if self._board is not None:
            self._board.close()
        self._line = self._board = None

    def _record(self, record: Mapping[str, float]) -> None:
        self._append(METRICS, _line(record))
        if self._board is not None:
            for name, value in record.items():
                if name != "step" and math.isfinite(value):
                    self._board.add_scalar(name, value, int(record["step"]))

    def _append(self, name: str, text: str) -> None:
        path = self._folder / name
        try:
            with open(path, "a", encoding="utf-8", newline="\n", errors="replace") as stream:
                stream.write(text)
        except OSError as error:
            raise RunError(
                f"{path}: cannot be written ({error.strerror}); the run continues from its last checkpoint when the "
                "same command is run again"
            ) from error

    def _text(self) -> str:
        """What is shown each second."""
        figures = f"  {self.doing}" if self.doing else self._figures()
        return f"step {self._now.step:,}{figures}{self._clocks()}"

    def _figures(self) -> str:
        return ("" if math.isnan(self._loss) else f"  loss {self._loss:.3f}") + self._speed

    def _clocks(self) -> str:
        """The time since the start, and what is left by the pace since the first step; both move on in a long step."""
        first, now = self._first or self._now, self._now
        left = ""
        if now.progress > first.progress:
            pace = (now.time - first.time) / (now.progress - first.progress)
            left = f", {clock(max(0.0, pace * (1 - now.progress) - (time.monotonic() - now.time)))} left"
        return f"  [{clock(time.monotonic() - self._opened)}{left}]"


def _line(record: Mapping[str, Any]) -> str:
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()
    }
    return json.dumps(finite) + "\n"


def _cut(path: Path, length: int) -> None:
    if path.exists() and path.stat().st_size > length:
        os.truncate(path, length)
