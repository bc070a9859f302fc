"""Checkpoints: everything that a run needs to continue, in a folder that is complete or ignored.

The trainer saves and loads them; `latest_checkpoint` finds the newest undamaged one. `model_folder` writes model
folders, which people use and copy.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2seq import atomic
from seq2seq.errors import CheckpointError, shown
from seq2seq.files import LARGEST_STATE, DamagedFile, read_object, record, verify
from seq2seq.tensors import read_tensors, write_tensors

FORMAT_VERSION = 1
MANIFEST, STATE = "manifest.json", "state.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run at one step: groups of tensors (`model`, `optimizer`, ...) and a JSON state."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def save_checkpoint(
    parent: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]
) -> Path:
    """Write `parent/step_N` with one safetensors file per group, `state.json`, and a manifest of their SHA-256.

    Raises:
        RunError: the disk is full or not writable; an existing folder is unchanged.
    """
    folder = step_folder(parent, step)
    with atomic.writing_in(folder, atomic.ROOM_REMEDY), atomic.new_folder(folder) as temporary:
        for group, named in tensors.items():
            write_tensors(temporary / f"{group}.safetensors", named)
        (temporary / STATE).write_text(json.dumps({**state, "step": step}, indent=1), encoding="utf-8")
        files = {path.name: record(path) for path in sorted(temporary.iterdir())}
        manifest = {"format_version": FORMAT_VERSION, "files": files}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return folder


def load_checkpoint(folder: Path, verified: bool = False) -> Checkpoint:
    """Read a checkpoint; every file is compared with the manifest first, unless the caller has `verified` it.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    try:
        names = _listed_files(folder) if verified else _verified_files(folder)
        state = read_object(folder / STATE, LARGEST_STATE)
        tensors = {name.removesuffix(".safetensors"): read_tensors(folder / name) for name in names if name != STATE}
    except DamagedFile as error:
        raise CheckpointError(f"{folder}: damaged checkpoint: {error}; delete it to use the one before") from error
    return Checkpoint(state["step"], tensors, state)


def latest_checkpoint(parent: Path) -> Path | None:
    """Return the newest undamaged checkpoint, or None if there is none; warnings name damaged ones.

    Raises:
        CheckpointError: there are checkpoints, and all of them are damaged.
    """
    problem = None
    for step in reversed(saved_steps(parent)):
        folder = step_folder(parent, step)
        try:
            _verified_files(folder)
            return folder
        except DamagedFile as error:
            problem = error
            log.warning("%s: damaged checkpoint, not used: %s", folder, error)
    if problem:
        raise CheckpointError(
            f"{parent}: every checkpoint is damaged (the oldest: {problem}); restore one from a copy, "
            "or begin again with --overwrite"
        )
    return None


def saved_steps(parent: Path) -> list[int]:
    """Return the steps that have a checkpoint folder, in ascending order."""
    names = (entry.name for entry in parent.iterdir()) if parent.is_dir() else ()
    return sorted(int(match[1]) for name in names if (match := re.fullmatch(r"step_(\d{8,})", name)))


def step_folder(parent: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return parent / f"step_{step:08d}"


def prune(parent: Path, keep: Iterable[int]) -> None:
    """Delete the checkpoints of all steps except `keep`; a kill in the middle leaves none that counts as complete."""
    for step in sorted(set(saved_steps(parent)) - set(keep)):
        atomic.remove_folder(step_folder(parent, step))


def prepare(parent: Path) -> None:
    """Create the folder of a run's checkpoints, and delete what killed writes left in it.

    Raises:
        RunError: the folder cannot be written.
    """
    with atomic.writing_in(parent, "choose another --run-dir"):
        parent.mkdir(parents=True, exist_ok=True)
        atomic.remove_leftovers(parent)


def _listed_files(folder: Path) -> dict[str, Any]:
    manifest = read_object(folder / MANIFEST)
    files = manifest.get("files")
    if manifest.get("format_version") != FORMAT_VERSION or not isinstance(files, dict) or STATE not in files:
        raise DamagedFile(f"{MANIFEST} does not have format version {FORMAT_VERSION}")
    for name, recorded in files.items():
        plain = re.fullmatch(r"[A-Za-z0-9_-]+\.(safetensors|json)", name)
        if not plain or not isinstance(recorded, dict) or not {"sha256", "size"} <= set(recorded):
            raise DamagedFile(f"{MANIFEST} has an unknown entry {name!r}")
    return files


def _verified_files(folder: Path) -> dict[str, Any]:
    files = _listed_files(folder)
    for name, recorded in files.items():
        verify(folder / name, recorded)
    step = read_object(folder / STATE, LARGEST_STATE).get("step")
    if not isinstance(step, int) or step_folder(folder.parent, step).name != folder.name:
        raise DamagedFile(f"{STATE} has step {shown(step)}, not the step of this folder")
    return files
