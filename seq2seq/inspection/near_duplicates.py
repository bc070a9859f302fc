"""The search for near-duplicates of held-out examples in training corpora, for `s2s check`.

Two examples are near-duplicates if their sets of character n-grams (one set for each side, of normalised text) have a
Jaccard similarity of at least 0.7. Candidates share longer runs of characters: a held-out example is indexed by the
rarer runs of its source, a training example is looked up by every third of its runs, and each candidate is compared.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from seq2seq.data.examples import Example
from seq2seq.inspection.overlap import HeldOut, SharedExample, normalise
from seq2seq.text.writing import UNSPACED_SCRIPTS, script_of

NEAR_SIMILARITY = 0.7
# Examples with fewer n-grams are not compared, because short texts such as "Thank you." resemble many others.
FEWEST_NGRAMS = 8
# Characters of an n-gram and of a run; ideographic words have fewer characters.
NGRAM, RUN = 4, 10
IDEOGRAPHIC_NGRAM, IDEOGRAPHIC_RUN = 2, 4
STRIDE = 3
# Frequent runs would give thousands of candidates that are not similar. So these limit the average number of indexed
# runs in a training example, and the share of its indexed runs that a held-out example must share with a candidate.
# With these values, 110 of the 111 near-duplicates that a full comparison finds in Tatoeba are found.
MATCHES_PER_EXAMPLE = 2
LEAST_SHARED = 1 / 5


class NearDuplicates:
    """An index of the held-out sets by their rarer runs of characters.

    Args:
        held_out: held-out sets.
        sample: training examples from which the frequencies of runs are taken.
    """

    def __init__(self, held_out: HeldOut, sample: Sequence[Example]):
        self._held_out = [
            (name, i, texts) for name, examples in held_out.sets.items() for i, texts in enumerate(examples)
        ]
        normalised = [tuple(map(normalise, texts)) for _, _, texts in self._held_out]
        self._is_ideographic = [
            script_of("".join(texts[side] for texts in normalised if len(texts) > side)) in UNSPACED_SCRIPTS
            for side in (0, 1)
        ]
        self._lengths = [max(len("".join(texts)), 1) for texts in normalised]
        self._held_out_ngrams = list(map(self._ngrams, normalised))
        frequencies = Counter(run for example in sample for run in self._runs(normalise(example.texts[0]), STRIDE))
        entries = []
        for owner, (texts, ngrams) in enumerate(zip(normalised, self._held_out_ngrams, strict=True)):
            if sum(map(len, ngrams)) >= FEWEST_NGRAMS:
                entries += [(frequencies[run], run, owner) for run in set(self._runs(texts[0], 1))]
        matches_left = MATCHES_PER_EXAMPLE * max(len(sample), 1000)
        self._owners: dict[str, list[int]] = {}
        for frequency, run, owner in sorted(entries):
            matches_left -= frequency
            if matches_left < 0:
                break
            self._owners.setdefault(run, []).append(owner)
        num_indexed = Counter(chain.from_iterable(self._owners.values()))
        self._least_shared = [int(LEAST_SHARED / STRIDE * num_indexed[owner]) for owner in range(len(normalised))]

    def matches(
        self, number: int, texts: tuple[str, ...], normalised: tuple[str, ...]
    ) -> Iterator[tuple[str, SharedExample]]:
        """Yield the held-out examples that are similar or equal to training example `number`, with their sets."""
        owners_of_runs = list(filter(None, map(self._owners.get, self._runs(normalised[0], STRIDE))))
        if not owners_of_runs:
            return
        length = len("".join(normalised))
        ngrams: list[frozenset[str]] = []
        for owner, shared in Counter(chain.from_iterable(owners_of_runs)).items():
            if shared < self._least_shared[owner] or not 0.6 < length / self._lengths[owner] < 1 / 0.6:
                continue
            ngrams = ngrams or self._ngrams(normalised)
            if (similarity := _similarity(ngrams, self._held_out_ngrams[owner])) >= NEAR_SIMILARITY:
                name, index, held_out = self._held_out[owner]
                yield name, SharedExample("pair_near", index + 1, number, round(similarity, 3), held_out, texts)

    def _runs(self, source: str, stride: int) -> list[str]:
        size = IDEOGRAPHIC_RUN if self._is_ideographic[0] else RUN
        return [source[first : first + size] for first in range(0, len(source) - size + 1, stride)]

    def _ngrams(self, texts: tuple[str, ...]) -> list[frozenset[str]]:
        return [
            frozenset(text[first : first + size] for first in range(len(text) - size + 1))
            for text, is_ideographic in zip(texts, self._is_ideographic, strict=False)
            for size in (IDEOGRAPHIC_NGRAM if is_ideographic else NGRAM,)
        ]


def _similarity(first: Sequence[frozenset[str]], second: Sequence[frozenset[str]]) -> float:
    """Return the Jaccard similarity of the n-grams of both sides together."""
    shared = sum(len(a & b) for a, b in zip(first, second, strict=True))
    return shared / (sum(map(len, first)) + sum(map(len, second)) - shared)
