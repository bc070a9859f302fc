"""Text to ids in bulk: examples in, filtered and tokenised blocks out, in order, by as many processes as there are.

`corpus` writes the blocks to disk. Nothing here depends on the number of processes but the time it takes.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from seq2seq.data.filters import FilterCounts, PairFilter, example_key
from seq2seq.data.sources import Example, LabelledText, Pair
from seq2seq.errors import RunError
from seq2seq.tokenizer import Tokenizer

BLOCK_EXAMPLES = 2_000
BLOCK_CHARACTERS = 2_000_000  # so that a block of very long lines stays small too
# Starting processes takes as long as tokenising some tens of thousands of sentences.
BLOCKS_WORTH_A_POOL = 50
BLOCKS_AHEAD = 3  # waiting for each process: enough to keep it busy, few enough to hold in memory


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


def usable_processors() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def encode_blocks(examples: Iterable[Example], encoding: Encoding, num_workers: int) -> Iterator[EncodedBlock]:
    """The examples, filtered (duplicates aside) and tokenised, in their order; `num_workers` 0 is one a processor.

    Raises:
        RunError: a process died.
    """
    blocks = _cut(iter(examples))
    workers = num_workers or usable_processors()
    first = list(islice(blocks, BLOCKS_WORTH_A_POOL))
    if workers == 1 or len(first) < BLOCKS_WORTH_A_POOL:
        encoder = _Encoder(encoding)
        return map(encoder, chain(first, blocks))
    return _encode_in_processes(chain(first, blocks), encoding, workers)


def _encode_in_processes(blocks: Iterator[list[Example]], encoding: Encoding, workers: int) -> Iterator[EncodedBlock]:
    # spawned, not forked: a fork copies the locks of threads (torch's, the prefetcher's) that it does not have
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(encoding,))
    waiting: deque[Future[EncodedBlock]] = deque()
    try:
        for block in blocks:
            waiting.append(pool.submit(_encode_in_worker, block))
            if len(waiting) >= BLOCKS_AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise RunError(
            "a tokenising process died (out of memory?); set data.num_workers: 1 to do without them"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Encoder:
    """Filters and tokenises one block after the other."""

    def __init__(self, encoding: Encoding):
        self._encoding = encoding
        self._source, self._target = encoding.source, encoding.target

    def __call__(self, examples: list[Example]) -> EncodedBlock:
        counts = FilterCounts()
        examples = self._filter_text(examples, counts)
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


_worker_encoder: _Encoder | None = None  # of this process, if it is a worker


def _start_worker(encoding: Encoding) -> None:
    global _worker_encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _worker_encoder = _Encoder(encoding)


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    # a parent that was killed cannot tell its workers to end
    parent.join()
    os._exit(1)


def _encode_in_worker(examples: list[Example]) -> EncodedBlock:
    assert _worker_encoder is not None
    return _worker_encoder(examples)


def _cut(examples: Iterator[Example]) -> Iterator[list[Example]]:
    block: list[Example] = []
    characters = 0
    for example in examples:
        block.append(example)
        characters += len(_source_text(example)) + (len(example.target) if isinstance(example, Pair) else 0)
        if len(block) == BLOCK_EXAMPLES or characters > BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _source_text(example: Example) -> str:
    return example.source if isinstance(example, Pair) else example.text


def _keys(examples: Sequence[Example]) -> np.ndarray:
    return np.fromiter(map(example_key, examples), dtype=np.uint64, count=len(examples))


def _concatenated(rows: Sequence[Sequence[int]], vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.fromiter(map(len, rows), dtype=np.int32, count=len(rows))
    return np.fromiter(chain.from_iterable(rows), dtype=id_type(vocab_size), count=int(lengths.sum())), lengths
