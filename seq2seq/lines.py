"""Lines of text: the only reader and writer of text files and pipes in the toolkit.

A line ends at `\\n` alone (one `\\r` before it is dropped), so U+2028, U+0085 or `\\f` within a sentence never shift
the following lines. Text is UTF-8; a byte order mark is skipped; invalid bytes are replaced and reported with the line
number. UTF-16 and files that are not text are refused.
"""

import codecs
import contextlib
import csv
import errno
import gzip
import io
import json
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from seq2seq.archives import ZIP, open_raw
from seq2seq.errors import DataError, reason

# Characters that no line of output contains: control characters, line ends of any kind, surrogates for invalid bytes.
UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# A line of a table may be as long as any other line; `csv` refuses a field of more than 131,072 characters by default.
csv.field_size_limit(2**31 - 1)

Item = TypeVar("Item")
OnInvalid = Callable[[int], None]

# Kinds of collections whose items are not lines in order: a mapping would give its keys.
UNORDERED = (set, frozenset, Mapping)
# Errors of reading a damaged file or gzip stream.
DAMAGE = (OSError, EOFError, zlib.error)
BOM = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
TARS, TAR_AT = (b"ustar\x0000", b"ustar  \0"), 257  # in the header of the first member: POSIX, GNU
_SHEET = "an Excel file, another office document or a zip archive; export it as UTF-8 text, TSV or CSV, or extract it"
_DATASET = "name its folder with the key hub to train on it, or write one column as UTF-8 text"
_WRITE_TEXT = "write its sentences as UTF-8 text with the program that made it"
_NO_TEXT = {
    ZIP: _SHEET,
    b"\xd0\xcf\x11\xe0\xa1\xb1": _SHEET,
    b"%PDF-1.": "a PDF; export it as UTF-8 text",
    b"PAR1\x15": f"a Parquet file; {_DATASET}",
    b"ARROW1\0\0": f"an Arrow or Feather file; rename it to NAME.arrow and {_DATASET}",
    b"\xff\xff\xff\xff": f"an Arrow stream; rename it to NAME.arrow and {_DATASET}",
    b"FEA1": f"a Feather file of version 1; {_WRITE_TEXT}",
    b"\x89HDF\r\n\x1a\n": f"an HDF5 file; {_WRITE_TEXT}",
    b"SQLite format 3\0": "an SQLite database; export a table as TSV (sqlite3 -tabs FILE 'SELECT ...' > NEW.tsv)",
    b"\x93NUMPY": f"a NumPy array; {_WRITE_TEXT}",
    **dict.fromkeys(
        (b"(lp0\n", b"(dp0\n", b"]q\0", b"}q\0", b"\x80\2", b"\x80\3", b"\x80\4", b"\x80\5"),
        f"a Python pickle; {_WRITE_TEXT}",
    ),
    GZIP: "compressed twice with gzip; decompress it once (gunzip)",
    b"\xfd7zXZ\x00": "compressed with xz; decompress it, or use gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; decompress it, or use gzip",
    **{b"BZh%d1AY&SY" % level: "compressed with bzip2; decompress it, or use gzip" for level in range(1, 10)},
}
_OTHER_BOMS = {
    codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16",
}  # fmt: skip
_MIN_BYTES = 24  # to recognise an encoding without a byte order mark


class UnequalPrefixes(DataError):
    """The numbers of prefixes and lines differ."""

    def __init__(self, prefixes: int, lines: str):
        super().__init__(f"prefixes: {prefixes:,}, lines: {lines}; give one prefix for each line, empty for none")


def open_bytes(path: Path, offset: int = 0, keeps_bom: bool = False) -> BinaryIO:
    """Open a plain or gzip text file for reading bytes, after `offset` bytes of (decompressed) text.

    The file may be a member of a zip archive (`archives`).

    Raises:
        DataError: the file is missing, a folder, not readable, or refused by `text_bytes`.
    """
    raw = open_raw(path)
    with contextlib.ExitStack() as stack:
        stack.callback(raw.close)
        try:
            stream = text_bytes(raw, str(path), keeps_bom)
            if offset:
                stream.seek(offset, os.SEEK_CUR)
        except DAMAGE as error:
            raise damaged(path, 0, error) from error
        stack.pop_all()
    return stream


