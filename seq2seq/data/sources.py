"""Where examples come from: aligned text files, TSV, JSONL, and datasets of the Hugging Face hub or a local folder.

`open_pairs` and `open_labelled` turn a `SourceConfig` into a `Source`, which `corpus` reads once and `tasks` reads for
references. A source can be read again and again, and never holds more than a block of examples.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from seq2seq.config import SourceConfig
from seq2seq.data.hub import dataset_columns, dataset_fingerprint, dataset_rows, open_dataset
from seq2seq.errors import DataError, did_you_mean
from seq2seq.lines import as_one_line, open_bytes, read_lines

logger = logging.getLogger(__name__)

TEXT_COLUMNS = ("sentence", "text")
LABEL_COLUMN = "label"
NESTED = "translation"
BLOCK = 1 << 20


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


@runtime_checkable
class Source(Protocol):
    """Examples that can be read again and again; the fingerprint changes when they do."""

    name: str
    weight: float

    @property
    def fingerprint(self) -> str: ...

    @property
    def size(self) -> int | None:
        """How many examples there are, where it is known without reading them."""

    def __iter__(self) -> Iterator[Example]: ...


def open_pairs(config: SourceConfig, source_language: str, target_language: str) -> Source:
    """The sentence pairs of a source; columns that are not named in `config` are named like the languages.

    Raises:
        DataError: a file is missing or damaged, the two sides have unequal line counts, a column is missing. What only
            reading shows (a short row, broken JSON) is raised while reading, with the line.
    """
    if config.source is not None:
        return _TextFiles(config)
    columns = _Columns((config.source_column, config.target_column), ((source_language,), (target_language,)))
    return _open_columns(config, columns, lambda values: Pair(*map(as_one_line, values)))


def open_labelled(config: SourceConfig) -> Source:
    """The labelled texts of a source: columns `sentence` or `text`, and `label`, unless `config` names others.

    Raises:
        DataError: as `open_pairs`.
    """
    if config.source is not None:
        raise DataError(f"{config.source}: labelled texts come from tsv, jsonl or hub, not from source + target")
    columns = _Columns((config.text_column, config.label_column), (TEXT_COLUMNS, (LABEL_COLUMN,)))
    return _open_columns(config, columns, lambda values: LabelledText(*map(as_one_line, values)))


@dataclass(frozen=True)
class _Columns:
    """Which two columns make an example: what the config says, else the first of `defaults` that is there."""

    given: tuple[str | int | None, str | int | None]
    defaults: tuple[tuple[str, ...], tuple[str, ...]]

    def choose(self, present: Sequence[str], origin: str) -> tuple[str, str]:
        """The names of both columns among `present`."""
        first, second = (
            self._choose_one(given, defaults, present, origin)
            for given, defaults in zip(self.given, self.defaults, strict=True)
        )
        return first, second

    def _choose_one(
        self, given: str | int | None, defaults: tuple[str, ...], present: Sequence[str], origin: str
    ) -> str:
        if isinstance(given, int):
            raise DataError(
                f"{origin}: column {given} is a number, but the columns here have names: {_listed(present)}"
            )
        wanted = (given,) if given is not None else defaults
        for name in wanted:
            if name in present:
                return name
        raise DataError(
            f"{origin}: no column {_listed(wanted, ' or ')}; it has {_listed(present)}"
            f"{did_you_mean(wanted[0], present) or '; name the column in the config, such as source_column'}"
        )


def _open_columns(config: SourceConfig, columns: _Columns, make: Callable[[Sequence[str]], Example]) -> Source:
    if config.tsv is not None:
        return _Tsv(config.tsv, columns, make, config.weight)
    if config.jsonl is not None:
        return _Jsonl(config.jsonl, columns, make, config.weight)
    return _Hub(config, columns, make)


class _TextFiles:
    """Two text files, line by line."""

    def __init__(self, config: SourceConfig):
        assert config.source is not None  # the config has both or none
        assert config.target is not None
        self._paths = (config.source, config.target)
        self.name, self.weight = str(config.source), config.weight
        counts = [_count_lines(path) for path in self._paths]
        if counts[0] != counts[1]:
            raise DataError(
                f"{config.source} has {counts[0]} lines but {config.target} has {counts[1]}; line i of one must "
                "translate line i of the other"
            )
        self.size = counts[0]

    @property
    def fingerprint(self) -> str:
        return _combined("text", *(_file_hash(path) for path in self._paths))

    def __iter__(self) -> Iterator[Pair]:
        sides = (_read_reporting(path) for path in self._paths)
        for source, target in zip_longest(*sides):
            if source is None or target is None:
                raise DataError(f"{' and '.join(map(str, self._paths))} changed while they were read; start again")
            yield Pair(as_one_line(source), as_one_line(target))


class _Tsv:
    """A tab-separated file without quoting; the first line is a header where columns have names.

    Empty lines are passed over; a line with more or fewer columns than the header is an error, since its text is cut.
    """

    def __init__(self, path: Path, columns: _Columns, make: Callable[[Sequence[str]], Example], weight: float):
        self._path, self._make = path, make
        self.name, self.weight = str(path), weight
        header = next(read_lines(path), "").split("\t")
        self._has_header, self._places = self._find_columns(header, columns)
        self._width = len(header) if self._has_header else None
        self.size = _count_lines(path) - self._has_header

    @property
    def fingerprint(self) -> str:
        return _combined("tsv", _file_hash(self._path), self._has_header, self._places)

    def __iter__(self) -> Iterator[Example]:
        for number, line in enumerate(_read_reporting(self._path), start=1):
            if not line or (number == 1 and self._has_header):
                continue
            fields = line.split("\t")
            if len(fields) <= max(self._places) or (self._width is not None and len(fields) != self._width):
                wanted = self._width or f"at least {max(self._places) + 1}"
                raise DataError(
                    f"{self._path}: line {number} has {len(fields)} columns instead of {wanted}; mend the line"
                )
            yield self._make([fields[place] for place in self._places])

    def _find_columns(self, header: list[str], columns: _Columns) -> tuple[bool, tuple[int, ...]]:
        """Whether there is a header, and the places of both columns."""
        named = any(isinstance(name, str) for name in columns.given)
        numbered = any(isinstance(name, int) for name in columns.given)
        has_default = any(name in header for names in columns.defaults for name in names)
        if named and numbered:
            raise DataError(f"{self._path}: name both columns, or number both (counted from 0) if there is no header")
        if named or (has_default and not numbered):
            names = columns.choose(header, str(self._path))
            return True, tuple(header.index(name) for name in names)
        first, second = (place if isinstance(place, int) else default for default, place in enumerate(columns.given))
        if first == second:
            raise DataError(f"{self._path}: both columns are number {first}; number both, counted from 0")
        return False, (first, second)


class _Jsonl:
    """One JSON object a line, flat or with the sides inside `translation`; blank lines are passed over."""

    def __init__(self, path: Path, columns: _Columns, make: Callable[[Sequence[str]], Example], weight: float):
        self._path, self._columns, self._make = path, columns, make
        self.name, self.weight, self.size = str(path), weight, None
        next(iter(self), None)  # a wrong file or column is found before anything heavy starts

    @property
    def fingerprint(self) -> str:
        return _combined("jsonl", _file_hash(self._path), self._columns)

    def __iter__(self) -> Iterator[Example]:
        for number, line in enumerate(_read_reporting(self._path), start=1):
            if line.strip():
                yield self._make(self._values(line, f"{self._path}: line {number}"))

    def _values(self, line: str, origin: str) -> list[str]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{origin}: not JSON ({' '.join(str(error).split())}); write one object a line") from error
        if not isinstance(record, dict):
            raise DataError(f"{origin}: {type(record).__name__} instead of an object with the columns as keys")
        record = _unnested(record)
        return [_text(record[name], f"{origin}: {name}") for name in self._columns.choose(list(record), origin)]


class _Hub:
    """A dataset read through `datasets`, by hub name or from a local folder."""

    def __init__(self, config: SourceConfig, columns: _Columns, make: Callable[[Sequence[str]], Example]):
        self._dataset = open_dataset(str(config.hub), config.subset, config.split, config.streaming)
        self._make = make
        self.name, self.weight = f"{config.hub} ({config.split})", config.weight
        self._names = columns.choose(dataset_columns(self._dataset), self.name)
        self._identity = (config.hub, config.subset, config.split)
        self.size = None if config.streaming else len(self._dataset)

    @property
    def fingerprint(self) -> str:
        return _combined("hub", self._identity, self._names, dataset_fingerprint(self._dataset, str(self._identity[0])))

    def __iter__(self) -> Iterator[Example]:
        for number, values in enumerate(dataset_rows(self._dataset, self._names, self.name), start=1):
            texts = zip(self._names, values, strict=True)
            yield self._make([_text(value, f"{self.name}: row {number}: {name}") for name, value in texts])


def _unnested(record: dict[str, Any]) -> dict[str, Any]:
    inner = record.get(NESTED)
    return {**record, **inner} if isinstance(inner, dict) else record


def _text(value: Any, origin: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return str(int(value)) if isinstance(value, bool) else str(value)
    raise DataError(f"{origin}: {type(value).__name__} instead of text; leave the example out or write its text")


def _read_reporting(path: Path) -> Iterator[str]:
    """The lines of a file; a warning says where UTF-8 was broken."""
    broken: list[int] = []
    yield from read_lines(path, on_invalid=broken.append)
    if broken:
        more = f" and in {len(broken) - 1} more" if len(broken) > 1 else ""
        logger.warning("%s: not UTF-8 in line %d%s; the bytes were replaced by U+FFFD", path, broken[0], more)


def _count_lines(path: Path) -> int:
    """Lines of a file as `read_lines` gives them, many times faster."""
    count, last = 0, b"\n"
    try:
        with open_bytes(path) as stream:
            while block := stream.read(BLOCK):
                count += block.count(b"\n")
                last = block[-1:]
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: damaged after line {count} ({error}); fetch or pack the file again") from error
    return count + (last != b"\n")


def _file_hash(path: Path) -> str:
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def _combined(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()


def _listed(names: Sequence[str], conjunction: str = ", ") -> str:
    return conjunction.join(f"'{name}'" for name in names) or "none"
