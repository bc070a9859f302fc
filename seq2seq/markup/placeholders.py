"""Placeholder words for protected pieces during translation, and tests of which of them a model preserves.

Models copy only words of kinds that they learned to copy, and no kind works with every model. Calibration therefore
tests classes of placeholders on the model (`ranked`), and `translation` tries the next class if a placeholder is lost.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seq2seq.text.words import Span, word_spans

# Maximum number per sentence; models confuse more of them with each other.
MOST = 8


@dataclass(frozen=True)
class PlaceholderClass:
    """A class of placeholders. It has a few more than MOST, because a text may contain some of them already."""

    name: str
    words: tuple[str, ...]
    answers: tuple[str, ...] = ()
    """Translation of each placeholder; empty if each is copied."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Placeholders with their translations."""
        return list(zip(self.words, self.answers or self.words, strict=True))

    def turned(self) -> "PlaceholderClass":
        """Return the class with its words rotated by half."""
        middle = len(self.words) // 2
        words, answers = zip(*(self.pairs[middle:] + self.pairs[:middle]), strict=True)
        return PlaceholderClass(self.name, words, answers)


@dataclass(frozen=True)
class Survival:
    """How many placeholders of a class a model preserved: exactly once each, whole."""

    placeholders: PlaceholderClass
    kept: int
    asked: int

    @property
    def share(self) -> float:
        """Share of the placeholders that survived."""
        return self.kept / max(self.asked, 1)


def _numbered(name: str, form: str, first: int = 1, step: int = 1) -> PlaceholderClass:
    return PlaceholderClass(name, tuple(form.format(first + step * number) for number in range(MOST + 4)))


# In the order of trials with a model that was not calibrated.
CLASSES = (
    PlaceholderClass(
        "names",
        (
            "Kanto",
            "Velor",
            "Marden",
            "Tolin",
            "Sarvo",
            "Benik",
            "Dorani",
            "Pelmar",
            "Rostok",
            "Gavin",
            "Lumen",
            "Zamora",
        ),
    ),
    PlaceholderClass("letters", tuple(f"{letter}{number}" for number in (1, 2) for letter in "XYZQWK")),
    _numbered("codes", "X{}"),
    _numbered("numbers", "{}", 70401, 1012),
    _numbered("small numbers", "{}", 41, 7),
    _numbered("brackets", "[{}]"),
    _numbered("braces", "{{{}}}"),
    _numbered("double brackets", "⟦{}⟧"),
    _numbered("underscores", "__{}__"),
    _numbered("hashes", "#{}"),
    _numbered("parentheses", "({})"),
)

# Test sentences for any language: only placeholders and marks.
BARE_CARRIERS = ("{}", "{}, {}.", "1. {}!")
# Maximum number of test sentences, and of placeholders in one of them.
MOST_CARRIERS, MOST_PROBED = 12, 2
# Candidates among consistently translated words, test sentences for each, and the minimum share in which one survives.
MOST_PARTNERS, CARRIERS_OF_PARTNER, LEAST_KEPT = 40, 8, 0.5

Plain = Callable[[Sequence[str]], Sequence[str]]


def find(placeholder: str, text: str, glued: tuple[bool, bool] = (False, False)) -> list[Span]:
    """Return the spans of a placeholder in a text, as a whole word; `glued` allows letters or digits before and after
    it."""
    before, after = ("" if free else rf"(?{sign}[^\W_])" for free, sign in zip(glued, ("<!", "!"), strict=True))
    # letters may be next to a mark that a placeholder begins or ends with
    before = before if placeholder[0].isalnum() else ""
    after = after if placeholder[-1].isalnum() else ""
    return [match.span() for match in re.finditer(before + re.escape(placeholder) + after, text)]


def choose(placeholders: PlaceholderClass, count: int, text: str) -> list[tuple[str, str]] | None:
    """Return `count` pairs of a class whose words the text does not contain; None if there are too few."""
    folded = text.casefold()
    free = [pair for pair in placeholders.pairs if pair[0].casefold() not in folded]
    return free[:count] if len(free) >= count else None


def probe(translate: Plain, carriers: Sequence[str], classes: Sequence[PlaceholderClass] = CLASSES) -> list[Survival]:
    """Measure the survival of classes of placeholders in translation, and return it, the best first; ties keep their
    order.

    Args:
        translate: function that translates texts; it is called once with all texts.
        carriers: texts of the source language. Placeholders replace each `{}` in them. In texts without `{}`, they
            replace one to `MOST_PROBED` of the longest words, because a placeholder is usually a noun.
        classes: candidates.
    """
    texts, expected = [], []
    for placeholders in classes:
        for number, carrier in enumerate(carriers):
            most = min(1 + number % MOST_PROBED, len(placeholders.words))
            form = carrier if "{}" in carrier else _with_room(carrier, most)
            free = [pair for pair in placeholders.pairs if pair[0].casefold() not in form.casefold()]
            count = form.count("{}")
            if len(free) >= count:
                shift = number % len(free)
                pairs = (free[shift:] + free[:shift])[:count]
                texts.append(form.format(*(word for word, _ in pairs)))
                expected.append((placeholders, pairs))
    kept, counts = Counter[PlaceholderClass](), Counter[PlaceholderClass]()
    for (placeholders, pairs), answer in zip(expected, translate(texts), strict=True):
        kept[placeholders] += sum(len(find(said, answer)) == 1 for _, said in pairs)
        counts[placeholders] += len(pairs)
    found = [Survival(placeholders, kept[placeholders], counts[placeholders]) for placeholders in classes]
    return sorted(found, key=lambda survival: -survival.share)


def ranked(translate: Plain, sentences: Sequence[str], partners: Sequence[tuple[str, str]]) -> list[Survival]:
    """Return classes of placeholders for a model, the best first: the built-in ones, and one of words that the model
    knows.

    A model that copies no unseen words, such as one trained on captions, still translates some words consistently.
    These serve as placeholders, and the pieces replace their translations.

    Args:
        translate: function that translates texts with the model.
        sentences: sentences of its source language.
        partners: consistently translated words with their translations, the most frequent first.
    """
    carriers = [sentence.replace("{", "(").replace("}", ")") for sentence in sentences[:MOST_CARRIERS]]
    candidates = [PlaceholderClass(word, (word,), (said,)) for word, said in partners[:MOST_PARTNERS]]
    kept = [
        tried.placeholders
        for tried in probe(translate, carriers[:CARRIERS_OF_PARTNER], candidates)
        if tried.share >= LEAST_KEPT
    ]
    known = (
        PlaceholderClass("known words", *zip(*(word.pairs[0] for word in kept[: MOST + 4]), strict=True))
        if kept
        else None
    )
    return probe(translate, [*BARE_CARRIERS, *carriers], [*CLASSES, *([known] if known else [])])


def _with_room(text: str, count: int) -> str:
    """Return a text with `{}` in place of its longest words."""
    spans = sorted(word_spans(text, ()), key=lambda span: span[0] - span[1])[:count]
    for begin, end in sorted(spans, reverse=True):
        text = f"{text[:begin]}{{}}{text[end:]}"
    return text
