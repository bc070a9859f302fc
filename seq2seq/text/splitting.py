"""Texts that are too long for a model are cut into parts, and paragraphs into sentences; joined again, nothing is
missing.

`Translator` cuts lines with `split_text`, after white space: it translates a part stripped, and restores the ends.
`s2s serve` cuts with `split_sentences` where a client asks for sentences.
"""

import re
from collections.abc import Callable

# Matches at the start of a run of marks alone, so that a long run without a space after it is read once.
SENTENCE_END = re.compile(r"""(?<![.!?…])[.!?…]++["'”’»)\]]*+\s+|[。！？｡]+[」』）”’]*\s*""")
SPACE = re.compile(r"\s+")
# A word before a full stop that does not end a sentence: an initial, an ordinal, Dr, Mrs, Nr or bzw, e.g or z.B; and
# before a number any short one, such as ca or No.
_BEGIN = r"(?:^|[\s(\[\"'“„‘«])"
ABBREVIATED = re.compile(_BEGIN + r"(?:[^\W\d_]|\d{1,2}|[b-df-hj-np-tv-xz]{2,4}|\w+(?:\.\w+)+|prof)$", re.IGNORECASE)
ABBREVIATED_BEFORE_NUMBER = re.compile(_BEGIN + r"[^\W\d_]{1,4}$")
LONGEST_ABBREVIATION = 20
# What a text for a model of several target languages begins with, such as >>deu<<, >>zho_Hans<< or >>pt_BR<<.
LANGUAGE_TAG = re.compile(r">>[a-z]{2,3}(?:[_-]\w+)*<<\s*")


def language_tag(text: str, fits: Callable[[str], bool]) -> tuple[str, str]:
    """The language tag that a text begins with, and the space after it; and the rest, whose parts all need the tag.

    A tag that does not fit is part of the rest.
    """
    found = LANGUAGE_TAG.match(text)
    end = found.end() if found and fits(found.group()) else 0
    return text[:end], text[end:]


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Parts that fit, whose concatenation is `text`.

    A part that does not fit is cut at the end of the sentence that ends nearest to its middle; where there is none, at
    the space nearest to it, or in the middle itself.
    """
    parts, waiting = [], [text]
    while waiting:
        part = waiting.pop()
        if len(part) < 2 or fits(part):
            parts.append(part)
        else:
            cut = _where_to_cut(part)
            waiting += [part[cut:], part[:cut]]
    return parts


def _where_to_cut(text: str) -> int:
    middle = len(text) // 2
    for pattern in (SENTENCE_END, SPACE):
        if ends := [match.end() for match in pattern.finditer(text) if match.end() < len(text)]:
            return min(ends, key=lambda end: abs(end - middle))
    return middle


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each with the white space behind it, whose concatenation is `text`.

    A sentence ends at its marks, unless what follows begins in lower case or a full stop may belong to an abbreviation
    of any language: two sentences that stay together do less harm than half a sentence alone.
    """
    ends = [match.end() for match in SENTENCE_END.finditer(text) if _is_end(text, match)]
    return [text[begin:end] for begin, end in zip([0, *ends], [*ends, len(text)], strict=True) if begin < end]


def _is_end(text: str, mark: re.Match[str]) -> bool:
    after = text[mark.end() : mark.end() + 1]
    if after.islower():
        return False
    before = text[max(0, mark.start() - LONGEST_ABBREVIATION) : mark.start()]
    is_short = ABBREVIATED.search(before) or (after.isdigit() and ABBREVIATED_BEFORE_NUMBER.search(before))
    return mark.group().strip() != "." or not is_short
