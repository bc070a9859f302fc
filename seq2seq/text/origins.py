"""The old pieces that each piece of a changed vocabulary is made of; `store.vocabulary` makes its rows from theirs."""

import functools
import unicodedata
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain

from seq2seq.text.scripts import script_of
from seq2seq.text.segmenter import Segmenter
from seq2seq.text.tokenizer import META_SYMBOL, Tokenizer

Origin = tuple[int, ...]


def origins(
    old: Tokenizer, new: Tokenizer, segmenters: Sequence[Segmenter], like: Mapping[str, str] | None = None
) -> list[Origin]:
    """Return the old ids of each new id: one if it is the same piece, or has the same role; several are to be averaged.

    A piece that is not in the old vocabulary is made of its old segmentation. A character that is not in it is made of
    the characters that it would be read as, or of its parts (NFKD), or of all letters of its script, or of all
    characters.

    Args:
        old: the tokenizer that the rows of the model belong to.
        new: the tokenizer that they are made for.
        segmenters: the SentencePiece models of the old vocabulary, of which the first that knows a piece splits it.
        like: old pieces by the new pieces that begin as their copies.
    """
    known, copied = old.vocabulary, like or {}
    # the start is last, because padding may be the start
    roles = {getattr(new, role): getattr(old, role) for role in ("unk_id", "eos_id", "pad_id", "start_id")}
    parts = _Parts(old, segmenters)
    return [
        (roles[id_],)
        if id_ in roles
        else (known[copied.get(piece, piece)],)
        if copied.get(piece, piece) in known
        else parts.of(piece)
        for piece, id_ in sorted(new.vocabulary.items(), key=lambda item: item[1])
    ]


def split_best(piece: str, segmenters: Sequence[Segmenter], known: Container[str]) -> list[str]:
    """Return the segmentation of a piece by the first SentencePiece model that spells it with known pieces, or by the
    first one."""
    split = [segmenter.split(piece) for segmenter in segmenters]
    return next((parts for parts in split if all(part in known for part in parts)), split[0])


class _Parts:
    """The old ids that new pieces of text are made of."""

    def __init__(self, old: Tokenizer, segmenters: Sequence[Segmenter]):
        self._old, self._segmenters = old, segmenters
        vocabulary = old.vocabulary
        spelled = {*old.text_pieces(), *chain.from_iterable(segmenter.scores for segmenter in segmenters)}
        self._known = {piece: id_ for piece, id_ in vocabulary.items() if piece in spelled}
        self._of_script: dict[str | None, list[int]] = defaultdict(list)
        for piece, id_ in self._known.items():
            if len(piece) == 1 and piece != META_SYMBOL:
                self._of_script[script_of(piece)].append(id_)
        everything = tuple(id_ for ids in self._of_script.values() for id_ in ids)
        self._all = everything or tuple(self._known.values())
        self.of_character = functools.cache(self._of_character)

    def of(self, piece: str) -> Origin:
        """Return the ids of its old segmentation."""
        known, best = self._known, split_best(piece, self._segmenters, self._known)
        found = [id_ for part in best for id_ in ([known[part]] if part in known else self._of_unknown(part))]
        return tuple(found) or self._all

    def _of_unknown(self, part: str) -> Iterator[int]:
        for char in part:
            if char != META_SYMBOL:
                yield from (self._known[char],) if char in self._known else self.of_character(char)

    def _of_character(self, char: str) -> Origin:
        for form in (self._old.normalizer(char), unicodedata.normalize("NFKD", char)):
            ids = tuple(self._known[part] for part in form if part in self._known and part != META_SYMBOL)
            if ids:
                return ids
        return tuple(self._of_script.get(script_of(char), ())) or self._all
