"""The documents of a request, whose sentences wait in the queue like those of any text.

`service` starts one thread for each such request: it reads the documents, lets the worker translate their sentences in
turn with those of other clients, and writes the documents. So a long document does not delay other clients.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace

from seq2seq.inference.pipeline import translate_documents
from seq2seq.inference.translation import Translation
from seq2seq.serve.models import ServedTranslator, Settings
from seq2seq.serve.queue import Job, Queue, Text


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
        job, model = self._job, self._model
        texts = [text.text for text in job.texts]
        try:
            found = translate_documents(texts, self._form, self._translated, model.aligner, self._is_untranslatable)
        except Exception as error:
            job.failure = job.failure or error
        else:
            job.results[:] = [replace(one, flags=tuple(dict.fromkeys(one.flags))) for one in found]
        job.told()

    def stop(self) -> None:
        """Take the waiting sentences out of the queue, because nobody waits for the documents."""
        self._is_stopped = True
        if self._sentences is not None:
            self._queue.fail(self._sentences, InterruptedError())

    def _is_untranslatable(self, text: str) -> bool:
        return self._model.is_untranslatable(text, self._settings)

    def _translated(self, texts: Sequence[str]) -> list[Translation]:
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
