"""Corpora of models of many directions: the direction of each example, its tags, and its share of an epoch.

`tasks` opens the corpora of a configuration with `open_set` and `open_training`. A source for training has one
direction, so that the parts of a corpus have one too.
"""

import functools
import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.directions import LanguagesConfig, Sides
from seq2seq.data.examples import Chunk, Example, Pair, Position, Source
from seq2seq.data.sources import case_rules, open_pairs, with_noise
from seq2seq.data.stages import Part
from seq2seq.errors import DataError
from seq2seq.text.direction import Direction
from seq2seq.text.tokenizer import TokenizerPair

VOCABULARY_TEMPERATURE = 5.0

Group = TypeVar("Group", bound=Hashable)
Parse = Callable[[Any, int], list[Example | None]]


class DirectedSource(Source):
    """The pairs of a source in one direction.

    Args:
        source: pairs with a direction of their own, of which only those in `sides` are taken, or without one.
        sides: the direction.
        is_reversed: whether the sides of the pairs are exchanged, so that they have the direction `sides`.
    """

    def __init__(self, source: Source, sides: Sides, is_reversed: bool = False):
        self._source, self.direction, self.is_reversed = source, sides, is_reversed
        self.name, self.weight, self.size = source.name, source.weight, source.size
        self.tag = None if is_reversed else source.tag  # a tag marks sources; as a target it would be learned
        self._lost = source.tag if is_reversed else None
        self.fingerprint = self._known_as(source.fingerprint)

    @property
    def former(self) -> str:
        """The fingerprint in earlier versions, made from that of the source."""
        return self._known_as(self._source.former)

    def _known_as(self, fingerprint: str) -> str:
        lost = f" without {self._lost}" if self._lost else ""
        known = f"{fingerprint} {list(self.direction)} {self.is_reversed}{lost}"
        return hashlib.sha256(known.encode()).hexdigest()

    @property
    def invalid(self):
        """Lines that were not UTF-8, as in `Source`."""
        return self._source.invalid

    def chunks(self, start: Position = None) -> Iterator[Chunk]:
        """Yield the pairs, as `Source.chunks` does."""
        for chunk in self._source.chunks(start):
            yield replace(
                chunk, parse=functools.partial(_directed, chunk.parse, self.direction, self.is_reversed, self._lost)
            )


def _directed(
    parse: Parse, sides: Sides, is_reversed: bool, lost: str | None, raw: Any, first: int
) -> list[Example | None]:
    found: list[Example | None] = []
    for pair in parse(raw, first):
        if isinstance(pair, Pair):
            texts, own = pair.without(lost).texts[:: -1 if is_reversed else 1], pair.direction or sides
            own = own[::-1] if is_reversed and pair.direction else own
            found.append(Pair(*texts, sides) if own == sides else None)
        else:
            found.append(None)
    return found


def open_set(source: SourceConfig, languages: LanguagesConfig, name: str = "", cache: Path | None = None) -> Source:
    """Open a validation or test set; its pairs have their direction.

    Raises:
        DataError: as `open_pairs` does; or a line has no language, or one that the model does not have.
    """
    if (sides := languages.sides_of(source, name)) is not None:
        return DirectedSource(open_pairs(source, *sides, cache), sides)
    return open_pairs(source, "", "", cache, languages)


def open_named(
    source: SourceConfig, name: str, languages: LanguagesConfig | None, sides: tuple[str | None, str | None]
) -> Source:
    """Open a set of a configuration with `languages`, or with a single direction `sides`."""
    if languages is not None:
        return open_set(source, languages, name)
    return open_pairs(source, sides[0] or "", sides[1] or "")


def open_training(source: SourceConfig, languages: LanguagesConfig, cache: Path | None = None) -> list[Source]:
    """Open a training corpus as one source for each of its directions.

    Noise is drawn after the sides are exchanged, because some kinds change only the source.

    Raises:
        DataError: as `open_set` does; or a reverse direction is not possible with `languages`.
    """
    sides, clean = languages.sides_of(source), source.model_copy(update={"noise": None})
    whole = open_set(clean, languages, "", cache) if sides is None else open_pairs(clean, *sides, cache)
    plain = _occurring(whole) if sides is None else [sides]
    forward = [
        DirectedSource(with_noise(whole, source, case_rules(source, one) if sides is None else one), one)
        for one in plain
    ]
    if not source.both_ways:
        return forward
    for one in plain:
        if problem := languages.problem_of_reverse(one[::-1]):
            raise DataError(f"{whole.name}: {problem}")
    backward = [DirectedSource(whole, one[::-1], is_reversed=True) for one in plain]
    return [*forward, *(with_noise(one, source, one.direction) for one in backward)]


def _occurring(source: Source) -> list[Sides]:
    found = {pair.direction: None for pair in source if isinstance(pair, Pair) and pair.direction}
    return sorted(found)


class RowTags:
    """The tags of the examples of a corpus, by index.

    Args:
        tokenizers: of the model, for all directions.
        directions: the direction of each run of examples.
        sizes: the number of examples in each run.
    """

    def __init__(self, tokenizers: TokenizerPair, directions: Sequence[Sides], sizes: Sequence[int]):
        numbers = {sides: number for number, sides in enumerate(dict.fromkeys(directions))}
        tags = [tokenizers.tags_of(Direction(*sides)) for sides in numbers]
        self.numbers = np.repeat(np.array([numbers[sides] for sides in directions], np.uint16), sizes)  # (N,)
        self._before, self._start = (np.array(side, np.int64) for side in zip(*tags, strict=True))  # (D, tags)

    def __call__(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tags that sources begin with, and those after the decoder's start, (B, tags) each."""
        numbers = self.numbers[indices]
        return self._before[numbers], self._start[numbers]


def tempered(parts: Sequence[Part], directions: Sequence[Sides], temperature: float) -> list[Part]:
    """Return the parts of a corpus with the weights that give a direction a share of size^(1/temperature).

    The number of pairs in an epoch stays the same, except for the weights that the parts have already. Parts without
    weight, which a stage does not see, do not count for the size of a direction.
    """
    sizes = sizes_of(parts, directions)
    shares = {sides: size ** (1 / temperature) for sides, size in sizes.items()}
    total, sum_of_shares = sum(sizes.values()), sum(shares.values())
    factors = {sides: total * shares[sides] / sum_of_shares / max(size, 1) for sides, size in sizes.items()}
    if temperature == 1:
        factors = dict.fromkeys(factors, 1.0)
    return [
        (start, stop, weight * factors[sides]) for (start, stop, weight), sides in zip(parts, directions, strict=True)
    ]


def vocabulary_repeats(sources: Sequence[Source]) -> list[float]:
    """Return how often each text of a source occurs in the training of a tokenizer, so that small languages get pieces
    of their own (Arivazhagan et al. 2019, section 5, use the same temperature)."""
    sizes = [source.size if source.size is not None else sum(1 for _ in source) for source in sources]
    parts = [(0, size, 1.0) for size in sizes]
    return [weight for _, _, weight in tempered(parts, [one.direction for one in sources], VOCABULARY_TEMPERATURE)]


def sizes_of(parts: Sequence[Part], groups: Sequence[Group]) -> Mapping[Group, int]:
    """Return the number of examples of each group of parts, such as a direction; parts without weight do not count."""
    sizes: dict[Group, int] = defaultdict(int)
    for (start, stop, weight), group in zip(parts, groups, strict=True):
        sizes[group] += (stop - start) * (weight > 0)
    return sizes
