"""The tensors of one step: made from ids in `collate_*`, drawn without end and in an exact order by `BatchStream`.

`tasks` builds the streams, the trainer consumes them. Shift, padding, start and end ids and token counts happen here
and nowhere else. Shapes: B sentences, S source length, T target length.
"""

import dataclasses
import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from seq2seq.config import TokenizerConfig
from seq2seq.data.corpus import TokenCorpus
from seq2seq.data.sampler import TokenBudgetSampler, moved_position
from seq2seq.errors import CheckpointError
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair


class _TensorRows:
    """What batches share: every tensor has a row for each example."""

    indices: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Any:
        """The batch on `device`."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Any:
        """The batch in page-locked memory, from where a GPU copies it without waiting."""
        return self._map(lambda tensor: tensor.pin_memory())

    def _map(self, change: Callable[[Tensor], Tensor]) -> Any:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        tensors = {name: change(value) for name, value in fields.items() if isinstance(value, Tensor)}
        return dataclasses.replace(self, **tensors)  # type: ignore[type-var]


@dataclass(frozen=True)
class TranslationBatch(_TensorRows):
    """Sentence pairs, padded; masks are True at real tokens."""

    source_ids: Tensor  # (B, S) int64, eos included
    source_mask: Tensor  # (B, S) bool
    target_input: Tensor  # (B, T) int64, the start id and then the target
    target_output: Tensor  # (B, T) int64, the target and then eos
    target_mask: Tensor  # (B, T) bool
    indices: Tensor  # (B,) int64, rows of the corpus
    num_targets: int  # target tokens, eos included
    num_tokens: int  # source and target tokens without padding

    def split(self) -> tuple["TranslationBatch", "TranslationBatch"]:
        """The first and the second half of the rows, each as narrow as it can be."""
        middle = len(self) // 2
        return self._rows(slice(0, middle)), self._rows(slice(middle, None))

    def _rows(self, rows: slice) -> "TranslationBatch":
        source_mask, target_mask = self.source_mask[rows], self.target_mask[rows]
        source_tokens, num_targets = int(source_mask.sum()), int(target_mask.sum())
        source, target = slice(0, _width(source_mask)), slice(0, _width(target_mask))
        return TranslationBatch(
            self.source_ids[rows, source], source_mask[:, source],
            self.target_input[rows, target], self.target_output[rows, target], target_mask[:, target],
            self.indices[rows], num_targets, source_tokens + num_targets,
        )  # fmt: skip


@dataclass(frozen=True)
class ClassificationBatch(_TensorRows):
    """Labelled texts, padded; the mask is True at real tokens."""

    source_ids: Tensor  # (B, S) int64, bos and eos included
    source_mask: Tensor  # (B, S) bool
    labels: Tensor  # (B,) int64
    indices: Tensor  # (B,) int64, rows of the corpus
    num_targets: int  # B
    num_tokens: int  # source tokens without padding

    def split(self) -> tuple["ClassificationBatch", "ClassificationBatch"]:
        """The first and the second half of the rows, each as narrow as it can be."""
        middle = len(self) // 2
        return self._rows(slice(0, middle)), self._rows(slice(middle, None))

    def _rows(self, rows: slice) -> "ClassificationBatch":
        mask = self.source_mask[rows]
        width = slice(0, _width(mask))
        return ClassificationBatch(
            self.source_ids[rows, width],
            mask[:, width],
            self.labels[rows],
            self.indices[rows],
            len(mask),
            int(mask.sum()),
        )


Batch = TypeVar("Batch", TranslationBatch, ClassificationBatch)


class MakeBatch(Protocol[Batch]):
    """What turns the indices of a plan into a batch; the epoch decides random segmentations."""

    def __call__(self, indices: np.ndarray, epoch: int) -> Batch: ...


def collate_translation(
    source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], tokenizers: TokenizerPair, indices: Sequence[int]
) -> TranslationBatch:
    """A batch from ids without special ids, on the CPU."""
    source_lengths, target_lengths = _lengths(source, 1), _lengths(target, 1)
    source_ids, source_mask = _pad(source, source_lengths, 0, tokenizers.source.pad_id)
    target_output, target_mask = _pad(target, target_lengths, 0, tokenizers.target.pad_id)
    target_input, _ = _pad(target, target_lengths, 1, tokenizers.target.pad_id)
    rows = np.arange(len(source))
    source_ids[rows, source_lengths - 1] = tokenizers.source.eos_id
    target_output[rows, target_lengths - 1] = tokenizers.target.eos_id
    target_input[:, 0] = tokenizers.target.start_id
    num_targets = int(target_lengths.sum())
    arrays = (source_ids, source_mask, target_input, target_output, target_mask, np.asarray(indices, dtype=np.int64))
    tensors = map(torch.from_numpy, arrays)
    return TranslationBatch(*tensors, num_targets=num_targets, num_tokens=int(source_lengths.sum()) + num_targets)


def collate_classification(
    texts_ids: Sequence[Sequence[int]], labels: Sequence[int], tokenizer: Tokenizer, indices: Sequence[int]
) -> ClassificationBatch:
    """A batch from ids without special ids: bos in front, whose state may stand for the text, and eos behind."""
    lengths = _lengths(texts_ids, 2)
    source_ids, source_mask = _pad(texts_ids, lengths, 1, tokenizer.pad_id)
    source_ids[:, 0] = tokenizer.bos_id
    source_ids[np.arange(len(lengths)), lengths - 1] = tokenizer.eos_id
    arrays = (source_ids, source_mask, np.asarray(labels, dtype=np.int64), np.asarray(indices, dtype=np.int64))
    tensors = map(torch.from_numpy, arrays)
    return ClassificationBatch(*tensors, num_targets=len(lengths), num_tokens=int(lengths.sum()))


class TranslationBatches:
    """Makes the batches of a translation corpus; with `sampling`, part of the sentences are segmented at random.

    A random segmentation is decided by (seed, epoch, index) alone, so a run that goes on sees the same. One that is
    longer than the longest sentence of its batch is left out, so that no batch outgrows its budget. Of a side with more
    than `max_pieces` the beginning is taken: validation leaves no pair out, and a model has only so many positions.
    """

    def __init__(
        self,
        corpus: TokenCorpus,
        tokenizers: TokenizerPair,
        sampling: TokenizerConfig | None = None,
        seed: int = 0,
        max_pieces: int | None = None,
    ):
        self._corpus, self._tokenizers, self._max_pieces = corpus, tokenizers, max_pieces
        self._resegment = _Resegmentation(sampling, seed) if sampling and sampling.sampling > 0 else None

    def __call__(self, indices: np.ndarray, epoch: int) -> TranslationBatch:
        source = [self._corpus.source(i)[: self._max_pieces] for i in indices]
        target = [self._corpus.target(i)[: self._max_pieces] for i in indices]
        if self._resegment:
            source = self._resegment(source, self._tokenizers.source, indices, epoch, "source")
            target = self._resegment(target, self._tokenizers.target, indices, epoch, "target")
        return collate_translation(source, target, self._tokenizers, indices)


class ClassificationBatches:
    """Makes the batches of a labelled corpus; `sampling` and `max_pieces` as in `TranslationBatches`."""

    def __init__(
        self,
        corpus: TokenCorpus,
        tokenizer: Tokenizer,
        sampling: TokenizerConfig | None = None,
        seed: int = 0,
        max_pieces: int | None = None,
    ):
        self._corpus, self._tokenizer, self._max_pieces = corpus, tokenizer, max_pieces
        self._resegment = _Resegmentation(sampling, seed) if sampling and sampling.sampling > 0 else None

    def __call__(self, indices: np.ndarray, epoch: int) -> ClassificationBatch:
        texts = [self._corpus.source(i)[: self._max_pieces] for i in indices]
        if self._resegment:
            texts = self._resegment(texts, self._tokenizer, indices, epoch, "source")
        return collate_classification(texts, [self._corpus.label(i) for i in indices], self._tokenizer, indices)


class BatchStream:
    """This rank's batches, epoch after epoch without end; made ahead in a thread, counted when they are consumed.

    `state_dict()` is the place of the next batch, whatever the thread has already made; a stream that loads it goes on
    with exactly that batch. With another number of ranks it goes on with the first batch that some rank has not seen.
    Batches count within a section of the sampler's epoch, and each section is planned while the one before it is read.
    """

    def __init__(
        self, sampler: TokenBudgetSampler, make_batch: MakeBatch, *, prefetch: int = 4, pin_memory: bool = False
    ):
        self._sampler, self._make_batch = sampler, make_batch
        self._prefetch, self._pin_memory = prefetch, pin_memory
        self._epoch, self._section, self._batch, self._num_batches = 0, 0, 0, 0
        self._producer: _Producer | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._producer is None:
            self._producer = _Producer(self._positions(), self._prefetch)
        epoch, section, batch, num_batches, made = self._producer.get()
        self._check_length(num_batches)
        self._epoch, self._section, self._batch, self._num_batches = epoch, section, batch + 1, num_batches
        if self._batch == num_batches:
            self._epoch, self._section = self._following(epoch, section)
            self._batch = self._num_batches = 0
        return made

    @property
    def position(self) -> tuple[int, int, int]:
        """(epoch, section, batch) of the next batch."""
        return self._epoch, self._section, self._batch

    @property
    def epoch(self) -> float:
        """Epochs consumed, with the fraction of the one under way."""
        done = self._batch / self._num_batches if self._num_batches else 0.0
        return self._epoch + (self._section + done) / self._sampler.num_sections

    def state_dict(self) -> dict[str, int]:
        """The place of the next batch, as plain numbers."""
        return {
            "epoch": self._epoch,
            "section": self._section,
            "batch": self._batch,
            "num_batches": self._num_batches,
            "world_size": self._sampler.world_size,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where `state` was taken."""
        self.close()
        self._epoch, self._section = state["epoch"], state.get("section", 0)
        self._batch, self._num_batches = state["batch"], state["num_batches"]
        if state["world_size"] != self._sampler.world_size:
            self._batch = moved_position(self._batch, state["world_size"], self._sampler.world_size)
            self._num_batches = 0

    def close(self) -> None:
        """Stop the thread; the stream starts it again when it is read."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _positions(self) -> Iterator[tuple[int, int, int, int, Any]]:
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
        return (epoch, section + 1) if section + 1 < self._sampler.num_sections else (epoch + 1, 0)

    def _check_length(self, num_batches: int) -> None:
        if self._num_batches and num_batches != self._num_batches:
            raise CheckpointError(
                f"the epoch has {num_batches} batches but had {self._num_batches} when the checkpoint was written; the "
                "corpus changed: bring it back, or start a new run with --run-dir or --overwrite"
            )


def validation_batches(
    corpus: TokenCorpus, batch_tokens: int, make: MakeBatch, rank: int = 0, world_size: int = 1
) -> Iterator[Any]:
    """This rank's share of the corpus, every example once, sorted by length; over-long examples stay whole."""
    sampler = TokenBudgetSampler(corpus.source_lengths, corpus.target_lengths, batch_tokens, seed=0)
    for indices in sampler.sorted_batches()[rank::world_size]:
        yield make(indices, 0)


