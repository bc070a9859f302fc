"""Counts what a GPU would be asked to do: calls of torch that start kernels, and reads that make the CPU wait.

The code of GPUs runs on a CPU where `as_on_a_gpu` answers the question that chooses it.
"""

import sys
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
READS = {
    aten._local_scalar_dense, aten.nonzero, aten.is_nonzero, aten.masked_select, aten.equal, aten.unique_dim,
    aten._unique2,
}  # fmt: skip
# Not views by their schema, but they start nothing.
FREE = {
    aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided, aten.detach,
    aten._unsafe_view, aten.lift_fresh, aten.promote_types,
}  # fmt: skip


def as_on_a_gpu(patch: pytest.MonkeyPatch) -> None:
    """Let the modules that are imported so far take the branches of a GPU on a CPU."""
    for name, module in list(sys.modules.items()):
        if name.startswith("seq2seq.") and hasattr(module, "on_cpu"):
            patch.setattr(module, "on_cpu", lambda tensor: False)


class Launches(TorchDispatchMode):
    """Inside, every call of torch that is no view is counted by name; so is every read, apart."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if torch.is_inference_mode_enabled():  # then `to` and `linear` come here whole
            with self:
                result = function.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        packet = function.overloadpacket
        if packet in READS or (packet in (aten.index, aten.index_put_) and _has_bool_index(args[1])):
            self.reads[packet.__name__] += 1
        elif function.namespace == "aten" and not function.is_view and packet not in FREE:
            self.calls[packet.__name__] += 1
        return function(*args, **(kwargs or {}))


def _has_bool_index(indices) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)
