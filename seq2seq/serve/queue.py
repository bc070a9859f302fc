"""The queue of sentences, the choice of the next batch, and the single thread that computes batches.

`service` puts a `Job` for each request into the queue; the `Worker` takes batches and delivers their results. Any
thread may call any method of the queue.
"""

import heapq
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seq2seq.serve.limits import SHARES, Refusal
from seq2seq.serve.metrics import Metrics

Compute = Callable[[Hashable, Sequence["Text"]], Sequence[Any]]
# Decay per batch of the running average of the rate.
FORGOTTEN = 0.05
# The cost of a sentence in addition to its characters, in characters.
PER_SENTENCE = 8
# The share of a batch's time for which the next batch waits for clients that the batch has answered.
PATIENCE = 0.1


class Text(NamedTuple):
    """A sentence or line to compute."""

    text: str
    prefix: str = ""
    """The required beginning of its translation."""
    tag: str = ""
    """The language tag that the model reads before it."""


class Job:
    """The sentences of one request.

    Args:
        settings: settings of the computation; sentences with equal settings share batches.
        texts: sentences.
        told: function that the worker's thread calls if some sentences are done or the job has failed.
        client: name of the client; clients take turns.
        weight: cost of a character, relative to the model's default settings.
    """

    def __init__(
        self, settings: Hashable, texts: Sequence[Text], told: Callable[[], None], client: str = "", weight: float = 1.0
    ):
        self.settings, self.texts, self.told, self.client, self.weight = settings, texts, told, client, weight
        self.results: list[Any] = [None] * len(texts)
        """The results, which are filled in order; None until then."""
        self.failure: Exception | None = None
        self.waiting = deque(range(len(texts)))
        self.entered = time.monotonic()
        self.begun: float | None = None
        """Time when the first of its sentences was taken from the queue; None before."""
        self.ended: float | None = None

    @property
    def characters(self) -> int:
        """The number of characters of the waiting sentences."""
        return sum(len(self.texts[index].text) for index in self.waiting)

    def size(self, index: int) -> int:
        """Return the cost of a sentence, in characters."""
        return round(len(self.texts[index].text) * self.weight) + PER_SENTENCE


class Full(Exception):
    """The error that the queue has no room before `excess` characters are computed, or never (None)."""

    def __init__(self, excess: int | None):
        super().__init__()
        self.excess = excess


@dataclass
class Batch:
    """Sentences with equal settings that are computed together: jobs, with the indices of their sentences."""

    settings: Hashable
    members: list[tuple[Job, int]] = field(default_factory=list)
    characters: int = 0

    @property
    def texts(self) -> list[Text]:
        """The sentences to compute."""
        return [job.texts[index] for job, index in self.members]


class _Client:
    """The jobs of a client that have waiting sentences."""

    def __init__(self) -> None:
        self.sentences = self.characters = 0
        self.jobs: deque[Job] = deque()

    def sharing(self, settings: Hashable) -> "_Turns":
        """Return the jobs that can be in a batch with these settings."""
        return _Turns(self, deque(job for job in self.jobs if job.settings == settings))


class _Turns(NamedTuple):
    """The jobs of a client that share a batch, which contribute sentences in turn."""

    client: _Client
    jobs: deque[Job]

    def take(self) -> tuple[Job, int]:
        """Remove and return the next sentence."""
        job = self.jobs.popleft()
        index = job.waiting.popleft()
        if job.waiting:
            self.jobs.append(job)
        return job, index

    def end(self, settings: Hashable) -> None:
        """Put the jobs with other settings first for the next batch, and keep the order of the rest."""
        self.client.jobs = deque([*(job for job in self.client.jobs if job.settings != settings), *self.jobs])