class _Resegmentation:
    """Replaces a share of the stored segmentations by random ones that are not longer than the batch is wide."""

    def __init__(self, config: TokenizerConfig, seed: int):
        self._config, self._seed = config, seed

    def __call__(
        self, rows: list[list[int]], tokenizer: Tokenizer, indices: np.ndarray, epoch: int, side: str
    ) -> list[list[int]]:
        width = max(len(row) for row in rows)
        return [
            self._draw(row, tokenizer, width, f"{self._seed} {epoch} {index} {side}")
            for row, index in zip(rows, indices, strict=True)
        ]

    def _draw(self, row: list[int], tokenizer: Tokenizer, width: int, key: str) -> list[int]:
        draw = random.Random(key)
        if draw.random() >= self._config.sampling:
            return row
        sampled = tokenizer.sample(
            tokenizer.decode(row), draw, self._config.sampling_nbest, self._config.sampling_alpha
        )
        return sampled if len(sampled) <= width else row


class _Producer:
    """Runs an iterator in a thread, at most `ahead` items before the reader; its exception reaches the reader."""

    def __init__(self, items: Iterator[Any], ahead: int):
        self._queue: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=max(1, ahead))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(items,), name="batches", daemon=True)
        self._thread.start()

    def get(self) -> Any:
        item, error = self._queue.get()
        if error is not None:
            self._queue.put((None, error))  # every later read fails alike instead of waiting for ever
            raise error
        return item

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self, items: Iterator[Any]) -> None:
        try:
            for item in items:
                if not self._put((item, None)):
                    return
        except BaseException as error:  # handed to the reader
            self._put((None, error))

    def _put(self, entry: tuple[Any, BaseException | None]) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(entry, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False


def _lengths(rows: Sequence[Sequence[int]], specials: int) -> np.ndarray:
    return np.fromiter((len(row) + specials for row in rows), dtype=np.int64, count=len(rows))


def _pad(rows: Sequence[Sequence[int]], lengths: np.ndarray, start: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """(ids, mask), each (B, longest); the ids of a row stand from column `start` on."""
    width = int(lengths.max())
    ids = np.full((len(rows), width), pad_id, dtype=np.int64)  # (B, L)
    for row, row_ids in enumerate(rows):
        ids[row, start : start + len(row_ids)] = row_ids
    return ids, np.arange(width) < lengths[:, None]  # (B, L)


def _width(mask: Tensor) -> int:
    return int(mask.sum(dim=1).max())
