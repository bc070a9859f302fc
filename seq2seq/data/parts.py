"""A folder of pairs in numbered parts, which `s2s augment` and `s2s filter` write and `data.train` reads in order.

Each part is complete or absent. `augment.json` or `filter.json` describes the folder, and has `counts` when all parts
are there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.config.values import FILTER_FILE, PARTS_FILE
from seq2seq.data.examples import Chunk, Example, Position, Source
from seq2seq.data.file_facts import combined_fingerprint
from seq2seq.data.tables import JsonLines
from seq2seq.errors import DataError
from seq2seq.files import DamagedFile, read_object
from seq2seq.languages import are_other

if TYPE_CHECKING:
    from seq2seq.data.columns import Columns

COLUMNS = ("source", "target")  # the keys of each object


def part_path(folder: Path, number: int) -> Path:
    """Return the path of a part; parts are numbered from 0."""
    return folder / f"part-{number:05}.jsonl.gz"


def facts_path(part: Path) -> Path:
    """Return the path of the facts of a part, such as its counts and digest."""
    return part.with_name(part.name.removesuffix(".jsonl.gz") + ".json")


def parts_file(folder: Path) -> Path:
    """Return the path of the description of a folder of parts; its name is that of the command that made the folder."""
    return next(filter(Path.is_file, (folder / FILTER_FILE, folder / PARTS_FILE)), folder / PARTS_FILE)


def languages_of_parts(folder: Path) -> tuple[str | None, str | None]:
    """Return the languages of source and target that a folder describes; None for one that is not known."""
    try:
        return _languages_in(read_object(parts_file(folder)))
    except DamagedFile:  # `Parts` reports it
        return None, None


def _languages_in(description: Mapping[str, Any]) -> tuple[str | None, str | None]:
    found = description.get("languages")
    languages = [found.get(side) if isinstance(found, dict) else None for side in COLUMNS]
    source, target = (language if isinstance(language, str) else None for language in languages)
    return source, target


class Parts(Source):
    """The pairs of a finished folder, in order.

    Raises:
        DataError: the folder is not finished, or a part cannot be read or is not the one that was written.
    """

    def __init__(self, folder: Path, columns: "Columns", weight: float, cache: Path | None):
        file = parts_file(folder)
        try:
            description = read_object(file)
        except DamagedFile as error:
            raise DataError(f"{folder}: {error}; make the folder again with s2s {file.stem}") from error
        counts = description.get("counts")
        if not isinstance(counts, dict) or not isinstance(counts.get("parts"), int):
            raise DataError(f"{folder}: not finished; run the same s2s {file.stem} command again")
        _check_languages(folder, _languages_in(description), [names[0] for names in columns.defaults])
        if columns.given == (None, None):
            columns = replace(columns, given=COLUMNS)
        options = description.get("options")
        self.tag = options.get("tag") if isinstance(options, dict) else None
        paths = [part_path(folder, number) for number in range(counts["parts"])]
        self._parts = [JsonLines(path, columns, weight, cache) for path in paths]
        for path, part in zip(paths, self._parts, strict=True):
            if part.sha256 != _written(path).get("sha256", part.sha256):
                remedy = "delete it, and repeat the command that made the folder"
                raise DataError(f"{path}: is not the file that was written with {facts_path(path).name}; {remedy}")
        self.name, self.weight, self.size = str(folder), weight, None
        self.fingerprint = combined_fingerprint("parts", *(part.fingerprint for part in self._parts))

    @property
    def invalid(self) -> list[list[int]]:
        """Lines that were not UTF-8, as in `Source`: none, because `json` wrote the parts."""
        return [[]]

    def chunks(self, start: Position = None) -> Iterator[Chunk]:
        """Yield the chunks of each part, numbered over all; a position is [part, position in it, lines before]."""
        first, inner, before = start or (0, None, 0)
        for number in range(first, len(self._parts)):
            count = inner[0] if inner else 0
            for chunk in self._parts[number].chunks(inner):
                parse = partial(_parse_part, chunk.parse, before)
                yield replace(chunk, first=chunk.first + before, parse=parse, end=[number, chunk.end, before])
                count = chunk.end[0]
            before, inner = before + count, None


def _written(part: Path) -> Mapping[str, Any]:
    """Return the facts of a part; empty if they were not copied with it."""
    try:
        return read_object(facts_path(part))
    except DamagedFile:
        return {}


def _parse_part(
    parse: Callable[[Any, int], list[Example | None]], before: int, raw: Any, first: int
) -> list[Example | None]:
    """Return the examples of a chunk of a part; messages about its file count the lines of this file."""
    return parse(raw, first - before)


def _check_languages(folder: Path, there: Sequence[str | None], wanted: Sequence[str]) -> None:
    """Refuse pairs of another direction than that of the configuration, if both are known."""
    if are_other(there, wanted, only_recognised=True):
        how = "with the other --kind" if parts_file(folder).name == PARTS_FILE else "of a corpus of this direction"
        raise DataError(
            f"{folder}: its pairs are {there[0]}-{there[1]}, but the config translates {wanted[0]}-{wanted[1]}; make "
            f"the folder {how}"
        )
