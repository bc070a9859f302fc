"""Forms of structured text, recognised by their first lines: subtitles, catalogues, tables, JSON, markup.

A line-by-line translation would damage such text, so `s2s translate` refuses it unless forced, and `data` and
`inspection` refuse corpora that do not have one sentence per line.
"""

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from seq2seq.lines import open_bytes
from seq2seq.text.scripts import UNSPACED

HEAD_BYTES, HEAD_LINES = 1 << 16, 200
# Minimum number of lines of a table.
FEWEST_ROWS = 3
# Lines that show the Moses tokenizer, which marks few of them.
FEWEST_MARKED, SHARE_MARKED = 2, 0.05
_COMMA_OF_TEXT = re.compile(rf"(?<=\d),(?=\d)|(?<=[{UNSPACED}]),(?=[{UNSPACED}])")


@dataclass(frozen=True)
class Form:
    """A form of text, and what to do with it."""

    name: str
    way: str
    """The way to translate its contents."""
    has_sentences: bool = True
    """Whether each line may still be a sentence, so that a corpus in this form is read."""

    def __str__(self) -> str:
        return f"{self.name}; {self.way}"


_CUES = "extract the text of the cues (Python packages srt, webvtt-py), translate it, and insert it again"
_COLUMN = "translate one column of it (cut -f 1 FILE)"
SRT = Form("subtitles (SRT)", _CUES, False)
VTT = Form("subtitles (WebVTT)", _CUES, False)
ASS = Form("subtitles (ASS)", _CUES, False)
PO = Form(
    "a catalogue of messages (PO)", "extract the texts of msgid with polib, translate them, and fill msgstr", False
)
STRINGS = Form(
    "a table of strings of an Apple program", "extract the values, translate them, and insert them again", False
)
JSON = Form("JSON", "extract the text (jq -r '.KEY' FILE), or train on its lines with the key jsonl", False)
JSON_ARRAY = Form("a JSON array", "write one object per line (jq -c '.[]' FILE > NEW.jsonl)", False)
TMX = Form("a translation memory (TMX)", "train on it with the key tmx (data.train: {tmx: FILE})", False)
XLIFF = Form("XLIFF", "translate its sources with a program for XLIFF, such as the Translate Toolkit (xliff2po)", False)
QT_TS = Form("a catalogue of messages (Qt TS)", "translate its sources with Qt Linguist", False)
HTML = Form("HTML", "give --input-format html")
XML = Form("XML", "give --input-format xml")
MOSES = Form("columns separated by |||", "translate one column of it (sed 's/ ||| .*//' FILE)")
TSV = Form("a table with tabs (TSV)", _COLUMN)
CSV = Form("a table (CSV)", "write the text of one column into a file of its own, one line each")
BPE = Form("text cut into pieces with @@", "join them first (sed -E 's/@@( |$)//g' FILE)")
PIECES = Form("text cut into pieces with \u2581", "join them first (sed 's/ //g; s/\u2581/ /g; s/^ //' FILE)")
JOINERS = Form("text cut into pieces with \uffed (OpenNMT)", "join them first (sed -E 's/ ?\uffed ?//g' FILE)")
WORD_PIECES = Form("text cut into pieces with ## (WordPiece)", "join them first (sed 's/ ##//g' FILE)")
ESCAPED = Form(
    "text of the Moses tokenizer (&apos; @-@)", "detokenise it first (sacremoses -l LANGUAGE detokenize < FILE > NEW)"
)
OLD_MAC = Form("text with the line ends of classic Mac OS (CR)", "convert them (tr '\\r' '\\n' < FILE > NEW)", False)

_TIMES = re.compile(r"\s*(?:\d{1,2}:)?\d{1,2}:\d\d[,.]\d{1,3}\s*-->\s*(?:\d{1,2}:)?\d{1,2}:\d\d[,.]\d{1,3}")
_BLOCK = "html|head|body|title|meta|script|style|div|p|h[1-6]|ul|ol|dl|table|section|article|main|header|footer|nav"
_HTML = re.compile(rf"<!doctype\s+html|<(?:{_BLOCK})(?:\s[^<>]*)?>", re.IGNORECASE)
_ROOT = re.compile(
    r"(?>(?:<\?xml[^>]*\?>|<!--(?:(?!-->).)*-->|<![A-Z][^>]*>|\s)*)<((?:[\w.-]+:)?[\w.-]+)(?=[\s/>])", re.DOTALL
)
_MEMBER = r'"(?:[^"\\\n]|\\.)*+"\s*+'
_OBJECT, _ARRAY = (
    re.compile(rf"\{{\s*+(?:{_MEMBER}:|\}}\s*\Z)"),
    re.compile(rf"\[\s*+(?:\{{\s*+{_MEMBER}:|{_MEMBER}[],])"),
)
_STRING = re.compile(rf"{_MEMBER}=\s*+{_MEMBER};\s*\Z")
MARKS_OF_PIECES = {
    BPE: re.compile(r"\w@@(?:\s|$)"),
    PIECES: re.compile("\u2581"),
    JOINERS: re.compile("\uffed"),
    WORD_PIECES: re.compile(r"\w ##\w"),
}
# Entities that are words of their own or ends of words, as no HTML has them, and hyphens between spaces.
MARK_OF_MOSES = re.compile(
    r"\w @[-/]@ \w|(?:^|\s)&(?:quot|apos|#9[13]|#124);(?=\s|$)|\w &apos;(?:s|t|d|m|ll|re|ve)\b|\w&apos; \w"
)