def damaged(path: Path, number: int, error: Exception) -> DataError:
    """Return the error for a file that cannot be read after line `number`; `error` is one of DAMAGE."""
    return DataError(f"{path}: damaged after line {number:,} ({reason(error)}); fetch or compress it again")


def text_bytes(stream: BinaryIO, name: str, keeps_bom: bool = False) -> BinaryIO:
    """Return the rest of a stream, which may be a pipe, as bytes of text without a byte order mark.

    gzip is decompressed; it is recognised by its first two bytes, not by the file name.

    Raises:
        DataError: it is UTF-16 or UTF-32, or not text but a spreadsheet, a PDF or an archive.
    """
    if not hasattr(stream, "peek"):
        stream = io.BufferedReader(stream)  # type: ignore[type-var]
    if not (start := stream.peek(2)[:2]):
        return io.BytesIO()  # a second read would wait for the terminal again
    if start == GZIP:
        stream = io.BufferedReader(gzip.GzipFile(fileobj=stream))  # type: ignore[type-var]
    head = stream.peek(3)
    if problem := _problem(head):
        raise DataError(f"{name}: {problem}")
    if head.startswith(BOM) and not keeps_bom:
        stream.read(len(BOM))
    return stream


def _problem(head: bytes) -> str | None:
    """Return why a file that begins with `head` cannot be read as UTF-8 text, or None; a few invalid bytes are
    accepted."""
    if problem := next((problem for magic, problem in _NO_TEXT.items() if head.startswith(magic)), None):
        return problem
    if head[TAR_AT:].startswith(TARS):
        return "a tar archive; extract it (tar -xf FILE)"
    encoding = next((encoding for bom, encoding in _OTHER_BOMS.items() if head.startswith(bom)), None)
    if encoding is None and b"\0" in head and len(head) >= _MIN_BYTES:
        guesses = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
        encoding = next((guess for guess in guesses if _is_encoded(head, guess)), None)
    return encoding and f"{encoding} text; convert it to UTF-8 (iconv -f {encoding} -t UTF-8)"


def _is_encoded(head: bytes, encoding: str) -> bool:
    """Whether bytes that include zeros are text of this encoding, rather than UTF-8 that contains zeros."""
    text, utf8 = (codecs.getincrementaldecoder(name)("replace").decode(head) for name in (encoding, "utf-8"))
    if "\ufffd" in text or "\0" in text or not any(map(str.isalpha, text)):
        return False
    if encoding.startswith("UTF-32"):
        return True
    zeros = head[1::2].count(0) if encoding.endswith("LE") else head[::2].count(0)
    num_control = sum(byte < 32 and byte not in b"\t\n\r" for byte in head)  # such as the high bytes of alphabets
    has_lines = 2 * text.count("\n") > head.count(b"\n") and "\ufffd" in utf8
    return zeros == head.count(0) and (4 * num_control > len(head) or has_lines)


def read_regular(path: Path, largest: int) -> bytes:
    """Return all bytes of a regular file; pipes and devices are not read.

    Raises:
        OSError: it is missing, not readable, not a regular file, or larger than `largest` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = file.read(min(status.st_size, largest) + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"more than {largest:,} bytes", str(path))
    return content


def decode_line(raw: bytes, number: int, on_invalid: OnInvalid | None = None) -> str:
    """Return one raw line as text, without its `\\n` or `\\r\\n`; `on_invalid(number)` is called for invalid UTF-8."""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        if on_invalid is not None:
            on_invalid(number)
        return raw.decode("utf-8", errors="replace")


def read_lines(path: Path, on_invalid: OnInvalid | None = None, keeps_bom: bool = False) -> Iterator[str]:
    """Yield the lines of a text file, plain or gzip.

    Raises:
        DataError: the file cannot be read, is not text, or its gzip stream is damaged (the message names the line).
    """
    number = 0
    try:
        with open_bytes(path, keeps_bom=keeps_bom) as stream:
            for number, raw in enumerate(stream, start=1):
                yield decode_line(raw, number, on_invalid)
    except DAMAGE as error:
        raise damaged(path, number, error) from error


def read_records(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the JSON objects of a file, one in each line, as in metrics.jsonl, and the numbers of damaged lines.

    Raises:
        DataError: the file cannot be read.
    """
    records, broken = [], []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        else:
            broken.append(number)
    return records, broken


