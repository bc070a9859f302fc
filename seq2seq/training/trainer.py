"""The trainer that translation and classification share: steps, validation, checkpoints, and going on.

`tasks` hands it a module, a stream of batches and three callables; what a run remembers is a `RunState`. A run that
was killed at any moment and is started again ends, on a processor, in the same bits as one that was not.
"""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq import atomic
from seq2seq import checkpoint as checkpoints
from seq2seq.config import TrainingConfig
from seq2seq.errors import CheckpointError, RunError
from seq2seq.runtime import Runtime, random_state, restore_random_state
from seq2seq.tensors import average, distinct, load_tied
from seq2seq.training.monitor import Monitor
from seq2seq.training.optim import ExponentialMovingAverage, learning_rate, load_optimizer_tensors, optimizer_tensors
from seq2seq.training.ranks import naming_lost_ranks, share_weights
from seq2seq.training.signals import StopSignal
from seq2seq.training.state import (
    METRIC_KEYS,
    RunState,
    Stream,
    TrainingResult,
    Validation,
    choose_metric,
    end_reason,
    has_diverged,
    progress,
)
from seq2seq.training.step import ComputeLoss, GradientStep

Validate = Callable[[nn.Module], Validation]
SaveBest = Callable[[Mapping[str, Tensor], Mapping[str, float]], None]

ROLLBACK_FACTOR = 0.5


