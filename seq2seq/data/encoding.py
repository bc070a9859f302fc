"""Text to ids in bulk: spans of examples in, filtered and tokenised blocks out, in order, by several processes.

`corpus` writes the blocks to disk.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from seq2seq.data.filters import FilterCounts, PairFilter, example_key
from seq2seq.data.spans import Example, LabelledText, Pair, Position, Span
from seq2seq.processes import in_processes
from seq2seq.text.tokenizer import Tokenizer

# Starting processes takes as long as tokenising some tens of thousands of sentences.
SPANS_WORTH_A_POOL = 25


@dataclass(frozen=True)
class Encoding:
    """What happens to every example: the tokenizers of its sides (no target for labelled texts), and what is left out.

    It is sent to each process once, so tokenizers can be pickled.
    """

    source: Tokenizer
    target: Tokenizer | None
    filter: PairFilter | None

    @property
    def finds_duplicates(self) -> bool:
        """Whether blocks carry keys by which the reader finds duplicates."""
        return self.filter is not None and self.filter.config.drop_duplicates


@dataclass
class EncodedBlock:
    """Examples as ids, one behind the other, and the length of each."""

    source_ids: np.ndarray
    source_lengths: np.ndarray
    target_ids: np.ndarray
    target_lengths: np.ndarray
    labels: list[str]  # empty for pairs
    keys: np.ndarray | None  # uint64, where duplicates are to be found
    counts: FilterCounts
    end: Position
    """Where the source goes on behind them."""

    def keep(self, is_kept: np.ndarray) -> None:
        """Leave out the examples that are not `is_kept`."""
        self.source_ids = self.source_ids[np.repeat(is_kept, self.source_lengths)]
        self.source_lengths = self.source_lengths[is_kept]
        if len(self.target_lengths):
            self.target_ids = self.target_ids[np.repeat(is_kept, self.target_lengths)]
            self.target_lengths = self.target_lengths[is_kept]
        self.labels = [label for label, kept in zip(self.labels, is_kept, strict=False) if kept]


def id_type(vocab_size: int) -> np.dtype:
    """The smallest type that holds every id."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


def encode_spans(spans: Iterable[Span], encoding: Encoding, num_workers: int) -> Iterator[EncodedBlock]:
    """The examples, filtered (duplicates aside) and tokenised, in their order; `num_workers` 0 is one per CPU.

    Raises:
        DataError: an example is not what it should be.
        RunError: a process died.
    """
    return in_processes(_Encoder(encoding), spans, num_workers, SPANS_WORTH_A_POOL)


class _Encoder:
    """Filters and tokenises one span after the other."""

    def __init__(self, encoding: Encoding):
        self._encoding = encoding
        self._source, self._target = encoding.source, encoding.target

    def __call__(self, span: Span) -> EncodedBlock:
        counts = FilterCounts()
        examples = self._filter_text(span.examples(), counts)
        # Without the spaces at its ends, as a translator and a classifier read a line.
        source = self._source.encode_all([_source_text(example).strip() for example in examples])
        target = self._target.encode_all([example.target.strip() for example in examples]) if self._target else []
        kept = self._filter_lengths(source, target, counts)
        examples, source = [examples[i] for i in kept], [source[i] for i in kept]
        target = [target[i] for i in kept] if self._target else []
        counts.kept = len(examples)
        return EncodedBlock(
            *_concatenated(source, self._source.vocab_size),
            *_concatenated(target, self._target.vocab_size if self._target else 0),
            labels=[example.label for example in examples if isinstance(example, LabelledText)],
            keys=_keys(examples) if self._encoding.finds_duplicates else None,
            counts=counts,
            end=span.end,
        )

    def _filter_text(self, examples: list[Example], counts: FilterCounts) -> list[Example]:
        if self._encoding.filter is None:
            return examples
        kept = []
        for example in examples:
            if rule := self._encoding.filter.rejects_text(example):
                counts.drop(rule)
            else:
                kept.append(example)
        return kept

    def _filter_lengths(self, source: list[list[int]], target: list[list[int]], counts: FilterCounts) -> Sequence[int]:
        if self._encoding.filter is None:
            return range(len(source))
        kept = []
        for i, ids in enumerate(source):
            if rule := self._encoding.filter.rejects_lengths(len(ids), len(target[i]) if target else None):
                counts.drop(rule)
            else:
                kept.append(i)
        return kept


def _source_text(example: Example) -> str:
    return example.source if isinstance(example, Pair) else example.text


def _keys(examples: Sequence[Example]) -> np.ndarray:
    return np.fromiter(map(example_key, examples), dtype=np.uint64, count=len(examples))


def _concatenated(rows: Sequence[Sequence[int]], vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.fromiter(map(len, rows), dtype=np.int32, count=len(rows))
    return np.fromiter(chain.from_iterable(rows), dtype=id_type(vocab_size), count=int(lengths.sum())), lengths
