"""What `Aligner` says of a translation: words, their partners, and how sure the model is. Nothing here imports torch.

`s2s translate --details`, `s2s align` and the server show it as JSON.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from seq2seq.text.words import Span, word_spans

KINDS = ("alignment", "words", "confidence")
Status = Literal["kept", "forced", "missing", "avoided", "present"]


@dataclass(frozen=True)
class Link:
    """A source word and the target word that stands for it."""

    source: Span
    target: Span
    weight: float
    """Share of the target word's attention, from 0 to 1."""


@dataclass(frozen=True)
class Word:
    """A target word."""

    span: Span
    log_prob: float
    """Mean log-probability of its pieces."""

    @property
    def probability(self) -> float:
        """The geometric mean of the probabilities of its pieces."""
        return math.exp(self.log_prob)


@dataclass(frozen=True)
class Details:
    """Of a pair, or of a part of a long line and its translation; spans are those of the whole texts."""

    source: Span
    target: Span
    source_words: tuple[Span, ...]
    words: tuple[Word, ...]
    links: tuple[Link, ...]
    """Each target word with its first choice, and further source words; by target word, then by source word."""
    confidence: float | None
    """The probability that the translation is good (`confidence.GOOD`); None where that was not calibrated, and for
    what was copied."""

    def shifted(self, source: int, target: int) -> "Details":
        """The same where the texts begin at these code points of larger ones."""
        if not source and not target:
            return self
        return replace(
            self,
            source=_moved(self.source, source),
            target=_moved(self.target, target),
            source_words=tuple(_moved(span, source) for span in self.source_words),
            words=tuple(replace(word, span=_moved(word.span, target)) for word in self.words),
            links=tuple(
                replace(link, source=_moved(link.source, source), target=_moved(link.target, target))
                for link in self.links
            ),
        )

    def as_json(self, kinds: Collection[str] = KINDS) -> dict[str, Any]:
        """The form of JSON lines and of the server."""
        shown: dict[str, Any] = {"source": self.source, "target": self.target}
        if "confidence" in kinds:
            shown["confidence"] = None if self.confidence is None else round(self.confidence, 4)
        if "alignment" in kinds:
            shown["alignment"] = [[link.source, link.target, round(link.weight, 4)] for link in self.links]
        if "words" in kinds:
            shown["words"] = [{"target": word.span, "probability": round(word.probability, 4)} for word in self.words]
        return shown


def copied(text: str, source: Span, target: Span) -> Details:
    """Return the details of a part of `text` that was copied."""
    words = word_spans(text[slice(*source)], ())
    links = tuple(Link(span, span, 1.0) for span in words)
    spans = (0, source[1] - source[0]), (0, target[1] - target[0])
    return Details(*spans, tuple(words), tuple(Word(span, 0.0) for span in words), links, None).shifted(
        source[0], target[0]
    )


@dataclass(frozen=True)
class Term:
    """A term of a line, and what became of it."""

    source: Span | None
    """None for words that no translation may say, which are avoided or still present."""
    target: Span | None
    status: Status
    entry: str
    """The source term of the glossary, or the forbidden words."""

    def shifted(self, source: int, target: int) -> "Term":
        """As `Details.shifted`."""
        source_span = self.source and _moved(self.source, source)
        return replace(self, source=source_span, target=self.target and _moved(self.target, target))

    def as_json(self) -> dict[str, Any]:
        """The form of JSON lines and of the server."""
        return {"entry": self.entry, "source": self.source, "target": self.target, "status": self.status}


def pharaoh(details: Details) -> str:
    """Links as source-target pairs of word numbers from 0, in the form that fast_align and eflomal write."""
    sources = {span: number for number, span in enumerate(details.source_words)}
    targets = {word.span: number for number, word in enumerate(details.words)}
    links = sorted((sources[link.source], targets[link.target]) for link in details.links)
    return " ".join(f"{source}-{target}" for source, target in links)


def _moved(span: Span, distance: int) -> Span:
    return span[0] + distance, span[1] + distance
