"""Examples, and spans of them: stretches of a corpus as they were read, not yet taken apart.

A source reads spans, which is cheap; the processes that work on a corpus take them apart, which is not. A span knows
where the next one begins, so that reading can go on there.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

from seq2seq.errors import DataError
from seq2seq.lines import DAMAGE, damaged, decode_line, open_bytes

logger = logging.getLogger(__name__)

SPAN_EXAMPLES = 4_000
SPAN_BYTES = 2_000_000  # so that a span of very long lines stays small too


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation, each one line."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text, one line, and its label as the data spell it."""

    text: str
    label: str


Example = Pair | LabelledText
Position = Any
"""Where reading goes on: plain values, as JSON keeps them."""


class Span(Protocol):
    """Consecutive examples; it can be sent to a process."""

    end: Position

    def examples(self) -> list[Example]: ...


@dataclass(frozen=True, slots=True)
class PairSpan:
    """Lines of a text file and those of its translation."""

    source: str
    target: str
    end: Position

    def examples(self) -> list[Example]:
        """The pairs."""
        return list(map(Pair, _text_lines(self.source), _text_lines(self.target)))


@dataclass(frozen=True, slots=True)
class LineSpan:
    """Lines that `parse(line, its number)` makes examples of, or None where there is nothing in one."""

    text: str
    first: int
    parse: Callable[[str, int], Example | None]
    end: Position

    def examples(self) -> list[Example]:
        """What the lines hold."""
        lines = (line.removesuffix("\r") for line in self.text.split("\n"))
        parsed = (self.parse(line, number) for number, line in enumerate(lines, start=self.first))
        return [example for example in parsed if example is not None]


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Rows of a dataset, as columns, that `parse(values, number of the row)` makes examples of."""

    columns: tuple[list[Any], ...]
    first: int
    parse: Callable[[Sequence[Any], int], Example]
    end: Position

    def examples(self) -> list[Example]:
        """What the rows hold."""
        rows = zip(*self.columns, strict=True)
        return [self.parse(values, number) for number, values in enumerate(rows, start=self.first)]


def read_together(paths: Sequence[Path], start: Position) -> Iterator[tuple[list[str], int, Position]]:
    """Files of equally many lines, some lines of each at a time: (texts without the last line feed, number of the first
    line, position behind them).

    A position is [lines, bytes of each file]; `start` None is the beginning. Bytes that are not UTF-8 become U+FFFD,
    with one warning a file.

    Raises:
        DataError: a file cannot be read, is damaged, or ends before another.
    """
    number, *offsets = start or [0] * (1 + len(paths))
    broken: list[list[int]] = [[] for _ in paths]
    files = [_raw_lines(path, offset, number) for path, offset in zip(paths, offsets, strict=True)]
    for rows in _cut(zip_longest(*files, fillvalue=b"")):
        if b"" in rows[-1]:
            raise DataError(f"{' and '.join(map(str, paths))} changed while they were read; start again")
        raw = [b"".join(column) for column in zip(*rows, strict=True)]
        texts = [_decode(some, number, bad) for some, bad in zip(raw, broken, strict=True)]
        offsets = [offset + len(some) for offset, some in zip(offsets, raw, strict=True)]
        yield texts, number + 1, [number + len(rows), *offsets]
        number += len(rows)
    for path, bad in zip(paths, broken, strict=True):
        if bad:
            more = f" and in {len(bad) - 1} more" if len(bad) > 1 else ""
            logger.warning("%s: not UTF-8 in line %d%s; the bytes were replaced by U+FFFD", path, bad[0], more)


def _raw_lines(path: Path, offset: int, number: int) -> Iterator[bytes]:
    try:
        with open_bytes(path, offset) as stream:
            for number, line in enumerate(stream, start=number + 1):  # noqa: B020, the last number is told
                yield line
    except DAMAGE as error:
        raise damaged(path, number, error) from error


def _cut(lines: Iterator[tuple[bytes, ...]]) -> Iterator[list[tuple[bytes, ...]]]:
    rows: list[tuple[bytes, ...]] = []
    size = 0
    for row in lines:
        rows.append(row)
        size += sum(map(len, row))
        if len(rows) == SPAN_EXAMPLES or size > SPAN_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _decode(raw: bytes, number: int, broken: list[int]) -> str:
    """Lines behind line `number` as text; the numbers of those that are not UTF-8 are added to `broken`."""
    try:
        return raw.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        for place, line in enumerate(raw.split(b"\n"), start=number + 1):
            decode_line(line, place, broken.append)
        return raw.decode("utf-8", errors="replace").removesuffix("\n")


def _text_lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [line.removesuffix("\r").replace("\r", " ") for line in lines] if "\r" in text else lines