def form_of_file(path: Path) -> Form | None:
    """Return the form of a file, plain or gzip; None for ordinary text.

    Raises:
        DataError: the file cannot be read, or is not text.
    """
    with open_bytes(path) as stream:
        return form_of(stream.read(HEAD_BYTES).decode("utf-8", errors="replace"))


def form_of(head: str) -> Form | None:
    """Return the form of text that begins with `head`; None for ordinary text."""
    text = head.lstrip("\ufeff \t\r\n")
    lines = [line for line in islice((line.strip("\r") for line in text.split("\n")), HEAD_LINES) if line.strip()]
    if len(head) > HEAD_BYTES // 4 and len(lines) > 1:
        lines.pop()  # it may be cut
    if not lines:
        return None
    return _markup(text, lines) or _cues_or_catalogue(text, lines) or _json(text) or _columns(lines)


def _markup(text: str, lines: Sequence[str]) -> Form | None:
    if text.startswith("<?xml") and len(lines) == 1 and lines[0].rstrip().endswith("?>"):
        return XML  # the root is in a later line
    if text.startswith("<"):
        if _HTML.match(text):
            return HTML
        if (root := _ROOT.match(text)) and (lines[0].startswith("<?xml") or f"</{root[1]}>" in lines[-1]):
            return {"tmx": TMX, "xliff": XLIFF, "html": HTML}.get(root[1].rpartition(":")[2].lower(), XML)
        if root and root[1].rpartition(":")[2].lower() in ("tmx", "xliff"):
            return TMX if root[1].lower().endswith("tmx") else XLIFF
    return None


def _cues_or_catalogue(text: str, lines: Sequence[str]) -> Form | None:
    if lines[0].startswith("WEBVTT"):
        return VTT
    if lines[0].strip() == "[Script Info]":
        return ASS
    if any(map(_TIMES.match, lines)):
        return SRT
    if any(line.startswith('msgid "') for line in lines) and any(line.startswith("msgstr") for line in lines):
        return PO
    if sum(bool(_STRING.match(line)) for line in lines) * 2 > len(lines):
        return STRINGS
    if "\n" not in text and sum(map(bool, map(str.strip, text.split("\r")))) > 2:
        return OLD_MAC
    return None


def _json(text: str) -> Form | None:
    if _ARRAY.match(text):
        return JSON_ARRAY
    return JSON if _OBJECT.match(text) else None


def _columns(lines: Sequence[str]) -> Form | None:
    """Return the form of a table, whose lines have equally many fields, or of lines split into pieces; None for
    others."""
    for form, mark in MARKS_OF_PIECES.items():
        if 2 * sum(bool(mark.search(line)) for line in lines) > len(lines):
            return form
    if sum(bool(MARK_OF_MOSES.search(line)) for line in lines) >= max(FEWEST_MARKED, SHARE_MARKED * len(lines)):
        return ESCAPED
    if len(lines) < FEWEST_ROWS or not any(map(str.isalpha, "".join(lines))):
        return None
    for form, delimiter in ((MOSES, " ||| "), (TSV, "\t")):
        if _are_even(lines, lambda line, delimiter=delimiter: line.count(delimiter)):
            return form
    return CSV if any(_is_csv(lines, delimiter) for delimiter in ",;") else None


def _is_csv(lines: Sequence[str], delimiter: str) -> bool:
    """Whether all lines have equally many fields, no delimiter precedes a space, and not all lines end with one.

    A comma between digits, or between signs of a script without spaces, is one of text.
    """
    if all(line.endswith(delimiter) for line in lines):
        return False
    if not all(delimiter in _COMMA_OF_TEXT.sub("", line) for line in lines):
        return False
    if any(re.search(rf"{delimiter}\s", re.sub(r'"(?:[^"]|"")*+"', '""', line)) for line in lines):
        return False

    def count(line: str) -> int:
        try:
            return len(next(csv.reader([line], delimiter=delimiter, strict=True), [""])) - 1
        except csv.Error:
            return 0

    return _are_even(lines, count)


def _are_even(lines: Sequence[str], count: Callable[[str], int]) -> bool:
    counts = set(map(count, lines))
    return len(counts) == 1 and counts.pop() > 0
