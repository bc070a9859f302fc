"""Attributes `lang` of a translated document, which get the tag of the target language; `translation` calls it."""

import re
from collections.abc import Sequence
from functools import partial

from seq2seq.languages import own_code
from seq2seq.markup.tags import ATTRIBUTE, Elements, Lexeme, copied, root_of
from seq2seq.text.writing import bcp47_tag


def relabelled(lexemes: Sequence[Lexeme], is_html: bool, source: str, target: str | None) -> str:
    """Return the text of lexemes with the language attributes of translated elements changed from the source to the
    target language; they are empty if that is not known."""
    elements, index = Elements(lexemes, is_html), 0
    parts: list[str] = []
    root = root_of(lexemes)
    change = partial(_relabelled, own_code(source), bcp47_tag(target))
    while index < len(lexemes):
        lexeme = lexemes[index]
        is_copied = bool(copied(lexeme, is_html, source if is_html or index != root else ""))
        after = elements.after(index) if is_copied else index + 1
        parts += [part.raw for part in lexemes[index:after]]
        if not is_copied and lexeme.kind in ("open", "empty") and "lang" in lexeme.raw.lower():
            parts[-1] = ATTRIBUTE.sub(change, lexeme.raw)
        index = after
    return "".join(parts)


def _relabelled(source: str, target: str, match: re.Match[str]) -> str:
    """Return an attribute, with the tag of the target language if it is `lang` of the source language."""
    value = next((value for value in match.groups()[1:] if value is not None), "")
    if match[1].lower() not in ("lang", "xml:lang") or not value or own_code(value) != source:
        return match.group()
    if not target:
        return f'{match[1]}=""'
    begin = match.end(1) - match.start()
    return match.group()[:begin] + match.group()[begin:].replace(value, target)
