"""Words as spans of a text: what alignments, probabilities, markup and glossaries speak of.

A span is (begin, end) in code points. Punctuation marks are words of their own, because tags and terms end before them.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

Span = tuple[int, int]

# Letters of scripts that are written without spaces: Thai, Lao, Burmese, Khmer, kana, Han with its extensions.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
UNSPACED += "\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{UNSPACED}]+|(?:(?![{UNSPACED}])\w)+(?:['’-](?:(?![{UNSPACED}])\w)+)*|[^\w\s]")
_SPACED = re.compile(r"\S+")
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")


def word_spans(text: str, pieces: Iterable[Span]) -> list[Span]:
    """The words of a text, in order, without overlaps.

    Where a script has no spaces, a word is what a tokenizer's piece holds of it; `pieces` are their spans.
    """
    starts = sorted({begin for begin, _ in pieces})
    words: list[Span] = []
    for found in _WORD.finditer(text):
        begin, end = found.span()
        if _IS_UNSPACED.match(found.group()):
            cuts = [begin, *(start for start in starts if begin < start < end), end]
            words += pairwise(cuts)
        else:
            words.append((begin, end))
    return words


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
