"""Spellings of a text by a vocabulary, found by `Spellings` of a tokenizer pair.

`Translator` uses them to continue a prefix that ends inside a word, and to find the pieces of a forbidden word.
"""

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from seq2seq.text.tokenizer import META_SYMBOL, TokenizerPair

Steps = tuple[dict[int, int], ...]
"""For each number of bytes that are spelled, the ids that may follow, and the number of bytes after each; it is
`len(steps)` at the end of the text or beyond it."""

_BYTE = re.compile("<0x([0-9A-F]{2})>")


class Spellings:
    """Pieces of the target side of a tokenizer pair, by their bytes."""

    def __init__(self, tokenizers: TokenizerPair):
        target = tokenizers.target
        silent = {*tokenizers.never_generated, target.unk_id, *target.silent_ids}
        pieces = target.pieces(range(target.vocab_size))
        self._bytes = [b"" if id_ in silent else _bytes(piece) for id_, piece in enumerate(pieces)]
        self._ids: dict[bytes, list[int]] = defaultdict(list)
        for id_, own in enumerate(self._bytes):
            if own:
                self._ids[own].append(id_)
        self._sorted = sorted(self._ids)
        self._longest = max(map(len, self._sorted), default=0)

    def steps(self, text: bytes) -> Steps:
        """Return the ids that spell a text of at least one byte, or a longer text; empty if there are none."""
        steps: list[dict[int, int]] = [{} for _ in text]
        for place in reversed(range(len(text))):
            rest = text[place:]
            for length in range(1, min(len(rest), self._longest + 1)):
                if steps[place + length]:  # the rest can be spelled
                    steps[place] |= dict.fromkeys(self._ids.get(rest[:length], ()), place + length)
            steps[place] |= dict.fromkeys(self.beginning(rest), len(text))
        return tuple(steps) if steps[0] else ()

    def sequences(self, text: bytes, most: int, longest: int, is_whole: bool = False) -> list[tuple[int, ...]]:
        """Return the `most` shortest spellings of at most `longest` pieces in `steps`; with `is_whole`, only those that
        spell no longer text."""
        steps = self.steps(text)
        found: list[tuple[int, ...]] = []
        begun: list[tuple[int, tuple[int, ...]]] = [(0, ())] if steps else []
        while begun and len(begun[0][1]) < longest and len(found) < most:
            longer = [
                (after, (*ids, id_))
                for place, ids in begun
                for id_, after in steps[place].items()
                if not is_whole or place + len(self._bytes[id_]) == after
            ]
            found += [ids for place, ids in longer if place == len(steps)]
            begun = [(place, ids) for place, ids in longer if place < len(steps)]
        return found[:most]

    def beginning(self, text: bytes) -> Iterator[int]:
        """Yield the ids whose bytes begin with `text`."""
        for own in self._sorted[bisect.bisect_left(self._sorted, text) :]:
            if not own.startswith(text):
                break
            yield from self._ids[own]

    def spelled(self, ids: Iterable[int]) -> bytes:
        """Return the bytes that ids add to a text; ids without text add none."""
        return b"".join(self._bytes[id_] for id_ in ids)

    def begin_of_last_word(self, ids: Sequence[int], most: int) -> int:
        """Return the index of the first piece of the last word, of at most `most` bytes and one piece."""
        first, size = len(ids), 0
        while first and (own := self._bytes[ids[first - 1]]):
            size += len(own)
            if first < len(ids) and size > most:
                break
            first -= 1
            if own.startswith(b" "):
                break
        return first


def _bytes(piece: str) -> bytes:
    found = _BYTE.fullmatch(piece)
    if found:
        return b"" if found[1] == "20" else bytes([int(found[1], 16)])
    return piece.replace(META_SYMBOL, " ").encode("utf-8", "replace")
