"""The systems of a comparison: translations of one test set, where they come from, and which seeds belong together.

`cli.compare` makes a `System` of each RUN, MODEL or FILE; `comparison` scores the `Row`s that `rows` makes of them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq.config.schema import Config
from seq2seq.data.directions import open_training
from seq2seq.data.examples import Source
from seq2seq.data.sources import open_pairs
from seq2seq.errors import DataError
from seq2seq.evaluation.translated import json_records
from seq2seq.store.model_folder import GENERATION
from seq2seq.tasks.run_folder import changes_model, paths_of, read_note
from seq2seq.text.direction import find_language
from seq2seq.workflows.runs import FINISHED, RunRecord

SEED = "seed"
SEARCH_FREE = ("search.record", "search.batch_tokens")  # keys that do not change translations, apart from rounding


@dataclass(frozen=True)
class System:
    """The translations of one run, model or file."""

    name: str
    translations: Sequence[str]
    flags: Sequence[Sequence[str]] | None = None
    """The flags of each line; None if they are not known."""
    run: RunRecord | None = None
    sources: Sequence[str] | None = None
    """The sources that a file names."""
    options: frozenset[str] = frozenset()
    """The search settings that options replaced."""

    @property
    def seed(self) -> int | None:
        """The seed of the run."""
        return self.run.settings.get(SEED) if self.run else None

    @property
    def is_finished(self) -> bool:
        """Whether its training has finished; true for a system that is not a run."""
        return self.run is None or self.run.state == FINISHED


@dataclass(frozen=True)
class Row:
    """One system, or several trainings of one configuration with other seeds."""

    name: str
    members: tuple[System, ...]


def file_system(path: Path, lines: Sequence[str]) -> System:
    """Return the translations in the lines of a file: text, or the JSON Lines of `s2s translate --format jsonl`.

    Raises:
        DataError: a line of JSON has no translation.
    """
    if (records := json_records(path, lines)) is None:
        return System(str(path), lines)
    flags = [record.get("flags") for record in records]
    sources = [record.get("source") for record in records]
    return System(
        name=str(path),
        translations=[record["text"] for record in records],
        flags=[tuple(map(str, own)) for own in flags] if all(isinstance(own, list) for own in flags) else None,
        sources=sources if all(isinstance(source, str) for source in sources) else None,
    )


def check_sources(systems: Sequence[System], sources: Sequence[str]) -> None:
    """Refuse translations of other sources than those of the test set, or than each other.

    Raises:
        DataError: a file has another number of lines, or another source; the first line that differs is named.
    """
    known = ("the test set", sources) if sources else None
    for system in systems:
        if system.sources is None:
            continue
        if known is None:
            known = system.name, system.sources
        pairs = zip(system.sources, known[1], strict=False)
        for number, (own, other) in enumerate(pairs, start=1):
            if own.split() != other.split():
                raise DataError(
                    f"{system.name}: line {number:,} is translated from another source than that of {known[0]}; "
                    "compare translations of one test set"
                )


def rows(systems: Sequence[System], apart: bool = False) -> list[Row]:
    """Return the systems as rows, in order; runs that differ only in their seed are one row, unless kept `apart`.

    A run that is not finished has a row of its own.
    """
    groups: dict[Any, list[System]] = {}
    for index, system in enumerate(systems):
        key = None if apart or not system.is_finished else _configuration(system)
        members = groups.setdefault(key or index, [])
        if any(member.seed == system.seed for member in members):  # the same training twice
            members = groups.setdefault(index, [])
        members.append(system)
    found = []
    for members in groups.values():
        ordered = tuple(sorted(members, key=lambda member: (member.seed or 0, member.name)))
        found.append(Row(_shared_name(ordered), ordered))
    names = [row.name for row in found]
    return [
        row if names.count(row.name) == 1 else Row(f"{row.name} ({row.members[0].name})", row.members) for row in found
    ]


def training_texts(config: Config, language: str | None = None) -> list[Iterator[str]]:
    """Return the sources that a run was trained on, of each corpus; of a run of many directions only those in a
    `language`, if it is named.

    Raises:
        DataError: a corpus cannot be read, also while its texts are; it may have been moved since.
        UserError: the run does not translate from the language.
    """
    if config.languages is not None and language is not None:
        language = find_language(language, config.languages.source, "--from")
    return [(pair.texts[0] for pair in source.untagged()) for source in _training(config, language)]


def _training(config: Config, language: str | None) -> Iterator[Source]:
    for corpus in config.data.train:
        if config.languages is None:
            yield open_pairs(corpus, config.source_language or "", config.target_language or "")
            continue
        for source in open_training(corpus, config.languages):
            if language is None or (source.direction and source.direction[0] == language):
                yield source


def _configuration(system: System) -> str | None:
    """Return everything that the translations of a run depend on except its seed, as text; None if that is not known.

    Where the fingerprint of a corpus or an initial model is known, it stands for the paths.
    """
    if system.run is None or not system.run.settings or not isinstance(system.seed, int):
        return None
    inputs = {
        key: value
        for key, value in system.run.identity.items()
        if key.startswith("data.") or key.endswith(".init_from")
    }
    free = {SEED, *SEARCH_FREE, *paths_of(inputs)}
    settings = {key: value for key, value in system.run.settings.items() if key not in free and changes_model(key)}
    tuned = read_note(system.run.folder.best / GENERATION).get("search")
    tuned = tuned if isinstance(tuned, Mapping) else {}
    search = {key: value for key, value in tuned.items() if f"search.{key}" not in free and key not in system.options}
    return json.dumps([settings, inputs, search], sort_keys=True, default=str)


def _shared_name(members: Sequence[System]) -> str:
    if len(members) == 1:
        return members[0].name
    names = [member.name for member in members]
    first, last = min(names), max(names)
    length = next((place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None)
    shared = re.sub(r"([\W_]+(seed|s))?[\W_\d]*$", "", first[:length])
    return f"{shared or names[0]} ({len(members)} seeds)"
