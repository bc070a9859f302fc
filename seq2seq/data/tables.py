"""Sources with named columns in text files: TSV and CSV, which may have a header, and JSONL.

`sources` opens them; `check` reads headers with it.
"""

import csv
import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.directions import LanguagesConfig
from seq2seq.data.column_kinds import FEWEST_LINES, have_languages, misplaced
from seq2seq.data.columns import LABEL_WORDS, Columns, flattened, listed, looks_like_header
from seq2seq.data.examples import Example, LabelledText
from seq2seq.data.file_facts import combined_fingerprint
from seq2seq.data.text_files import TextSource
from seq2seq.errors import DataError, counted, kind_of, reason, shown, some_of
from seq2seq.lines import read_lines
from seq2seq.text.forms import JSON
from seq2seq.text.table_format import TableFormat, table_format

_LINES_FOR_KINDS = 200
# In a shorter file, a unique label in line 1 means little.
_FEWEST_LINES = 50


def header(path: Path) -> list[str]:
    """Return the fields of the first line that is not empty; none if they cannot be read."""
    try:
        form = table_format(path)
        return form.fields(next(filter(None, form.records(path)), ""))
    except csv.Error:
        return []


class _LineFile(TextSource):
    """A file with at most one example per line."""

    def __init__(self, path: Path, columns: Columns, weight: float, cache: Path | None):
        super().__init__((path,), weight, cache)
        self._path, self._columns, self.size = path, columns, None

    def _parse(self, texts: Sequence[str], first: int) -> list[Example | None]:
        lines = (line.removesuffix("\r") for line in texts[0].split("\n"))
        return [self._example(line, number) for number, line in enumerate(lines, start=first)]

    @abstractmethod
    def _example(self, line: str, number: int) -> Example | None: ...


class Table(_LineFile):
    """A TSV or CSV file, one record per line; the first is a header if the columns are given by name.

    Empty lines are skipped, also before the header; a line with more or fewer columns than the header is an error.
    """

    def __init__(self, path: Path, columns: Columns, weight: float, cache: Path | None):
        super().__init__(path, columns, weight, cache)
        self._format = table_format(path)
        numbered = filter(itemgetter(1), enumerate(self._format.records(path), start=self._format.start))
        self._first_line, line = next(numbered, (self._format.start, ""))
        first = self._fields(line, self._first_line)
        self._has_header, self._indices = self._find_columns(first)
        self._width = len(first) if self._has_header else None
        self.size = self._facts[0].lines - (self._format.start - 1) - self._has_header
        form = (self._format,) if self._format != TableFormat() else ()
        form += (self._format.start,) if self._format.start > 1 else ()
        self.fingerprint = combined_fingerprint("tsv", self._facts[0].sha256, self._has_header, self._indices, *form)

    def _example(self, line: str, number: int) -> Example | None:
        if not line or number < self._first_line + self._has_header:
            return None
        fields = self._fields(line, number)
        if len(fields) <= max(self._indices) or (self._width is not None and len(fields) != self._width):
            wanted = self._width or f"at least {max(self._indices) + 1}"
            remedy = "a CSV needs a name that ends in .csv" if "," in line and len(fields) == 1 else "correct the line"
            raise DataError(
                f"{self._path}: line {number} has {counted(len(fields), 'column')} instead of {wanted}; {remedy}"
            )
        return self._columns.of_texts([fields[index] for index in self._indices], f"{self._path}: line {number}")

    def _fields(self, line: str, number: int) -> list[str]:
        return self._format.record(line, f"{self._path}: line {number}")

    def _find_columns(self, first: list[str]) -> tuple[bool, tuple[int, ...]]:
        """Whether the first line is a header, and the indices of both columns."""
        given = self._columns.given
        named, numbered = (any(isinstance(name, kind) for name in given) for kind in (str, int))
        if named and numbered:
            raise DataError(f"{self._path}: name both columns, or number both (counted from 0) if there is no header")
        is_like_header = not numbered and self._columns.are_in(first)
        has_languages = is_like_header and not named and have_languages(self._first_rows())
        if named or (is_like_header and not has_languages):
            chosen = self._columns.choose(first, str(self._path))
            if repeated := [name for name in chosen if first.count(name) > 1]:
                raise DataError(f"{self._path}: two columns are named {shown(repeated[0])}; give one another name")
            return True, tuple(map(first.index, chosen))
        indices = tuple(index if isinstance(index, int) else default for default, index in enumerate(given))
        if indices[0] == indices[1]:
            raise DataError(f"{self._path}: both columns are number {indices[0]}; number both, counted from 0")
        if has_languages:
            self._refuse_other_columns(indices, fewest=2)
        if max(indices) < len(first):
            self._refuse_header([first[index] for index in indices], indices[1])
            if not numbered:
                self._refuse_other_columns(indices[:1] if self._columns.kind is LabelledText else indices)
        return False, indices

    def _refuse_header(self, heads: Sequence[str], label_index: int) -> None:
        """Raise an error for an unknown header, which must not become an example, nor its word a class."""
        is_labelled = self._columns.kind is LabelledText
        if looks_like_header(heads) or (is_labelled and self._has_unique_label(*heads, label_index)):
            is_swapped = is_labelled and heads[0].strip().casefold() in LABEL_WORDS
            wanted = heads[::-1] if is_swapped else heads
            named = ", ".join(f"{key}: {head}" for key, head in zip(self._columns.keys, wanted, strict=True))
            line = f"{self._path}: line {self._first_line}"
            raise DataError(f"{line} looks like a header ({listed(heads)}); name its columns ({named}), or remove it")

    def _first_rows(self) -> list[list[str]]:
        lines = enumerate(self._format.records(self._path), start=self._format.start)
        return [self._fields(line, number) for number, line in islice(filter(itemgetter(1), lines), _LINES_FOR_KINDS)]

    def _refuse_other_columns(self, indices: Sequence[int], fewest: int = FEWEST_LINES) -> None:
        """Raise an error if the columns are addresses, scores or identifiers that precede the text."""
        if problem := misplaced(self._first_rows(), indices, fewest):
            raise DataError(f"{self._path}: {problem}; name the columns with {' and '.join(self._columns.keys)}")

    def _has_unique_label(self, text: str, label: str, index: int) -> bool:
        """Whether the first line has a short text, and a label that no other line has, while other labels repeat.

        The file is read until the label repeats, which a real label soon does.
        """
        if len(text.split()) > 3 or not label.strip() or re.fullmatch(r"[\d.,+-]+", label.strip()):
            return False
        counts: Counter[str] = Counter()
        lines = enumerate(self._format.records(self._path), start=self._format.start)
        for number, line in islice(lines, self._first_line - self._format.start + 1, None):
            other = self._fields(line, number)[index : index + 1]
            if other == [label]:
                return False
            counts.update(filter(str.strip, other))  # not the empty cell of a blank row
        return sum(counts.values()) >= _FEWEST_LINES and min(counts.values()) > 1


