"""Examples of a corpus, chunks of them as they are read, and sources, which yield chunks.

`sources` opens a source, `corpus` tokenises it, `tasks` reads references from it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation, each one line."""

    source: str
    target: str
    direction: tuple[str, str] | None = None
    """The languages of both sides, for a model of many directions."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Source and target."""
        return self.source, self.target

    def without(self, tag: str | None) -> "Pair":
        """Return the pair without a tag at the start of its source."""
        return replace(self, source=self.source.removeprefix(f"{tag} ")) if tag else self


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text, one line, and its label, as spelled in the data."""

    text: str
    label: str
    """The label; for a text with probabilities, the most likely one (ties: the first by name)."""
    probabilities: Mapping[str, float] | None = None
    """Probability of every label, with the sum 1, if the data has them (soft labels; Hinton et al. 2015, section 2)."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, as the only side."""
        return (self.text,)

    def without(self, _tag: str | None) -> "LabelledText":
        """Return the text: only sources of pairs have tags."""
        return self


Example = Pair | LabelledText
Position = Any
"""Position in a source, as plain JSON values; None is the beginning."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive lines or rows as they were read, which is cheap; worker processes parse them, which is expensive."""

    raw: Any
    first: int
    """Number of the first line or row, from 1."""
    parse: Callable[[Any, int], list[Example | None]]
    """Function of `raw` and `first` that returns one item per line, None if it is not an example; can be pickled."""
    end: Position
    """Position of the next chunk."""

    def examples(self) -> list[Example]:
        """Return the parsed examples.

        Raises:
            DataError: a line or row is not an example; the message has its number.
        """
        return [example for example in self.parse(self.raw, self.first) if example is not None]

    def numbered(self) -> list[tuple[int, Example]]:
        """Return the parsed examples with the numbers of their lines; errors are those of `examples`."""
        lines = enumerate(self.parse(self.raw, self.first), start=self.first)
        return [(number, example) for number, example in lines if example is not None]


class Examples(Protocol):
    """The examples of one corpus, which can be read any number of times, such as a `Source`."""

    name: str
    tag: str | None

    def __iter__(self) -> Iterator[Example]: ...


class Source(ABC):
    """A source of examples that can be read any number of times; the fingerprint changes if they change."""

    name: str
    weight: float
    fingerprint: str
    size: int | None
    """Number of examples, if it is known without reading them."""
    tag: str | None = None
    """The tag before every source text (`s2s augment --tag`); it must be a piece of the tokenizer."""
    direction: tuple[str, str] | None = None
    """The direction of all examples, for a model of many; None if there is one, or if each example has its own."""
    invalid: Sequence[list[int]] = ()
    """For each file, the numbers of the lines that were not UTF-8 when it was last read."""

    @abstractmethod
    def chunks(self, start: Position = None) -> Iterator[Chunk]:
        """Yield the examples from the beginning, or from the end of an earlier chunk."""

    def __iter__(self) -> Iterator[Example]:
        for chunk in self.chunks():
            yield from chunk.examples()

    @property
    def former(self) -> str:
        """The fingerprint in earlier versions."""
        return self.fingerprint

    def untagged(self) -> Iterator[Example]:
        """Yield the examples without `tag`, for comparisons and figures of texts: models read it, but it is no text."""
        return (example.without(self.tag) for example in self)
