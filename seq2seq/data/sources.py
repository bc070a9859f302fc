"""Where examples come from: aligned text files, TSV, JSONL, and datasets of the Hugging Face hub or a local folder.

`open_pairs` and `open_labelled` turn a `SourceConfig` into a `Source`, which `corpus` reads once and `tasks` reads for
references. A source can be read again and again, and never holds more than a span of examples.
"""

import csv
import functools
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq.config import SourceConfig
from seq2seq.data.file_facts import file_facts, is_unchanged
from seq2seq.data.hub import dataset_blocks, dataset_columns, dataset_fingerprint, open_dataset
from seq2seq.data.spans import (
    Example,
    LabelledText,
    LineSpan,
    Pair,
    PairSpan,
    Position,
    RowSpan,
    Span,
    read_together,
)
from seq2seq.data.tables import LABEL_WORDS, has_label_of_its_own, is_called, looks_like_header, table_format
from seq2seq.errors import DataError, counted, did_you_mean
from seq2seq.lines import as_one_line, read_lines

__all__ = ["Example", "LabelledText", "Pair", "Source", "Span", "open_labelled", "open_pairs"]

TEXT_COLUMNS = ("sentence", "text")
LABEL_COLUMN = "label"
NESTED = "translation"


class Source(ABC):
    """Examples that can be read again and again; the fingerprint changes when they do."""

    name: str
    weight: float
    fingerprint: str
    size: int | None
    """How many examples there are, where it is known without reading them."""

    @abstractmethod
    def spans(self, start: Position = None) -> Iterator[Span]:
        """The examples from the beginning, or from where a span ended."""

    def __iter__(self) -> Iterator[Example]:
        for span in self.spans():
            yield from span.examples()


def open_pairs(config: SourceConfig, source_language: str, target_language: str, cache: Path | None = None) -> Source:
    """The sentence pairs of a source; columns that are not named in `config` are named like the languages.

    What has to be known of large files is kept in the folder `cache`.

    Raises:
        DataError: a file is missing or damaged, the two sides have unequal line counts, a column is missing. What only
            reading shows (a short row, broken JSON) is raised while reading, with the line.
    """
    if config.source is not None:
        return _TextFiles(config, cache)
    columns = _Columns(
        ("source_column", "target_column"),
        (config.source_column, config.target_column),
        ((source_language,), (target_language,)),
    )
    return _open_columns(config, columns, Pair, cache)


def open_labelled(config: SourceConfig, cache: Path | None = None) -> Source:
    """The labelled texts of a source: columns `sentence` or `text`, and `label`, unless `config` names others.

    Raises:
        DataError: as `open_pairs`.
    """
    if config.source is not None:
        raise DataError(f"{config.source}: labelled texts come from tsv, jsonl or hub, not from source + target")
    columns = _Columns(
        ("text_column", "label_column"), (config.text_column, config.label_column), (TEXT_COLUMNS, (LABEL_COLUMN,))
    )
    return _open_columns(config, columns, LabelledText, cache)


@dataclass(frozen=True)
class _Columns:
    """Which two columns make an example: what the config says, else the first of `defaults` that is there."""

    keys: tuple[str, str]
    """Of the config, by which they are named."""
    given: tuple[str | int | None, str | int | None]
    defaults: tuple[tuple[str, ...], tuple[str, ...]]

    def choose(self, present: Sequence[str], origin: str) -> tuple[str, str]:
        """The names of both columns among `present`."""
        first, second = (
            self._choose_one(*column, present, origin)
            for column in zip(self.keys, self.given, self.defaults, strict=True)
        )
        return first, second

    def are_in(self, present: Sequence[str]) -> bool:
        """Whether columns that nobody named have names here: one as it is written, or both in other words."""
        found = [[is_called(head, name) for name in names for head in present] for names in self.defaults]
        return all(map(any, found)) or any(name in present for names in self.defaults for name in names)

    def _choose_one(
        self, key: str, given: str | int | None, defaults: tuple[str, ...], present: Sequence[str], origin: str
    ) -> str:
        if isinstance(given, int):
            raise DataError(
                f"{origin}: column {given} is a number, but the columns here have names: {_listed(present)}"
            )
        wanted = (given,) if given is not None else defaults
        for name in wanted:
            if name in present:
                return name
        for head in present if given is None else ():
            if any(is_called(head, name) for name in defaults):
                return head
        raise DataError(
            f"{origin}: no column {_listed(wanted, ' or ')}; it has {_listed(present)}"
            f"{did_you_mean(wanted[0], present) or f'; name the column in the config ({key})'}"
        )


