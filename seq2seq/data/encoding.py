"""Bulk conversion of text to ids: filter a chunk of examples, and tokenise the rest to arrays of ids.

`building` maps an `Encoding` over the chunks of a source, in several processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from seq2seq.data.examples import Chunk, Position
from seq2seq.data.filters import FilterCounts, PairFilter, example_key
from seq2seq.text.tokenizer import Tokenizer


@dataclass
class EncodedChunk:
    """Examples as concatenated ids, with the length of each."""

    ids: dict[str, np.ndarray]
    """Ids of all examples, by side; `lengths` are those of each."""
    lengths: dict[str, np.ndarray]
    labels: list[str]  # of labelled texts; empty for pairs
    probabilities: dict[str, np.ndarray]  # by label, float32, one for each example; empty where examples have none
    keys: np.ndarray | None  # uint64, where duplicates are dropped
    counts: FilterCounts
    end: Position

    def keep(self, is_kept: np.ndarray) -> None:
        """Drop the examples whose entry in `is_kept` is False."""
        for side, lengths in self.lengths.items():
            self.ids[side] = self.ids[side][np.repeat(is_kept, lengths)]
            self.lengths[side] = lengths[is_kept]
        self.labels = [label for label, kept in zip(self.labels, is_kept, strict=False) if kept]
        self.probabilities = {label: shares[is_kept] for label, shares in self.probabilities.items()}


@dataclass(frozen=True)
class Encoding:
    """The processing of every example: the filter, then the tokenizer of each side.

    It is pickled, and sent to each worker process once.
    """

    tokenizers: dict[str, Tokenizer]
    """Tokenizers by side, source and target; labelled texts have no target."""
    filter: PairFilter | None

    @property
    def is_labelled(self) -> bool:
        """Whether examples are labelled texts rather than pairs."""
        return "target" not in self.tokenizers

    @property
    def types(self) -> dict[str, np.dtype]:
        """Data type of the ids of each side."""
        return {side: id_type(tokenizer.vocab_size) for side, tokenizer in self.tokenizers.items()}

    @property
    def language_tags(self) -> Sequence[str]:
        """The tags of the languages of a model of many directions."""
        languages = getattr(self.tokenizers["source"], "languages", None)
        return list(languages.pieces.values()) if languages else []

    @property
    def finds_duplicates(self) -> bool:
        """Whether chunks include keys, by which the builder finds duplicates."""
        return self.filter is not None and self.filter.config.drop_duplicates

    def __call__(self, chunk: Chunk) -> EncodedChunk:
        """Filter a chunk, except for duplicates, and tokenise it.

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
        if self.language_tags:
            counts.tags = sum(any(tag in text for tag in self.language_tags) for one in examples for text in one.texts)
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
    """Return the ids of one side of a corpus: sources as translators and classifiers read them; targets as scorers
    and aligners do."""
    return tokenizer.read_all(texts) if is_source else tokenizer.encode_targets(texts)


def id_type(vocab_size: int) -> np.dtype:
    """Return the smallest data type that holds every id."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)
