"""Tensors in safetensors files, and checks of their content.

`checkpoint` and `model_folder` store weights with these functions. A file contains each storage once: tied weights are
written under their first name, and tied again by the model that reads them. `store` and `interop` read weights block by
block into a module (`HeldTensors`), so that loading takes the memory of the weights once.
"""

import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, load_file, save, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from seq2seq.errors import reason
from seq2seq.files import DamagedFile, check_regular
from seq2seq.lines import shown_name

LARGEST_WEIGHT = 1e6
BLOCK_BYTES = 2**25
_MAPPED_BYTES = 2**22  # bytes of small tensors after which a file is opened anew
FLOATS = ("F64", "F32", "F16", "BF16")


def distinct(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return `state` with only the first name of each storage (tied weights)."""
    kept: dict[object, tuple[str, Tensor]] = {}
    for name, tensor in state.items():
        has_storage = tensor.numel() and not tensor.is_meta
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if has_storage else id(tensor)
        kept.setdefault(same, (name, tensor.detach()))
    return dict(kept.values())


def load_tied(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy `tensors`, the result of `distinct`, into `module`.

    Raises:
        ValueError: a name or a shape differs from the module's; the message names it.
    """
    own = module.state_dict(keep_vars=True)
    if problem := mismatch(distinct(own), tensors):
        raise ValueError(problem)
    module.load_state_dict(tensors, strict=False)


def mismatch(expected: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> str | None:
    """Return a message about the first name or shape in which stored tensors differ from the expected ones, or None."""
    for names, problem in ((set(expected) - set(stored), "is missing"), (set(stored) - set(expected), "is unexpected")):
        if names:
            return f"tensor {min(names)} {problem}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    for name, tensor in expected.items():
        if tensor.shape != stored[name].shape:
            return f"tensor {name} has shape {tuple(stored[name].shape)}, not {tuple(tensor.shape)}"
    return None


class Uninitialized(TorchFunctionMode):
    """A mode in which new modules have uninitialized weights and draw no random numbers.

    On the `meta` device the weights take no memory either. `torch.device("meta")` would also move the computation of
    tables there, for which torch imports its compiler, which takes a second.
    """

    def __init__(self, device: str = "cpu"):
        super().__init__()
        self._device = device

    def __torch_function__(self, function: Callable, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function.__name__.endswith(("uniform_", "normal_", "constant_", "zeros_", "ones_", "fill_", "zero_")):
            return args[0] if args else kwargs["tensor"]
        if function is torch.empty:
            kwargs = {**kwargs, "device": self._device}
        return function(*args, **kwargs)


def give_memory(module: nn.Module) -> None:
    """Replace all weights of a module on the `meta` device by uninitialized ones in memory; tied weights stay tied."""
    made = {weight: nn.Parameter(torch.empty(weight.shape, dtype=weight.dtype)) for weight in module.parameters()}
    for owner in module.modules():
        for name, weight in list(owner.named_parameters(recurse=False)):
            setattr(owner, name, made[weight])


def misfit(make: Callable[[], nn.Module], stored: Mapping[str, Tensor]) -> str | None:
    """Return the `mismatch` of the module that `make` creates, without allocating memory for its weights."""
    with Uninitialized("meta"):
        outline = make()
    return mismatch(distinct(outline.state_dict(keep_vars=True)), stored)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write one safetensors file.

    Raises:
        OSError: the disk is full or the folder is not writable.
    """
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        if has_utf8_name(path):
            save_file(tensors, path, metadata)
        else:
            path.write_bytes(save(tensors, metadata))
        path.chmod(mode)  # safetensors ignores the umask
    except SafetensorError as error:
        raise OSError(None, f"{error}") from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file.

    Raises:
        DamagedFile: it is not a complete safetensors file.
    """
    with damage_named(path):
        return load_file(path) if has_utf8_name(path) else load(path.read_bytes())


def as_weights(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return stored weights in float32.

    Raises:
        DamagedFile: a tensor has no floating-point type, or values that no trained model has.
    """
    weights: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if not tensor.is_floating_point():
            raise DamagedFile(f"tensor {name} has the type {str(tensor.dtype).removeprefix('torch.')}, not a float")
        if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
            raise DamagedFile(f"tensor {name} has fewer stored numbers than elements")
        weights[name] = tensor.float()
        if tensor.numel():
            low, high = (float(bound) for bound in weights[name].aminmax())
            if not -LARGEST_WEIGHT <= low <= high <= LARGEST_WEIGHT:  # false for NaN too
                raise DamagedFile(f"tensor {name} has values from {low:g} to {high:g}, which no trained model has")
    return weights


def average(states: Sequence[Mapping[str, Tensor]], weights: Sequence[float] | None = None) -> dict[str, Tensor]:
    """Return the weighted mean of each floating-point tensor over `states`, summed in float64; other tensors are copied
    from the first state.

    `weights` has one number >= 0 per state. A state with weight 0 is skipped, so weights 0 and 1 give the second state
    bit by bit.
    """
    weights = [1.0] * len(states) if weights is None else weights
    mean: dict[str, Tensor] = {}
    for name, first in states[0].items():
        if not first.is_floating_point():
            mean[name] = first.clone()
            continue
        total = torch.zeros_like(first, dtype=torch.float64)
        for state, weight in zip(states, weights, strict=True):
            if weight:
                total.add_(state[name], alpha=weight)
        mean[name] = (total / sum(weights)).to(first.dtype)
    return mean


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Within the block, whatever is wrong with a safetensors file is a `DamagedFile` with its name."""
    check_regular(path)
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFile(f"{path.name} is missing") from error
    except OSError as error:
        raise DamagedFile(f"{path.name} cannot be read ({reason(error)})") from error
    except (SafetensorError, ValueError) as error:
        raise DamagedFile(f"{path.name} is not a whole safetensors file ({reason(error)})") from error


def has_utf8_name(path: Path) -> bool:
    """Whether a path is UTF-8, which safetensors needs to open it."""
    return shown_name(str(path)) == str(path)


# -- tensors that are read block by block into a module ---------------------------------------------------------------


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

    A file is opened anew after `_MAPPED_BYTES` and for each larger block, because the pages that a mapping has read
    count as memory until it is closed.

    Raises:
        DamagedFile: a file is not a complete safetensors file, or has tensors that are not of floats.
    """

    def __init__(self, paths: Sequence[Path]):
        super().__init__({})
        self._paths: dict[str, Path] = {}
        self._file: tuple[Path, Any] | None = None
        self._bytes_read = 0
        for path in paths:
            if not has_utf8_name(path):
                held = HeldTensors(read_tensors(path))
                self._tensors |= held._tensors
                self.shapes |= held.shapes
                continue
            with damage_named(path), safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118, not a mapping
                    self.shapes[name], self._paths[name] = _shape_of_floats(file, name), path

    def blocks(self, name: str) -> Iterator[tuple[int, Tensor]]:
        """See `HeldTensors.blocks`."""
        if name in self._tensors:
            yield from super().blocks(name)
            return
        shape, path = self.shapes[name], self._paths[name]
        row_bytes = 4 * max(1, torch.Size(shape[1:]).numel())
        count = max(1, BLOCK_BYTES // row_bytes)
        for row in range(0, shape[0] if shape else 1, count):
            rows = min(count, shape[0] - row) if shape else 1
            with damage_named(path):
                file = self._opened(path, rows * row_bytes)
                yield row, file.get_slice(name)[row : row + rows].float() if shape else file.get_tensor(name).float()

    def _opened(self, path: Path, size: int) -> Any:
        """Return an open file from which `size` more bytes may be read."""
        if self._file is None or self._file[0] != path or self._bytes_read + size > _MAPPED_BYTES:
            self._file = None  # closes it
            self._file, self._bytes_read = (path, safe_open(path, "pt")), 0
        self._bytes_read += size
        return self._file[1]


def _shape_of_floats(file: Any, name: str) -> tuple[int, ...]:
    """Return the shape of a tensor in an open safetensors file; raise `DamagedFile` if it is not of floats."""
    part = file.get_slice(name)
    if (kind := part.get_dtype()) not in FLOATS:
        raise DamagedFile(f"tensor {name} has the type {kind}, not a float")
    return tuple(part.get_shape())


class SelectedRows(HeldTensors):
    """Tensors of which some are read without all of their rows.

    Args:
        held: tensors with all rows.
        names: of the tensors that are selected from.
        rows: numbers of the rows that are left, ascending.
    """

    def __init__(self, held: HeldTensors, names: Collection[str], rows: Sequence[int]):
        self._held, self._names, self._rows = held, names, torch.tensor(rows, dtype=torch.long)
        self.shapes = {name: (len(rows), *shape[1:]) if name in names else shape for name, shape in held.shapes.items()}

    def blocks(self, name: str) -> Iterator[tuple[int, Tensor]]:
        """See `HeldTensors.blocks`."""
        if name not in self._names:
            yield from self._held.blocks(name)
            return
        count = 0
        for first, block in self._held.blocks(name):
            inside = self._rows[(self._rows >= first) & (self._rows < first + len(block))]
            yield count, block[inside - first]
            count += len(inside)


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
