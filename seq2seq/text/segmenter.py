"""The pieces of a SentencePiece model, as its file lists them, and the same model with fewer or more of them.

`Tokenizer.without`, `Tokenizer.with_pieces`, `trimming` and `extending` make a `Segmenter` of the bytes of a .spm file,
which is a protocol buffer. Only the pieces are read, removed and added; all settings of the file are copied.
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from seq2seq.text.protobuf import bytes_field, fields, float_field

# Numbers of fields and values in sentencepiece_model.proto.
PIECES, TRAINER, SELF_TEST = 1, 2, 4
TEXT, SCORE, KIND = 1, 2, 3
MODEL_TYPE, BPE = 3, 2
NORMAL = 1
NO_SCORE = bytes(4)
# Subtracted from the lowest score for a character without a piece, as SentencePiece does.
UNKNOWN_PENALTY = 10.0


@dataclass(frozen=True)
class _Piece:
    text: str
    score: float
    is_normal: bool
    """Whether it is neither a control piece, a byte, unknown, unused, nor defined by the user."""


@dataclass(frozen=True)
class Segmenter:
    """A SentencePiece model; `model_bytes` are those of a file that SentencePiece has loaded."""

    model_bytes: bytes

    @cached_property
    def pieces(self) -> tuple[_Piece, ...]:
        """The pieces, in the order of their ids."""
        return tuple(_piece(value) for number, value, _ in fields(self.model_bytes) if number == PIECES)

    @cached_property
    def is_bpe(self) -> bool:
        """Whether it merges pairs of pieces (BPE); other kinds look for the best path (unigram)."""
        trainer = [value for number, value, _ in fields(self.model_bytes) if number == TRAINER]
        return any(number == MODEL_TYPE and value == BPE for spec in trainer for number, value, _ in fields(spec))

    def indispensable(self) -> set[str]:
        """Return the pieces that no text spells, and normal ones with the lowest and the highest score, by which a
        unigram model scores unknown characters and pieces that users defined."""
        normal = sorted((piece for piece in self.pieces if piece.is_normal), key=lambda piece: piece.score)
        others = [piece for piece in self.pieces if not piece.is_normal]
        return {piece.text for piece in (*normal[:1], *normal[-1:], *others)}

    def best(self, count: int) -> set[str]:
        """Return the `count` normal pieces with the highest scores: the most frequent ones, or the first merges."""
        normal = [piece for piece in self.pieces if piece.is_normal]
        return {piece.text for piece in sorted(normal, key=lambda piece: -piece.score)[:count]}

    def merged_from(self, kept: Collection[str]) -> set[str]:
        """Return the pieces that merges pass through on the way to `kept`; none if it is not BPE."""
        scores = {piece.text: piece.score for piece in self.pieces} if self.is_bpe else {}
        return {part for piece in kept if piece in scores for part in _merges(list(piece), scores)}

    @cached_property
    def scores(self) -> dict[str, float]:
        """The score of each normal piece: the order of merges (BPE), or the log-probability (unigram)."""
        return {piece.text: piece.score for piece in self.pieces if piece.is_normal}

    def split(self, text: str) -> list[str]:
        """Return the pieces that spell `text` as it is, which has `META_SYMBOL` in place of spaces; a character without
        a piece is alone."""
        if not self.is_bpe:
            return self._best_path(text)
        parts = list(text)
        for _ in _merges(parts, self.scores):
            pass
        return parts

    def without(self, removed: Collection[str], tags: Collection[str] = ()) -> bytes:
        """Return the bytes of the model without these normal pieces, of which `tags` may be control pieces."""
        pieces, left = iter(self.pieces), []
        for number, _, field in fields(self.model_bytes):
            piece = next(pieces) if number == PIECES else None
            is_removed = piece is not None and piece.text in removed and (piece.is_normal or piece.text in tags)
            # the self test compares segmentations, which may have had a removed piece
            if not is_removed and number != SELF_TEST:
                left.append(field)
        return b"".join(left)

    def with_pieces(self, scores: Mapping[str, float]) -> bytes:
        """Return the bytes of the model with more normal pieces, which get the last ids; those that it has stay."""
        known = {piece.text for piece in self.pieces}
        added = (
            bytes_field(PIECES, bytes_field(TEXT, text.encode("utf-8")) + float_field(SCORE, score))
            for text, score in scores.items()
            if text not in known
        )
        return b"".join([self.without(()), *added])

    def _best_path(self, text: str) -> list[str]:
        """Return the segmentation with the highest sum of scores (Kudo 2018)."""
        scores, (longest, unknown) = self.scores, self._bounds
        best: list[tuple[float, int]] = [(0.0, 0)]  # by end: the sum, and the begin of the last piece
        for end in range(1, len(text) + 1):
            begins = range(max(0, end - longest), end)
            found = [(best[begin][0] + scores[text[begin:end]], begin) for begin in begins if text[begin:end] in scores]
            best.append(max(found, default=(best[end - 1][0] + unknown, end - 1)))
        parts, end = [], len(text)
        while end:
            begin = best[end][1]
            parts.append(text[begin:end])
            end = begin
        return parts[::-1]

    @cached_property
    def _bounds(self) -> tuple[int, float]:
        """The length of the longest piece, and the score of an unknown character."""
        return max(map(len, self.scores), default=1), min(self.scores.values(), default=0.0) - UNKNOWN_PENALTY


def _merges(parts: list[str], scores: Mapping[str, float]) -> Iterator[str]:
    """Merge characters in place as SentencePiece does, the highest score first, from the left; yield each result.

    No merge of a longer text crosses the ends of a piece of its segmentation, so the piece is merged there as it is
    alone.
    """
    while len(parts) > 1:
        joined = [left + right for left, right in pairwise(parts)]
        place = max(range(len(joined)), key=lambda place: (scores.get(joined[place], -float("inf")), -place))
        if joined[place] not in scores:
            return
        yield joined[place]
        parts[place : place + 2] = [joined[place]]


def _piece(message: bytes) -> _Piece:
    values = {number: value for number, value, _ in fields(message)}
    (score,) = struct.unpack("<f", values.get(SCORE, NO_SCORE))
    return _Piece(values.get(TEXT, b"").decode("utf-8"), score, values.get(KIND, NORMAL) == NORMAL)
