"""Facts of a file's content: its SHA-256 and its number of lines.

Sources need them when they are opened. A large file is read once; the facts stay in the cache of corpora as long as the
file system reports no change of the file.
"""

import contextlib
import hashlib
import io
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from seq2seq import atomic
from seq2seq.archives import file_of, open_raw
from seq2seq.errors import DataError
from seq2seq.lines import DAMAGE, damaged, text_bytes

READ_BYTES = 1 << 20
CACHE_FOLDER = "files"
# Clocks of file systems are coarse, so a file that was just written may change again without a change of its times.
SETTLED_SECONDS = 2.0


@dataclass(frozen=True)
class FileFacts:
    """Content and state of a file at the time when it was read."""

    sha256: str
    lines: int
    state: list[int]
    """Device, inode, size in bytes, and times of the last change of content (mtime) and of any change (ctime), in ns.

    No program can set ctime: it differs after every write, replacement or copy.
    """


def file_facts(path: Path, cache: Path | None = None, is_text: bool = True) -> FileFacts:
    """Return the facts of `path`, stored in the folder `cache` if there is one; only one of several processes reads the
    file.

    Lines are counted if the file `is_text`.

    Raises:
        DataError: the file cannot be read, its gzip stream is damaged, or it should be text and is not.
    """
    if cache is None:
        return _read(path, is_text)
    key = os.fsencode(path.resolve()) + b"\0" * (not is_text)
    cached = cache / CACHE_FOLDER / f"{hashlib.sha256(key).hexdigest()[:32]}.json"
    with atomic.locked(cached.with_suffix(".lock")):  # the ranks of a run wait for the first
        with contextlib.suppress(OSError, ValueError, TypeError):  # without a valid entry the file is read again
            facts = FileFacts(**json.loads(cached.read_bytes()))
            if facts.state == _state(path):
                return facts
        settled = time.time() - SETTLED_SECONDS
        facts = _read(path, is_text)
        if max(facts.state[-2:]) < settled * 1e9:
            with contextlib.suppress(OSError):  # a cache that cannot be written is reported where the corpus is built
                atomic.write_file(cached, json.dumps(asdict(facts)).encode())
    return facts


def check_unchanged(path: Path, facts: FileFacts) -> None:
    """Raise an error if a file changed since it was read.

    Raises:
        DataError: the file system reports a change.
    """
    if _state(path) != facts.state:
        raise DataError(f"{path}: changed while it was read; start again when it is complete")


def combined_fingerprint(*parts: Any) -> str:
    """Return the fingerprint of values whose `repr` contains all of their state."""
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()


def _read(path: Path, is_text: bool) -> FileFacts:
    state = _state(path)
    try:
        with open_raw(path) as raw:
            digested = _Digested(raw)
            lines = _count_lines(io.BufferedReader(digested, READ_BYTES), path) if is_text else 0
            while digested.read(READ_BYTES):
                pass
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    facts = FileFacts(digested.sha256.hexdigest(), lines, state)
    check_unchanged(path, facts)
    return facts


class _Digested(io.RawIOBase):
    """A file whose bytes are added to a digest as they are read, so that one reading is enough."""

    def __init__(self, raw: io.RawIOBase):
        self._raw, self.sha256 = raw, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self._raw.readinto(buffer) or 0
        self.sha256.update(memoryview(buffer)[:count])
        return count


def _state(path: Path) -> list[int]:
    try:
        status = file_of(path).stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _count_lines(raw: BinaryIO, path: Path) -> int:
    """Return the number of lines that `read_lines` yields, counted many times faster."""
    count, last = 0, b"\n"
    try:
        stream = text_bytes(raw, str(path))
        while block := stream.read(READ_BYTES):
            count += block.count(b"\n")
            last = block[-1:]
    except DAMAGE as error:
        raise damaged(path, count, error) from error
    return count + (last != b"\n")
