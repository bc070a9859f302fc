"""The weights that are trained, and what ranks do with them: broadcast, sum gradients, gather, load.

The trainer chooses one object for a run: `Weights` where every rank holds all of them, `sharding.ShardedWeights` where
each rank holds a shard. With one process nothing is sent.
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
        """Each weight once, under its first name, as this rank stores it; `gather` makes full tensors of them."""
        return distinct(self.module.state_dict())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy full tensors, or what `tensors` gave, into the module.

        Raises:
            ValueError: a name or a shape is not what the module has.
        """
        load_tied(self.module, tensors)

    @contextlib.contextmanager
    def replaced(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """The module holds other weights inside, and its own again afterwards."""
        own = {name: tensor.detach().clone() for name, tensor in self.tensors().items()}
        self.load(tensors)
        try:
            yield
        finally:
            self.load(own)

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Full tensors, on the main rank; every rank has to call it."""
        return dict(tensors)

    def full(self, tensor: Tensor) -> Tensor:
        """One full tensor, on every rank; every rank has to call it."""
        return tensor

    def shard_moments(self, moments: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Full moments of the optimiser, by `<name of the weight>.<moment>`, stored as their weights are."""
        return moments

    def unsharded(self) -> contextlib.AbstractContextManager:
        """Every rank computes with all weights inside, without the others."""
        return contextlib.nullcontext()

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace each gradient by its sum over the ranks.

        This happens once a step, after the last backward pass, rather than in hooks during it: until then a rank
        may compute its part again in smaller pieces when memory runs out, and no other rank notices.
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
        torch._foreach_copy_(gradients, [part.view_as(one) for part, one in zip(parts, gradients, strict=True)])
