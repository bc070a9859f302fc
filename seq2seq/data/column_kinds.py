"""Kinds of the columns of a table without header: text, addresses, numbers, identifiers, or a constant value.

`tables` calls `misplaced` before it takes the first two columns, because many published corpora have others first.
"""

import re
from collections.abc import Sequence

from seq2seq.languages import known_language

FEWEST_LINES = 8
# Minimum share of the fields of a column that determines its kind.
MOST = 0.9
_ADDRESS = re.compile(
    r"(?:[a-z][a-z\d+.-]*://|www\.|mailto:)\S+|[\w.+-]+@[\w-]+\.\S+|/?(?:[\w.-]+/)+[\w.-]*", re.IGNORECASE
)
_NUMBER = re.compile(r"(?=[.,:/%\s+-]*\d)[-+]?[\d.,:/%\s-]++(?:[eE][-+]?\d+)?|nan|[-+]?inf", re.IGNORECASE)
_IDENTIFIER = re.compile(r"(?=\S*\d)(?=\S*[\w])[\w.:#/-]+")


def kind_of_column(fields: Sequence[str]) -> str | None:
    """Return the kind of a column, in words; None for text."""
    filled = [field.strip() for field in fields if field.strip()]
    if not filled:
        return "nothing"
    for kind, pattern in (("numbers", _NUMBER), ("addresses", _ADDRESS), ("identifiers", _IDENTIFIER)):
        if sum(pattern.fullmatch(field) is not None for field in filled) >= MOST * len(filled):
            return kind
    if len(set(filled)) == 1:
        return f"'{filled[0][:20]}' in each line"
    return "languages" if sum(map(is_language, filled)) >= MOST * len(filled) else None


def is_language(field: str) -> bool:
    """Whether a field is a code of a language, such as `en`, `pt-BR` or `zho_Hans`, or its name."""
    return " " not in field and known_language(field) is not None


def have_languages(rows: Sequence[Sequence[str]]) -> bool:
    """Whether all rows have a language wherever the first one has, so that the first is not a header."""
    places = [index for index, field in enumerate(rows[0]) if is_language(field)] if len(rows) > 1 else []
    return bool(places) and all(index < len(row) and is_language(row[index]) for row in rows[1:] for index in places)


def misplaced(rows: Sequence[Sequence[str]], taken: Sequence[int], fewest: int = FEWEST_LINES) -> str | None:
    """Return why the columns `taken` do not hold the text, for a message; None if they may, or rows are too few."""
    width = min(map(len, rows), default=0)
    if len(rows) < fewest or width <= max(taken):
        return None
    kinds = [kind_of_column([row[index] for row in rows]) for index in range(width)]
    texts = [index for index, kind in enumerate(kinds) if kind is None]
    if len(texts) < len(taken) or all(kinds[index] is None for index in taken):
        return None
    others = ", ".join(f"column {index} has {kinds[index]}" for index in taken if kinds[index])
    return f"{others}; text is in {' and '.join(map(str, texts))} (counted from 0)"
