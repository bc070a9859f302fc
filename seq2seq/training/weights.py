"""The trained weights, and the operations of ranks on them: broadcast, sum of gradients, gather, load.

The trainer makes one object for a run: `Weights` if every rank holds all of them, `sharding.ShardedWeights` if each
rank holds a shard. A single process communicates nothing.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from seq2seq.runtime import Runtime
from seq2seq.tensors import distinct, load_tied


class Weights:
    """Weights that every rank holds in full."""

    can_split_alone = True
    """Whether a rank may compute its batch in smaller pieces while the others do not."""

    def __init__(self, module: nn.Module, runtime: Runtime):
        """Give every rank the main rank's weights and buffers."""
        self.module, self.runtime = module, runtime
        if runtime.world_size > 1:
            with torch.no_grad():
                for tensor in [*module.parameters(), *module.buffers()]:
                    dist.broadcast(tensor.data, src=0)

    def tensors(self) -> dict[str, Tensor]:
        """Return each weight once, under its first name, as this rank stores it; `gather` makes them full tensors."""
        return distinct(self.module.state_dict())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy full tensors, or those that `tensors` returned, into the module.

        Raises:
            ValueError: the names or shapes differ from those of the module.
        """
        load_tied(self.module, tensors)

    @contextlib.contextmanager
    def replaced(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """Put other weights into the module inside the context, and its own back afterwards."""
        before = {name: tensor.detach().clone() for name, tensor in self.tensors().items()}
        self.load(tensors)
        try:
            yield
        finally:
            self.load(before)

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return full tensors on the main rank; every rank must call it."""
        return dict(tensors)

    def full(self, tensor: Tensor) -> Tensor:
        """Return one full tensor on every rank; every rank must call it."""
        return tensor

    def shard_moments(self, moments: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return full moments of the optimiser, by `<name of the weight>.<moment>`, sharded like their weights."""
        return moments

    def unsharded(self) -> contextlib.AbstractContextManager:
        """Let every rank compute with all weights inside the context, independently of the others."""
        return contextlib.nullcontext()

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace each gradient by its sum over the ranks.

        This happens once a step, after the last backward pass, and not in hooks during it. Until then a rank may
        compute its part again in smaller pieces if memory runs out, without involving the other ranks.
        """
        if self.runtime.world_size == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in parameters]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(gradients, [part.view_as(full) for part, full in zip(parts, gradients, strict=True)])
