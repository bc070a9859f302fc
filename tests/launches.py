"""Counts what a GPU would be asked to do, on any device: kernels started, and values that the host waits for."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "equal", "unique_dim", "_unique2"}
# Views and allocations start no kernel.
FREE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "lift_fresh", "is_pinned"}


class Launches(TorchDispatchMode):
    """While active, counts by name the aten calls that start a kernel, `started`, and those that read, `reads`."""

    def __init__(self):
        super().__init__()
        self.started: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        has_bool_index = name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if name in READS or has_bool_index:
            self.reads[name] += 1
        elif not func.is_view and name not in FREE:
            self.started[name] += 1
        return func(*args, **(kwargs or {}))