class Trainer:
    """Trains one module in one run folder."""

    def __init__(
        self,
        module: nn.Module,
        stream: Stream,
        compute_loss: ComputeLoss,
        validate: Validate,
        save_best: SaveBest,
        config: TrainingConfig,
        runtime: Runtime,
        folder: Path,
        rehearsal: Iterable[Any] = (),
    ):
        """Prepare; `run` trains.

        Args:
            module: on the runtime's device, with the weights to start from.
            stream: this rank's batches.
            compute_loss: sums of the loss over a batch.
            validate: measures the module it is given, in evaluation mode; called on every rank, the main one's counts.
            save_best: writes `best/` from a state dict without tied copies, and the metrics with their step; called on
                the main rank, while the module holds these weights too.
            config: the training section.
            runtime: device, precision and rank.
            folder: the run folder.
            rehearsal: batches that are tried first, such as the largest.
        """
        self.module, self.stream, self.config, self.runtime = module, stream, config, runtime
        self.state = RunState()
        self.checkpoints = Path(folder) / "checkpoints"
        self._folder = Path(folder)
        self._validate, self._save_best, self._rehearsal = validate, save_best, rehearsal
        self._step = GradientStep(module, compute_loss, config, runtime)
        self._average = ExponentialMovingAverage(module, config.ema) if config.ema else None
        self._monitor = Monitor(self._folder if runtime.is_main else None)
        self._unread: list[tuple[int, Tensor, float, float]] = []
        self._rate = 0.0
        self._clock = 0.0

    def run(self) -> TrainingResult:
        """Train, or go on training, until a limit is reached or a signal asks to stop.

        Raises:
            RunError: training diverged, memory is too small, or a rank was lost.
            CheckpointError: a checkpoint cannot be read or written.
        """
        with StopSignal() as stop, naming_lost_ranks(self.runtime):
            try:
                return self._run(stop)
            finally:
                self._monitor.close()
                self.stream.close()

    def _run(self, stop: StopSignal) -> TrainingResult:
        self._begin()
        reason = end_reason(self.state, self.stream.epoch, self.config)
        if reason and self.state.finished:
            return self._result("already finished", self.state.finished)
        self.state.finished = None
        self._rehearse()
        self._clock = time.monotonic()
        stopping = False
        while reason is None and not stopping:
            stopping = self._train_step(stop)
            if problem := self._read_results():
                self._roll_back(problem)
                continue
            self._log_if_due()
            if self.state.step % self.config.validate_every == 0:
                self._validate_now()
            reason = end_reason(self.state, self.stream.epoch, self.config)
            if reason is None and (stopping or self._checkpoint_due()):
                self._save()
        if reason is None:
            return self._result("stopped", "stopped by a signal; run the same command again to go on")
        return self._finish(reason)

    # -- beginning ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start anew, or where the newest undamaged checkpoint was."""
        latest = None
        if self.runtime.is_main:
            checkpoints.prepare(self.checkpoints)
            atomic.remove_leftovers(self._folder)
            latest = checkpoints.latest_checkpoint(self.checkpoints)
        latest = self.runtime.gather(latest)[0]
        files: dict[str, int] = {}
        if latest is not None:
            files = self._restore(latest)["files"]
        share_weights(self.module, self.runtime)
        if latest is None and self._average:
            self._average.load(dict(self.module.named_parameters()))
        if self.config.compile:
            self.module.compile(dynamic=True)
        done = progress(self.state, self.stream.epoch, self.config)
        self._monitor.open(self.state.step, done, files)
        if latest is not None:
            self._monitor.say(f"going on from step {self.state.step:,} ({latest})")

    def _restore(self, folder: Path) -> dict[str, Any]:
        """Become what was saved; returns the rest of the saved state."""
        saved = checkpoints.load_checkpoint(folder, verified=True)
        try:
            load_tied(self.module, saved.tensors["model"])
            load_optimizer_tensors(self.module, self._step.optimizer, saved.tensors["optimizer"])
            if self._average:
                self._average.load(saved.tensors.get("ema", saved.tensors["model"]))
            self.state = RunState.from_json(saved.state["run"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{folder}: not a checkpoint of this model ({error}); name another --run-dir, or begin again with "
                "--overwrite"
            ) from error
        if saved.state["world_size"] != self.runtime.world_size:
            self._monitor.say(
                f"the checkpoint was written by {saved.state['world_size']} processes, now there are "
                f"{self.runtime.world_size}: no data is lost, but a step is of another size",
                logging.WARNING,
            )
        self.stream.load_state_dict(saved.state["stream"])
        self._step.split_above = self.state.split_above
        if saved.state["scaler"]:
            self._step.scaler.load_state_dict(saved.state["scaler"])
        mine = f"{self.runtime.rank}."
        own = {name.removeprefix(mine): draw for name, draw in saved.tensors["random"].items() if name.startswith(mine)}
        if own:  # a rank that is new draws from its seed
            restore_random_state(own)
        self._unread.clear()
        return saved.state

    def _rehearse(self) -> None:
        """Try the batches that need the most memory, so that a run fails in its first minute or not at all."""
        self.module.train()
        for batch in self._rehearsal:
            self._step.rehearse(batch)

    # -- steps -------------------------------------------------------------------------------------------------------

    def _train_step(self, stop: StopSignal) -> bool:
        """One optimiser step; whether any rank was asked to stop before it."""
        state = self.state
        batches = [next(self.stream) for _ in range(self.config.accumulate)]
        state.window.seconds += self._lap()
        # What ranks must agree on goes in one exchange: counts, the wish to stop, and the main rank's clock.
        targets, tokens, stopping, state.seconds = self.runtime.all_reduce([
            float(sum(batch.num_targets for batch in batches)),
            float(sum(batch.num_tokens for batch in batches)),
            float(stop.requested),
            state.seconds if self.runtime.is_main else 0.0,
        ])  # fmt: skip
        state.step += 1
        share = progress(state, self.stream.epoch, self.config)
        self._rate = state.rate_scale * learning_rate(state.step, share, self.config)
        self.module.train()
        sums = self._step.compute_gradient(batches, targets)
        norm = self._step.update(self._rate)
        if self._average:
            self._average.update(state.step)
        state.split_above = self._step.split_above
        self._unread.append((state.step, torch.stack([*sums, norm]), targets, tokens))
        return bool(stopping) or (self.runtime.world_size == 1 and stop.requested)

    def _read_results(self) -> str | None:
        """Read what the steps left on the device, when it costs nothing or is needed; says what went wrong, if any.

        A GPU is waited for only where a line is logged or something is saved.
        """
        step = self.state.step
        due = (self.config.log_every, self.config.validate_every, self.config.checkpoint_every)
        ending = end_reason(self.state, self.stream.epoch, self.config) is not None
        if self.runtime.device.type != "cpu" and not ending and all(step % every for every in due):
            return None
        return self._read_all()

    def _read_all(self) -> str | None:
        unread, self._unread = self._unread, []
        if not unread:
            return None
        values = torch.stack([result for _, result, _, _ in unread])  # (N, 3)
        sums = self.runtime.all_reduce(values[:, :2].double().flatten().tolist())
        problem = None
        for index, (_, _, targets, tokens) in enumerate(unread):
            loss, correct = sums[2 * index : 2 * index + 2]
            problem = self._note_step(loss, correct, float(values[index, 2]), targets, tokens) or problem
        self.state.window.seconds += self._lap()
        return problem

    def _note_step(self, loss: float, correct: float, norm: float, targets: float, tokens: float) -> str | None:
        state, window = self.state, self.state.window
        if not (math.isfinite(norm) and math.isfinite(loss)):
            state.bad_in_a_row += 1
            state.bad_steps += 1
            self._monitor.say(f"step {state.step:,}: the gradient is not finite; skipped", logging.WARNING)
            if state.bad_in_a_row > self.config.max_bad_steps:
                return f"{state.bad_in_a_row} steps in a row had a gradient that is not finite"
            return None
        state.bad_in_a_row = 0
        window.steps += 1
        window.loss += loss
        window.correct += correct
        window.targets += targets
        window.tokens += tokens
        window.grad_norm += norm
        state.note_loss(loss / max(1.0, targets))
        if has_diverged(state):
            return f"the loss rose from {state.lowest_loss:.3f} to {state.smooth_loss:.3f}"
        return None

    def _log_if_due(self) -> None:
        state, window = self.state, self.state.window
        if state.step % self.config.log_every:
            return
        record = {
            "step": state.step,
            "epoch": round(self.stream.epoch, 4),
            "loss": window.loss / window.targets if window.targets else math.nan,
            "train_accuracy": window.correct / window.targets if window.targets else math.nan,
            "tokens_per_second": window.tokens / window.seconds if window.seconds else math.nan,
            "learning_rate": self._rate,
            "grad_norm": window.grad_norm / window.steps if window.steps else math.nan,
            "bad_steps": state.bad_steps,
        }
        self._monitor.training(record, progress(state, self.stream.epoch, self.config))
        state.window = type(window)()

    def _lap(self) -> float:
        """Seconds since the last call, which the run's clock gains too."""
        now = time.monotonic()
        passed, self._clock = now - self._clock, now
        self.state.seconds += passed
        return passed

    def _roll_back(self, problem: str) -> None:
        """Go back to the last good checkpoint with a lower learning rate, or give up."""
        state = self.state
        latest = checkpoints.latest_checkpoint(self.checkpoints) if self.runtime.is_main else None
        latest = self.runtime.gather(latest)[0]
        place = f"the last good checkpoint is {latest}" if latest else "there is no checkpoint yet"
        if latest is None or state.rollbacks >= self.config.max_rollbacks:
            raise RunError(
                f"step {state.step}: {problem}, after {state.rollbacks} roll-backs; {place}; lower "
                "training.learning_rate, raise training.warmup_steps, or look at the data"
            )
        self._restore(latest)
        self.state.rollbacks = state.rollbacks + 1
        self.state.rate_scale = state.rate_scale * ROLLBACK_FACTOR
        self.state.seconds, self.state.bad_steps, self.state.bad_in_a_row = state.seconds, state.bad_steps, 0
        self._monitor.event({"step": self.state.step, "rollback": self.state.rollbacks, "from_step": state.step})
        self._monitor.say(
            f"step {state.step:,}: {problem}; back to step {self.state.step:,} with the learning rate times "
            f"{self.state.rate_scale:g} (roll-back {self.state.rollbacks} of {self.config.max_rollbacks})",
            logging.WARNING,
        )

    # -- validation --------------------------------------------------------------------------------------------------

    def _validate_now(self, note: Mapping[str, float] | None = None) -> None:
        """Measure the weights that users would get, and keep them as `best/` when they are better than any before."""
        state, config = self.state, self.config
        state.window.seconds += self._lap()
        with self._averaged(), _undisturbed(self.module):
            found = self._validate(self.module)
            self._lap()
            metrics, state.seconds = self.runtime.gather((dict(found.metrics), state.seconds))[0]
            metric = choose_metric(config.best_metric, metrics)
            if METRIC_KEYS[metric] not in metrics:
                raise RunError(f"training.best_metric: {metric} was not measured; choose one of {', '.join(metrics)}")
            better = state.note_validation(metric, metrics[METRIC_KEYS[metric]])
            if better and self.runtime.is_main:
                self._save_best(distinct(self.module.state_dict()), {"step": state.step, **metrics})
        self._monitor.validation({"step": state.step, **(note or {}), **metrics}, found.samples, better)
        before = state.seconds
        self._lap()
        state.seconds = self.runtime.gather(state.seconds)[0]
        state.validation_seconds = state.seconds - before

    def _averaged(self) -> contextlib.AbstractContextManager:
        return self._average.applied() if self._average else contextlib.nullcontext()

    def _finish(self, reason: str) -> TrainingResult:
        if self.state.validated_step != self.state.step:
            self._validate_now()
        if self.config.average != "none":
            self._try_average()
        self.state.finished = reason
        self._save()
        return self._result("finished", reason)

    def _try_average(self) -> None:
        """Validate the mean of the last or best checkpoints; it becomes `best/` when it is better."""
        count, now = self.config.average_count, self.state.step
        saved = [step for step in checkpoints.saved_steps(self.checkpoints) if step < now]
        if self.config.average == "last":
            chosen = [*saved[-(count - 1) :], now]
        else:
            chosen = [step for step in self.state.best_steps(count) if step in {*saved, now}]
        with self._averaged():
            own = {name: tensor.clone() for name, tensor in distinct(self.module.state_dict()).items()}
        states = [own if step == now else self._saved_weights(step) for step in sorted(chosen)]
        states = [state for state in states if state]
        if len(states) < 2:
            return
        trained = {name: tensor.clone() for name, tensor in distinct(self.module.state_dict()).items()}
        following, self._average = self._average, None
        load_tied(self.module, average(states))
        self._validate_now({"averaged": len(states)})
        load_tied(self.module, trained)
        self._average = following

    def _saved_weights(self, step: int) -> dict[str, Tensor] | None:
        folder = checkpoints.step_folder(self.checkpoints, step)
        try:
            tensors = checkpoints.load_checkpoint(folder).tensors
        except CheckpointError as error:
            self._monitor.say(f"not averaged: {error}", logging.WARNING)
            return None
        weights = {**tensors["model"], **tensors.get("ema", {})}
        return {name: tensor.to(self.runtime.device) for name, tensor in weights.items()}

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        state, config = self.state, self.config
        is_kept = state.validated_step == state.step and state.step in state.best_steps(config.keep_best)
        return state.step % config.checkpoint_every == 0 or is_kept

    def _save(self) -> None:
        """Write a checkpoint of this step, and delete those that are no longer kept."""
        draws = self.runtime.gather(random_state())
        if not self.runtime.is_main:
            return
        tensors = {
            "model": distinct(self.module.state_dict()),
            "optimizer": optimizer_tensors(self.module, self._step.optimizer),
            "random": {f"{rank}.{kind}": draw for rank, own in enumerate(draws) for kind, draw in own.items()},
        }
        if self._average:
            tensors["ema"] = self._average.tensors()
        state = {
            "run": self.state.to_json(),
            "stream": self.stream.state_dict(),
            "scaler": self._step.scaler.state_dict(),
            "files": self._monitor.lengths(),
            "world_size": self.runtime.world_size,
        }
        checkpoints.save_checkpoint(self.checkpoints, self.state.step, tensors, state)
        saved = [step for step in checkpoints.saved_steps(self.checkpoints) if step <= self.state.step]
        checkpoints.prune(
            self.checkpoints, {*saved[-self.config.keep_last :], *self.state.best_steps(self.config.keep_best)}
        )

    def _result(self, status: str, reason: str) -> TrainingResult:
        state = self.state
        return TrainingResult(status, reason, state.step, state.best_step, state.best_value, state.metric)


@contextlib.contextmanager
def _undisturbed(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; what is drawn there changes nothing that training draws afterwards."""
    draws = random_state()
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train()
        restore_random_state(draws)
