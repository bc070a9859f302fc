"""Translations in two passes, through a third language (the pivot), for directions that a model was not trained for.

`pipeline` loads both translators, which share the weights, and gives their translations the flag `pivot`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seq2seq.config.description import ModelDescription
from seq2seq.errors import UserError
from seq2seq.inference.degeneration import text_flags
from seq2seq.inference.overlap import Work
from seq2seq.inference.translation import PartSpans, Translation
from seq2seq.inference.translator import Translator
from seq2seq.languages import direction_name, is_same_language
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
    if options.pop("all_languages", False):
        raise UserError("all_languages: not with a pivot; name the source and the target language")
    source, target = options.pop("source_language", None), options.pop("target_language", None)
    for option, language in (("--from", source), ("--to", target)):
        if language is not None and is_same_language(language, pivot):
            raise UserError(f"--pivot {pivot}: the same language as {option}; leave out --pivot")
    whole = Translator.load(*paths, **options, all_languages=True)
    return two_passes(whole, Direction(source, target), pivot_of(whole, pivot))


def pivot_of(whole: Translator, pivot: str) -> str:
    """Return the name under which a model of many languages knows a pivot.

    Raises:
        UserError: the model has one direction, or does not translate from and into the pivot.
    """
    if "source" not in whole.choices:
        raise UserError(f"--pivot {pivot}: needs a model of many source and target languages; translate twice instead")
    for side in ("source", "target"):
        named = find_language(pivot, whole.choices[side], "--pivot")
    return named


def two_passes(whole: Translator, direction: Direction, pivot: str) -> tuple[Translator, Translator]:
    """Return the translators into the pivot and from it, which share the weights of a model of many languages."""
    return whole.directed(Direction(direction.source, pivot)), whole.directed(Direction(pivot, direction.target))


def is_direct(description: ModelDescription, direction: Direction, pivot: str) -> bool:
    """Whether a direction needs no pivot: it is one of the pivot, or the model was trained for it.

    Models of other toolkits do not record the directions of their training.
    """
    sides = direction.source or "", direction.target or ""
    return pivot in sides or direction_name(sides) in description.directions


def through_pivot(
    first: Translator,
    second: Translator,
    texts: Sequence[str],
    prefixes: Sequence[str] | None = None,
    first_line: int = 0,
) -> Work[list[Translation]]:
    """Translate each text with `first`, and the result with `second` (`overlap`).

    Scores, alternatives and prefixes are those of the second pass; flags are those of both, and `pivot`.
    """
    passed = yield from first.work(texts, first_line=first_line)
    answers = yield from second.work([one.text for one in passed], prefixes, first_line)
    begins = prefixes or [""] * len(texts)
    return [_merged(*each) for each in zip(texts, begins, passed, answers, strict=True)]


def _merged(text: str, prefix: str, before: Translation, after: Translation) -> Translation:
    if text.strip() and not before.text.strip():  # the second pass copies blank lines, without their prefixes
        after = replace(after, text=prefix.strip())
    flags = text_flags([before.flags, after.flags])
    is_translated = text.strip() and set(before.flags) != {VERBATIM}
    spans = (PartSpans((0, len(text)), (0, len(after.text)), not is_translated, flags),)
    return replace(after, source=text, flags=(*flags, *[PIVOT] * bool(is_translated)), parts=spans)
