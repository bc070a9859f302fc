"""Alignments of the words of a translation with those of its source (`Alignment`, `Link`, `Word`), and `Term`.

`inference.aligner` makes alignments, the glossary makes terms; the command line, the server and `markup` read them.
Spans are moved and joined here. Nothing here imports torch.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

from seq2seq.text.words import Span, word_spans

KINDS = ("alignment", "words", "confidence")
Status = Literal["kept", "forced", "missing", "avoided", "present"]


class Link(NamedTuple):
    """A source word and the target word that stands for it."""

    source: Span
    target: Span
    weight: float
    """Share of the target word's attention, from 0 to 1."""


class Word(NamedTuple):
    """A target word."""

    span: Span
    log_prob: float = math.nan
    """Mean log-probability of its pieces; NaN where it was not computed."""

    @property
    def probability(self) -> float:
        """The geometric mean of the probabilities of its pieces."""
        return math.exp(self.log_prob)


@dataclass(frozen=True)
class Alignment:
    """The alignment of a pair, or of a part of a long text and its translation; spans are those of the whole texts."""

    source: Span
    target: Span
    source_words: tuple[Span, ...]
    words: tuple[Word, ...]
    links: tuple[Link, ...]
    """Each target word with its first choice, and further source words; by target word, then by source word."""
    confidence: float | None = None
    """The probability that the translation is good (`confidence.GOOD`); None where that was not calibrated, and for
    what was copied."""

    @classmethod
    def joined(cls, parts: Sequence["Alignment"]) -> "Alignment":
        """Return the alignment of a text from those of its parts, in order; without a confidence."""
        return cls(
            (parts[0].source[0], parts[-1].source[1]) if parts else (0, 0),
            (parts[0].target[0], parts[-1].target[1]) if parts else (0, 0),
            tuple(chain.from_iterable(part.source_words for part in parts)),
            tuple(chain.from_iterable(part.words for part in parts)),
            tuple(chain.from_iterable(part.links for part in parts)),
        )

    def shifted(self, source: int, target: int) -> "Alignment":
        """Return the same for texts that begin at these code points of larger ones."""
        if not source and not target:
            return self
        return replace(
            self,
            source=moved(self.source, source),
            target=moved(self.target, target),
            source_words=tuple(moved(span, source) for span in self.source_words),
            words=tuple(Word(moved(span, target), log_prob) for span, log_prob in self.words),
            links=tuple(Link(moved(one, source), moved(other, target), weight) for one, other, weight in self.links),
        )

    def without_begin(self, length: int) -> "Alignment":
        """Return the same for a source without its first `length` code points, and without the words in them."""
        rest = self.shifted(-length, 0)
        return replace(
            rest,
            source=(max(rest.source[0], 0), rest.source[1]),
            source_words=tuple(word for word in rest.source_words if word[0] >= 0),
            links=tuple(link for link in rest.links if link.source[0] >= 0),
        )

    def as_json(self, kinds: Collection[str] = KINDS) -> dict[str, Any]:
        """Return the form of JSON lines and of the server; a probability that was not computed is null."""
        shown: dict[str, Any] = {"source": self.source, "target": self.target}
        if "confidence" in kinds:
            shown["confidence"] = None if self.confidence is None else round(self.confidence, 4)
        if "alignment" in kinds:
            shown["alignment"] = [[link.source, link.target, round(link.weight, 4)] for link in self.links]
        if "words" in kinds:
            found = ((word.span, word.probability) for word in self.words)
            shown["words"] = [
                {"target": span, "probability": None if math.isnan(probability) else round(probability, 4)}
                for span, probability in found
            ]
        return shown


def copied(text: str) -> Alignment:
    """Return the alignment of a text that was copied: each word is its own translation."""
    words, whole = word_spans(text, ()), (0, len(text))
    links = tuple(Link(span, span, 1.0) for span in words)
    return Alignment(whole, whole, tuple(words), tuple(Word(span, 0.0) for span in words), links)


@dataclass(frozen=True)
class Term:
    """A term of a line, and what became of it."""

    source: Span | None
    """None for words that no translation may contain, which are avoided or still present."""
    target: Span | None
    status: Status
    entry: str
    """The source term of the glossary, or the forbidden words."""

    def shifted(self, source: int, target: int) -> "Term":
        """Return the same for texts that begin at these code points of larger ones."""
        here, there = self.source and moved(self.source, source), self.target and moved(self.target, target)
        return replace(self, source=here, target=there)

    def as_json(self) -> dict[str, Any]:
        """Return the form of JSON lines and of the server."""
        return {"entry": self.entry, "source": self.source, "target": self.target, "status": self.status}


def pharaoh(alignment: Alignment) -> str:
    """Return links as source-target pairs of word numbers from 0, in the form that fast_align and eflomal write."""
    sources = {span: number for number, span in enumerate(alignment.source_words)}
    targets = {word.span: number for number, word in enumerate(alignment.words)}
    links = sorted((sources[link.source], targets[link.target]) for link in alignment.links)
    return " ".join(f"{source}-{target}" for source, target in links)


def moved(span: Span, distance: int) -> Span:
    """Return a span that begins later by a distance, in code points."""
    return span[0] + distance, span[1] + distance
