"""The format of TSV and CSV files: delimiter and quoting. `data.tables` and glossaries read their lines with it."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from seq2seq.errors import DataError
from seq2seq.lines import open_bytes, read_lines
from seq2seq.text.forms import MOSES, form_of_file

_QUOTED = r'"(?:[^"]|"")*"'
_RECORD, _ALL_QUOTED = (
    re.compile(rf"(?:{field})(?:\t(?:{field}))*") for field in (rf'{_QUOTED}|[^"\t]*', rf"{_QUOTED}|\d*")
)
# The line in which Excel names the delimiter of a CSV, before the header.
_NAMES_DELIMITER = re.compile(r'"?sep=(\t|[^\w\s"])"?', re.IGNORECASE)
_LINES_FOR_DELIMITER = 200


@dataclass(frozen=True)
class TableFormat:
    """The format of the lines of a table: delimiter and quoting."""

    delimiter: str = "\t"
    is_quoted: bool = False
    """Whether a field may be quoted, with quotes inside it doubled, as spreadsheets do (RFC 4180)."""
    start: int = field(default=1, repr=False)  # fingerprints contain the repr of earlier versions
    """Number of the first line that is a record."""

    def records(self, path: Path) -> Iterator[str]:
        """Yield the lines of a file from the first record on; some may be empty."""
        return islice(read_lines(path), self.start - 1, None)

    def fields(self, line: str) -> list[str]:
        """Return the fields of a line, which must be one record; a field that continues on the next line raises
        `csv.Error`."""
        if not self.is_quoted:
            return line.split(self.delimiter)
        return next(csv.reader([line.replace("\r", " ")], delimiter=self.delimiter, strict=True), [""])

    def record(self, line: str, origin: str) -> list[str]:
        """Return the fields of a line.

        Raises:
            DataError: the line is not one record.
        """
        try:
            return self.fields(line)
        except csv.Error as error:
            raise DataError(
                f"{origin}: not one record ({error}); write each record in one line, quotes inside a quoted field "
                "doubled"
            ) from error


def table_format(path: Path) -> TableFormat:
    """Return the format of a file.

    The delimiter of a .csv is that of Excel's line `sep=;`, else the one that fits its first lines. The delimiter of
    other files is ` ||| ` if all lines contain it, else the tab, with quotes if a spreadsheet wrote them.

    Raises:
        DataError: the first lines of a .csv fit several delimiters.
    """
    if is_csv(path):
        return csv_format(path, list(islice(read_lines(path), _LINES_FOR_DELIMITER)))
    if form_of_file(path) is MOSES:
        return TableFormat(" ||| ")
    with open_bytes(path) as stream:
        has_quotes = any(b'"' in block for block in iter(lambda: stream.read(1 << 20), b""))
    return TableFormat(is_quoted=has_quotes and has_spreadsheet_quotes(read_lines(path)))


def is_csv(path: Path) -> bool:
    """Whether the name of a file is that of a CSV, plain or gzip."""
    return path.name.lower().removesuffix(".gz").endswith(".csv")


def csv_format(path: Path, lines: Sequence[str]) -> TableFormat:
    """Return the format of a CSV file that begins with these lines; errors are those of `table_format`."""
    if lines and (named := _NAMES_DELIMITER.fullmatch(lines[0].rstrip("\r\n"))):
        return TableFormat(named[1], is_quoted=True, start=2)
    return TableFormat(_delimiter(path, list(filter(None, lines[:_LINES_FOR_DELIMITER]))), is_quoted=True)


def _delimiter(path: Path, lines: Sequence[str]) -> str:
    """Return the delimiter that splits all lines into equally many fields, at least two.

    If several do, a comma or semicolon before a space is punctuation, as in `Hallo, du;Hello, you`.

    Raises:
        DataError: several delimiters are left.
    """
    fitting = [delimiter for delimiter in ",;\t" if _splits_evenly(lines, delimiter)]
    if len(fitting) > 1:
        spaced = [one for one in fitting if any(f"{one} " in re.sub(_QUOTED, "", line) for line in lines)]
        fitting = [one for one in fitting if one not in spaced] or fitting
    if len(fitting) > 1:
        ways = f"its lines can be split by {' and by '.join(map(repr, fitting))}"
        raise DataError(f"{path}: {ways}; write a first line such as sep={fitting[-1]}")
    return fitting[0] if fitting else max(",;\t", key=lines[0].count) if lines else ","


def _splits_evenly(lines: Sequence[str], delimiter: str) -> bool:
    form = TableFormat(delimiter, is_quoted=True)
    try:
        widths = {len(form.fields(line)) for line in lines}
    except csv.Error:
        return False
    return len(widths) == 1 and widths.pop() > 1


def has_spreadsheet_quotes(lines: Iterable[str]) -> bool:
    """Whether quotes occur only around fields of a TSV file, and all fields have them, or some need them for their
    content.

    Other TSV files have no quoting, so a quote is a character of the text.
    """
    form, is_needed, is_everywhere = TableFormat(is_quoted=True), False, True
    for line in lines:
        if '"' in line and not _RECORD.fullmatch(line):
            return False
        is_needed = is_needed or ('"' in line and any('"' in field or "\t" in field for field in form.fields(line)))
        is_everywhere = is_everywhere and _ALL_QUOTED.fullmatch(line) is not None
    return is_needed or is_everywhere