class Queue:
    """A bounded queue that is fair to clients, and to the jobs of each client.

    The client that has used the least time of the worker is next: its first job decides the settings of the batch, and
    all clients with sentences of these settings fill it in equal shares. A new client starts with the time of the
    client that has used the least, so that nobody waits because of earlier use. The bounds apply to each client; all
    clients together may have `SHARES` times as much. A client without waiting sentences may add more sentences than
    the bound in one job, so that only the number of characters limits a request.

    An idle worker takes what has arrived, and under load batches fill while the previous one is computed. Clients in a
    closed loop send again right after an answer; without a pause, the first of them would form a small batch, and all
    others would wait for it. So the next batch waits until as many sentences have arrived as the last batch had, but at
    most for the share `PATIENCE` of its time. A sentence that arrives later does not wait.
    """

    def __init__(self, sentences: int, characters: int):
        self.most_sentences, self.most_characters = sentences, characters
        self.sentences = self.characters = 0
        """The numbers of waiting sentences and characters."""
        self._clients: dict[str, _Client] = {}  # clients with waiting sentences
        self._is_open = True
        self._answered, self._patient_until = 0, 0.0
        self._used: dict[str, float] = {}  # seconds of the worker that each client has used
        self._least = 0.0  # seconds of the client that was served last, with which new clients start
        self._changed = threading.Condition()

    def put(self, job: Job, is_admitted: bool = False) -> None:
        """Add all sentences of a job, or none. Those of a request that `is_admitted` are always added.

        Raises:
            Full: there is not enough room for all sentences.
        """
        with self._changed:
            count, characters = len(job.waiting), job.characters
            if not is_admitted:
                self.check(job)
            if count:
                client = self._clients.setdefault(job.client, _Client())
                self._used[job.client] = max(self._used.get(job.client, 0), self._least)
                client.jobs.append(job)
                self._count(client, count, characters)
                self._changed.notify()

    def check(self, job: Job) -> None:
        """Check that there is room for a job.

        Raises:
            Full: there is not enough room.
        """
        count, characters = len(job.waiting), job.characters
        if characters > self.most_characters:
            raise Full(None)
        client, most = self._clients.get(job.client, _Client()), self.most_sentences
        for holder, shares in ((client, 1), (self, SHARES)):
            sentences = holder.sentences + min(count, most) - shares * most
            excess = holder.characters + characters - shares * self.most_characters
            if sentences > 0 or excess > 0:
                raise Full(round(max(excess, sentences / max(holder.sentences, 1) * holder.characters)))

    def take(self, room: Callable[[], float]) -> Batch | None:
        """Wait for the next batch and return it; None if the queue is closed and empty.

        A batch costs at most `room()` characters (`Job.size`), or consists of one sentence.
        """
        with self._changed:
            while (patience := self._patience()) != 0:
                self._changed.wait(patience)
            if not self._clients:
                return None
            order = sorted(self._clients, key=self._used.__getitem__)
            self._least = self._used[order[0]]
            batch, left = Batch(self._clients[order[0]].jobs[0].settings), room()
            sharing = [turn for name in order if (turn := self._clients[name].sharing(batch.settings)).jobs]
            turns = [(0, number) for number in range(len(sharing))]  # a heap by the share of each client in the batch
            while turns:
                taken, number = heapq.heappop(turns)
                turn = sharing[number]
                size = turn.jobs[0].size(turn.jobs[0].waiting[0])
                left -= size
                if batch.members and left < 0:
                    break
                batch.members.append(turn.take())
                job, index = batch.members[-1]
                length = len(job.texts[index].text)
                batch.characters += length
                self._count(turn.client, -1, -length)
                if turn.jobs:
                    heapq.heappush(turns, (taken + size, number))
            for turn in sharing:
                turn.end(batch.settings)
            self._forget()
        now = time.monotonic()
        for job in dict.fromkeys(job for job, _ in batch.members):
            job.begun = job.begun or now
        return batch

    def deliver(self, batch: Batch, results: Sequence[Any], seconds: float) -> None:
        """Store the results of a batch that took these seconds; an exception as a result fails its whole job."""
        now = time.monotonic()
        self._answered, self._patient_until = len(batch.members), now + PATIENCE * seconds
        self._charge(batch, seconds)
        for (job, index), result in zip(batch.members, results, strict=True):
            if isinstance(result, Exception):
                self.fail(job, result)
            else:
                job.results[index] = result
        for job in dict.fromkeys(job for job, _ in batch.members):
            job.ended = now
            job.told()

    def fail(self, job: Job, error: Exception) -> None:
        """End a job with an error, and withdraw its waiting sentences."""
        self.withdraw(job)
        job.failure = job.failure or error
        job.told()

    def withdraw(self, job: Job) -> int:
        """Remove the waiting sentences of a job, which may not have been put yet, and return their number."""
        with self._changed:
            count, client = len(job.waiting), self._clients.get(job.client)
            if client is not None and job in client.jobs:
                self._count(client, -count, -job.characters)
                client.jobs.remove(job)
                self._forget()
            job.waiting.clear()
        return count

    def close(self) -> None:
        """Let the worker end after it has computed the waiting sentences."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _patience(self) -> float | None:
        """Return the seconds to wait for more sentences: None until something arrives, 0 for no wait."""
        if not self._clients:
            return None if self._is_open else 0
        if self.sentences >= self._answered or not self._is_open:
            return 0
        return max(self._patient_until - time.monotonic(), 0)

    def _charge(self, batch: Batch, seconds: float) -> None:
        """Add the time of a batch to that of its clients, in proportion to the cost of their sentences."""
        sizes: Counter[str] = Counter()
        for job, index in batch.members:
            sizes[job.client] += job.size(index)
        with self._changed:
            for name, size in sizes.items():
                self._used[name] = self._used.get(name, self._least) + seconds * size / sizes.total()

    def _forget(self) -> None:
        """Remove clients without waiting sentences; if no client waits, all are equal again."""
        self._clients = {name: client for name, client in self._clients.items() if client.jobs}
        if not self._clients:
            self._least = max(self._used.values(), default=self._least)
        self._used = {name: used for name, used in self._used.items() if name in self._clients or used > self._least}

    def _count(self, client: _Client, sentences: int, characters: int) -> None:
        for holder in (self, client):
            holder.sentences += sentences
            holder.characters += characters


class Worker(threading.Thread):
    """The thread that computes batch after batch until the queue is closed and empty.

    There is only one, also for several models: two threads would take as long for the same work, and twice as long for
    each batch.

    Args:
        queue: queue of the batches.
        compute: function that returns the answers to texts with these settings, in order.
        metrics: metrics that count batches.
        batch_seconds: target compute time of a batch under load.
        batch_characters: the least room of a batch, in characters.
    """

    def __init__(self, queue: Queue, compute: Compute, metrics: Metrics, batch_seconds: float, batch_characters: int):
        super().__init__(name="s2s-worker", daemon=True)
        self._queue, self._compute, self._metrics = queue, compute, metrics
        self._batch_seconds, self._batch_characters = batch_seconds, batch_characters
        self._characters = self._seconds = 0.0  # running sums
        self.busy_since: float | None = None
        """Time when the current batch was begun; None without one."""

    @property
    def characters_per_second(self) -> float:
        """The running average of the rate; 0 before the first batch."""
        return self._characters / self._seconds if self._seconds else 0.0

    def run(self) -> None:
        """Run the loop of the thread."""
        while (batch := self._queue.take(self._room)) is not None:
            self.take_one(batch)

    def take_one(self, batch: Batch) -> None:
        """Compute one batch, deliver its results, and measure its time."""
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
        """Return the room of the next batch, in characters."""
        return max(self._batch_characters, self._batch_seconds * self.characters_per_second)

    def _answers(self, settings: Hashable, texts: Sequence[Text]) -> list[Any]:
        """Return an answer for each text, or its error. A batch that fails is computed in halves, except if the model
        cannot compute any text."""
        try:
            return list(self._compute(settings, texts))
        except Refusal as refusal:
            return [refusal] * len(texts)
        except Exception as error:
            if len(texts) == 1:
                return [error]
        middle = len(texts) // 2  # outside the except clause, whose traceback keeps the objects of the failed attempt
        return self._answers(settings, texts[:middle]) + self._answers(settings, texts[middle:])
