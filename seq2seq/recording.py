"""Recordings: the launches of a function of tensors are recorded once, and replayed in one call.

A GPU with little work waits for the CPU, which launches hundreds of kernels for each step. A CUDA graph repeats them
with the same addresses and the same numbers of Python, so a function that is recorded reads and writes tensors that
stay in one place, and everything that changes from call to call is a tensor.

`training.recorded` records training steps, and `search.recorded` steps of a search.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from seq2seq.memory import is_out_of_memory

# Calls before each recording, in which libraries allocate what they need.
WARM_UPS = 3
# Relative difference of a replayed step and an ordinary one; kernels may add in another order.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 2e-2}


class Recording(Protocol):
    """A recorded function, which reads and writes the same tensors at each replay."""

    outputs: tuple[Tensor, ...]

    def replay(self) -> None:
        """Run the recorded kernels again."""


class Recorder(Protocol):
    """A way to record functions of tensors."""

    def record(self, function: Callable[[], tuple[Tensor, ...]]) -> Recording:
        """Run `function` up to `WARM_UPS` times, record it, and return the recording."""


@dataclass
class _Graph:
    outputs: tuple[Tensor, ...]
    replay: Callable[[], None]


class CudaGraphs:
    """The recorder of a GPU; all its graphs share one pool of memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, function: Callable[[], tuple[Tensor, ...]]) -> Recording:
        """See `Recorder.record`."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                function()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Another thread, such as one that loads an aligner, may use the GPU meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            outputs = function()
        return _Graph(outputs, graph.replay)


def differs(replayed: Tensor, ordinary: Tensor, precision: torch.dtype) -> bool:
    """Whether a result of a replayed step differs from that of an ordinary one by more than rounding."""
    tolerance = TOLERANCE.get(precision, TOLERANCE[torch.bfloat16])
    largest = ordinary.float().abs().max()
    return not bool((ordinary.float() - replayed.float()).abs().max() <= tolerance * largest + 1e-12)


def reason_of(error: BaseException) -> str:
    """Return the reason why a recording failed, in one line."""
    return "out of memory" if is_out_of_memory(error) else " ".join(str(error).split())[:200]
