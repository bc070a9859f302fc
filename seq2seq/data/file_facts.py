"""What is known of a file's content: its SHA-256 and its number of lines.

Sources ask when they are opened. A large file is read for it once: the answer is kept in the cache of corpora for as
long as the file system says that nobody has written to the file.
"""

import contextlib
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from seq2seq import atomic
from seq2seq.errors import DataError
from seq2seq.lines import DAMAGE, damaged, open_bytes

BLOCK = 1 << 20
MEMORY = "files"  # folder of the cache
# Clocks of file systems move in steps: a file that was just written may change once more and look the same.
SETTLED_SECONDS = 2.0


@dataclass(frozen=True)
class FileFacts:
    """A file as it was when it was read."""

    sha256: str
    lines: int
    state: list[int]
    """Device, inode, size, and the times of the last change of content and of anything, in nanoseconds.

    No program can set the last one: a file that is written, replaced or copied over differs in it.
    """


def file_facts(path: Path, cache: Path | None = None, is_text: bool = True) -> FileFacts:
    """The facts of `path`, remembered in the folder `cache` if there is one; of several processes one reads the file.

    Only of a text the lines are counted.

    Raises:
        DataError: the file cannot be read, its gzip stream is damaged, or what should be text is none.
    """
    if cache is None:
        return _read(path, is_text)
    key = os.fsencode(path.resolve()) + b"\0" * (not is_text)
    note = cache / MEMORY / f"{hashlib.sha256(key).hexdigest()[:32]}.json"
    with atomic.locked_if_possible(note.with_suffix(".lock")):  # the ranks of a run wait for the first
        facts = _remembered(note)
        if facts is None or not is_unchanged(path, facts):
            settled = time.time() - SETTLED_SECONDS
            facts = _read(path, is_text)
            if max(facts.state[-2:]) < settled * 1e9:
                with contextlib.suppress(OSError):  # a cache that cannot be written is the corpus's to report
                    atomic.write_file(note, json.dumps(asdict(facts)).encode())
    return facts


def is_unchanged(path: Path, facts: FileFacts) -> bool:
    """Whether the file is still the one that was read, as far as the file system knows."""
    return _state(path) == facts.state


def _read(path: Path, is_text: bool) -> FileFacts:
    state = _state(path)
    facts = FileFacts(_hash(path), _count_lines(path) if is_text else 0, state)
    if not is_unchanged(path, facts):
        raise DataError(f"{path}: changed while it was read; start again when it is complete")
    return facts


def _state(path: Path) -> list[int]:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _hash(path: Path) -> str:
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def _count_lines(path: Path) -> int:
    """Lines of a file as `read_lines` gives them, many times faster."""
    count, last = 0, b"\n"
    try:
        with open_bytes(path) as stream:
            while block := stream.read(BLOCK):
                count += block.count(b"\n")
                last = block[-1:]
    except DAMAGE as error:
        raise damaged(path, count, error) from error
    return count + (last != b"\n")


def _remembered(note: Path) -> FileFacts | None:
    try:
        return FileFacts(**json.loads(note.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None  # the file is read again
