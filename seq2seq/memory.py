"""What to do when memory runs out: give back what is held, and compute in smaller parts.

Training, validation and decoding all follow this one rule, through `in_parts` or its two halves.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch

Result = TypeVar("Result")


class Splittable(Protocol):
    """A batch that can be halved by rows."""

    def __len__(self) -> int: ...

    def split(self) -> tuple[Any, Any]: ...


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a tensor did not fit, on a GPU or on a CPU."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "DefaultCPUAllocator: can't allocate memory" in text
        or "DefaultCPUAllocator: not enough memory" in text
        or "MPS backend out of memory" in text
    )


def release() -> None:
    """Give cached blocks back to the device, so that other sizes fit."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def in_parts(compute: Callable[[Any], Result], batch: Splittable) -> list[Result]:
    """`[compute(batch)]`, or the results of its halves, and theirs, where the whole does not fit in memory.

    Raises:
        The error of a single row that does not fit.
    """
    try:
        return [compute(batch)]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error) or len(batch) < 2:
            raise
    release()  # outside the except clause: the traceback holds the tensors of the failed attempt
    first, second = batch.split()
    return in_parts(compute, first) + in_parts(compute, second)
