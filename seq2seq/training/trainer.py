"""The trainer that translation and classification share: steps, validations and checkpoints.

`tasks` gives it a module, a stream of batches and a `Work`; the state of a run is a `RunState`. On a CPU, a run that
is killed at any moment and started again ends with the same bits as an uninterrupted one.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from seq2seq.config.schema import TrainingConfig
from seq2seq.data.stages import ONE_STAGE, Stages
from seq2seq.data.stream import BatchStream
from seq2seq.errors import RunError
from seq2seq.model.dropout import scale_dropout
from seq2seq.runtime import Runtime
from seq2seq.training.activity import Activity, Phase
from seq2seq.training.judged import Judged
from seq2seq.training.monitor import Monitor
from seq2seq.training.optim import ExponentialMovingAverage, learning_rate
from seq2seq.training.ranks import naming_lost_ranks
from seq2seq.training.recorded import Recorder, make_step
from seq2seq.training.signals import StopSignal, answers
from seq2seq.training.snapshots import Snapshots
from seq2seq.training.state import (
    RunState,
    TrainingResult,
    Validation,
    change_stage,
    deciding_key,
    deciding_metric,
    dropout_share,
    end_reason,
    progress,
    schedule_progress,
)
from seq2seq.training.step import ComputeLoss, undisturbed
from seq2seq.training.step_log import StepLog, Stopwatch
from seq2seq.training.weights import Weights


@dataclass(frozen=True)
class Work:
    """The functions and settings that a task gives to the trainer."""

    compute_loss: ComputeLoss
    """Returns the summed loss of a batch."""
    validate: Callable[[nn.Module], Validation]
    """Measures a module in evaluation mode; called on every rank, and the result of the main rank counts."""
    save_best: Callable[[Mapping[str, Tensor], Mapping[str, float]], None]
    """Writes `best/` from a state dict without tied copies, and the metrics with their step; called on the main rank
    while the module holds the same weights."""
    rehearsal: Iterable[Any] = ()
    """Batches whose memory is tested before training, such as the largest."""
    measure: str = ""
    """A description of how `validate` measures; if it has changed, the best model is measured again."""
    judge_start: bool = False
    """Whether the initial weights are validated too, and may be the best."""
    is_compiled: bool = False
    """Whether the layers are compiled."""
    recorder: Recorder | None = None
    """The recorder of steps; None if all are ordinary."""
    stages: Stages = ONE_STAGE
    """The stages that the stream has."""
    before_validation: Callable[[], None] = lambda: None
    """Called on the main rank before each validation; no signal interrupts it."""


ROLLBACK_FACTOR = 0.5


class Trainer:
    """The training of one module in one run folder."""

    def __init__(
        self,
        module: nn.Module,
        stream: BatchStream,
        work: Work,
        config: TrainingConfig,
        runtime: Runtime,
        folder: Path,
    ):
        """Prepare; `run` trains.

        Args:
            module: module on the runtime's device, with the initial weights.
            stream: this rank's batches.
            work: loss, validation and saving.
            config: the training section.
            runtime: device, precision and rank.
            folder: the run folder.
        """
        self.module, self.stream, self.config, self.runtime = module, stream, config, runtime
        self.state = RunState()
        self._work, self._stages = work, work.stages
        self._weights = _hold(module, config, runtime)
        self._step = make_step(self._weights, work.compute_loss, config, work.is_compiled, work.recorder)
        self._average = ExponentialMovingAverage(module, config.ema) if config.ema else None
        self._activity = Activity()
        self._monitor = Monitor(folder if runtime.is_main else None, config, self._activity, self._stages)
        self._step_log = StepLog(config, runtime, self._monitor, self._activity)
        self._snapshots = Snapshots(folder, self._weights, self._step, self._average, stream, config, self._monitor)
        self._stop = StopSignal(runtime, *answers(runtime, self._whereabouts))
        self._clock, self._saved_step = Stopwatch(), 0

    def run(self) -> TrainingResult:
        """Train, or continue to train, until a limit is reached or a signal requests a stop.

        Raises:
            RunError: training diverged, memory or disk is too small, or a rank was lost.
            CheckpointError: a checkpoint cannot be read.
        """
        # A lost rank is reported to the others before the wait for the last checkpoint.
        with self._stop, contextlib.closing(self._snapshots), naming_lost_ranks(self.runtime):
            try:
                return self._run()
            except KeyboardInterrupt:  # in a rehearsal or validation, which will be repeated
                if self.state.step != self._saved_step:
                    self._save()
                return self._result("stopped", self._stop.requested)
            finally:
                self._monitor.close("failed")  # unless it was closed with a result
                self.stream.close()

    def _run(self) -> TrainingResult:
        latest = self._snapshots.prepare()
        files = self._restore(latest) if latest else None
        self._saved_step = self.state.step
        self._clock.start(self.state.seconds)
        if self.state.finished and (reason := self._end_reason()):
            self._snapshots.prune(self.state)
            if self._measure_best_anew():
                self._save()
            return self._result("already finished", reason)
        if latest:
            self._monitor.say(f"continuing from step {self.state.step:,}")
        self._monitor.open(self.state.step, self._progress(), files)
        was_finished, self.state.finished = self.state.finished, None
        self._rehearse()
        self._clock.start(self.state.seconds)
        if self._measure_best_anew() or was_finished:
            self._save()  # else a roll-back would restore the end, and figures of the earlier measure
        reason = self._train()
        return self._finish(reason) if reason else self._result("stopped", self._stop.requested)

    # -- training ----------------------------------------------------------------------------------------------------

    def _rehearse(self) -> None:
        """Try the batches that need the most memory, so that a lack of memory shows in the first minute."""
        self.module.train()
        with self._stop.interrupting():
            for batch in self._work.rehearsal:
                self._step.rehearse(batch)

    def _train(self) -> str | None:
        """Make steps, and return the limit that was reached, or None if a signal requested a stop."""
        if self._validation_due() or (self._work.judge_start and self.state.step == 0):
            self._validate_now()
        if not self._end_reason():  # a limit that was raised since may have ended the run at the end of a stage
            self._change_stage()
        stopping = False
        while not (reason := self._end_reason()) and not stopping:
            stopping = self._train_step()
            is_last = stopping or self._at_border() or bool(self._end_reason())
            if (is_last or self._step_log.due(self.state)) and (problem := self._read_results()):
                self._roll_back(problem)
                continue
            if self.state.step % self.config.log_every == 0:
                self._log()
            elif self._end_reason():
                self._log_the_end()
            if self._validation_due():
                self._validate_now()
            if not self._end_reason():
                self._change_stage()
                if stopping or self._checkpoint_due():
                    self._save()
        return reason

    def _train_step(self) -> bool:
        """Make one optimiser step, and return whether any rank received a signal to stop."""
        state, self._activity.phase = self.state, Phase.STEP
        self._snapshots.finish(at_once=True)
        batches = [next(self.stream) for _ in range(self.config.accumulate)]
        self._lap()
        # Ranks exchange in one call all that they must agree on: counts, whether to stop, and the main rank's clock.
        targets, tokens, stopping, state.seconds = self.runtime.all_reduce([
            float(sum(batch.num_targets for batch in batches)),
            float(sum(batch.num_tokens for batch in batches)),
            float(bool(self._stop.requested)),
            self._clock.seconds if self.runtime.is_main else 0.0,
        ])  # fmt: skip
        state.step += 1
        self.module.train()
        if self.config.dropout_epochs:
            scale_dropout(self.module, dropout_share(self.stream.epoch, self.config.dropout_epochs))
        sums = self._step.compute_gradient(batches, targets)
        norm = self._step.update(self._rate())
        if self._average:
            self._average.update(state.step)
        self._step_log.add(state.step, *sums, norm, targets, tokens)
        self._monitor.step(state.step, self._progress(), self.stream.epoch)
        return bool(stopping) or (self.runtime.world_size == 1 and bool(self._stop.requested))

    def _change_stage(self) -> None:
        ended = self.stream.epoch
        if (remark := change_stage(self.state, self.stream, self.config, self._stages)) is not None:
            self._monitor.stage(self.state.step, self.state.stage, self.stream.epoch, ended, remark)

    def _at_border(self) -> bool:
        return self._stages.at(self.stream.epoch) != self.state.stage

    def _read_results(self) -> str | None:
        """Add the figures of the latest steps to the state, and return a description of what went wrong, or None."""
        problem = self._step_log.read(self.state)
        self._lap()
        return problem

    def _log(self) -> None:
        self._monitor.training(self._step_log.record(self.state, self.stream.epoch, self._rate()))

    def _log_the_end(self) -> None:
        """Log the last steps if they were not logged; a run that continues later logs as if it had not ended here."""
        window = self.state.window
        if window.steps and self.state.logged_step != self.state.step:
            self._log()
            self.state.window = window

    def _lap(self) -> None:
        self.state.window.seconds += self._clock.lap()

    def _progress(self) -> float:
        return progress(self.state, self.stream.epoch, self.config, self._stages)

    def _rate(self) -> float:
        state = self.state
        done = schedule_progress(state, self.stream.epoch, self.config, self._stages)
        return state.rate_scale * learning_rate(state.step - state.schedule_step, done, self.config)

    def _end_reason(self) -> str | None:
        return end_reason(self.state, self.stream.epoch, self.config, self._stages)

    def _finish(self, reason: str) -> TrainingResult:
        state = self.state
        self._log_the_end()
        if state.validated_step != state.step:
            self._validate_now()
        state.finished = reason
        self._save()
        return self._result("finished", reason)

    def _result(self, status: str, reason: str) -> TrainingResult:
        self._snapshots.finish()
        self._monitor.close("stopped" if status == "stopped" else "finished")
        state = self.state
        best = state.best_step, state.best_value, state.metric
        is_improving = state.validations_since_best == 0 and state.best_step == state.step
        return TrainingResult(status, reason, state.step, *best, is_improving, self.stream.epoch, state.seconds)

    # -- validation --------------------------------------------------------------------------------------------------

    def _validation_due(self) -> bool:
        step = self.state.step
        return 0 < step != self.state.validated_step and (step % self.config.validate_every == 0 or self._at_border())

    def _validate_now(self) -> None:
        """Validate the weights that users would get: the moving average if there is one, else the trained weights."""
        with self._average.applied() if self._average else contextlib.nullcontext():
            self._judge()

    def _measure_best_anew(self) -> bool:
        """Validate the best model again if it was measured in another way, and return whether it was.

        If its weights cannot be read, earlier validations are dropped.
        """
        if self.state.best_step is None or self.state.measure == self._work.measure:
            return False
        if best := self._snapshots.best():
            with self._weights.replaced(best):
                self._judge(anew=True)
        else:
            self._monitor.say("search or evaluation changed: earlier validations do not count")
            self.state.forget_validations()
        return True

    def _judge(self, anew: bool = False) -> None:
        """Validate the weights in the module, and write them to `best/` if they are the best.

        They are the weights of this step or, with `anew`, those of the best model.
        """
        state, before = self.state, self.state.best_value
        self._activity.phase = Phase.VALIDATING
        if self.runtime.is_main:
            self._work.before_validation()
        self._lap()
        began = self._clock.seconds
        with undisturbed(self.module):
            with self._weights.unsharded(), self._stop.interrupting():
                validation = self._work.validate(self.module)
            measured = {**validation.metrics, **validation.errors}, dict(validation.contributions)
            metrics, contributions = self.runtime.gather(measured)[0]
            metric, value = deciding_metric(self.config.best_metric, metrics, state.metric, self.config.best_of)
            step = state.best_step if anew else state.step
            judged = Judged.of(step, deciding_key(metric, self.config.best_of), metrics, contributions)
            better = (state.note_best_anew if anew else state.note_validation)(metric, judged)
            state.measure = self._work.measure
            if better:
                best = self._weights.gather(self._weights.tensors())
                if self.runtime.is_main:
                    self._snapshots.finish()
                    self._work.save_best(best, {"step": state.best_step, **metrics})
        if anew:
            self._monitor.event({"step": state.step, "measured_anew": state.best_step, "was": before, "now": value})
            self._monitor.say(
                f"search or evaluation changed: with the new settings, the best model (step {state.best_step:,}) has "
                f"{metric} {value:.4g}; earlier validations do not count"
            )
        else:
            self._monitor.validation({"step": state.step, **metrics}, validation.samples, better)
        self._clock.lap()  # the time of a validation does not count as time of steps
        seconds = self._clock.seconds
        state.seconds, state.validation_seconds = self.runtime.gather((seconds, seconds - began))[0]

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        state, config = self.state, self.config
        # Also with keep_best 0: a roll-back to a state before the model in `best/` would let a worse one replace it.
        is_kept = state.validated_step == state.step and state.step in state.best_steps(max(1, config.keep_best))
        return state.step % config.checkpoint_every == 0 or is_kept

    def _save(self) -> None:
        self._activity.phase, self._saved_step = Phase.SAVING, self.state.step
        self._lap()
        self._snapshots.save(self.state, self._clock.seconds)

    def _restore(self, folder: Path) -> dict[str, int]:
        """Load a checkpoint, and return the sizes of the run's files at that step, in bytes."""
        self.state, files = self._snapshots.restore(folder)
        self._step_log.forget()
        self._step.forget()
        return files

    def _roll_back(self, problem: str) -> None:
        """Restore the last good checkpoint and lower the learning rate.

        Raises:
            RunError: there is no checkpoint, or there were `max_rollbacks` before.
        """
        failed, latest = self.state, self._snapshots.latest()
        if latest is None or failed.rollbacks >= self.config.max_rollbacks:
            last = f"the last good checkpoint is {latest}" if latest else "there is no checkpoint yet"
            self._monitor.event({"step": failed.step, "diverged": problem})
            raise RunError(
                f"step {failed.step}: {problem}, after {failed.rollbacks} roll-backs; {last}; "
                "start a new run with a lower training.learning_rate or more training.warmup_steps, or look at the data"
            )
        self._restore(latest)
        self._change_stage()  # the checkpoint of a run that was extended at a border is from before it
        state = self.state
        state.rollbacks, state.rate_scale = failed.rollbacks + 1, failed.rate_scale * ROLLBACK_FACTOR
        state.seconds, state.bad_steps, state.bad_in_a_row = failed.seconds, failed.bad_steps, 0
        self._monitor.event({"step": state.step, "rollback": state.rollbacks, "from_step": failed.step})
        self._monitor.say(
            f"step {failed.step:,}: {problem}; back to step {state.step:,} with the learning rate times "
            f"{state.rate_scale:g} (roll-back {state.rollbacks} of {self.config.max_rollbacks})",
            logging.WARNING,
        )

    # -- for others --------------------------------------------------------------------------------------------------

    def time_steps(self, most_steps: int = 20, most_seconds: float = 3.0) -> tuple[float, float]:
        """Train a few steps and return (seconds, epochs of the first stage) per step; the trainer is used up."""
        self._clock.start(0.0)
        self._train_step()  # slower than the others
        self._read_results()
        began, work = self._clock.seconds, self._stages.work(self.stream.epoch)
        while self.state.step == 1 or (self.state.step <= most_steps and self.state.seconds < most_seconds):
            self._train_step()
            self._read_results()
        steps = self.state.step - 1
        return (self._clock.seconds - began) / steps, (self._stages.work(self.stream.epoch) - work) / steps

    def _whereabouts(self) -> tuple[Phase, int, int | None]:
        """Return the phase, the step, and the step of the last checkpoint, for the answers to signals."""
        return self._activity.phase, self.state.step, max(self._snapshots.steps(), default=None)


def _hold(module: nn.Module, config: TrainingConfig, runtime: Runtime) -> Weights:
    if config.shard and runtime.world_size > 1:
        from seq2seq.training.sharding import ShardedWeights

        return ShardedWeights(module, runtime)
    return Weights(module, runtime)
