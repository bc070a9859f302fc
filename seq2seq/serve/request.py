"""The pending results of one request: its texts, and their results in order.

`Service.accept` makes `Answers`, and each dialect awaits them. A separate thread reads and writes the documents of a
request; their sentences wait in turn with those of other clients, so a long document delays nobody.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from seq2seq.errors import DataError
from seq2seq.inference.degeneration import text_flags
from seq2seq.inference.documents import translate_documents
from seq2seq.inference.translation import Translation, join
from seq2seq.markup.translation import BadDocument
from seq2seq.serve.limits import Refusal, bad, field_of_text
from seq2seq.serve.queue import Job, Queue, Text
from seq2seq.serve.served import ServedModel, ServedTranslator, Settings
from seq2seq.text.alignment import Term
from seq2seq.text.parts import Part, joint


class Documents(threading.Thread):
    """A thread that translates the documents of a job, and stores the results in it.

    Args:
        job: job whose texts are documents; it never waits in the queue itself.
        form: format of `markup.translation.FORMATS`.
        model: translation model.
        queue: queue for the sentences of the documents.
        longest: number of characters above which a sentence is cut, because it is computed without interruption.
    """

    def __init__(self, job: Job, form: str, model: ServedTranslator, queue: Queue, longest: int):
        super().__init__(name="s2s-document", daemon=True)
        assert isinstance(job.settings, Settings)
        self._job, self._form, self._model, self._queue, self._longest = job, form, model, queue, longest
        self._settings = replace(job.settings, details=("alignment",))
        self._sentences: Job | None = None
        self._is_stopped = False
        self.computed: list[Translation] = []
        """The translations so far, with spans of the sentences; some sentences are translated several times."""

    def run(self) -> None:
        """Translate the documents; the thread runs this method."""
        job, model = self._job, self._model
        texts = [text.text for text in job.texts]
        try:
            pipeline = model.pipeline(self._settings)
            functions = self._translated, model.aligner, pipeline.is_untranslatable
            results = translate_documents(
                texts, self._form, *functions, longest=self._longest, is_term=pipeline.is_term
            )
        except Exception as error:
            job.failure = job.failure or error
        else:
            job.results[:] = results
        job.told()

    def stop(self) -> None:
        """Remove the waiting sentences from the queue, because nobody waits for the documents."""
        self._is_stopped = True
        if self._sentences is not None:
            self._queue.fail(self._sentences, InterruptedError())

    def _translated(self, texts: Sequence[str]) -> list[Translation]:
        changed, job = threading.Event(), self._job
        sentences = Job(self._settings, list(map(Text, texts)), changed.set, job.client, job.weight)
        self._sentences = sentences
        if self._is_stopped:
            raise InterruptedError
        self._queue.put(sentences, is_admitted=True)
        while sentences.failure is None and None in sentences.results:
            changed.wait()
            changed.clear()
        job.begun, job.ended = job.begun or sentences.begun, sentences.ended
        if sentences.failure is not None:
            raise sentences.failure
        self.computed += sentences.results
        return sentences.results


class Answers:
    """The pending results of a job, in order.

    Args:
        model: model that computes them.
        settings: settings of the computation.
        texts: texts to compute.
        deadline: seconds after which the request is refused.
        client: name of the client.
        weight: cost of a character, as in `Job`.
    """

    def __init__(
        self, model: ServedModel, settings: Hashable, texts: Sequence[Text], deadline: float, client: str, weight: float
    ):
        loop = asyncio.get_running_loop()
        self._changed, self._ends = asyncio.Event(), loop.time() + deadline

        def tell() -> None:  # called by the worker
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(self._changed.set)

        self.model, self.job = model, Job(settings, texts, tell, client, weight)
        self.documents: Documents | None = None
        """The thread that translates the texts, if they are documents."""
        self.sent = 0
        """The number of results that were given to the client."""

    async def results(self) -> AsyncIterator[Any]:
        """Yield each result as soon as it is available.

        Raises:
            Refusal: the deadline has passed, or a text cannot be computed because the request is wrong.
            Exception: the error of a text that cannot be computed for another reason.
        """
        for index in range(len(self.job.results)):
            while self.job.results[index] is None:
                if (failure := self.job.failure) is not None:
                    raise bad(str(failure), self._field(failure)) if isinstance(failure, DataError) else failure
                await self._change()
            yield self.job.results[index]

    def _field(self, failure: DataError) -> str:
        """Return the field of the request that an error concerns."""
        if any(text.prefix for text in self.job.texts):
            return "prefix"
        return field_of_text(failure.index, len(self.job.texts)) if isinstance(failure, BadDocument) else "text"

    async def _change(self) -> None:
        """Wait until results or a failure have been added to the job; refuse the request after its deadline."""
        try:
            async with asyncio.timeout_at(self._ends):
                await self._changed.wait()
        except TimeoutError:
            raise Refusal(504, "deadline", "the request took too long; send less text in a request") from None
        self._changed.clear()

    async def all(self) -> list[Any]:
        """Return all results; errors as in `results`."""
        results = [result async for result in self.results()]
        self.sent = len(results)
        return results

    def timing(self) -> dict[str, float]:
        """Return the milliseconds in the queue, and those from the first batch of this request to the last."""
        job = self.job
        begun = job.begun or job.entered
        seconds = {"queued_ms": begun - job.entered, "compute_ms": (job.ended or begun) - begun}
        return {name: round(1000 * value, 1) for name, value in seconds.items()}

    def usage(self) -> dict[str, int]:
        """Return the amount of text whose results were sent."""
        return {"characters": sum(len(text.text) for text in self.job.texts[: self.sent]), "sentences": self.sent}


class Translating(Answers):
    """The pending translations of texts; `pieces` are the parts of each text, and `job.texts` all parts in one list."""

    def __init__(self, model: ServedTranslator, settings: Hashable, pieces: Sequence[Sequence[Part]],
                 prefixes: Sequence[str], deadline: float, client: str, weight: float):  # fmt: skip
        texts = []
        for group, prefix in zip(pieces, prefixes, strict=True):
            first = next((number for number, piece in enumerate(group) if piece.text.strip()), 0)
            texts += [
                Text(piece.text, prefix if number == first else "", piece.tag) for number, piece in enumerate(group)
            ]
        super().__init__(model, settings, texts, deadline, client, weight)
        self.translator = model.translator
        self.pieces = pieces

    async def parts(self) -> AsyncIterator[tuple[int, Part, Translation]]:
        """Yield (number of the text, part, its translation) for each part, whose `before` belongs to the translation;
        errors as in `results`."""
        places = ((number, piece) for number, group in enumerate(self.pieces) for piece in group)
        last, source, answer = -1, "", ""
        async for result in self.results():
            number, piece = next(places)
            if number != last:
                last, source, answer = number, "", ""
            before = joint(source, answer, piece, result.text)
            yield number, piece._replace(before=before), result
            self.sent += 1
            source, answer = piece.text, result.text or answer + before

    async def joined(self) -> list[Translation]:
        """Return the translation of each text; errors as in `results`."""
        results = iter(await self.all())
        penalty = self.translator.config.length_penalty
        return [joined(group, [next(results) for _ in group], penalty) for group in self.pieces]

    @property
    def _translations(self) -> list[Translation]:
        """The translations that were sent: of the texts, or if these are documents and all were, of their sentences."""
        if self.documents is not None:
            return self.documents.computed if self.sent == len(self.job.texts) else []
        return self.job.results[: self.sent]

    def terms(self) -> list[Term]:
        """Return the terms of the text that was sent."""
        return list(chain.from_iterable(result.terms for result in self._translations))

    def usage(self) -> dict[str, int]:
        """Return the amount of text whose results were sent; the characters of documents include markup."""
        usage = super().usage()
        if self.documents is not None:
            usage["sentences"] = sum(len(result.sentences) for result in self.job.results[: self.sent])
        return {**usage, "target_tokens": sum(result.tokens for result in self._translations)}


def joined(parts: Sequence[Part], answers: Sequence[Translation], length_penalty: float) -> Translation:
    """Return the translation of a text from those of its lines or sentences."""
    source = "".join(part.before + part.text for part in parts)
    return join(source, parts, answers, length_penalty, text_flags([answer.flags for answer in answers]))
