"""Rules that leave out a pair by its text alone, one row each, in the order in which they are tried.

`job` applies them before a model scores a pair. A pair counts for the first rule that holds.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from seq2seq.data.examples import Pair
from seq2seq.inference.degeneration import repeats
from seq2seq.inspection.oddities import ODDITIES
from seq2seq.inspection.overlap import folded, normalise
from seq2seq.languages import known_language
from seq2seq.markup.html import lexemes
from seq2seq.markup.tags import ends
from seq2seq.text.identification import Identifier
from seq2seq.text.scripts import count_wide
from seq2seq.text.words import digits_of, numbers_of
from seq2seq.text.writing import script_of, scripts_of_language

# Characters of the longer side from which the ratio of lengths is judged: "Yes." may well be three words elsewhere.
RATIO_FROM = 30
_SURROGATE = re.compile("[\ud800-\udfff]")  # an escape in JSON that is half of a character
_MARKS = re.compile(r"([^\w\s])\1{3}")


@dataclass(frozen=True)
class PairLimits:
    """The limits that a user may set."""

    max_length: int = 1000
    """Characters of the longer side."""
    max_ratio: float = 3.0
    """Ratio of the lengths of the two sides."""


@dataclass(frozen=True)
class PairRule:
    """A rule."""

    name: str
    meaning: str
    """The fault of a pair for which the rule holds."""
    holds: Callable[[str, str], object]
    """Whether it holds for source and target."""


class PairRules:
    """The rules for pairs of two languages.

    Args:
        languages: the languages of source and target, under any name; the rules `script` and `language` do not hold for
            a side whose language is None or not known.
        limits: limits of length.
    """

    def __init__(self, languages: tuple[str | None, str | None], limits: PairLimits):
        self._languages = tuple(name if known_language(name) else None for name in languages)
        self._limits = limits
        self._identifier = Identifier(filter(None, self._languages))
        self.all = (
            PairRule("empty", "a side is blank", lambda *sides: not all(map(str.strip, sides))),
            PairRule("no words", "a side has neither letter nor digit", _either(ODDITIES["no_words"].find)),
            PairRule("damaged", "a side has characters that were lost (U+FFFD) or read in a wrong encoding",
                 _either(_is_damaged)),
            PairRule("copy", "the target is the source, apart from case, punctuation and spaces",
                 lambda *sides: len({folded(normalise(side)) for side in sides}) == 1),
            PairRule("length", f"a side has more than {limits.max_length:,} characters",
                 lambda *sides: max(map(len, sides)) > limits.max_length),
            PairRule("ratio", f"a side is more than {limits.max_ratio:g} times as long as the other", self._is_uneven),
            PairRule("digits", "both sides have numbers, and they differ", _have_other_numbers),
            PairRule("repetition", "a mark stands 4 times in a row, or words do on one side alone", _is_repetitive),
            PairRule("markup", "a tag has no partner, or the sides have different tags", _has_odd_tags),
            PairRule("script", "a side is in a script in which its language is not written", self._is_in_other_script),
            PairRule("language", "a side is in the language of the other", self._is_in_other_language),
        )  # fmt: skip

    def rejects(self, pair: Pair) -> str | None:
        """Return the name of the first rule that holds for a pair; None if there is none."""
        source, target = pair.source.strip(), pair.target.strip()
        return next((rule.name for rule in self.all if rule.holds(source, target)), None)

    def _is_uneven(self, *sides: str) -> bool:
        shorter, longer = sorted(len(side) + count_wide(side) for side in sides)
        return longer > RATIO_FROM and longer > self._limits.max_ratio * shorter

    def _is_in_other_script(self, *sides: str) -> bool:
        return any(
            own and (script := script_of(side)) is not None and script not in own
            for side, own in zip(sides, map(_scripts, self._languages), strict=True)
        )

    def _is_in_other_language(self, *sides: str) -> bool:
        return any(
            language is not None and self._identifier.is_other(side, language)
            for side, language in zip(sides, self._languages, strict=True)
        )


def _scripts(language: str | None) -> frozenset[str]:
    return scripts_of_language(language) if language is not None else frozenset()


def _either(finds: Callable[[str], object]) -> Callable[[str, str], bool]:
    return lambda *sides: any(map(finds, sides))


def _is_damaged(side: str) -> bool:
    return bool(_SURROGATE.search(side)) or any(ODDITIES[name].find(side) for name in ("replacement", "mojibake"))


def _have_other_numbers(*sides: str) -> bool:
    """Whether both sides have numbers, and other ones. "15 128 GB" may be one number or two, so numbers are the same if
    all digits are. "m²" may be written "m2", so they are also the same if they are in compatible characters (NFKC)."""
    if not all(map(numbers_of, sides)) or _have_the_same(*sides):
        return False
    return not _have_the_same(*(unicodedata.normalize("NFKC", side) for side in sides))


def _have_the_same(*sides: str) -> bool:
    source, target = map(numbers_of, sides)
    return source == target or len(set(map(digits_of, sides))) == 1


def _is_repetitive(*sides: str) -> bool:
    return any(map(_MARKS.search, sides)) or len({repeats(side) for side in sides}) == 2


def _has_odd_tags(*sides: str) -> bool:
    tags = [_tags(side) for side in sides]
    return None in tags or tags[0] != tags[1]


def _tags(side: str) -> Counter[str] | None:
    """Return the tags of a side by their names; None if one has no partner."""
    if "<" not in side:
        return Counter()
    found = [lexeme for lexeme in lexemes(side) if lexeme.kind in ("open", "close", "empty")]
    single = [lexeme for lexeme in found if lexeme.kind != "empty"]
    return Counter(lexeme.name for lexeme in found) if len(single) == 2 * len(ends(found)) else None
