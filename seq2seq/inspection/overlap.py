"""The overlap of a training corpus with its validation and test sets: equal examples, before or after normalisation.

Training calls `find_overlap` when it starts, and the model card reports the result. `s2s check` queries the same
`HeldOut` block by block. Only the held-out sets are kept in memory; training examples are streamed.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from seq2seq.data.examples import Example
from seq2seq.errors import counted

# Levels from the weakest to the strongest; of several matches the strongest counts.
LEVELS = ("near", "normalised", "exact")
EXAMPLES_KEPT = 3
_NONE: set[tuple[str, int]] = set()


@dataclass(frozen=True)
class SharedExample:
    """A training example that repeats a held-out example, or one side of it.

    Both are numbered from 1: by examples, but by the lines of their files in a report of `s2s check`.
    """

    kind: str
    """`pair_`, `source_` or `target_` with one of LEVELS. A text of classification, with any label, is a pair."""
    held_out_number: int
    train_number: int
    similarity: float
    held_out: tuple[str, ...]
    train: tuple[str, ...]
    train_corpus: str = "train"
    """The name of the corpus that has the training example, such as `train.1`."""

    @property
    def strength(self) -> tuple[int, float]:
        """The sort key of the matches of one held-out example."""
        return LEVELS.index(self.kind.split("_")[1]), self.similarity


@dataclass(frozen=True)
class Overlap:
    """The numbers of examples of one held-out set that training contains.

    Each pair, source and target counts once, for the strongest kind that applies.
    """

    size: int
    pair_exact: int = 0
    pair_normalised: int = 0
    pair_near: int = 0
    source_exact: int = 0
    source_normalised: int = 0
    target_exact: int = 0
    target_normalised: int = 0
    examples: tuple[SharedExample, ...] = ()

    @property
    def pairs(self) -> int:
        """The number of exact and normalised pairs."""
        return self.pair_exact + self.pair_normalised

    def counts(self) -> dict[str, int]:
        """Return the numbers of the kinds that occur."""
        return {kind: count for kind, count in vars(self).items() if "_" in kind and count}


def find_overlap(train: Iterable[Example], held_out: Mapping[str, Iterable[Example]]) -> dict[str, Overlap]:
    """Return the overlap of each held-out set with `train`, which is read once.

    The examples are all `Pair`s, or all `LabelledText`s.
    """
    sets = HeldOut(held_out)
    matches = Matches()
    for number, example in enumerate(train, start=1):
        texts = example.texts
        matches.add(sets.matches(number, texts, tuple(map(normalise, texts))))
    return matches.overlaps(sets)


def overlap_warning(overlaps: Mapping[str, Overlap]) -> str | None:
    """Return a line on the sets of which training contains pairs or texts, or None."""
    shared = [
        f"{overlap.pairs:,} of {counted(overlap.size, 'example')} of {name}"
        for name, overlap in overlaps.items()
        if overlap.pairs
    ]
    if not shared:
        return None
    return (
        f"training contains {' and '.join(shared)} (equal, or equal without case, punctuation and space), so scores on "
        "them will be too high; s2s check lists them"
    )


class HeldOut:
    """An index of the held-out sets by the normalised text of each side."""

    def __init__(self, held_out: Mapping[str, Iterable[Example]]):
        self.sets = {name: [example.texts for example in examples] for name, examples in held_out.items()}
        self._by_text: tuple[dict[str, set[tuple[str, int]]], ...] = ({}, {})
        for name, examples in self.sets.items():
            for index, texts in enumerate(examples):
                self._add((name, index), texts)

    def _add(self, place: tuple[str, int], texts: tuple[str, ...]) -> None:
        """Add an example to the index; a side that is empty after normalisation is left out."""
        for by_text, text in zip(self._by_text, texts, strict=False):
            if key := folded(normalise(text)):
                by_text.setdefault(key, set()).add(place)

    def matches(
        self, number: int, texts: tuple[str, ...], normalised: tuple[str, ...]
    ) -> Iterator[tuple[str, SharedExample]]:
        """Yield the held-out examples that a training example repeats, each with the name of its set."""
        equal = [by_text.get(folded(text), _NONE) for by_text, text in zip(self._by_text, normalised, strict=False)]
        if not any(equal):
            return
        kinds = {"pair": (set.intersection(*equal), slice(None))}
        if len(texts) == 2:
            kinds |= {"source": (equal[0], slice(0, 1)), "target": (equal[1], slice(1, 2))}
        for kind, (places, sides) in kinds.items():
            for name, index in places:
                held_out = self.sets[name][index]
                level = "exact" if held_out[sides] == texts[sides] else "normalised"
                yield name, SharedExample(f"{kind}_{level}", index + 1, number, 1.0, held_out, texts)


class Matches:
    """The strongest match of each held-out example; of equally strong matches the first."""

    def __init__(self, matches: Iterable[tuple[str, SharedExample]] = ()) -> None:
        self._best: dict[tuple[str, str, int], SharedExample] = {}
        self.add(matches)

    def add(self, matches: Iterable[tuple[str, SharedExample]]) -> None:
        """Add matches, each with the name of its set, in the order of the training corpus."""
        for name, match in matches:
            key = (name, match.kind.split("_")[0], match.held_out_number)
            if key not in self._best or match.strength > self._best[key].strength:
                self._best[key] = match

    def __iter__(self) -> Iterator[tuple[str, SharedExample]]:
        return ((name, match) for (name, _, _), match in self._best.items())

    def overlaps(self, sets: HeldOut) -> dict[str, Overlap]:
        """Return the overlap of each held-out set."""
        overlaps = {}
        for name, examples in sets.sets.items():
            matches = sorted((m for n, m in self if n == name), key=lambda match: match.held_out_number)
            counts = Counter(match.kind for match in matches)
            shown = [m for kind in vars(Overlap(0)) for m in [m for m in matches if m.kind == kind][:EXAMPLES_KEPT]]
            overlaps[name] = Overlap(len(examples), **counts, examples=tuple(shown))
        return overlaps


def normalise(text: str) -> str:
    """Return `text` in lower case and ordinary width, without punctuation and space.

    `augment` stores a fingerprint of such lines, so this form stays as it is.
    """
    return (text if text.isascii() else unicodedata.normalize("NFC", text)).translate(_NORMALISED)


def folded(normalised: str) -> str:
    """Return a normalised text in a form that is the same for lower case and capitals in all alphabets: "ß" is "ss"."""
    return normalised if normalised.isascii() else unicodedata.normalize("NFC", normalised.casefold())


class _NormalisedCharacters(dict):
    """A table for `str.translate` that `normalise` uses; it is filled when characters occur."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        is_kept = unicodedata.category(character)[0] in "LMN"
        self[code] = unicodedata.normalize("NFKC", character).lower() if is_kept else None
        return self[code]


_NORMALISED = _NormalisedCharacters()
