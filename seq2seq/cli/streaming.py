"""The lines of a stream in batches, for `s2s translate` and `s2s classify`, and pairs of lines of two files.

A batch ends when no further input arrives for a moment. So a program at the other end of a pipe, or a person at a
terminal, gets answers line by line, and a file still fills every batch.
"""

import contextlib
import io
import os
import queue
import stat
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from seq2seq.cli.options import warn_invalid
from seq2seq.errors import DataError, reason
from seq2seq.lines import (
    DAMAGE,
    OnInvalid,
    check_counts,
    decode_line,
    open_bytes,
    read_lines,
    readable_again,
    text_bytes,
)

# Longer than any sentence. With longer lines, SentencePiece can abort the process if memory is short.
MAX_LINE_BYTES = 1 << 24


def open_input(path: Path | None, keeps_bom: bool = False) -> BinaryIO:
    """Return a stream of the bytes of a file (plain or gzip), or of standard input for None and `-`.

    Raises:
        DataError: the file cannot be read, or standard input is closed.
    """
    if path is not None and str(path) != "-":
        return open_bytes(path, keeps_bom=keeps_bom)
    if sys.stdin is None:
        raise DataError("standard input is closed; name a file to read")
    try:
        # A separate stream, because an interpreter that ends cannot close sys.stdin while a thread waits in it.
        return open(sys.stdin.buffer.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:
        return sys.stdin.buffer


def count_ahead(stream: BinaryIO) -> int | None:
    """Return the number of lines left in a file, whose position is kept; None for a pipe or a damaged file."""
    try:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return None
        start = stream.tell()
        try:
            return sum(1 for _ in text_bytes(stream, ""))
        finally:
            stream.seek(start)
    except (*DAMAGE, DataError):  # raised when the lines are read
        return None


def head_ahead(stream: BinaryIO, size: int) -> str | None:
    """Return the next `size` bytes of a file as text, and keep its position; None for a pipe or a damaged file."""
    try:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return None
        start = stream.tell()
        try:
            return text_bytes(stream, "").read(size).decode("utf-8", errors="replace")
        finally:
            stream.seek(start)
    except (*DAMAGE, DataError):  # raised when the lines are read
        return None


@contextlib.contextmanager
def open_pairs(source: Path, target: Path) -> Iterator[Iterator[tuple[str, str]]]:
    """Yield the pairs of lines of two files or named pipes, which are counted first.

    Raises:
        DataError: a file cannot be read, or the numbers of lines differ.
    """
    with readable_again(source) as first, readable_again(target) as second:
        counts = [sum(1 for _ in read_lines(path)) for path in (first, second)]
        check_counts(source, counts[0], target, counts[1])
        named = (first, source), (second, target)
        yield zip(*(read_lines(path, warn_invalid(name)) for path, name in named), strict=True)


def read_idle_batches(
    binary_stream: BinaryIO,
    max_lines: int = 4096,
    idle_seconds: float = 0.02,
    on_invalid: OnInvalid | None = None,
    keeps_bom: bool = False,
) -> Iterator[list[str]]:
    """Yield the lines of a pipe, terminal or file as non-empty lists, in order, each line once.

    A list ends at `max_lines`, at the end of the stream, or if no further line arrives for `idle_seconds`.
    `on_invalid(number)` is called for a line that is not UTF-8; lines are numbered from 1 over the whole stream.

    Raises:
        DataError: the stream is broken, a line is longer than `MAX_LINE_BYTES` (earlier lines have been yielded), or
            the stream is not UTF-8 text.
    """
    arrived: queue.Queue[bytes | Exception | None] = queue.Queue(max_lines)  # lines, and at the end None or the error
    stop = threading.Event()
    name = getattr(binary_stream, "name", "input")
    name = "standard input" if name in (0, "<stdin>") else str(name)

    reader = partial(_read, binary_stream, name, keeps_bom, arrived, stop)
    threading.Thread(target=reader, name="s2s-input", daemon=True).start()
    number, batch = 0, []
    try:
        while True:
            try:
                item = arrived.get(timeout=idle_seconds if batch else None)
            except queue.Empty:
                yield batch
                batch = []
                continue
            if not isinstance(item, bytes):
                break
            number += 1
            batch.append(decode_line(item, number, on_invalid))
            if len(batch) == max_lines:
                yield batch
                batch = []
        if batch:
            yield batch
        if isinstance(item, DAMAGE):
            raise DataError(f"{name}: reading stopped after line {number} ({reason(item)})") from item
        if item is not None:
            raise item
    finally:
        stop.set()
        while not arrived.empty():
            arrived.get_nowait()  # makes room, so that a waiting reader sees `stop` and ends


def _read(
    stream: BinaryIO,
    name: str,
    keeps_bom: bool,
    arrived: "queue.Queue[bytes | Exception | None]",
    stop: threading.Event,
) -> None:
    """Put each line into the queue, and at the end None or the error."""
    failure, number = None, 1
    try:
        lines = text_bytes(stream, name, keeps_bom)
        while raw := lines.readline(MAX_LINE_BYTES + 1):
            if len(raw) > MAX_LINE_BYTES:
                limit = f"{MAX_LINE_BYTES:,} bytes"
                raise DataError(f"{name}: line {number} has more than {limit}; give one sentence per line")
            arrived.put(raw)
            if stop.is_set():
                return
            number += 1
    except Exception as error:  # any error is raised in the thread that waits for lines
        failure = error
    arrived.put(failure)