def check_readable_again(path: Path) -> None:
    """Refuse a folder, a pipe or a device, which cannot be read several times.

    Raises:
        DataError: `path` is one of them.
    """
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise DataError(f"{path}: a folder; name a file")
        kind = "a pipe, which can be read only once" if path.is_fifo() else "a device"
        raise DataError(f"{path}: {kind}; write its text to a file first")


@contextlib.contextmanager
def readable_again(path: Path) -> Iterator[Path]:
    """Yield `path`, or a temporary copy of the content of a pipe, which can be read only once."""
    if not path.is_fifo():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="s2s-") as folder:
        copy = Path(folder) / path.name
        with open(path, "rb") as pipe, open(copy, "wb") as file:
            shutil.copyfileobj(pipe, file)
        yield copy


def in_order(items: Iterable[Item], function: str, kind: str = "text") -> Iterator[Item]:
    """Return an iterator over the texts, or the items of another `kind`, that a library function was given.

    Raises:
        TypeError: they are a single text, whose letters would count as texts, or a set or mapping, which has no order.
    """
    wanted = f"{function} takes a list of {kind}s{' (source, target)' * (kind == 'pair')}"
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise TypeError(f"{wanted}; put a single {kind} into a list")
    if isinstance(items, UNORDERED):
        raise TypeError(f"{wanted} and not a {type(items).__name__}, which has no order; make a list of it")
    return iter(items)


def checked_texts(texts: Iterable[str], function: str) -> list[str]:
    """Return the texts that a library function was given, as a list.

    Raises:
        TypeError: as in `in_order`; or `texts` contains something else than texts.
    """
    found = list(in_order(texts, function))
    for place, text in enumerate(found):
        if not isinstance(text, str):
            raise TypeError(f"{function} takes a list of texts, but item {place} is of type {type(text).__name__}")
    return found


def checked_pairs(pairs: Iterable[tuple[str, str]], function: str) -> list[tuple[str, str]]:
    """Return the pairs of source and target that a library function was given, as a list.

    Raises:
        TypeError: as in `in_order`; or `pairs` contains something that is not a pair of texts.
    """
    found = list(in_order(pairs, function, "pair"))
    for pair in found:
        is_pair = isinstance(pair, Sized) and not isinstance(pair, (str, bytes, *UNORDERED))
        if not is_pair or len(pair) != 2 or not all(isinstance(side, str) for side in pair):
            raise TypeError(f"{function} takes a list of pairs (source, target); put a single pair into a list")
    return found


def as_one_line(text: str) -> str:
    """Return `text` on one line: line feeds and carriage returns become spaces."""
    return text.replace("\r", " ").replace("\n", " ")


def shown_name(name: str) -> str:
    """Return a file name as text: invalid UTF-8, which Python keeps as lone surrogates, becomes U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", name)


def shown_json(value: object, **settings: Any) -> str:
    """Return a value as JSON that can be written in UTF-8, with file names as in `shown_name`.

    Args:
        value: plain values.
        settings: further arguments of `json.dumps`.
    """
    return shown_name(json.dumps(value, ensure_ascii=False, **settings))


def aligned(rows: Sequence[Sequence[str]], align: str = "<") -> list[str]:
    """Return the rows of a table as lines. The first column is aligned left, the others by `align`: `<` left, `>`
    right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    forms = ["<", *[align] * (len(widths) - 1)]
    return ["  ".join(map("{:{}{}}".format, row, forms, widths)).rstrip() for row in rows]


def check_counts(
    name: object, count: int, other_name: object, other_count: int, remedy: str = "s2s check shows where"
) -> None:
    """Raise an error if two files that should be parallel have different numbers of lines.

    Raises:
        DataError: the numbers differ.
    """
    if count != other_count:
        counts = f"{name} has {count:,} lines and {other_name} {other_count:,}"
        raise DataError(f"{counts}; they must be equal ({remedy})")


def first_of_each(texts: Sequence[str]) -> Iterator[int]:
    """Yield the index of the first of each group of equal texts; white space makes no difference."""
    seen = set()
    for index, text in enumerate(texts):
        if (words := tuple(text.split())) not in seen:
            seen.add(words)
            yield index
