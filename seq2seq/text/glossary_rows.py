"""Lines of the file of a glossary, a TSV or CSV, as columns. `glossary` makes entries of them."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NoReturn

from seq2seq.errors import DataError
from seq2seq.lines import read_lines
from seq2seq.text.table_format import TableFormat, csv_format, has_spreadsheet_quotes, is_csv

HEADER = ("source", "target")
# Number of lines from which the format is recognised. The file may be a pipe, which is read once.
_LINES_FOR_FORMAT = 100_000


def rows(path: Path, longest: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the columns of each line, without comments, empty lines and the header.

    Args:
        path: file, which is read as a CSV if its name is that of one.
        longest: maximum number of characters of a line.

    Raises:
        DataError: the file cannot be read, is not UTF-8, or a line is too long or not one record.
    """
    lines = _lines(path, longest)
    head = list(islice(lines, _LINES_FOR_FORMAT))
    texts = [text for _, text in head]
    form = csv_format(path, texts) if is_csv(path) else TableFormat(is_quoted=has_spreadsheet_quotes(texts))
    is_first = True
    for number, text in chain(head[form.start - 1 :], lines):
        columns = form.record(text, f"{path}: line {number}")
        if is_csv(path):
            columns = columns[:2]  # DeepL's further columns are languages
            if len(columns) == 1 and any(mark in text for mark in ",;\t"):  # another delimiter: reported
                columns.append("")
        if not is_first or tuple(column.strip().casefold() for column in columns[:2]) != HEADER:
            yield number, columns
        is_first = False


def _lines(path: Path, longest: int) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not empty and not a comment."""

    def refuse(number: int) -> NoReturn:
        raise DataError(
            f"{path}: line {number} is not UTF-8; convert the file from its encoding, for example "
            f"iconv -f WINDOWS-1252 -t UTF-8 {path} > utf8.tsv"
        )

    for number, text in enumerate(read_lines(path, refuse), start=1):
        if "\0" in text:
            raise DataError(
                f"{path}: line {number} has zero bytes; if it is UTF-16: iconv -f UTF-16 -t UTF-8 {path} > utf8.tsv"
            )
        if "\r" in text:
            raise DataError(f"{path}: line {number} has carriage returns; make them line ends (tr '\\r' '\\n')")
        if len(text) > longest:
            raise DataError(f"{path}: line {number} has more than {longest:,} characters; a line is one term")
        if text.strip() and not text.startswith("#"):
            yield number, text
