"""The translation of a text, as every command and the server have it, and how translations of parts are joined.

`Translator` makes translations; `Aligner` adds details, `GlossaryTranslator` terms. Nothing here imports torch.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from seq2seq.lines import first_of_each
from seq2seq.search.base import normalized_score
from seq2seq.text.alignment import KINDS, Alignment, Term, moved
from seq2seq.text.parts import Part
from seq2seq.text.parts import join as join_texts
from seq2seq.text.words import Span


@dataclass(frozen=True)
class Alternative:
    """A translation of a text, and how likely the model finds it."""

    text: str
    log_prob: float
    """Log-probability of the model."""
    score: float
    """log_prob / tokens^length_penalty, by which alternatives are ranked."""
    tokens: int
    """Target pieces, ends included."""

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form; infinities and NaN, which JSON lacks, are null.

        `translation` and `normalized_score` are older names of `text` and `score`, for one version.
        """
        log_prob, score = (round(value, 6) if math.isfinite(value) else None for value in (self.log_prob, self.score))
        old = {"translation": self.text, "normalized_score": score}
        return {"text": self.text, "log_prob": log_prob, "score": score, "tokens": self.tokens, **old}


class PartSpans(NamedTuple):
    """The place of a part of a text, or of all of it, and of its translation; in code points."""

    source: Span
    target: Span
    is_copied: bool = False
    flags: tuple[str, ...] = ()
    """Flags of the part."""


@dataclass(frozen=True)
class Translation(Alternative):
    """The best translation of a text; that of a blank line is empty, with score 0.

    Spans are those of `source` and `text`, in code points.
    """

    flags: tuple[str, ...] = ()
    """`degeneration.symptoms` of the first search; `repaired` if a second search cured them; `split` for a line
    translated in parts; `verbatim` where a part was copied, because it cannot be translated (`text.untranslatable`);
    `lost` where words or signs that the vocabulary lacks are missing. For a document, those of its sentences, and those
    of `markup.translation.Marked`."""
    alternatives: tuple[Alternative, ...] = ()
    """The next best, with `n_best` above 1; for a line in parts, each joins the parts' hypotheses of one rank."""
    source: str = ""
    parts: tuple[PartSpans, ...] = ()
    """Of the best translation."""
    details: tuple[Alignment, ...] = ()
    """The alignment of each part, where it was requested."""
    terms: tuple[Term, ...] = ()
    """The terms of a glossary."""
    sentences: tuple[tuple[str, ...], ...] = ()
    """The flags of each sentence of a document; lines have none."""

    def shifted(self, source: int, target: int = 0) -> "Translation":
        """Return the same as a part of larger texts, where it begins at these code points."""
        return replace(
            self,
            parts=tuple(
                one._replace(source=moved(one.source, source), target=moved(one.target, target)) for one in self.parts
            ),
            details=tuple(one.shifted(source, target) for one in self.details),
            terms=tuple(one.shifted(source, target) for one in self.terms),
        )

    def without_tag(self, length: int) -> "Translation":
        """Return the same without the tag that the source begins with, of this number of code points."""
        if not length:
            return self
        rest = self.shifted(-length)
        return replace(
            rest,
            source=self.source[length:],
            parts=tuple(one._replace(source=(max(one.source[0], 0), one.source[1])) for one in rest.parts),
            details=tuple(one.without_begin(length) for one in self.details),
            terms=tuple(term for term in rest.terms if term.source is None or term.source[0] >= 0),
        )

    def as_json(self, kinds: Collection[str] = ()) -> dict[str, Any]:
        """Return the JSON form, the same on the command line and in `/v1`.

        Args:
            kinds: what else is shown: any of `alignment.KINDS` as `details`, and `terms`.
        """
        shown = super().as_json()
        shown["flags"] = list(dict.fromkeys(self.flags))
        shown["alternatives"] = [one.as_json() for one in self.alternatives]
        if {"sentences", *KINDS}.intersection(kinds):
            shown["details"] = [one.as_json(kinds) for one in self.details]
        if "terms" in kinds:
            shown["terms"] = [one.as_json() for one in self.terms]
        return shown


def join(
    source: str,
    parts: Sequence[Part],
    answers: Sequence[Translation],
    length_penalty: float,
    flags: tuple[str, ...],
    ends: tuple[str, str] = ("", ""),
    is_sampled: bool = False,
) -> Translation:
    """Return the translation of a text from those of its parts.

    Args:
        source: the text.
        parts: of the text, in order.
        answers: the translation of each. Each alternative of the text joins their hypotheses of one rank; where a part
            has fewer, its last.
        length_penalty: the a of `score`.
        flags: of the text.
        ends: what the translation begins and ends with.
        is_sampled: alternatives are samples, which may be equal.
    """
    rows = [(one, *one.alternatives) for one in answers]

    def rank(number: int) -> Alternative:
        chosen = [row[min(number, len(row) - 1)] for row in rows]
        text, _ = join_texts(parts, [one.text for one in chosen], ends)
        log_prob, tokens = sum(one.log_prob for one in chosen), sum(one.tokens for one in chosen)
        return Alternative(text, log_prob, normalized_score(log_prob, tokens, length_penalty), tokens)

    ranks = [rank(number) for number in range(max(map(len, rows)))]
    kept = range(len(ranks)) if is_sampled else first_of_each([one.text for one in ranks])
    best, *others = (ranks[index] for index in kept)
    # The best translations of the parts make the best one of the text, even if another rank scores higher.
    others.sort(key=lambda one: -one.score)
    _, places = join_texts(parts, [one.text for one in answers], ends)
    there = [one.shifted(part.begin, place) for one, part, place in zip(answers, parts, places, strict=True)]
    return Translation(
        **vars(best),
        flags=flags,
        alternatives=tuple(others),
        source=source,
        parts=tuple(chain.from_iterable(one.parts for one in there)),
        details=tuple(chain.from_iterable(one.details for one in there)),
        terms=tuple(chain.from_iterable(one.terms for one in there)),
    )
