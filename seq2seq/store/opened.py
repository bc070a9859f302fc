"""Consistent reads of a model folder that training may replace at any time.

`Opened` holds the files of a folder open, so that the server can read more of the same version later. `in_one_state`
repeats a read of several files until the folder did not change meanwhile.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from seq2seq.errors import ModelError, UserError
from seq2seq.files import record

Result = TypeVar("Result")

# Suffixes of the files that a model is read from; the card is not among them.
KINDS = (".json", ".safetensors", ".bin", ".spm", ".model", ".txt")
TRIES = 3
_DESCRIPTORS = Path("/proc/self/fd")


class Opened:
    """The files of a folder, held open until `close`, even if the folder is replaced.

    Raises:
        ModelError: the folder cannot be read.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._stack = contextlib.ExitStack()
        try:
            self._files = {path.name: self._stack.enter_context(open(path, "rb")) for path in _files(folder)}
        except OSError as error:
            self._stack.close()
            raise ModelError(f"{folder}: cannot be read ({error.strerror})") from error
        self._states = self._now()

    def close(self) -> None:
        """Close the files."""
        self._stack.close()

    def is_current(self) -> bool:
        """Whether the folder still has these files, unchanged."""
        try:
            here = {path.name: _state(os.stat(path)) for path in _files(self.folder)}
        except OSError:
            return False
        return here == self._states == self._now()

    @contextlib.contextmanager
    def reopened(self) -> Iterator[Path]:
        """Yield a folder with these files, even if the folder itself was replaced.

        Raises:
            ModelError: the files were overwritten; or the folder was replaced, and the system has no /proc/self/fd to
                reopen files.
        """
        if self._now() != self._states or not (_DESCRIPTORS.is_dir() or self.is_current()):
            raise self._changed()
        if not _DESCRIPTORS.is_dir():
            yield self.folder
            if not self.is_current():
                raise self._changed()
            return
        with tempfile.TemporaryDirectory(prefix="s2s-") as place:
            for name, file in self._files.items():
                os.symlink(_DESCRIPTORS / str(file.fileno()), Path(place) / name)
            try:
                yield Path(place)
            except UserError as error:
                raise ModelError(str(error).replace(place, str(self.folder))) from error
        if self._now() != self._states:
            raise self._changed()

    def _now(self) -> dict[str, tuple[int, ...]]:
        return {name: _state(os.fstat(file.fileno())) for name, file in self._files.items()}

    def _changed(self) -> ModelError:
        return ModelError(f"{self.folder}: its files changed after the model was loaded; load it again")


def in_one_state(folder: Path, read: Callable[[], Result]) -> Result:
    """Return the result of `read`, which reads the folder more than once; call it again if the folder changed
    meanwhile.

    Raises:
        ModelError: the folder changed during every attempt.
        UserError: `read` failed.
    """
    for _ in range(TRIES):
        opened = Opened(folder)
        try:
            found = read()
            if opened.is_current():
                return found
        except UserError:
            if opened.is_current():
                raise
        finally:
            opened.close()
    raise ModelError(f"{folder}: it changes while it is read; try again when nothing writes to it")


def fingerprint(folder: Path) -> str:
    """Return 16 hexadecimal digits that depend on all files of a model."""
    known = "".join(f"{path.name} {record(path)['sha256']}\n" for path in _files(folder))
    return hashlib.sha256(known.encode()).hexdigest()[:16]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in KINDS and path.is_file())


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
