"""One optimiser step: micro-batches in, one change of the weights out.

The gradient is that of the mean loss over the targets of all micro-batches and ranks, however they are divided, so the
result does not depend on accumulation, the number of ranks, or memory.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.config.schema import TrainingConfig
from seq2seq.errors import RunError
from seq2seq.memory import is_out_of_memory, release
from seq2seq.model.layers import Layer
from seq2seq.runtime import random_state, restore_random_state
from seq2seq.training.compiling import compile_layers
from seq2seq.training.loss import LossSum
from seq2seq.training.optim import build_optimizer
from seq2seq.training.weights import Weights

ComputeLoss = Callable[[nn.Module, Any], LossSum]


class GradientStep:
    """The optimiser and the loss scale of float16, and the steps that they make."""

    def __init__(self, weights: Weights, compute_loss: ComputeLoss, config: TrainingConfig, is_compiled: bool = False):
        """Make the optimiser; `is_compiled` says whether the module's layers are compiled."""
        module, runtime = weights.module, weights.runtime
        for layer in module.modules():
            if isinstance(layer, Layer):
                layer.recompute = config.recompute
        if is_compiled:
            compile_layers(module, must=config.compile is True)
        self.optimizer = build_optimizer(module, config, runtime.precision)
        self.scaler = torch.amp.GradScaler(runtime.device.type, enabled=runtime.precision == torch.float16)
        self.split_above: int | None = None
        """Batches with more padded tokens than this are split in advance, because a larger one did not fit."""
        self._compute_loss = compute_loss
        self._clip_norm = config.clip_norm
        self._weights, self._module, self._runtime = weights, module, runtime
        self._trained = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def compute_gradient(self, batches: Sequence[Any], num_targets: float) -> tuple[Tensor, Tensor]:
        """Compute the gradient of the weights; `num_targets` is the number of targets on all ranks.

        If a batch does not fit in memory, it is halved and the whole step is computed again, as often as necessary.

        Returns:
            Loss in nats and correct targets, summed over this rank's batches.

        Raises:
            RunError: a single example does not fit, or with sharded weights a batch.
        """
        batches = [part for batch in batches for part in self._split_known(batch)]
        while True:
            self._clear()
            sums, failed = self._accumulate(batches, num_targets)
            if failed is None:
                self._weights.sum_gradients(self._trained)
                return sums
            release()
            smaller = self._smaller(batches[failed])
            rest = [part for batch in batches[failed + 1 :] for part in self._split_known(batch)]
            batches = [*batches[:failed], *smaller, *rest]

    def update(self, rate: float) -> Tensor:
        """Clip the gradient, change the weights if it is finite, and return its norm before clipping.

        The device decides whether it is finite, so that the CPU does not wait for a GPU.
        """
        self._set_rate(rate)
        return self._apply()

    def forget(self) -> None:
        """Drop what was made for the optimiser's tensors, because they were replaced."""

    def _set_rate(self, rate: float | Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _apply(self) -> Tensor:
        self.scaler.unscale_(self.optimizer)
        gradients = [weight.grad for weight in self._trained if weight.grad is not None]
        norm = self._weights.full(nn.utils.get_total_norm(gradients))
        if self._clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self._trained, self._clip_norm, norm)
        if self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.found_inf = (~torch.isfinite(norm)).float()  # a fused optimiser then skips the step
            self.optimizer.step()
        return norm

    def rehearse(self, batch: Any) -> None:
        """Compute the gradient of a batch and discard it, to find out whether the batch fits in memory.

        The random state is restored afterwards.
        """
        before = random_state()
        self.compute_gradient([batch], max(1, batch.num_targets))
        self._clear()
        restore_random_state(before)

    def _accumulate(
        self, batches: Sequence[Any], num_targets: float | Tensor
    ) -> tuple[tuple[Tensor, Tensor], int | None]:
        """Return (sums, None), or the sums so far and the index of the batch that did not fit."""
        total = torch.zeros((), device=self._runtime.device)
        correct = torch.zeros((), device=self._runtime.device)
        for index, batch in enumerate(batches):
            try:
                batch = batch.to(self._runtime.device, non_blocking=True)
                with self._runtime.autocast():
                    loss = self._compute_loss(self._module, batch)
                self.scaler.scale(loss.total / num_targets).backward()
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                return (total, correct), index
            total += loss.total.detach()
            correct += loss.correct
        return (total, correct), None

    def _split_known(self, batch: Any) -> list[Any]:
        # a run that learned to split may continue with weights that each rank must compute equally often
        if self.split_above is None or not self._weights.can_split_alone or padded_size(batch) <= self.split_above:
            return [batch]
        parts = batch.split()
        return parts if len(parts) < 2 else [part for half in parts for part in self._split_known(half)]

    def _smaller(self, batch: Any) -> list[Any]:
        """Return the halves of a batch that did not fit; of a single example, the batch without its spare rows."""
        size, parts = padded_size(batch), batch.split()
        if padded_size(parts[0]) >= size or not self._weights.can_split_alone:
            what = "a single example" if len(parts) < 2 else "a batch"
            raise RunError(
                f"{what} of {size} tokens does not fit in the memory of {self._runtime.device}; lower "
                "training.batch_tokens, data.filters.max_length or the model's sizes"
            )
        self.split_above = min(self.split_above or size, size - 1)
        return parts


@contextlib.contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode without gradients inside the context, and restore mode and random state afterwards."""
    draws = random_state()
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train()
        restore_random_state(draws)


def padded_size(batch: Any) -> int:
    """Return the number of elements of the batch, padding included, with which memory grows."""
    tensors = (getattr(batch, field.name) for field in dataclasses.fields(batch))
    return sum(tensor.numel() for tensor in tensors if isinstance(tensor, Tensor) and tensor.ndim >= 2)
