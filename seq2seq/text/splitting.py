"""Texts that are too long for a model are cut into parts; joined again, nothing is missing.

`Translator` cuts lines with `split_text`, after white space: it translates a part stripped, and restores the ends.
"""

import re
from collections.abc import Callable

# Matches at the start of a run of marks alone, so that a long run without a space after it is read once.
SENTENCE_END = re.compile(r"""(?<![.!?…])[.!?…]++["'”’»)\]]*+\s+|[。！？｡]+[」』）”’]*\s*""")
SPACE = re.compile(r"\s+")
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
