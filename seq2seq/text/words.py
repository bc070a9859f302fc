"""Words as spans of a text, the units of alignments, probabilities, markup and glossaries.

A span is (begin, end) in code points. Punctuation marks are separate words, because tags and terms end before them.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from seq2seq.text.scripts import ASCII_WORD, WORD, has_unspaced

Span = tuple[int, int]

_SPACED = re.compile(r"\S+")
# A space separates only groups of three digits, so that "2019 300" is two numbers. A number ends at any dash:
# "1990-1995" and "1990–1995" are two each.
_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?:[ \u00a0\u202f]\d{3}(?!\d))+(?:[.,:/'’]\d+)*|\d+(?:[.,:/'’]\d+)*")


def word_spans(text: str, pieces: Iterable[Span]) -> list[Span]:
    """Return the words of a text, in order, without overlaps.

    In scripts without spaces, text is split where the pieces of a tokenizer begin; `pieces` are their spans.
    """
    starts = sorted({begin for begin, _ in pieces})
    words: list[Span] = []
    for found in (ASCII_WORD if text.isascii() else WORD).finditer(text):
        begin, end = found.span()
        if has_unspaced(found.group()[0]):
            cuts = [begin, *starts[bisect_right(starts, begin) : bisect_left(starts, end)], end]
            words += pairwise(cuts)
        else:
            words.append((begin, end))
    return words


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order; a run of a script without spaces is one word."""
    return (ASCII_WORD if text.isascii() else WORD).findall(text)


def character_spans(text: str) -> list[Span]:
    """Return a span for each character: pieces with which `word_spans` takes each character of scripts without spaces
    as a word. Text in ASCII needs none."""
    return [] if text.isascii() else [(place, place + 1) for place in range(len(text))]


def without_overlaps(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order; spans that share characters are merged, for example one sign read as several marks."""
    found: list[Span] = []
    for begin, end in spans:
        if found and begin < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def overlap(one: Span, other: Span) -> bool:
    """Whether two spans share a character."""
    return one[0] < other[1] and other[0] < one[1]


def spaced_words(text: str) -> list[Span]:
    """Return the stretches between white space, for text that was split into words before."""
    return [found.span() for found in _SPACED.finditer(text)]


def owners(pieces: Sequence[Span], words: Sequence[Span]) -> list[int]:
    """Return the index of the word that contains most of each piece; -1 for a piece that is white space alone.

    A piece of width 0, such as a byte of a character that a later piece completes, belongs to the word around it.
    """
    found, first = [], 0
    for begin, end in pieces:
        while first < len(words) and words[first][1] <= begin:
            first += 1
        best, most = -1, 0
        for index in range(first, len(words)):
            left, right = words[index]
            if left >= max(end, begin + 1):
                break
            if (shared := min(max(end, begin + 1), right) - max(begin, left)) > most:
                best, most = index, shared
        found.append(best)
    return found


def numbers_of(text: str) -> Counter[str]:
    """Return the numbers in a text as ASCII digits alone, because languages separate and write them differently."""
    return Counter(digits_of(found.group()) for found in _NUMBER.finditer(text))


def digits_of(text: str) -> str:
    """Return the digits in a text, in ASCII."""
    return "".join(str(unicodedata.decimal(character)) for character in text if character.isdecimal())
