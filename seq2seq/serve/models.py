"""The models of a server, and the choice of the model for a request.

`s2s serve` loads them; `service` gets from `Models` the translator of a language pair, or the classifier.
"""

import functools
import hashlib
import itertools
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.config.description import ModelDescription
from seq2seq.errors import UserError, some_of
from seq2seq.files import DamagedFile, read_object, record
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.interop.ctranslate2 import is_ctranslate2
from seq2seq.languages import language_code
from seq2seq.lines import as_one_line, shown_name
from seq2seq.serve.limits import Refusal, bad
from seq2seq.serve.queue import Text
from seq2seq.store import opened
from seq2seq.store.finding import BEST, CONFIG, find_model
from seq2seq.store.opened import Opened, in_one_state
from seq2seq.text.glossary import Glossary

if TYPE_CHECKING:
    from seq2seq.inference.aligner import Aligner

AUTO = "auto"
logger = logging.getLogger(__name__)


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


class ServedModel:
    """A model with its name."""

    task: str

    def __init__(self, name: str, folder: Path, description: ModelDescription, engine: str):
        self.name, self.description, self.engine = name, description, engine
        self.fingerprint = _fingerprint(folder)

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


class ServedTranslator(ServedModel):
    """A translation model."""

    task = "translation"

    def __init__(self, name: str, folder: Path, translator: Translator, computing: Mapping[str, Any]):
        super().__init__(name, folder, translator.description, translator.engine_note)
        self.translator = translator
        self.can_explain = not is_ctranslate2(folder)
        """Whether there are weights whose attention can be read, for alignments and glossaries."""
        self.under = functools.lru_cache(maxsize=64)(self._under)
        self._own_glossary = functools.lru_cache(maxsize=64)(self._glossary)
        self._client_glossary = functools.lru_cache(maxsize=8)(self._glossary)
        self._opened, self._computing = Opened(folder), computing
        self._aligner: Aligner | None = None
        self._loading = threading.Lock()

    def __str__(self) -> str:
        return f"{self.name}: {self.source or '?'} to {self.target or '?'}, {self.engine}"

    def compute(self, texts: Sequence[Text], settings: Settings) -> list[Translation]:
        """Return the translation of each text, as `s2s translate` with these settings."""
        lines = [text.tag + text.text if text.text.strip() else text.text for text in texts]
        prefixes = [text.prefix for text in texts] if any(text.prefix for text in texts) else None
        answers = self._pipeline(settings).translate(lines, prefixes, details=settings.details)
        return [
            answer.without_tag(len(answer.source) - len(text.text)) for answer, text in zip(answers, texts, strict=True)
        ]

    def is_untranslatable(self, text: str, settings: Settings) -> bool:
        """Whether a text is copied, because it is not language and contains no term."""
        return self._pipeline(settings).is_untranslatable(text)

    def facts(self) -> dict[str, Any]:
        """Return the entry of the model in `/v1/models`."""
        search = self.translator.config
        shown = {"beam_size": search.beam_size, "length_penalty": search.length_penalty}
        return {**super().facts(), "source": self.source, "target": self.target, "search": shown}

    @property
    def aligner(self) -> "Aligner":
        """The aligner of the model, loaded at its first use, because it needs torch and the weights again.

        It is loaded from the files that the folder had when the translator was loaded, even if they were replaced.

        Raises:
            Refusal: the files were overwritten, or do not fit each other; the log has the reason.
        """
        with self._loading:
            if self._aligner is None:
                from seq2seq.inference.aligner import Aligner

                try:
                    with self._opened.reopened() as folder:
                        self._aligner = Aligner.load(folder, **self._computing)
                except UserError as error:
                    logger.error("%s: %s", self.name, error)
                    message = "details, glossaries and documents are not available; the server's log has the cause"
                    raise Refusal(503, "model", message) from error
                self._opened.close()
            return self._aligner

    def _pipeline(self, settings: Settings) -> Pipeline:
        translator, terms = self.under(settings.search), settings.terms
        glossary = (self._own_glossary if terms.of_server else self._client_glossary)(terms) if terms else None
        return Pipeline(translator, self.aligner if terms or settings.details else None, glossary)

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


def load(paths: Sequence[Path], translating: dict[str, Any], computing: dict[str, Any]) -> "Models":
    """Load the models to serve.

    Args:
        paths: MODELs.
        translating: options of `Translator.load`.
        computing: options of classifiers and aligners: device, precision, threads.

    Raises:
        UserError: a model cannot be loaded.
    """
    served: list[ServedModel] = []
    for path in paths:
        folder = find_model(path)
        name = _free(path, folder, {model.name for model in served})
        served.append(in_one_state(folder, functools.partial(_load, name, folder, translating, computing)))
    return Models(served)


def _load(name: str, folder: Path, translating: dict[str, Any], computing: dict[str, Any]) -> ServedModel:
    if _task(folder) == "classification":
        from seq2seq.inference.classifier import Classifier

        return ServedClassifier(name, folder, Classifier.load(folder, **computing))
    return ServedTranslator(name, folder, Translator.load(folder, **translating), computing)


