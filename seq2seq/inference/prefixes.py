"""Prefixes of translations, as ids for a search and as text for its result.

`Translator` makes them from the texts of its caller. A prefix may end inside a word, as a text does while it is typed.
"""

import functools
from collections.abc import Collection
from typing import NamedTuple

from seq2seq.lines import as_one_line
from seq2seq.search.base import Opening
from seq2seq.text.scripts import lower, title
from seq2seq.text.spellings import SPACE, Spellings, begin_of_last_word
from seq2seq.text.tokenizer import TokenizerPair, encodable

# Most bytes of the last word that are spelled anew: scripts without spaces have long words.
LONGEST_LAST_WORD = 48
# Spellings of a forbidden word: more than its own number of pieces are unlikely.
MOST_SPELLINGS, MORE_PIECES = 64, 1


class Prefix(NamedTuple):
    """A text that a translation begins with."""

    text: str = ""
    ids: tuple[int, ...] = ()
    """The forced pieces: all except those of the last word."""
    opening: Opening | None = None
    """The last word, which may continue."""
    spelled: str = ""
    """The text after encoding and decoding: normalised, without unknown characters."""

    def restored(self, decoded: str) -> str:
        """Return a decoded translation that begins with the original text."""
        if not self.text or self.spelled.startswith(decoded):
            return self.text or decoded
        return self.text + decoded[len(self.spelled) :] if decoded.startswith(self.spelled) else decoded


class Prefixes:
    """Makes prefixes for the target side of a tokenizer pair."""

    def __init__(self, tokenizers: TokenizerPair, language: str | None = None):
        self._tokenizers, self._target, self._language = tokenizers, tokenizers.target, language

    @functools.cached_property
    def _spellings(self) -> Spellings:  # takes some 60 ms, which most translations do not need
        return Spellings(self._tokenizers)

    def prefix(self, text: str, is_whole: bool = False) -> Prefix:
        """Return the prefix of a text; with `is_whole` it ends with a whole word. White space alone gives no prefix."""
        text = encodable(as_one_line(text))
        ids = self._target.encode(text.strip())
        if not ids or is_whole:
            return Prefix(text.rstrip(), tuple(ids), None, self._target.decode(ids)) if ids else Prefix()
        if text[-1].isspace():
            opening = Opening((dict.fromkeys([*self._spellings.beginning(SPACE), self._target.eos_id], 1),))
            return Prefix(text, tuple(ids), opening, self._target.decode(ids) + " ")
        parts = [self._spellings.bytes[id_] for id_ in ids]
        first = begin_of_last_word(parts, LONGEST_LAST_WORD)
        rest = b"".join(parts[first:])
        steps = self._spellings.steps(rest) if rest else ()
        if not steps:
            return Prefix(text, tuple(ids), None, self._target.decode(ids))
        begun = self._target.decode(ids[:first])
        last = rest.decode("utf-8", "replace")
        return Prefix(text, tuple(ids[:first]), Opening(steps), begun + (last if begun else last.removeprefix(" ")))

    def forbidden(self, words: Collection[str]) -> tuple[tuple[int, ...], ...]:
        """Return the usual spellings of words, in either case of the first letter, and of longer words."""
        language = self._language
        cases = {one for word in words for one in (word, lower(word[:1], language) + word[1:], title(word, language))}
        found: set[tuple[int, ...]] = set()
        for one in cases:
            own = self._target.encode(one)
            spelled = b"".join(self._spellings.bytes[id_] for id_ in own)
            found |= {tuple(own), *self._spellings.sequences(spelled, MOST_SPELLINGS, len(own) + MORE_PIECES)}
        return tuple(sorted(found))
