"""Held-out examples of which training has a near-duplicate: for `s2s check` alone.

Two examples are near-duplicates if their sets of character n-grams (each side has its own, of normalised text) have a
Jaccard similarity of at least 0.7. Candidates share longer runs of characters: a held-out example is indexed by its
rarer runs, a training example is looked up by every third of its runs, and each candidate is then compared in full.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from math import ceil

from seq2seq.data.spans import Example
from seq2seq.inspection.overlap import HeldOut, Match, normalise, texts_of

NEAR_SIMILARITY = 0.7
# Fewer n-grams say little: "Thank you." is near to much.
FEWEST_NGRAMS = 8
# Characters of an n-gram and of a run; a word of ideographs is shorter.
NGRAM, RUN = 4, 10
IDEOGRAPHIC_NGRAM, IDEOGRAPHIC_RUN = 2, 4
STRIDE = 3
# Frequent runs bring thousands of candidates that are not alike: the share of a held-out example's runs that are
# indexed, and how many of them a training example contains on average.
RARE_SHARE = 0.8
MATCHES_PER_EXAMPLE = 6
# A candidate shares at least this part of the indexed runs. With these values 110 of the 111 near-duplicates that a
# full comparison finds in Tatoeba are found.
LEAST_SHARED = 1 / 8


class NearDuplicates:
    """The held-out sets, by their rarer runs of characters.

    Args:
        held_out: the sets.
        sample: training examples that show which runs are rare.
    """

    def __init__(self, held_out: HeldOut, sample: Sequence[Example]):
        self._held_out = [
            (name, i, texts) for name, examples in held_out.sets.items() for i, texts in enumerate(examples)
        ]
        self._texts = [tuple(map(normalise, texts)) for _, _, texts in self._held_out]
        self._is_ideographic = [
            _is_ideographic("".join(texts[side] for texts in self._texts if len(texts) > side)) for side in (0, 1)
        ]
        frequencies = Counter(
            chain.from_iterable(self._runs(tuple(map(normalise, texts_of(example))), STRIDE) for example in sample)
        )
        entries = []
        for owner, texts in enumerate(self._texts):
            if sum(map(len, self._ngrams(texts))) >= FEWEST_NGRAMS:
                runs = sorted((frequencies[run], run) for run in set(self._runs(texts, 1)))
                entries += [(*entry, owner) for entry in runs[: ceil(RARE_SHARE * len(runs))]]
        matches_left = MATCHES_PER_EXAMPLE * max(len(sample), 1000)
        self._owners: defaultdict[str, list[int]] = defaultdict(list)
        for frequency, run, owner in sorted(entries):
            matches_left -= frequency
            if matches_left < 0:
                break
            self._owners[run].append(owner)
        num_indexed = Counter(chain.from_iterable(self._owners.values()))
        self._least_shared = [LEAST_SHARED / STRIDE * num_indexed[owner] for owner in range(len(self._texts))]

    def matches(self, number: int, example: Example) -> Iterator[tuple[str, Match]]:
        """The held-out examples, equal ones among them, that are near training example `number`."""
        train = texts_of(example)
        texts = tuple(map(normalise, train))
        owners = self._owners
        found = [owners[run] for run in self._runs(texts, STRIDE) if run in owners]
        for owner, shared in Counter(chain.from_iterable(found)).items() if found else ():
            if shared >= self._least_shared[owner] and (similarity := self._similarity(texts, self._texts[owner])):
                name, index, held_out = self._held_out[owner]
                yield name, Match("pair_near", index + 1, number, round(similarity, 3), held_out, train)

    def _similarity(self, texts: tuple[str, ...], held_out: tuple[str, ...]) -> float:
        """Jaccard similarity of the n-grams, or 0 where it is too low."""
        lengths = sorted((sum(map(len, texts)), sum(map(len, held_out))))
        if lengths[0] < 0.5 * lengths[1]:
            return 0.0
        sides = list(zip(self._ngrams(texts), self._ngrams(held_out), strict=True))
        shared = sum(len(first & second) for first, second in sides)
        similarity = shared / (sum(len(first) + len(second) for first, second in sides) - shared)
        return similarity if similarity >= NEAR_SIMILARITY else 0.0

    def _runs(self, texts: tuple[str, ...], stride: int) -> Iterable[str]:
        return [
            text[first : first + size]
            for text, is_ideographic in zip(texts, self._is_ideographic, strict=False)
            for size in (IDEOGRAPHIC_RUN if is_ideographic else RUN,)
            for first in range(0, len(text) - size + 1, stride)
        ]

    def _ngrams(self, texts: tuple[str, ...]) -> list[frozenset[str]]:
        return [
            _ngrams(text, IDEOGRAPHIC_NGRAM if is_ideographic else NGRAM)
            for text, is_ideographic in zip(texts, self._is_ideographic, strict=False)
        ]


@lru_cache(maxsize=1 << 14)
def _ngrams(text: str, size: int) -> frozenset[str]:
    return frozenset(text[first : first + size] for first in range(len(text) - size + 1))


def _is_ideographic(text: str) -> bool:
    return sum("\u2e80" <= character <= "\u9fff" or character >= "\U00020000" for character in text) > len(text) / 2
