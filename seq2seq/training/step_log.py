"""What steps leave on the device, read late: a GPU is waited for only where a line is logged or something is saved.

The trainer adds each step's results and is told what went wrong; the sums since the last log line are kept here in the
run's state.
"""

import logging
import math
import time

import torch
from torch import Tensor

from seq2seq.config import TrainingConfig
from seq2seq.runtime import Runtime
from seq2seq.training.monitor import Monitor
from seq2seq.training.state import RunState, Window, has_diverged


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
        self._coming: tuple[Tensor, torch.cuda.Event, float] | None = None

    def add(self, step: int, loss: Tensor, correct: Tensor, norm: Tensor, targets: float, tokens: float) -> None:
        """Loss and correct targets summed over this rank; the norm, targets and tokens are those of all ranks."""
        self._unread.append((step, torch.stack([loss, correct, norm]), targets, tokens))
        if self._runtime.is_main:
            self._show(loss, self._runtime.world_size / max(1.0, targets))

    def due(self, step: int) -> bool:
        """Whether results are read now; on a CPU they always are, because nothing waits for it."""
        config = self._config
        every = (config.log_every, config.validate_every, config.checkpoint_every)
        return self._runtime.device.type == "cpu" or any(step % interval == 0 for interval in every)

    def read(self, state: RunState) -> str | None:
        """Bring everything unread into the state; returns what went wrong, in words, or None."""
        unread, self._unread = self._unread, []
        if not unread:
            return None
        values = torch.stack([result for _, result, _, _ in unread]).double().cpu()  # (N, 3)
        sums = self._runtime.all_reduce(values[:, :2].flatten().tolist())
        problem = None
        for index, (step, _, targets, tokens) in enumerate(unread):
            loss, correct, norm = sums[2 * index], sums[2 * index + 1], float(values[index, 2])
            if math.isfinite(loss) and math.isfinite(norm):
                problem = self._good(state, loss, correct, norm, targets, tokens) or problem
            else:
                problem = self._bad(state, step) or problem
        return problem

    def forget(self) -> None:
        """Drop what was not read: the run goes back to before it."""
        self._unread.clear()

    def record(self, state: RunState, epoch: float, rate: float) -> dict[str, float]:
        """The log line of the steps since the last one, whose sums begin anew."""
        window, state.window = state.window, Window()
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

    def _show(self, loss: Tensor, scale: float) -> None:
        """Show a loss that has come from the device, and send for the next: a GPU is not waited for."""
        if self._runtime.device.type == "cpu":
            self._monitor.loss(float(loss) * scale)
        elif self._coming is None and self._runtime.device.type == "cuda":
            copy, has_come = loss.to("cpu", non_blocking=True), torch.cuda.Event()
            has_come.record()
            self._coming = copy, has_come, scale
        elif self._coming is not None and self._coming[1].query():
            self._monitor.loss(float(self._coming[0]) * self._coming[2])
            self._coming = None

    def _good(
        self, state: RunState, loss: float, correct: float, norm: float, targets: float, tokens: float
    ) -> str | None:
        state.bad_in_a_row = 0
        window = state.window
        window.steps += 1
        window.loss += loss
        window.correct += correct
        window.targets += targets
        window.tokens += tokens
        window.grad_norm += norm
        state.note_loss(loss / max(1.0, targets))
        if has_diverged(state):
            return f"the loss rose from {state.lowest_loss:.3f} to {state.smooth_loss:.3f} nats a target"
        return None

    def _bad(self, state: RunState, step: int) -> str | None:
        state.bad_in_a_row += 1
        state.bad_steps += 1
        self._monitor.say(f"step {step:,}: loss or gradient is not finite; the step is skipped", logging.WARNING)
        if state.bad_in_a_row > self._config.max_bad_steps:
            return f"{state.bad_in_a_row} steps in a row had a loss or gradient that is not finite"
        return None
