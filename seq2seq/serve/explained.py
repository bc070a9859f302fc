"""A translation with what is known of its words; models give it for each sentence, `cutting.join` for a whole text."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from seq2seq.inference.details import KINDS, Details, Term
from seq2seq.inference.translator import Translation


@dataclass(frozen=True)
class Explained(Translation):
    """A translation, the details of its sentences, and its terms; spans are those of source and translation."""

    details: tuple[Details, ...] = ()
    terms: tuple[Term, ...] = ()

    def shifted(self, source: int, target: int = 0) -> "Explained":
        """The same as a part of larger texts, where it begins at these code points."""
        return replace(
            self,
            details=tuple(one.shifted(source, target) for one in self.details),
            terms=tuple(one.shifted(source, target) for one in self.terms),
        )

    def without_tag(self, length: int) -> "Explained":
        """The same without the tag that the source begins with, of this many code points."""
        if not length:
            return self
        moved = self.shifted(-length)
        details = [
            replace(
                one,
                source=(max(one.source[0], 0), one.source[1]),
                source_words=tuple(word for word in one.source_words if word[0] >= 0),
                links=tuple(link for link in one.links if link.source[0] >= 0),
            )
            for one in moved.details
        ]
        terms = tuple(term for term in moved.terms if term.source is None or term.source[0] >= 0)
        return replace(moved, source=self.source[length:], details=tuple(details), terms=terms)

    def as_json(self, kinds: Collection[str]) -> dict[str, Any]:
        """What answers show besides the translation."""
        shown: dict[str, Any] = {}
        if any(kind in kinds for kind in (*KINDS, "sentences")):
            shown["sentences"] = [one.as_json(kinds) for one in self.details]
        if "terms" in kinds:
            shown["terms"] = [one.as_json() for one in self.terms]
        return shown
