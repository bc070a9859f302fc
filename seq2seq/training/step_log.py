"""Figures of the steps, kept on the device and read only when needed, so that a GPU is rarely waited for.

The trainer adds the results of each step and learns what went wrong; sums since the last log line are in its state.
"""

import logging
import math
import time

import torch
from torch import Tensor

from seq2seq.config.schema import TrainingConfig
from seq2seq.runtime import Runtime
from seq2seq.training.monitor import Monitor
from seq2seq.training.state import RunState, Window, has_diverged

SECONDS_BETWEEN_READS = 5.0  # at most, on a GPU


class Stopwatch:
    """The seconds of a run over all its starts, as this rank counts them."""

    def __init__(self) -> None:
        self.start(0.0)

    def start(self, seconds: float) -> None:
        """Continue from `seconds`."""
        self.seconds, self._last = seconds, time.monotonic()

    def lap(self) -> float:
        """Seconds since the last call, or the start."""
        before, self._last = self._last, time.monotonic()
        self.seconds += self._last - before
        return self._last - before


class StepLog:
    """Loss, correct targets and gradient norm of the steps that were not read yet."""

    def __init__(self, config: TrainingConfig, runtime: Runtime, monitor: Monitor):
        self._config, self._runtime, self._monitor = config, runtime, monitor
        self._unread: list[tuple[int, Tensor, float, float]] = []
        self._read_at = 0.0

    def add(self, step: int, loss: Tensor, correct: Tensor, norm: Tensor, targets: float, tokens: float) -> None:
        """Loss and correct targets summed over this rank; the norm, targets and tokens are those of all ranks."""
        self._unread.append((step, torch.stack([loss, correct, norm]), targets, tokens))

    def due(self, state: RunState) -> bool:
        """Whether results are read now, on all ranks alike; on a CPU they always are, because nothing waits for it."""
        config = self._config
        every = (config.log_every, config.validate_every, config.checkpoint_every)
        is_late = state.seconds - self._read_at >= SECONDS_BETWEEN_READS
        return self._runtime.device.type == "cpu" or is_late or any(state.step % interval == 0 for interval in every)

    def read(self, state: RunState) -> str | None:
        """Bring everything unread into the state; returns what went wrong, in words, or None."""
        unread, self._unread, self._read_at = self._unread, [], state.seconds
        if not unread:
            return None
        values = torch.stack([result for _, result, _, _ in unread]).double().cpu()  # (N, 3)
        sums = self._runtime.all_reduce(values[:, :2].flatten().tolist())
        figures = zip(unread, sums[::2], sums[1::2], values[:, 2].tolist(), strict=True)
        problem = None
        for (step, _, targets, tokens), loss, correct, norm in figures:
            if math.isfinite(loss) and math.isfinite(norm):
                state.bad_in_a_row = 0
                state.window.add(Window(1, loss, targets, correct, tokens, norm))
                state.note_loss(loss / max(1.0, targets))
                self._monitor.loss = loss / max(1.0, targets)
                if has_diverged(state):
                    problem = f"the loss rose from {state.lowest_loss:.3f} to {state.smooth_loss:.3f} nats a target"
            else:
                state.bad_in_a_row += 1
                state.bad_steps += 1
                self._monitor.say(f"step {step:,}: loss or gradient is not finite; step skipped", logging.WARNING)
                if state.bad_in_a_row > self._config.max_bad_steps:
                    problem = f"{state.bad_in_a_row} steps in a row had a loss or gradient that is not finite"
        return problem

    def forget(self) -> None:
        """Drop what was not read: the run goes back to before it."""
        self._unread.clear()

    def record(self, state: RunState, epoch: float, rate: float) -> dict[str, float]:
        """The log line of the steps since the last one, whose sums start anew."""
        window, state.window, state.logged_step = state.window, Window(), state.step
        targets, seconds = window.targets or math.nan, window.seconds or math.nan
        return {
            "step": state.step,
            "epoch": round(epoch, 4),
            "seconds": round(state.seconds, 2),
            "loss": window.loss / targets,
            "train_accuracy": window.correct / targets,
            "tokens_per_second": window.tokens / seconds,
            "learning_rate": rate,
            "grad_norm": window.grad_norm / (window.steps or math.nan),
            "bad_steps": state.bad_steps,
        }
