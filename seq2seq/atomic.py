"""Folders and files that appear complete or not at all, even if the process that writes them is killed.

Both are written next to their target under a hidden name, synced to the disk, and renamed. The hidden name identifies
the process, so no two writers collide, and `remove_leftovers` deletes only what a dead process of ours left.
"""

import contextlib
import errno
import itertools
import os
import platform
import re
import shutil
import stat
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from seq2seq.errors import RunError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

ROOM_REMEDY = "free space or make the folder writable, then run the same command again"
WRITING, OLD = ".writing", ".old"  # to delete, or to restore, when the process has died
# A process is identified by its host (or container), its id, and a token, because ids are reused.
_HOST = f"{zlib.crc32(platform.node().encode()):08x}"
_TOKEN = os.urandom(4).hex()
OTHER_HOSTS_SECONDS = 24 * 3600.0  # age at which a process of another host, whose state is unknown, counts as dead
_count = itertools.count()
_TEMPORARY = re.compile(
    r"\.(?P<name>.+)\.(?P<process>\d+)-(?P<host>[0-9a-f]{8})(?P<token>[0-9a-f]{8})-\d+(?P<kind>\.writing|\.old)",
    re.DOTALL,
)


@contextlib.contextmanager
def new_folder(target: Path, resume: bool = False) -> Iterator[Path]:
    """Yield an empty folder that replaces `target` at the end of the block, and is deleted if the block raises.

    With `resume`, it is the folder `unfinished(target)` with the files that an earlier block left there, and an error
    keeps it. The caller must keep other processes away from it.

    An existing `target` is first moved aside and deleted last, so one of the two is complete at every moment;
    `remove_leftovers` repairs the state after a kill between the two renames.

    Raises:
        OSError: the disk is full, or the parent is not writable; `target` is unchanged.
    """
    temporary = unfinished(target) if resume else _beside(target, WRITING)
    with _cleaning_up(target, temporary, keep=resume):
        if not temporary.is_dir():
            _delete(temporary)  # a stray file
            temporary.mkdir()
            _copy_mode(target, temporary)
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        _swap(temporary, target)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield an open file that replaces `path` at the end of the block, and is deleted if the block raises.

    Raises:
        OSError: the disk is full, or the parent is not writable; `path` is unchanged.
    """
    temporary = _beside(path, WRITING)
    with _cleaning_up(path, temporary):
        with open(temporary, "wb") as file:
            _copy_mode(path, temporary)  # before there is something to read
            yield file
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)


@contextlib.contextmanager
def writing_in(folder: Path, remedy: str) -> Iterator[None]:
    """Turn an `OSError` of the block into a `RunError` that names the folder, the reason and the remedy."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{folder}: cannot be written ({error.strerror or error}); {remedy}") from error


