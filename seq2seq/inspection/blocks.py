"""A corpus in blocks of lines for `check`, read with more patience than training has.

Two text files of unequal length, or bytes that are not UTF-8, do not end the reading: `CorpusReader` counts and keeps
what it met. Other formats are read through `sources`, up to the first line that training would stop at.
"""

import logging
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

from seq2seq.config import SourceConfig
from seq2seq.data.examples import LabelledText, Source
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import DataError
from seq2seq.inspection.quality import EXAMPLES_KEPT, Block, Finding, shown
from seq2seq.lines import DAMAGE, decode_line, open_bytes, read_lines

BLOCK_LINES = 8192
BLOCK_BYTES = 1 << 20


class CorpusReader:
    """One corpus of a config; the attributes are filled while `blocks` is read to its end.

    Args:
        name: train, valid, or the name of a test set.
        config: where it is.
        languages: of the two sides, by which columns may be named; None in classification.
    """

    def __init__(self, name: str, config: SourceConfig, languages: tuple[str, str] | None):
        self.name, self.config, self.is_labelled = name, config, languages is None
        self._languages = languages or ("", "")
        self.files = [str(path) for _, path in config.files()] or [f"{config.hub} ({config.split})"]
        self.line_counts: list[int] = []
        """Of each file; one number where both sides stand in one."""
        self.invalid: list[Finding] = []
        """Lines of each file that are not UTF-8."""
        self.failure: str | None = None
        """Why reading ended before the end."""

    def blocks(self) -> Iterator[Block]:
        """The examples from the beginning; of files of unequal length those that have two sides."""
        self.failure = None
        self.invalid = [Finding() for _ in self.files]
        self.line_counts = [0 for _ in self.files]
        try:
            yield from self._text_blocks() if self.config.source is not None else self._source_blocks()
        except DataError as error:
            self.failure = str(error)

    def examples_at(self, numbers: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """The texts of a few lines."""
        wanted, found = set(numbers), {}
        again = CorpusReader(self.name, self.config, None if self.is_labelled else self._languages)
        for block in again.blocks() if wanted else ():
            for place, number in enumerate(block.numbers):
                if number in wanted:
                    found[number] = tuple(shown(column[place]) for column in block.columns)
            if len(found) == len(wanted):
                break
        return found

    def _text_blocks(self) -> Iterator[Block]:
        assert self.config.source is not None  # the config checks it
        assert self.config.target is not None
        paths = (self.config.source, self.config.target)
        first = 1
        try:
            with open_bytes(paths[0]) as source, open_bytes(paths[1]) as target:
                while lines := source.readlines(BLOCK_BYTES):
                    raw = (lines, list(islice(target, len(lines))))
                    columns = [self._decode(side, some, first) for side, some in enumerate(raw)]
                    if size := len(columns[1]):
                        yield Block(range(first, first + size), (columns[0][:size], columns[1]), None, first)
                    for side in (0, 1):
                        self.line_counts[side] += len(columns[side])
                    first += len(lines)
                self.line_counts[1] += sum(1 for _ in target)
        except DAMAGE as error:
            where = " and ".join(map(str, paths))
            raise DataError(f"{where}: damaged after line {first - 1} ({error}); fetch or pack them again") from error

    def _decode(self, side: int, raw: list[bytes], first: int) -> list[str]:
        whole = b"".join(raw)
        if b"\r" not in whole:
            try:
                return whole.decode("utf-8").removesuffix("\n").split("\n") if raw else []
            except UnicodeDecodeError:
                pass  # line by line below
        broken: list[int] = []
        lines = [decode_line(line, number, broken.append) for number, line in enumerate(raw, start=first)]
        self._keep_invalid(side, [(number, lines[number - first]) for number in broken])
        return lines

    def _keep_invalid(self, side: int, broken: Sequence[tuple[int, str]]) -> None:
        examples = [(number, (shown(text),)) for number, text in broken[:EXAMPLES_KEPT]]
        self.invalid[side].add(Finding(len(broken), examples))

    def _source_blocks(self) -> Iterator[Block]:
        source = open_labelled(self.config) if self.is_labelled else open_pairs(self.config, *self._languages)
        numbers, examples, first = self._numbers(source), iter(_quiet(source)), 1
        while some := list(islice(examples, BLOCK_LINES)):
            lines = list(islice(numbers, len(some)))
            if isinstance(some[0], LabelledText):
                yield Block(lines, ([e.text for e in some],), [e.label for e in some], first)
            else:
                yield Block(lines, ([e.source for e in some], [e.target for e in some]), None, first)
            first += len(some)
            self.line_counts[0] += len(some)
        for _ in numbers:  # to the end, for lines that are not UTF-8
            pass

    def _numbers(self, source: Source) -> Iterator[int]:
        """The line numbers of the examples of a file; of a dataset the row numbers."""
        path = self.config.tsv or self.config.jsonl
        if path is None:
            yield from count(1)
            return
        broken: list[int] = []
        has_header = self.config.tsv is not None and source.size is not None and _has_header(path, source.size)
        for number, line in enumerate(read_lines(path, broken.append), start=1):
            if broken:
                self._keep_invalid(0, [(broken.pop(), line)])
            if (line if self.config.tsv is not None else line.strip()) and not (number == 1 and has_header):
                yield number


def count_lines(path: Path) -> int:
    """Lines of a file, whatever its encoding."""
    with open_bytes(path) as stream:
        return sum(1 for _ in stream)


def _has_header(path: Path, size: int) -> bool:
    return count_lines(path) > size


def _quiet(source: Source) -> Iterator:
    """The examples of a source without its warnings: the report says more."""
    logger = logging.getLogger("seq2seq.data.text_files")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield from source
    finally:
        logger.setLevel(level)
