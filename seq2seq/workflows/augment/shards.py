"""A folder of numbered parts, each made of one shard of the lines of some texts, complete or absent.

The state of the work is these files alone: whatever dies and however often the work is repeated, the folder ends with
the same bytes. `workflows.augment` plans shards, and workers write their parts.
"""

import gzip
import hashlib
import io
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq import atomic
from seq2seq.config.values import PARTS_FILE
from seq2seq.data.parts import part_path
from seq2seq.errors import DataError, RunError, UserError, counted, reason, shown, some_of
from seq2seq.executors import Workers, completed
from seq2seq.files import DamagedFile, json_text, read_object, record, verify
from seq2seq.lines import DAMAGE, damaged, decode_line, open_bytes, shown_name

logger = logging.getLogger(__name__)

FORMAT = 1
LEVEL = 6  # of compression
MOST_NAMED = 3  # differences in a message


class Shard(NamedTuple):
    """Consecutive lines of a text."""

    text: Path
    name: str
    """The name of the text in records."""
    first: int
    """The number of its first line in the text, from 1."""
    before: int
    """The number of lines of all texts before it."""
    count: int
    offset: int
    """Position in the text, in bytes, decompressed."""
    sha256: str

    def lines(self) -> list[str | None]:
        """Return the lines; None for one that is not UTF-8.

        Raises:
            DataError: the text cannot be read, or these lines changed since the shard was planned.
        """
        try:
            with open_bytes(self.text, self.offset) as stream:
                raw = list(islice(stream, self.count))
        except DAMAGE as error:
            raise damaged(self.text, self.first - 1, error) from error
        if hashlib.sha256(b"".join(raw)).hexdigest() != self.sha256:
            lines = f"lines {self.first:,} to {self.first + self.count - 1:,}"
            raise DataError(f"{self.text}: {lines} changed since the command started; start again when it is complete")
        invalid: list[int] = []
        texts = [decode_line(line, number, invalid.append) for number, line in enumerate(raw)]
        return [None if number in set(invalid) else text for number, text in enumerate(texts)]


@dataclass(frozen=True)
class TextFacts:
    """The content of a text, or of its first lines."""

    name: str
    lines: int
    sha256: str


def plan(texts: Sequence[Path], shard_lines: int, limit: int | None = None) -> tuple[list[TextFacts], list[Shard]]:
    """Return facts and shards of texts, in order; with `limit`, of this number of lines from the beginning.

    Raises:
        DataError: a text cannot be read, or there are no lines.
    """
    facts: list[TextFacts] = []
    shards: list[Shard] = []
    before, rest = 0, limit
    for text in texts:
        number, offset, whole, name = 0, 0, hashlib.sha256(), shown_name(str(text))
        if text.exists() and not text.is_file():
            problem = (
                "a folder" if text.is_dir() else "a pipe, which can be read only once; write its text to a file first"
            )
            raise DataError(f"{text}: {problem}")
        try:
            with open_bytes(text) as stream:
                lines = islice(stream, rest)
                while block := list(islice(lines, shard_lines)):
                    content = b"".join(block)
                    digest = hashlib.sha256(content).hexdigest()
                    shards.append(Shard(text, name, number + 1, before + number, len(block), offset, digest))
                    whole.update(content)
                    number, offset = number + len(block), offset + len(content)
        except DAMAGE as error:
            raise damaged(text, number, error) from error
        facts.append(TextFacts(name, number, whole.hexdigest()))
        before, rest = before + number, None if rest is None else rest - number
    if not before:
        raise DataError(f"{', '.join(map(str, texts))}: no lines")
    return facts, shards


@dataclass
class PartCounts:
    """The lines of a shard, or of all: each becomes a pair, or is left out for one reason."""

    lines: int = 0
    pairs: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    """The number of lines by reason."""

    def add(self, other: Mapping[str, Any]) -> None:
        """Add the counts of another shard."""
        self.lines, self.pairs = self.lines + other["lines"], self.pairs + other["pairs"]
        for why, count in other["left_out"].items():
            self.left_out[why] = self.left_out.get(why, 0) + count

    @property
    def reasons(self) -> str:
        """The reasons why lines gave no pair, with their counts."""
        return ", ".join(f"{why} {count:,}" for why, count in self.left_out.items())


