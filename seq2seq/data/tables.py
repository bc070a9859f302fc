"""Tables in text files: how a line becomes fields, and whether the first line names the columns.

`sources` reads TSV and CSV by a `TableFormat`; `check` asks the same of the files that it is given.
"""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from seq2seq.lines import open_bytes, read_lines

# What a language is called: its codes, then its name in English and in itself, as heads of columns have them.
_LANGUAGES = [
    line.split()
    for line in """
    ar ara arabic العربية
    bg bul bulgarian български
    ca cat catalan català
    cs ces cze czech čeština česky
    da dan danish dansk
    de deu ger german deutsch allemand alemán
    el ell gre greek ελληνικά
    en eng english englisch anglais inglés engels
    es spa spanish español castellano spanisch espagnol
    et est estonian eesti
    fa fas per persian farsi فارسی
    fi fin finnish suomi
    fr fra fre french français französisch francés
    ga gle irish gaeilge
    he heb hebrew עברית
    hi hin hindi हिन्दी
    hr hrv croatian hrvatski
    hu hun hungarian magyar
    id ind indonesian indonesia
    is isl ice icelandic íslenska
    it ita italian italiano italienisch italien
    ja jpn japanese 日本語 japanisch japonais
    ko kor korean 한국어
    lt lit lithuanian lietuvių
    lv lav latvian latviešu
    nb nob no nor norwegian norsk bokmål
    nl nld dut dutch nederlands niederländisch
    pl pol polish polski polnisch
    pt por portuguese português portugiesisch
    ro ron rum romanian română
    ru rus russian русский russisch russe
    sk slk slo slovak slovenčina
    sl slv slovenian slovenščina
    sr srp serbian српски srpski
    sv swe swedish svenska
    th tha thai ไทย
    tr tur turkish türkçe
    uk ukr ukrainian українська
    vi vie vietnamese
    zh zho chi cmn chinese mandarin 中文 chinesisch chinois
    """.strip().splitlines()
]
LABEL_WORDS = {
    "label", "labels", "class", "category", "sentiment", "polarity", "rating", "stars", "score", "topic", "intent",
    "target", "gold", "emotion",
}  # fmt: skip
_TEXT_WORDS = {
    "source", "src", "target", "tgt", "trg", "input", "output", "text", "texts", "sentence", "sentences", "sentence1",
    "sentence2", "original", "translation", "source_text", "target_text", "source_language", "target_language",
    "review", "reviews", "comment", "document", "tweet", "utterance", "message", "reference", "hypothesis", "id", "idx",
    "index",
}  # fmt: skip
_IN_QUOTES = r'"(?:[^"]|"")*"'
_RECORD, _ALL_IN_QUOTES = (
    re.compile(rf"(?:{field})(?:\t(?:{field}))*") for field in (rf'{_IN_QUOTES}|[^"\t]*', rf"{_IN_QUOTES}|\d*")
)
_LINES_LOOKED_AT = 200
# A label that occurs in line 1 alone says little in a shorter file.
_FEWEST_LINES = 50
# Labels that a small corpus may have, however few examples there are of each.
_MOST_LABELS = 20


@dataclass(frozen=True)
class TableFormat:
    """How fields stand in a line."""

    delimiter: str = "\t"
    is_quoted: bool = False
    """Whether a field may stand in quotes, those inside doubled, as spreadsheets write them (RFC 4180)."""

    def fields(self, line: str) -> list[str]:
        """The fields of a line, which is one record: a field that goes on in the next line is a `csv.Error`."""
        if not self.is_quoted:
            return line.split(self.delimiter)
        return next(csv.reader([line.replace("\r", " ")], delimiter=self.delimiter, strict=True), [""])


def table_format(path: Path) -> TableFormat:
    """The format of a file: of a .csv by its first lines, else tabs, with quotes where a spreadsheet wrote them."""
    if path.name.lower().removesuffix(".gz").endswith(".csv"):
        return TableFormat(_delimiter(list(islice(read_lines(path), _LINES_LOOKED_AT))), is_quoted=True)
    return TableFormat(is_quoted=_has_spreadsheet_quotes(path))


def header(path: Path) -> list[str]:
    """The fields of the first line."""
    try:
        return table_format(path).fields(next(read_lines(path), ""))
    except csv.Error:
        return []  # reading it will say so


def is_called(head: str, name: str) -> bool:
    """Whether the head of a column says `name`, for a language in another of its names too."""
    head, name = head.strip().casefold(), name.casefold()
    codes = {_without_region(head), _without_region(name)}
    return bool(head) and (head == name or any(codes <= set(row) for row in _LANGUAGES))


def _without_region(language: str) -> str:
    return re.split("[-_]", language)[0]


def looks_like_header(fields: Sequence[str]) -> bool:
    """Whether these fields are heads of columns rather than text: two languages by name, or such words as `source`."""
    heads = [_head(field.strip().casefold()) for field in fields]
    return len(heads) > 1 and None not in heads and len(set(heads)) == len(heads)


def has_label_of_its_own(path: Path, form: TableFormat, text: str, label: str, place: int) -> bool:
    """Whether line 1, of a short `text` and a `label`, has a label that no other line has, where all others are shared.

    The label stands in column `place`. Read until the label comes again, which is soon where it is one.
    """
    if len(text.split()) > 3 or not label.strip() or re.fullmatch(r"[\d.,+-]+", label.strip()):
        return False
    counts: Counter[str] = Counter()
    for line in islice(read_lines(path), 1, None):
        try:
            other = form.fields(line)[place : place + 1]
        except csv.Error:
            return False  # reading it will say so
        if other == [label]:
            return False
        counts.update(other)
    return sum(counts.values()) >= _FEWEST_LINES and min(counts.values()) > 1


def label_problem(labels: int, examples: int) -> str | None:
    """The error message where there are too many labels to be classes: the columns are probably swapped."""
    if labels <= _MOST_LABELS or 2 * labels <= examples:
        return None
    return f"{labels:,} labels for {examples:,} examples; are the columns swapped? (keys text_column, label_column)"


def _head(word: str) -> str | None:
    """What the head of a column says, the same for all names of a language; a code of two letters is a word too."""
    language = next((row[0] for row in _LANGUAGES if word in row and len(word) > 3), None)
    return language or (word if word in LABEL_WORDS | _TEXT_WORDS else None)


def _delimiter(lines: Sequence[str]) -> str:
    """What cuts all lines into equally many fields, of those that are in use."""
    for delimiter in (",", ";", "\t"):
        form = TableFormat(delimiter, is_quoted=True)
        try:
            widths = {len(form.fields(line)) for line in lines if line}
        except csv.Error:
            continue
        if len(widths) == 1 and widths.pop() > 1:
            return delimiter
    return max(",;\t", key=lines[0].count) if lines else ","


def _has_spreadsheet_quotes(path: Path) -> bool:
    """Whether quotes stand nowhere but around fields, and all fields have them or some need them for what they hold.

    Other TSV has no quoting: there a quote is a character of the text.
    """
    if not _holds(path, b'"'):
        return False
    form, is_needed, is_everywhere = TableFormat(is_quoted=True), False, True
    for line in read_lines(path):
        if '"' in line and not _RECORD.fullmatch(line):
            return False
        is_needed = is_needed or any('"' in field or "\t" in field for field in form.fields(line))
        is_everywhere = is_everywhere and _ALL_IN_QUOTES.fullmatch(line) is not None
    return is_needed or is_everywhere


def _holds(path: Path, sought: bytes) -> bool:
    last = b""
    with open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            if sought in last + block:
                return True
            last = block[1 - len(sought) :]
    return False
