"""The examination of one block of a corpus, and the sum of its results over all blocks.

`check` has one `Examiner` in each process and gives it blocks. Each `CorpusTally` is small, and `report` reads their
sum over a corpus.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from seq2seq.config.corpora import FilterConfig
from seq2seq.data.columns import looks_like_header
from seq2seq.data.encoding import stored_ids
from seq2seq.data.examples import Example, LabelledText, Pair
from seq2seq.data.filters import FilterCounts, PairFilter, SeenBefore, example_key
from seq2seq.inspection.blocks import Block, Finding
from seq2seq.inspection.correspondence import log_lengths
from seq2seq.inspection.line_languages import directions
from seq2seq.inspection.near_duplicates import NearDuplicates
from seq2seq.inspection.oddities import oddities_of
from seq2seq.inspection.overlap import HeldOut, Matches, SharedExample, normalise
from seq2seq.inspection.word_pairs import WordPairs
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.writing import script_of

PIECES_PER_CHARACTER = 0.3


class Sums:
    """A record whose fields are added up over blocks: numbers, lists, sets, counts, findings and sides."""

    def add(self, other: "Sums") -> None:
        """Add the fields of a later block, or of another corpus of the same kind."""
        for name, value in vars(other).items():
            total = getattr(self, name)
            if isinstance(value, Counter | set):
                total.update(value)
            elif isinstance(value, FilterCounts):
                total.add(value)
            elif isinstance(value, dict):
                for kind, finding in value.items():
                    total.setdefault(kind, Finding()).add(finding)
            elif name == "sides":
                total += [SideTally() for _ in value[len(total) :]]
                for side, later in zip(total, value, strict=False):  # a corpus without examples has no sides
                    side.add(later)
            else:
                setattr(self, name, total + value)


@dataclass
class SideTally(Sums):
    """The sums of one side."""

    findings: dict[str, Finding] = field(default_factory=dict)
    """The findings by the name of the oddity."""
    scripts: dict[str, Finding] = field(default_factory=dict)
    """The lines by the script of most of their letters."""
    hashes: list[np.ndarray] = field(default_factory=list)
    """The hash of each line, uint64."""
    longest: list[int] = field(default_factory=list)
    """The number of characters of the longest line of each block."""
    characters: Counter[str] = field(default_factory=Counter)
    num_words: int = 0
    num_pieces: float = 0.0
    kept_characters: Counter[str] = field(default_factory=Counter)
    """Counts in the examples that the filters keep, with duplicates, which are text for a tokenizer too."""
    held_out_words: set[str] = field(default_factory=set)
    """The words of the held-out sets that occur here."""


@dataclass
class CorpusTally(Sums):
    """The sums of one corpus."""

    sides: list[SideTally] = field(default_factory=list)
    examples: int = 0
    pairs: dict[str, Finding] = field(default_factory=dict)
    """The oddities of pairs."""
    numbers: list[np.ndarray] = field(default_factory=list)
    """The line numbers, int32."""
    keys: list[np.ndarray] = field(default_factory=list)
    """The identity of each example (`example_key`), uint64."""
    filters: FilterCounts = field(default_factory=FilterCounts)
    """The numbers of examples that the filters keep and drop."""
    source_words: int = 0
    """The words of the sources of the kept examples; the next two fields are of these too."""
    source_characters: int = 0
    target_pieces: float = 0.0
    labels: Counter[str] = field(default_factory=Counter)
    misfits: list[np.ndarray] = field(default_factory=list)
    """Log-odds that the sides of a pair do not translate each other, float32; only if word pairs were learned."""
    log_lengths: list[np.ndarray] = field(default_factory=list)
    """Logarithms of the lengths of the lines of both sides, (2, N) float32."""
    directions: dict[str, Finding] = field(default_factory=dict)
    """The pairs of a sample by the languages of their sides."""
    matches: list[tuple[str, SharedExample]] = field(default_factory=list)
    """The held-out examples that occur here."""

    def keep(self, candidates: "Candidates", seen: SeenBefore | None) -> None:
        """Count the candidates of a block; those that `seen` has are duplicates, as when training builds its corpus."""
        is_new = seen.first_time(candidates.keys) if seen else np.ones(len(candidates.keys), bool)
        self.filters.kept = int(is_new.sum())
        self.filters.drop("duplicate", len(is_new) - self.filters.kept)
        self.source_words = int(candidates.source_words[is_new].sum())
        self.source_characters = int(candidates.source_characters[is_new].sum())
        self.target_pieces = float(candidates.target_pieces[is_new].sum())

    def forget_lines(self) -> None:
        """Free the arrays with an item for each example, which only the report on the corpus needs."""
        self.numbers, self.keys, self.misfits, self.log_lengths = [], [], [], []
        for side in self.sides:
            side.hashes = []


@dataclass(frozen=True)
class Candidates:
    """The examples of a block that the filters keep unless they are duplicates; arrays with an item for each."""

    keys: np.ndarray
    """The identity of each as training reads it, with tag and noise (`example_key`), uint64."""
    source_words: np.ndarray
    source_characters: np.ndarray
    target_pieces: np.ndarray

    @classmethod
    def of(cls, block: Block, tally: CorpusTally, is_kept: np.ndarray, target_lengths: Sequence[float]) -> "Candidates":
        """Return the kept examples of a block, whose keys without tag and noise are in `tally`."""
        keys, sources = tally.keys[0][is_kept], list(compress(block.columns[0], is_kept))
        if block.tag or block.noise:
            keys = np.fromiter(map(example_key, compress(block.trained(), is_kept)), np.uint64, len(sources))
        words = np.fromiter((len(source.split()) for source in sources), np.int32, len(sources))
        characters = np.fromiter(map(len, sources), np.int32, len(sources))
        return cls(keys, words, characters, np.array(target_lengths)[is_kept])


@dataclass(frozen=True)
class Examiner:
    """A function that examines blocks; it can be sent to another process."""

    filters: FilterConfig
    tokenizers: Sequence[Tokenizer | None]
    """The tokenizer of each side; None if lengths in pieces can only be estimated from characters."""
    held_out: HeldOut
    near_duplicates: NearDuplicates
    held_out_words: Sequence[set[str]]
    """The words of all held-out sets, for each side."""
    word_pairs: WordPairs | None

    def __call__(self, block: Block, skip: str | None = None) -> tuple[CorpusTally, Candidates]:
        """Return the sums of `block`, and its examples that `CorpusTally.keep` counts, in the order of the blocks.

        If the block belongs to the held-out set `skip`, overlap with that set is left out.
        """
        examples = list(block.examples())
        tally = CorpusTally(
            examples=len(examples),
            numbers=[np.array(block.numbers, np.int32)],
            keys=[np.fromiter(map(example_key, examples), np.uint64, len(examples))],
            labels=_counted_labels(block.labelled or ()),
            matches=list(self._overlap(block, examples, skip)),
        )
        lengths = [self._lengths(side, block.encoded(side)) for side in range(len(block.columns))]
        is_kept = self._examine_pairs(tally, block, examples, lengths)
        tally.sides = [self._side(side, block, lengths[side], is_kept) for side in range(len(lengths))]
        if self.word_pairs is not None:
            tally.misfits.append(self.word_pairs.misfits(*block.columns, is_learned=skip is None))
        if len(block.columns) == 2:
            tally.log_lengths.append(np.stack(list(map(log_lengths, block.columns))))
            tally.directions = directions(block)
        return tally, Candidates.of(block, tally, is_kept, lengths[-1])

    def _lengths(self, side: int, lines: Sequence[str]) -> list[float]:
        """Return the length of each line in pieces."""
        tokenizer = self.tokenizers[side]
        if tokenizer is None:
            return [PIECES_PER_CHARACTER * len(line) for line in lines]
        return list(map(len, stored_ids(tokenizer, lines, is_source=side == 0)))

    def _side(self, side: int, block: Block, lengths: Sequence[float], is_kept: np.ndarray) -> SideTally:
        lines = block.columns[side]
        odd: dict[str, list[int]] = {}
        scripts: dict[str, list[int]] = {}
        for index, line in enumerate(lines):
            for name in oddities_of(line):
                odd.setdefault(name, []).append(index)
            if script := script_of(line):
                scripts.setdefault(script, []).append(index)
        words, characters = " ".join(lines).split(), Counter("".join(lines))
        digests = (hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=8).digest() for line in lines)
        return SideTally(
            findings={name: block.finding(indices, lines) for name, indices in odd.items()},
            scripts={script: block.finding(indices, lines) for script, indices in scripts.items()},
            hashes=[np.frombuffer(b"".join(digests), np.uint64)],
            longest=[max(map(len, lines))],
            characters=characters,
            num_words=len(words),
            num_pieces=sum(lengths),
            kept_characters=characters if is_kept.all() else Counter("".join(compress(lines, is_kept))),
            held_out_words=self.held_out_words[side].intersection(words),
        )

    def _examine_pairs(
        self, tally: CorpusTally, block: Block, examples: Sequence[Example], lengths: Sequence[Sequence[float]]
    ) -> np.ndarray:
        """Find odd pairs, and the rule by which the filters drop an example, and add them to `tally`.

        Returns whether the filters keep each example, before duplicates are dropped.
        """
        rules = PairFilter(self.filters)
        odd = {"copy": [], "case_copy": [], "over_long": [], "ratio": [], "header": []}
        dropped: dict[int, str] = {}
        for index, (example, first, last) in enumerate(zip(examples, lengths[0], lengths[-1], strict=True)):
            if rule := rules.rejects_text(example) or rules.rejects_lengths(first, last):
                dropped[index] = rule
                if rule == "ratio":
                    odd["ratio"].append(index)
                elif rule == "length" and max(first, last) > self.filters.max_length:
                    odd["over_long"].append(index)
            if isinstance(example, Pair) and (kind := _kind_of_copy(example)):
                odd[kind].append(index)
        if len(block.columns) == 2 and block.numbers[0] == 1 and looks_like_header([c[0] for c in block.columns]):
            odd["header"] = [0]
        tally.pairs = {kind: block.finding(indices, *block.columns) for kind, indices in odd.items() if indices}
        for rule in dropped.values():
            tally.filters.drop(rule)
        is_kept = np.ones(len(examples), bool)
        is_kept[list(dropped)] = False
        return is_kept

    def _overlap(self, block: Block, examples: Sequence[Example], skip: str | None) -> Matches:
        matches = Matches()
        for number, example in zip(block.numbers, examples, strict=True):
            texts, normalised = example.texts, tuple(map(normalise, example.texts))
            for finder in (self.held_out, self.near_duplicates):
                shared = finder.matches(number, texts, normalised)
                matches.add((name, match) for name, match in shared if name != skip)
        return matches


def _kind_of_copy(pair: Pair) -> str | None:
    source, target = pair.source.strip(), pair.target.strip()
    if source == target:
        return "copy" if source else None
    return "case_copy" if source.casefold() == target.casefold() else None


def _counted_labels(texts: Sequence[LabelledText]) -> Counter[str]:
    """Return the number of texts by label.

    Labels that are never the most likely have the count 0. Blank lines without a label are not counted.
    """
    counts = Counter(text.label for text in texts if text.label or text.text.strip())
    for text in texts:
        counts.update(dict.fromkeys(text.probabilities or (), 0))
    return counts