def _open_columns(config: SourceConfig, columns: _Columns, kind: type[Example], cache: Path | None) -> Source:
    if config.tsv is not None:
        return _Table(config.tsv, columns, kind, config.weight, cache)
    if config.jsonl is not None:
        return _Jsonl(config.jsonl, columns, kind, config.weight, cache)
    return _Hub(config, columns, kind, cache)


class _TextFiles(Source):
    """Two text files, line by line."""

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
        self.fingerprint = _combined("text", *(facts.sha256 for facts in self._facts))

    def spans(self, start: Position = None) -> Iterator[Span]:
        """Some lines of both files at a time."""
        for (source, target), _, end in read_together(self._paths, start):
            yield PairSpan(source, target, end)
        for path, facts in zip(self._paths, self._facts, strict=True):
            if not is_unchanged(path, facts):
                raise DataError(f"{path}: changed while it was read; start again when it is complete")


class _LineFile(Source):
    """A file in which a line is an example, or says nothing."""

    def __init__(self, path: Path, kind: type[Example], weight: float, cache: Path | None):
        self._path, self._kind = path, kind
        self._facts = file_facts(path, cache)
        self.name, self.weight, self.size = str(path), weight, None

    def spans(self, start: Position = None) -> Iterator[Span]:
        """Some lines at a time."""
        for (text,), first, end in read_together([self._path], start):
            yield LineSpan(text, first, self._example, end)
        if not is_unchanged(self._path, self._facts):
            raise DataError(f"{self._path}: changed while it was read; start again when it is complete")

    @abstractmethod
    def _example(self, line: str, number: int) -> Example | None:
        """What the line holds."""


class _Table(_LineFile):
    """A TSV or CSV file, a record a line; the first line is a header where columns have names.

    Empty lines are passed over; a line with more or fewer columns than the header is an error, since its text is cut.
    """

    def __init__(self, path: Path, columns: _Columns, kind: type[Example], weight: float, cache: Path | None):
        super().__init__(path, kind, weight, cache)
        self._format = table_format(path)
        first = self._fields(next(read_lines(path), ""), 1)
        self._has_header, self._places = self._find_columns(first, columns)
        self._width = len(first) if self._has_header else None
        self.size = self._facts.lines - self._has_header
        form = (self._format,) if self._format.is_quoted else ()
        self.fingerprint = _combined("tsv", self._facts.sha256, self._has_header, self._places, *form)

    def _example(self, line: str, number: int) -> Example | None:
        if not line or (number == 1 and self._has_header):
            return None
        fields = self._fields(line, number)
        if len(fields) <= max(self._places) or (self._width is not None and len(fields) != self._width):
            wanted = self._width or f"at least {max(self._places) + 1}"
            remedy = "a CSV needs a name that ends in .csv" if "," in line and len(fields) == 1 else "correct the line"
            raise DataError(
                f"{self._path}: line {number} has {counted(len(fields), 'column')} instead of {wanted}; {remedy}"
            )
        return self._kind(*(as_one_line(fields[place]) for place in self._places))

    def _fields(self, line: str, number: int) -> list[str]:
        try:
            return self._format.fields(line)
        except csv.Error as error:
            raise DataError(
                f"{self._path}: line {number}: not one record ({error}); write each record in one line, quotes inside "
                "a quoted field doubled"
            ) from error

    def _find_columns(self, first: list[str], columns: _Columns) -> tuple[bool, tuple[int, ...]]:
        """Whether the first line is a header, and the places of both columns."""
        named = any(isinstance(name, str) for name in columns.given)
        numbered = any(isinstance(name, int) for name in columns.given)
        if named and numbered:
            raise DataError(f"{self._path}: name both columns, or number both (counted from 0) if there is no header")
        if named or (not numbered and columns.are_in(first)):
            names = columns.choose(first, str(self._path))
            return True, tuple(first.index(name) for name in names)
        places = tuple(place if isinstance(place, int) else default for default, place in enumerate(columns.given))
        if places[0] == places[1]:
            raise DataError(f"{self._path}: both columns are number {places[0]}; number both, counted from 0")
        self._refuse_header([first[place] for place in places if place < len(first)], columns, places)
        return False, places

    def _refuse_header(self, heads: Sequence[str], columns: _Columns, places: Sequence[int]) -> None:
        """A header that nobody knew is not to become an example, nor its word a class."""
        if len(heads) < 2:
            return
        is_class = self._kind is LabelledText and has_label_of_its_own(self._path, self._format, *heads, places[1])
        if is_class or looks_like_header(heads):
            is_swapped = self._kind is LabelledText and heads[0].strip().casefold() in LABEL_WORDS
            wanted = heads[::-1] if is_swapped else heads
            named = ", ".join(f"{key}: {head}" for key, head in zip(columns.keys, wanted, strict=True))
            raise DataError(
                f"{self._path}: line 1 looks like a header ({_listed(heads)}); name its columns ({named}), or remove it"
            )


