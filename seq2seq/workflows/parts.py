"""A folder of numbered parts, each made of one shard of some text, complete or absent.

The state of the work is these files alone: whatever dies and however often the work is repeated, the folder ends with
the same bytes. `workflows.augment` and `workflows.filter` plan shards, and workers write their parts.
"""

import contextlib
import gzip
import hashlib
import io
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seq2seq import atomic
from seq2seq.config.values import PARTS_FILE
from seq2seq.data.parts import facts_path, part_path
from seq2seq.errors import RunError, UserError, counted, reason, shown, some_of
from seq2seq.executors import Workers, completed
from seq2seq.files import DamagedFile, json_text, read_object, record, verify
from seq2seq.processes import usable_cpus
from seq2seq.store.calibration import FILE as CALIBRATION
from seq2seq.store.finding import listed_files

logger = logging.getLogger(__name__)

FORMAT = 1
LOCK = ".lock"
LEVEL = 6  # of compression
MOST_NAMED = 3  # differences in a message
SHARD_LINES = 20_000  # of a part, unless another number is given
NO_SCORE = "no score"  # the reason of lines whose score is not finite, because the numbers of a model overflow
# Options of loading a model that change no result, except for the last bits of scores.
NOT_IDENTITY = ("device", "threads", "batch_tokens")


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


def write_part(
    folder: Path, number: int, records: Iterable[Mapping[str, Any]], counts: PartCounts, **notes: str
) -> dict[str, Any]:
    """Write a part and its facts, and return them; the part, which is written last, is complete or absent.

    The facts are its counts and digest, and `notes`, such as the engine.
    """
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", LEVEL, packed, mtime=0) as stream:
        for each in records:
            stream.write(f"{json.dumps(each, ensure_ascii=False)}\n".encode())
    path = part_path(folder, number)
    content = packed.getvalue()
    facts = {**asdict(counts), "sha256": hashlib.sha256(content).hexdigest(), "size": len(content), **notes}
    atomic.write_file(facts_path(path), json_text(facts).encode())
    atomic.write_file(path, content)
    return facts


def finished_part(folder: Path, number: int) -> dict[str, Any] | None:
    """Return the facts of a part that is complete; one that is damaged is deleted, with a warning."""
    path = part_path(folder, number)
    if not path.exists():
        return None
    try:
        return _facts_of(path)
    except DamagedFile as error:
        logger.warning("%s: made again, because it is damaged (%s)", path, error)
        path.unlink(missing_ok=True)
        return None


