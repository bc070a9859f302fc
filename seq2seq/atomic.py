"""Folders and files that are there whole or not at all, whatever kills the process that writes them.

A folder is written beside its place under a hidden name, brought to the disk, and renamed. `checkpoint` and
`model_folder` write through here; `restore` and `remove_leftovers` undo what a kill left behind.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

WRITING, OLD, DELETING = ".writing", ".old", ".deleting"


@contextlib.contextmanager
def new_folder(target: Path, goes_on: bool = False) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `target` when the block ends, and vanishes when it raises.

    Where work `goes_on`, the folder is yielded as the last block that was killed or raised left it.

    A `target` that exists is moved aside first and deleted last, so that at every moment one of the two is whole; a
    kill between the two renames is repaired by `restore`.

    Raises:
        OSError: the disk is full, or the parent cannot be written; `target` is as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(target, WRITING)
    if not goes_on:
        _delete(temporary)
    temporary.mkdir(exist_ok=goes_on)
    try:
        yield temporary
        for path in temporary.rglob("*"):
            sync(path)
        sync(temporary)
        _swap(temporary, target)
    except BaseException as error:
        _name_place(error, target)
        if not goes_on:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_file(path: Path, content: bytes) -> None:
    """Write one file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path, WRITING)
    try:
        temporary.write_bytes(content)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        _name_place(error, path)
        raise


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Alone among the processes of this machine that ask for the lock file `path`; True, or False where another has it
    and `wait` is not asked for."""
    with open(path, "wb") as file:
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield True
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def remove_folder(target: Path) -> None:
    """Delete a folder so that a kill in the middle leaves nothing under its name."""
    doomed = _beside(target, DELETING)
    _delete(doomed)
    os.rename(target, doomed)
    sync(target.parent)
    _delete(doomed)


def standing(target: Path) -> Path:
    """`target`, or the version that was moved aside for a new one that never came; changes nothing on the disk."""
    old = _beside(target, OLD)
    return old if old.is_dir() and not target.exists() else target


def restore(target: Path) -> None:
    """Finish a replacement that a kill interrupted: the old version comes back where the new one never came."""
    old = _beside(target, OLD)
    if not old.exists():
        return
    if target.exists():
        _delete(old)
    else:
        os.rename(old, target)
    sync(target.parent)


def remove_leftovers(parent: Path) -> None:
    """Delete what killed writes and deletions left in `parent`, and bring back what they had moved aside."""
    for entry in list(parent.glob(".*")):
        if entry.name.endswith(OLD):
            restore(parent / entry.name[1 : -len(OLD)])
        elif entry.name.endswith((WRITING, DELETING)):
            _delete(entry)


def sync(path: Path) -> None:
    """Bring a file's content, or a folder's list of names, to the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open folders, and writes their entries through
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name_place(error: BaseException, path: Path) -> None:
    """A full disk does not say of itself which file it was."""
    if isinstance(error, OSError) and error.filename is None:
        error.filename = str(path)


def _swap(temporary: Path, target: Path) -> None:
    old = _beside(target, OLD)
    replaced = target.exists()
    if replaced:
        _delete(old)
        os.rename(target, old)
    try:
        os.rename(temporary, target)
    except OSError:
        if replaced:
            os.rename(old, target)
        raise
    sync(target.parent)
    if replaced:
        _delete(old)


def _beside(target: Path, suffix: str) -> Path:
    return target.parent / f".{target.name}{suffix}"


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
