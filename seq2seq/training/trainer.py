"""The trainer that translation and classification share: steps, validation, checkpoints, and going on.

`tasks` hands it a module, a stream of batches and three callables; what a run remembers is a `RunState`. A run that
was killed at any moment and is started again ends, on a CPU, in the same bits as one that was not.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from seq2seq import atomic
from seq2seq.config import TrainingConfig
from seq2seq.errors import RunError
from seq2seq.files import DamagedFile
from seq2seq.runtime import Runtime
from seq2seq.store import checkpoint as checkpoints
from seq2seq.store.model_folder import WEIGHTS
from seq2seq.tensors import average, read_tensors
from seq2seq.training.monitor import Monitor
from seq2seq.training.optim import ExponentialMovingAverage, learning_rate
from seq2seq.training.ranks import naming_lost_ranks
from seq2seq.training.signals import StopSignal, answers
from seq2seq.training.snapshots import Snapshots
from seq2seq.training.state import (
    METRIC_KEYS,
    RunState,
    Stream,
    TrainingResult,
    Validation,
    choose_metric,
    end_reason,
    progress,
)
from seq2seq.training.step import ComputeLoss, GradientStep, undisturbed
from seq2seq.training.step_log import StepLog
from seq2seq.training.weights import Weights

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
        measure: str = "",
        judge_start: bool = False,
        before_validation: Callable[[], None] = lambda: None,
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
            measure: what decides the values that `validate` finds; where it changed, the best model is measured anew.
            judge_start: the weights to start from are validated too, and may be the best.
            before_validation: called on the main rank; a signal does not interrupt it, as it does a validation.
        """
        self.module, self.stream, self.config, self.runtime = module, stream, config, runtime
        self.state = RunState()
        self._folder = Path(folder)
        self._measure, self._judge_start, self._before_validation = measure, judge_start, before_validation
        self._validate, self._save_best, self._rehearsal = validate, save_best, rehearsal
        self._weights = _hold(module, config, runtime)
        self._step = GradientStep(self._weights, compute_loss, config)
        self._average = ExponentialMovingAverage(module, config.ema) if config.ema else None
        self._monitor = Monitor(self._folder if runtime.is_main else None, config)
        self._step_log = StepLog(config, runtime, self._monitor)
        self._snapshots = Snapshots(
            self._folder / "checkpoints", self._weights, self._step, self._average, stream, config, self._monitor
        )
        self._stop = StopSignal(runtime, *answers(runtime, self._whereabouts))
        self._rate, self._saved_step, self._logged_step = 0.0, 0, 0
        # This rank's clock. The state has the main rank's, as last agreed on, so that all ranks decide alike.
        self._seconds = self._last_lap = 0.0

    def run(self) -> TrainingResult:
        """Train, or go on training, until a limit is reached or a signal asks to stop.

        Raises:
            RunError: training diverged, memory is too small, or a rank was lost.
            CheckpointError: a checkpoint cannot be read or written.
        """
        with self._stop, naming_lost_ranks(self.runtime):
            try:
                return self._run()
            except KeyboardInterrupt:  # in a rehearsal or validation, which will be made again
                if self.state.step != self._saved_step:
                    self._save()
                return self._result("stopped", self._stop.requested)
            finally:
                self._monitor.close()
                self.stream.close()

    def _run(self) -> TrainingResult:
        files = self._begin()
        self._saved_step = self.state.step
        reason = self._end_reason()
        self._seconds, self._last_lap = self.state.seconds, time.monotonic()
        if reason and self.state.finished:
            if self._measure_best_anew():
                self._save()
            return self._result("already finished", self.state.finished)
        if self.state.step:
            self._monitor.say(f"continuing from step {self.state.step:,}")
        self.state.finished = None
        self._monitor.open(self.state.step, progress(self.state, self.stream.epoch, self.config), files)
        self._rehearse()
        self._seconds, self._last_lap = self.state.seconds, time.monotonic()
        self._measure_best_anew()
        if self._validation_due() or (self._judge_start and self.state.step == 0):
            self._validate_now()
            reason = self._end_reason()
        stopping = False
        while reason is None and not stopping:
            stopping = self._train_step()
            reason = self._end_reason()
            if (reason or stopping or self._step_log.due(self.state.step)) and (problem := self._read_results()):
                self._roll_back(problem)
                reason = None
                continue
            if self.state.step % self.config.log_every == 0:
                self._log()
            elif reason:
                self._log_the_end()
            if self._validation_due():
                self._validate_now()
                reason = self._end_reason()
            if reason is None and (stopping or self._checkpoint_due()):
                self._save()
        if reason is None:
            return self._result("stopped", self._stop.requested)
        return self._finish(reason)

    def _end_reason(self) -> str | None:
        return end_reason(self.state, self.stream.epoch, self.config)

    # -- beginning ---------------------------------------------------------------------------------------------------

    def _begin(self) -> dict[str, int]:
        """Start anew, or where the newest undamaged checkpoint was; returns how long the run's files were then."""
        if self.runtime.is_main:
            checkpoints.prepare(self._snapshots.folder)
            atomic.remove_leftovers(self._folder)
        latest = self._snapshots.latest()
        files = self._restore(latest) if latest is not None else {}
        if self.config.compile:
            self.module.compile(dynamic=True)
        return files

    def _restore(self, folder: Path) -> dict[str, int]:
        """Become what was saved; returns how long the run's files were then."""
        self.state, files = self._snapshots.restore(folder)
        self._step_log.forget()
        return files

    def _rehearse(self) -> None:
        """Try the batches that need the most memory, so that a run fails in its first minute or not at all."""
        self.module.train()
        with self._stop.interrupting():
            for batch in self._rehearsal:
                self._step.rehearse(batch)
        self._monitor.doing = ""

    # -- steps -------------------------------------------------------------------------------------------------------

    def _train_step(self) -> bool:
        """One optimiser step; whether any rank was asked to stop before it."""
        state = self.state
        batches = [next(self.stream) for _ in range(self.config.accumulate)]
        state.window.seconds += self._lap()
        # What ranks must agree on goes in one exchange: counts, the wish to stop, and the main rank's clock.
        targets, tokens, stopping, state.seconds = self.runtime.all_reduce([
            float(sum(batch.num_targets for batch in batches)),
            float(sum(batch.num_tokens for batch in batches)),
            float(bool(self._stop.requested)),
            self._seconds if self.runtime.is_main else 0.0,
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
        self._step_log.add(state.step, *sums, norm, targets, tokens)
        self._monitor.step(state.step, share, self.stream.epoch)
        return bool(stopping) or (self.runtime.world_size == 1 and bool(self._stop.requested))

    def time_steps(self, most_steps: int = 20, most_seconds: float = 3.0) -> tuple[float, float]:
        """(seconds, epochs) of a step, by training a few; nothing is written, and the trainer is of no further use."""
        self._last_lap = time.monotonic()
        self._train_step()  # slower than the others
        self._read_results()
        began, epoch = time.monotonic(), self.stream.epoch
        while self.state.step == 1 or (self.state.step <= most_steps and self.state.seconds < most_seconds):
            self._train_step()
            self._read_results()
        steps = self.state.step - 1
        return (time.monotonic() - began) / steps, (self.stream.epoch - epoch) / steps

    def _read_results(self) -> str | None:
        problem = self._step_log.read(self.state)
        self.state.window.seconds += self._lap()
        return problem

    def _log(self) -> None:
        epoch = self.stream.epoch
        record = self._step_log.record(self.state, epoch, self._rate)
        self._monitor.training(record, progress(self.state, epoch, self.config))
        self._logged_step = self.state.step

    def _log_the_end(self) -> None:
        """The steps that no line was logged for; a run that goes on later logs as if it had not ended here."""
        window = self.state.window
        if self._rate and window.steps:
            self._log()
            self.state.window = window

    def _lap(self) -> float:
        """Seconds since the last call, which this rank's clock of the run gains too."""
        now = time.monotonic()
        passed, self._last_lap = now - self._last_lap, now
        self._seconds += passed
        return passed

    def _roll_back(self, problem: str) -> None:
        """Go back to the last good checkpoint with a lower learning rate, or give up."""
        state = self.state
        latest = self._snapshots.latest()
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

    def _validate_now(self, averaged: int = 0, anew: bool = False) -> None:
        """Measure the weights that users would get, and keep them as `best/` when they are better than any before.

        `averaged` is the number of checkpoints that the weights are the mean of, at the end of a run; where they are
        those of the best model, measured `anew`, they stay the best.
        """
        state = self.state
        self._monitor.doing = "validating"
        if self.runtime.is_main:
            self._before_validation()
        state.window.seconds += self._lap()
        began = self._seconds
        with self._averaged(), undisturbed(self.module):
            with self._weights.unsharded(), self._stop.interrupting():
                found = self._validate(self.module)
            metrics = self.runtime.gather(dict(found.metrics))[0]
            metric = choose_metric(self.config.best_metric, metrics)
            if METRIC_KEYS[metric] not in metrics:
                raise RunError(f"training.best_metric: {metric} was not measured; choose one of {', '.join(metrics)}")
            value, before = metrics[METRIC_KEYS[metric]], state.best_value
            if anew:
                state.note_best_anew(metric, value)
            better = anew or state.note_validation(metric, value, recorded=not averaged and state.step > 0)
            state.measure = self._measure
            if better:
                best = self._weights.gather(self._weights.tensors())
                if self.runtime.is_main:
                    self._save_best(best, {"step": state.best_step, **metrics})
        if anew:
            self._monitor.measured_anew(state.step, state.best_step, metric, value, before)
        else:
            note = {"averaged": averaged} if averaged else {}
            self._monitor.validation({"step": state.step, **note, **metrics}, found.samples, better)
        self._lap()
        state.seconds, state.validation_seconds = self.runtime.gather((self._seconds, self._seconds - began))[0]

    def _validation_due(self) -> bool:
        step = self.state.step
        return 0 < step != self.state.validated_step and step % self.config.validate_every == 0

    def _averaged(self) -> contextlib.AbstractContextManager:
        return self._average.applied() if self._average else contextlib.nullcontext()

    def _finish(self, reason: str) -> TrainingResult:
        if self._logged_step != self.state.step:  # it ended at its last validation
            self._log_the_end()
        if self.state.validated_step != self.state.step:
            self._validate_now()
        if self.config.average != "none":
            self._try_average()
        self.state.finished = reason
        self._save()
        return self._result("finished", reason)

    def _try_average(self) -> None:
        """Validate the mean of the last or best checkpoints; it becomes `best/` when it is better."""
        with self._averaged():
            own = {name: tensor.clone() for name, tensor in self._weights.tensors().items()}
        states = self._snapshots.states_to_average(self.state, own)
        if len(states) < 2:
            return
        with self._holding(average(states)):
            self._validate_now(averaged=len(states))

    def _measure_best_anew(self) -> bool:
        """Validate the best model in the way that counts now, where that is another than before.

        Values of different measures cannot be compared. Where the weights of the best model cannot be read, the next
        validation is the first that counts.
        """
        if self.state.best_step is None or self.state.measure == self._measure:
            return False
        try:
            best = read_tensors(self._folder / "best" / WEIGHTS)
        except DamagedFile:
            best = {}
        if best:
            with self._holding(best):
                self._validate_now(anew=True)
        else:
            self._monitor.say("search or evaluation changed: what was measured before is forgotten")
            self.state.forget_validations()
        return True

    @contextlib.contextmanager
    def _holding(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """The module holds other weights inside, and no moving average takes their place."""
        average, self._average = self._average, None
        try:
            with self._weights.replaced(tensors):
                yield
        finally:
            self._average = average

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        state, config = self.state, self.config
        is_kept = state.validated_step == state.step and state.step in state.best_steps(config.keep_best)
        return state.step % config.checkpoint_every == 0 or is_kept

    def _save(self) -> None:
        self._monitor.doing, self._saved_step = "saving", self.state.step
        self.state.window.seconds += self._lap()
        self._snapshots.save(self.state, self._seconds)

    def _whereabouts(self) -> tuple[str, int, int | None]:
        """What is done beside steps, the step, and that of the last checkpoint: for the answer to a signal."""
        return self._monitor.doing, self.state.step, max(self._snapshots.steps(), default=None)

    def _result(self, status: str, reason: str) -> TrainingResult:
        state = self.state
        return TrainingResult(status, reason, state.step, state.best_step, state.best_value, state.metric)


def _hold(module: nn.Module, config: TrainingConfig, runtime: Runtime) -> Weights:
    if config.shard and runtime.world_size > 1:
        from seq2seq.training.sharding import ShardedWeights

        return ShardedWeights(module, runtime)
    return Weights(module, runtime)
