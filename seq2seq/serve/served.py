"""The models of a server: translators and classifiers, and the settings under which they compute the texts of requests.

`models` loads them and chooses among them; `queue` batches sentences of equal `Settings`.
"""

import copy
import functools
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.config.description import ModelDescription
from seq2seq.errors import UserError, reason, some_of
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.pivot import is_direct, two_passes
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.interop.ctranslate2 import is_ctranslate2
from seq2seq.languages import is_same_language
from seq2seq.lines import as_one_line
from seq2seq.markup.translation import FORMATS
from seq2seq.serve.limits import Refusal, bad
from seq2seq.serve.queue import Text
from seq2seq.store.direction import one_direction
from seq2seq.store.opened import Opened, fingerprint
from seq2seq.text.alignment import KINDS
from seq2seq.text.direction import UNNAMED, Direction, languages_meant
from seq2seq.text.glossary import Glossary

if TYPE_CHECKING:
    from seq2seq.inference.aligner import Aligner

logger = logging.getLogger(__name__)

# Why a model has no alignments.
NO_WEIGHTS = "this is a CTranslate2 folder, which has no attention weights; serve the model that it was converted from"
TWO_PASSES = "this direction is translated in two passes (--pivot), without alignments"


class Terms(tuple[tuple[str, ...], ...]):
    """The rows of a glossary (`Glossary.of`), which are keys of caches, so their hash is computed only once."""

    of_server = False
    """Whether the server was started with this glossary; other glossaries come with a request."""

    @functools.cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


NO_TERMS = Terms()


@dataclass(frozen=True)
class Settings:
    """The settings of a computation; only sentences with equal settings share batches."""

    model: str
    search: tuple[tuple[str, int], ...] = (("n_best", 1),)
    """The names and values of search settings that override those of the model."""
    details: tuple[str, ...] = ()
    """The kinds of `alignment.KINDS` that are computed."""
    terms: Terms = NO_TERMS
    direction: Direction = UNNAMED
    """The languages of a model of many languages."""


class ServedModel:
    """A model with its name."""

    task: str

    def __init__(self, name: str, folder: Path, description: ModelDescription, engine: str):
        self.name, self.description, self.engine = name, description, engine
        self.fingerprint = fingerprint(folder)

    def __str__(self) -> str:
        return f"{self.name}: {self.task}, {self.engine}"

    @property
    def source(self) -> str | None:
        """The source language; None if it is unknown."""
        return self.description.source_language

    @property
    def target(self) -> str | None:
        """The target language; None if it is unknown."""
        return self.description.target_language

    def compute(self, texts: Sequence[Text], settings: Settings) -> Sequence[Any]:
        """Return an answer for each text."""
        raise TypeError(type(self).__name__)

    def as_dict(self) -> dict[str, Any]:
        """Return name and fingerprint, for answers."""
        return {"name": self.name, "fingerprint": self.fingerprint}

    def facts(self) -> dict[str, Any]:
        """Return the entry of the model in `/v1/models`."""
        return {**self.as_dict(), "task": self.task, "engine": self.engine, "metrics": self.description.metrics}


class LazyAligner:
    """The aligner of a model, which is loaded when it is first needed, because it needs torch and the weights again.

    It is loaded from the files that the folder had when the translator was loaded, even if they were replaced.
    """

    def __init__(self, name: str, folder: Path, computing: Mapping[str, Any]):
        self._name, self._computing = name, computing
        self._opened, self._loading = Opened(folder), threading.Lock()
        self._aligner: Aligner | None = None

    def loaded(self) -> "Aligner":
        """Return the aligner.

        Raises:
            Refusal: the files were overwritten or do not fit each other, or the device failed; the log has the reason.
                The next call tries again.
        """
        with self._loading:
            if self._aligner is not None:
                return self._aligner
            from seq2seq.inference.aligner import Aligner

            try:
                with self._opened.reopened() as folder:
                    self._aligner = Aligner.load(folder, **self._computing)
            except (UserError, OSError, RuntimeError, MemoryError) as error:
                logger.error("%s: %s", self._name, reason(error))
                message = "details, glossaries and documents are not available; the server's log has the cause"
                raise Refusal(503, "model", message) from error
            self._opened.close()
            return self._aligner


