"""The progress of a run: a line on a terminal that changes every half second, or a few log lines; and time estimates.

The monitor shows training with it, and `tasks` other long work.
"""

import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from tqdm import tqdm

from seq2seq.config.schema import TrainingConfig
from seq2seq.data.stages import ONE_STAGE, Stages
from seq2seq.errors import counted
from seq2seq.training.state import RunState, TrainingResult, limits, progress

EQUAL = 1e-6  # the relative difference up to which two moments are equal
FIRST_LINE, MOST_SECONDS = 10.0, 60.0  # in a log: the first pause, which doubles with each line, and the longest

log = logging.getLogger(__name__)


class LiveLine:
    """A line with `text()` and a bar of `share()` on a terminal, or log lines if nothing was logged for a while."""

    def __init__(self, text: Callable[[], str], share: Callable[[], float] | None = None):
        self._text, self._share = text, share
        self._bar: tqdm | None = None
        if sys.stderr is not None and sys.stderr.isatty():
            layout = "{desc}" if share is None else "{percentage:3.0f}%|{bar}| {desc}"
            self._bar = tqdm(total=1.0, bar_format=layout, desc=text(), leave=False, ncols=_columns())
        self._pause, self._logged_at = FIRST_LINE, time.monotonic()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._move, daemon=True, name="s2s-progress")
        self._thread.start()

    @property
    def is_on_terminal(self) -> bool:
        """Whether the line is drawn on a terminal rather than logged."""
        return self._bar is not None

    def postpone(self) -> None:
        """Start the pause before the next log line again, because something else was logged."""
        self._logged_at = time.monotonic()

    def close(self) -> None:
        """Remove the line."""
        self._closed.set()
        self._thread.join()
        if self._bar is not None:
            with contextlib.suppress(OSError):  # the terminal is gone
                self._bar.close()

    def _move(self) -> None:
        while not self._closed.wait(1.0 if self._bar is None else 0.5):
            if self._bar is not None:
                self._bar.n, self._bar.ncols = self._share() if self._share else 0.0, _columns()
                with contextlib.suppress(OSError):
                    self._bar.set_description_str(self._text(), refresh=True)
            elif time.monotonic() - self._logged_at >= self._pause:
                self._pause = min(2 * self._pause, MOST_SECONDS)
                self.postpone()
                log.info("%s", self._text())


@contextlib.contextmanager
def waiting_for(what: str, shown: bool = True) -> Iterator[None]:
    """Show inside the context that `what` is being done, and for how long."""
    began = time.monotonic()
    line = LiveLine(lambda: f"{what} [{clock(time.monotonic() - began)}]") if shown else None
    try:
        yield
    finally:
        if line is not None:
            line.close()


def clear_bars() -> None:
    """Remove every progress bar of this process from the terminal, before it ends in the middle of its work."""
    for bar in list(getattr(tqdm, "_instances", ())):
        with contextlib.suppress(OSError):
            bar.close()


def _columns() -> int:
    """Return the width of the line, with room for the ^C that a terminal writes after it."""
    with contextlib.suppress(OSError):
        return max(20, os.get_terminal_size(sys.stderr.fileno()).columns - 3)
    return 77


def clock(seconds: float) -> str:
    """Return a time like 4:26:14 or 01:30."""
    return tqdm.format_interval(int(seconds))


def duration(seconds: float) -> str:
    """Return a rounded time in words: 90 seconds, 45 minutes, 4 hours 30 minutes, 2 days 3 hours."""
    minutes = round(seconds / 60)
    if seconds < 120:
        return counted(max(1, round(seconds)), "second")
    if minutes < 120:
        return counted(minutes, "minute")
    big, small = divmod(minutes, 60) if minutes < 48 * 60 else divmod(round(minutes / 60), 24)
    nouns = ("hour", "minute") if minutes < 48 * 60 else ("day", "hour")
    return counted(big, nouns[0]) + (f" {counted(small, nouns[1])}" if small else "")


def foreseen_steps(
    config: TrainingConfig, seconds_per_step: float, epochs_per_step: float, stages: Stages = ONE_STAGE
) -> float:
    """Return the steps until the first limit; infinite if only the time is limited and a step takes 0 s.

    Here and below, `epochs_per_step` counts epochs of the first stage.
    """
    share = progress(RunState(step=1, seconds=seconds_per_step), stages.epoch_at(epochs_per_step), config, stages)
    return 1 / share if share else math.inf


