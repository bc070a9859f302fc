"""Text to ids in bulk: a chunk of examples in, what is left of it after the filters out, as arrays of ids.

`building` maps an `Encoding` over the chunks of a source, in several processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from seq2seq.data.examples import Chunk, Position
from seq2seq.data.filters import FilterCounts, PairFilter, example_key
from seq2seq.text.normalization import normalized
from seq2seq.text.tokenizer import Tokenizer


@dataclass
class EncodedChunk:
    """Examples as concatenated ids, and the length of each."""

    ids: dict[str, np.ndarray]
    """By side."""
    lengths: dict[str, np.ndarray]
    labels: list[str]  # of labelled texts
    probabilities: dict[str, np.ndarray]  # by label, float32, one for each example; empty where examples have none
    keys: np.ndarray | None  # uint64, where duplicates are dropped
    counts: FilterCounts
    end: Position

    def keep(self, is_kept: np.ndarray) -> None:
        """Drop the examples that are not `is_kept`."""
        for side, lengths in self.lengths.items():
            self.ids[side] = self.ids[side][np.repeat(is_kept, lengths)]
            self.lengths[side] = lengths[is_kept]
        self.labels = [label for label, kept in zip(self.labels, is_kept, strict=False) if kept]
        self.probabilities = {label: shares[is_kept] for label, shares in self.probabilities.items()}


@dataclass(frozen=True)
class Encoding:
    """What happens to every example: the filter, then the tokenizer of each side.

    It is sent to each worker process once, so tokenizers can be pickled.
    """

    tokenizers: dict[str, Tokenizer]
    """By side, source and target; labelled texts have no target."""
    filter: PairFilter | None

    @property
    def is_labelled(self) -> bool:
        """Whether examples are labelled texts rather than pairs."""
        return "target" not in self.tokenizers

    @property
    def types(self) -> dict[str, np.dtype]:
        """The type of the ids of each side."""
        return {side: id_type(tokenizer.vocab_size) for side, tokenizer in self.tokenizers.items()}

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
        rows = [
            stored_ids(tokenizer, [example.texts[side] for example in examples], is_source=side == 0)
            for side, tokenizer in enumerate(self.tokenizers.values())
        ]
        if self.filter:
            kept = counts.keep(range(len(examples)), map(self.filter.rejects_lengths, *(map(len, ids) for ids in rows)))
            examples = [examples[i] for i in kept]
            rows = [[ids[i] for i in kept] for ids in rows]
        counts.kept = len(examples)
        sides = dict(zip(self.tokenizers, rows, strict=True))
        soft = [example.probabilities for example in examples if self.is_labelled and example.probabilities]
        lengths = {side: np.fromiter(map(len, ids), np.int32, len(ids)) for side, ids in sides.items()}
        return EncodedChunk(
            ids={
                side: np.fromiter(chain.from_iterable(ids), self.types[side], lengths[side].sum())
                for side, ids in sides.items()
            },
            lengths=lengths,
            labels=[example.label for example in examples] if self.is_labelled else [],
            probabilities={
                label: np.fromiter((shares[label] for shares in soft), np.float32, len(soft))
                for label in (soft[0] if soft else ())
            },
            keys=np.fromiter(map(example_key, examples), np.uint64, len(examples)) if self.finds_duplicates else None,
            counts=counts,
            end=chunk.end,
        )


def stored_ids(tokenizer: Tokenizer, texts: Sequence[str], is_source: bool) -> list[list[int]]:
    """The ids of one side of a corpus: a source as translators and classifiers read it; a target normalised, with
    all characters that it has then."""
    return tokenizer.read_all(texts) if is_source else tokenizer.encode_all([normalized(one).strip() for one in texts])


def id_type(vocab_size: int) -> np.dtype:
    """The smallest type that holds every id."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)
