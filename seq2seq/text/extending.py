"""A vocabulary with the pieces that it lacks for some texts: unknown characters, and frequent sequences of its pieces.

`workflows.extension` and `tasks.vocabulary` call `extended`; `store.vocabulary` makes the rows of a model for it. New
pieces begin as sequences of old ones, so a text without a new piece is segmented as before: of a unigram model the best
path has not changed, and the new merges of BPE come after all old ones.
"""

import heapq
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TypeVar

from seq2seq.errors import counted
from seq2seq.text.normalization import normalized
from seq2seq.text.origins import split_best
from seq2seq.text.scripts import script_of
from seq2seq.text.segmenter import Segmenter
from seq2seq.text.tokenizer import META_SYMBOL, Tokenizer, TokenizerPair
from seq2seq.text.trimming import distinct_readers

# A piece that occurs less often is not learned: its rows could not be trained either.
LEAST_COUNT = 5
TABLE = "added-pieces.tsv"
SHOWN_PIECES = 20
LONGEST_PIECE = 16  # characters, as in SentencePiece
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_REPLACEMENT = "\ufffd"
Pair = tuple[str, str]
Item = TypeVar("Item")


@dataclass
class _Words:
    """Words as rows of symbols: pieces, and characters that have none."""

    rows: list[list[str]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    """How often each character without a piece occurs."""


@dataclass(frozen=True)
class AddedPiece:
    """A piece that a vocabulary did not have."""

    piece: str
    count: int
    """How often it occurs in the texts, segmented with all new pieces."""
    made_of: tuple[str, ...]
    """The old pieces that spelled it; itself for a character without one."""

    @property
    def old_spelling(self) -> str:
        """The old pieces, in words."""
        return "no piece before" if self.made_of == (self.piece,) else " ".join(self.made_of)


@dataclass(frozen=True)
class Extended:
    """Tokenizers with more pieces, and what that changes in the texts that the pieces were learned on."""

    tokenizers: TokenizerPair
    pieces: tuple[AddedPiece, ...]
    """The pieces that are new to the vocabulary. Characters that the other side has are not; they keep their rows."""
    counts: Mapping[str, int]
    """How often each piece occurs in the texts of the target."""
    unknown: int
    """Occurrences of characters that had no piece."""
    tokens: tuple[int, int]
    """Pieces that spell the texts, before and after."""
    is_larger: bool
    """Whether a tokenizer has more pieces, be they new or those of the other side."""

    def table(self) -> str:
        """Return the new pieces as text for `TABLE`: piece, count, and the old pieces."""
        rows = [f"{added.piece}\t{added.count}\t{' '.join(added.made_of)}\n" for added in self.pieces]
        return "".join(["piece\tcount\tmade of\n", *rows])

    def lines_of_report(self) -> list[str]:
        """Return the figures and the most frequent new pieces as lines of text."""
        characters = sum(len(added.piece) == 1 for added in self.pieces)
        lines = [
            f"added: {counted(characters, 'character')} and {counted(len(self.pieces) - characters, 'longer piece')}"
        ]
        used = [added for added in self.pieces if added.count]  # others are steps to longer pieces
        first = sorted(used, key=lambda added: -added.count)[:SHOWN_PIECES]
        lines += [f"  {added.piece} {counted(added.count, 'time')} ({added.old_spelling})" for added in first]
        more = len(self.pieces) - len(first)
        lines += [f"  and {more:,} more, in {TABLE}"] if more else []
        return [
            *lines,
            f"characters without a piece in the corpora: {self.unknown:,} -> 0",
            f"pieces that spell the corpora: {self.tokens[0]:,} -> {self.tokens[1]:,}",
        ]


def first_of_each(sources: Iterable[Iterable[Item]], most: int) -> list[list[Item]]:
    """Return the first items of each source, at most `most` together: what small sources leave of an even share is for
    the others, so that the order of the sources changes nothing."""
    kept: list[list[Item]] = []
    for source in sources:
        kept.append(list(islice(source, most)))
        left, share = most, most
        for number, size in enumerate(sorted(map(len, kept))):
            share = left // (len(kept) - number)
            if size > share:
                kept = [items[:share] for items in kept]
                break
            left -= size
    return kept


def extended(tokenizers: TokenizerPair, texts: Sequence[Sequence[str]], count: int) -> Extended:
    """Return the tokenizers with the new pieces of texts.

    Args:
        tokenizers: the tokenizers of a model, for all directions.
        texts: for each of `distinct_readers`, the texts from which it learns; none if it stays as it is.
        count: the largest number of pieces that each learns in addition to characters.
    """
    readers = distinct_readers(tokenizers)
    lines = [[normalized(text).strip() for text in own] for own in texts]
    scores = [_learn(reader, own, count) for reader, own in zip(readers, lines, strict=True)]
    larger = tokenizers.with_pieces(scores[0], scores[-1])
    once = _without_later(lines) if tokenizers.shared else lines
    before, after = (
        [_counts(reader, own) for reader, own in zip(sides, once, strict=True)]
        for sides in (readers, distinct_readers(larger))
    )
    total = sum(after, Counter())
    pieces: dict[str, AddedPiece] = {}
    for reader, own in zip(readers, scores, strict=True):
        sides = readers[::-1] if tokenizers.shared else [reader]
        segmenters, known = [Segmenter(side.model_bytes) for side in sides], reader.vocabulary
        made_of = {piece: tuple(split_best(piece, segmenters, known)) for piece in own if piece not in known}
        pieces |= {piece: AddedPiece(piece, total[piece], parts) for piece, parts in made_of.items()}
    unknown = sum(_words(reader, own).unknown.total() for reader, own in zip(readers, once, strict=True))
    tokens = sum(map(Counter.total, before)), sum(map(Counter.total, after))
    return Extended(larger, tuple(pieces.values()), after[-1], unknown, tokens, any(scores))


def _without_later(texts: Sequence[list[str]]) -> list[list[str]]:
    """Return the texts of each reader without those that a later one reads too: both learn from them, and the figures
    count them once. The last reader, that of the target, keeps all."""
    last = set(texts[-1])
    return [*([text for text in own if text not in last] for own in texts[:-1]), list(texts[-1])]


def _learn(reader: Tokenizer, lines: Sequence[str], count: int) -> dict[str, float]:
    """Return the scores of new pieces: every character of the texts that the tokenizer lacks, and `count` or fewer
    sequences of pieces within words that occur `LEAST_COUNT` times.

    BPE pieces are merged on top of the old ones (Sennrich et al. 2016). Those of unigram models are chosen from twice
    as many merges, by the pieces that they save; their scores are log-frequencies within the range of the old scores.
    """
    segmenter, words = Segmenter(reader.model_bytes), _words(reader, lines)
    characters = [char for char, _ in sorted(words.unknown.items(), key=lambda item: (-item[1], item[0]))]
    old, low, high = reader.vocabulary, min(segmenter.scores.values()), max(segmenter.scores.values())
    total = sum(len(row) * number for row, number in zip(words.rows, words.counts, strict=True))
    merged = dict(_merge(words, lambda pair: _may_merge(pair, old), count if segmenter.is_bpe else 2 * count))
    if segmenter.is_bpe:
        return {piece: low - 1 - place for place, piece in enumerate([*merged, *characters])}
    counts = {**merged, **{char: words.unknown[char] for char in characters}}
    scores = {piece: min(max(math.log(number / total), low), high) for piece, number in counts.items()}
    saved = _saved(reader, scores, merged, lines)
    kept = sorted(saved, key=lambda piece: (-saved[piece], piece))[:count]
    return {piece: scores[piece] for piece in [*characters, *kept]}


def _counts(reader: Tokenizer, lines: Sequence[str]) -> Counter[str]:
    """Return how often each piece occurs in texts."""
    return Counter(piece for row in reader.split_all(lines) for piece in row)


def _saved(reader: Tokenizer, scores: dict[str, float], merged: dict[str, int], lines: Sequence[str]) -> dict[str, int]:
    """Return how many pieces each merge saves in the texts; those that are seldom or never the best are left out."""
    uses = _counts(reader.with_pieces(scores), lines)
    before = Segmenter(reader.with_pieces({char: scores[char] for char in scores if char not in merged}).model_bytes)
    return {piece: uses[piece] * (len(before.split(piece)) - 1) for piece in merged if uses[piece] >= LEAST_COUNT}


def _words(reader: Tokenizer, lines: Sequence[str]) -> _Words:
    """Return the words of the texts, each once, in the old segmentation."""
    found: Counter[tuple[str, ...]] = Counter()
    words, known = _Words(), set(reader.text_pieces())
    for pieces in reader.split_all(lines):
        word: list[str] = []
        for symbol in _symbols(pieces, known, words.unknown):
            if symbol.startswith(META_SYMBOL) and word:
                found[tuple(word)] += 1
                word = []
            word.append(symbol)
        found[tuple(word)] += 1
    words.rows, words.counts = [list(word) for word in found], list(found.values())
    return words


def _symbols(pieces: Iterable[str], known: set[str], unknown: Counter[str]) -> Iterator[str]:
    """Yield pieces, and in place of unknown ones and of bytes their characters, which are counted."""
    spelled = b""
    for piece in [*pieces, ""]:
        if found := _BYTE.fullmatch(piece):
            spelled += bytes.fromhex(found[1])
            continue
        text = spelled.decode("utf-8", "replace") if spelled else ""
        spelled = b""
        is_known = not piece or piece in known
        for char in text if is_known else text + piece:
            if char not in (META_SYMBOL, _REPLACEMENT) and char not in known:
                unknown[char] += 1
            yield char
        if piece and is_known:
            yield piece


def _may_merge(pair: Pair, known: Iterable[str]) -> bool:
    """Whether two symbols may become a piece: letters of one script, in a word, not too long, and new."""
    left, right = pair
    if right.startswith(META_SYMBOL) or len(left) + len(right) > LONGEST_PIECE or left + right in known:
        return False
    letters = (left + right).removeprefix(META_SYMBOL)
    scripts = {script_of(char) for char in letters if not _is_mark(char)}
    return len(scripts) == 1 and None not in scripts


def _is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] == "M"


