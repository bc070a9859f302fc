"""The sentences that wait to be computed, which of them are computed next, and the one thread that computes them.

`service` puts in a `Job` for each request; the `Worker` takes batches and delivers what came of them. Any thread may
call anything of the queue.
"""

import heapq
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seq2seq.serve.limits import SHARES
from seq2seq.serve.metrics import Metrics

Compute = Callable[[Hashable, Sequence["Text"]], Sequence[Any]]
# Decay per batch of the running average of the rate.
FORGOTTEN = 0.05
# What a sentence costs besides its characters, in characters.
PER_SENTENCE = 8
# Of the time of a batch: so long the next one waits for those that the batch has answered to ask again.
PATIENCE = 0.1


class Text(NamedTuple):
    """One sentence or line to be computed."""

    text: str
    prefix: str = ""
    """What its translation begins with."""
    tag: str = ""
    """Language tag that the model reads before it."""


class Job:
    """The sentences of one request.

    Args:
        settings: how they are computed; sentences of equal settings share batches.
        texts: the sentences.
        told: called by the worker's thread whenever some of them are done, or the job has failed.
        client: the client's name; clients take turns.
        weight: what a character costs, of one that is translated under the model's own settings.
    """

    def __init__(
        self, settings: Hashable, texts: Sequence[Text], told: Callable[[], None], client: str = "", weight: float = 1.0
    ):
        self.settings, self.texts, self.told, self.client, self.weight = settings, texts, told, client, weight
        self.results: list[Any] = [None] * len(texts)
        """Filled from the front."""
        self.failure: Exception | None = None
        self.waiting = deque(range(len(texts)))
        self.entered = time.monotonic()
        self.begun: float | None = None
        """When the first of its sentences was taken from the queue."""
        self.ended: float | None = None

    @property
    def characters(self) -> int:
        """Of the sentences that wait."""
        return sum(len(self.texts[index].text) for index in self.waiting)

    def size(self, index: int) -> int:
        """Return the cost of a sentence, in characters."""
        return round(len(self.texts[index].text) * self.weight) + PER_SENTENCE


class Full(Exception):
    """There is no room; `excess` characters must go first, or it can never be (None)."""

    def __init__(self, excess: int | None):
        super().__init__()
        self.excess = excess


@dataclass
class Batch:
    """Sentences of one kind of settings that are computed together: jobs, and the indices of their sentences."""

    settings: Hashable
    members: list[tuple[Job, int]] = field(default_factory=list)
    characters: int = 0

    @property
    def texts(self) -> list[Text]:
        """What is computed."""
        return [job.texts[index] for job, index in self.members]


class _Client:
    """The jobs of a client that have sentences which wait."""

    def __init__(self) -> None:
        self.sentences = self.characters = 0
        self.jobs: deque[Job] = deque()

    def sharing(self, settings: Hashable) -> "_Turns":
        """The jobs that can be in a batch of these settings."""
        return _Turns(self, deque(job for job in self.jobs if job.settings == settings))


class _Turns(NamedTuple):
    """The jobs of a client that share a batch: each gives one sentence in turn."""

    client: _Client
    jobs: deque[Job]

    def take(self) -> tuple[Job, int]:
        """The next sentence."""
        job = self.jobs.popleft()
        index = job.waiting.popleft()
        if job.waiting:
            self.jobs.append(job)
        return job, index

    def end(self, settings: Hashable) -> None:
        """Put the jobs of other settings first, and then who is at turn."""
        self.client.jobs = deque([*(job for job in self.client.jobs if job.settings != settings), *self.jobs])


