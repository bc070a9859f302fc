"""The weights of a folder of transformers: safetensors in one file or several, or a pickle if the user wants it.

`interop.marian` reads all of them, `interop.m2m` one by one.
"""

import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from seq2seq.errors import ModelError, typed
from seq2seq.files import DamagedFile, check_regular, read_object
from seq2seq.tensors import FileTensors, HeldTensors, read_tensors

WEIGHTS, PICKLE = "model.safetensors", "pytorch_model.bin"
INDEX, PICKLE_INDEX = f"{WEIGHTS}.index.json", f"{PICKLE}.index.json"
SHARD = re.compile(r"[A-Za-z0-9_-][\w.-]*")


def stored_weights(folder: Path, torch_file: bool, kind: str = "marian") -> dict[str, Tensor]:
    """Read every tensor of a folder.

    Args:
        folder: with model.safetensors, or the files that its index names.
        torch_file: read `pytorch_model.bin`, or the parts of one that its index names, where there are none, with
            torch's reader that builds nothing but tensors.
        kind: what `s2s convert --from` calls the folder.

    Raises:
        ModelError: there are no weights, or only a pickle that is not to be read.
        DamagedFile: a file is not what it should be.
    """
    if (folder / WEIGHTS).exists():
        return read_tensors(folder / WEIGHTS)
    if (folder / INDEX).exists():
        return _sharded_weights(folder)
    return _from_pickle(folder, torch_file, kind)


def open_weights(folder: Path, torch_file: bool, kind: str) -> HeldTensors:
    """Open the tensors of a folder, to be read one by one; arguments and errors as of `stored_weights`."""
    if (folder / WEIGHTS).exists():
        return FileTensors([folder / WEIGHTS])
    if (folder / INDEX).exists():
        named = _shards(folder)
        return FileTensors([folder / file for file in sorted(set(named.values()))])
    return HeldTensors(_from_pickle(folder, torch_file, kind))


def _from_pickle(folder: Path, torch_file: bool, kind: str) -> dict[str, Tensor]:
    has_parts = not (folder / PICKLE).exists() and (folder / PICKLE_INDEX).exists()
    if not has_parts and not (folder / PICKLE).exists():
        raise ModelError(
            f"{folder}: {WEIGHTS} is missing; copy the whole folder; if the model has only {PICKLE}, convert it with "
            f"s2s convert --from {kind} FOLDER_OR_NAME --pickle -o MODEL"
        )
    if not torch_file:
        found = PICKLE_INDEX if has_parts else PICKLE
        raise ModelError(
            f"{folder}: has {found} and no {WEIGHTS}; a pickle can run code and is not read, unless you convert it "
            f"with s2s convert --from {kind} {typed(folder)} --pickle -o MODEL (only tensors are read from it)"
        )
    return _sharded_weights(folder, PICKLE_INDEX, _tensors_of) if has_parts else _tensors_of(folder / PICKLE)


def _tensors_of(pickle: Path) -> dict[str, Tensor]:
    """Return the tensors of one pickle.

    Raises:
        DamagedFile: it is missing.
        ModelError: it has anything else.
    """
    if not pickle.exists():
        raise DamagedFile(f"{pickle.name} is missing")
    check_regular(pickle)
    try:
        loaded = dict(torch.load(pickle, map_location="cpu", weights_only=True))
    except Exception as error:  # torch has no common error for files that it cannot read
        raise ModelError(f"{pickle.parent}: {pickle.name} cannot be read as plain tensors") from error
    if not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise ModelError(f"{pickle.parent}: {pickle.name} contains other values than tensors")
    return loaded


def _sharded_weights(
    folder: Path, index: str = INDEX, read: Callable[[Path], dict[str, Tensor]] = read_tensors
) -> dict[str, Tensor]:
    """Return the tensors of several files, as their index lists them.

    Raises:
        DamagedFile: the index is not valid, or a file is missing or lacks a tensor.
    """
    named = _shards(folder, index)
    shards = {file: read(folder / file) for file in sorted(set(named.values()))}
    if missing := [name for name, file in named.items() if name not in shards[file]]:
        raise DamagedFile(f"{named[missing[0]]} has no tensor {missing[0]}, which {index} names")
    return {name: shards[file][name] for name, file in named.items()}


def _shards(folder: Path, index: str = INDEX) -> dict[str, str]:
    """Return the file of each tensor, as the index names it."""
    named = read_object(folder / index).get("weight_map")
    ending = Path(index.removesuffix(".index.json")).suffix
    if not named or not isinstance(named, dict) or not all(_is_shard(file, ending) for file in named.values()):
        raise DamagedFile(f"{index} has no weight_map from tensors to files of this folder")
    return named


def _is_shard(file: object, ending: str) -> bool:
    """Whether an index names a file of its folder with this ending."""
    return isinstance(file, str) and bool(SHARD.fullmatch(file)) and file.endswith(ending)
