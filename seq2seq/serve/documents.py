"""The documents of a request, whose sentences wait in the queue like those of any text.

`service` starts one thread for each such request: it reads the documents, lets the worker translate their sentences in
turn with those of other clients, and writes the documents. So a long document does not delay other clients.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING

from seq2seq.inference.details import Details
from seq2seq.serve.explained import Explained
from seq2seq.serve.models import ServedTranslator, Settings
from seq2seq.serve.queue import Job, Queue, Text

if TYPE_CHECKING:
    from seq2seq.inference.aligner import Aligner


class Documents(threading.Thread):
    """Translates the texts of `job`, and delivers them to it.

    Args:
        job: of documents; it never waits in the queue itself.
        form: a format of `markup.translation.FORMATS`.
        model: translates them.
        queue: where their sentences wait.
    """

    def __init__(self, job: Job, form: str, model: ServedTranslator, queue: Queue):
        super().__init__(name="s2s-document", daemon=True)
        assert isinstance(job.settings, Settings)
        self._job, self._form, self._model, self._queue = job, form, model, queue
        self._settings = replace(job.settings, explains=True, only_links=True)
        self._sentences: Job | None = None
        self._is_stopped = False

    def run(self) -> None:
        """Run in the thread."""
        from seq2seq.inference.marked import MarkupTranslator  # it imports torch

        job = self._job
        texts = [text.text for text in job.texts]
        try:
            plain = _Queued(self._model.aligner, self._is_untranslatable, self._explained)
            found = MarkupTranslator(plain, plain).translate(texts, self._form)
        except Exception as error:
            job.failure = job.failure or error
        else:
            job.results[:] = [
                Explained(one.text, nan, nan, 0, tuple(dict.fromkeys(one.flags)), (), text)
                for text, one in zip(texts, found, strict=True)
            ]
        job.told()

    def stop(self) -> None:
        """Take the waiting sentences out of the queue, because nobody waits for the documents."""
        self._is_stopped = True
        if self._sentences is not None:
            self._queue.fail(self._sentences, InterruptedError())

    def _is_untranslatable(self, text: str) -> bool:
        return self._model.is_untranslatable(text, self._settings)

    def _explained(self, texts: Sequence[str]) -> list[Explained]:
        changed, job = threading.Event(), self._job
        own = Job(self._settings, list(map(Text, texts)), changed.set, job.client, job.weight)
        self._sentences = own
        if self._is_stopped:
            raise InterruptedError
        self._queue.put(own, is_admitted=True)
        while own.failure is None and None in own.results:
            changed.wait()
            changed.clear()
        job.begun, job.ended = job.begun or own.begun, own.ended
        if own.failure is not None:
            raise own.failure
        return own.results


class _Queued:
    """A translator and the aligner of its model, whose sentences wait in the queue."""

    def __init__(
        self,
        aligner: "Aligner",
        is_untranslatable: Callable[[str], bool],
        translate: Callable[[Sequence[str]], list[Explained]],
    ):
        self.calibration, self.description = aligner.calibration, aligner.description
        self.is_untranslatable, self.translate = is_untranslatable, translate

    def explain(self, translations: Sequence[Explained], probabilities: bool) -> list[Sequence[Details]]:
        """The details of the parts of each."""
        return [one.details for one in translations]