class Queue:
    """A bounded queue that is fair to clients, and of each client to its jobs.

    The client that has had the least time of the worker is next: its first job says the settings of the batch, and all
    clients with sentences of these settings fill it in equal shares. A new client begins with the
    time of the one that has had least, so that nobody waits for what others have had before. The bounds are those of a
    client; all together may have `SHARES` times as much. A client of whom nothing waits may put in more sentences than
    the bound, in one job, so that the number of characters alone says what a request may hold.

    A worker that is idle takes what has come, and under load batches fill while the one before is computed. Clients
    that ask again once they are answered would be divided by this: the first to come back are a small batch, and all
    others wait for it. So after a batch the next one waits until as many sentences have come, for `PATIENCE` of the
    time that the batch took at most; a sentence that comes later never waits.
    """

    def __init__(self, sentences: int, characters: int):
        self.most_sentences, self.most_characters = sentences, characters
        self.sentences = self.characters = 0
        """That wait now."""
        self._clients: dict[str, _Client] = {}  # that have sentences which wait
        self._is_open = True
        self._answered, self._patient_until = 0, 0.0
        self._used: dict[str, float] = {}  # seconds of the worker that each client has had
        self._least = 0.0  # of the client that was at turn last; others begin with this
        self._changed = threading.Condition()

    def put(self, job: Job, is_admitted: bool = False) -> None:
        """Let the sentences of a job wait, all or none; those of a request that `is_admitted` fit in any case.

        Raises:
            Full: there is no room for all of them.
        """
        count, characters = len(job.waiting), job.characters
        with self._changed:
            if not is_admitted:
                self.check(job)
            if count:
                client = self._clients.setdefault(job.client, _Client())
                self._used[job.client] = max(self._used.get(job.client, 0), self._least)
                client.jobs.append(job)
                self._count(client, count, characters)
                self._changed.notify()

    def check(self, job: Job) -> None:
        """Raise as `put` would."""
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
        """The next batch; waits for one. None once the queue is closed and empty.

        It has at most `room()` characters, or one sentence; each sentence counts `PER_SENTENCE` more.
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
            turns = [(0, number) for number in range(len(sharing))]  # a heap of what each has in the batch
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
        """Give the sentences of a batch, which took so long, what came of them; an exception fails its whole job."""
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
        """End a job with an error; those of its sentences that wait are withdrawn."""
        self.withdraw(job)
        job.failure = job.failure or error
        job.told()

    def withdraw(self, job: Job) -> int:
        """Take the sentences of a job that still wait out of the queue; returns how many there were."""
        with self._changed:
            count = len(job.waiting)
            if count:
                client = self._clients[job.client]
                self._count(client, -count, -job.characters)
                job.waiting.clear()
                client.jobs.remove(job)
                self._forget()
        return count

    def close(self) -> None:
        """Let the worker end once it has computed what waits."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _patience(self) -> float | None:
        """Seconds to wait for more; None is until something comes, and 0 not any longer."""
        if not self._clients:
            return None if self._is_open else 0
        if self.sentences >= self._answered or not self._is_open:
            return 0
        return max(self._patient_until - time.monotonic(), 0)

    def _charge(self, batch: Batch, seconds: float) -> None:
        """Divide the time of a batch among the clients of its sentences."""
        sizes: Counter[str] = Counter()
        for job, index in batch.members:
            sizes[job.client] += job.size(index)
        with self._changed:
            for name, size in sizes.items():
                self._used[name] = self._used.get(name, self._least) + seconds * size / sizes.total()

    def _forget(self) -> None:
        """Leave out clients of whom nothing waits."""
        self._clients = {name: client for name, client in self._clients.items() if client.jobs}
        self._used = {name: used for name, used in self._used.items() if name in self._clients or used > self._least}

    def _count(self, client: _Client, sentences: int, characters: int) -> None:
        for holder in (self, client):
            holder.sentences += sentences
            holder.characters += characters


class Worker(threading.Thread):
    """Computes batch after batch until the queue is closed and empty.

    Args:
        queue: where the batches come from.
        compute: the answers to texts under settings, in their order.
        metrics: counts batches.
        batch_seconds: target compute time of a batch under load.
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
