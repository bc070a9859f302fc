"""The languages of a model of many directions, and the direction of each of its corpora.

`schema` holds the section `languages`; `data.directions` opens corpora in the directions that this module finds.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.values import Section, one_or_more
from seq2seq.errors import did_you_mean
from seq2seq.languages import (
    direction_name,
    is_same_language,
    known_language,
    language_name,
    language_tag,
    languages_named,
    named_directions,
)

Sides = tuple[str, str]
"""The source and the target language of a direction, as the section `languages` names them."""
BEST_OF = ("mean", "worst")
NUM_TAGS = {"source": (1, 0), "both": (2, 0), "decoder": (1, 1)}


class LanguagesConfig(Section):
    """The languages of a model of many directions, in place of source_language and target_language."""

    source: Annotated[tuple[str, ...], one_or_more, Field(min_length=1)]
    """Languages to translate from, such as [en, de]."""
    target: Annotated[tuple[str, ...], one_or_more, Field(min_length=1)]
    """Languages to translate into."""
    tags: Literal["source", "both", "decoder"] = "source"
    """Place of the tags of languages: `source` begins a source with that of the target language, `both` with those of
    both languages; `decoder` begins a source with its own tag, and a translation with that of the target language."""

    @model_validator(mode="after")
    def _names_differ(self) -> "LanguagesConfig":
        for name in dict.fromkeys((*self.source, *self.target)):
            if known_language(name) is None and not re.fullmatch(r"[a-zA-Z]{3}([-_]\w+)*", name):
                raise ValueError(f"{name} is not a language; write a code such as de, deu or srp_Cyrl")
        for side in ("source", "target"):
            if len(set(names := getattr(self, side))) < len(names):
                raise ValueError(f"{side} has a language twice")
        for first, second in itertools.combinations(self.pieces, 2):
            if self.pieces[first] == self.pieces[second] or (
                is_same_language(first, second) and "_" not in min(self._tags(first, second), key=len)
            ):
                raise ValueError(f"{first} and {second} are two names of one tag, {self.pieces[first]}; keep one")
        return self

    def _tags(self, *names: str) -> list[str]:
        return [self.pieces[name] for name in names]

    @property
    def pieces(self) -> dict[str, str]:
        """The tag of each language, by its name."""
        return {name: language_tag(name) for name in dict.fromkeys((*self.source, *self.target))}

    @property
    def num_tags(self) -> tuple[int, int]:
        """The numbers of tags of a source and of a translation."""
        return NUM_TAGS[self.tags]

    def named(self, side: str, name: str) -> str | None:
        """Return the language of a side under its name here; None if the side does not have it."""
        found = languages_named(name, getattr(self, side))
        return found[0] if len(found) == 1 else None

    def problem_of_reverse(self, sides: Sides) -> str | None:
        """Return why `both_ways` is impossible if `sides`, in names of these languages, is the reverse direction of a
        corpus, with the remedy; None if it is possible."""
        wanted = zip(("source", "target"), sides, strict=True)
        missing = [f"{name} to languages.{side}" for side, name in wanted if self.named(side, name) != name]
        if not missing:
            return None
        remedy = f"leave out both_ways, or add {' and '.join(missing)}"
        return f"both_ways: {direction_name(sides)} is not possible with languages; {remedy}"

    def sides_of(self, source: SourceConfig, name: str = "") -> Sides | None:
        """Return the direction of a corpus: its `from` and `to`, or those of its name (`en-de`), or the only ones.

        The result is None if each line has its own languages.

        Raises:
            ValueError: a language is missing or unknown.
        """
        if source.from_column is not None:
            return None
        by_name = next(self._in_name(name), None) if source.from_ is None and source.to is None else None
        return by_name or (self._side("source", "from", source.from_), self._side("target", "to", source.to))

    def _in_name(self, name: str) -> Iterator[Sides]:
        for sides in named_directions(name):
            source, target = self.named("source", sides[0]), self.named("target", sides[1])
            if source and target:
                yield source, target

    def _side(self, side: str, key: str, given: str | None) -> str:
        known = getattr(self, side)
        if given is None:
            if len(known) == 1:
                return known[0]
            raise ValueError(f"{key} is missing; name one of languages.{side}: {', '.join(known)}")
        if (found := self.named(side, given)) is None:
            hint = did_you_mean(given, [*known, *(language_name(one).lower() for one in known)])
            raise ValueError(f"{key}: {given} is not in languages.{side} ({', '.join(known)}){hint}")
        return found
