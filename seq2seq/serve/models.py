"""The models of a server, and the choice of the model for a request.

`s2s serve` loads them; `service` gets from `Models` the translator of a language pair, or the classifier.
"""

import contextlib
import functools
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from seq2seq.errors import DataError, UserError, some_of
from seq2seq.inference.pivot import pivot_of
from seq2seq.inference.translator import Translator
from seq2seq.languages import language_code, language_name, own_code
from seq2seq.lines import shown_name
from seq2seq.markup.sample import sample
from seq2seq.serve.limits import Refusal, bad, field_of_text
from seq2seq.serve.served import ServedClassifier, ServedModel, ServedTranslator, Settings, tag_of
from seq2seq.store.finding import BEST, find_model, task_of
from seq2seq.store.opened import in_one_state
from seq2seq.text.direction import UNNAMED, Direction, nearest_language
from seq2seq.text.identification import Identifier

AUTO = "auto"
SIDES = ("source", "target")
# `auto` uses a language that is more probable than all others together. The beginning of a text is judged.
LEAST_GUESS, LONGEST_SAMPLE = 0.5, 1_000


def load(
    paths: Sequence[Path], translating: dict[str, Any], computing: dict[str, Any], pivot: str | None = None
) -> "Models":
    """Load the models to serve.

    Args:
        paths: MODELs.
        translating: options of `Translator.load`.
        computing: options of classifiers and aligners: device, precision, threads.
        pivot: language through which models of many languages translate directions for which they were not trained.

    Raises:
        UserError: a model cannot be loaded, or none has many languages with the pivot.
    """
    served: list[ServedModel] = []
    for path in paths:
        folder = find_model(path)
        name = _free(path, folder, {model.name for model in served})
        served.append(in_one_state(folder, functools.partial(_load, name, folder, translating, computing, pivot)))
    if pivot is not None and not any(isinstance(model, ServedTranslator) and model.pivot for model in served):
        raise UserError(f"--pivot {pivot}: needs a model of many source and target languages")
    return Models(served)


def _load(
    name: str, folder: Path, translating: dict[str, Any], computing: dict[str, Any], pivot: str | None
) -> ServedModel:
    if task_of(folder) == "classification":
        from seq2seq.inference.classifier import Classifier

        return ServedClassifier(name, folder, Classifier.load(folder, **computing))
    direction = Direction(translating.get("source_language"), translating.get("target_language"))
    if pivot is None:
        translator = Translator.load(folder, **translating, all_languages=direction == UNNAMED)
        return ServedTranslator(name, folder, translator, computing, direction)
    others = {key: value for key, value in translating.items() if key not in ("source_language", "target_language")}
    translator = Translator.load(folder, **others, all_languages=True)
    if "source" not in translator.choices:
        return _load(name, folder, translating, computing, None)
    served = ServedTranslator(name, folder, translator, computing, pivot=pivot_of(translator, pivot))
    if direction == UNNAMED:
        return served
    named = translator.directed(direction).description
    one = served.directed(Direction(named.source_language, named.target_language))
    if one.first is None:
        raise UserError(f"--pivot {pivot}: {one.languages} needs no pivot; leave out --pivot")
    return one


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
            if any(side not in model.choices and not getattr(model, side) for side in SIDES):
                raise UserError(
                    f"{model.name}: its folder names no languages, so it cannot be served next to other models; "
                    "serve it alone"
                )

    def __iter__(self):
        return iter(self.by_name.values())

    @property
    def sources(self) -> list[str]:
        """The source languages, without regions."""
        return self._sources(self.translators)

    @staticmethod
    def _sources(models: Iterable[ServedTranslator]) -> list[str]:
        return sorted({own_code(name) for model in models for name in _names(model, "source")})

    def knows(self, language: str) -> bool:
        """Whether a model has this language, or may have it because its folder names no languages."""
        return any(model.has(side, language) for model in self.translators for side in SIDES)

    def languages(self) -> dict[str, set[str]]:
        """Return all languages, as the models name them, with their target languages."""
        known: dict[str, set[str]] = {}
        for model in self.translators:
            sources, targets = _names(model, "source"), _names(model, "target")
            if sources and targets:
                known |= {name: known.get(name, set()) | set(targets) for name in sources}
                known |= {name: known.get(name, set()) for name in targets}
        return known

    @property
    def has_one_direction(self) -> bool:
        """Whether all translators have the same direction."""
        directions = {(tag_of(model.source), tag_of(model.target)) for model in self.translators}
        return len(directions) <= 1 and not any(model.choices for model in self.translators)

    def computing(self, settings: Settings) -> ServedModel:
        """Return the model that computes sentences under these settings."""
        model = self.by_name[settings.model]
        is_open = isinstance(model, ServedTranslator) and bool(model.choices)
        return model.directed(settings.direction) if is_open and settings.direction != UNNAMED else model

    def translator(
        self, source: str | None, target: str | None, name: str | None = None, explains: bool = False
    ) -> ServedTranslator:
        """Return the model with this name, or the first model of a language pair.

        A side may be left out (None, or `auto` for the source) if only models of one language pair fit. Models of many
        languages come after those of one pair. With `explains`, models with alignments come before those without.

        Raises:
            Refusal: there is no such model, or models of several language pairs fit.
        """
        if not self.translators:
            raise bad("this server has no translation model", code="no_model")
        if name is not None:
            return self._named(name, source, target)
        wanted = None if source is None or source.lower() == AUTO else source
        known = self._sources([model for model in self.translators if model.has("target", target)]) or self.sources
        if source is not None and wanted is None and len(known) > 1:
            raise _unclear(known)
        by_source = [model for model in self.translators if model.has("source", wanted)]
        if not by_source:
            raise _unknown("from", wanted, self.translators, "source")
        fitting = [model for model in by_source if model.has("target", target)]
        if not fitting:
            raise _unknown("into", target, by_source, "target")
        pairs = [model for model in fitting if not model.choices]
        exact = [
            model
            for model in pairs
            if tag_of(wanted) in ("", tag_of(model.source)) and tag_of(target) in ("", tag_of(model.target))
        ]
        if len({(tag_of(model.source), tag_of(model.target)) for model in exact or pairs}) > 1:
            missing = "target" if target is None else "source"
            raise bad(f"several models fit; name one of {_directions(pairs)}", missing)
        ordered = [*(exact or pairs), *(model for model in fitting if model.choices)]
        return _first(ordered, wanted, target, explains)

    def source_of(
        self, texts: Sequence[str], source: str | None, target: str | None, name: str | None, form: str = "text"
    ) -> str | None:
        """Return the source language of a request; for `auto`, that of its texts, if the models that fit have several.

        Raises:
            Refusal: the language of the texts is not clear, or is clearly another one than the only one that fits; or
                as in `sample_of`.
        """
        if source is None or source.lower() != AUTO:
            return source
        fitting = [one for one in self.translators if name in (None, one.name) and one.has("target", target)]
        known = sorted({language for one in fitting for language in _names(one, "source")})
        text = sample_of(texts, form)
        if len(set(map(language_code, known))) < 2:
            if known and _identifier(tuple(sorted(self.languages()))).is_other(text, known[0]):
                only = f"the text is not in {language_name(known[0])}, the only source language that fits"
                raise bad(f"{only}; name the source to translate it nevertheless", "source")
            return source
        found = _identifier(tuple(known)).ranked(text)
        if not found or found[0][1] <= LEAST_GUESS:
            raise _unclear(known)
        return found[0][0]

    def _named(self, name: str, source: str | None, target: str | None) -> ServedTranslator:
        named = next((model for model in self.translators if model.name == name), None)
        if named is None:
            raise bad(f"no model has this name; served: {some_of([model.name for model in self.translators])}", "model")
        wanted = None if source is None or source.lower() == AUTO else source
        for asked, field in ((wanted, "source"), (target, "target")):
            if not named.has(field, asked):
                close = nearest_language(asked or "", named.choices.get(field, ()))
                raise bad(f"this model translates {_directions([named])}{close}; leave out model, or {field}", field)
        return named.towards(wanted, target)

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


