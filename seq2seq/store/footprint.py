"""The memory that a model needs, which is known from the heads of its weight files before anything is loaded.

`load_model` and the start of a training refuse a model that this machine cannot hold; `s2s info` and training report
the figures. This module does not import torch.
"""

import contextlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

from seq2seq.errors import ModelError

_KINDS = ("F64", "F32", "F16", "BF16")  # of weights in safetensors
_LONGEST_HEAD = 2**26  # bytes
WEIGHTS = "model.safetensors"
FLOAT32 = 4
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(frozen=True)
class Footprint:
    """The memory for the weights of a model, in bytes; batches and the program itself come in addition."""

    parameters: int
    """The number of weights in its files."""

    @property
    def loaded(self) -> int:
        """In float32, to translate with PyTorch, or to convert the model for CTranslate2."""
        return FLOAT32 * self.parameters

    @property
    def converted(self) -> int:
        """In int8, to translate with CTranslate2."""
        return self.parameters

    def trained(self, copies: int = 4) -> int:
        """In training, with `copies` numbers for each weight: itself, its gradient and the two moments of AdamW."""
        return copies * FLOAT32 * self.parameters


def footprint(folder: Path) -> Footprint | None:
    """Return the memory of the model in a folder; None if it has no safetensors, or damaged ones."""
    paths = [folder / WEIGHTS] if (folder / WEIGHTS).is_file() else sorted(folder.glob("model-*.safetensors"))
    try:
        total = sum(map(_num_weights, paths))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Footprint(total) if paths else None


def check_room(folder: Path) -> None:
    """Refuse a model whose weights alone are larger than the memory of this machine.

    Raises:
        ModelError: the model is too large.
    """
    found, most = footprint(folder), machine_memory()
    if found is None or most is None or found.loaded <= most:
        return
    ways = ["remove unused pieces (s2s vocabulary trim)"]
    if found.converted < most:
        needed = shown_bytes(found.converted)
        ways.append(f"convert it with s2s convert --to ctranslate2 --quantization int8, which needs {needed} here")
    sizes = f"the weights need {shown_bytes(found.loaded)}, but this machine has {shown_bytes(most)}"
    raise ModelError(f"{folder}: {sizes}; on a larger machine, {', or '.join(ways)}")


def check_training(initial: str | Path, needed: int) -> None:
    """Refuse to train a model on a CPU if the memory of this machine cannot hold the `needed` bytes.

    Raises:
        ModelError: the model is too large.
    """
    most = machine_memory()
    if most is not None and needed > most:
        raise ModelError(
            f"{initial}: weights, gradients and optimizer need {shown_bytes(needed)}, but this machine has "
            f"{shown_bytes(most)}; set training.freeze, remove unused pieces first (s2s vocabulary trim), or train on "
            "a larger machine"
        )


def machine_memory() -> int | None:
    """Return the bytes of memory of this machine or container, swap included; None if the system does not report it."""
    try:
        lines = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
        total = sum(1024 * int(line[1]) for line in lines if line[0] in ("MemTotal:", "SwapTotal:"))
    except (OSError, ValueError, IndexError):
        try:
            total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, AttributeError):
            return None
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(path).read_text()))
    return total


def shown_bytes(count: float) -> str:
    """Return a number of bytes for people: `1.9 GiB`."""
    unit, size = next(((unit, size) for unit, size in _UNITS if count >= size), _UNITS[-1])
    return f"{count / size:,.1f} {unit}"


def _num_weights(path: Path) -> int:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= _LONGEST_HEAD:
            raise ValueError
        head = json.loads(file.read(length))
    return sum(math.prod(each["shape"]) for each in head.values() if each.get("dtype") in _KINDS)
