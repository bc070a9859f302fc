"""Stored tensors that are read block by block into a module: loading takes the memory of the weights once.

`store` and `interop` open the weights of model folders; `tensors` reads the files of checkpoints as a whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from seq2seq.files import DamagedFile
from seq2seq.tensors import LARGEST_WEIGHT, damage_named, has_utf8_name, read_tensors

BLOCK_BYTES = 2**25
FLOATS = ("F64", "F32", "F16", "BF16")


class HeldTensors:
    """Tensors in memory."""

    def __init__(self, tensors: Mapping[str, Tensor]):
        self._tensors = dict(tensors)
        self.shapes: dict[str, tuple[int, ...]] = {name: tuple(one.shape) for name, one in tensors.items()}
        """By name."""
        for name, tensor in tensors.items():
            if not tensor.is_floating_point():
                raise DamagedFile(f"tensor {name} has the type {str(tensor.dtype).removeprefix('torch.')}, not a float")
            if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
                raise DamagedFile(f"tensor {name} has fewer stored numbers than elements")

    def outlines(self) -> dict[str, Tensor]:
        """Return tensors of the same shapes, without memory."""
        return {name: torch.empty(shape, device="meta") for name, shape in self.shapes.items()}

    def blocks(self, name: str) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows of a tensor in float32 by blocks, each with the number of its first row."""
        yield 0, self._tensors[name].float()


class FileTensors(HeldTensors):
    """Tensors of safetensors files.

    A file is opened anew for each block, because the pages that a mapping has read count as memory until it is closed.

    Raises:
        DamagedFile: a file is not a complete safetensors file, or has tensors that are not of floats.
    """

    def __init__(self, paths: Sequence[Path]):
        super().__init__({})
        self._paths: dict[str, Path] = {}
        for path in paths:
            if not has_utf8_name(path):
                held = HeldTensors(read_tensors(path))
                self._tensors |= held._tensors
                self.shapes |= held.shapes
                continue
            with damage_named(path), safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118, not a mapping
                    part = file.get_slice(name)
                    if (kind := part.get_dtype()) not in FLOATS:
                        raise DamagedFile(f"tensor {name} has the type {kind}, not a float")
                    self.shapes[name], self._paths[name] = tuple(part.get_shape()), path

    def blocks(self, name: str) -> Iterator[tuple[int, Tensor]]:
        """See `HeldTensors.blocks`."""
        if name in self._tensors:
            yield from super().blocks(name)
            return
        shape, path = self.shapes[name], self._paths[name]
        count = max(1, BLOCK_BYTES // (4 * max(1, torch.Size(shape[1:]).numel())))
        for row in range(0, shape[0] if shape else 1, count):
            with damage_named(path), safe_open(path, "pt") as file:
                yield row, file.get_slice(name)[row : row + count].float() if shape else file.get_tensor(name).float()


def copy_rows(stored: HeldTensors, name: str, destination: Tensor, skipped: int = 0) -> None:
    """Copy a stored tensor into `destination`, which has its shape without the first `skipped` rows.

    Raises:
        DamagedFile: it has values that no trained model has.
    """
    for row, block in stored.blocks(name):
        low, high = (float(bound) for bound in block.aminmax()) if block.numel() else (0.0, 0.0)
        if not -LARGEST_WEIGHT <= low <= high <= LARGEST_WEIGHT:  # false for NaN too
            raise DamagedFile(f"tensor {name} has values from {low:g} to {high:g}, which no trained model has")
        block = block[max(0, skipped - row) :]
        first = max(0, row - skipped)
        destination[first : first + len(block)] = block


def are_equal(stored: HeldTensors, name: str, tensor: Tensor) -> bool:
    """Whether a stored tensor has the values of another one."""
    return stored.shapes[name] == tuple(tensor.shape) and all(
        torch.equal(block, tensor[row : row + len(block)]) for row, block in stored.blocks(name)
    )