class _Jsonl(_LineFile):
    """One JSON object a line, flat or with the sides inside `translation`; blank lines are passed over."""

    def __init__(self, path: Path, columns: _Columns, kind: type[Example], weight: float, cache: Path | None):
        super().__init__(path, kind, weight, cache)
        self._columns = columns
        self.fingerprint = _combined("jsonl", self._facts.sha256, columns)
        next(iter(self), None)  # a wrong file or column is found before anything heavy starts

    def _example(self, line: str, number: int) -> Example | None:
        if not line.strip():
            return None
        origin = f"{self._path}: line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise DataError(f"{origin}: not JSON ({reason}); write one object per line") from error
        if not isinstance(record, dict):
            raise DataError(f"{origin}: {type(record).__name__} instead of an object with the columns as keys")
        record = _unnested(record)
        names = self._columns.choose(list(record), origin)
        return self._kind(*(as_one_line(_text(record[name], f"{origin}: {name}")) for name in names))


class _Hub(Source):
    """A dataset read through `datasets`, by hub name or from a local folder; a stream is read shard after shard."""

    def __init__(self, config: SourceConfig, columns: _Columns, kind: type[Example], cache: Path | None):
        self._config, self._kind = config, kind
        dataset = self._open()
        self.name, self.weight = f"{config.hub} ({config.split})", config.weight
        self._names = columns.choose(dataset_columns(dataset), self.name)
        self.size = None if config.streaming else len(dataset)
        identity = (config.hub, config.subset, config.split)
        self.fingerprint = _combined("hub", identity, self._names, dataset_fingerprint(dataset, str(config.hub), cache))

    def spans(self, start: Position = None) -> Iterator[Span]:
        """Some rows at a time."""
        number, place = start or (0, None)
        parse = functools.partial(_row_example, self._kind, self._names, self.name)
        for columns, behind in dataset_blocks(self._open(), self._names, self.name, place):
            first, number = number + 1, number + len(columns[0])
            yield RowSpan(columns, first, parse, [number, behind])

    def _open(self) -> Any:
        config = self._config
        return open_dataset(str(config.hub), config.subset, config.split, config.streaming)


def _row_example(kind: type[Example], names: Sequence[str], origin: str, values: Sequence[Any], number: int) -> Example:
    texts = zip(names, values, strict=True)
    return kind(*(as_one_line(_text(value, f"{origin}: row {number}: {name}")) for name, value in texts))


def _unnested(record: dict[str, Any]) -> dict[str, Any]:
    inner = record.get(NESTED)
    return {**record, **inner} if isinstance(inner, dict) else record


def _text(value: Any, origin: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return str(int(value)) if isinstance(value, bool) else str(value)
    raise DataError(f"{origin}: {type(value).__name__} instead of text; leave the example out or write its text")


def _combined(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()


def _listed(names: Sequence[str], conjunction: str = ", ") -> str:
    return conjunction.join(f"'{name}'" for name in names) or "none"
