"""What a corpus is made of: examples, chunks of them as they are read, and the sources that give chunks.

`sources` opens a source, `corpus` tokenises it, `tasks` reads references from it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation, each one line."""

    source: str
    target: str

    @property
    def texts(self) -> tuple[str, ...]:
        """Both sides."""
        return self.source, self.target


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text, one line, and its label as the data spell it."""

    text: str
    label: str
    """Of a text with probabilities the most likely one, and of equal ones the first by name."""
    probabilities: Mapping[str, float] | None = None
    """Of every label, adding up to 1, where the data has them (soft labels; Hinton et al. 2015, section 2)."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The text alone."""
        return (self.text,)


Example = Pair | LabelledText
Position = Any
"""Where reading continues, as plain JSON values; None is the beginning."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive lines or rows as they were read, which is cheap; a worker process parses them, which is not."""

    raw: Any
    first: int
    """Number of the first line or row, from 1."""
    parse: Callable[[Any, int], list[Example | None]]
    """Called with `raw` and `first`, gives one item a line, None where it is no example; can be pickled."""
    end: Position
    """Of the next chunk."""

    def examples(self) -> list[Example]:
        """The parsed examples.

        Raises:
            DataError: a line or row is not an example; the message has its number.
        """
        return [example for example in self.parse(self.raw, self.first) if example is not None]

    def numbered(self) -> list[tuple[int, Example]]:
        """The parsed examples with the numbers of their lines; raises as `examples`."""
        lines = enumerate(self.parse(self.raw, self.first), start=self.first)
        return [(number, example) for number, example in lines if example is not None]


class Source(ABC):
    """Examples that can be read any number of times; the fingerprint changes when they do."""

    name: str
    weight: float
    fingerprint: str
    size: int | None
    """Number of examples, where it is known without reading them."""
    invalid: Sequence[list[int]] = ()
    """By file, the numbers of the lines that were not UTF-8 when it was last read."""

    @abstractmethod
    def chunks(self, start: Position = None) -> Iterator[Chunk]:
        """The examples from the beginning, or from the end of an earlier chunk."""

    def __iter__(self) -> Iterator[Example]:
        for chunk in self.chunks():
            yield from chunk.examples()