def write_part(folder: Path, number: int, records: Iterable[Mapping[str, Any]], counts: PartCounts) -> dict[str, Any]:
    """Write a part and its facts, and return them; the part, which is written last, is complete or absent."""
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", LEVEL, packed, mtime=0) as stream:
        for each in records:
            stream.write(f"{json.dumps(each, ensure_ascii=False)}\n".encode())
    path = part_path(folder, number)
    content = packed.getvalue()
    facts = {**asdict(counts), "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    atomic.write_file(_facts_path(path), json_text(facts).encode())
    atomic.write_file(path, content)
    return facts


def finished_part(folder: Path, number: int) -> dict[str, Any] | None:
    """Return the facts of a part that is complete; one that is damaged is deleted, with a warning."""
    path = part_path(folder, number)
    if not path.exists():
        return None
    try:
        facts = read_object(_facts_path(path))
        verify(path, facts)
        PartCounts().add(facts)
    except (DamagedFile, KeyError, TypeError, AttributeError) as error:
        why = error if isinstance(error, DamagedFile) else reason(error)
        logger.warning("%s: made again, because it is damaged (%s)", path, why)
        path.unlink(missing_ok=True)
        return None
    return facts


def open_parts(folder: Path, identity: Mapping[str, Any], file: str = PARTS_FILE) -> dict[str, Any]:
    """Create a folder for work of this identity, or check that an existing one has it; return its description.

    Args:
        folder: the folder.
        identity: plain values that determine the result.
        file: name of the description in the folder.

    Raises:
        UserError: the folder has something else, or work of another identity.
    """
    path = folder / file
    if folder.is_dir():
        atomic.remove_leftovers(folder)
    if not path.exists():
        if folder.exists() and (not folder.is_dir() or any(folder.glob("[!.]*"))):
            raise UserError(f"{folder}: exists already, and has no {file}; name a new folder with -o")
        folder.mkdir(parents=True, exist_ok=True)
        description = {"format": FORMAT, **identity}
        atomic.write_file(path, json_text(description).encode())
        return description
    try:
        description = read_object(path)
    except DamagedFile as error:
        raise UserError(f"{folder}: {error}; name a new folder with -o, or delete this one") from error
    wanted = json.loads(json_text({"format": FORMAT, **identity}))
    if changes := list(_differences(description, wanted)):
        more = f" and {counted(len(changes) - MOST_NAMED, 'more difference')}" if len(changes) > MOST_NAMED else ""
        named = ", ".join(changes[:MOST_NAMED]) + more
        raise UserError(f"{folder}: is of another command: {named}; name a new folder with -o, or repeat that command")
    return description


def _differences(there: Any, here: Any, name: str = "") -> Iterable[str]:
    """Yield a phrase for each value that differs, such as `options.seed 1 there, 2 here`."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in here:
            yield from _differences(there.get(key), here[key], f"{name}.{key}" if name else key)
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for index, (old, new) in enumerate(zip(there, here, strict=True)):
            yield from _differences(old, new, f"{name}.{index}")
    elif there != here:
        yield f"{name} {shown(there)} there, {shown(here)} here"


def finish_parts(
    folder: Path,
    description: dict[str, Any],
    work: Callable[[int], dict[str, Any]],
    num_parts: int,
    workers: Workers,
    report: Callable[[int, Mapping[str, Any]], None] = lambda number, facts: None,
) -> PartCounts:
    """Make the missing parts, describe the finished folder, and return the counts of all parts.

    Args:
        folder: opened with `open_parts`.
        description: as `open_parts` returned it.
        work: function that writes a part and returns its facts, as `write_part` does.
        num_parts: number of parts.
        workers: workers that call `work`.
        report: called with the number and facts of each part, old ones first.

    Raises:
        RunError: some parts could not be made; the others are there.
        OSError: the disk is full, or the folder cannot be written.
    """
    total = PartCounts()
    missing = []
    for number in range(num_parts):
        facts = finished_part(folder, number)
        if facts is None:
            missing.append(number)
        else:
            total.add(facts)
            report(number, facts)
    failed: dict[int, Exception] = {}
    for number, outcome in completed(work, missing, workers):
        if isinstance(outcome, OSError):
            raise outcome  # it concerns every part
        if isinstance(outcome, Exception):
            failed[number] = outcome
            logger.warning("%s: %s", part_path(folder, number), outcome)
        else:
            total.add(outcome)
            report(number, outcome)
    if failed:
        names = [part_path(folder, number).name for number in sorted(failed)]
        first = failed[min(failed)]
        raise RunError(
            f"{folder}: {counted(len(failed), 'part')} could not be made ({some_of(names)}): {first}; "
            "the same command tries again"
        )
    if "counts" not in description:
        total.left_out = dict(sorted(total.left_out.items()))
        description |= {"counts": {"parts": num_parts, **asdict(total)}}
        atomic.write_file(folder / PARTS_FILE, json_text(description).encode())
    return total


def folder_record(folder: Path) -> str:
    """Return a fingerprint of the files of a model folder, without its card."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith((".", "README")))
    found = [(path.name, record(path)["sha256"]) for path in paths]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _facts_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".jsonl.gz") + ".json")
