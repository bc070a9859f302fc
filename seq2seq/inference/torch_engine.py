"""The engine that searches in torch: `Translator` gives it sentences, and it gives batches to `search`."""

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from seq2seq.config.schema import SearchConfig
from seq2seq.inference.groups import SEARCH_TOKENS, token_budget, token_groups
from seq2seq.memory import in_parts
from seq2seq.recording import Recorder
from seq2seq.runtime import current_device
from seq2seq.search.base import Hypothesis, Sentence, StepModel, rows_per_sentence
from seq2seq.search.search import search
from seq2seq.text.tokenizer import TokenizerPair

# The least number of batches per worker, unless batches would have fewer tokens than the second number.
BATCHES_PER_WORKER, SMALLEST_BATCH = 4, 4096


class TorchEngine:
    """An `Engine` that searches with a `StepModel`, in batches of sentences with similar lengths.

    A batch that does not fit in memory is halved.

    Args:
        steps: model.
        workers: number of batches that are searched at the same time, each on one CPU thread; with 1, torch uses all
            its threads. None means one worker per thread of torch on a CPU, because small products gain little from
            several threads, and 1 on a GPU.
        recorder: records the steps of searches, where that is possible; None means that none are recorded.
    """

    def __init__(self, steps: StepModel, workers: int | None = None, recorder: Recorder | None = None):
        self.max_length, self.leaves_cpus_idle = steps.max_length, steps.device.type != "cpu"
        self._steps = steps
        self._search = search
        if recorder is not None:
            from seq2seq.search.recorded import RecordedSearch  # validation in training records nothing

            self._search = RecordedSearch(recorder)
        self._workers = workers or (torch.get_num_threads() if steps.device.type == "cpu" else 1)
        self._grouped_for = self._workers

    def translate(self, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence (see `Engine.translate`)."""
        lengths = [(len(sentence.source_ids) + 1) * rows_per_sentence(config) for sentence in sentences]
        budget = self._budget(sum(lengths), config)
        groups = [_Group(part) for group in token_groups(lengths, budget) for part in _same_starts(group, sentences)]
        results: list[list[Hypothesis]] = [[] for _ in sentences]

        def search_group(group: _Group) -> list[list[Hypothesis]]:
            with current_device(self._steps.device):
                return self._search(self._steps, [sentences[index] for index in group], config)

        with self._mapping(len(groups)) as map_:
            for group, parts in zip(groups, map_(functools.partial(in_parts, search_group), groups), strict=True):
                for index, hypotheses in zip(group, itertools.chain.from_iterable(parts), strict=True):
                    results[index] = hypotheses
        return results

    def directed(self, tokenizers: TokenizerPair) -> "TorchEngine":
        """Return an engine with the same weights for another direction (see `Engine.directed`)."""
        other = copy.copy(self)
        other._steps = self._steps.directed(tokenizers)
        return other

    def grouping_for(self, workers: int) -> "TorchEngine":
        """Return an engine that groups as one with this number of workers (see `Engine.grouping_for`)."""
        other = copy.copy(self)
        other._grouped_for = workers
        return other

    def _budget(self, num_tokens: int, config: SearchConfig) -> int:
        """Return the tokens of a batch, which with several workers are few enough to keep all of them busy."""
        most = token_budget(config.batch_tokens, SEARCH_TOKENS, self._steps.device.type)
        if self._grouped_for == 1:
            return most
        return min(most, max(num_tokens // (self._grouped_for * BATCHES_PER_WORKER), SMALLEST_BATCH))

    @contextmanager
    def _mapping(self, num_groups: int) -> Iterator[Callable]:
        """Yield a function like `map`, which uses the workers if there are several groups."""
        if self._workers == 1 or num_groups <= 1:
            yield map
            return
        # torch releases the GIL while it computes; the number of threads is set for each worker.
        pool = ThreadPoolExecutor(self._workers, "s2s-search", torch.set_num_threads, (1,))
        try:
            yield pool.map
        finally:
            pool.shutdown(cancel_futures=True)


def _same_starts(group: Sequence[int], sentences: Sequence[Sentence]) -> Iterator[list[int]]:
    """Yield the indices of a group in parts whose sentences have starts of equal length."""

    def length(index: int) -> int:
        return len(sentences[index].start)

    for _, part in itertools.groupby(sorted(group, key=length), key=length):
        yield list(part)


class _Group(list[int]):
    """The indices of sentences that are searched together."""

    def split(self) -> tuple["_Group", "_Group"]:
        middle = len(self) // 2
        return _Group(self[:middle]), _Group(self[middle:])