class ServedTranslator(ServedModel):
    """A translation model of one direction, or of many languages; `towards` gives the former for a request.

    Args:
        name: of the model.
        folder: of the model.
        translator: for the direction, or for all languages.
        computing: options of `Aligner.load`.
        direction: the languages that were named to `Translator.load`.
        pivot: language through which the directions are translated for which a model of many languages was not trained.
    """

    task = "translation"
    first: Translator | None = None
    """The translator into the pivot, for a direction in two passes."""

    def __init__(
        self,
        name: str,
        folder: Path,
        translator: Translator,
        computing: Mapping[str, Any],
        direction: Direction = UNNAMED,
        pivot: str | None = None,
    ):
        super().__init__(name, folder, translator.description, translator.engine_note)
        self.translator, self.direction, self.pivot = translator, direction, pivot
        self.choices = {} if direction.target else translator.choices
        """The languages that a request names, by side; empty for one direction."""
        self.directed = functools.lru_cache(maxsize=64)(self._directed)
        self.unexplained = NO_WEIGHTS if is_ctranslate2(folder) else ""
        """Why there are no alignments, which details, glossaries and documents need; empty if there are."""
        # `directed` gives an aligner the languages of a request; it has to be loaded with some.
        any_of_them = {side: known[0] for side, known in self.choices.items()} if "source" in self.choices else {}
        languages = {f"{side}_language": language for side, language in (any_of_them or vars(direction)).items()}
        self._aligners = LazyAligner(name, folder, {**computing, **languages})
        self._is_directed = False
        self._begin()

    @property
    def can_explain(self) -> bool:
        """Whether there are alignments, which details, glossaries and documents need."""
        return not self.unexplained

    def _begin(self) -> None:
        self.under = functools.lru_cache(maxsize=64)(self._under)
        self._first_under = functools.lru_cache(maxsize=64)(lambda search: self.first.with_search(**dict(search)))
        self._own_glossary = functools.lru_cache(maxsize=64)(self._glossary)
        self._client_glossary = functools.lru_cache(maxsize=8)(self._glossary)

    def __str__(self) -> str:
        return f"{self.name}: {self.languages}, {self.engine}"

    @property
    def languages(self) -> str:
        """The direction or directions, for people."""
        known = {"source": self.source, "target": self.target}
        names = {side: f"any of {len(names)} languages" for side, names in self.choices.items()}
        return " to ".join(names.get(side) or language or "?" for side, language in known.items())

    def has(self, side: str, language: str | None) -> bool:
        """Whether the model may translate from (`source`) or to (`target`) a language; None is not named."""
        if language is None or side not in self.choices:
            return _fits(language, getattr(self, side))
        return bool(languages_meant(language, self.choices[side]))

    def towards(self, source: str | None, target: str | None) -> "ServedTranslator":
        """Return the same model for the languages of a request, which it `has`; weights and engine are shared.

        Raises:
            Refusal: a language is not named, or several have this name.
        """
        if not self.choices:
            return self
        named = {}
        for side, language in (("source", source), ("target", target)):
            known = self.choices.get(side, ())
            if language is None and "source" in self.choices and len(known) == 1:
                language = known[0]
            if language is None and "source" in self.choices:
                raise bad(f"name the {side} language; {self.name} has {some_of(known, 10)} (GET /v1/models)", side)
            found = languages_meant(language, known) if language is not None else []
            if len(found) > 1:
                raise bad(f"several languages have this name; name one of {some_of(found)}", side)
            named[side] = found[0] if found else None
        return self if named["target"] is None else self.directed(Direction(**named))

    def _directed(self, direction: Direction) -> "ServedTranslator":
        other = copy.copy(self)
        other.direction, other.choices, other._is_directed = direction, {}, True
        if self.pivot is None or is_direct(self.description, direction, self.pivot):
            other.translator = self.translator.directed(direction)
        else:
            other.first, other.translator = two_passes(self.translator, direction, self.pivot)
            other.unexplained = TWO_PASSES
        language = (other.first or other.translator).description.source_language
        other.description = other.translator.description.model_copy(update={"source_language": language})
        vars(other).pop("aligner", None)  # that of all languages
        other._begin()
        return other

    def of_one_direction(self) -> "ServedTranslator":
        """Return the same model for one of its directions, such as to try it out."""
        whole = self.translator
        return self.directed(one_direction(self.description, whole.tokenizers)) if self.choices else self

    def compute(self, texts: Sequence[Text], settings: Settings) -> list[Translation]:
        """Return the translation of each text, as `s2s translate` with these settings."""
        lines = [text.tag + text.text if self._takes_tag(text) else text.text for text in texts]
        prefixes = [text.prefix for text in texts] if any(text.prefix for text in texts) else None
        answers = self.pipeline(settings).translate(lines, prefixes, details=settings.details)
        return [
            answer.without_tag(len(answer.source) - len(text.text)) for answer, text in zip(answers, texts, strict=True)
        ]

    def _takes_tag(self, text: Text) -> bool:
        """Whether a text needs the tag that a larger text begins with: the model reads such tags, and not a copy."""
        first = self.first or self.translator
        return first.tokenizers.source.typed_tag(text.tag) != "" and not first.is_untranslatable(text.text)

    def facts(self) -> dict[str, Any]:
        """Return the entry of the model in `/v1/models`."""
        search = self.translator.config
        shown = {"beam_size": search.beam_size, "length_penalty": search.length_penalty}
        languages = {"languages": self.choices} if self.choices else {}
        languages |= {"pivot": self.pivot} if self.pivot else {}
        named = {"source": self.source, "target": self.target, **languages}
        return {**super().facts(), **named, "search": shown, "abilities": abilities_of([self])}

    @functools.cached_property
    def aligner(self) -> "Aligner":
        """The aligner of the same model; errors are those of `LazyAligner.loaded`."""
        whole = self._aligners.loaded()
        return whole.directed(self.direction) if self._is_directed else whole

    def pipeline(self, settings: Settings) -> Pipeline:
        """Return the pipeline that translates under the settings of a request."""
        translator, terms = self.under(settings.search), settings.terms
        glossary = (self._own_glossary if terms.of_server else self._client_glossary)(terms) if terms else None
        first = self._first_under(settings.search) if self.first else None
        return Pipeline(translator, self.aligner if terms or settings.details else None, glossary, first)

    def _glossary(self, terms: Terms) -> Glossary:
        return Glossary.of(enumerate(terms, start=1), self.target, "glossary", self.source)

    def _under(self, search: tuple[tuple[str, int], ...]) -> Translator:
        return self.translator.with_search(**dict(search))