def unreached(config: TrainingConfig, seconds_per_step: float, epochs_per_step: float, stages: Stages) -> Iterator[str]:
    """Yield a line if training probably ends before the last stage begins, or at its beginning."""
    steps = foreseen_steps(config, seconds_per_step, epochs_per_step, stages)
    last = stages.epoch_at(steps * epochs_per_step)
    if (index := stages.at(last * (1 - EQUAL))) < stages.last:
        is_possible = stages.each[index].end < limits(config)[1]  # skipped epochs count for max_epochs
        unless = ", unless training.patience ends that stage early" * bool(config.patience and is_possible)
        remedy = "raise the limit of training, or lower that until_epoch"
        yield f"data.stages.{index + 1}: training ends before, with about epoch {last:.2g}{unless}; {remedy}"


def too_long(config: TrainingConfig, steps: float) -> Iterator[str]:
    """Yield a line for each setting without its intended effect, because training has only about this many steps."""
    foreseen = f"training has about {counted(round(float(f'{steps:.2g}')), 'step')}"
    validations = math.ceil(steps / config.validate_every)
    if config.warmup_steps >= steps:
        yield (
            f"training.warmup_steps: {config.warmup_steps:,}, but {foreseen}: training.learning_rate is never reached; "
            "set warmup_steps to a tenth of the steps"
        )
    written = config.model_fields_set
    if config.patience and "patience" in written and validations <= config.patience:
        yield (
            f"training.patience: {config.patience}, but it cannot end a training with about "
            f"{counted(validations, 'validation')}; lower it, or training.validate_every"
        )
    for key in ("validate_every", "checkpoint_every"):
        if key in written and (every := getattr(config, key)) > steps:
            yield f"training.{key}: {every:,}, but {foreseen}: it happens only at the end"


def estimate(
    config: TrainingConfig,
    seconds_per_step: float,
    epochs_per_step: float,
    done: float = 0.0,
    stages: Stages = ONE_STAGE,
) -> str:
    """Return in words how long training still takes if the share `done` of it is over."""
    share = 1 / foreseen_steps(config, seconds_per_step, epochs_per_step, stages)
    steps = (1 - done) / share
    time_needed = duration(steps * seconds_per_step)
    digits = ".0f" if seconds_per_step >= 10 else ".2g"
    now, end = (stages.epoch_at(epochs_per_step * part / share) for part in (done, 1.0))
    pace = f"{end - now:,.1f} epochs, {seconds_per_step:{digits}} s per step"
    start = "" if done else "start-up, "
    if share == min(1.0, seconds_per_step / limits(config)[2]):
        number = counted(round(float(f"{steps:.2g}")), "step")
        what = f"training.max_minutes ends it in about {time_needed}, after about {number}"
        return f"{what} ({pace}); not counted: {start}test sets"
    most, left = "at most " * bool(config.patience), " left" * bool(done)
    what = f"{most}about {time_needed}{left} for {counted(round(steps), 'step')}"
    return f"{what} ({pace}); not counted: {start}validation, test sets"


def further(result: TrainingResult, config: TrainingConfig) -> str:
    """Return how to continue if a limit ended a run that still improved, or one that had already finished; else ""."""
    steps, epochs, seconds = limits(config)
    done = {
        "max_steps": (steps, result.step),
        "max_epochs": (epochs, result.epoch),
        "max_minutes": (seconds / 60, result.seconds / 60),
    }
    key = next((key for key in done if key in result.reason), None)
    if key is None or not (result.is_improving or result.status == "already finished"):
        return ""
    limit, reached = done[key]
    # Training ends a step and perhaps a validation after a limit; what is far above it was trained with another limit.
    is_below = result.status == "already finished" and reached > limit * (1 if key == "max_steps" else 1.5)
    ended = f"training.{key} ended training while the model still improved, so its answers may be poor; "
    twice = f"{2 * (math.ceil(reached) if is_below else limit):.10g}"
    told = ended * (result.is_improving and not is_below)
    return f"{told}to continue, run the same command with --set training.{key}={twice}"