def write_file(path: Path, content: bytes) -> None:
    """Write one file completely or not at all."""
    with new_file(path) as file:
        file.write(content)


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file `path` against other processes of this host. On Windows nothing is locked.

    Without `wait`, yield False if another process holds it, else True. With `wait`, the block runs without the lock
    if no lock file can be created, as in a read-only folder. The lock ends with its process, even if it is killed. A
    file of another user is locked too if it can be read; `filelock` would have to write it.

    Raises:
        OSError: no lock file can be created, and `wait` is False.
    """
    with contextlib.ExitStack() as stack:
        is_free = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            writable = os.access(path, os.W_OK) or not path.exists()  # another user's can be locked as well
            file = stack.enter_context(open(path, "ab" if writable else "rb"))
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_free = False
        except OSError:
            if not wait:
                raise
        yield is_free


def copy_folder(source: Path, folder: Path) -> None:
    """Copy the content of a folder into another one, which exists.

    Raises:
        OSError: a file cannot be read or written, or there is no such folder; `shutil.copytree` would raise an error
            without its reason.
    """
    source.stat()
    for path in sorted(source.rglob("*")):
        target = folder / path.relative_to(source)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            _copy_file(path, target)


def remove_folder(target: Path) -> None:
    """Delete a folder so that a kill in the middle leaves nothing under its name."""
    temporary = _beside(target, WRITING)
    os.rename(target, temporary)
    sync(target.parent)
    _delete(temporary)


def standing(target: Path) -> Path:
    """Return `target`, or its old version if a kill left only that; the disk is not changed."""
    old = []
    with contextlib.suppress(OSError):
        if not target.exists():
            old = [entry for entry in target.parent.iterdir() if _target_of(entry, OLD) == target]
    newest = max(old, key=_changed, default=target)
    return target if target.exists() else newest


def remove_leftovers(parent: Path) -> None:
    """Delete what killed writes and deletions left in `parent`; restore an old version if no new one exists."""
    for entry in sorted(filter(_is_abandoned, parent.iterdir()), key=_changed, reverse=True):
        with contextlib.suppress(OSError):  # another process does the same, or it is not ours to delete
            old_of = _target_of(entry, OLD)
            if old_of is not None and not old_of.exists():
                os.rename(entry, old_of)
            else:
                _delete(entry)
            sync(parent)


def unfinished(target: Path) -> Path:
    """Return the folder in which interrupted work on `target` continues after a kill."""
    return target.parent / f".{target.name}{WRITING}"


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders, and writes their entries through
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _cleaning_up(target: Path, temporary: Path, keep: bool = False) -> Iterator[None]:
    """On an error, delete `temporary`, and name `target` in its place (that of a full disk names no file)."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(target)
        elif isinstance(error, OSError) and str(error.filename).startswith(str(temporary)) and not keep:
            error.filename = str(error.filename).replace(str(temporary), str(target))
        if not keep:
            with contextlib.suppress(OSError):
                _delete(temporary)
        raise


def _copy_file(source: Path, target: Path) -> None:
    try:
        shutil.copy2(source, target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            error.filename = str(target)  # in place of the source
        raise


def _copy_mode(target: Path, temporary: Path) -> None:
    """Let those read and write the new version who may do so with the old one; its owner always may."""
    with contextlib.suppress(OSError):  # nothing to replace, or a file system without modes
        mode = stat.S_IMODE(target.stat().st_mode)
        os.chmod(temporary, mode | (stat.S_IRWXU if target.is_dir() else stat.S_IRUSR | stat.S_IWUSR))


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
    """Return a hidden path next to `target` that no other process and no other call uses."""
    return target.parent / f".{target.name}.{os.getpid()}-{_HOST}{_TOKEN}-{next(_count)}{kind}"


def _target_of(entry: Path, kind: str) -> Path | None:
    """Return the target of a temporary file or folder of this kind; None if `entry` has another name."""
    match = _TEMPORARY.fullmatch(entry.name)
    return entry.with_name(match["name"]) if match and match["kind"] == kind else None


def _changed(path: Path) -> float:
    with contextlib.suppress(OSError):  # deleted meanwhile
        return path.lstat().st_ctime
    return 0.0


def _is_abandoned(entry: Path) -> bool:
    """Whether a process of ours that has ended left `entry`."""
    match = _TEMPORARY.fullmatch(entry.name)
    if match is None:
        return False
    if match["host"] != _HOST:
        return time.time() - _changed(entry) > OTHER_HOSTS_SECONDS
    process = int(match["process"])
    return match["token"] != _TOKEN if process == os.getpid() else not _runs(process)


def _runs(process: int) -> bool:
    if os.name == "nt":
        return False  # Windows does not delete what a running process holds open
    try:
        os.kill(process, 0)
    except PermissionError:
        return True  # another user's
    except (ProcessLookupError, OverflowError):
        return False
    return not _is_zombie(process)


def _is_zombie(process: int) -> bool:
    """Whether a process has ended, but its id is still taken; in a container whose init reaps none, that is forever."""
    try:
        state = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return False  # no /proc, or it ended meanwhile
    return state in (b"Z", b"X")


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
