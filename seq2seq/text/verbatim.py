"""What is no text to a translation model, and is copied instead: long URLs, hashes, tables of numbers, other scripts.

A model cannot translate these. It answers with loops that end at the length limit and cost as much as pages of text.
Short ones stay with the model, which has seen such in training.
"""

import re
from collections.abc import Iterator, Sequence

# Pieces from which on a part is looked at.
FEWEST_PIECES = 50
LONG_RUN = re.compile(r"\S{100,}")
# Scripts that put no space between words: Thai to Myanmar, Khmer, Tai, Chinese, Japanese; and Korean, to be sure.
UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u1900-\u1aff\u2e80-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


def stretches(text: str) -> Iterator[str]:
    """Consecutive parts of `text`: each long run of characters without white space, and what is between them."""
    start = 0
    for run in LONG_RUN.finditer(text):
        if _is_spaced(run.group()):
            yield from filter(None, (text[start : run.start()], run.group()))
            start = run.end()
    if start < len(text):
        yield text[start:]


def is_verbatim(text: str, pieces: Sequence[str], unknown: str) -> bool:
    """Whether a text without white space at its ends, of these pieces, is to be copied.

    That is so from `FEWEST_PIECES` pieces on if it is one long run in a script with spaces, has no letter, or if half
    of its pieces are bytes or the `unknown` piece, because the vocabulary does not have its characters.
    """
    if len(pieces) < FEWEST_PIECES:
        return False
    if not any(map(str.isalpha, text)) or (LONG_RUN.fullmatch(text) and _is_spaced(text)):
        return True
    return 2 * sum(piece == unknown or BYTE_PIECE.fullmatch(piece) is not None for piece in pieces) >= len(pieces)


def _is_spaced(run: str) -> bool:
    return 2 * len(UNSPACED.findall(run)) < len(run)
