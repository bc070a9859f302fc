"""Shards of texts: consecutive lines, of which a worker makes one part (`workflows.parts`).

`request` plans them, and `job` reads them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.errors import DataError
from seq2seq.lines import DAMAGE, check_readable_again, damaged, decode_line, open_bytes, shown_name


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


def plan(
    texts: Sequence[Path], shard_lines: int, limit: int | None = None, base: Path | None = None
) -> tuple[list[TextFacts], list[Shard]]:
    """Return facts and shards of texts, in order; with `limit`, of this number of lines from the beginning.

    With `base`, the names do not depend on where that folder and the texts are: the path in `base`, or the file name.

    Raises:
        DataError: a text cannot be read, or there are no lines.
    """
    facts: list[TextFacts] = []
    shards: list[Shard] = []
    before = 0
    for text in texts:
        rest = None if limit is None else limit - before
        place = text if base is None else text.relative_to(base) if text.is_relative_to(base) else text.name
        name = shown_name(str(place))
        of_text, of_shards = _plan_text(text, name, shard_lines, before, rest)
        facts.append(of_text)
        shards += of_shards
        before += of_text.lines
    if not before:
        raise DataError(f"{', '.join(map(str, texts))}: no lines")
    return facts, shards


def named_as(facts: list[TextFacts], noted: Any) -> list[TextFacts]:
    """Return facts with the names that a description `noted` for texts with the same lines; else as they are.

    Thus another path to a text changes no record when a folder is continued.
    """
    try:
        if [each["sha256"] for each in noted] == [each.sha256 for each in facts]:
            return [replace(own, name=str(each["name"])) for own, each in zip(facts, noted, strict=True)]
    except (TypeError, KeyError):  # there is no such description
        pass
    return facts


def _plan_text(
    text: Path, name: str, shard_lines: int, before: int, limit: int | None
) -> tuple[TextFacts, list[Shard]]:
    """Return facts and shards of one text; `before` is the number of lines of the texts before it."""
    number, offset, whole = 0, 0, hashlib.sha256()
    shards: list[Shard] = []
    check_readable_again(text)
    try:
        with open_bytes(text) as stream:
            lines = islice(stream, limit)
            while block := list(islice(lines, shard_lines)):
                content = b"".join(block)
                digest = hashlib.sha256(content).hexdigest()
                shards.append(Shard(text, name, number + 1, before + number, len(block), offset, digest))
                whole.update(content)
                number, offset = number + len(block), offset + len(content)
    except DAMAGE as error:
        raise damaged(text, number, error) from error
    return TextFacts(name, number, whole.hexdigest()), shards
