"""What is served, whatever the dialect: texts in, translations and classifications out.

`api`, `libretranslate` and `page` call `Service`; it cuts texts into sentences, lets them wait in the queue, and joins
what the worker made of them.
"""

import contextlib
import math
import threading
import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from seq2seq.errors import UserError
from seq2seq.markup.translation import FORMATS
from seq2seq.serve.answers import Answers, Translating
from seq2seq.serve.documents import Documents
from seq2seq.serve.glossaries import Glossaries
from seq2seq.serve.http import Bodies
from seq2seq.serve.limits import SHARES, Limits, Refusal, bad, unsupported
from seq2seq.serve.metrics import Metrics
from seq2seq.serve.models import NO_TERMS, Models, ServedTranslator, Settings, Terms
from seq2seq.serve.queue import Full, Job, Queue, Text, Worker
from seq2seq.text.alignment import KINDS
from seq2seq.text.glossary import Glossary
from seq2seq.text.parts import Part, Split, cut

Entered = TypeVar("Entered", bound=Answers)

MOST_RETRY_SECONDS = 600
WARM_UP = "A word."
# A sentence with a glossary takes about this many times as long as one without.
COST_OF_TERMS = 4


@dataclass(frozen=True)
class Asked:
    """A request for translations."""

    texts: Sequence[str]
    source: str | None = None
    target: str | None = None
    split: Split = "lines"
    alternatives: int = 0
    beam_size: int | None = None
    prefixes: Sequence[str] = ()
    """Empty, or one for each text."""
    explains: bool = False
    """Whether alignments, probabilities or confidence are asked for."""
    terms: Terms = NO_TERMS
    form: str = "text"
    """Others are those of `markup.translation.FORMATS`; each text is a document then."""
    model: str | None = None
    """The name of the model, if several have the direction."""
    client: str = ""
    """The client's name."""


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

    def translating(self, asked: Asked) -> Translating:
        """Check a request, and let its sentences wait.

        Raises:
            Refusal: it is wrong, too large, or there is no room.
        """
        model = self.models.translator(asked.source, asked.target, asked.model)
        limits = self.limits
        own = model.translator.config.beam_size
        if asked.beam_size is not None and asked.beam_size > max(limits.beam_size, own):
            raise bad(f"at most {max(limits.beam_size, own)}", "beam_size", "too_large")
        if asked.alternatives > limits.alternatives:
            raise bad(f"at most {limits.alternatives}", "alternatives", "too_large")
        if (asked.explains or asked.terms) and not model.can_explain:
            raise unsupported("details" if asked.explains else "glossary", "the model has no weights to read them from")
        if asked.form != "text":
            self._check_document(asked, model)
        settings = Settings(model.name, asked.beam_size, asked.alternatives + 1, asked.explains, terms=asked.terms)
        try:
            model.under(settings.beam_size, settings.n_best)
        except UserError as error:
            beam = asked.beam_size or own
            message = f"a beam of {beam} has {beam - 1} alternatives at most; ask for a larger beam_size"
            raise bad(message, "alternatives" if asked.alternatives else "beam_size") from error
        self._check_texts(asked.texts)
        weight = max(1.0, (asked.beam_size or own) / own)
        split, longest = asked.split if asked.form == "text" else "none", int(limits.line_characters / weight)
        pieces = [cut(text, split, longest) for text in asked.texts]
        if asked.form == "text":
            self._check_lines(chain.from_iterable(pieces), longest)
        prefixes = asked.prefixes or [""] * len(pieces)
        weight *= COST_OF_TERMS if asked.terms else 1
        answers = Translating(model, settings, pieces, prefixes, limits.deadline_seconds, asked.client, weight)
        if asked.form != "text":
            answers.documents = Documents(answers.job, asked.form, model, self.queue)
        return self._enter(answers)

    def classifying(self, texts: Sequence[str], name: str | None, client: str = "") -> Answers:
        """Check a request, and let its texts wait.

        Raises:
            Refusal: as `translating`.
        """
        model = self.models.classifier(name)
        self._check_texts(texts)
        rows = [Text(text) for text in texts]
        self._check_lines(rows, self.limits.line_characters)
        return self._enter(Answers(model, Settings(model.name), rows, self.limits.deadline_seconds, client, 1.0))

    def leave(self, answers: Answers) -> None:
        """Nobody waits for these any more: called once for all that `translating` and `classifying` gave."""
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

    def terms(self, names: Sequence[str] | None, entries: Sequence[Sequence[str]] = ()) -> Terms:
        """The rows of these glossaries of the server, None for the default ones, and of entries of a request.

        Raises:
            Refusal: there is no such glossary, or the entries are no glossary or too many.
        """
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

    def _check_document(self, asked: Asked, model: ServedTranslator) -> None:
        if not model.can_explain:
            raise unsupported("format", "the model has no weights to read alignments from")
        if asked.alternatives:
            raise bad("a document has one translation; leave out alternatives", "alternatives")
        if asked.explains:
            raise unsupported("details", "they are for text; a document has none")
        if any(asked.prefixes):
            raise bad("a document has no prefix; leave it out", "prefix")

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
