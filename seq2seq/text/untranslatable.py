"""Detection of text that a model cannot translate, and that is therefore copied: text without words that the model
knows.

Only `Untranslatable` decides this, for `Translator` and `markup`. It covers numbers, dates, addresses, codes, emoji,
punctuation, and scripts that the vocabulary lacks. Models translate such text to invented sentences or endless loops.
"""

import math
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby, islice

from seq2seq.text.normalization import MOST_KNOWN, ReadingTokenizer
from seq2seq.text.scripts import has_unspaced, may_lack_spaces
from seq2seq.text.splitting import split_sentences
from seq2seq.text.words import Span, word_spans

VERBATIM = "verbatim"  # the flag of copied text
LONG_RUN = re.compile(r"\S{100,}")
# Nearly all lines that contain a word begin like this.
_FIRST_WORD = re.compile(r"[^\w\s#@]{0,3}([^\W\d_]+)[,.;:!?]{0,3}(?:\s|$)")
_LETTERS = re.compile(r"[^\W\d_]+")
_TOKEN = re.compile(r"\S+")
_MARKS = ".,;:!?\"'`“”„‘’«»‹›()[]{}<>|*_~…"
_LATIN = r"[0-9A-Za-z\u00c0-\u024f-]"
# Tokens with letters that are not words, each without marks at its ends.
_NO_WORD = re.compile(
    r"(?:[a-zA-Z][a-zA-Z0-9+.-]*+://|www\.|mailto:)\S+"  # addresses
    r"|[\w.+-]++@[\w-]++(?:\.[\w-]++)*"
    r"|@[\w.]+|#\w++"
    r"|0[xX][0-9a-fA-F]++|[\d.,]++°[A-Za-z]?"
    r"|\w++\.[a-z]{3,4}"
    rf"|{_LATIN}++(?:\.{_LATIN}+)*\.[a-z]{{2,6}}(?::\d+)?(?:[/?#]\S*)?"  # domains and names of files
    r"|(?:[A-Za-z]:\\|\\\\|~?/(?=[^\s/]*/))\S+"  # paths
    r"|(?=[^\s\d]*\d)[A-Z0-9][A-Z0-9._/:#+-]*"  # codes: AB-1200, 3D, 2024-05-01T12:30Z
    r"|(?=[^\s\d]*\d)[0-9a-fA-F]{7,}+|(?=[^\s\d]*\d)[0-9a-fA-F:-]{12,}+"  # hashes
    r"|(?=[^\s\d]*\d)(?=[^:]*:[^:]*:)[0-9a-fA-F:]++"
    r"|(?=[^\sa-z]*[a-z])(?=[^\sA-Z]*[A-Z])(?=[^\s\d]*\d)[A-Za-z0-9+/=._-]{20,}"
    r"|[vV]?\d++(?>(?:\.\d++)+)[A-Za-z0-9.+-]*+|\d++x\d++"  # versions, sizes
    r"|[A-Za-z0-9]++(?:_[A-Za-z0-9]++)+"
)
# Categories of Unicode whose characters have a meaning alone, as the others here do: emoji, currencies, operators,
# fractions and exponents, Roman numerals, and characters without a name.
_SIGNS = frozenset({"So", "Sc", "Sm", "No", "Nl", "Co", "Cn"})
_SIGNS_AMONG_MARKS = "§¶†‡‰‱"
# Minimum share of pieces with two letters (one in scripts without spaces) of a vocabulary of words. A model of digits
# has fewer, and reads digits.
_LEAST_WORDS = 0.05


def codes(text: str) -> Iterator[Span]:
    """Yield the spans of addresses, paths, mentions, codes and the like, without the marks at their ends."""
    for found in _TOKEN.finditer(text):
        core = found[0].strip(_MARKS)
        if core and _NO_WORD.fullmatch(core):
            begin = found.start() + found[0].index(core)
            yield begin, begin + len(core)


def lacks_letters(text: str) -> bool:
    """Whether a text is untranslatable with any vocabulary."""
    return not any(map(str.isalpha, text))


