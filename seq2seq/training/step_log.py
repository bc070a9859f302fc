"""The figures of steps, kept on the device and read only when needed, so that the CPU rarely waits for a GPU.

The trainer adds the results of each step and reads problems; the sums since the last log line are in its state.
"""

import logging
import math
import time

import torch
from torch import Tensor

from seq2seq.config.schema import TrainingConfig
from seq2seq.runtime import Runtime
from seq2seq.training.activity import Activity
from seq2seq.training.monitor import Monitor
from seq2seq.training.state import RunState, Window, has_diverged

SECONDS_BETWEEN_READS = 5.0  # the maximum, on a GPU


class Stopwatch:
    """A clock of this rank that counts the seconds of a run over all its starts."""

    def __init__(self) -> None:
        self.start(0.0)

    def start(self, seconds: float) -> None:
        """Continue from `seconds`."""
        self.seconds, self._last = seconds, time.monotonic()

    def lap(self) -> float:
        """Add the seconds since the last call or the start, and return them."""
        before, self._last = self._last, time.monotonic()
        self.seconds += self._last - before
        return self._last - before


class StepLog:
    """The loss, correct targets and gradient norm of the steps that were not read yet."""

    def __init__(self, config: TrainingConfig, runtime: Runtime, monitor: Monitor, activity: Activity):
        self._config, self._runtime, self._monitor, self._activity = config, runtime, monitor, activity
        self._unread: list[tuple[int, Tensor, float, float]] = []
        self._read_at = 0.0

    def add(self, step: int, loss: Tensor, correct: Tensor, norm: Tensor, targets: float, tokens: float) -> None:
        """Add a step: loss and correct targets of this rank; norm, targets and tokens of all ranks."""
        self._unread.append((step, torch.stack([loss, correct, norm]), targets, tokens))

    def due(self, state: RunState) -> bool:
        """Whether results are read now, the same on all ranks; on a CPU they always are, because reading is cheap."""
        config = self._config
        every = (config.log_every, config.validate_every, config.checkpoint_every)
        is_late = state.seconds - self._read_at >= SECONDS_BETWEEN_READS
        return self._runtime.device.type == "cpu" or is_late or any(state.step % interval == 0 for interval in every)

    def read(self, state: RunState) -> str | None:
        """Add all unread figures to the state, and return a description of what went wrong, or None."""
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
                self._activity.loss = loss / max(1.0, targets)
                state.note_loss(self._activity.loss)
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
        """Drop the unread figures, because the run returns to an earlier step."""
        self._unread.clear()

    def record(self, state: RunState, epoch: float, rate: float) -> dict[str, float]:
        """Return the training record of the steps since the last one, and reset the sums."""
        window, state.window, state.logged_step = state.window, Window(), state.step
        targets, seconds = window.targets or math.nan, window.seconds or math.nan
        return {
            "step": state.step,
            "epoch": round(epoch, 4),
            "seconds": round(state.seconds, 2),
            "loss": window.loss / targets,
            "train_accuracy": window.correct / targets,
            "tokens_per_second": window.tokens / seconds,
            "tokens_per_step": window.tokens / (window.steps or math.nan),
            "learning_rate": rate,
            "grad_norm": window.grad_norm / (window.steps or math.nan),
            "bad_steps": state.bad_steps,
        }
