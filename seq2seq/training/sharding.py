"""Weights sharded over the ranks, each of which keeps a shard of every weight, its gradient and its moments (FSDP2).

Models that do not fit on one device need it. Weights are unsharded a layer at a time while a batch is computed, all
together while the model is validated, and one after the other for a checkpoint, which does not depend on the number of
ranks. The trainer imports this module if `training.shard` is set and there are several ranks.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from seq2seq.errors import UserError
from seq2seq.runtime import Runtime
from seq2seq.tensors import mismatch
from seq2seq.training.weights import Weights


class ShardedWeights(Weights):
    """Weights of which every rank holds a shard."""

    can_split_alone = False

    def __init__(self, module: nn.Module, runtime: Runtime):
        """Shard the main rank's weights: each layer separately, and all weights outside of layers together.

        Raises:
            UserError: training is in float16, whose loss scale each rank chooses independently.
        """
        if runtime.precision == torch.float16:
            raise UserError("training.shard: not with training.precision float16; choose bfloat16 or float32")
        super().__init__(module, runtime)
        mesh = init_device_mesh(runtime.device.type, (runtime.world_size,))
        for blocks in [part for part in module.modules() if isinstance(part, nn.ModuleList)]:
            for layer in blocks:
                fully_shard(layer, mesh=mesh, reshard_after_forward=True)
        fully_shard(module, mesh=mesh, reshard_after_forward=False)
        self._units = [part for part in module.modules() if isinstance(part, FSDPModule)]
        for unit in self._units:  # gradients are summed, like full ones by `Weights.sum_gradients`
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.module.named_parameters())

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        parameters = self.tensors()
        if problem := mismatch(parameters, tensors):
            raise ValueError(problem)
        for name, parameter in parameters.items():
            parameter.copy_(_shard(tensors[name], parameter))

    @torch.no_grad()
    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        gathered = ((name, self.full(tensor)) for name, tensor in tensors.items())
        return {name: tensor.cpu() for name, tensor in gathered if self.runtime.is_main}

    def full(self, tensor: Tensor) -> Tensor:
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def shard_moments(self, moments: Mapping[str, Tensor]) -> dict[str, Tensor]:
        parameters = self.tensors()
        return {
            key: _shard(tensor, parameters[name]) if (name := key.rpartition(".")[0]) in parameters else tensor
            for key, tensor in moments.items()
        }

    @contextlib.contextmanager
    def unsharded(self) -> Iterator[None]:
        layers = [unit for unit in self._units if unit is not self.module]
        for layer in layers:
            layer.set_reshard_after_forward(False)
        for unit in self._units:
            unit.unshard()
        try:
            yield
        finally:
            for unit in self._units:
                unit.reshard()
            for layer in layers:
                layer.set_reshard_after_forward(True)

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Do nothing, because each backward pass has summed and sharded the gradients."""


def _shard(tensor: Tensor, parameter: DTensor) -> Tensor:
    """Return this rank's shard of a full tensor that belongs to `parameter`; a scalar, such as a count, stays full."""
    if isinstance(tensor, DTensor) or tensor.shape != parameter.shape:
        return tensor
    mesh = parameter.device_mesh
    return distribute_tensor(tensor.to(mesh.device_type), mesh, parameter.placements, src_data_rank=None)
