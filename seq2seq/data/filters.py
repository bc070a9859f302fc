"""Filters of training examples: rules for the text and for its length in pieces, with counts of dropped examples.

`encoding` applies a filter in worker processes, so everything here can be pickled; the counts are shown to the user
and kept with the corpus.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from seq2seq.config.corpora import FilterConfig
from seq2seq.data.examples import Example, Examples, LabelledText, Pair

Item = TypeVar("Item")

# With at most this many pieces, a ratio means little: "Yes ." may well be three words in another language.
RATIO_FROM = 10


@dataclass
class FilterCounts:
    """Numbers of examples that were kept, and that each rule dropped."""

    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    tags: int = 0
    """Texts that contain the tag of a language, typed by people; they are read as text."""

    def drop(self, rule: str, count: int = 1) -> None:
        """Count examples that `rule` dropped."""
        if count:
            self.dropped[rule] = self.dropped.get(rule, 0) + count

    def keep(self, items: Iterable[Item], rules: Iterable[str | None]) -> list[Item]:
        """Return the items without a rule that drops them, and count the others."""
        kept = []
        for item, rule in zip(items, rules, strict=False):
            if rule is None:
                kept.append(item)
            else:
                self.drop(rule)
        return kept

    def add(self, other: "FilterCounts") -> None:
        """Add the counts of another chunk of the corpus."""
        self.kept += other.kept
        self.tags += other.tags
        for rule, count in other.dropped.items():
            self.drop(rule, count)

    @property
    def total(self) -> int:
        """Number of examples that were read."""
        return self.kept + sum(self.dropped.values())

    @property
    def rules(self) -> str:
        """The rules that dropped examples, each with their number."""
        return ", ".join(f"{rule} {count:,}" for rule, count in sorted(self.dropped.items()))

    def __str__(self) -> str:
        return f"{self.kept:,} of {self.total:,} kept" + (f" (dropped: {self.rules})" if self.dropped else "")


@dataclass(frozen=True)
class PairFilter:
    """The rules of a `FilterConfig`, for sentence pairs and labelled texts.

    The rules are tried in the order empty, copy, length, ratio, duplicate, and the first that holds is counted. All but
    the last depend on one example; `SeenBefore` finds duplicates, in the order of the corpus.
    """

    config: FilterConfig
    tags: Sequence[str] = ()
    """The tags before source texts (`Examples.tag`), which are not text."""

    @classmethod
    def of(cls, config: FilterConfig, sources: Iterable[Examples]) -> "PairFilter":
        """Return the rules for examples of these sources."""
        return cls(config, sorted({source.tag for source in sources if source.tag}))

    def rejects_text(self, example: Example) -> str | None:
        """Return the rule that drops an example because of its text, or None."""
        if isinstance(example, LabelledText):
            return None if example.text.strip() else "empty"
        for tag in self.tags:
            example = example.without(tag)
        source, target = example.source.strip(), example.target.strip()
        if not source or not target:
            return "empty"
        return "copy" if self.config.drop_copies and source == target else None

    def rejects_lengths(self, source_length: int, target_length: int | None = None) -> str | None:
        """Return the rule that drops an example of these lengths, in pieces without special ids, or None."""
        target_length = source_length if target_length is None else target_length
        shorter, longer = sorted((source_length, target_length))
        if shorter < self.config.min_length or longer > self.config.max_length:
            return "length"
        return "ratio" if longer > RATIO_FROM and longer > self.config.max_ratio * shorter else None


def example_key(example: Example) -> int:
    """Return 64 bits of a hash, as the identity of an example.

    Among 10 million different ones, two have the same key with a chance of 1 in 300,000. A text with probabilities of
    labels is another example than the same text with its likeliest label. The probabilities are left out, because those
    of the same text differ a little from batch to batch.
    """
    if isinstance(example, Pair):
        first, second, more = example.source, example.target, f"\n{example.direction}" if example.direction else ""
    else:
        first, second, more = example.text, example.label, "\nprobabilities" if example.probabilities else ""
    text = f"{first}\n{second}{more}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


class SeenBefore:
    """A growing set of 64-bit keys in sorted arrays: 8 bytes per key, instead of about 90 in a Python set."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []  # sorted, each more than twice as long as the next

    def first_time(self, keys: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return True for each key that is new, among these keys and all earlier ones, and add all of them."""
        keys = np.asarray(keys, dtype=np.uint64)
        is_new = np.zeros(len(keys), dtype=bool)
        unique, first_indices = np.unique(keys, return_index=True)
        is_new[first_indices] = True
        for run in self._runs:
            is_new &= run[np.minimum(np.searchsorted(run, keys), len(run) - 1)] != keys
        run = unique[is_new[first_indices]]
        while self._runs and 2 * len(run) >= len(self._runs[-1]):
            run = np.concatenate([self._runs.pop(), run])
            run.sort(kind="stable")  # merges two sorted halves
        if len(run):
            self._runs.append(run)
        return is_new