def _merge(words: _Words, may_merge: Callable[[Pair], bool], most: int) -> Iterator[tuple[str, int]]:
    """Merge the most frequent pair of symbols again and again; yield each result, and how often it occurs."""
    counts: Counter[Pair] = Counter()
    places: dict[Pair, set[int]] = defaultdict(set)
    for number, row in enumerate(words.rows):
        for pair in pairwise(row):
            counts[pair] += words.counts[number]
            places[pair].add(number)
    heap = [(-count, pair) for pair, count in counts.items() if count >= LEAST_COUNT and may_merge(pair)]
    heapq.heapify(heap)
    made = 0
    while heap and made < most:
        negative, pair = heapq.heappop(heap)
        count = counts[pair]
        if count < LEAST_COUNT:
            continue
        if count != -negative:  # it changed since it was put there
            heapq.heappush(heap, (-count, pair))
            continue
        made += 1
        yield "".join(pair), count
        changed: Counter[Pair] = Counter()
        for number in places.pop(pair):
            words.rows[number], own = _joined(words.rows[number], pair)
            for other, change in own.items():
                changed[other] += change * words.counts[number]
                places[other].add(number)
        counts.update(changed)
        counts[pair] = 0
        for other, change in changed.items():
            if change > 0 and counts[other] >= LEAST_COUNT and may_merge(other):
                heapq.heappush(heap, (-counts[other], other))


def _joined(row: Sequence[str], pair: Pair) -> tuple[list[str], Counter[Pair]]:
    """Return a row with the pair as one symbol, and by how much the number of each pair of neighbours changed."""
    joined, symbol, place = [], "".join(pair), 0
    while place < len(row):
        is_pair = row[place] == pair[0] and row[place + 1 : place + 2] == [pair[1]]
        joined.append(symbol if is_pair else row[place])
        place += 2 if is_pair else 1
    change = Counter(pairwise(joined))
    change.subtract(Counter(pairwise(row)))
    return joined, Counter({other: number for other, number in change.items() if number})
