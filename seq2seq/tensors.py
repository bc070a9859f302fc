"""Tensors in safetensors files: no code in them, every error in words.

`checkpoint` and `model_folder` store weights through here. A file holds each storage once: tied weights are written
under their first name and tied again by the model that reads them.
"""

import hashlib
import json
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, load_file, save, save_file
from torch import Tensor, nn

from seq2seq.lines import read_regular, shown_name

LARGEST_WEIGHT = 1e6


class DamagedFile(Exception):
    """A stored file that is missing, shortened or changed; the message says which of these."""


def distinct(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`state` without the second and later names of a tensor that is stored once (tied weights)."""
    kept: dict[object, tuple[str, Tensor]] = {}
    for name, tensor in state.items():
        has_storage = tensor.numel() and not tensor.is_meta
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if has_storage else id(tensor)
        kept.setdefault(same, (name, tensor.detach()))
    return dict(kept.values())


def load_tied(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy `tensors`, as `distinct` left them, into `module`, whose tied weights are one storage.

    Raises:
        ValueError: a name or a shape is not what the module has; the message names it.
    """
    own = module.state_dict(keep_vars=True)
    if problem := mismatch(distinct(own), {name: tuple(tensor.shape) for name, tensor in tensors.items()}):
        raise ValueError(problem)
    module.load_state_dict(tensors, strict=False)


def mismatch(expected: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """In words, the first difference between a module's tensors and stored shapes, or None."""
    missing, surplus = sorted(set(expected) - set(shapes)), sorted(set(shapes) - set(expected))
    if missing:
        return f"tensor {missing[0]} is missing" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
    if surplus:
        return f"tensor {surplus[0]} is of no use" + (f" and {len(surplus) - 1} more" if len(surplus) > 1 else "")
    for name, tensor in expected.items():
        if tuple(tensor.shape) != tuple(shapes[name]):
            return f"tensor {name} has shape {tuple(shapes[name])} where {tuple(tensor.shape)} belongs"
    return None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write one safetensors file.

    Raises:
        OSError: the disk is full or the folder is not writable.
    """
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        if _is_plain(path):
            save_file(tensors, path, metadata)
        else:
            path.write_bytes(save(tensors, metadata))
        path.chmod(mode)  # safetensors leaves a file that its owner alone may read, whatever the umask
    except SafetensorError as error:
        raise OSError(None, f"{error}") from error


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """What `write_tensors` writes, for small files."""
    return save({name: tensor.contiguous() for name, tensor in tensors.items()})


def as_weights(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Stored weights in float32.

    Raises:
        DamagedFile: some are not floating-point numbers, not finite, or so large that nothing can be computed.
    """
    weights: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if not tensor.is_floating_point():
            raise DamagedFile(f"tensor {name} has the type {str(tensor.dtype).removeprefix('torch.')}, not a float")
        if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
            raise DamagedFile(f"tensor {name} repeats few numbers instead of holding its own")
        weights[name] = tensor.float()
        if tensor.numel():
            low, high = (float(bound) for bound in weights[name].aminmax())
            if not -LARGEST_WEIGHT <= low <= high <= LARGEST_WEIGHT:  # nor where one is not a number
                raise DamagedFile(f"tensor {name} holds {low:g} to {high:g}, which are no weights of a trained model")
    return weights


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a safetensors file.

    Raises:
        DamagedFile: it is not a whole safetensors file.
    """
    check_regular(path)
    try:
        return load_file(path) if _is_plain(path) else load(path.read_bytes())
    except (OSError, SafetensorError, ValueError) as error:
        raise DamagedFile(f"{path.name} is not a whole safetensors file ({_first_line(error)})") from error


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes by name, read from the header alone.

    Raises:
        DamagedFile: it is not a whole safetensors file.
    """
    check_regular(path)
    if not _is_plain(path):
        return {name: tuple(tensor.shape) for name, tensor in read_tensors(path).items()}
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise DamagedFile(f"{path.name} is not a whole safetensors file ({_first_line(error)})") from error


def average(states: Sequence[Mapping[str, Tensor]], weights: Sequence[float] | None = None) -> dict[str, Tensor]:
    """The mean of each floating-point tensor over `states`, summed in float64; others are the first state's.

    `weights`, one a state and not negative, are taken in proportion; a state with weight 0 has no part in the sum, so
    that of weights 0 and 1 the second state comes back bit by bit.
    """
    weights = [1.0] * len(states) if weights is None else weights
    parts = [(state, weight) for state, weight in zip(states, weights, strict=True) if weight]
    whole = sum(weights)
    mean: dict[str, Tensor] = {}
    for name, first in states[0].items():
        if first.is_floating_point():
            total = torch.zeros_like(first, dtype=torch.float64)
            for state, weight in parts:
                total.add_(state[name], alpha=weight)
            mean[name] = (total / whole).to(first.dtype)
        else:
            mean[name] = first.clone()
    return mean


def record(path: Path) -> dict[str, str | int]:
    """Size and SHA-256 of a file, as manifests hold them."""
    with open(path, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"sha256": digest, "size": path.stat().st_size}


def verify(path: Path, recorded: Mapping[str, str | int]) -> None:
    """Compare a file with what `record` noted when it was written.

    Raises:
        DamagedFile: it is missing, shorter or longer, or its content changed.
    """
    check_regular(path)
    try:
        size = path.stat().st_size
        if size != recorded["size"]:
            raise DamagedFile(f"{path.name} has {size} bytes where {recorded['size']} were written")
        if record(path)["sha256"] != recorded["sha256"]:
            raise DamagedFile(f"{path.name} changed after it was written (SHA-256 differs)")
    except OSError as error:
        raise DamagedFile(f"{path.name} cannot be read ({error.strerror})") from error


def read_object(path: Path, largest: int = 64 * 2**20) -> dict:
    """A JSON object from a file of at most `largest` bytes.

    Raises:
        DamagedFile: it is missing, too large, or not one JSON object.
    """
    try:
        value = json.loads(read_regular(path, largest).decode("utf-8"))
    except OSError as error:
        raise DamagedFile(f"{path.name} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{path.name} is not JSON ({_first_line(error)})") from error
    if not isinstance(value, dict):
        raise DamagedFile(f"{path.name} is not a JSON object")
    return value


def check_regular(path: Path) -> None:
    """Refuse a pipe, which would be waited for, and a device, which never ends.

    Raises:
        DamagedFile: `path` exists and is no regular file.
    """
    if path.exists() and not path.is_file():
        raise DamagedFile(f"{path.name} is not a regular file")


def _is_plain(path: Path) -> bool:
    """Whether safetensors can open it: a name may be bytes that are no UTF-8."""
    return shown_name(str(path)) == str(path)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
