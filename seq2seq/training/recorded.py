"""Recorded training steps: the launches of a step are recorded once for each shape of a batch, and replayed.

With small batches, a GPU waits for the CPU, which launches a thousand kernels for each step (`recording`). So batches
have few shapes (`data.shapes`), gradients stay in one place, and everything that changes from step to step is a tensor:
the batch, the number of targets, the learning rate and the rates of dropout.

`make_step` makes a `RecordedStep` in place of a `GradientStep` if it is given a recorder.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.config.schema import Config, TrainingConfig
from seq2seq.errors import RunError, UserError
from seq2seq.memory import release
from seq2seq.model.dropout import recorded_rates, without_dropout
from seq2seq.recording import CudaGraphs, Recorder, Recording, differs, reason_of
from seq2seq.runtime import Runtime, random_state, restore_random_state
from seq2seq.training.compiling import SMALL_GPU_BATCH, Choice
from seq2seq.training.step import ComputeLoss, GradientStep
from seq2seq.training.weights import Weights

logger = logging.getLogger(__name__)

# Ordinary steps of a shape before it is recorded, so that rare shapes are not.
ORDINARY_STEPS = 2


def check_record(config: TrainingConfig, device: torch.device) -> None:
    """Refuse `training.record: true` without CUDA.

    Raises:
        UserError: only CUDA can record steps.
    """
    if config.record is True and device.type != "cuda":
        raise UserError(f"training.record: true needs a CUDA device, and training runs on {device.type}; leave it out")


def choose_recording(config: Config, here: Runtime, is_compiled: bool, fixed_shapes: bool | None = None) -> Choice:
    """Return whether steps are recorded, and the reason; `fixed_shapes` as in `tasks.task.Task`."""
    training = config.training
    reason = f"training.record is {str(training.record).lower()}"
    if training.record is False:
        return Choice(False, reason)
    if training.record == "auto":
        if here.device.type != "cuda":
            return Choice(False, "recording needs a CUDA device")
        if training.batch_tokens >= SMALL_GPU_BATCH:
            return Choice(False, f"training.batch_tokens is {SMALL_GPU_BATCH:,} or more, which keeps the GPU busy")
        reason = f"training.batch_tokens is below {SMALL_GPU_BATCH:,}, so the GPU would wait for the CPU"
    obstacles = {
        "a classifier": config.task != "translation",
        "several ranks": here.world_size > 1,
        "float16, whose loss scale changes": here.precision == torch.float16,
        "training.r_drop": training.r_drop > 0,
        "training.recompute": training.recompute,
        "compiled layers": is_compiled,
        "model.output_bias": config.model.output_bias,
        "the batches of a run that began with ordinary steps": fixed_shapes is False,
    }
    found = [name for name, is_there in obstacles.items() if is_there]
    return Choice(not found, f"not possible with {found[0]}" if found else reason)


def make_recorder(recording: Choice) -> Recorder | None:
    """Return a recorder of steps, or None if they are ordinary."""
    return CudaGraphs() if recording.is_on else None


def make_step(
    weights: Weights, compute_loss: ComputeLoss, config: TrainingConfig, is_compiled: bool, recorder: Recorder | None
) -> GradientStep:
    """Return a `RecordedStep` if there is a recorder, else a `GradientStep`, compiled if `is_compiled`."""
    if recorder is None:
        return GradientStep(weights, compute_loss, config, is_compiled)
    return RecordedStep(weights, compute_loss, config, recorder)


class RecordedStep(GradientStep):
    """Steps that are recorded for each shape of a table, and ordinary steps for other batches.

    Each recording is compared with an ordinary step before it is used. If they differ, or recording fails, all steps
    are ordinary from then on, which one line says.
    """

    def __init__(self, weights: Weights, compute_loss: ComputeLoss, config: TrainingConfig, recorder: Recorder):
        super().__init__(weights, compute_loss, config)
        device = weights.runtime.device
        self._recorder: Recorder | None = recorder
        self._rate, self._divisor = torch.zeros((), device=device), torch.ones((), device=device)
        self._seen: Counter[Hashable] = Counter()
        self._gradients: dict[Hashable, tuple[Any, Recording]] = {}
        self._update: Recording | None = None
        for group in self.optimizer.param_groups:
            group["capturable"] = device.type == "cuda"

    def compute_gradient(self, batches: Sequence[Any], num_targets: float) -> tuple[Tensor, Tensor]:
        """Compute the gradient as `GradientStep.compute_gradient` does, with recordings where there are some."""
        self._divisor.fill_(num_targets)
        for batch in batches:
            self._record_if_frequent(batch)
        recorded = [batch for batch in batches if _shape(batch) in self._gradients]
        others = [batch for batch in batches if _shape(batch) not in self._gradients]
        if others:
            total, correct = super().compute_gradient(others, num_targets)
        else:
            self._clear()
            total, correct = (torch.zeros((), device=self._runtime.device) for _ in range(2))
        for batch in recorded:
            of_batch = self._replay_gradient(batch)
            total, correct = total + of_batch[0], correct + of_batch[1]
        return total, correct

    def update(self, rate: float) -> Tensor:
        """Change the weights as `GradientStep.update` does, with the recording if there is one."""
        if not self._gradients:
            return super().update(rate)
        self._rate.fill_(rate)
        if self._update is None:
            self._set_rate(self._rate)
            self._record_update()
        if self._update is None:
            return super().update(rate)
        self._replay(self._update)
        return self._update.outputs[0].clone()

    def forget(self) -> None:
        """Drop the recordings, because the optimiser's tensors were replaced."""
        self._gradients.clear()
        self._update = None

    def _clear(self) -> None:
        """Set the gradients to zero where they are, because recordings add to them there."""
        self.optimizer.zero_grad(set_to_none=False)

    # -- recording ---------------------------------------------------------------------------------------------------

    def _record_if_frequent(self, batch: Any) -> None:
        shape = _shape(batch)
        if self._recorder is None or shape is None or shape in self._gradients:
            return
        self._seen[shape] += 1
        if self._seen[shape] > ORDINARY_STEPS:
            self._attempt(lambda: self._record_gradient(batch))

    def _attempt(self, record: Callable[[], None]) -> None:
        """Record, and turn recording off if that fails; the random state is as before."""
        before = random_state()
        try:
            record()
            problem = ""
        except (RuntimeError, MemoryError) as error:
            problem = reason_of(error)
        restore_random_state(before)
        if problem:
            self._recorder = None
            self.forget()
            release()
            logger.warning("steps are not recorded any more, training continues with ordinary steps: %s", problem)

    def _record_gradient(self, batch: Any) -> None:
        static = batch.to(self._runtime.device)
        static = dataclasses.replace(static._map(lambda _, tensor: tensor.clone()), has_spare_targets=True)
        static = dataclasses.replace(static, num_targets=static.target_mask.numel())

        def gradient() -> tuple[Tensor, ...]:
            with self._runtime.autocast():
                loss = self._compute_loss(self._module, static)
            (loss.total / self._divisor).backward()
            return loss.total.detach(), loss.correct

        with recorded_rates():
            recording = self._recorder.record(gradient)
        self._gradients[_shape(batch)] = static, recording
        with without_dropout(self._module):
            self._clear()
            (total, _), failed = self._accumulate([batch], self._divisor)
            if failed is not None:
                raise torch.OutOfMemoryError("out of memory")
            ordinary = [total, *self._sizes_of_gradients()]
            self._clear()
            replayed = [self._replay_gradient(batch)[0], *self._sizes_of_gradients()]
        self._compare("the gradient", ordinary, replayed)

    def _sizes_of_gradients(self) -> list[Tensor]:
        gradients = [weight.grad for weight in self._trained if weight.grad is not None]
        return [nn.utils.get_total_norm(gradients), gradients[0].flatten()[:64].clone()]

    def _record_update(self) -> None:
        """Record the update, and leave weights, gradients and moments as they were."""
        state = [tensor for of_weight in self.optimizer.state.values() for tensor in of_weight.values()]
        tensors = [*self._trained, *(weight.grad for weight in self._trained if weight.grad is not None), *state]

        def record() -> None:
            before = [tensor.detach().clone() for tensor in tensors]
            try:
                self._update = self._recorder.record(lambda: (self._apply(),))
                found = []
                for apply in (lambda: self._update.replay(), self._apply):
                    _restore(tensors, before)
                    apply()
                    found.append([self._trained[0].detach() - before[0], *(moment.clone() for moment in state[:3])])
            finally:
                _restore(tensors, before)
            self._compare("the update", *found)

        self._attempt(record)

    def _compare(self, what: str, ordinary: Sequence[Tensor], replayed: Sequence[Tensor]) -> None:
        """Raise RuntimeError if a replayed step differs from an ordinary one."""
        for one, other in zip(ordinary, replayed, strict=True):
            if differs(other, one, self._runtime.precision):
                raise RuntimeError(f"{what} of a recorded step differs from that of an ordinary step")

    # -- replaying ---------------------------------------------------------------------------------------------------

    def _replay_gradient(self, batch: Any) -> tuple[Tensor, Tensor]:
        static, recording = self._gradients[_shape(batch)]
        for name, tensor in _tensors(batch).items():
            getattr(static, name).copy_(tensor, non_blocking=True)
        self._replay(recording)
        return recording.outputs[0].clone(), recording.outputs[1].clone()

    def _replay(self, recording: Recording) -> None:
        try:
            recording.replay()
        except RuntimeError as error:
            raise RunError(
                f"a recorded step failed ({reason_of(error)}); the checkpoints are complete; to continue with ordinary "
                "steps, run the same command with --set training.record=false"
            ) from error


def _restore(tensors: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, before, strict=True):
            tensor.copy_(value)


def _tensors(batch: Any) -> dict[str, Tensor]:
    values = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _shape(batch: Any) -> Hashable | None:
    """Return what batches of one recording share, or None if a batch has no shape of a table."""
    return tuple(batch.source_ids.shape + batch.target_input.shape) if getattr(batch, "is_filled", False) else None
