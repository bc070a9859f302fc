"""Words as spans of a text: what alignments, probabilities, markup and glossaries speak of.

A span is (begin, end) in code points. Punctuation marks are words of their own, because tags and terms end before them.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from seq2seq.text.scripts import ASCII_WORD, WORD, has_unspaced

Span = tuple[int, int]

_SPACED = re.compile(r"\S+")


def word_spans(text: str, pieces: Iterable[Span]) -> list[Span]:
    """The words of a text, in order, without overlaps.

    Where a script has no spaces, a word is what a tokenizer's piece holds of it; `pieces` are their spans.
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


def without_overlaps(spans: Iterable[Span]) -> list[Span]:
    """Spans in order; those that share characters become one, as where one sign is read as several marks."""
    found: list[Span] = []
    for begin, end in spans:
        if found and begin < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def spaced_words(text: str) -> list[Span]:
    """What stands between white space, as text is given that was split into words before."""
    return [found.span() for found in _SPACED.finditer(text)]


def owners(pieces: Sequence[Span], words: Sequence[Span]) -> list[int]:
    """The index of the word that holds most of each piece; -1 for a piece of white space alone.

    A piece of no width, such as a byte of a character that a later piece completes, belongs to the word around it.
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
