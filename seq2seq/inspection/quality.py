"""What is odd in the lines of a corpus: each kind of oddity counted and shown by a few examples.

`check` has one `Examiner` for each process and gives it blocks; the `BlockFindings` that come back are small, whatever
the corpus.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from seq2seq.config import FilterConfig
from seq2seq.data.columns import looks_like_header
from seq2seq.data.examples import LabelledText, Pair
from seq2seq.data.filters import PairFilter
from seq2seq.inspection.alignment import LineShapes, line_shapes
from seq2seq.inspection.characters import CONTROL, DIGIT, LETTER, ODD_SPACE, SCRIPTS, SPACE, TextBlock, mix
from seq2seq.inspection.near_duplicates import NearDuplicates
from seq2seq.inspection.overlap import HeldOut, Match, Matches, normalise, texts_of
from seq2seq.inspection.word_pairs import WordPairs
from seq2seq.text.tokenizer import Tokenizer

# What each kind means, in the order of the report.
KINDS = {
    "invalid_utf8": "not UTF-8; what could not be read became U+FFFD",
    "empty": "nothing but space",
    "copy": "the target is the source",
    "over_long": "longer than data.filters.max_length pieces",
    "ratio": "one side longer than data.filters.max_ratio times the other",
    "duplicate": "a pair that was there before",
    "header": "the names of columns or languages instead of text",
    "repeated": "a line that was there before",
    "no_words": "neither letter nor digit",
    "control": "control or invisible characters, line separators",
    "replacement": "U+FFFD, the mark of text lost in an earlier conversion",
    "mojibake": "UTF-8 that was read as another encoding",
    "mixed_script": "letters of two scripts in one word",
    "foreign_script": "mostly in another script than the rest of this side",
    "entity": "HTML entities such as &amp;",
    "tab": "a tab, which breaks tab-separated files",
    "odd_space": "no-break or other unusual spaces",
    "leading_space": "space at the beginning",
    "trailing_space": "space at the end",
    "double_space": "two spaces side by side",
}
EXAMPLES_KEPT = 3
LONGEST_EXAMPLE = 200
RULES = ("", "empty", "copy", "length", "ratio")

_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,6}|#x[0-9a-fA-F]{2,5});")
# What the bytes 0x80 to 0xBF become where they are read as Latin-1 or Windows-1252.
_TAILS = "".join(map(chr, range(0x80, 0xC0))) + bytes(
    byte for byte in range(0x80, 0xA0) if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
).decode("cp1252")
_MOJIBAKE = re.compile(f"[ÂÃ][{_TAILS}]|â[€\x80][{_TAILS}]|ï[»¼][{_TAILS}]|(?:[Ä-ÅÎÏÐÑ][{_TAILS}]){{2,}}")
_MOJIBAKE_LEADS = np.array([ord(lead) for lead in "ÂÃâïÄÅÎÏÐÑ"])

Example = tuple[int, tuple[str, ...]]


@dataclass
class Finding:
    """How many lines are of a kind, and a few of them: line number and text (both sides where it concerns pairs)."""

    count: int = 0
    examples: list[Example] = field(default_factory=list)

    def add(self, other: "Finding") -> None:
        """Add what later lines showed."""
        self.count += other.count
        self.examples += other.examples[: EXAMPLES_KEPT - len(self.examples)]


@dataclass(frozen=True)
class SideFindings:
    """One side of a block."""

    findings: dict[str, Finding]
    hashes: np.ndarray
    """uint64, a line each."""
    shapes: LineShapes
    pieces: np.ndarray
    """float32, the length of each line in pieces, estimated where it is far from every limit."""
    num_words: int
    codes: np.ndarray
    code_counts: np.ndarray
    """Which characters there are, and how often."""
    scripts: dict[int, Finding]
    """Lines by the script of most of their letters."""
    held_out_words: np.ndarray
    """bool: which of the words asked for stand here."""


@dataclass(frozen=True)
class BlockFindings:
    """What a block of examples showed."""

    numbers: np.ndarray
    """int32, line numbers."""
    sides: tuple[SideFindings, ...]
    pairs: dict[str, Finding]
    rules: np.ndarray
    """uint8, the filter rule that drops each example, an index into RULES."""
    pair_hashes: np.ndarray
    overlap: list[tuple[str, Match]]
    labels: Counter
    misfits: np.ndarray
    """float32, log-odds that the sides of a pair are no translations; empty where nothing is known of it."""


@dataclass(frozen=True)
class Block:
    """Consecutive examples of one corpus."""

    numbers: Sequence[int]
    """Their line numbers."""
    columns: tuple[list[str], ...]
    """The sides; in classification the texts alone."""
    labels: list[str] | None = None
    first_example: int = 1

    def examples(self) -> Iterator[Pair | LabelledText]:
        """As a source gives them."""
        if len(self.columns) == 2:
            return map(Pair, *self.columns)
        return map(LabelledText, self.columns[0], self.labels or [""] * len(self.numbers))


@dataclass(frozen=True)
class PieceLengths:
    """Lengths in pieces for one side: by a tokenizer of the configured kind, or by its pieces a character."""

    tokenizer: Tokenizer | None
    pieces_per_character: float
    is_exact: bool = False
    """Whether the tokenizer is the one of training, so that no length is to be estimated."""

    def __call__(self, block: TextBlock) -> np.ndarray:
        """Estimated lengths, (N,) float32; text is at least one piece."""
        return np.where(block.lengths > 0, np.maximum(block.lengths * self.pieces_per_character, 1), 0).astype(
            np.float32
        )

    def exact(self, lines: Sequence[str]) -> list[int] | None:
        """Lengths as the tokenizer gives them, or None without one."""
        return (
            None
            if self.tokenizer is None
            else [len(ids) for ids in self.tokenizer.encode_all([line.strip() for line in lines])]
        )


@dataclass(frozen=True)
class Examiner:
    """Looks at blocks; it can be sent to another process."""

    filters: FilterConfig
    lengths: tuple[PieceLengths, ...]
    held_out: HeldOut
    near_duplicates: NearDuplicates
    held_out_words: tuple[np.ndarray, ...] = ()
    """Sorted hashes of the words of the held-out sets, for each side."""
    word_pairs: WordPairs | None = None

    def __call__(self, block: Block, skip: str | None = None) -> BlockFindings:
        texts = [TextBlock(lines) for lines in block.columns]
        sides = tuple(self._examine_side(place, text, block) for place, text in enumerate(texts))
        pieces = [side.pieces for side in sides]
        self._measure_near_limits(texts, pieces)
        empty = np.logical_or.reduce([_is_empty(text) for text in texts])
        pairs, rules = self._examine_pairs(block, empty, pieces)
        hashes = [side.hashes for side in sides]
        pair_hashes = mix(hashes[0] ^ mix(hashes[1])) if len(hashes) == 2 else _with_labels(hashes[0], block.labels)
        overlap = self._overlap(block, skip)
        misfits = np.zeros(0, np.float32)
        if self.word_pairs is not None:
            misfits = self.word_pairs.misfits(*texts, is_learned=skip is None)
        numbers, labels = np.array(block.numbers, np.int32), Counter(block.labels or ())
        return BlockFindings(numbers, sides, pairs, rules, pair_hashes, overlap, labels, misfits)

    def _overlap(self, block: Block, skip: str | None) -> list[tuple[str, Match]]:
        matches = Matches()
        for number, example in enumerate(block.examples(), start=block.first_example):
            texts = texts_of(example)
            normalised = tuple(map(normalise, texts))
            for finder in (self.held_out, self.near_duplicates):
                matches.add(found for found in finder.matches(number, texts, normalised) if found[0] != skip)
        return list(matches)

    def _examine_side(self, place: int, text: TextBlock, block: Block) -> SideFindings:
        findings = {}
        for kind, find in _SIDE_KINDS.items():
            if (lines := np.flatnonzero(find(text))).size:
                findings[kind] = _finding(lines, block.numbers, (text.lines,))
        starts, ends = text.words
        words = text.whole.hashes(starts, ends)
        asked = self.held_out_words[place] if self.held_out_words else np.zeros(0, np.uint64)
        counts = np.bincount(text.codes)
        counts[10] = 0
        codes = np.flatnonzero(counts)
        return SideFindings(
            findings=findings,
            hashes=text.whole.hashes(),
            shapes=line_shapes(text),
            pieces=self.lengths[place](text),
            num_words=len(words),
            codes=codes,
            code_counts=counts[codes],
            scripts=_scripts(text, block.numbers),
            held_out_words=np.isin(asked, words),
        )

    def _measure_near_limits(self, texts: Sequence[TextBlock], pieces: list[np.ndarray]) -> None:
        """Replace estimates by exact lengths where a filter may go either way."""
        shorter, longer = np.minimum(pieces[0], pieces[-1]), np.maximum(pieces[0], pieces[-1])
        limit = self.filters.max_length
        near = (longer > 0.4 * limit) & (longer < 2.5 * limit)
        near |= (longer > 4) & (longer > 0.5 * self.filters.max_ratio * shorter)
        if self.filters.min_length > 1:
            near |= shorter < 2.5 * self.filters.min_length
        lines = np.arange(len(near)) if self.lengths[0].is_exact else np.flatnonzero(near)
        for text, measure, lengths in zip(texts, self.lengths, pieces, strict=True):
            if lines.size and (exact := measure.exact([text.lines[line] for line in lines])) is not None:
                lengths[lines] = exact

    def _examine_pairs(
        self, block: Block, empty: np.ndarray, pieces: list[np.ndarray]
    ) -> tuple[dict[str, Finding], np.ndarray]:
        rule_of = PairFilter(self.filters).rejects_lengths
        rules = np.zeros(len(block.numbers), dtype=np.uint8)
        shorter, longer = np.minimum(pieces[0], pieces[-1]), np.maximum(pieces[0], pieces[-1])
        doubtful = (longer > self.filters.max_length) | (longer > self.filters.max_ratio * np.maximum(shorter, 0.1))
        doubtful |= shorter < self.filters.min_length
        found: dict[str, list[int]] = {"over_long": [], "ratio": [], "copy": []}
        for line in np.flatnonzero(doubtful & ~empty):
            if (rule := rule_of(float(pieces[0][line]), float(pieces[-1][line]))) is not None:
                rules[line] = RULES.index(rule)
                if rule == "ratio" or longer[line] > self.filters.max_length:
                    found["ratio" if rule == "ratio" else "over_long"].append(line)
        if len(block.columns) == 2:
            for line, (source, target) in enumerate(zip(*block.columns, strict=True)):
                if source[:1] == target[:1] and not empty[line] and source.strip() == target.strip():
                    found["copy"].append(line)
            if block.numbers[0] == 1 and looks_like_header([column[0] for column in block.columns]):
                found["header"] = [0]
            if self.filters.drop_copies:
                rules[found["copy"]] = RULES.index("copy")
        rules[empty] = RULES.index("empty")
        return {
            kind: _finding(np.array(lines), block.numbers, block.columns) for kind, lines in found.items() if lines
        }, rules


def word_hashes(lines: Sequence[str]) -> np.ndarray:
    """Sorted hashes of the distinct words of some lines."""
    text = TextBlock(lines)
    return np.unique(text.whole.hashes(*text.words)) if lines else np.zeros(0, np.uint64)


def shown(text: str) -> str:
    """`text` cut to what an example shows."""
    return text if len(text) <= LONGEST_EXAMPLE else text[: LONGEST_EXAMPLE - 1] + "…"


def _finding(lines: np.ndarray, numbers: Sequence[int], columns: Sequence[Sequence[str]]) -> Finding:
    examples = [
        (numbers[line], tuple(shown(column[line]) for column in columns)) for line in lines[:EXAMPLES_KEPT].tolist()
    ]
    return Finding(len(lines), examples)


def _with_labels(hashes: np.ndarray, labels: Sequence[str] | None) -> np.ndarray:
    return mix(hashes ^ mix(TextBlock(labels).whole.hashes())) if labels is not None else hashes


def _is_empty(text: TextBlock) -> np.ndarray:
    starts, _ = text.words
    return np.bincount(text.lines_of(starts), minlength=len(text)) == 0


def _no_words(text: TextBlock) -> np.ndarray:
    return ~text.has(LETTER | DIGIT) & ~_is_empty(text)


def _is_space(text: TextBlock) -> np.ndarray:
    return text.flags & SPACE != 0


def _double_space(text: TextBlock) -> np.ndarray:
    is_space = text.codes == ord(" ")
    return text.any(is_space & np.append(is_space[1:], False))


def _mixed_script(text: TextBlock) -> np.ndarray:
    """Lines where a Latin, Greek or Cyrillic letter stands beside one of another of these scripts."""
    scripts = text.scripts
    first, second = scripts[:-1], scripts[1:]
    mixed = (first != second) & (first >= 1) & (first <= 3) & (second >= 1) & (second <= 3)
    return text.any(np.append(mixed, False))


def _mojibake(text: TextBlock) -> np.ndarray:
    return _matching(text, np.isin(text.codes, _MOJIBAKE_LEADS) if (text.codes > 127).any() else None, _MOJIBAKE)


def _entity(text: TextBlock) -> np.ndarray:
    return _matching(text, text.codes == ord("&"), _ENTITY)


def _matching(text: TextBlock, candidates: np.ndarray | None, pattern: re.Pattern) -> np.ndarray:
    """Lines that hold a candidate character and match the pattern."""
    found = np.zeros(len(text), dtype=bool)
    if candidates is not None:
        for line in np.flatnonzero(text.any(candidates)):
            found[line] = pattern.search(text.lines[line]) is not None
    return found


_SIDE_KINDS: dict[str, Callable[[TextBlock], np.ndarray]] = {
    "empty": _is_empty,
    "no_words": _no_words,
    "control": lambda text: text.has(CONTROL),
    "replacement": lambda text: text.any(text.codes == 0xFFFD),
    "mojibake": _mojibake,
    "mixed_script": _mixed_script,
    "entity": _entity,
    "tab": lambda text: text.any(text.codes == ord("\t")),
    "odd_space": lambda text: text.has(ODD_SPACE),
    "leading_space": lambda text: _is_space(text)[text.starts],
    "trailing_space": lambda text: (text.lengths > 0) & _is_space(text)[text.ends - 1],
    "double_space": _double_space,
}


def _scripts(text: TextBlock, numbers: Sequence[int]) -> dict[int, Finding]:
    """Lines by the script of most of their letters; lines without letters are left out."""
    present = np.flatnonzero(np.bincount(text.scripts, minlength=len(SCRIPTS))[1:]) + 1
    if not present.size:
        return {}
    counts = np.stack([text.count(text.scripts == script) for script in present])  # (scripts, N)
    best = np.where(counts.max(axis=0) > 0, present[counts.argmax(axis=0)], 0)
    return {
        int(script): _finding(lines, numbers, (text.lines,))
        for script in present
        if (lines := np.flatnonzero(best == script)).size
    }
