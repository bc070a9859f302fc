"""Splitting of texts: texts that are too long for a model into parts, and paragraphs into sentences. The parts, joined,
are the text.

`Translator` splits lines with `split_text`, after white space; it translates the stripped parts and restores the white
space. `s2s serve` uses `split_sentences` if a client requests sentences.
"""

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence

import regex

from seq2seq.text.scripts import SENTENCE_END, is_small

SPACE = regex.compile(r"[\s\u200b]+")
CHARACTER = regex.compile(r"\X")
# A word before a full stop that does not end a sentence: an initial, an ordinal, Dr, Mrs, Nr or bzw, e.g or z.B; and
# before a number any short one, such as ca or No.
_BEGIN = r"(?:^|[\s(\[\"'“„‘«])"
_LETTER = r"\p{L}[\u0300-\u036f]*"
ABBREVIATED = regex.compile(
    rf"{_BEGIN}(?:{_LETTER}|\d{{1,2}}|[b-df-hj-np-tv-xz]{{2,4}}|\w+(?:\.\w+)+|prof|डॉ|डा|ડૉ|ডা|ডঃ)$",
    regex.IGNORECASE,
)
ABBREVIATED_BEFORE_NUMBER = regex.compile(rf"{_BEGIN}(?:{_LETTER}){{1,4}}$")
LONGEST_ABBREVIATION = 20
LONGEST_CHARACTER = 16
# Tag at the beginning of a text for a model of several target languages, such as >>deu<<, >>zho_Hans<< or >>pt_BR<<.
LANGUAGE_TAG = regex.compile(r">>[a-z]{2,3}(?:[_-]\w+)*<<\s*")


def language_tag(text: str) -> str:
    """Return the beginning of a text that has the form of a language tag, and the space after it."""
    found = LANGUAGE_TAG.match(text)
    return found.group() if found else ""


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Return parts for which `fits` is true, and whose concatenation is `text`.

    A part that does not fit is split at the sentence end nearest to its middle. If there is none, it is split after a
    mark that may end a sentence, else at a space, else between two characters. A part of one character is kept.
    """
    if fits(text):
        return [text]
    marks, spaces = ([match.end() for match in pattern.finditer(text)] for pattern in (SENTENCE_END, SPACE))
    levels = (list(sentence_ends(text)), marks, spaces)
    parts, waiting = [], [(0, len(text))]
    while waiting:
        begin, end = waiting.pop()
        part = text[begin:end]
        if len(part) < 2 or fits(part):
            parts.append(part)
        else:
            cut = _where_to_cut(text, begin, end, levels)
            waiting += [(cut, end), (begin, cut)]
    return parts


def _where_to_cut(text: str, begin: int, end: int, levels: Iterable[Sequence[int]]) -> int:
    middle = (begin + end) // 2
    for ends in levels:
        place = bisect.bisect_right(ends, middle)
        if inner := [cut for cut in ends[max(0, place - 1) : place + 1] if begin < cut < end]:
            return min(inner, key=lambda cut: abs(cut - middle))
    # Between characters: a letter keeps its marks.
    around = range(max(begin, middle - LONGEST_CHARACTER), min(end, middle + LONGEST_CHARACTER))
    inner = [match.end() for match in CHARACTER.finditer(text, around.start, around.stop) if match.end() < end]
    return min(inner, key=lambda cut: abs(cut - middle), default=middle)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, each with the white space after it; their concatenation is `text`.

    A sentence ends at its final marks, unless the next character is lower case, or a full stop may belong to an
    abbreviation of any language, because two joined sentences do less harm than half a sentence.
    """
    ends = list(sentence_ends(text))
    return [text[begin:end] for begin, end in zip([0, *ends], [*ends, len(text)], strict=True) if begin < end]


def sentence_ends(text: str) -> Iterator[int]:
    """Yield the places where sentences end in a text, after white space."""
    return (match.end() for match in SENTENCE_END.finditer(text) if _is_end(text, match))


def _is_end(text: str, mark: regex.Match[str]) -> bool:
    after = text[mark.end() : mark.end() + 1]
    if is_small(after):
        return False
    before = text[max(0, mark.start() - LONGEST_ABBREVIATION) : mark.start()]
    is_short = ABBREVIATED.search(before) or (after.isdigit() and ABBREVIATED_BEFORE_NUMBER.search(before))
    return mark.group().strip() != "." or not is_short
