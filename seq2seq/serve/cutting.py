"""A text of a request becomes pieces to be translated, and their translations become a text again."""

import sys
from collections.abc import Sequence
from itertools import chain
from typing import Literal, NamedTuple

from seq2seq.inference.degeneration import line_flags
from seq2seq.inference.translator import Alternative
from seq2seq.search.base import normalized_score
from seq2seq.serve.explained import Explained
from seq2seq.text.splitting import language_tag, split_sentences, split_text

Split = Literal["lines", "sentences", "none"]


class Piece(NamedTuple):
    """A line or sentence, and where it stands."""

    before: str
    """What stands between its translation and the one before: a line end, or white space between sentences."""
    text: str
    begin: int
    """In the text, in code points."""
    tag: str = ""
    """The language tag of the text, which is not in this piece."""


def cut(text: str, split: Split, longest: int = sys.maxsize) -> list[Piece]:
    """The pieces of a text, at least one.

    A line ends at `\\n`, and a `\\r` before that goes with the line end: as `s2s translate` reads a file, so that the
    translation of each line is the one it gives. Line ends stay as they are; white space at the ends of a line is part
    of its first and last piece. A sentence of more than `longest`
    characters is cut as `split_text` does; each has the language tag that its line or the text begins with. With `none`
    the text is one piece.
    """
    if split == "none":
        return [Piece("", text, 0)]
    pieces, before, begin, tag = [], "", 0, "" if split == "lines" else _tag(text)
    for line in text.split("\n"):
        core = line.removesuffix("\r")
        cores, place = [core] if split == "lines" else _sentences(core, longest), begin
        own = "" if split == "lines" else _tag(core)
        for number, part in enumerate(cores):
            there = "" if own and number == 0 else own or tag
            end = len(part) if number == len(cores) - 1 else len(part.rstrip())
            pieces.append(Piece(before, part[:end], place, there))
            before, place = part[end:], place + len(part)
        before, begin = line[len(core) :] + "\n", begin + len(line) + 1
    return pieces


def _tag(text: str) -> str:
    return language_tag(text.lstrip(), lambda tag: True)[0]


def _sentences(line: str, longest: int) -> list[str]:
    sentences = split_sentences(line) or [""]
    return [part for one in sentences for part in split_text(one, lambda part: len(part) <= longest)]


def join(pieces: Sequence[Piece], translations: Sequence[Explained], length_penalty: float) -> Explained:
    """The translation of a text from those of its pieces; each alternative joins their hypotheses of one rank."""
    rows = [(one, *one.alternatives) for one in translations]

    def rank(number: int) -> Alternative:
        chosen = [row[min(number, len(row) - 1)] for row in rows]
        text = "".join(piece.before + one.text for piece, one in zip(pieces, chosen, strict=True))
        score, tokens = sum(one.score for one in chosen), sum(one.tokens for one in chosen)
        return Alternative(text, score, normalized_score(score, tokens, length_penalty), tokens)

    best, *others = map(rank, range(max(map(len, rows))))
    others.sort(key=lambda one: -one.normalized_score)
    flags = line_flags([one.flags for one in translations])[: -1 if len(rows) > 1 else None]  # without its own `split`
    source = "".join(piece.before + piece.text for piece in pieces)
    moved, position = [], 0
    for piece, one in zip(pieces, translations, strict=True):
        position += len(piece.before)
        moved.append(one.shifted(piece.begin, position))
        position += len(one.text)
    return Explained(
        **vars(best),
        flags=flags,
        alternatives=tuple(others),
        source=source,
        details=tuple(chain.from_iterable(one.details for one in moved)),
        terms=tuple(chain.from_iterable(one.terms for one in moved)),
    )
