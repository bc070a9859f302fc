"""Batches of a corpus: an endless stream in an exact, resumable order for training, and one pass for validation.

`tasks` builds the streams; the trainer reads them.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from seq2seq.config.schema import TokenizerConfig
from seq2seq.data.collate import (
    ClassificationBatch,
    Rows,
    TranslationBatch,
    collate_classification,
    collate_translation,
)
from seq2seq.data.corpus import TokenCorpus
from seq2seq.data.directions import RowTags
from seq2seq.data.sampler import TokenBudgetSampler
from seq2seq.data.segmentations import Segmentations, drawn_from
from seq2seq.data.shapes import ShapeTable
from seq2seq.errors import CheckpointError
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

PREFETCH = 4  # number of batches made ahead
# Maximum length of a random segmentation: a multiple of that of the stored one, plus a constant.
SAMPLED_GROWTH, SAMPLED_MORE = 1.25, 8

MakeBatch = Callable[[np.ndarray, int], Any]
"""Function from indices of a plan, and the epoch, which determines random segmentations, to a batch."""


class CorpusBatches:
    """Factory of the batches of a corpus; with `sampling`, a share of the sentences is segmented at random.

    A random segmentation is determined by (seed, epoch, index, side) alone, so a resumed run repeats it. It is drawn
    from `segmentations` if they are stored, and otherwise made by the tokenizer, which is slow. Batches are
    planned with the stored segmentations; random ones, and so batches, may be a little longer. A side with more than
    `max_pieces` is truncated, because validation keeps every pair, and the positions of a model are limited. `tags`
    are those of examples with different directions.
    """

    def __init__(
        self,
        corpus: TokenCorpus,
        tokenizers: TokenizerPair,
        sampling: TokenizerConfig | None = None,
        seed: int = 0,
        max_pieces: int | None = None,
        segmentations: Segmentations | None = None,
        tags: RowTags | None = None,
        table: ShapeTable | None = None,
    ):
        self._tags = tags
        self._corpus, self._tokenizers, self._seed, self._max_pieces = corpus, tokenizers, seed, max_pieces
        self._segmentations, self._table = segmentations, table
        self._sampling = sampling if sampling and sampling.sampling > 0 else None

    def __call__(self, indices: np.ndarray, epoch: int) -> TranslationBatch | ClassificationBatch:
        """Return the batch of these examples in this epoch."""
        corpus, tokenizers = self._corpus, self._tokenizers
        if self._table is not None and (filled := self._filled(self._table, indices, epoch)) is not None:
            return filled
        source = self._rows("source", tokenizers.source, indices, epoch, self._max_pieces)
        if corpus.target_lengths is None:
            labels, probabilities = corpus.label_ids(indices), corpus.probabilities(indices)
            return collate_classification(source, labels, tokenizers.source, indices, probabilities)
        target = self._rows("target", tokenizers.target, indices, epoch, self._max_pieces)
        return collate_translation(source, target, tokenizers, indices, self._tags and self._tags(indices))

    def _filled(self, table: ShapeTable, indices: np.ndarray, epoch: int) -> TranslationBatch | None:
        """Return the batch, padded to the shape of its examples, whose random segmentations fit in it; None if the
        examples do not fit, as those of several shapes."""
        tokenizers, tags = self._tokenizers, None if self._tags is None else self._tags(indices)
        # the special ids in the widths of the table, as the sampler counts them, and those that a direction adds
        counted = [1, 1] if tags is None else [1 + side.shape[1] for side in tags]
        added = len(tokenizers.source.end_ids) - 1, len(tokenizers.target.start_ids) - 1
        longest = [self._corpus.lengths(side, indices).max(keepdims=True) for side in ("source", "target")]
        cells = table.cells(longest[0] + counted[0], longest[1] + counted[1])
        rows, *widths = (int(size[0]) for size in table.shapes(cells))
        most = [min(width - number, self._max_pieces or width) for width, number in zip(widths, counted, strict=True)]
        if len(indices) > rows or longest[0] > most[0] or longest[1] > most[1]:
            return None
        source = self._rows("source", tokenizers.source, indices, epoch, most[0])
        target = self._rows("target", tokenizers.target, indices, epoch, most[1])
        batch = collate_translation(source, target, tokenizers, indices, tags)
        return batch.filled(rows, widths[0] + added[0], widths[1] + added[1], tokenizers)

    def _rows(self, side: str, tokenizer: Tokenizer, indices: np.ndarray, epoch: int, most: int | None) -> Rows:
        if self._sampling is None:
            return Rows(*self._corpus.rows(side, indices, most))
        if self._segmentations is not None:
            return self._drawn(self._segmentations, side, indices, epoch, most)
        rows = [row[:most] for row in self._corpus.ids(side, indices)]
        keys = (f"{self._seed} {epoch} {index} {side}" for index in indices)
        return Rows.of([self._resegmented(row, tokenizer, key, most) for row, key in zip(rows, keys, strict=True)])

    def _drawn(
        self, segmentations: Segmentations, side: str, indices: np.ndarray, epoch: int, max_pieces: int | None
    ) -> Rows:
        """Return the stored rows, with the drawn segmentations in place of a share of them."""
        lengths = self._corpus.lengths(side, indices, max_pieces)
        most = _most_drawn(lengths, max_pieces)
        is_drawn, drawn_ids, of_each = segmentations.draw(side, indices, epoch, most)
        lengths[is_drawn] = of_each
        ids, of_drawn = np.empty(lengths.sum(), np.int64), np.repeat(is_drawn, lengths)
        ids[of_drawn] = drawn_ids
        ids[~of_drawn] = self._corpus.rows(side, indices[~is_drawn], max_pieces)[0]
        return Rows(ids, lengths)

    def _resegmented(self, row: list[int], tokenizer: Tokenizer, key: str, max_pieces: int | None) -> list[int]:
        """Return `row`, or, for a share of the keys, a random segmentation of its text."""
        config, draw = self._sampling, random.Random(key)
        if draw.random() >= config.sampling or not (text := drawn_from(tokenizer, row)):
            return row
        sampled = tokenizer.sample(text, draw, config.sampling_nbest, config.sampling_alpha)
        return sampled if len(sampled) <= _most_drawn(np.array(len(row)), max_pieces) else row


def _most_drawn(lengths: np.ndarray, max_pieces: int | None) -> np.ndarray:
    """Return the maximum length of a random segmentation of rows with these lengths."""
    most = (SAMPLED_GROWTH * lengths).astype(np.int64) + SAMPLED_MORE
    return most if max_pieces is None else np.minimum(most, max_pieces)


class BatchStream:
    """The batches of this rank, over epochs without end; made ahead in a thread, and counted when they are read.

    `state_dict()` is the position of the next batch to be read, whatever the thread has made ahead. A stream that loads
    it continues with exactly that batch. With another number of ranks, it continues where no example is skipped; until
    it is read, `state_dict` and `epoch` are those of the other ranks. Batches are numbered within a section of the
    sampler's epoch; while a section is read, the next one is planned.
    """

    def __init__(self, sampler: TokenBudgetSampler, make_batch: MakeBatch, *, pin_memory: bool = False):
        self._sampler, self._make_batch, self._pin_memory = sampler, make_batch, pin_memory
        self._epoch, self._section, self._batch, self._num_batches = 0, 0, 0, 0
        self._world_size = sampler.world_size  # the number of ranks that the two numbers of batches are for
        self._thread: ThreadPoolExecutor | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._thread is None:
            # a new thread uses the first GPU, but must pin memory for the GPU of its reader
            device = (torch.cuda.set_device, (torch.cuda.current_device(),)) if self._pin_memory else ()
            self._thread = ThreadPoolExecutor(1, "batches", *device)
            self._made = self._batches()
            self._ahead: deque[Future] = deque()
        while len(self._ahead) <= PREFETCH:
            self._ahead.append(self._thread.submit(next, self._made))
        epoch, section, batch, num_batches, made = self._ahead[
            0
        ].result()  # an error is raised again by every later read
        is_same = self._world_size == self._sampler.world_size
        if is_same and self._num_batches and num_batches != self._num_batches:
            raise CheckpointError(
                f"the epoch has {num_batches} batches but had {self._num_batches} when the checkpoint was written; the "
                "corpus changed: bring it back, or start a new run with --run-dir or --overwrite"
            )
        self._ahead.popleft()
        self._epoch, self._section, self._batch, self._num_batches = epoch, section, batch + 1, num_batches
        self._world_size = self._sampler.world_size
        if self._batch == num_batches:
            self._epoch, self._section = self._following(epoch, section)
            self._batch = self._num_batches = 0
        return made

    @property
    def position(self) -> tuple[int, int, int]:
        """(epoch, section, batch) of the next batch."""
        if self._world_size == self._sampler.world_size:
            return self._epoch, self._section, self._batch
        moved = self._sampler.moved_position(self._epoch, self._section, self._batch, self._world_size)
        return self._epoch, self._section, moved

    @property
    def epoch(self) -> float:
        """Number of epochs read, with the fraction of the current one."""
        done = self._batch / self._num_batches if self._num_batches else 0.0
        return self._epoch + (self._section + done) / self._sampler.num_sections(self._epoch)

    def state_dict(self) -> dict[str, int]:
        """Return the position of the next batch, as plain numbers."""
        return {
            "epoch": self._epoch,
            "section": self._section,
            "batch": self._batch,
            "num_batches": self._num_batches,
            "world_size": self._world_size,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue at the position `state`."""
        self.close()
        self._epoch, self._section = state["epoch"], state["section"]
        self._batch, self._num_batches, self._world_size = state["batch"], state["num_batches"], state["world_size"]

    def skip_to(self, epoch: int) -> None:
        """Continue with the first batch of an epoch."""
        self.close()
        self._epoch, self._section, self._batch, self._num_batches = epoch, 0, 0, 0
        self._world_size = self._sampler.world_size

    def close(self) -> None:
        """Stop the thread; the next read starts it again."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._made.close()
            self._thread = None

    def _batches(self) -> Iterator[tuple[int, int, int, int, Any]]:
        epoch, section, start = self.position
        with ThreadPoolExecutor(1, "plans") as ahead:
            planned = ahead.submit(self._sampler.plan, epoch, section)
            while True:
                plan = planned.result()
                following = self._following(epoch, section)
                planned = ahead.submit(self._sampler.plan, *following)
                for batch in range(start, len(plan)):
                    made = self._make_batch(plan[batch], epoch)
                    yield epoch, section, batch, len(plan), made.pin_memory() if self._pin_memory else made
                (epoch, section), start = following, 0

    def _following(self, epoch: int, section: int) -> tuple[int, int]:
        return (epoch, section + 1) if section + 1 < self._sampler.num_sections(epoch) else (epoch + 1, 0)


def read_for(stream: BatchStream, seconds: float) -> tuple[int, float]:
    """Read batches for about `seconds`, and return the number of their tokens and the seconds taken."""
    began, tokens, taken = time.perf_counter(), 0, 0.0
    while taken < seconds:
        tokens += next(stream).num_tokens
        taken = time.perf_counter() - began
    return tokens, taken


def validation_batches(
    corpus: TokenCorpus, batch_tokens: int, make: MakeBatch, rank: int = 0, world_size: int = 1
) -> Iterator[Any]:
    """Yield the batches of this rank: every example of the corpus once, sorted by length; long examples are kept."""
    sampler = TokenBudgetSampler(corpus.source_lengths, corpus.target_lengths, batch_tokens, seed=0)
    for indices in sampler.sorted_batches()[rank::world_size]:
        yield make(indices, 0)
