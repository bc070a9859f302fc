"""A recorder for a CPU that is as strict as a CUDA graph: it repeats calls of torch, with the tensors and the numbers
of the first time, and refuses functions that read a number back."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

READS = {torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten.is_nonzero, torch.ops.aten.equal}


def tensors(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


class Tape(TorchDispatchMode):
    """The calls of a function, which `replay` repeats."""

    def __init__(self):
        super().__init__()
        self.calls, self.outputs, self.replays = [], (), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket in READS:
            raise RuntimeError(f"a recorded function must not read {function.overloadpacket.__name__}")
        result = function(*args, **(kwargs or {}))
        given = {tensor.untyped_storage().data_ptr() for tensor in tensors((args, kwargs)) if tensor.numel()}
        made = tensors(result)
        if function._schema.is_mutable:
            self.calls.append((function, args, kwargs or {}, []))
        elif not any(each.untyped_storage().data_ptr() in given for each in made if each.numel()):  # not a view
            self.calls.append((function, args, kwargs or {}, made))
        return result

    def replay(self):
        self.replays += 1
        with torch.no_grad(), _disable_current_modes():  # `Launches` does not see what a GPU launches together
            for function, args, kwargs, made in self.calls:
                result = function(*args, **kwargs)
                if made:
                    for old, new in zip(made, tensors(result), strict=True):
                        old.copy_(new)


class Tapes:
    """A recorder that makes a `Tape` of each function."""

    def __init__(self):
        self.made = []

    def record(self, function):
        for _ in range(2):  # as a GPU warms up
            function()
        tape = Tape()
        with tape:
            tape.outputs = function()
        self.made.append(tape)
        return tape
