"""The glossaries that a server was started with: their names, and which of them apply to requests that name none.

`s2s serve` reads them; `service` gives their rows to requests.
"""

import functools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from seq2seq.errors import UserError, some_of
from seq2seq.serve.limits import bad
from seq2seq.serve.models import Models, Terms
from seq2seq.text.glossary import Glossary

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[\w.-]{1,60}")


@dataclass(frozen=True, eq=False)
class Glossaries:
    """Glossaries by name; those of `default_names` apply where a request names none and holds none."""

    named: Mapping[str, Terms] = field(default_factory=dict)
    default_names: tuple[str, ...] = ()

    @classmethod
    def read(cls, given: Sequence[str]) -> "Glossaries":
        """Read FILEs, which apply by default and are named by their files, and NAME=FILEs, which apply by name alone.

        Raises:
            UserError: a file cannot be read, or two have one name.
        """
        named: dict[str, Terms] = {}
        defaults = []
        for one in given:
            name, path = _named(one)
            if name in named:
                raise UserError(f"--glossary {one}: a second glossary with the name {name}; give it as NAME={path}")
            glossary = Glossary.read(path)
            for problem in glossary.problems:
                logger.warning("%s: %s", path, problem)
            named[name] = _of_server(glossary.rows)
            defaults += [name] if one == str(path) else []
        return cls(named, tuple(defaults))

    def fitting(self, models: Models) -> "Glossaries":
        """Return the glossaries that apply to these models.

        Raises:
            UserError: a model cannot keep to those that apply by default.
        """
        if not self.default_names:
            return self
        if len(models.directions) > 1:
            names = some_of(self.default_names)
            logger.warning(
                "glossaries (%s) apply only where a request names them: there are several language pairs", names
            )
            return replace(self, default_names=())
        if without := next((model for model in models.translators if not model.can_explain), None):
            raise UserError(
                f"{without.name}: a CTranslate2 folder, which cannot keep to a glossary; serve the model that it was "
                "made from, or leave out --glossary"
            )
        return self

    def rows(self, names: Sequence[str] | None) -> Terms:
        """The rows of these glossaries together, of two entries the first; None is the default ones.

        Raises:
            Refusal: there is no such glossary.
        """
        names = self.default_names if names is None else tuple(names)
        if not self.named.keys() >= set(names):
            raise bad(f"no glossary has this name; the server has: {some_of(sorted(self.named)) or 'none'}", "glossary")
        return self._joined(tuple(dict.fromkeys(names)))

    @functools.lru_cache(maxsize=64)  # noqa: B019 (there is one such object)
    def _joined(self, names: tuple[str, ...]) -> Terms:
        if len(names) == 1:
            return self.named[names[0]]
        return _of_server(chain.from_iterable(self.named[name] for name in names))


def _named(given: str) -> tuple[str, Path]:
    """Return the name and the file of FILE or NAME=FILE."""
    name, equals, path = given.partition("=")
    if equals and _NAME.fullmatch(name) and not Path(given).exists():
        return name, Path(path)
    return Path(given).name.partition(".")[0], Path(given)


def _of_server(rows: Iterable[tuple[str, ...]]) -> Terms:
    terms = Terms(rows)
    terms.of_server = True
    return terms
