"""JSON objects and checksums of files in model and corpus folders; nothing here needs torch.

`store`, `interop` and `data` verify files with these before reading them.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2seq.errors import reason
from seq2seq.lines import read_regular

# The folder of runs, and the link in it to the newest.
RUNS, LATEST = Path("runs"), "latest"
# Bytes of the state of a run: a checkpoint has about 150 for each validation example.
LARGEST_STATE = 2**30


class DamagedFile(Exception):
    """A stored file that is missing, truncated or changed."""


def record(path: Path) -> dict[str, str | int]:
    """Return size in bytes and SHA-256 of a file, as stored in manifests."""
    with open(path, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"sha256": digest, "size": path.stat().st_size}


def verify(path: Path, recorded: Mapping[str, str | int]) -> None:
    """Check a file against the `record` that was made when it was written.

    Raises:
        DamagedFile: it is missing, or its size or content changed.
    """
    verify_size(path, recorded)
    try:
        if record(path)["sha256"] != recorded["sha256"]:
            raise DamagedFile(f"{path.name} changed after it was written (SHA-256 differs)")
    except OSError as error:
        raise DamagedFile(f"{path.name} cannot be read ({error.strerror})") from error


def verify_size(path: Path, recorded: Mapping[str, str | int]) -> None:
    """Check the size of a file as `verify` does, without its content.

    Raises:
        DamagedFile: it is missing, or its size changed.
    """
    check_regular(path)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DamagedFile(f"{path.name} cannot be read ({error.strerror})") from error
    if size != recorded["size"]:
        raise DamagedFile(f"{path.name} has {size} bytes where {recorded['size']} were written")


def folder_size(path: Path) -> int:
    """Return the size of all files in a folder, in bytes; links are not followed."""
    total = 0
    for entry in path.rglob("*"):
        with contextlib.suppress(OSError):  # a running process deleted it
            total += 0 if entry.is_dir() else entry.lstat().st_size
    return total


def read_object(path: Path, largest: int = 64 * 2**20) -> dict[str, Any]:
    """Read a JSON object from a file of at most `largest` bytes.

    Raises:
        DamagedFile: it is missing, too large, or not one JSON object.
    """
    try:
        value = json.loads(read_regular(path, largest).decode("utf-8"))
    except OSError as error:
        raise DamagedFile(f"{path.name} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{path.name} is not JSON ({reason(error)})") from error
    if not isinstance(value, dict):
        raise DamagedFile(f"{path.name} is not a JSON object")
    return value


def shipped_folder() -> Path:
    """Return the folder that holds the shipped `data/` and `configs/`: inside an installed package, or the checkout."""
    installed = Path(__file__).parent / "shipped"
    return installed if installed.is_dir() else Path(__file__).parent.parent


def json_text(value: Mapping[str, Any]) -> str:
    """Return a JSON object as indented text."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_object(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object."""
    path.write_text(json_text(value), encoding="utf-8")


def check_regular(path: Path) -> None:
    """Raise DamagedFile if `path` is a pipe, which blocks, or a device, which never ends."""
    if path.exists() and not path.is_file():
        raise DamagedFile(f"{path.name} is not a regular file")
