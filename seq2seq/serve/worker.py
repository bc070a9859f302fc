"""The one thread that computes: it takes batches from the queue, and gives their sentences what came of them."""

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from seq2seq.serve.metrics import Metrics
from seq2seq.serve.queue import Batch, Queue, Text

Compute = Callable[[Hashable, Sequence[Text]], Sequence[Any]]
# What each batch takes from the weight of those before it in the measured rate.
FORGOTTEN = 0.05


class Worker(threading.Thread):
    """Computes batch after batch until the queue is closed and empty.

    Args:
        queue: where the batches come from.
        compute: the answers to texts under settings, in their order.
        metrics: counts batches.
        batch_seconds: that a batch takes, about, where so much waits.
        batch_characters: the least room of a batch, in characters.

    There is one such thread, also for several models: two take as long for the same work, so each batch twice as long.
    """

    def __init__(self, queue: Queue, compute: Compute, metrics: Metrics, batch_seconds: float, batch_characters: int):
        super().__init__(name="s2s-worker", daemon=True)
        self._queue, self._compute, self._metrics = queue, compute, metrics
        self._batch_seconds, self._batch_characters = batch_seconds, batch_characters
        self._characters = self._seconds = 0.0  # running sums
        self.busy_since: float | None = None
        """When the batch that is computed now was begun."""

    @property
    def characters_per_second(self) -> float:
        """The rate of the last batches, 0 before the first."""
        return self._characters / self._seconds if self._seconds else 0.0

    def run(self) -> None:
        """The loop of the thread."""
        while (batch := self._queue.take(self._room)) is not None:
            self.take_one(batch)

    def take_one(self, batch: Batch) -> None:
        """Compute one batch, deliver what came of it, and measure."""
        self.busy_since = begun = time.monotonic()
        results = self._answers(batch.settings, batch.texts)
        seconds = time.monotonic() - begun
        self.busy_since = None
        self._characters += batch.characters - FORGOTTEN * self._characters
        self._seconds += seconds - FORGOTTEN * self._seconds
        self._metrics.batch_sentences.observe(len(results))
        self._metrics.batch_seconds.observe(seconds)
        for job, _ in batch.members:
            self._metrics.wait_seconds.observe(begun - job.entered)
        self._queue.deliver(batch, results, seconds)

    def _room(self) -> float:
        """Characters of the next batch."""
        return max(self._batch_characters, self._batch_seconds * self.characters_per_second)

    def _answers(self, settings: Hashable, texts: Sequence[Text]) -> list[Any]:
        """An answer for each text, or the error that it alone raises: what fails together is computed in halves."""
        try:
            return list(self._compute(settings, texts))
        except Exception as error:
            if len(texts) == 1:
                return [error]
        middle = len(texts) // 2  # outside the except clause: the traceback holds what the failed attempt made
        return self._answers(settings, texts[:middle]) + self._answers(settings, texts[middle:])
