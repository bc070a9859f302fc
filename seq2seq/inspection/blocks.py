"""A corpus in blocks of examples, for `s2s check`, which continues at some errors that would stop training.

Two text files of unequal length, or lines that are not UTF-8, do not end the reading: `CorpusReader` records them.
Other formats are read through `sources`, up to the first line at which training would stop. All are read without their
noise, because the report is about the lines of the files, and without the tag of `s2s augment`, which is not text.
`Block.trained` adds both, for what depends on the texts of training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest

from seq2seq.config.corpora import NoiseConfig, SourceConfig
from seq2seq.data.directions import DirectedSource
from seq2seq.data.examples import Example, LabelledText, Pair
from seq2seq.data.noise import perturbed_line
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.data.text_files import check_form
from seq2seq.errors import DataError
from seq2seq.lines import as_one_line, read_lines

BLOCK_LINES = 8192
EXAMPLES_KEPT = 3
LONGEST_EXAMPLE = 200
_REPLACEMENT = "\ufffd"


@dataclass
class Finding:
    """The number of lines with an oddity, and a few of them: line number and text (both sides, if pairs are meant)."""

    count: int = 0
    examples: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    def add(self, other: "Finding") -> None:
        """Add the finding of later lines."""
        self.count += other.count
        self.examples += other.examples[: EXAMPLES_KEPT - len(self.examples)]


@dataclass(frozen=True)
class Block:
    """Consecutive examples of one corpus."""

    numbers: Sequence[int]
    """The line numbers of the examples."""
    columns: Sequence[Sequence[str]]
    """The lines of each side; in classification only the texts."""
    labelled: Sequence[LabelledText] | None
    """The examples of classification; None for pairs."""
    tag: str | None = None
    """The tag that training reads before each source text, which is not in `columns`."""
    noise: NoiseConfig | None = None
    """The noise that training adds, which is not in `columns`."""
    languages: Sequence[str] = ()
    """The languages of the sides, by whose case rules it is added."""

    def examples(self) -> Iterator[Example]:
        """Return the examples in the form of `data.examples`."""
        return map(Pair, *self.columns) if self.labelled is None else iter(self.labelled)

    def trained(self) -> Iterator[Example]:
        """Return the examples as training reads them, with their tag and noise."""
        examples = map(Pair, self.encoded(0), self.columns[1]) if self.labelled is None else iter(self.labelled)
        if self.noise is None:
            return examples
        noise = self.noise
        return (
            perturbed_line(example, number, noise, self.languages, self.tag)
            for number, example in zip(self.numbers, examples, strict=True)
        )

    def encoded(self, side: int) -> Sequence[str]:
        """Return the lines of a side as training encodes them."""
        return [f"{self.tag} {line}" for line in self.columns[0]] if self.tag and side == 0 else self.columns[side]

    def finding(self, indices: Sequence[int], *columns: Sequence[str]) -> Finding:
        """Return a finding of the lines of the block with these indices; `columns` are shown."""
        examples = [
            (self.numbers[index], tuple(shown(column[index]) for column in columns))
            for index in indices[:EXAMPLES_KEPT]
        ]
        return Finding(len(indices), examples)


class CorpusReader:
    """A reader of one corpus of a config; reading `blocks` to the end fills the attributes.

    Args:
        name: train, valid, or the name of a test set.
        config: location and format of the corpus.
        languages: languages of the two sides, which may be names of columns; None in classification.
        label_names: displayed names of the labels.
        is_reversed: whether the sides of the pairs are exchanged, as in the reverse direction of `both_ways`.
    """

    def __init__(
        self,
        name: str,
        config: SourceConfig,
        languages: tuple[str, str] | None,
        label_names: Mapping[str, str],
        is_reversed: bool = False,
    ):
        self.name, self.config, self._languages, self._label_names = name, config, languages, label_names
        self._is_reversed = is_reversed
        self._paths = [path for _, path in config.files()][:: -1 if is_reversed else 1]
        self.files = list(map(str, self._paths)) or [f"{config.hub} ({config.split})"]
        self.line_counts: list[int] = []
        """The number of lines of each file; a single number if both sides are in one file."""
        self.invalid: Sequence[list[int]] = []
        """The numbers of the lines of each side that are not UTF-8."""
        self.elsewhere: Sequence[int] = []
        """The numbers of the lines that are not UTF-8 in a column that is not read as text."""
        self.failure: str | None = None
        """The error that ended the reading early; None without one."""

    def blocks(self) -> Iterator[Block]:
        """Yield the examples from the beginning; of files of unequal length only those with two sides."""
        self.failure, self.invalid, self.line_counts = None, [[] for _ in self.files], [0 for _ in self.files]
        try:
            yield from self._text_blocks() if self.config.source is not None else self._source_blocks()
        except DataError as error:
            self.failure = str(error)

    def examples_at(self, numbers: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """Return the texts of these lines, shortened as by `shown`; lines that are not examples are absent."""
        wanted, texts_at = set(numbers), {}
        again = CorpusReader(self.name, self.config, self._languages, self._label_names, self._is_reversed)
        for block in again.blocks() if wanted else ():
            for number, *texts in zip(block.numbers, *block.columns, strict=True):
                if number in wanted:
                    texts_at[number] = tuple(map(shown, texts))
            if len(texts_at) == len(wanted):
                break
        return texts_at

    def _text_blocks(self) -> Iterator[Block]:
        for path in self._paths:
            check_form(path)
        lines = zip_longest(*(read_lines(path, on.append) for path, on in zip(self._paths, self.invalid, strict=True)))
        first = 1
        while rows := list(islice(lines, BLOCK_LINES)):
            columns = [[as_one_line(line) for line in column if line is not None] for column in zip(*rows, strict=True)]
            self.line_counts = [count + len(lines) for count, lines in zip(self.line_counts, columns, strict=True)]
            if size := min(map(len, columns)):
                yield self._block(range(first, first + size), [lines[:size] for lines in columns])
            first += len(rows)

    def _block(
        self,
        numbers: Sequence[int],
        columns: Sequence[Sequence[str]],
        labelled: Sequence[LabelledText] | None = None,
        tag: str | None = None,
    ) -> Block:
        return Block(numbers, columns, labelled, tag, self.config.noise, self._languages or ())

    def _source_blocks(self) -> Iterator[Block]:
        config = self.config.model_copy(update={"noise": None})
        if not self._languages:
            source = open_labelled(config, label_names=self._label_names)
        elif self._is_reversed:
            source = DirectedSource(open_pairs(config, *self._languages[::-1]), self._languages, is_reversed=True)
        else:
            source = open_pairs(config, *self._languages)
        replaced: tuple[list[int], ...] = ([], [])  # by side, the lines with U+FFFD
        for chunk in source.chunks():
            if numbered := chunk.numbered():
                numbers = [number for number, _ in numbered]
                examples = [example.without(source.tag) for _, example in numbered]
                columns = list(zip(*(example.texts for example in examples), strict=True))
                for side, texts in zip(replaced, columns, strict=False):
                    side += [number for number, text in zip(numbers, texts, strict=True) if _REPLACEMENT in text]
                yield self._block(numbers, columns, None if self._languages else examples, source.tag)
                self.line_counts[0] += len(examples)
        invalid = set(chain.from_iterable(source.invalid))
        self.invalid = [[number for number in side if number in invalid] for side in replaced]
        self.elsewhere = sorted(invalid.difference(*self.invalid))


def shown(text: str) -> str:
    """Return `text`, cut to `LONGEST_EXAMPLE` characters."""
    return text if len(text) <= LONGEST_EXAMPLE else text[: LONGEST_EXAMPLE - 1] + "…"
