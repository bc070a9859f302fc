"""The service that all dialects share: texts in, translations and classifications out.

`v1`, `libretranslate` and `page` call `Service`; it splits texts into sentences, puts them into the queue, and joins
the results of the worker.
"""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeVar

from starlette.requests import Request

from seq2seq.errors import UserError
from seq2seq.inference.translation import Translation
from seq2seq.serve.glossaries import Glossaries
from seq2seq.serve.http import Bodies, client_of, unless_gone
from seq2seq.serve.limits import SHARES, Limits, Refusal, bad, unsupported
from seq2seq.serve.metrics import Metrics
from seq2seq.serve.models import AUTO, Models
from seq2seq.serve.queue import Full, Job, Queue, Text, Worker
from seq2seq.serve.request import Answers, Documents, Translating
from seq2seq.serve.schemas import GlossaryBody, TranslateRequest
from seq2seq.serve.served import ServedTranslator, Settings, Terms, abilities_of
from seq2seq.text.alignment import KINDS
from seq2seq.text.glossary import Glossary
from seq2seq.text.parts import Part, cut

Entered = TypeVar("Entered", bound=Answers)

WARM_UP = "A word."
# The factor by which a glossary increases the cost of a sentence, approximately.
COST_OF_TERMS = 4


class Service:
    """The models, their queue, and the thread that computes.

    `draining` becomes true when the server stops; accepted requests are still answered.
    """

    def __init__(self, models: Models, limits: Limits, glossaries: Glossaries | None = None):
        self.models, self.limits, self.metrics = models, limits, Metrics()
        self.bodies = Bodies(limits)
        self.glossaries = (glossaries or Glossaries()).fitting(models)
        self.draining = False
        self.queue = Queue(limits.queue_sentences, limits.queue_characters)
        self.worker = Worker(self.queue, self._compute, self.metrics, limits.batch_seconds, limits.batch_characters)
        self._jobs: set[Job] = set()
        self._documents: set[Job] = set()
        self._preparing = threading.Thread(target=self._load_aligners, name="s2s-prepare", daemon=True)
        self.metrics.waiting_sentences.set_function(lambda: self.queue.sentences)
        self.metrics.waiting_characters.set_function(lambda: self.queue.characters)

    def start(self) -> None:
        """Warm up each model, so that the first client does not wait for allocations, and start the thread.

        Raises:
            UserError: a model cannot compute.
        """
        for model in self.models:
            one = model.of_one_direction() if isinstance(model, ServedTranslator) else model
            one.compute([Text(WARM_UP)], Settings(model.name))
        self.worker.start()

    def prepare_details(self) -> None:
        """Load the aligners in a separate thread: the page's first text needs them, and loading takes seconds."""
        if self._preparing.ident is None:
            self._preparing.start()

    def _load_aligners(self) -> None:
        for model in self.models.translators:
            if model.can_explain:
                with contextlib.suppress(Refusal):  # requests that need it try again
                    _ = model.aligner

    @property
    def is_computing(self) -> bool:
        """Whether a thread is still computing or loading."""
        return self.worker.is_alive() or self._preparing.is_alive()

    @property
    def is_ready(self) -> bool:
        """Whether requests are accepted and answered, and no batch takes longer than the deadline."""
        since = self.worker.busy_since
        is_stuck = since is not None and time.monotonic() - since > self.limits.deadline_seconds
        return self.worker.is_alive() and not is_stuck and not self.draining

    def abilities(self) -> dict[str, Any]:
        """Return the possible values of the fields of a request on this server; others are refused."""
        return {
            **abilities_of(self.models.translators),
            "split": ["lines", "sentences", "none"],
            "glossaries": sorted(self.glossaries.named),
            "default_glossaries": list(self.glossaries.default_names),
            "glossaries_of_directions": {
                name: [vars(one) for one in known] for name, known in self.glossaries.directions.items()
            },
            "detects_languages": len(self.models.sources) > 1,
        }

    # -- requests --------------------------------------------------------------------------------

    async def sourced(self, asked: TranslateRequest) -> TranslateRequest:
        """Return the request with the language of its texts as its source, if that is `auto`.

        Raises:
            Refusal: the texts are over a limit, or as in `Models.source_of`.
        """
        if asked.source is None or asked.source.lower() != AUTO:
            return asked
        self.check_texts(asked.texts)
        given = asked.texts, asked.source, asked.target, asked.model, asked.format
        return asked.model_copy(update={"source": await asyncio.to_thread(self.models.source_of, *given)})

    def accept(self, asked: TranslateRequest, client: str = "") -> Translating:
        """Check a request for translations, and put its sentences into the queue.

        Raises:
            Refusal: the request is wrong or too large, or the queue has no room.
        """
        self._check_abilities(asked)
        model = self.models.translator(asked.source, asked.target, asked.model, asked.needs_alignments)
        terms = self._terms(asked.glossary, model)
        beam_size = model.translator.config.beam_size
        self._check_limits(asked, beam_size)
        if (asked.explains or terms) and not model.can_explain:
            raise unsupported("details" if asked.explains else "glossary", model.unexplained)
        if asked.is_document:
            _check_document(asked, model)
        settings = Settings(model.name, asked.search, KINDS if asked.explains else (), terms, model.direction)
        try:
            model.under(settings.search)
        except UserError as error:
            beam = asked.beam_size or beam_size
            message = f"a beam of {beam} has {beam - 1} alternatives at most; request a larger beam_size"
            raise bad(message, "alternatives" if asked.alternatives else "beam_size") from error
        self.check_texts(asked.texts)
        weight = max(1.0, (asked.beam_size or beam_size) / beam_size)
        longest = int(self.limits.line_characters / weight)
        parts = [cut(text, "none" if asked.is_document else asked.split, longest) for text in asked.texts]
        if not asked.is_document:
            self._check_lines(chain.from_iterable(parts), longest)
        weight *= COST_OF_TERMS if terms else 1
        prefixes = asked.prefixes or [""] * len(parts)
        answers = Translating(model, settings, parts, prefixes, self.limits.deadline_seconds, client, weight)
        if asked.is_document:
            answers.documents = Documents(answers.job, asked.format, model, self.queue, longest)
        return self._enter(answers)

    async def translated(self, request: Request, asked: TranslateRequest) -> list[Translation]:
        """Return the translations for a request; if its client leaves, its sentences are withdrawn.

        Raises:
            Refusal: as in `accept`, or the deadline has passed.
            ClientDisconnect: the client left.
        """
        answers = self.accept(asked, client_of(request.client))
        try:
            return await unless_gone(request, answers.joined())
        finally:
            self.leave(answers)

    def classifying(self, texts: Sequence[str], name: str | None, client: str = "") -> Answers:
        """Check a request for labels, and put its texts into the queue.

        Raises:
            Refusal: as in `accept`.
        """
        model = self.models.classifier(name)
        self.check_texts(texts)
        rows = [Text(text) for text in texts]
        self._check_lines(rows, self.limits.line_characters)
        return self._enter(Answers(model, Settings(model.name), rows, self.limits.deadline_seconds, client, 1.0))

    def leave(self, answers: Answers) -> None:
        """Withdraw answers and count them; must be called once for all that `accept` and `classifying` returned."""
        job, metrics = answers.job, self.metrics
        other = "failed" if job.failure else "withdrawn"  # read before `stop`, which makes documents fail
        self._jobs.discard(job)
        self.queue.withdraw(job)
        if answers.documents is not None:
            answers.documents.stop()
            self._documents.discard(job)
        metrics.sentences.labels("done").inc(answers.sent)
        metrics.sentences.labels(other).inc(len(job.results) - answers.sent)
        if isinstance(answers, Translating):
            for flag in chain.from_iterable(result.flags for result in job.results[: answers.sent]):
                metrics.flags.labels(flag).inc()
            for term in answers.terms():
                metrics.terms.labels(term.status).inc()
        usage = answers.usage()
        metrics.characters.inc(usage["characters"])
        metrics.tokens.inc(usage.get("target_tokens", 0))

    def give_up(self) -> None:
        """Refuse all requests that are not answered yet."""
        for job in list(self._jobs):
            self.queue.fail(job, Refusal(503, "stopping", "the server is stopping", retry_after=5))

    def _check_abilities(self, asked: TranslateRequest) -> None:
        """Refuse values that this server does not support, and prefixes that do not fit the texts."""
        able = self.abilities()
        if asked.format not in able["formats"]:
            raise unsupported("format", f"this server supports {', '.join(able['formats'])}")
        if missing := [name for name in asked.details if name not in able["details"]]:
            raise unsupported("details", f"this server has no {', '.join(missing)}")
        if asked.prefixes and len(asked.prefixes) != len(asked.texts):
            raise bad(f"{len(asked.prefixes)} prefixes for {len(asked.texts)} texts; give one for each", "prefix")

    def _check_limits(self, asked: TranslateRequest, beam_size: int) -> None:
        """Refuse a search over the limits; `beam_size` is the beam size of the model."""
        widest = max(self.limits.beam_size, beam_size)
        if asked.beam_size is not None and asked.beam_size > widest:
            raise bad(f"at most {widest}", "beam_size", "too_large")
        if asked.alternatives > self.limits.alternatives:
            raise bad(f"at most {self.limits.alternatives}", "alternatives", "too_large")

    def check_texts(self, texts: Sequence[str]) -> None:
        """Check the number and size of the texts of a request, whatever is done with them.

        Raises:
            Refusal: they are over a limit.
        """
        limits = self.limits
        if len(texts) > limits.texts:
            raise Refusal(413, "too_large", f"at most {limits.texts:,} texts in a request", "text")
        if sum(map(len, texts)) > limits.request_characters:  # checked before texts are split
            raise self._too_large()

    def _check_lines(self, pieces: Iterable[Part | Text], longest: int) -> None:
        """Refuse a line that is too long, because lines are computed without interruption."""
        if max((len(piece.text) for piece in pieces), default=0) > longest:
            remedy = "break it into lines" + ", or request a smaller beam" * (longest < self.limits.line_characters)
            raise Refusal(413, "too_large", f"a line has more than {longest:,} characters; {remedy}", "text")

    def _terms(self, glossary: str | list[str] | GlossaryBody | None, model: ServedTranslator) -> Terms:
        """Return the rows of all glossaries that a request names or contains, or else of the default ones of a model.

        Raises:
            Refusal: there is no such glossary, or the entries are invalid or too many.
        """
        entries, names = [], [glossary] if isinstance(glossary, str) else glossary
        if isinstance(glossary, GlossaryBody):
            entries, names = glossary.entries, glossary.names
        limits = self.limits
        named = self.glossaries.rows(self.glossaries.of_direction(model) if names is None else names)
        rows = tuple(tuple(column.strip() for column in entry) for entry in entries)
        if not rows:
            return named
        forms = sum(target.count("|") + 1 for _, target, *_ in rows)
        if len(rows) > limits.terms or forms > limits.term_forms:
            most = f"{limits.terms:,} entries with {limits.term_forms:,} forms"
            raise Refusal(413, "too_large", f"at most {most} in a request", "glossary")
        try:
            Glossary.of(enumerate(rows, start=1), None, "glossary")
        except UserError as error:
            raise bad(str(error), "glossary") from error
        return Terms(rows + named)

    def _too_large(self) -> Refusal:
        most = f"{self.limits.request_characters:,} characters"
        return Refusal(413, "too_large", f"at most {most} in a request; send it in parts", "text")

    def _enter(self, answers: Entered) -> Entered:
        try:
            self._put(answers)
        except Full as full:
            if full.excess is None:
                raise self._too_large() from full
            rate = self.worker.characters_per_second
            seconds = math.ceil(full.excess / rate) if rate else 1
            # Each waiting request is answered or refused before its deadline passes, so the queue has room by then.
            after = min(max(seconds, 1), math.ceil(self.limits.deadline_seconds))
            raise Refusal(429, "queue_full", "too many sentences wait; try again later", retry_after=after) from full
        self._jobs.add(answers.job)
        if answers.documents is not None:
            answers.documents.start()
        self.metrics.sentences.labels("accepted").inc(len(answers.job.texts))
        return answers

    def _put(self, answers: Answers) -> None:
        """Put the sentences into the queue; those of documents follow later, so only their number is limited here."""
        job = answers.job
        if answers.documents is None:
            self.queue.put(job)
            return
        others = sum(other.client == job.client for other in self._documents)
        if others >= self.limits.documents or len(self._documents) >= SHARES * self.limits.documents:
            raise Full(job.characters)
        self.queue.check(job)
        job.waiting.clear()
        self._documents.add(job)

    def _compute(self, settings: Hashable, texts: Sequence[Text]) -> Sequence[Any]:
        assert isinstance(settings, Settings)
        return self.models.computing(settings).compute(texts, settings)


def _check_document(asked: TranslateRequest, model: ServedTranslator) -> None:
    if not model.can_explain:
        raise unsupported("format", model.unexplained)
    if asked.alternatives:
        raise bad("a document has one translation; leave out alternatives", "alternatives")
    if asked.details:
        raise unsupported("details", "they are for text; a document has none")
    if any(asked.prefixes):
        raise bad("a document has no prefix; leave it out", "prefix")
