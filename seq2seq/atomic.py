"""Folders and files that appear complete or not at all, whatever kills the process that writes them.

Both are written beside their target under a hidden name, synced to the disk, and renamed. The hidden name holds the
process that made it, so no two writers meet, and `remove_leftovers` deletes only what a dead process of ours left.
"""

import contextlib
import itertools
import os
import platform
import re
import shutil
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

WRITING, OLD, DELETING = ".writing", ".old", ".deleting"
# A process is known by its machine or container and its number, and by a token where a later one got the same number.
_HOST = f"{zlib.crc32(platform.node().encode()):08x}"
_TOKEN = os.urandom(4).hex()
OTHER_HOSTS_SECONDS = 24 * 3600.0  # after which a process of another machine, which cannot be asked, is taken for dead
_count = itertools.count()
_TEMPORARY = re.compile(
    r"\.(?P<name>.+)\.(?P<process>\d+)-(?P<host>[0-9a-f]{8})(?P<token>[0-9a-f]{8})-\d+"
    r"(?P<kind>\.writing|\.old|\.deleting)",
    re.DOTALL,
)


@contextlib.contextmanager
def new_folder(target: Path, goes_on: bool = False) -> Iterator[Path]:
    """Yield an empty folder that replaces `target` when the block ends, and is deleted when it raises.

    With `goes_on`, the folder is `unfinished(target)`, as the last block that was killed or raised left it; the caller
    keeps other processes away from it.

    A `target` that exists is moved aside first and deleted last, so that at every moment one of the two is complete; a
    kill between the two renames is repaired by `restore`.

    Raises:
        OSError: the disk is full, or the parent cannot be written; `target` is as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = unfinished(target) if goes_on else _beside(target, WRITING)
    if not temporary.is_dir():
        _delete(temporary)  # a stray file
        temporary.mkdir()
    try:
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        _swap(temporary, target)
    except BaseException as error:
        _name_file(error, target)
        if not goes_on:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield an open file that replaces `path` when the block ends, and is deleted when it raises.

    Raises:
        OSError: as of `new_folder`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path, WRITING)
    try:
        with open(temporary, "wb") as file:
            yield file
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        _name_file(error, path)
        raise


def write_file(path: Path, content: bytes) -> None:
    """Write one file completely or not at all."""
    with new_file(path) as file:
        file.write(content)


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file `path` against other processes of this machine; without `wait`, False where another has it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:
        if not path.exists():
            raise
        descriptor = os.open(path, os.O_RDONLY)  # another user's, which can be locked as well
    with open(descriptor, "rb") as file:
        is_held = True
        with contextlib.suppress(ImportError):  # on Windows, where nothing is locked
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_held = False
        yield is_held


@contextlib.contextmanager
def locked_if_possible(path: Path) -> Iterator[None]:
    """`locked`, or unlocked where no lock file can be made, as in a read-only folder."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(path))
        yield


def remove_folder(target: Path) -> None:
    """Delete a folder so that a kill in the middle leaves nothing under its name."""
    doomed = _beside(target, DELETING)
    os.rename(target, doomed)
    sync(target.parent)
    _delete(doomed)


def standing(target: Path) -> Path:
    """`target`, or the version that was moved aside for a new one that never came; changes nothing on the disk."""
    if target.exists():
        return target
    old = _moved_aside(target)
    return target if not old or target.exists() else old[-1]


def restore(target: Path) -> None:
    """Finish replacements that kills interrupted: the old version comes back where the new one never came."""
    for old in filter(_is_abandoned, reversed(_moved_aside(target))):
        with contextlib.suppress(OSError):  # another process restores it as well, or it is not ours to delete
            if target.exists():
                _delete(old)
            else:
                os.rename(old, target)
            sync(target.parent)


def remove_leftovers(parent: Path) -> None:
    """Delete what killed writes and deletions left in `parent`, and bring back what they had moved aside."""
    for entry in filter(_is_abandoned, list(parent.iterdir())):
        if entry.name.endswith(OLD):
            restore(parent / _TEMPORARY.fullmatch(entry.name)["name"])
        else:
            with contextlib.suppress(OSError):  # as in `restore`
                _delete(entry)


def unfinished(target: Path) -> Path:
    """Where work on `target` that continues after a kill is kept."""
    return target.parent / f".{target.name}{WRITING}"


def sync(path: Path) -> None:
    """Bring a file's content, or a folder's list of names, to the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open folders, and writes their entries through
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name_file(error: BaseException, path: Path) -> None:
    """The error of a full disk does not name the file."""
    if isinstance(error, OSError) and error.filename is None:
        error.filename = str(path)


def _swap(temporary: Path, target: Path) -> None:
    old = _beside(target, OLD)
    with contextlib.suppress(FileNotFoundError):  # nothing to replace
        os.rename(target, old)
    try:
        os.rename(temporary, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
    sync(target.parent)
    _delete(old)


def _beside(target: Path, kind: str) -> Path:
    """A name that no other process and no other call uses."""
    return target.parent / f".{target.name}.{os.getpid()}-{_HOST}{_TOKEN}-{next(_count)}{kind}"


def _moved_aside(target: Path) -> list[Path]:
    """The old versions of `target`, the newest last."""
    try:
        matches = [(entry, _TEMPORARY.fullmatch(entry.name)) for entry in target.parent.iterdir()]
        old = [entry for entry, match in matches if match and (match["name"], match["kind"]) == (target.name, OLD)]
        return sorted(old, key=lambda entry: entry.stat().st_mtime)
    except OSError:  # one of them came back, or was deleted
        return []


def _is_abandoned(entry: Path) -> bool:
    """Whether a process of ours that has ended left `entry`."""
    match = _TEMPORARY.fullmatch(entry.name)
    if match is None:
        return False
    if match["host"] != _HOST:
        with contextlib.suppress(OSError):
            return time.time() - entry.stat(follow_symlinks=False).st_ctime > OTHER_HOSTS_SECONDS
        return False
    process = int(match["process"])
    return match["token"] != _TOKEN if process == os.getpid() else not _runs(process)


def _runs(process: int) -> bool:
    if os.name == "nt":
        return False  # what a running process holds open cannot be deleted there
    try:
        os.kill(process, 0)
    except PermissionError:
        return True  # another user's
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
