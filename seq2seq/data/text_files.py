"""Sources in text files: aligned files, and a base class that reads files with one example per line in chunks.

`sources` opens `TextFiles`; `tables` builds on `TextSource`.
"""

import contextlib
import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO, ClassVar

from seq2seq.config.corpora import SourceConfig
from seq2seq.data.examples import Chunk, Example, Pair, Position, Source
from seq2seq.data.file_facts import check_unchanged, combined_fingerprint, file_facts
from seq2seq.errors import DataError, counted
from seq2seq.lines import DAMAGE, damaged, decode_line, open_bytes
from seq2seq.text.forms import Form, form_of_file

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 18  # size of a chunk of the first file


class TextSource(Source):
    """Text files with equal numbers of lines, read together; invalid UTF-8 becomes U+FFFD, with one warning per file.

    Raises:
        DataError: a file cannot be read.
    """

    forms: ClassVar[tuple[Form, ...]] = ()
    """Forms of structured text that this source accepts."""

    def __init__(self, paths: Sequence[Path], weight: float, cache: Path | None):
        self._paths, self.name, self.weight = paths, str(paths[0]), weight
        for path in paths:
            check_form(path, self.forms)
        self._facts = [file_facts(path, cache) for path in paths]

    def chunks(self, start: Position = None) -> Iterator[Chunk]:
        """Yield a block of lines of each file; a position is [lines, bytes of each file].

        Raises:
            DataError: a file is damaged, or changed after it was opened.
        """
        number, *offsets = start or [0] * (1 + len(self._paths))
        self.invalid = [[] for _ in self._paths]
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(open_bytes(path, at)) for path, at in zip(self._paths, offsets, strict=True)]
            while (columns := self._next_lines(streams, number))[0]:
                raw = [b"".join(column) for column in columns]
                texts = [_decode(side, number, found) for side, found in zip(raw, self.invalid, strict=True)]
                first, number = number + 1, number + len(columns[0])
                offsets = [offset + len(side) for offset, side in zip(offsets, raw, strict=True)]
                yield Chunk(texts, first, self._parse, [number, *offsets])
        for path, facts, found in zip(self._paths, self._facts, self.invalid, strict=True):
            check_unchanged(path, facts)
            if found:
                _warn_of_invalid(path, facts.sha256, found[0], len(found))

    def _next_lines(self, streams: Sequence[BinaryIO], number: int) -> list[list[bytes]]:
        """Return a block of lines of the first file and the same lines of the others; none after the last line.

        Raises:
            DataError: a file is damaged after line `number`, or has more or fewer lines than the first.
        """
        columns: list[list[bytes]] = []
        for path, stream in zip(self._paths, streams, strict=True):
            try:
                lines = islice(stream, len(columns[0]) or 1) if columns else stream.readlines(CHUNK_BYTES)
                columns.append(list(lines))
            except DAMAGE as error:
                raise damaged(path, number, error) from error
        if len(set(map(len, columns))) > 1:
            raise DataError(f"{' and '.join(map(str, self._paths))} changed while they were read; start again")
        return columns

    @abstractmethod
    def _parse(self, texts: Sequence[str], first: int) -> list[Example | None]:
        """Return the examples of the lines from `first` on, of which `texts` has one block for each file."""


class TextFiles(TextSource):
    """Two text files, aligned line by line."""

    def __init__(self, config: SourceConfig, cache: Path | None):
        assert config.source is not None  # the config has both or none
        assert config.target is not None
        super().__init__((config.source, config.target), config.weight, cache)
        self.size = self._facts[0].lines
        if self.size != self._facts[1].lines:
            raise DataError(
                f"{config.source} has {counted(self.size, 'line')} but {config.target} has {self._facts[1].lines:,}; "
                "line i of one must translate line i of the other"
            )
        self.fingerprint = combined_fingerprint("text", *(facts.sha256 for facts in self._facts))

    @staticmethod
    def _parse(texts: Sequence[str], first: int) -> list[Example | None]:
        return list(map(Pair, *map(_lines_of, texts)))


def check_form(path: Path, forms: Sequence[Form] = ()) -> None:
    """Raise an error for a file in a form without one sentence per line, except `forms`.

    Raises:
        DataError: the file has such a form; the message names it, with the remedy.
    """
    form = form_of_file(path)
    if form is not None and not form.has_sentences and form not in forms:
        raise DataError(f"{path}: {form}")


def _decode(raw: bytes, number: int, invalid: list[int]) -> str:
    """Return the lines after line `number` as text; numbers of lines that are not UTF-8 are appended to `invalid`."""
    try:
        return raw.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        for index, line in enumerate(raw.split(b"\n"), start=number + 1):
            decode_line(line, index, invalid.append)
        return raw.decode("utf-8", errors="replace").removesuffix("\n")


@cache
def _warn_of_invalid(path: Path, sha256: str, first: int, count: int) -> None:
    """Log a warning, once for each content of a file, which is read several times."""
    lines = f"line {first} and in {count - 1} more" if count > 1 else f"line {first}"
    remedy = "the bytes were replaced by U+FFFD; convert the file (iconv -f latin1 -t utf-8)"
    logger.warning("%s: not UTF-8 in %s; %s", path, lines, remedy)


def _lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    return [line.removesuffix("\r").replace("\r", " ") for line in lines] if "\r" in text else lines
