"""What is served, whatever the dialect: texts in, translations and classifications out.

`api`, `libretranslate` and `page` call `Service`; it cuts texts into sentences, lets them wait in the queue, and joins
what the worker made of them.
"""

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
from seq2seq.markup.translation import FORMATS
from seq2seq.serve.glossaries import Glossaries
from seq2seq.serve.http import Bodies, client_of, unless_gone
from seq2seq.serve.limits import SHARES, Limits, Refusal, bad, unsupported
from seq2seq.serve.metrics import Metrics
from seq2seq.serve.models import Models, ServedTranslator, Settings, Terms
from seq2seq.serve.queue import Full, Job, Queue, Text, Worker
from seq2seq.serve.request import Answers, Documents, Translating
from seq2seq.serve.schemas import GlossaryBody, TranslateRequest
from seq2seq.text.alignment import KINDS
from seq2seq.text.glossary import Glossary
from seq2seq.text.parts import Part, cut

Entered = TypeVar("Entered", bound=Answers)

MOST_RETRY_SECONDS = 600
WARM_UP = "A word."
NO_WEIGHTS = "this is a CTranslate2 folder, which has no attention weights; serve the model that it was made from"
# A sentence with a glossary takes about this many times as long as one without.
COST_OF_TERMS = 4


class Service:
    """The models, the queue in front of them, and the thread that computes.

    `draining` becomes true when the server has been told to stop: what it has taken is still answered.
    """

    def __init__(self, models: Models, limits: Limits, glossaries: Glossaries | None = None):
        self.models, self.limits, self.metrics = models, limits, Metrics()
        self.bodies = Bodies(limits)
        self.glossaries = (glossaries or Glossaries()).fitting(models)
        self._can_explain = any(model.can_explain for model in models.translators)
        self.draining = False
        self.queue = Queue(limits.queue_sentences, limits.queue_characters)
        self.worker = Worker(self.queue, self._compute, self.metrics, limits.batch_seconds, limits.batch_characters)
        self._jobs: set[Job] = set()
        self._documents: set[Job] = set()
        self._preparing = threading.Thread(target=self._load_aligners, name="s2s-prepare", daemon=True)
        self.metrics.waiting_sentences.set_function(lambda: self.queue.sentences)
        self.metrics.waiting_characters.set_function(lambda: self.queue.characters)

    def start(self) -> None:
        """Compute something with each model, so that the first client does not wait for what that allocates; then let
        the thread take what comes.

        Raises:
            UserError: a model cannot compute.
        """
        for model in self.models:
            model.compute([Text(WARM_UP)], Settings(model.name))
        self.worker.start()

    def prepare_details(self) -> None:
        """Load what alignments and glossaries need, in a thread of its own: the page asks for them with its first text,
        and loading takes seconds."""
        if self._preparing.ident is None:
            self._preparing.start()

    def _load_aligners(self) -> None:
        for model in self.models.translators:
            if model.can_explain:
                with contextlib.suppress(Refusal, OSError):  # the requests that need it are told
                    _ = model.aligner

    @property
    def is_computing(self) -> bool:
        """Whether a thread is in the midst of something."""
        return self.worker.is_alive() or self._preparing.is_alive()

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken, and answered: no batch takes longer than a deadline."""
        since = self.worker.busy_since
        is_stuck = since is not None and time.monotonic() - since > self.limits.deadline_seconds
        return self.worker.is_alive() and not is_stuck and not self.draining

    def abilities(self) -> dict[str, Any]:
        """What the fields of a request may hold here. What is not in it is refused."""
        return {
            "formats": ["text", *(sorted(FORMATS) if self._can_explain else [])],
            "split": ["lines", "sentences", "none"],
            "details": ["sentences", *KINDS, "terms"] if self._can_explain else [],
            "glossary": self._can_explain,
            "glossaries": sorted(self.glossaries.named),
            "default_glossaries": list(self.glossaries.default_names),
            "detects_languages": False,
        }

    # -- requests --------------------------------------------------------------------------------

    def accept(self, asked: TranslateRequest, client: str = "") -> Translating:
        """Check a request for translations, and let its sentences wait.

        Raises:
            Refusal: it is wrong, too large, or there is no room.
        """
        self._check_abilities(asked)
        terms = self._terms(asked.glossary)
        model = self.models.translator(asked.source, asked.target, asked.model)
        own = model.translator.config.beam_size
        self._check_limits(asked, own)
        if (asked.explains or terms) and not model.can_explain:
            raise unsupported("details" if asked.explains else "glossary", NO_WEIGHTS)
        if asked.is_document:
            _check_document(asked, model)
        settings = Settings(model.name, asked.search, KINDS if asked.explains else (), terms)
        try:
            model.under(settings.search)
        except UserError as error:
            beam = asked.beam_size or own
            message = f"a beam of {beam} has {beam - 1} alternatives at most; ask for a larger beam_size"
            raise bad(message, "alternatives" if asked.alternatives else "beam_size") from error
        self._check_texts(asked.texts)
        weight = max(1.0, (asked.beam_size or own) / own)
        longest = int(self.limits.line_characters / weight)
        parts = [cut(text, "none" if asked.is_document else asked.split, longest) for text in asked.texts]
        if not asked.is_document:
            self._check_lines(chain.from_iterable(parts), longest)
        weight *= COST_OF_TERMS if terms else 1
        prefixes = asked.prefixes or [""] * len(parts)
        answers = Translating(model, settings, parts, prefixes, self.limits.deadline_seconds, client, weight)
        if asked.is_document:
            answers.documents = Documents(answers.job, asked.format, model, self.queue)
        return self._enter(answers)

    async def translated(self, request: Request, asked: TranslateRequest) -> list[Translation]:
        """Return the translations for a request; if its client leaves, they are given up.

        Raises:
            Refusal: as `accept`, or there is no time.
            ClientDisconnect: the client left.
        """
        answers = self.accept(asked, client_of(request.client))
        try:
            return await unless_gone(request, answers.joined())
        finally:
            self.leave(answers)

    def classifying(self, texts: Sequence[str], name: str | None, client: str = "") -> Answers:
        """Check a request, and let its texts wait.

        Raises:
            Refusal: as `accept`.
        """
        model = self.models.classifier(name)
        self._check_texts(texts)
        rows = [Text(text) for text in texts]
        self._check_lines(rows, self.limits.line_characters)
        return self._enter(Answers(model, Settings(model.name), rows, self.limits.deadline_seconds, client, 1.0))

    def leave(self, answers: Answers) -> None:
        """Nobody waits for these any more: called once for all that `accept` and `classifying` gave."""
        job = answers.job
        self._jobs.discard(job)
        self.queue.withdraw(job)
        if answers.documents is not None:
            answers.documents.stop()
            self._documents.discard(job)
        done, metrics = [result for result in job.results if result is not None], self.metrics
        metrics.sentences.labels("done").inc(len(done))
        metrics.sentences.labels("failed" if job.failure else "withdrawn").inc(len(job.results) - len(done))
        if isinstance(answers, Translating):
            for flag in chain.from_iterable(result.flags for result in done):
                metrics.flags.labels(flag).inc()
            for term in chain.from_iterable(result.terms for result in done):
                metrics.terms.labels(term.status).inc()
        usage = answers.usage()
        metrics.characters.inc(usage["characters"])
        metrics.tokens.inc(usage.get("target_tokens", 0))

    def give_up(self) -> None:
        """Refuse what is still not answered."""
        for job in list(self._jobs):
            self.queue.fail(job, Refusal(503, "stopping", "the server is stopping", retry_after=5))

    def _check_abilities(self, asked: TranslateRequest) -> None:
        """Refuse what this server has nothing for, and prefixes that do not fit the texts."""
        able = self.abilities()
        if asked.format not in able["formats"]:
            raise unsupported("format", f"this server takes {', '.join(able['formats'])}")
        if missing := [name for name in asked.details if name not in able["details"]]:
            raise unsupported("details", f"this server has no {', '.join(missing)}")
        if asked.prefixes and len(asked.prefixes) != len(asked.texts):
            raise bad(f"{len(asked.prefixes)} prefixes for {len(asked.texts)} texts; give one for each", "prefix")

    def _check_limits(self, asked: TranslateRequest, own: int) -> None:
        """Refuse a search over the limits, for a model with its own beam size."""
        widest = max(self.limits.beam_size, own)
        if asked.beam_size is not None and asked.beam_size > widest:
            raise bad(f"at most {widest}", "beam_size", "too_large")
        if asked.alternatives > self.limits.alternatives:
            raise bad(f"at most {self.limits.alternatives}", "alternatives", "too_large")

    def _check_texts(self, texts: Sequence[str]) -> None:
        limits = self.limits
        if len(texts) > limits.texts:
            raise Refusal(413, "too_large", f"at most {limits.texts:,} texts in a request", "text")
        if sum(map(len, texts)) > limits.request_characters:  # before they are cut
            raise self._too_large()

    def _check_lines(self, pieces: Iterable[Part | Text], longest: int) -> None:
        """Refuse a line that takes long, because it is translated in one go."""
        if max((len(piece.text) for piece in pieces), default=0) > longest:
            remedy = "break it into lines" + ", or request a smaller beam" * (longest < self.limits.line_characters)
            raise Refusal(413, "too_large", f"a line has more than {longest:,} characters; {remedy}", "text")

    def _terms(self, glossary: str | list[str] | GlossaryBody | None) -> Terms:
        """Return the rows of all glossaries that a request names or contains, or else of the default ones.

        Raises:
            Refusal: there is no such glossary, or the entries are no glossary or too many.
        """
        entries, names = [], [glossary] if isinstance(glossary, str) else glossary
        if isinstance(glossary, GlossaryBody):
            entries, names = glossary.entries, glossary.names
        limits, own = self.limits, self.glossaries.rows(names)
        rows = tuple((source.strip(), target.strip()) for source, target in entries)
        if not rows:
            return own
        forms = sum(target.count("|") + 1 for _, target in rows)
        if len(rows) > limits.terms or forms > limits.term_forms:
            most = f"{limits.terms:,} entries with {limits.term_forms:,} forms"
            raise Refusal(413, "too_large", f"at most {most} in a request", "glossary")
        try:
            Glossary.of(enumerate(rows, start=1), None, "glossary")
        except UserError as error:
            raise bad(str(error), "glossary") from error
        return Terms(rows + own)

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
            after = min(max(seconds, 1), MOST_RETRY_SECONDS)
            raise Refusal(429, "queue_full", "too many sentences wait; try again later", retry_after=after) from full
        self._jobs.add(answers.job)
        if answers.documents is not None:
            answers.documents.start()
        self.metrics.sentences.labels("accepted").inc(len(answers.job.texts))
        return answers

    def _put(self, answers: Answers) -> None:
        """Queue the sentences. Those of documents come later, so only the number of documents is bounded here."""
        job = answers.job
        if answers.documents is None:
            self.queue.put(job)
            return
        others = sum(one.client == job.client for one in self._documents)
        if others >= self.limits.documents or len(self._documents) >= SHARES * self.limits.documents:
            raise Full(job.characters)
        self.queue.check(job)
        job.waiting.clear()
        self._documents.add(job)

    def _compute(self, settings: Hashable, texts: Sequence[Text]) -> Sequence[Any]:
        assert isinstance(settings, Settings)
        return self.models.by_name[settings.model].compute(texts, settings)


def _check_document(asked: TranslateRequest, model: ServedTranslator) -> None:
    if not model.can_explain:
        raise unsupported("format", NO_WEIGHTS)
    if asked.alternatives:
        raise bad("a document has one translation; leave out alternatives", "alternatives")
    if asked.explains:
        raise unsupported("details", "they are for text; a document has none")
    if any(asked.prefixes):
        raise bad("a document has no prefix; leave it out", "prefix")