def sample_of(texts: Sequence[str], form: str = "text") -> str:
    """Return the beginning of the texts of a request, by which their language is identified; that of documents is
    without markup.

    Raises:
        Refusal: a document is not in the format.
    """
    if form == "text":
        return " ".join(texts)[:LONGEST_SAMPLE]
    found = ""
    for index, text in enumerate(texts):
        if len(found) >= LONGEST_SAMPLE:
            break
        try:
            found += sample(text, form, LONGEST_SAMPLE) + " "
        except DataError as error:
            raise bad(str(error), field_of_text(index, len(texts))) from error
    return found[:LONGEST_SAMPLE]


def _first(
    models: Sequence[ServedTranslator], source: str | None, target: str | None, explains: bool
) -> ServedTranslator:
    """Return the first model, or with `explains` the first with alignments of the same direction, if there is one."""
    first = models[0].towards(source, target)
    for model in models if explains and not first.can_explain else ():
        with contextlib.suppress(Refusal):  # a language is not clear
            one = model.towards(source or first.source, target or first.target)
            if one.can_explain:
                return one
    return first


def _names(model: ServedTranslator, side: str) -> list[str]:
    """Return the known languages of a side."""
    return model.choices.get(side) or [name for name in (getattr(model, side),) if name]


@functools.lru_cache(maxsize=16)
def _identifier(languages: tuple[str, ...]) -> Identifier:
    return Identifier(languages)


def _unclear(sources: Sequence[str]) -> Refusal:
    return bad(f"the language of the text is not clear; name the source: {some_of(sources, 10)}", "source")


def _unknown(way: str, language: str | None, models: Sequence[ServedTranslator], side: str) -> Refusal:
    close = nearest_language(language or "", [name for model in models for name in _names(model, side)])
    return bad(f"no model translates {way} this language{close}; served: {_directions(models)}", side)


def _directions(models: Sequence[ServedTranslator]) -> str:
    return some_of(list(dict.fromkeys(model.languages for model in models)), 10)


def _free(path: Path, folder: Path, taken: set[str]) -> str:
    """Return the name of a run, a model folder, or a model of the hub, with a number if it is taken."""
    local = folder.parent.name if folder.name == BEST else folder.name
    first = shown_name(local if path.exists() else str(path))
    names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)
