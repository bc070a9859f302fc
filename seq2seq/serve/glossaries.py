"""The glossaries of a server, with their names; some of them apply by default to requests that name none.

`s2s serve` reads them, and `service` gives their rows to requests.
"""

import functools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from seq2seq.errors import UserError, some_of
from seq2seq.languages import direction_name, known_language, named_directions
from seq2seq.serve.limits import Refusal, bad
from seq2seq.serve.models import SIDES, Models
from seq2seq.serve.served import ServedTranslator, Terms
from seq2seq.text.direction import Direction
from seq2seq.text.glossary import Glossary

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[\w.-]{1,60}")


@dataclass(frozen=True, eq=False)
class Glossaries:
    """Glossaries by name; those of `default_names`, and of the direction of a request, apply to requests that neither
    name nor contain a glossary."""

    named: Mapping[str, Terms] = field(default_factory=dict)
    default_names: tuple[str, ...] = ()
    directions: Mapping[str, Sequence[Direction]] = field(default_factory=dict)
    """By the name of a glossary, the direction to which it applies, as each model names it."""

    @classmethod
    def read(cls, given: Sequence[str]) -> "Glossaries":
        """Read glossaries: a FILE, named by the file, applies by default; NAME=FILE applies by name, or to a direction
        of the server that has this name.

        Raises:
            UserError: a file cannot be read, or two glossaries have the same name.
        """
        named: dict[str, Terms] = {}
        defaults = []
        for option in given:
            own, path = _named(option)
            name = own or path.name.partition(".")[0]
            if name in named:
                raise UserError(f"--glossary {option}: a second glossary with the name {name}; give it as NAME={path}")
            glossary = Glossary.read(path)
            for problem in glossary.problems:
                logger.warning("%s: %s", path, problem)
            named[name] = _of_server(glossary.rows)
            defaults += [name] if own is None else []
        return cls(named, tuple(defaults))

    def fitting(self, models: Models) -> "Glossaries":
        """Return the glossaries that apply to these models.

        Raises:
            UserError: a default glossary cannot be used with a model.
        """
        others = [name for name in self.named if name not in self.default_names]
        directed = {name: found for name in others if (found := _translators_of(name, models))}
        directions = {name: [Direction(one.source, one.target) for one in found] for name, found in directed.items()}
        defaults = self.default_names
        if defaults and not models.has_one_direction:
            logger.warning(
                "glossaries (%s) apply only if a request names them, because there are several language pairs; "
                "name the pair of each: --glossary en-de=FILE",
                some_of(defaults),
            )
            defaults = ()
        using = [*(models.translators if defaults else ()), *chain.from_iterable(directed.values())]
        if without := next((model for model in using if not model.can_explain), None):
            raise UserError(f"{without.name} cannot use a glossary: {without.unexplained}; or leave out --glossary")
        for name in self.named:
            pairs = [direction_name((one.source, one.target)) for one in directions.get(name, ())]
            if name in defaults:
                which = "every request that names no glossary"
            elif pairs:
                which = f"requests of {some_of(list(dict.fromkeys(pairs)))} that name no glossary"
            else:
                which = "requests that name it"
            logger.info("glossary %s: for %s", name, which)
        return replace(self, default_names=defaults, directions=directions)

    def of_direction(self, model: ServedTranslator) -> list[str]:
        """Return the names of the glossaries that apply by default to a model of one direction."""
        own = Direction(model.source, model.target)
        return [*self.default_names, *(name for name, known in self.directions.items() if own in known)]

    def rows(self, names: Sequence[str]) -> Terms:
        """Return the rows of these glossaries together, in order.

        Raises:
            Refusal: there is no such glossary.
        """
        if not self.named.keys() >= set(names):
            raise bad(f"no glossary has this name; the server has: {some_of(sorted(self.named)) or 'none'}", "glossary")
        return self._joined(tuple(dict.fromkeys(names)))

    @functools.lru_cache(maxsize=64)  # noqa: B019 (there is only one such object)
    def _joined(self, names: tuple[str, ...]) -> Terms:
        if len(names) == 1:
            return self.named[names[0]]
        return _of_server(chain.from_iterable(self.named[name] for name in names))


def _translators_of(name: str, models: Models) -> list[ServedTranslator]:
    """Return the models of the direction that a name such as `en-de` contains; none if it is no direction of theirs.

    A model in which several languages have a name is left out with a warning: it might write terms in another script.
    """
    for sides in named_directions(name):
        fitting = [one for one in models.translators if all(map(one.has, SIDES, sides))]
        if not fitting or not all(map(known_language, sides)):
            continue
        found = []
        for one in fitting:
            try:
                found.append(one.towards(*sides))
            except Refusal as refusal:
                logger.warning("glossary %s does not apply to requests to %s: %s", name, one.name, refusal.message)
        return found
    return []


def _named(given: str) -> tuple[str | None, Path]:
    """Return the name and the file of NAME=FILE; the name is None for FILE alone."""
    name, equals, path = given.partition("=")
    if equals and _NAME.fullmatch(name) and not Path(given).exists():
        return name, Path(path)
    return None, Path(given)


def _of_server(rows: Iterable[tuple[str, ...]]) -> Terms:
    terms = Terms(rows)
    terms.of_server = True
    return terms
