"""Out-of-memory errors: recognise them, release cached memory, and compute in smaller parts.

Validation and decoding use `in_parts`, training `is_out_of_memory` and `release`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch

Result = TypeVar("Result")

# Out-of-memory messages of torch and of the libraries that it calls.
OUT_OF_MEMORY = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "MPS backend out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


class Splittable(Protocol):
    """A batch that can be divided into two halves of its rows."""

    def __len__(self) -> int: ...

    def split(self) -> tuple[Any, Any]: ...


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that a tensor did not fit in memory, on a GPU or a CPU."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (any(words in text for words in OUT_OF_MEMORY))


def release() -> None:
    """Release cached GPU memory, so that tensors of other sizes fit."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def in_parts(compute: Callable[[Any], Result], batch: Splittable) -> list[Result]:
    """Return `[compute(batch)]`, or, if that does not fit in memory, the results of the two halves, computed in the
    same way.

    Raises:
        RuntimeError, MemoryError: a single row does not fit, or `compute` failed for another reason.
    """
    try:
        return [compute(batch)]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error) or len(batch) < 2:
            raise
    release()  # outside the except clause: the traceback holds the tensors of the failed attempt
    first, second = batch.split()
    return in_parts(compute, first) + in_parts(compute, second)