class Untranslatable:
    """Decides which texts a model copies, from the vocabulary of its source.

    There is an exception for vocabularies without words, such as that of a model which sorts digits: text is copied
    only if none of its characters are in the vocabulary.
    """

    def __init__(self, tokenizer: ReadingTokenizer):
        self._normalizer = tokenizer.normalizer
        pieces = list(tokenizer.text_pieces())
        least = math.ceil(_LEAST_WORDS * len(pieces))
        words = (piece for piece in pieces if sum(map(str.isalpha, piece)) > 1 or has_unspaced(piece))
        self._reads_words = sum(1 for _ in islice(words, least)) == least
        self._is_foreign = lru_cache(MOST_KNOWN)(self._lacks)

    def __call__(self, text: str) -> bool:
        """Whether a text has no word that the model knows, or is one long run in a script with spaces."""
        text = self._normalizer(text).strip()
        if not self._reads_words:
            return not any(map(self._normalizer.knows, "".join(text.split())))
        if (first := _FIRST_WORD.match(text)) and self._knows(first[1]):
            return False
        if LONG_RUN.fullmatch(text) and not may_lack_spaces(text):
            return True
        return not any(map(self._has_word, text.split()))

    def stretches(self, text: str) -> list[tuple[str, bool]]:
        """Return consecutive parts of a text, and whether each is copied.

        Copied parts are long runs without white space, and words of characters that the vocabulary lacks, if they are a
        whole sentence, or its beginning or end.
        """
        if self(text):
            return [(text, True)]
        if text.isascii() and len(text) < 100:
            return [(text, False)]
        found: list[tuple[str, bool]] = []
        for part, is_run in _runs(text):
            found += [(part, True)] if is_run else self._sentences(part)
        groups = groupby(found, key=lambda part: part[1])
        return [("".join(part for part, _ in own), is_copied) for is_copied, own in groups]

    def foreign_words(self, text: str) -> list[str]:
        """Return the words and signs of a text of whose letters the vocabulary has none."""
        if not self._has_foreign(text):
            return []
        return [text[begin:end] for begin, end in word_spans(text, ()) if self._kind(text[begin:end]) == "foreign"]

    def _has_word(self, token: str) -> bool:
        core = token.strip(_MARKS)
        return not _NO_WORD.fullmatch(core) and any(map(self._knows, _LETTERS.findall(core)))

    def _knows(self, word: str) -> bool:
        """Whether the vocabulary has at least half of the letters of a word."""
        return 2 * sum(map(self._normalizer.knows, word)) >= len(word)

    def _sentences(self, text: str) -> Iterator[tuple[str, bool]]:
        if not self._has_foreign(text):
            yield text, False
        else:
            for sentence in split_sentences(text):
                begin, end = self._core(sentence)
                parts = (sentence[:begin], True), (sentence[begin:end], False), (sentence[end:], True)
                yield from (part for part in parts if part[0])

    def _core(self, sentence: str) -> Span:
        """Return the span of a sentence without the foreign words at its ends and the marks next to them."""
        words = word_spans(sentence, ())
        kinds = [self._kind(sentence[begin:end]) for begin, end in words]
        if "foreign" not in kinds:
            return 0, len(sentence)
        if "known" not in kinds:
            return len(sentence), len(sentence)
        first, last = kinds.index("known"), len(kinds) - 1 - kinds[::-1].index("known")
        begin, end = 0, len(sentence)
        if "foreign" in kinds[:first]:
            begin = words[first - 1 - kinds[:first][::-1].index("foreign")][1]
            while begin < words[first][0] and not (sentence[begin].isspace() or _opens(sentence[begin])):
                begin += 1
        if "foreign" in kinds[last:]:
            end = words[last + kinds[last:].index("foreign")][0]
            while end > words[last][1] and _opens(sentence[end - 1]):
                end -= 1
        return begin, end

    def _kind(self, word: str) -> str:
        signs = [char for char in word if _is_sign(char)]
        if signs and all(map(self._is_foreign, signs)):
            return "foreign"
        return "known" if any(map(str.isalpha, signs)) else "neutral"

    def _has_foreign(self, text: str) -> bool:
        return not text.isascii() and any(map(self._is_foreign, set(text)))

    def _lacks(self, char: str) -> bool:
        """Whether a character has a meaning alone as it is read, and the vocabulary lacks it."""
        read = list(filter(_is_sign, self._normalizer(char)))
        return bool(read) and not any(map(self._normalizer.knows, read))


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield consecutive parts of `text`, and whether each is a long run of characters without white space."""
    start = 0
    for run in LONG_RUN.finditer(text):
        if not may_lack_spaces(run.group()):
            if start < run.start():
                yield text[start : run.start()], False
            yield run.group(), True
            start = run.end()
    if start < len(text):
        yield text[start:], False


def _is_sign(char: str) -> bool:
    """Whether a character has a meaning alone: a letter, or a sign such as an emoji, a currency or an exponent.

    Signs in ASCII do not count: models learn those that their vocabulary lacks from bytes, and may say them in words.
    Other decimal digits are read as ASCII.
    """
    return char.isalpha() or (char > "\x7f" and (unicodedata.category(char) in _SIGNS or char in _SIGNS_AMONG_MARKS))


def _opens(char: str) -> bool:
    return unicodedata.category(char) in ("Ps", "Pi")