@contextlib.contextmanager
def open_parts(
    folder: Path,
    identity: Mapping[str, Any],
    told: Mapping[str, str],
    file: str = PARTS_FILE,
    defaults: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Create a folder for work of this identity, or check that an existing one has it; yield its description.

    In the block, no other process of this machine can open the folder.

    Args:
        folder: the folder.
        identity: plain values that determine the result.
        told: phrases for people, such as those of `other_model`, for values that they cannot read; the key `models.0`
            is the first of `identity["models"]`.
        file: name of the description in the folder.
        defaults: values of the keys of `identity["options"]` that are left out, which change nothing when they are
            given.

    Raises:
        UserError: the folder has something else, or work of another identity, or another process has it open.
    """
    find_parts(folder, identity, told, file, defaults)  # before a lock file is made in it
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if os.access(folder, os.W_OK):  # what is finished may be read-only
            if not stack.enter_context(atomic.locked(folder / LOCK, wait=False)):
                raise UserError(f"{folder}: another process writes into it; wait for it, or name another folder")
            atomic.remove_leftovers(folder)
        description = find_parts(folder, identity, told, file, defaults)
        if description is None:
            description = {"format": FORMAT, **identity}
            atomic.write_file(folder / file, json_text(description).encode())
        yield description


def find_parts(
    folder: Path,
    identity: Mapping[str, Any],
    told: Mapping[str, str],
    file: str = PARTS_FILE,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any] | None:
    """Return the description of a folder for work of this identity; None if there is none yet. Nothing is changed.

    Arguments and errors are those of `open_parts`.
    """
    description = _description(folder, file)
    if description is not None and (named := differences(description, identity, told, defaults)):
        raise UserError(f"{folder}: was made by another command: {named}; name another folder, or repeat that command")
    return description


def _description(folder: Path, file: str) -> dict[str, Any] | None:
    path = folder / file
    if not path.exists():
        if folder.exists() and (not folder.is_dir() or any(folder.glob("[!.]*"))):
            raise UserError(f"{folder}: exists already, and has no {file}; name a new folder with -o")
        return None
    try:
        return read_object(path)
    except DamagedFile as error:
        raise UserError(f"{folder}: {error}; name a new folder with -o, or delete this one") from error


def differences(
    description: Mapping[str, Any],
    identity: Mapping[str, Any],
    told: Mapping[str, str],
    defaults: Mapping[str, Any] | None = None,
) -> str:
    """Return phrases for the differences of a description from an identity, or an empty text.

    Arguments are those of `open_parts`.
    """
    wanted = json.loads(json_text({"format": FORMAT, **identity}))
    there, here = (_with_defaults(each, defaults or {}) for each in (description, wanted))
    changes = list(dict.fromkeys(_differences(there, here, told)))
    more = f" and {counted(len(changes) - MOST_NAMED, 'more difference')}" if len(changes) > MOST_NAMED else ""
    return ", ".join(changes[:MOST_NAMED]) + more


def _with_defaults(description: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    options = description.get("options")
    return {**description, "options": {**defaults, **options}} if isinstance(options, dict) else dict(description)


def other_model(name: object) -> str:
    """Return the phrase for the fingerprint of a model that differs."""
    return f"{name} has other weights or files than the model there"


def other_lines(name: object) -> str:
    """Return the phrase for the digest of a text or corpus that differs."""
    return f"{name} has other lines than there"


def _differences(there: Any, here: Any, told: Mapping[str, str], name: str = "") -> Iterable[str]:
    """Yield a phrase for each value that differs: that of `told`, or one such as `options.seed 1 there, 2 here`.

    A value at the top level that only `there` has is a result, not a difference. Below, it is not given here.
    """
    if isinstance(there, dict) and isinstance(here, dict):
        for key in {**there, **here} if name else here:
            yield from _differences(there.get(key), here.get(key), told, f"{name}.{key}" if name else key)
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for index, (old, new) in enumerate(zip(there, here, strict=True)):
            yield from _differences(old, new, told, f"{name}.{index}")
    elif isinstance(there, list) and isinstance(here, list):
        yield f"{name.rstrip('.0123456789')}: {len(there)} there, {len(here)} here"
    elif there != here:
        old, new = ("not given" if value is None else shown(value) for value in (there, here))
        phrase = f"{name} {old} there, {new} here"
        yield phrase if there is None or here is None else told.get(name, phrase)


def written_parts(folder: Path, numbers: Iterable[int]) -> tuple[int, int]:
    """Return how many of the numbered parts are complete, and the number of their lines; nothing is changed."""
    found = []
    for number in numbers:
        with contextlib.suppress(DamagedFile):
            found.append(_facts_of(part_path(folder, number))["lines"])
    return len(found), sum(found)


def _facts_of(path: Path) -> dict[str, Any]:
    """Return the facts of a part.

    Raises:
        DamagedFile: the part or its facts are missing or damaged.
    """
    try:
        facts = read_object(facts_path(path))
        verify(path, facts)
        PartCounts().add(facts)
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedFile(reason(error)) from error
    return facts


def make_parts(
    folder: Path,
    work: Callable[[int], dict[str, Any]],
    num_parts: int,
    workers: Workers,
    report: Callable[[int, Mapping[str, Any]], None] = lambda number, facts: None,
) -> PartCounts:
    """Make the missing parts of a folder, and return the counts of all parts.

    Args:
        folder: the folder, which exists.
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
    try:
        for number, outcome in completed(work, missing, workers):
            if isinstance(outcome, OSError):
                raise outcome  # it concerns every part
            if isinstance(outcome, Exception):
                failed[number] = outcome
                logger.warning("%s: %s", part_path(folder, number), outcome)
            else:
                total.add(outcome)
                report(number, outcome)
    except KeyboardInterrupt:
        done, _ = written_parts(folder, range(num_parts))  # also those whose workers have not reported yet
        told = f"{done:,} of {counted(num_parts, 'part')}"
        logger.info("%s: interrupted; %s complete; the same command continues", folder, told)
        raise
    if failed:
        names = [part_path(folder, number).name for number in sorted(failed)]
        first = failed[min(failed)]
        raise RunError(
            f"{folder}: {counted(len(failed), 'part')} could not be made ({some_of(names)}): {first}; "
            "the same command tries again"
        )
    total.left_out = dict(sorted(total.left_out.items()))
    return total


def finish_folder(
    folder: Path, description: dict[str, Any], num_parts: int, counts: PartCounts, file: str = PARTS_FILE
) -> None:
    """Add the counts of all parts to the description of a folder; with them, the folder is finished.

    Args:
        folder: opened with `open_parts`.
        description: as `open_parts` returned it.
        num_parts: number of parts.
        counts: as `make_parts` returned them.
        file: name of the description in the folder.
    """
    found = {"parts": num_parts, **asdict(counts)}
    if description.get("counts") != found:
        description["counts"] = found
        atomic.write_file(folder / file, json_text(description).encode())
    atomic.remove_leftovers(folder)  # of workers that were killed, now or in an earlier run


def sharing(loading: tuple[tuple[str, Any], ...], workers: int) -> tuple[tuple[str, Any], ...]:
    """Return options of loading a model with the CPU threads of one of several local processes."""
    if workers == 1:
        return loading
    threads = dict(loading).get("threads") or max(usable_cpus() // workers, 1)
    return tuple(sorted({**dict(loading), "threads": threads}.items()))


def folder_record(folder: Path) -> str:
    """Return a fingerprint of the files that a model consists of.

    Those of a folder that this toolkit wrote are the files that it lists and the calibration; others, such as notes,
    do not count. In a folder of another toolkit all files count, except its card and hidden ones.
    """
    listed = listed_files(folder)
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    if listed is None:
        paths = [path for path in paths if not path.name.startswith((".", "README"))]
    else:
        paths = [path for path in paths if path.name in {*listed, CALIBRATION}]
    found = [(path.name, record(path)["sha256"]) for path in paths]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()
