"""The translation of a text, which all commands and the server use, and the function that joins those of its parts.

`Translator` makes translations; `Aligner` adds details, and `GlossaryTranslator` terms. This module does not import
torch.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from seq2seq.arguments import checked_names
from seq2seq.lines import first_of_each
from seq2seq.search.base import normalized_score
from seq2seq.text.alignment import KINDS, Alignment, Term, moved
from seq2seq.text.parts import Part
from seq2seq.text.parts import join as join_texts
from seq2seq.text.words import Span


@dataclass(frozen=True)
class Alternative:
    """A translation of a text, with its log-probability and score."""

    text: str
    log_prob: float
    """The log-probability by the model; NaN for a document, whose sentences have their own."""
    score: float
    """log_prob / tokens^length_penalty, by which alternatives are ranked; NaN for a document."""
    tokens: int
    """The number of target pieces, ends included; 0 for a document."""
    is_finished: bool = field(default=True, kw_only=True)
    """Whether the search reached the end of the translation, or of each part, within the length limit."""

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form; infinities and NaN, which JSON lacks, are null.

        `translation` and `normalized_score` are older names of `text` and `score`, which will be removed.
        """
        log_prob, score = (round(value, 6) if math.isfinite(value) else None for value in (self.log_prob, self.score))
        old = {"translation": self.text, "normalized_score": score}
        return {"text": self.text, "log_prob": log_prob, "score": score, "tokens": self.tokens, **old}


class PartSpans(NamedTuple):
    """The spans of a part of a text, or of the whole text, and of its translation; in code points."""

    source: Span
    target: Span
    is_copied: bool = False
    flags: tuple[str, ...] = ()
    """The flags of the part."""


@dataclass(frozen=True)
class Translation(Alternative):
    """The best translation of a text; a blank line has an empty translation with score 0.

    Spans refer to `source` and `text`, in code points.
    """

    flags: tuple[str, ...] = ()
    """The `degeneration.symptoms` of the first search, and further flags: `repaired` if a second search removed them,
    `split` for a line translated in parts, `verbatim` if a part was copied because it is not language
    (`text.untranslatable`), `lost` if words or characters that the vocabulary lacks are missing, `language` if the text
    is in another language than the target (`text.identification`). A document has the flags of its sentences, and those
    of `markup.translation.Marked`."""
    alternatives: tuple[Alternative, ...] = ()
    """The next best translations, with `n_best` above 1; for a line in parts, each joins hypotheses of one rank."""
    source: str = ""
    parts: tuple[PartSpans, ...] = ()
    """The parts of the best translation."""
    details: tuple[Alignment, ...] = ()
    """The alignment of each part, if requested."""
    terms: tuple[Term, ...] = ()
    """The terms of a glossary, with their status."""
    sentences: tuple[tuple[str, ...], ...] = ()
    """The flags of each sentence of a document; lines have none."""

    @property
    def tag_of_parts(self) -> str:
        """The language tag at the beginning of the source, if the parts were translated with it and do not contain it;
        otherwise empty."""
        return self.source[: self.parts[0].source[0]].lstrip() if self.parts else ""

    def shifted(self, source: int, target: int = 0) -> "Translation":
        """Return the translation as a part of larger texts, in which it begins at these code points."""
        return replace(
            self,
            parts=tuple(
                part._replace(source=moved(part.source, source), target=moved(part.target, target))
                for part in self.parts
            ),
            details=tuple(alignment.shifted(source, target) for alignment in self.details),
            terms=tuple(term.shifted(source, target) for term in self.terms),
        )

    def without_tag(self, length: int) -> "Translation":
        """Return the translation without the tag at the beginning of the source, `length` code points long."""
        if not length:
            return self
        rest = self.shifted(-length)
        return replace(
            rest,
            source=self.source[length:],
            parts=tuple(part._replace(source=(max(part.source[0], 0), part.source[1])) for part in rest.parts),
            details=tuple(alignment.without_begin(length) for alignment in self.details),
            terms=tuple(term for term in rest.terms if term.source is None or term.source[0] >= 0),
        )

    def as_json(self, kinds: str | Collection[str] = ()) -> dict[str, Any]:
        """Return the JSON form, the same on the command line and in `/v1`.

        Args:
            kinds: further fields: any of `alignment.KINDS` (as `details`), `sentences` (only the spans of `details`),
                and `terms`.

        Raises:
            UserError: there is no such field.
        """
        kinds = checked_names(kinds, (*KINDS, "sentences", "terms"), "kinds")
        shown = super().as_json()
        shown["flags"] = list(dict.fromkeys(self.flags))
        shown["alternatives"] = [alternative.as_json() for alternative in self.alternatives]
        if {"sentences", *KINDS}.intersection(kinds):
            shown["details"] = [alignment.as_json(kinds) for alignment in self.details]
        if "terms" in kinds:
            shown["terms"] = [term.as_json() for term in self.terms]
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
        source: text.
        parts: parts of the text, in order.
        answers: translation of each part. Each alternative of the text joins hypotheses of one rank; a part with fewer
            hypotheses contributes its last.
        length_penalty: exponent of `score`.
        flags: flags of the text.
        ends: strings before and after the translation, such as white space.
        is_sampled: whether alternatives are samples, which may be equal.
    """
    if [part.text for part in parts] == [source] and not answers[0].alternatives:  # nearly always, and faster
        return replace(answers[0], flags=flags, source=source)
    rows = [(answer, *answer.alternatives) for answer in answers]

    def rank(number: int) -> Alternative:
        chosen = [row[min(number, len(row) - 1)] for row in rows]
        text, _ = join_texts(parts, [each.text for each in chosen], ends)
        log_prob, tokens = sum(each.log_prob for each in chosen), sum(each.tokens for each in chosen)
        score, finished = normalized_score(log_prob, tokens, length_penalty), [each.is_finished for each in chosen]
        return Alternative(text, log_prob, score, tokens, is_finished=all(finished))

    ranks = [rank(number) for number in range(max(map(len, rows)))]
    kept = range(len(ranks)) if is_sampled else first_of_each([each.text for each in ranks])
    best, *others = (ranks[index] for index in kept)
    # The best translations of the parts form the best translation of the text, even if another rank scores higher.
    others.sort(key=lambda alternative: -alternative.score)
    _, places = join_texts(parts, [answer.text for answer in answers], ends)
    placed = [answer.shifted(part.begin, place) for answer, part, place in zip(answers, parts, places, strict=True)]
    return Translation(
        **vars(best),
        flags=flags,
        alternatives=tuple(others),
        source=source,
        parts=tuple(chain.from_iterable(answer.parts for answer in placed)),
        details=tuple(chain.from_iterable(answer.details for answer in placed)),
        terms=tuple(chain.from_iterable(answer.terms for answer in placed)),
    )
