"""Words that stand for protected pieces while a text is translated, and which of them a model leaves alone.

A model copies what it has learned to copy, and no trick works with every model: so classes of stand-ins are tried on
the very model (`ranked`), and the driver goes on to the next class where one was lost.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seq2seq.text.words import Span, word_spans

# More in a sentence are confused with each other.
MOST = 8


@dataclass(frozen=True)
class StandIns:
    """A class of stand-ins; there are some more than MOST, for texts that have one of them already."""

    name: str
    words: tuple[str, ...]
    answers: tuple[str, ...] = ()
    """What a translation says for each; as a rule the word itself."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Words and what a translation says for them."""
        return list(zip(self.words, self.answers or self.words, strict=True))

    def turned(self) -> "StandIns":
        """The same, beginning in its middle."""
        middle = len(self.words) // 2
        words, answers = zip(*(self.pairs[middle:] + self.pairs[:middle]), strict=True)
        return StandIns(self.name, words, answers)


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
BARE_CARRIERS = ("{}", "{}, {}.", "1. {}!")
# Sentences that classes are tried in, and stand-ins in one of them.
MOST_CARRIERS, MOST_PROBED = 12, 2
# Words that are translated alike are tried, so many of them, each in so many sentences; these are good with this share.
MOST_PARTNERS, CARRIERS_OF_PARTNER, LEAST_KEPT = 40, 8, 0.5

Plain = Callable[[Sequence[str]], Sequence[str]]


def find(stand_in: str, text: str, glued: tuple[bool, bool] = (False, False)) -> list[Span]:
    """Where a text has a stand-in as a word of its own; `glued`: letters or digits may stand before and behind it."""
    before, behind = ("" if free else rf"(?{sign}[^\W_])" for free, sign in zip(glued, ("<!", "!"), strict=True))
    # beside a mark that a stand-in begins or ends with, letters may stand
    before = before if stand_in[0].isalnum() else ""
    behind = behind if stand_in[-1].isalnum() else ""
    return [match.span() for match in re.finditer(before + re.escape(stand_in) + behind, text)]


def choose(stand_ins: StandIns, count: int, text: str) -> list[tuple[str, str]] | None:
    """So many pairs of a class whose words the text does not have; None where there are too few."""
    folded = text.casefold()
    free = [pair for pair in stand_ins.pairs if pair[0].casefold() not in folded]
    return free[:count] if len(free) >= count else None


def probe(translate: Plain, carriers: Sequence[str], classes: Sequence[StandIns] = CLASSES) -> list[Survival]:
    """How classes of stand-ins survive translation, the best first; equal ones keep their order.

    Args:
        translate: translations of texts, all of which are given in one call.
        carriers: texts of the source language; with `{}` where stand-ins go, or without: then one to `MOST_PROBED` of
            their longest words make room for them, because a stand-in is a noun in the sentence most often.
        classes: candidates.
    """
    texts, asked = [], []
    for stand_ins in classes:
        for number, carrier in enumerate(carriers):
            most = min(1 + number % MOST_PROBED, len(stand_ins.words))
            form = carrier if "{}" in carrier else _with_room(carrier, most)
            free = [pair for pair in stand_ins.pairs if pair[0].casefold() not in form.casefold()]
            count = form.count("{}")
            if len(free) >= count:
                shift = number % len(free)
                pairs = (free[shift:] + free[:shift])[:count]
                texts.append(form.format(*(word for word, _ in pairs)))
                asked.append((stand_ins, pairs))
    kept, counts = Counter[StandIns](), Counter[StandIns]()
    for (stand_ins, pairs), answer in zip(asked, translate(texts), strict=True):
        kept[stand_ins] += sum(len(find(said, answer)) == 1 for _, said in pairs)
        counts[stand_ins] += len(pairs)
    found = [Survival(stand_ins, kept[stand_ins], counts[stand_ins]) for stand_ins in classes]
    return sorted(found, key=lambda one: -one.share)


def ranked(translate: Plain, sentences: Sequence[str], partners: Sequence[tuple[str, str]]) -> list[Survival]:
    """Classes for a model, the best first: the built-in ones, and one of words that it knows.

    A model that copies nothing that it has not seen, such as one trained on captions, still has words that it always
    translates alike: those stand in, and their translations are where the pieces go.

    Args:
        translate: the model.
        sentences: of its source language.
        partners: words that are translated alike, and how, the best known first.
    """
    carriers = [sentence.replace("{", "(").replace("}", ")") for sentence in sentences[:MOST_CARRIERS]]
    candidates = [StandIns(word, (word,), (said,)) for word, said in partners[:MOST_PARTNERS]]
    kept = [
        one.stand_ins for one in probe(translate, carriers[:CARRIERS_OF_PARTNER], candidates) if one.share >= LEAST_KEPT
    ]
    known = StandIns("known words", *zip(*(one.pairs[0] for one in kept[: MOST + 4]), strict=True)) if kept else None
    return probe(translate, [*BARE_CARRIERS, *carriers], [*CLASSES, *([known] if known else [])])


def _with_room(text: str, count: int) -> str:
    """A text with `{}` in place of its longest words."""
    spans = sorted(word_spans(text, ()), key=lambda span: span[0] - span[1])[:count]
    for begin, end in sorted(spans, reverse=True):
        text = f"{text[:begin]}{{}}{text[end:]}"
    return text
