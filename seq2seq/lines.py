"""Lines of text: the only reader and writer of text files and pipes in the toolkit.

A line ends at `\\n` and nowhere else (one `\\r` before it goes), so U+2028, U+0085 or `\\f` inside a sentence never
shift the lines that follow. Text is UTF-8; what is not is replaced, and the caller is told the line number.
"""

import contextlib
import gzip
import io
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from seq2seq.errors import DataError

OnInvalid = Callable[[int], None]


def open_bytes(path: Path) -> BinaryIO:
    """Open a plain or gzip file for reading bytes; gzip is known by its first two bytes, not by the name.

    Raises:
        DataError: the file is missing, a folder, or not readable.
    """
    try:
        raw = open(path, "rb")
        magic = raw.peek(2)[:2]  # a pipe cannot be wound back
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return io.BufferedReader(gzip.GzipFile(fileobj=raw)) if magic == b"\x1f\x8b" else raw


def decode_line(raw: bytes, number: int, on_invalid: OnInvalid | None = None) -> str:
    """One raw line as text, without its `\\n` or `\\r\\n`; `on_invalid(number)` is called where UTF-8 was broken."""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        if on_invalid is not None:
            on_invalid(number)
        return raw.decode("utf-8", errors="replace")


def iterate_lines(stream: Iterable[bytes], on_invalid: OnInvalid | None = None) -> Iterator[str]:
    """The lines of a binary stream, numbered from 1 for `on_invalid`."""
    for number, raw in enumerate(stream, start=1):
        yield decode_line(raw, number, on_invalid)


def read_lines(path: Path, on_invalid: OnInvalid | None = None) -> Iterator[str]:
    """The lines of a text file, plain or gzip.

    Raises:
        DataError: the file cannot be read, or its gzip stream is damaged (the line where it broke is named).
    """
    number = 0
    try:
        with open_bytes(path) as stream:
            for number, line in enumerate(iterate_lines(stream, on_invalid), start=1):
                yield line
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: damaged after line {number} ({error}); fetch or pack the file again") from error


@contextlib.contextmanager
def readable_again(path: Path) -> Iterator[Path]:
    """`path`, or while the block lasts a copy of what it gives where that is a pipe, which can be read only once."""
    if not path.is_fifo():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="s2s-") as folder:
        copy = Path(folder) / path.name
        with open(path, "rb") as pipe, open(copy, "wb") as file:
            shutil.copyfileobj(pipe, file)
        yield copy


def as_one_line(text: str) -> str:
    """`text` fit for one line of output: a line feed or carriage return that a model made becomes a space."""
    return text.replace("\r", " ").replace("\n", " ")


def shown_name(name: str) -> str:
    """A file name as text: bytes in it that are no UTF-8, which Python keeps as lone surrogates, become U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", name)