class Models:
    """The served models, by name, language pair and task.

    If two models translate the same language pair, requests may choose one by name.

    Raises:
        UserError: there are several translation models, and the folder of one names no languages.
    """

    def __init__(self, served: Iterable[ServedModel]):
        self.by_name = {model.name: model for model in served}
        self.translators = [model for model in self.by_name.values() if isinstance(model, ServedTranslator)]
        self.classifiers = [model for model in self.by_name.values() if isinstance(model, ServedClassifier)]
        for model in self.translators if len(self.translators) > 1 else ():
            if not model.source or not model.target:
                raise UserError(
                    f"{model.name}: its folder names no languages, so it cannot be served next to other models; "
                    "serve it alone"
                )

    def __iter__(self):
        return iter(self.by_name.values())

    @property
    def sources(self) -> list[str]:
        """The source languages, without regions."""
        return sorted({language_code(model.source) for model in self.translators if model.source})

    def knows(self, language: str) -> bool:
        """Whether a model has this language, or may have it because its folder names no languages."""
        sides = [side for model in self.translators for side in (model.source, model.target)]
        return any(_fits(language, side) for side in sides)

    def languages(self) -> dict[str, set[str]]:
        """Return all languages, as the models name them, with their target languages."""
        targets: dict[str, set[str]] = {}
        for model in self.translators:
            if model.source and model.target:
                targets.setdefault(model.source, set()).add(model.target)
                targets.setdefault(model.target, set())
        return targets

    @property
    def directions(self) -> set[tuple[str, str]]:
        """The language pairs (source, target) of the models."""
        return {(_tag(model.source), _tag(model.target)) for model in self.translators}

    def translator(self, source: str | None, target: str | None, name: str | None = None) -> ServedTranslator:
        """Return the model with this name, or the first model of a language pair.

        A side may be left out (None, or `auto` for the source) if only models of one language pair fit.

        Raises:
            Refusal: there is no such model, or models of several language pairs fit.
        """
        if not self.translators:
            raise bad("this server has no translation model", code="no_model")
        if name is not None:
            return self._named(name, source, target)
        wanted = None if source is None or source.lower() == AUTO else source
        if source is not None and wanted is None and len(self.sources) > 1:
            raise bad(f"languages are not detected here; name the source: {some_of(self.sources)}", "source")
        by_source = [model for model in self.translators if _fits(wanted, model.source)]
        if not by_source:
            raise bad(f"no model translates from this language; served: {_directions(self.translators)}", "source")
        fitting = [model for model in by_source if _fits(target, model.target)]
        if not fitting:
            raise bad(f"no model translates into this language; served: {_directions(by_source)}", "target")
        exact = [
            model
            for model in fitting
            if _tag(wanted) in ("", _tag(model.source)) and _tag(target) in ("", _tag(model.target))
        ]
        if len({(_tag(model.source), _tag(model.target)) for model in exact or fitting}) > 1:
            missing = "target" if target is None else "source"
            raise bad(f"several models fit; name one of {_directions(fitting)}", missing)
        return (exact or fitting)[0]

    def _named(self, name: str, source: str | None, target: str | None) -> ServedTranslator:
        named = next((model for model in self.translators if model.name == name), None)
        if named is None:
            raise bad(f"no model has this name; served: {some_of([model.name for model in self.translators])}", "model")
        wanted = None if source is None or source.lower() == AUTO else source
        for asked, has, field in ((wanted, named.source, "source"), (target, named.target, "target")):
            if not _fits(asked, has):
                raise bad(f"this model translates {_directions([named])}; leave out model, or {field}", field)
        return named

    def classifier(self, name: str | None) -> ServedClassifier:
        """Return the classifier with this name; the name may be left out if there is only one classifier.

        Raises:
            Refusal: no classifier fits, or several do.
        """
        fitting = [model for model in self.classifiers if name in (None, model.name)]
        if not self.classifiers:
            raise bad("this server has no classifier", code="no_model")
        if len(fitting) != 1:
            raise bad(f"name one of the classifiers: {some_of([model.name for model in self.classifiers])}", "model")
        return fitting[0]


def _fits(requested: str | None, has: str | None) -> bool:
    """Whether a requested language is the one of a model; regions are compared only if both have one."""
    if requested is None or has is None or _tag(requested) == _tag(has):
        return True
    regions = [_tag(name).partition("-")[2] for name in (requested, has)]
    return language_code(requested) == language_code(has) and not all(regions)


def _tag(language: str | None) -> str:
    """Return a language tag in lower case with hyphens, so that `pt_BR` and `PT-br` are equal."""
    return (language or "").strip().lower().replace("_", "-")


def _directions(models: Sequence[ServedModel]) -> str:
    return some_of(list(dict.fromkeys(f"{model.source or '?'} to {model.target or '?'}" for model in models)), 10)


def _task(folder: Path) -> str:
    try:
        return str(read_object(folder / CONFIG).get("task"))
    except DamagedFile:
        return ""  # `Translator.load` raises the error


def _free(path: Path, folder: Path, taken: set[str]) -> str:
    """Return the name of a run, a model folder, or a model of the hub, with a number if it is taken."""
    local = folder.parent.name if folder.name == BEST else folder.name
    first = shown_name(local if path.exists() else str(path))
    names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def _fingerprint(folder: Path) -> str:
    """Return 16 hexadecimal digits that depend on all files of the model."""
    files = sorted(path for path in folder.iterdir() if path.suffix in opened.KINDS and path.is_file())
    known = hashlib.sha256("".join(f"{path.name} {record(path)['sha256']}\n" for path in files).encode())
    return known.hexdigest()[:16]
