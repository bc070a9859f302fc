"""Sources in text files: aligned files, and the reading in chunks that every file with one example a line shares.

`sources` opens `TextFiles`; `tables` builds on `LineFile`.
"""

import contextlib
import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from seq2seq.config import SourceConfig
from seq2seq.data.examples import Chunk, Example, Pair, Position, Source
from seq2seq.data.file_facts import check_unchanged, combined_fingerprint, file_facts
from seq2seq.errors import DataError, counted
from seq2seq.lines import DAMAGE, damaged, decode_line, open_bytes

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 18  # of the first file


class TextFiles(Source):
    """Two text files, aligned line by line."""

    def __init__(self, config: SourceConfig, cache: Path | None):
        assert config.source is not None  # the config has both or none
        assert config.target is not None
        self._paths = (config.source, config.target)
        self._facts = [file_facts(path, cache) for path in self._paths]
        self.name, self.weight = str(config.source), config.weight
        self.size = self._facts[0].lines
        if self.size != self._facts[1].lines:
            raise DataError(
                f"{config.source} has {counted(self.size, 'line')} but {config.target} has {self._facts[1].lines:,}; "
                "line i of one must translate line i of the other"
            )
        self.fingerprint = combined_fingerprint("text", *(facts.sha256 for facts in self._facts))

    def chunks(self, start: Position = None) -> Iterator[Chunk]:
        """Some lines of both files at a time."""
        for texts, first, end in read_together(self._paths, start):
            yield Chunk(texts, first, _pairs, end)
        for path, facts in zip(self._paths, self._facts, strict=True):
            check_unchanged(path, facts)


class LineFile(Source):
    """A file with at most one example a line."""

    def __init__(self, path: Path, weight: float, cache: Path | None):
        self._path = path
        self._facts = file_facts(path, cache)
        self.name, self.weight, self.size = str(path), weight, None

    def chunks(self, start: Position = None) -> Iterator[Chunk]:
        """Some lines at a time."""
        for (text,), first, end in read_together([self._path], start):
            yield Chunk(text, first, self._parse, end)
        check_unchanged(self._path, self._facts)

    def _parse(self, text: str, first: int) -> list[Example]:
        lines = (line.removesuffix("\r") for line in text.split("\n"))
        examples = (self._example(line, number) for number, line in enumerate(lines, start=first))
        return [example for example in examples if example is not None]

    @abstractmethod
    def _example(self, line: str, number: int) -> Example | None: ...


def read_together(paths: Sequence[Path], start: Position) -> Iterator[tuple[list[str], int, Position]]:
    """Files of equally many lines, a chunk of each at a time: (texts without the last line feed, number of the first
    line, end position).

    A position is [lines, bytes of each file]; `start` None is the beginning. Bytes that are not UTF-8 become U+FFFD,
    with one warning a file.

    Raises:
        DataError: a file cannot be read, is damaged, or ends before another.
    """
    number, *offsets = start or [0] * (1 + len(paths))
    invalid: list[list[int]] = [[] for _ in paths]
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(open_bytes(path, at)) for path, at in zip(paths, offsets, strict=True)]
        while True:
            columns: list[list[bytes]] = []
            for path, stream in zip(paths, streams, strict=True):
                try:
                    lines = islice(stream, len(columns[0]) or 1) if columns else stream.readlines(CHUNK_BYTES)
                    columns.append(list(lines))
                except DAMAGE as error:
                    raise damaged(path, number, error) from error
            if len(set(map(len, columns))) > 1:
                raise DataError(f"{' and '.join(map(str, paths))} changed while they were read; start again")
            if not columns[0]:
                break
            raw = [b"".join(column) for column in columns]
            texts = [_decode(side, number, found) for side, found in zip(raw, invalid, strict=True)]
            first, number = number + 1, number + len(columns[0])
            offsets = [offset + len(side) for offset, side in zip(offsets, raw, strict=True)]
            yield texts, first, [number, *offsets]
    for path, found in zip(paths, invalid, strict=True):
        if found:
            more = f" and in {len(found) - 1} more" if len(found) > 1 else ""
            logger.warning("%s: not UTF-8 in line %d%s; the bytes were replaced by U+FFFD", path, found[0], more)


def _decode(raw: bytes, number: int, invalid: list[int]) -> str:
    """The lines after line `number` as text; the numbers of those that are not UTF-8 are added to `invalid`."""
    try:
        return raw.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        for index, line in enumerate(raw.split(b"\n"), start=number + 1):
            decode_line(line, index, invalid.append)
        return raw.decode("utf-8", errors="replace").removesuffix("\n")


def _pairs(texts: Sequence[str], first: int) -> list[Example]:
    return list(map(Pair, *map(_text_lines, texts)))


def _text_lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [line.removesuffix("\r").replace("\r", " ") for line in lines] if "\r" in text else lines
