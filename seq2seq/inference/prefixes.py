"""The prefixes of translations, as ids for a search and as text for its result.

`Translator` makes them from the texts of its caller. A prefix may end inside a word, for example while a user types.
"""

import functools
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from seq2seq.errors import DataError
from seq2seq.lines import as_one_line, in_order
from seq2seq.search.base import Opening
from seq2seq.text.normalization import normalized
from seq2seq.text.scripts import lower, title
from seq2seq.text.tokenizer import TokenizerPair, encodable

if TYPE_CHECKING:
    from seq2seq.text.spellings import Spellings

# The maximum number of bytes of the last word that are spelled again, because scripts without spaces have long words.
LONGEST_LAST_WORD = 48
# The number of spellings of a forbidden word, and of pieces that they may have in addition to those of the tokenizer.
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


def checked_forbidden(forbidden: Sequence[Mapping[str, bool]], count: int) -> list[Mapping[str, bool]]:
    """Return the forbidden words of `count` lines, as a list, which is empty if there are none.

    Raises:
        TypeError: they are not mappings in a list.
        DataError: their number is another one.
    """
    found = list(in_order(forbidden, "forbidden", "mapping"))
    if not all(isinstance(words, Mapping) for words in found):
        raise TypeError("forbidden takes a list of mappings, from a word to whether longer words are suppressed")
    if found and len(found) != count:
        raise DataError(f"forbidden: {len(found):,}, lines: {count:,}; give the words of each line")
    return found


class Prefixes:
    """The prefixes and forbidden words of one target tokenizer."""

    def __init__(self, tokenizers: TokenizerPair, language: str | None = None):
        self._tokenizers, self._target, self._language = tokenizers, tokenizers.target, language

    @functools.cached_property
    def _spellings(self) -> "Spellings":  # takes about 60 ms, and most translations do not need it
        from seq2seq.text.spellings import Spellings

        return Spellings(self._tokenizers)

    def prefix(self, text: str, is_whole: bool = False, max_length: int = sys.maxsize) -> Prefix:
        """Return the prefix of a text; with `is_whole`, or if the longest spelling of its last word does not fit into
        the `max_length` positions of a model, it ends with a whole word. Blank or invisible text gives an empty
        prefix."""
        found = self._prefix(text, is_whole)
        room = max_length - len(self._target.start_ids)  # and one for the end
        if found.opening and len(found.ids) + len(found.opening.steps) >= room:
            return self._prefix(text, is_whole=True)
        return found

    def ids(self, text: str) -> list[int]:
        """Return the pieces of a prefix."""
        return self._target.encode_targets([text])[0]

    def _prefix(self, text: str, is_whole: bool) -> Prefix:
        text, ids = encodable(as_one_line(text)), self.ids(text)
        if not ids or is_whole:
            return Prefix(text.rstrip(), tuple(ids), None, self._target.decode(ids)) if ids else Prefix()
        if normalized(text)[-1] == " ":
            opening = Opening((dict.fromkeys([*self._spellings.beginning(b" "), self._target.eos_id], 1),))
            return Prefix(text, tuple(ids), opening, self._target.decode(ids) + " ")
        first = self._spellings.begin_of_last_word(ids, LONGEST_LAST_WORD)
        rest = self._spellings.spelled(ids[first:])
        steps = self._spellings.steps(rest) if rest else ()
        if not steps:
            return Prefix(text, tuple(ids), None, self._target.decode(ids))
        begun = self._target.decode(ids[:first])
        last = rest.decode("utf-8", "replace")
        return Prefix(text, tuple(ids[:first]), Opening(steps), begun + (last if begun else last.removeprefix(" ")))

    def forbidden(self, words: Mapping[str, bool]) -> tuple[tuple[int, ...], ...]:
        """Return the usual spellings of words as ids, with the first letter in either case.

        Args:
            words: for each word, whether the beginnings of longer words are spelled too.
        """
        language = self._language
        cases = {
            form: has_longer
            for word, has_longer in words.items()
            for form in (word, lower(word[:1], language) + word[1:], title(word, language))
        }
        sequences: set[tuple[int, ...]] = set()
        for form, has_longer in cases.items():
            ids = self._target.encode(form)
            spelled = self._spellings.spelled(ids)
            most = MOST_SPELLINGS, len(ids) + MORE_PIECES
            sequences |= {tuple(ids), *self._spellings.sequences(spelled, *most, is_whole=not has_longer)}
        return tuple(sorted(sequences))
