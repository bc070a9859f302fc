"""The oddities that `s2s check` looks for: one row each, in the order of the report.

The examiner calls `oddities_of` for each line; the other kinds it finds itself, and `advice` judges how many there are.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Oddity:
    """A kind of oddity."""

    name: str
    meaning: str
    find: Callable[[str], object] | None = None
    """Whether a line has it; None where it does not depend on one line alone."""
    advice: str = ""
    """What is said of the lines (or pairs) if there are many: "5 of 100 lines are <advice>"."""
    warn: float = 1.0
    """The share of lines above which there is a warning."""
    fail: float = 1.0
    """The share above which there is an error."""


class _ScriptCodes(dict):
    """For `str.translate`: a character for the script of each letter, space for all else; filled as letters occur."""

    def __missing__(self, code: int) -> str:
        is_letter = unicodedata.category(chr(code))[0] == "L"
        script = next((script for first, last, script in _RANGES if first <= code <= last), " ")
        self[code] = script if is_letter else " "
        return self[code]


SCRIPTS = {
    "L": "Latin", "G": "Greek", "C": "Cyrillic", "A": "Armenian", "H": "Hebrew", "R": "Arabic", "I": "Indic",
    "T": "Thai", "E": "Georgian", "O": "Ethiopic", "K": "Hangul", "J": "Han or kana",
}  # fmt: skip
_RANGES = (
    (0x41, 0x24F, "L"), (0x1E00, 0x1EFF, "L"), (0x2C60, 0x2C7F, "L"), (0xA720, 0xA7FF, "L"), (0xFF21, 0xFF5A, "L"),
    (0x370, 0x3FF, "G"), (0x1F00, 0x1FFF, "G"), (0x400, 0x52F, "C"), (0x1C80, 0x1C8F, "C"), (0x531, 0x58F, "A"),
    (0x590, 0x5FF, "H"), (0xFB1D, 0xFB4F, "H"), (0x600, 0x6FF, "R"), (0x750, 0x77F, "R"), (0xFB50, 0xFDFF, "R"),
    (0xFE70, 0xFEFC, "R"), (0x900, 0xDFF, "I"), (0xE00, 0xEFF, "T"), (0x10A0, 0x10FF, "E"), (0x1200, 0x139F, "O"),
    (0x1100, 0x11FF, "K"), (0x3130, 0x318F, "K"), (0xAC00, 0xD7AF, "K"), (0x2E80, 0x2FDF, "J"), (0x3005, 0x3007, "J"),
    (0x3040, 0x30FF, "J"), (0x3400, 0x4DBF, "J"), (0x4E00, 0x9FFF, "J"), (0xF900, 0xFAFF, "J"), (0xFF66, 0xFF9F, "J"),
    (0x20000, 0x3FFFF, "J"),
)  # fmt: skip
_CODES = _ScriptCodes()
_MIXED_WORD = re.compile("LG|GL|LC|CL|GC|CG")

# Line separators, marks of byte order and direction, and what takes no room; joiners are needed by some scripts.
_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u2028\u2029\u202a-\u202e\u2060\u2066-\u2069\ufeff"
# The wide space of Chinese and Japanese is not odd there.
_SPACES = r"\xa0\u1680\u2000-\u200a\u202f\u205f"
# What the bytes 0x80 to 0xBF become where they are read as Latin-1 or Windows-1252.
_TAILS = "".join(map(chr, range(0x80, 0xC0))) + bytes(
    byte for byte in range(0x80, 0xA0) if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
).decode("cp1252")
_MOJIBAKE = f"[ÂÃ][{_TAILS}]|â[€\x80][{_TAILS}]|ï[»¼][{_TAILS}]|(?:[Ä-ÅÎÏÐÑ][{_TAILS}]){{2,}}"
_WORD = re.compile(r"[^\W_]")
# Lines without any of these characters can only be empty, without words, or have spaces too many.
_SUSPICIOUS = re.compile(rf"[{_CONTROL}{_SPACES}\ufffd&\tÂÃâïÄÅÎÏÐÑ\u0370-\u052f\u1c80-\u1c8f\u1f00-\u1fff]")


def oddities_of(line: str) -> list[str]:
    """The names of the oddities of one line."""
    if _WORD.search(line) and line == line.strip() and "  " not in line and not _SUSPICIOUS.search(line):
        return []
    return [oddity.name for oddity in ODDITIES.values() if oddity.find is not None and oddity.find(line)]


def script_of(line: str) -> str | None:
    """The script of most letters; None without letters."""
    if line.isascii():
        return "Latin" if any(map(str.isalpha, line)) else None
    codes = line.translate(_CODES).replace(" ", "")
    return SCRIPTS[max(sorted(set(codes)), key=codes.count)] if codes else None


def _matches(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


ODDITIES = {
    oddity.name: oddity
    for oddity in (
        Oddity("invalid_utf8", "not UTF-8; what could not be read became U+FFFD", None,
               "not UTF-8; convert the file (iconv -f latin1 -t utf-8)", 0.0, 0.0),
        Oddity("empty", "nothing but space", lambda line: not line.strip(), "empty", 0.0, 0.1),
        Oddity("copy", "the target is the source", None, "copied: the target is the source", 0.05, 0.5),
        Oddity("over_long", "longer than data.filters.max_length pieces"),
        Oddity("ratio", "one side longer than data.filters.max_ratio times the other"),
        Oddity("duplicate", "a pair that was there before", None, "repeated", 0.1),
        Oddity("header", "the names of columns or languages instead of text"),
        Oddity("repeated", "a line that was there before"),
        Oddity("no_words", "neither letter nor digit", lambda line: line.strip() and not _WORD.search(line)),
        Oddity("control", "control or invisible characters, line separators", _matches(f"[{_CONTROL}]"),
               "spoilt by control or invisible characters", 0.001),
        Oddity("replacement", "U+FFFD, the mark of text lost in an earlier conversion", _matches("\ufffd"),
               "damaged: U+FFFD shows where an earlier conversion lost text", 0.0, 0.01),
        Oddity("mojibake", "UTF-8 that was read as another encoding", _matches(_MOJIBAKE),
               "UTF-8 read as another encoding; convert back", 0.0, 0.01),
        Oddity("mixed_script", "letters of two scripts in one word",
               lambda line: not line.isascii() and _MIXED_WORD.search(line.translate(_CODES)),
               "written in two scripts within one word", 0.001),
        Oddity("foreign_script", "mostly in another script than the rest of this side", None,
               "in another script than the rest", 0.02, 0.3),
        Oddity("entity", "HTML entities such as &amp;",
               _matches(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,6}|#x[0-9a-fA-F]{2,5});")),
        Oddity("tab", "a tab, which breaks tab-separated files", lambda line: "\t" in line),
        Oddity("odd_space", "no-break or other unusual spaces", _matches(f"[{_SPACES}]")),
        Oddity("leading_space", "space at the beginning", lambda line: line[:1].isspace()),
        Oddity("trailing_space", "space at the end", lambda line: line[-1:].isspace()),
        Oddity("double_space", "two spaces side by side", lambda line: "  " in line),
    )
}  # fmt: skip
