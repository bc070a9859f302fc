"""Words that stand for protected pieces while a text is translated, and which of them a model leaves alone.

A model copies what it has learned to copy, and no trick works with every model: so classes of stand-ins are tried on
the very model (`probe`), and the driver goes on to the next class where one was lost.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from seq2seq.text.words import Span, word_spans

# More in a sentence are confused with each other.
MOST = 8


@dataclass(frozen=True)
class StandIns:
    """A class of stand-ins; there are some more than MOST, for texts that have one of them already."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Survival:
    """How many stand-ins of a class a model kept: exactly once each, whole."""

    stand_ins: StandIns
    kept: int
    asked: int

    @property
    def share(self) -> float:
        """Of those that were asked for."""
        return self.kept / max(self.asked, 1)


def _numbered(name: str, form: str, first: int = 1, step: int = 1) -> StandIns:
    return StandIns(name, tuple(form.format(first + step * number) for number in range(MOST + 4)))


# In the order in which they are tried with a model that was not probed.
CLASSES = (
    StandIns(
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
    StandIns("letters", tuple(f"{letter}{number}" for number in (1, 2) for letter in "XYZQWK")),
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

# For any language: nothing but stand-ins and marks.
BARE_CARRIERS = (
    "{}",
    "{}.",
    "{}, {}.",
    "{}: {}",
    "({})",
    "1. {}",
    "{} - {} - {}",
    "{}, {}, {}, {}.",
    "{} = {}?",
    "„{}“ {}!",
)


def find(stand_in: str, text: str, glued: tuple[bool, bool] = (False, False)) -> list[Span]:
    """Where a text has a stand-in as a word of its own; `glued`: letters or digits may stand before and behind it."""
    before, behind = ("" if free else rf"(?{sign}[^\W_])" for free, sign in zip(glued, ("<!", "!"), strict=True))
    # beside a mark that a stand-in begins or ends with, letters may stand
    before = before if stand_in[0].isalnum() else ""
    behind = behind if stand_in[-1].isalnum() else ""
    return [match.span() for match in re.finditer(before + re.escape(stand_in) + behind, text)]


def choose(stand_ins: StandIns, count: int, text: str) -> list[str] | None:
    """So many words of a class that the text does not have; None where there are too few."""
    folded = text.casefold()
    free = [word for word in stand_ins.words if word.casefold() not in folded]
    return free[:count] if len(free) >= count else None


def probe(
    translate: Callable[[Sequence[str]], Sequence[str]],
    carriers: Sequence[str] = BARE_CARRIERS,
    classes: Collection[StandIns] = CLASSES,
    most: int = 3,
) -> list[Survival]:
    """How classes of stand-ins survive translation, the best first; equal ones keep their order.

    Args:
        translate: translations of texts, all of which are given in one call.
        carriers: texts of the source language; with `{}` where stand-ins go, or without: then one to `most` of their
            longest words make room for them, because a stand-in is a noun in the sentence most often.
        classes: candidates.
        most: stand-ins in a carrier without `{}`.
    """
    asked: list[tuple[StandIns, list[str]]] = []
    texts: list[str] = []
    for stand_ins in classes:
        for number, carrier in enumerate(carriers):
            count = carrier.count("{}")
            form = carrier if count else _with_room(carrier, 1 + number % most)
            words = choose(stand_ins, form.count("{}"), carrier)
            if not words:
                continue
            shift = number % len(words)
            words = words[shift:] + words[:shift]
            parts = form.split("{}")
            texts.append("".join(part + word for part, word in zip(parts, [*words, ""], strict=True)))
            asked.append((stand_ins, words))
    counts = {stand_ins.name: [0, 0] for stand_ins in classes}
    for (stand_ins, words), answer in zip(asked, translate(texts), strict=True):
        counts[stand_ins.name][0] += sum(len(find(word, answer)) == 1 for word in words)
        counts[stand_ins.name][1] += len(words)
    found = [Survival(stand_ins, *counts[stand_ins.name]) for stand_ins in classes]
    return sorted(found, key=lambda one: -one.share)


def _with_room(text: str, count: int) -> str:
    """A text with `{}` in place of its longest words."""
    spans = sorted(word_spans(text, ()), key=lambda span: span[0] - span[1])[:count]
    for begin, end in sorted(spans, reverse=True):
        text = f"{text[:begin]}{{}}{text[end:]}"
    return text
