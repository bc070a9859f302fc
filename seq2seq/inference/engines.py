"""What turns source ids into hypotheses, behind one protocol: any number of sentences, in any order, each as if alone.

`Translator` holds an engine and knows nothing of batches: sorting by length, grouping by a token budget and giving way
when memory runs out happen here, because each kind of engine does them in its own way.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import torch

from seq2seq.config import SearchConfig
from seq2seq.errors import RunError
from seq2seq.search import Hypothesis, StepModel, rows_per_sentence, search


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
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence, best first, in the order of the sentences.

        Args:
            source_ids: ids without special ids; at least one and fewer than `max_length` a sentence.
            config: how to search.
            prefixes: ids that each translation begins with.
            sentence_keys: what random draws of a sentence are keyed by, with the seed; its place by default.
        """


@dataclass(frozen=True)
class _Requests:
    """What one call of `translate` asks for."""

    source_ids: Sequence[Sequence[int]]
    config: SearchConfig
    prefixes: Sequence[Sequence[int]] | None
    sentence_keys: Sequence[int]


class TorchEngine:
    """Searches with a `StepModel` in batches of about equal lengths.

    Args:
        steps: the model.
        workers: groups that are searched at the same time, each on one processor thread; 1 leaves torch its threads.
    """

    def __init__(self, steps: StepModel, workers: int = 1):
        self.max_length = steps.max_length
        self._steps = steps
        self._workers = workers

    def translate(
        self,
        source_ids: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]] | None = None,
        sentence_keys: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """As `Engine.translate`.

        Raises:
            RunError: there is no memory even for one sentence.
        """
        requests = _Requests(
            source_ids, config, prefixes, range(len(source_ids)) if sentence_keys is None else sentence_keys
        )
        groups = list(token_groups([len(ids) for ids in source_ids], config))
        results: list[list[Hypothesis]] = [[] for _ in source_ids]
        for group, answers in zip(groups, self._search_groups(groups, requests), strict=True):
            for place, answer in zip(group, answers, strict=True):
                results[place] = answer
        return results

    def _search_groups(self, groups: list[list[int]], requests: _Requests) -> Iterator[list[list[Hypothesis]]]:
        if self._workers == 1 or len(groups) == 1:
            yield from (self._search_or_halve(group, requests) for group in groups)
            return
        # torch releases the interpreter while it computes, and the number of its threads is set for each worker.
        with ThreadPoolExecutor(self._workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(lambda group: self._search_or_halve(group, requests), groups)

    def _search_or_halve(self, group: Sequence[int], requests: _Requests) -> list[list[Hypothesis]]:
        """Search a group; where its memory does not suffice, each half of it."""
        try:
            return self._search(group, requests)
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            if len(group) == 1:
                length = len(requests.source_ids[group[0]])
                raise RunError(
                    f"out of memory for one sentence of {length} pieces; use a smaller beam_size or another device"
                ) from error
        # Outside the handler, whose traceback keeps the tensors of the failed search alive.
        if self._steps.device.type == "cuda":
            torch.cuda.empty_cache()
        middle = len(group) // 2
        return [answer for half in (group[:middle], group[middle:]) for answer in self._search_or_halve(half, requests)]

    def _search(self, group: Sequence[int], requests: _Requests) -> list[list[Hypothesis]]:
        prefixes = None if requests.prefixes is None else [requests.prefixes[place] for place in group]
        return search(
            self._steps,
            [requests.source_ids[place] for place in group],
            requests.config,
            prefixes,
            [requests.sentence_keys[place] for place in group],
        )


def token_groups(lengths: Sequence[int], config: SearchConfig) -> Iterator[list[int]]:
    """Places of sentences of similar lengths, longest first, so that memory runs out at the start or never.

    A group holds as many as fit `config.batch_tokens`: source tokens with their end, padding and beams counted.
    """
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        tokens = (lengths[order[start]] + 1) * rows_per_sentence(config)
        count = max(1, config.batch_tokens // tokens)
        yield order[start : start + count]
        start += count


def _is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
