"""What a run tells: metrics.jsonl, a progress bar or log lines, TensorBoard, samples.txt.

The trainer of the main rank writes through a `Monitor`; people and plots read the files. A run that goes on cuts the
files back to what they were at its checkpoint, so that they end as if it had never been interrupted.
"""

import importlib.util
import json
import logging
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from seq2seq.errors import RunError
from seq2seq.training.state import Sample

METRICS, SAMPLES, TENSORBOARD = "metrics.jsonl", "samples.txt", "tensorboard"

log = logging.getLogger(__name__)


class Monitor:
    """Writes the records of one run; on other ranks than the main one (`folder` None) it is silent."""

    def __init__(self, folder: Path | None):
        self._folder = folder
        self._bar: tqdm | None = None
        self._board: Any = None
        self._started, self._progress_at_start = 0.0, 0.0

    def open(self, step: int, progress: float, lengths: Mapping[str, int]) -> None:
        """Begin at `step`, with the files cut to the `lengths` that `lengths()` gave there."""
        if self._folder is None:
            return
        for name in (METRICS, SAMPLES):
            _cut(self._folder / name, lengths.get(name, 0))
        self._started, self._progress_at_start = time.monotonic(), progress
        if importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            try:
                self._board = SummaryWriter(str(self._folder / TENSORBOARD), purge_step=step + 1 if step else None)
            except UnicodeError:
                log.warning("TensorBoard is left out: it cannot write to a folder whose name is not UTF-8")
        if sys.stderr.isatty():
            layout = "{percentage:3.0f}%|{bar}| {desc} [{elapsed}<{postfix}]"
            self._bar = tqdm(total=1.0, initial=progress, bar_format=layout, desc=f"step {step:,}", leave=False)

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

    def training(self, record: Mapping[str, float], progress: float) -> None:
        """A training record: step, loss, tokens_per_second, learning_rate, grad_norm."""
        if self._folder is None:
            return
        self._record(record)
        left = self._time_left(progress)
        figures = f"loss {record['loss']:.3f}  {record['tokens_per_second']:,.0f} tokens/s"
        if self._bar is None:
            log.info("step %s  %s  %s left", f"{record['step']:,}", figures, left)
        else:
            self._bar.n = progress
            self._bar.set_description_str(f"step {record['step']:,}  {figures}", refresh=False)
            self._bar.set_postfix_str(left, refresh=True)

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
                ]
            self._append(SAMPLES, "\n".join([*lines, "", ""]))

    def event(self, record: Mapping[str, Any]) -> None:
        """A record that is neither of these, such as a roll-back."""
        if self._folder is not None:
            self._append(METRICS, _line(record))

    def say(self, text: str, level: int = logging.INFO) -> None:
        """One line for the person who watches, above the bar where there is one."""
        if self._folder is None:
            return
        if self._bar is None or level > logging.INFO:
            log.log(level, "%s", text)
        else:
            self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        """Take the bar away and close TensorBoard."""
        if self._bar is not None:
            self._bar.close()
        if self._board is not None:
            self._board.close()
        self._bar = self._board = None

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
                f"{path}: cannot be written ({error.strerror}); the run goes on from its last checkpoint when the same "
                "command is run again"
            ) from error

    def _time_left(self, progress: float) -> str:
        done = progress - self._progress_at_start
        if done <= 0:
            return "?"
        return tqdm.format_interval(int((time.monotonic() - self._started) * (1 - progress) / done))


def _line(record: Mapping[str, Any]) -> str:
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()
    }
    return json.dumps(finite) + "\n"


def _cut(path: Path, length: int) -> None:
    if path.exists() and path.stat().st_size > length:
        os.truncate(path, length)
