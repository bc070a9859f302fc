"""Shards of a corpus of pairs: consecutive lines of any source, of which a worker makes one part.

`request` plans them, and `job` reads them. A line is a line of text, a row of a table or a unit of a translation
memory.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

from seq2seq.data.examples import Example, Pair, Position, Source
from seq2seq.errors import DataError


class PairShard(NamedTuple):
    """Consecutive lines of a source."""

    start: Position
    """Position of the chunk with its first line."""
    skipped: int
    """The number of lines of this chunk before it."""
    first: int
    """The number of its first line in the source, from 1."""
    count: int
    sha256: str

    def pairs(self, source: Source) -> list[Pair | None]:
        """Return the pair of each line; None for a line without one, such as a header or a blank row.

        Raises:
            DataError: the source cannot be read, or these lines changed since the shard was planned.
        """
        rows: list[Example | None] = []
        for chunk in source.chunks(self.start):
            rows += chunk.parse(chunk.raw, chunk.first)
            if len(rows) >= self.skipped + self.count:
                break
        rows = rows[self.skipped : self.skipped + self.count]
        if _digest(rows) != self.sha256:
            lines = f"lines {self.first:,} to {self.first + self.count - 1:,}"
            raise DataError(
                f"{source.name}: {lines} changed since the command started; start again when it is complete"
            )
        return rows


def plan(source: Source, shard_lines: int) -> list[PairShard]:
    """Return the shards of a source, in order.

    Raises:
        DataError: the source cannot be read, a line is not a pair, or there are no lines.
    """
    shards: list[PairShard] = []
    rows: list[Example | None] = []  # of the shard that is not yet complete
    start, skipped, first = None, 0, 1
    before: Position = None
    for chunk in source.chunks():
        found = chunk.parse(chunk.raw, chunk.first)
        taken = 0
        while taken < len(found):
            if not rows:
                start, skipped = before, taken
            new = found[taken : taken + shard_lines - len(rows)]
            rows, taken = rows + new, taken + len(new)
            if len(rows) == shard_lines:
                shards.append(PairShard(start, skipped, first, len(rows), _digest(rows)))
                first, rows = first + len(rows), []
        before = chunk.end
    if rows:
        shards.append(PairShard(start, skipped, first, len(rows), _digest(rows)))
    if not shards:
        raise DataError(f"{source.name}: no lines")
    return shards


def _digest(rows: Sequence[Example | None]) -> str:
    texts = [row and row.texts for row in rows]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
