"""Weights sharded over the ranks: each keeps a part of every weight, of its gradient and of its moments (FSDP2).

For models that no single device has room for. Whole weights come together a layer at a time while a batch is computed,
all of them while the model is validated, and one after the other where a checkpoint, which is the same whatever the
number of ranks, is written. The trainer calls these; for a module that is not sharded they do nothing, and need not
wait for the packages of those that are.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.runtime import Runtime
from seq2seq.tensors import distinct, load_tied, mismatch
from seq2seq.training.ranks import broadcast_weights

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def shard(module: nn.Module, runtime: Runtime) -> None:
    """Give every rank its share of the main rank's weights: layer by layer, and what is outside of layers together.

    Gradients are summed over the ranks when they are sharded, as `ranks.sum_gradients` sums whole ones.

    Raises:
        UserError: training is in float16, whose loss scale every rank chooses for itself.
    """
    if runtime.world_size == 1:
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if runtime.precision == torch.float16:
        raise UserError("training.shard: not with training.precision float16; choose bfloat16 or float32")
    broadcast_weights(module, runtime)
    mesh = init_device_mesh(runtime.device.type, (runtime.world_size,))
    for layer in _layers(module):
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    fully_shard(module, mesh=mesh, reshard_after_forward=False)
    for part in _parts(module):
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)


def is_sharded(module: nn.Module) -> bool:
    """Whether the module's weights are sharded."""
    return any(_is_share(parameter) for parameter in module.parameters())


@contextlib.contextmanager
def unsharded(module: nn.Module) -> Iterator[None]:
    """Every rank holds all weights inside, and computes without the others."""
    parts = _parts(module)
    layers = [part for part in parts if part is not module]
    for layer in layers:
        layer.set_reshard_after_forward(False)
    for part in parts:
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
        for layer in layers:
            layer.set_reshard_after_forward(True)


def weights(module: nn.Module) -> dict[str, Tensor]:
    """Each weight once, under its first name, as it is stored; `gather` makes whole ones of them."""
    return dict(module.named_parameters()) if is_sharded(module) else distinct(module.state_dict())


def full_tensor(tensor: Tensor) -> Tensor:
    """`tensor` with the shares of all ranks; every rank has to call it."""
    return tensor.full_tensor() if _is_share(tensor) else tensor


@torch.no_grad()
def gather(tensors: Mapping[str, Tensor], runtime: Runtime) -> dict[str, Tensor]:
    """Whole tensors, for the main rank alone where they had been sharded; every rank has to call it."""
    found = {}
    for name, tensor in tensors.items():
        complete = full_tensor(tensor)
        if complete is tensor or runtime.is_main:
            found[name] = tensor if complete is tensor else complete.cpu()
    return found


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy whole `tensors`, as `weights` named them, into `module`.

    Raises:
        ValueError: a name or a shape is not what the module has.
    """
    if not is_sharded(module):
        load_tied(module, tensors)
        return
    own = dict(module.named_parameters())
    if problem := mismatch(own, tensors):
        raise ValueError(problem)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(_share(tensors[name], parameter))


def shard_moments(module: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole moments of the optimiser, by `<name of the weight>.<moment>`, as the weights are sharded."""
    own = dict(module.named_parameters())
    return {
        key: _share(tensor, own[name]) if (name := key.rpartition(".")[0]) in own else tensor
        for key, tensor in tensors.items()
    }


def _share(tensor: Tensor, parameter: Tensor) -> Tensor:
    """This rank's share of a whole tensor that belongs to `parameter`; a count, which has no shape, stays whole."""
    if not _is_share(parameter) or tensor.shape != parameter.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh = parameter.device_mesh
    return distribute_tensor(tensor.to(mesh.device_type), mesh, parameter.placements, src_data_rank=None)


def _is_share(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # as torch's DTensor has, which takes a second to import


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    for part in module.modules():
        if isinstance(part, nn.ModuleList):
            yield from part


def _parts(module: nn.Module) -> list["FSDPModule"]:
    if not is_sharded(module):
        return []
    from torch.distributed.fsdp import FSDPModule

    return [part for part in module.modules() if isinstance(part, FSDPModule)]
