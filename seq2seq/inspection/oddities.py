"""The oddities that `s2s check` looks for, one row each, in the order of the report.

The examiner calls `oddities_of` for each line and finds the other kinds itself; `advice` judges their numbers.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

from seq2seq.text.forms import ESCAPED, MARK_OF_MOSES, MARKS_OF_PIECES
from seq2seq.text.writing import SCRIPT_CHARACTERS, script_characters


@dataclass(frozen=True)
class Oddity:
    """A kind of oddity."""

    name: str
    meaning: str
    find: Callable[[str], object] | None = None
    """Whether a line has the oddity; None if it does not depend on one line alone."""
    advice: str = ""
    """The end of the message if there are many: "5 of 100 lines are <advice>"."""
    warn: float = 1.0
    """The share of lines above which there is a warning."""
    fail: float = 1.0
    """The share of lines above which there is an error."""


_MIXED_WORD = re.compile(
    "|".join(map("".join, permutations([SCRIPT_CHARACTERS[name] for name in ("Latin", "Greek", "Cyrillic")], 2)))
)


# Line separators, marks of byte order and direction, and zero-width characters except joiners, which some scripts need.
_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u2028\u2029\u202a-\u202e\u2060\u2066-\u2069\ufeff"
# Unusual spaces, without the wide space of Chinese and Japanese.
_SPACES = r"\xa0\u1680\u2000-\u200a\u202f\u205f"
# The characters that the bytes 0x80 to 0xBF become if they are read as Latin-1 or Windows-1252.
_TAILS = "".join(map(chr, range(0x80, 0xC0))) + bytes(
    byte for byte in range(0x80, 0xA0) if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
).decode("cp1252")
_MOJIBAKE = f"[ÂÃ][{_TAILS}]|â[€\x80][{_TAILS}]|ï[»¼][{_TAILS}]|(?:[Ä-ÅÎÏÐÑ][{_TAILS}]){{2,}}"
_WORD = re.compile(r"[^\W_]")
# Lines without a match can only be empty, be without words, or have superfluous spaces.
_SUSPICIOUS = re.compile(
    rf"[{_CONTROL}{_SPACES}\ufffd&\t<@\u2581\uffed"
    r"ÂÃâïÄÅÎÏÐÑ\u0370-\u052f\u1c80-\u1c8f\u1f00-\u1fff]| [.,'](?=\s|$|s\b)| n't| ##"
)


def oddities_of(line: str) -> list[str]:
    """Return the names of the oddities of one line."""
    is_plain = _WORD.search(line) and line == line.strip() and "  " not in line
    if is_plain and not _SUSPICIOUS.search(line) and not _is_decomposed(line):
        return []
    return [oddity.name for oddity in ODDITIES.values() if oddity.find is not None and oddity.find(line)]


def _is_decomposed(line: str) -> bool:
    return not line.isascii() and not unicodedata.is_normalized("NFC", line)


def _matches(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


ODDITIES = {
    oddity.name: oddity
    for oddity in (
        Oddity("invalid_utf8", "not UTF-8; bytes that could not be decoded became U+FFFD", None,
               "not UTF-8; convert the file (iconv -f latin1 -t utf-8)", 0.0, 0.0),
        Oddity("empty", "nothing but space", lambda line: not line.strip(), "empty", 0.0, 0.1),
        Oddity("copy", "the target is the source", None, "copied: the target is the source", 0.05, 0.5),
        Oddity("case_copy", "the target is the source in another letter case", None,
               "copied in another letter case", 0.05, 0.5),
        Oddity("swapped", "the source is in the language of the target, and the other way round", None,
               "swapped: each side is in the language of the other", 0.002, 0.1),
        Oddity("other_language", "a side in another language than the rest", None,
               "in another language than the rest", 0.01, 0.3),
        Oddity("over_long", "longer than data.filters.max_length pieces"),
        Oddity("ratio", "one side longer than data.filters.max_ratio times the other"),
        Oddity("duplicate", "an earlier pair again", None, "repeated", 0.1),
        Oddity("header", "the names of columns or languages instead of text"),
        Oddity("repeated", "an earlier line again"),
        Oddity("no_words", "neither letter nor digit", lambda line: line.strip() and not _WORD.search(line)),
        Oddity("control", "control or invisible characters, line separators", _matches(f"[{_CONTROL}]"),
               "spoilt by control or invisible characters", 0.001),
        Oddity("replacement", "U+FFFD, the mark of text lost in an earlier conversion", _matches("\ufffd"),
               "damaged: U+FFFD shows where an earlier conversion lost text", 0.0, 0.01),
        Oddity("mojibake", "UTF-8 that was read as another encoding", _matches(_MOJIBAKE),
               "UTF-8 read as another encoding; convert back", 0.0, 0.01),
        Oddity("mixed_script", "letters of two scripts in one word",
               lambda line: not line.isascii() and _MIXED_WORD.search(script_characters(line)),
               "written in two scripts within one word", 0.001),
        Oddity("foreign_script", "mostly in another script than the rest of this side", None,
               "in another script than the rest", 0.02, 0.3),
        Oddity("entity", "HTML entities such as &amp;",
               _matches(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,6}|#x[0-9a-fA-F]{2,5});")),
        Oddity("html_tag", "HTML tags such as <b>", _matches(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>]{0,200})?/?>"),
               "with HTML tags; remove them", 0.001),
        Oddity("segmented", "marks of subwords (@@, \u2581, \uffed or ##): the text was segmented before",
               _matches("|".join(mark.pattern for mark in MARKS_OF_PIECES.values())),
               "segmented into subwords; join them (@@: sed 's/@@ //g'; \u2581: sed 's/ //g; s/\u2581/ /g'; "
               "\uffed: sed -E 's/ ?\uffed ?//g'; ##: sed 's/ ##//g')", 0.001),
        Oddity("escaped", "marks of the Moses tokenizer (&apos; &quot; &#91; @-@)", MARK_OF_MOSES.search,
               f"tokenised and escaped by Moses; {ESCAPED.way}", 0.001),
        Oddity("tokenised", "spaces before punctuation: the text was tokenised before",
               _matches(r"\w [.,](?:\s|$)|\w (?:n't|'s)\b")),
        Oddity("tab", "a tab, which breaks tab-separated files", lambda line: "\t" in line),
        Oddity("decomposed", "letters and accents as separate characters (not NFC)", _is_decomposed,
               "not in NFC, so BLEU counts words as different that look the same (uconv -x nfc)", 0.001),
        Oddity("odd_space", "no-break or other unusual spaces", _matches(f"[{_SPACES}]")),
        Oddity("leading_space", "space at the beginning", lambda line: line[:1].isspace()),
        Oddity("trailing_space", "space at the end", lambda line: line[-1:].isspace()),
        Oddity("double_space", "two spaces side by side", lambda line: "  " in line),
    )
}  # fmt: skip
