"""What a training corpus shares with the sets it is judged by: pairs that are equal, equal but for dress, or nearly so.

Training calls `find_overlap` when it starts and the model card keeps the answer; `s2s check` scans with the same
`OverlapIndex` in several processes. Memory grows with the held-out sets alone.

Near-duplicates are pairs whose sets of character n-grams (both sides together, normalised) have a Jaccard similarity
of at least 0.7. Candidates share some longer runs of characters, of which a held-out pair is looked up by its rarer
ones alone; each candidate is then compared in full. On Tatoeba 110 of the 111 that a full comparison finds are found.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from seq2seq.data.spans import Example, Pair
from seq2seq.errors import counted
from seq2seq.inspection.characters import IDEOGRAPH, LETTER, TextBlock, mix
from seq2seq.processes import in_processes

KINDS = (
    "pair_exact", "pair_normalised", "pair_near", "source_exact", "source_normalised", "target_exact",
    "target_normalised",
)  # fmt: skip
PAIR_EXACT, PAIR_NORMALISED, PAIR_NEAR = 0, 1, 2
NEAR_SIMILARITY = 0.7
# Fewer n-grams say little: "Thank you." is near to much.
FEWEST_NGRAMS = 8
# Characters of an n-gram and of a run: of letters, and of ideographs.
NGRAM, RUN = (4, 2), (10, 4)
RUNS_SHARED = 3
# The rarer runs of a pair, by which candidates are found: frequent ones bring thousands that are not alike.
RARE_SHARE = 0.6
# Runs that a training line may share with held-out pairs, on average; the most frequent ones are left out beyond it.
MATCHES_PER_LINE = 40
BLOCK_EXAMPLES = 8192
BLOCKS_WORTH_A_POOL = 12
EXAMPLES_KEPT = 3
FREQUENCY_SHIFT = np.uint64(44)  # frequencies are kept in 2^20 places
_TARGET_SALT = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True)
class OverlapExample:
    """A held-out example and the training example that it repeats; both count from 1."""

    kind: str
    held_out_number: int
    train_number: int
    similarity: float
    held_out: tuple[str, ...]
    train: tuple[str, ...]


@dataclass(frozen=True)
class Overlap:
    """How many examples of one held-out set training sees too; each pair, source and target counts once, as the first
    kind that holds. In classification a pair is a text, whatever its label, and there are no sources and targets."""

    size: int
    pair_exact: int
    pair_normalised: int
    """Equal without case, punctuation and space."""
    pair_near: int
    source_exact: int
    source_normalised: int
    target_exact: int
    target_normalised: int
    examples: tuple[OverlapExample, ...] = ()

    @property
    def share(self) -> float:
        """Share of the set that training holds as it is, or but for case, punctuation and space."""
        return (self.pair_exact + self.pair_normalised) / max(self.size, 1)

    def __bool__(self) -> bool:
        return any(getattr(self, kind) for kind in KINDS)

    def __str__(self) -> str:
        found = [f"{getattr(self, kind):,} {kind.replace('_', ' ')}" for kind in KINDS if getattr(self, kind)]
        return f"{', '.join(found) or 'none'} of {self.size:,}"


def find_overlap(
    train: Iterable[Example], held_out: Mapping[str, Iterable[Example]], num_workers: int = 1
) -> dict[str, Overlap]:
    """What each held-out set shares with `train`, which is read once and never held.

    All examples are `Pair`s, or all are `LabelledText`s (whose labels are not looked at). `num_workers` 0 is a process
    for each processor.
    """
    iterator = iter(train)
    sample = list(islice(iterator, BLOCK_EXAMPLES))
    index = OverlapIndex({name: list(examples) for name, examples in held_out.items()}, sample)
    found = OverlapFound(index)
    for hits in in_processes(_Scan(index), _blocks(chain(sample, iterator)), num_workers, BLOCKS_WORTH_A_POOL):
        found.add(hits)
    return found.summary()


@dataclass(frozen=True)
class _Scan:
    """Scans one block after the other, perhaps in a process of its own."""

    index: "OverlapIndex"

    def __call__(self, block: tuple[int, list[str], list[str] | None]) -> "Hits":
        return self.index.scan(*block)


def overlap_warning(overlaps: Mapping[str, Overlap]) -> str | None:
    """One line for the sets that training holds pairs of, or None."""
    shared = [
        f"{overlap.pair_exact + overlap.pair_normalised + overlap.pair_near:,} of "
        f"{counted(overlap.size, 'example')} of {name}"
        for name, overlap in overlaps.items()
        if overlap.pair_exact or overlap.pair_normalised or overlap.pair_near
    ]
    if not shared:
        return None
    return (
        f"training holds {' and '.join(shared)}, equal or nearly equal, so scores on them will be too high; s2s check "
        "lists them"
    )


@dataclass(frozen=True)
class Hits:
    """What a block of training examples shares with the held-out sets: one entry for each kind and held-out example."""

    kinds: np.ndarray
    owners: np.ndarray
    """The held-out examples."""
    numbers: np.ndarray
    """The training examples, from 1."""
    similarities: np.ndarray
    texts: dict[tuple[int, int], tuple[str, ...]]
    """Training texts of a few entries, by (kind, owner)."""


class OverlapIndex:
    """The held-out sets, hashed: what each block of training examples is compared with."""

    def __init__(self, held_out: Mapping[str, Sequence[Example]], sample: Sequence[Example] = ()):
        """`sample` are some training examples, by which it is known what is rare."""
        self.names = tuple(held_out)
        self.sizes = np.array([len(examples) for examples in held_out.values()], dtype=np.int64)
        self.examples = [_sides(example) for examples in held_out.values() for example in examples]
        self.set_of = np.repeat(np.arange(len(self.names)), self.sizes)
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.is_empty = not self.examples
        if self.is_empty:
            return
        blocks = [TextBlock([sides[side] for sides in self.examples]) for side in range(len(self.examples[0]))]
        self._sizes = [NGRAM[_is_ideographic(block)] for block in blocks]
        self._runs = [RUN[_is_ideographic(block)] for block in blocks]
        owners = np.arange(len(self.examples))
        self._lookups = []
        for hashes in _line_hashes(blocks):
            told = hashes != 0
            self._lookups.append(_Lookup(hashes[told], owners[told]))
        sides = zip(*map(_sides, sample), strict=True)
        self._index_ngrams(blocks, [TextBlock(lines) for lines in sides] or blocks)

    def scan(
        self, first_number: int, sources: Sequence[str], targets: Sequence[str] | None, skip: str | None = None
    ) -> Hits:
        """The hits of training examples `first_number`, ...; the set named `skip` is passed over."""
        nothing = np.zeros(0, np.int64)
        if self.is_empty or not sources:
            return Hits(nothing, nothing, nothing, nothing.astype(np.float32), {})
        blocks = [TextBlock(sources), *([TextBlock(targets)] if targets is not None else [])]
        columns = [
            (np.full(len(lines), kind), owners, lines, np.ones(len(lines), np.float32))
            for kind, lookup, hashes in zip(_hash_kinds(len(blocks)), self._lookups, _line_hashes(blocks), strict=True)
            for lines, owners in [lookup.match(hashes)]
        ]
        lines, owners, similarities = self._near(blocks)
        columns.append((np.full(len(lines), PAIR_NEAR), owners, lines, similarities))
        kinds, owners, lines, similarities = (np.concatenate(column) for column in zip(*columns, strict=True))
        if skip is not None:
            others = self.set_of[owners] != self.names.index(skip)
            kinds, owners, lines, similarities = (c[others] for c in (kinds, owners, lines, similarities))
        # The most similar line of each held-out example, and of equal ones the first.
        order = np.lexsort((lines, -similarities, owners, kinds))
        kinds, owners, lines, similarities = (c[order] for c in (kinds, owners, lines, similarities))
        first = np.append(True, (np.diff(kinds) != 0) | (np.diff(owners) != 0))[: len(kinds)]
        kinds, owners, lines, similarities = (c[first] for c in (kinds, owners, lines, similarities))
        texts = self._some_texts(kinds, owners, lines, [sources, *([targets] if targets is not None else [])])
        return Hits(kinds, owners, lines + first_number, similarities, texts)

    def _index_ngrams(self, blocks: Sequence[TextBlock], sample: Sequence[TextBlock]) -> None:
        ngrams, owners = _distinct(*_ngrams(blocks, self._sizes))
        self._num_ngrams = np.bincount(owners, minlength=len(self.examples))
        self._members = np.sort(_membership(ngrams, owners))
        runs, owners = _distinct(*_ngrams(blocks, self._runs))
        sampled = (_ngrams(sample, self._runs)[0] >> FREQUENCY_SHIFT).astype(np.int64)
        frequencies = np.bincount(sampled, minlength=1 << 20)[runs >> FREQUENCY_SHIFT]
        num_runs = np.bincount(owners, minlength=len(self.examples))
        order = np.lexsort((runs, frequencies, owners))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(num_runs) - num_runs, num_runs)
        chosen = order[rank < np.repeat(np.ceil(RARE_SHARE * num_runs), num_runs)]
        chosen = chosen[self._num_ngrams[owners[chosen]] >= FEWEST_NGRAMS]
        chosen = chosen[np.argsort(frequencies[chosen], kind="stable")]
        chosen = chosen[np.cumsum(frequencies[chosen]) <= MATCHES_PER_LINE * max(len(sample[0]), 1000)]
        self._rare = _Lookup(runs[chosen], owners[chosen])

    def _near(self, blocks: Sequence[TextBlock]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(line, held-out example, similarity) of every near-duplicate, equal ones among them."""
        runs, run_lines = _ngrams(blocks, self._runs)
        places, owners = self._rare.match(runs)
        pairs, counts = np.unique(run_lines[places].astype(np.int64) * len(self.examples) + owners, return_counts=True)
        pairs = pairs[counts >= RUNS_SHARED]
        lines_near, owners_near = pairs // len(self.examples), pairs % len(self.examples)
        ngrams, lines = _ngrams(blocks, self._sizes)
        lines_near, owners_near, similarities = self._compare(ngrams, lines, lines_near, owners_near)
        near = similarities >= NEAR_SIMILARITY - 1e-6
        return lines_near[near], owners_near[near], similarities[near]

    def _compare(
        self, ngrams: np.ndarray, lines: np.ndarray, chosen: np.ndarray, owners: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(line, held-out example, Jaccard similarity) of the candidates whose sizes allow a high one."""
        num_lines = int(lines.max(initial=0)) + 1
        wanted = np.zeros(num_lines, dtype=bool)
        wanted[chosen] = True
        distinct, distinct_lines = _distinct(ngrams[wanted[lines]], lines[wanted[lines]])
        counts = np.bincount(distinct_lines, minlength=num_lines)
        smaller = np.minimum(counts[chosen], self._num_ngrams[owners])
        possible = smaller >= NEAR_SIMILARITY * np.maximum(counts[chosen], self._num_ngrams[owners])
        chosen, owners = chosen[possible], owners[possible]
        sizes = counts[chosen]
        places = _ranges((np.cumsum(counts) - counts)[chosen], sizes)
        keys = _membership(distinct[places], np.repeat(owners, sizes))
        found = np.searchsorted(self._members, keys)
        is_member = self._members[np.minimum(found, len(self._members) - 1)] == keys
        shared = np.bincount(np.repeat(np.arange(len(chosen)), sizes)[is_member], minlength=len(chosen))
        similarities = shared / np.maximum(sizes + self._num_ngrams[owners] - shared, 1)
        return chosen, owners, similarities.astype(np.float32)

    def _some_texts(
        self, kinds: np.ndarray, owners: np.ndarray, lines: np.ndarray, sides: Sequence[Sequence[str]]
    ) -> dict[tuple[int, int], tuple[str, ...]]:
        texts: dict[tuple[int, int], tuple[str, ...]] = {}
        for kind in range(len(KINDS)):
            for place in range(len(self.names)):
                for row in np.flatnonzero((kinds == kind) & (self.set_of[owners] == place))[: 4 * EXAMPLES_KEPT]:
                    texts[kind, int(owners[row])] = tuple(side[int(lines[row])] for side in sides)
        return texts


class OverlapFound:
    """The hits of all blocks together; blocks come in the order of the corpus."""

    def __init__(self, index: OverlapIndex):
        self._index = index
        shape = (len(KINDS), len(index.examples))
        self._numbers = np.zeros(shape, dtype=np.int64)
        self._similarities = np.zeros(shape, dtype=np.float32)
        self._texts: dict[tuple[int, int], tuple[str, ...]] = {}

    def add(self, hits: Hits) -> None:
        """Take the hits of one more block; the more similar training example wins, and of equal ones the first."""
        better = hits.similarities > self._similarities[hits.kinds, hits.owners]
        kinds, owners = hits.kinds[better], hits.owners[better]
        self._similarities[kinds, owners] = hits.similarities[better]
        self._numbers[kinds, owners] = hits.numbers[better]
        for key in zip(kinds.tolist(), owners.tolist(), strict=True):
            self._texts.pop(key, None)
            if key in hits.texts:
                self._texts[key] = hits.texts[key]

    def summary(self) -> dict[str, Overlap]:
        """The overlap of each held-out set."""
        found = self._numbers > 0
        found[PAIR_NORMALISED] &= ~found[PAIR_EXACT]
        found[PAIR_NEAR] &= ~(found[PAIR_EXACT] | found[PAIR_NORMALISED])
        for exact in (3, 5):
            found[exact + 1] &= ~found[exact]
        bounds = zip(self._index.offsets[:-1], self._index.offsets[1:], strict=True)
        return {
            name: Overlap(
                stop - start, *found[:, start:stop].sum(axis=1).tolist(), tuple(self._examples(found, start, stop))
            )
            for name, (start, stop) in zip(self._index.names, ((int(a), int(b)) for a, b in bounds), strict=True)
        }

    def _examples(self, found: np.ndarray, start: int, stop: int) -> Iterator[OverlapExample]:
        for kind, name in enumerate(KINDS):
            shown = [row for row in start + np.flatnonzero(found[kind, start:stop]) if (kind, int(row)) in self._texts]
            for row in map(int, shown[:EXAMPLES_KEPT]):
                number, similarity = int(self._numbers[kind, row]), round(float(self._similarities[kind, row]), 3)
                held_out, train = self._index.examples[row], self._texts[kind, row]
                yield OverlapExample(name, row - start + 1, number, similarity, held_out, train)


class _Lookup:
    """Keys with owners, many of either; most keys that are not there are told by a table that fits a cache."""

    def __init__(self, keys: np.ndarray, owners: np.ndarray):
        order = np.argsort(keys, kind="stable")
        self._keys, self._owners = keys[order], owners[order]
        bits = min(max(int(len(keys) * 16).bit_length(), 10), 22)
        self._shift = np.uint64(64 - bits)
        self._present = np.zeros(1 << bits, dtype=bool)
        self._present[keys >> self._shift] = True

    def match(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(place in `keys`, owner) of every match."""
        places = np.flatnonzero(self._present[keys >> self._shift])
        keys = keys[places]
        left = np.searchsorted(self._keys, keys)
        counts = np.searchsorted(self._keys, keys, side="right") - left
        return np.repeat(places, counts), self._owners[_ranges(left, counts)]


def _blocks(examples: Iterable[Example]) -> Iterator[tuple[int, list[str], list[str] | None]]:
    iterator, number = iter(examples), 1
    while block := list(islice(iterator, BLOCK_EXAMPLES)):
        columns = list(zip(*map(_sides, block), strict=True))
        yield number, list(columns[0]), list(columns[1]) if len(columns) == 2 else None
        number += len(block)


def _sides(example: Example) -> tuple[str, ...]:
    return (example.source, example.target) if isinstance(example, Pair) else (example.text,)


def _is_ideographic(block: TextBlock) -> bool:
    letters = (block.flags & LETTER != 0).sum()
    return bool(2 * (block.flags & IDEOGRAPH != 0).sum() > letters)


def _hash_kinds(num_sides: int) -> tuple[int, ...]:
    return (0, 1, 3, 4, 5, 6) if num_sides == 2 else (0, 1)


def _line_hashes(blocks: Sequence[TextBlock]) -> list[np.ndarray]:
    """Hashes in the order of `_hash_kinds`; 0 where nothing but punctuation and space is left of a line."""
    exact = [block.whole.hashes() for block in blocks]
    normalised = [np.where(block.normalised.lengths > 0, block.normalised.hashes(), np.uint64(0)) for block in blocks]
    exact = [np.where(some != 0, whole, np.uint64(0)) for whole, some in zip(exact, normalised, strict=True)]
    if len(blocks) == 1:
        return [exact[0], normalised[0]]
    pairs = [_combined(*sides) for sides in (exact, normalised)]
    return [*pairs, exact[0], normalised[0], exact[1], normalised[1]]


def _combined(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    return np.where((source != 0) & (target != 0), mix(source ^ mix(target ^ _TARGET_SALT)), np.uint64(0))


def _ngrams(blocks: Sequence[TextBlock], sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    parts = [block.normalised.ngrams(size) for block, size in zip(blocks, sizes, strict=True)]
    if len(parts) == 2:
        parts[1] = (parts[1][0] ^ _TARGET_SALT, parts[1][1])
    return np.concatenate([ngrams for ngrams, _ in parts]), np.concatenate([lines for _, lines in parts])


def _distinct(ngrams: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each n-gram once an owner, ordered by owner."""
    order = np.lexsort((ngrams, owners))
    ngrams, owners = ngrams[order], owners[order]
    first = np.append(True, (np.diff(owners) != 0) | (np.diff(ngrams) != 0))[: len(ngrams)]
    return ngrams[first], owners[first]


def _membership(ngrams: np.ndarray, owners: np.ndarray) -> np.ndarray:
    return mix(ngrams ^ mix(owners.astype(np.uint64) + np.uint64(1)))


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """start, start + 1, ... of each range, one after the other."""
    begins = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(begins - starts, counts)
