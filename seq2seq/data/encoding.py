"""Text to ids in bulk: a chunk of examples in, what is left of it after the filters out, as arrays of ids.

`building` maps an `Encoding` over the chunks of a source, in several processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from operator import attrgetter

import numpy as np

from seq2seq.data.examples import Chunk, Position
from seq2seq.data.filters import FilterCounts, PairFilter, example_key
from seq2seq.text.tokenizer import Tokenizer


@dataclass
class EncodedChunk:
    """Examples as concatenated ids, and the length of each."""

    ids: dict[str, np.ndarray]
    """By side, source and target; labelled texts have no target."""
    lengths: dict[str, np.ndarray]
    labels: list[str]  # of labelled texts
    keys: np.ndarray | None  # uint64, where duplicates are dropped
    counts: FilterCounts
    end: Position

    def keep(self, is_kept: np.ndarray) -> None:
        """Drop the examples that are not `is_kept`."""
        for side, lengths in self.lengths.items():
            self.ids[side] = self.ids[side][np.repeat(is_kept, lengths)]
            self.lengths[side] = lengths[is_kept]
        self.labels = [label for label, kept in zip(self.labels, is_kept, strict=False) if kept]


@dataclass(frozen=True)
class Encoding:
    """What happens to every example: the filter, then the tokenizer of each side (no target for labelled texts).

    It is sent to each worker process once, so tokenizers can be pickled.
    """

    source: Tokenizer
    target: Tokenizer | None
    filter: PairFilter | None

    @property
    def types(self) -> dict[str, np.dtype]:
        """The type of the ids of each side."""
        tokenizers = {"source": self.source, "target": self.target}
        return {side: id_type(tokenizer.vocab_size) for side, tokenizer in tokenizers.items() if tokenizer}

    @property
    def finds_duplicates(self) -> bool:
        """Whether chunks carry keys by which the reader finds duplicates."""
        return self.filter is not None and self.filter.config.drop_duplicates

    def __call__(self, chunk: Chunk) -> EncodedChunk:
        """Filter (duplicates aside) and tokenise.

        Raises:
            DataError: a line or row is not an example.
        """
        counts, examples = FilterCounts(), chunk.examples()
        if self.filter:
            examples = counts.keep(examples, map(self.filter.rejects_text, examples))
        texts = {"source": attrgetter("source" if self.target else "text"), "target": attrgetter("target")}
        # stripped, as a translator and a classifier read a line
        rows = {
            side: tokenizer.encode_all([texts[side](example).strip() for example in examples])
            for side, tokenizer in (("source", self.source), ("target", self.target))
            if tokenizer
        }
        if self.filter:
            target_lengths = map(len, rows["target"]) if self.target else repeat(None)
            rules = map(self.filter.rejects_lengths, map(len, rows["source"]), target_lengths)
            kept = counts.keep(range(len(examples)), rules)
            examples = [examples[i] for i in kept]
            rows = {side: [ids[i] for i in kept] for side, ids in rows.items()}
        counts.kept = len(examples)
        return EncodedChunk(
            ids={side: _concatenated(ids, self.types[side]) for side, ids in rows.items()},
            lengths={side: np.fromiter(map(len, ids), np.int32, count=len(ids)) for side, ids in rows.items()},
            labels=[] if self.target else list(map(attrgetter("label"), examples)),
            keys=np.fromiter(map(example_key, examples), np.uint64) if self.finds_duplicates else None,
            counts=counts,
            end=chunk.end,
        )


def id_type(vocab_size: int) -> np.dtype:
    """The smallest type that holds every id."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


def _concatenated(rows: Sequence[Sequence[int]], dtype: np.dtype) -> np.ndarray:
    return np.fromiter(chain.from_iterable(rows), dtype, count=sum(map(len, rows)))
