"""What turns source ids into hypotheses, behind one protocol: any number of sentences, in any order, each as if alone.

`Translator` holds an engine and knows nothing of batches: sorting by length, grouping by a token budget and giving way
when memory runs out happen here, because each kind of engine does them in its own way.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from seq2seq.config import SearchConfig
from seq2seq.memory import in_parts
from seq2seq.search.base import Hypothesis, StepModel, rows_per_sentence
from seq2seq.search.search import search

# Batches that each worker has at least, and tokens below which a batch is not worth cutting.
BATCHES_A_WORKER, SMALLEST_BATCH = 4, 4096

Again = Callable[[int, list[Hypothesis]], SearchConfig | None]
"""(place of a sentence, what was found for it) -> how it is to be searched once more, None for not at all."""


class Engine(Protocol):
    """Translates ids to ids."""

    max_length: int
    """Most positions of a source or a target, special ids included."""

    def translate(
        self,
        source_ids: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]] | None = None,
        sentence_keys: Sequence[int] | None = None,
        again: Again | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence, best first, in the order of the sentences.

        Args:
            source_ids: ids without special ids; at least one and fewer than `max_length` a sentence.
            config: how to search.
            prefixes: ids that each translation begins with.
            sentence_keys: what random draws of a sentence are keyed by, with the seed; its place by default.
            again: asked once for each sentence; what a second search finds takes the place of what the first one found.
        """


class TorchEngine:
    """Searches with a `StepModel` in batches of about equal lengths.

    Args:
        steps: the model.
        workers: batches that are searched at the same time, each on one processor thread; 1 leaves torch its threads.
            By default one for each of torch's threads, because small products gain little from being shared out.
    """

    def __init__(self, steps: StepModel, workers: int | None = None):
        self.max_length = steps.max_length
        self._steps = steps
        self._workers = workers or (torch.get_num_threads() if steps.device.type == "cpu" else 1)

    def translate(
        self,
        source_ids: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]] | None = None,
        sentence_keys: Sequence[int] | None = None,
        again: Again | None = None,
    ) -> list[list[Hypothesis]]:
        """As `Engine.translate`; a batch that does not fit in memory is searched in halves.

        With several workers, second searches of all but the last batches begin while the last ones are still running.
        """
        requests = make_requests(source_ids, prefixes, sentence_keys)
        results: list[list[Hypothesis]] = [[] for _ in requests]

        def collect(outcomes: Iterable[_Outcome]) -> list[Request]:
            found = [pair for outcome in outcomes for part in outcome() for pair in part]
            for request, hypotheses in found:
                results[request.place] = hypotheses
            return [request for request, _ in found]

        batches = self._batches(requests, config)
        with self._submitter(len(batches)) as submit:
            firsts = [submit(batch) for batch in batches]
            # What is searched together is decided by the sentences alone, and not by what happens to be ready first.
            early = max(len(firsts) - (self._workers if self._workers > 1 else 0), 0)
            seconds: list[_Outcome] = []
            for some in (firsts[:early], firsts[early:]):
                for other, group in wanted_again(collect(some), results, again).items():
                    seconds += [submit(batch) for batch in self._batches(group, other)]
            collect(seconds)
        return results

    def _batches(self, requests: Sequence["Request"], config: SearchConfig) -> list["_Batch"]:
        return [_Batch(group, config) for group in token_groups(requests, config, self._budget(requests, config))]

    def _budget(self, requests: Sequence["Request"], config: SearchConfig) -> int:
        """Tokens of a batch: with several workers small enough that all of them are busy to the end."""
        tokens = sum(len(request.source_ids) + 1 for request in requests) * rows_per_sentence(config)
        share = tokens // (self._workers * BATCHES_A_WORKER)
        return config.batch_tokens if self._workers == 1 else min(config.batch_tokens, max(share, SMALLEST_BATCH))

    @contextmanager
    def _submitter(self, num_batches: int) -> Iterator[Callable[["_Batch"], "_Outcome"]]:
        """What takes a batch and gives its outcome, computed by a worker or, where one is enough, when it is asked."""
        if self._workers == 1 or num_batches <= 1:
            yield lambda batch: functools.partial(in_parts, self._search, batch)
            return
        # torch releases the interpreter while it computes; each worker has a number of threads of its own.
        pool = ThreadPoolExecutor(self._workers, "s2s-search", torch.set_num_threads, (1,))
        try:
            yield lambda batch: pool.submit(in_parts, self._search, batch).result
        finally:
            pool.shutdown(cancel_futures=True)

    def _search(self, batch: "_Batch") -> list["_Found"]:
        sources, prefixes, keys = zip(*((one.source_ids, one.prefix, one.key) for one in batch.requests), strict=True)
        found = search(self._steps, sources, batch.config, prefixes if any(prefixes) else None, keys)
        return list(zip(batch.requests, found, strict=True))


@dataclass(frozen=True)
class Request:
    """One sentence: its place in the call, and what the call gave for it."""

    place: int
    source_ids: Sequence[int]
    prefix: Sequence[int]
    key: int


@dataclass(frozen=True)
class _Batch:
    """Sentences that are searched together."""

    requests: list[Request]
    config: SearchConfig

    def __len__(self) -> int:
        return len(self.requests)

    def split(self) -> tuple["_Batch", "_Batch"]:
        middle = len(self.requests) // 2
        return replace(self, requests=self.requests[:middle]), replace(self, requests=self.requests[middle:])


_Found = tuple[Request, list[Hypothesis]]
_Outcome = Callable[[], list[list[_Found]]]
"""Waits for a batch and gives what was found for each sentence of each of its parts."""


def wanted_again(
    requests: Iterable[Request], results: Sequence[list[Hypothesis]], again: Again | None
) -> dict[SearchConfig, list[Request]]:
    """Of these sentences those that are to be searched once more, by how; `results` has what was found in its place."""
    wanted: dict[SearchConfig, list[Request]] = defaultdict(list)
    for request in requests if again is not None else ():
        if (config := again(request.place, results[request.place])) is not None:
            wanted[config].append(request)
    return wanted


def make_requests(
    source_ids: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]] | None, sentence_keys: Sequence[int] | None
) -> list[Request]:
    """The arguments of `Engine.translate` by sentence, with what they are by default."""
    starts = [()] * len(source_ids) if prefixes is None else prefixes
    keys = range(len(source_ids)) if sentence_keys is None else sentence_keys
    return [Request(place, *request) for place, request in enumerate(zip(source_ids, starts, keys, strict=True))]


def token_groups(
    requests: Sequence[Request], config: SearchConfig, budget: int | None = None
) -> Iterator[list[Request]]:
    """Sentences of similar lengths, longest first, so that memory runs out at the start or never.

    A group holds as many as fit the budget, by default `config.batch_tokens`: source tokens with their end, padding
    and beams counted.
    """
    budget = config.batch_tokens if budget is None else budget
    ordered = sorted(requests, key=lambda request: -len(request.source_ids))
    start = 0
    while start < len(ordered):
        tokens = (len(ordered[start].source_ids) + 1) * rows_per_sentence(config)
        count = max(1, budget // tokens)
        yield ordered[start : start + count]
        start += count
