"""Translations in two passes, through a third language (the pivot), for directions that a model was not trained for.

`pipeline` loads both translators, which share the weights, and gives their translations the flag `pivot`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError
from seq2seq.inference.degeneration import text_flags
from seq2seq.inference.translation import PartSpans, Translation
from seq2seq.inference.translator import Translator
from seq2seq.languages import language_code
from seq2seq.text.direction import Direction, find_language
from seq2seq.text.untranslatable import VERBATIM

PIVOT = "pivot"  # the flag of a translation in two passes


def load_pivot(pivot: str, *paths: str | Path, **options: Any) -> tuple[Translator, Translator]:
    """Return the translators into the pivot and from it, over one model of many languages.

    Args:
        pivot: name of the language.
        paths: as in `Translator.load`.
        options: those of `Translator.load`, with the languages of the whole translation.

    Raises:
        UserError: as in `Translator.load`; or the model has one direction, or the pivot is one of the two languages.
    """
    source, target = options.pop("source_language", None), options.pop("target_language", None)
    for option, language in (("--from", source), ("--to", target)):
        if language is not None and language_code(language) == language_code(pivot):
            raise UserError(f"--pivot {pivot}: the same language as {option}; leave out --pivot")
    whole = Translator.load(*paths, **options, all_languages=True)
    if "source" not in whole.choices:
        raise UserError(f"--pivot {pivot}: needs a model of many source and target languages; translate twice instead")
    named = find_language(pivot, whole.choices["target"], "--pivot")
    return whole.directed(Direction(source, named)), whole.directed(Direction(named, target))


def through_pivot(
    first: Translator,
    second: Translator,
    texts: Sequence[str],
    prefixes: Sequence[str] | None = None,
    first_line: int = 0,
) -> list[Translation]:
    """Translate each text with `first`, and the result with `second`.

    Scores, alternatives and prefixes are those of the second pass; flags are those of both, and `pivot`.
    """
    passed = first.translate(texts, first_line=first_line)
    answers = second.translate([one.text for one in passed], prefixes, first_line)
    return [_merged(*each) for each in zip(texts, passed, answers, strict=True)]


def _merged(text: str, before: Translation, after: Translation) -> Translation:
    flags = text_flags([before.flags, after.flags])
    is_translated = text.strip() and set(before.flags) != {VERBATIM}
    spans = (PartSpans((0, len(text)), (0, len(after.text)), not is_translated, flags),)
    return replace(after, source=text, flags=(*flags, *[PIVOT] * bool(is_translated)), parts=spans)
