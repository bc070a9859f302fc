"""A corpus in blocks of lines for `s2s check`, which reads on where training would stop.

Two text files of unequal length, or bytes that are not UTF-8, do not end the reading: `CorpusReader` counts and keeps
them. Other formats are read through `sources`, up to the first line that training would stop at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice

from seq2seq.config import SourceConfig
from seq2seq.data.examples import Example, LabelledText, Pair, Source
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import DataError, quiet
from seq2seq.lines import DAMAGE, decode_line, open_bytes, read_lines

BLOCK_LINES = 8192
BLOCK_BYTES = 1 << 20
EXAMPLES_KEPT = 3
LONGEST_EXAMPLE = 200


@dataclass
class Finding:
    """How many lines are of a kind, and a few of them: line number and text (both sides where it concerns pairs)."""

    count: int = 0
    examples: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    def add(self, other: "Finding") -> None:
        """Add what later lines showed."""
        self.count += other.count
        self.examples += other.examples[: EXAMPLES_KEPT - len(self.examples)]


@dataclass(frozen=True)
class Block:
    """Consecutive examples of one corpus."""

    numbers: Sequence[int]
    """Their line numbers."""
    columns: tuple[list[str], ...]
    """The sides; in classification the texts alone."""
    labels: list[str] | None = None
    first_example: int = 1

    def examples(self) -> Iterator[Example]:
        """As a source gives them."""
        if len(self.columns) == 2:
            return map(Pair, *self.columns)
        return map(LabelledText, self.columns[0], self.labels or [])

    def finding(self, indices: Sequence[int], *columns: list[str]) -> Finding:
        """These lines of the block, shown by the columns given."""
        examples = [
            (self.numbers[index], tuple(shown(column[index]) for column in columns))
            for index in indices[:EXAMPLES_KEPT]
        ]
        return Finding(len(indices), examples)


class CorpusReader:
    """One corpus of a config; the attributes are filled while `blocks` is read to its end.

    Args:
        name: train, valid, or the name of a test set.
        config: where it is.
        languages: of the two sides, by which columns may be named; None in classification.
    """

    def __init__(self, name: str, config: SourceConfig, languages: tuple[str, str] | None):
        self.name, self.config, self._languages = name, config, languages
        self.files = [str(path) for _, path in config.files()] or [f"{config.hub} ({config.split})"]
        self.line_counts: list[int] = []
        """Of each file; one number where both sides are in one file."""
        self.invalid: list[Finding] = []
        """Lines of each file that are not UTF-8."""
        self.failure: str | None = None
        """Why reading ended before the end."""

    def blocks(self) -> Iterator[Block]:
        """The examples from the beginning; of files of unequal length those that have two sides."""
        self.failure = None
        self.invalid = [Finding() for _ in self.files]
        self.line_counts = [0 for _ in self.files]
        try:
            yield from self._text_blocks() if self.config.source is not None else self._source_blocks()
        except DataError as error:
            self.failure = str(error)

    def examples_at(self, numbers: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """The texts of a few lines."""
        wanted, found = set(numbers), {}
        again = CorpusReader(self.name, self.config, self._languages)
        for block in again.blocks() if wanted else ():
            for number, *texts in zip(block.numbers, *block.columns, strict=True):
                if number in wanted:
                    found[number] = tuple(map(shown, texts))
            if len(found) == len(wanted):
                break
        return found

    def _text_blocks(self) -> Iterator[Block]:
        paths = [path for _, path in self.config.files()]
        first = 1
        try:
            with open_bytes(paths[0]) as source, open_bytes(paths[1]) as target:
                while raw := source.readlines(BLOCK_BYTES):
                    columns = self._decode(0, raw, first), self._decode(1, list(islice(target, len(raw))), first)
                    if size := len(columns[1]):
                        yield Block(range(first, first + size), (columns[0][:size], columns[1]), None, first)
                    first += len(raw)
                self.line_counts[1] += sum(1 for _ in target)
        except DAMAGE as error:
            where = " and ".join(map(str, paths))
            raise DataError(f"{where}: damaged after line {first - 1} ({error}); fetch or pack them again") from error

    def _decode(self, side: int, raw: list[bytes], first: int) -> list[str]:
        broken: list[int] = []
        lines = [decode_line(line, number, broken.append) for number, line in enumerate(raw, start=first)]
        for number in broken:
            self.invalid[side].add(Finding(1, [(number, (shown(lines[number - first]),))]))
        self.line_counts[side] += len(lines)
        return lines

    def _source_blocks(self) -> Iterator[Block]:
        source = open_pairs(self.config, *self._languages) if self._languages else open_labelled(self.config)
        numbers, examples, first = self._numbers(source), iter(source), 1
        while True:
            with quiet("seq2seq.data.sources"):  # the report says more than its warnings
                block = list(islice(examples, BLOCK_LINES))
            if not block:
                break
            lines = list(islice(numbers, len(block)))
            if isinstance(block[0], LabelledText):
                yield Block(lines, ([e.text for e in block],), [e.label for e in block], first)
            else:
                yield Block(lines, ([e.source for e in block], [e.target for e in block]), None, first)
            first += len(block)
            self.line_counts[0] += len(block)
        for _ in numbers:  # to the end, for lines that are not UTF-8
            pass

    def _numbers(self, source: Source) -> Iterator[int]:
        """The line numbers of the examples of a file; of a dataset the row numbers."""
        path = self.config.tsv or self.config.jsonl
        if path is None:
            yield from count(1)
            return
        broken: list[int] = []
        has_header = self.config.tsv is not None and source.size is not None and _count_lines(path) > source.size
        for number, line in enumerate(read_lines(path, broken.append), start=1):
            if broken:
                self.invalid[0].add(Finding(1, [(broken.pop(), (shown(line),))]))
            if (line if self.config.tsv is not None else line.strip()) and not (number == 1 and has_header):
                yield number


def shown(text: str) -> str:
    """`text` cut to what an example shows."""
    return text if len(text) <= LONGEST_EXAMPLE else text[: LONGEST_EXAMPLE - 1] + "…"


def _count_lines(path) -> int:
    with open_bytes(path) as stream:
        return sum(1 for _ in stream)
