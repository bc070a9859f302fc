"""The sentences that wait to be computed, and which of them are computed next.

`service` puts in a `Job` for each request; the worker takes batches and delivers what came of them. Any thread may
call anything here.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# What a sentence costs besides its characters, in characters.
PER_SENTENCE = 8
# Of the time of a batch: so long the next one waits for those that the batch has answered to ask again.
PATIENCE = 0.1


class Text(NamedTuple):
    """One sentence or line to be computed."""

    text: str
    prefix: str = ""
    """What its translation begins with."""


class Job:
    """The sentences of one request.

    Args:
        settings: how they are computed; sentences of equal settings share batches.
        texts: the sentences.
        told: called by the worker's thread whenever some of them are done, or the job has failed.
    """

    def __init__(self, settings: Hashable, texts: Sequence[Text], told: Callable[[], None]):
        self.settings, self.texts, self.told = settings, texts, told
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


class Queue:
    """A bounded queue that is fair to jobs: of those that wait each gives one sentence in turn.

    A worker that is idle takes what has come, and under load batches fill while the one before is computed. Clients
    that ask again once they are answered would be divided by this: the first to come back are a small batch, and all
    others wait for it. So after a batch the next one waits until as many sentences have come, for `PATIENCE` of the
    time that the batch took at most; a sentence that comes later never waits.
    """

    def __init__(self, sentences: int, characters: int):
        self.most_sentences, self.most_characters = sentences, characters
        self.sentences = self.characters = 0
        """That wait now."""
        self._jobs: deque[Job] = deque()  # that have sentences which wait
        self._is_open = True
        self._answered, self._patient_until = 0, 0.0
        self._changed = threading.Condition()

    def put(self, job: Job) -> None:
        """Let the sentences of a job wait, all or none.

        Raises:
            Full: there is no room for all of them.
        """
        count, characters = len(job.waiting), job.characters
        if count > self.most_sentences or characters > self.most_characters:
            raise Full(None)
        with self._changed:
            if self.sentences + count > self.most_sentences or self.characters + characters > self.most_characters:
                missing = (self.sentences + count - self.most_sentences) / max(self.sentences, 1)
                excess = max(self.characters + characters - self.most_characters, missing * self.characters)
                raise Full(round(excess))
            self._count(count, characters)
            if count:
                self._jobs.append(job)
                self._changed.notify()

    def take(self, room: Callable[[], float]) -> Batch | None:
        """The next batch; waits for one. None once the queue is closed and empty.

        It has at most `room()` characters, or one sentence; each sentence counts `PER_SENTENCE` more.
        """
        with self._changed:
            while (patience := self._patience()) != 0:
                self._changed.wait(patience)
            if not self._jobs:
                return None
            batch, left = Batch(self._jobs[0].settings), room()
            turns = deque(job for job in self._jobs if job.settings == batch.settings)
            while turns:
                job = turns.popleft()
                size = len(job.texts[job.waiting[0]].text)
                left -= size + PER_SENTENCE
                if batch.members and left < 0:
                    turns.appendleft(job)
                    break
                batch.members.append((job, job.waiting.popleft()))
                batch.characters += size
                if job.waiting:
                    turns.append(job)
            self._count(-len(batch.members), -batch.characters)
            # Those of other settings are next, and then who is at turn.
            self._jobs = deque([*(job for job in self._jobs if job.settings != batch.settings), *turns])
        now = time.monotonic()
        for job in dict.fromkeys(job for job, _ in batch.members):
            job.begun = job.begun or now
        return batch

    def deliver(self, batch: Batch, results: Sequence[Any], seconds: float) -> None:
        """Give the sentences of a batch, which took so long, what came of them; an exception fails its whole job."""
        now = time.monotonic()
        self._answered, self._patient_until = len(batch.members), now + PATIENCE * seconds
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
                self._count(-count, -job.characters)
                job.waiting.clear()
                self._jobs.remove(job)
        return count

    def close(self) -> None:
        """Let the worker end once it has computed what waits."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _patience(self) -> float | None:
        """Seconds to wait for more; None is until something comes, and 0 not any longer."""
        if not self._jobs:
            return None if self._is_open else 0
        if self.sentences >= self._answered or not self._is_open:
            return 0
        return max(self._patient_until - time.monotonic(), 0)

    def _count(self, sentences: int, characters: int) -> None:
        self.sentences += sentences
        self.characters += characters