class ServedClassifier(ServedModel):
    """A classification model."""

    task = "classification"

    def __init__(self, name: str, folder: Path, classifier: Any):
        super().__init__(name, folder, classifier.description, "PyTorch")
        self.classifier = classifier

    def compute(self, texts: Sequence[Text], settings: Settings) -> Sequence[Any]:
        """Return the `Classification` of each text."""
        return self.classifier.classify([as_one_line(text.text) for text in texts])

    def facts(self) -> dict[str, Any]:
        """Return the entry of the model in `/v1/models`."""
        return {**super().facts(), "labels": list(self.classifier.labels)}


def abilities_of(models: Iterable[ServedTranslator]) -> dict[str, Any]:
    """Return what requests may hold of that which needs alignments: all of it, if one of these models has them."""
    can_explain = any(model.can_explain for model in models)
    return {
        "formats": ["text", *(sorted(FORMATS) if can_explain else [])],
        "details": ["sentences", *KINDS, "terms"] if can_explain else [],
        "glossary": can_explain,
    }


def _fits(requested: str | None, has: str | None) -> bool:
    """Whether a requested language is the one of a model; regions are compared only if both have one."""
    if requested is None or has is None or tag_of(requested) == tag_of(has):
        return True
    regions = [tag_of(name).partition("-")[2] for name in (requested, has)]
    return is_same_language(requested, has) and (not all(regions) or regions[0] == regions[1])


def tag_of(language: str | None) -> str:
    """Return a language tag in lower case with hyphens, so that `pt_BR` and `PT-br` are equal."""
    return (language or "").strip().lower().replace("_", "-")