class JsonLines(_LineFile):
    """A file with one JSON object per line, flat or with both sides inside `translation`; blank lines are skipped."""

    forms = (JSON,)

    def __init__(self, path: Path, columns: Columns, weight: float, cache: Path | None):
        super().__init__(path, columns, weight, cache)
        self._columns = columns = self._fitting(columns)
        soft = (columns.labels,) if columns.labels else ()
        self.sha256 = self._facts[0].sha256
        self.fingerprint = combined_fingerprint("jsonl", self.sha256, columns.given, columns.defaults, *soft)
        next(iter(self), None)  # a wrong file or column is found before anything heavy starts

    def _fitting(self, columns: Columns) -> Columns:
        """Return `columns` for the records of this file; the first record that is not blank determines them."""
        for number, line in enumerate(read_lines(self._path), start=1):
            if line.strip() and (found := columns.for_record(*self._record(line, number))):
                return found
        return columns

    def _example(self, line: str, number: int) -> Example | None:
        if not line.strip():
            return None
        record, origin = self._record(line, number)
        names = self._columns.choose(list(record), origin)
        return self._columns.example(names, [record[name] for name in names], origin)

    def _record(self, line: str, number: int) -> tuple[dict[str, Any], str]:
        """Return the object of a line, and its place for messages."""
        origin = f"{self._path}: line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{origin}: not JSON ({reason(error)}); write one object per line") from error
        if not isinstance(record, dict):
            raise DataError(f"{origin}: {kind_of(record)} instead of an object with the columns as keys")
        return flattened(record), origin


class DirectedLines(JsonLines):
    """JSON objects that also name the languages of their sides; the texts are columns of these names, if there are any,
    else those that the config names, or `source` and `target`."""

    def __init__(self, config: SourceConfig, columns: Columns, languages: LanguagesConfig, cache: Path | None):
        assert config.jsonl is not None
        self._languages, self._keys = languages, {"source": config.from_column, "target": config.to_column}
        super().__init__(config.jsonl, replace(columns, defaults=(("source",), ("target",))), config.weight, cache)
        known = self._keys, languages.model_dump()
        self.fingerprint = combined_fingerprint("directed", self.fingerprint, *known)

    def _example(self, line: str, number: int) -> Example | None:
        if not line.strip():
            return None
        record, origin = self._record(line, number)
        sides, given = [], []
        for side, key in self._keys.items():
            if not isinstance(name := record.get(key), str):
                raise DataError(f"{origin}: no language of the {side}; write it as {shown(key)}")
            if (found := self._languages.named(side, name)) is None:
                known = some_of(list(getattr(self._languages, side)))
                raise DataError(f"{origin}: {key}: {shown(name)} is not in languages.{side} ({known})")
            sides.append(found)
            given.append(name if name in record else found if found in record else None)
        columns = self._columns
        if None not in given and columns.given == (None, None):
            columns = replace(columns, given=tuple(given))
        names = columns.choose(list(record), origin)
        example = columns.example(names, [record[name] for name in names], origin)
        return replace(example, direction=tuple(sides))
