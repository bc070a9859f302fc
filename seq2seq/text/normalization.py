"""The normal form in which texts are encoded, and the places of its characters in the original text.

Tokenizers make a `Normalizer` of the characters that they have; translators, scorers, aligners and classifiers read
sources through it. `normalized`, its part that needs no vocabulary, is applied to all text for training, and to
targets wherever they are encoded.
"""

import functools
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

Span = tuple[int, int]


def _characters(*ranges: str) -> Iterator[str]:
    """Yield the characters of ranges such as `a-z`."""
    for one in ranges:
        yield from map(chr, range(ord(one[0]), ord(one[-1]) + 1))


_SPACES = {*_characters("\t-\r", "\x1c-\x1f", "\x85", "\xa0", "\u1680", "\u2000-\u200a", "\u2028-\u2029", "\u202f"), *(
    "\u205f\u3000"
)}  # fmt: skip
# Controls, soft hyphens, the zero-width space, word joiners, and marks of direction and byte order. U+200C and U+200D
# are not among them: some scripts need them.
_INVISIBLE = {
    *_characters("\x00-\x1f", "\x7f-\x9f", "\u200e-\u200f", "\u202a-\u202e", "\u2060-\u2064", "\u2066-\u206f"),
    *"\xad\u034f\u061c\u200b\ufeff",
} - _SPACES
_CHANGED = str.maketrans({**dict.fromkeys(_SPACES, " "), **dict.fromkeys(_INVISIBLE, "")})
_HAS_CHANGED = re.compile(f"[{re.escape(''.join(sorted(_SPACES - {' '} | _INVISIBLE)))}]")
# Variation selectors, which choose one of several forms of the character before them.
_VARIATIONS = {*_characters("\ufe00-\ufe0f", "\U000e0100-\U000e01ef")}
# Characters that replace each other if a vocabulary lacks one: the first that it contains, or else the first.
_ALIKE = ("'’‘ʼʹ′‚‛´‹›", '"“”„‟″«»「」『』', "-‐‑‒–—―−", ".。｡", ",、､")
# Kinds of Unicode's compatibility forms that look like their plain form: full width, ligatures, letters of formulas.
_KINDS = ("<wide>", "<narrow>", "<compat>", "<font>", "<noBreak>", "<initial>", "<medial>", "<final>", "<isolated>")
MOST_KNOWN = 20_000  # characters about which something is remembered


def normalized(text: str) -> str:
    """Return `text` in NFC on one line, with plain spaces, and without control and invisible characters."""
    if text.isascii() and text.isprintable():
        return text
    if _HAS_CHANGED.search(text):
        text = text.translate(_CHANGED)
    return unicodedata.normalize("NFC", text)


class Mapped(NamedTuple):
    """A normalised text, and the span of each of its characters in the original text."""

    text: str
    spans: list[Span]

    def original(self, span: Span) -> Span:
        """Return the span of the given text that corresponds to a span of the normalised text."""
        begin, end = span
        if begin < end:
            return self.spans[begin][0], self.spans[end - 1][1]
        place = self.spans[begin][0] if begin < len(self.spans) else self.spans[-1][1] if self.spans else 0
        return place, place


def mapped(text: str, form: Callable[[str], str] = normalized) -> Mapped:
    """Return a text in its normal form, and the span of the given text for each of its characters."""
    whole = form(text)
    if whole == text:
        return Mapped(text, [(place, place + 1) for place in range(len(text))])
    found: list[str] = []
    spans: list[Span] = []
    for begin, end in _groups(text, form):
        part = form(text[begin:end])
        is_even = len(part) == end - begin
        found.append(part)
        spans += [(begin + at, begin + at + 1) if is_even else (begin, end) for at in range(len(part))]
    if "".join(found) != whole:  # the parts do not make up the whole, so no boundary is certain
        spans = [(0, len(text))] * len(whole)
    return Mapped(whole, spans)


def _groups(text: str, form: Callable[[str], str]) -> Iterator[Span]:
    """Yield spans that are normalised independently: a character, and those that combine with it. Characters that are
    removed are between the spans, or within them."""
    begin = end = 0
    for place, char in enumerate(text):
        if not form(char):
            continue
        if begin < end and not (unicodedata.combining(char) or _combines(text[begin:end], char, form)):
            yield begin, end
            begin = end
        if begin == end:
            begin = place
        end = place + 1
    if begin < end:
        yield begin, end


def _combines(group: str, char: str, form: Callable[[str], str]) -> bool:
    if char.isascii() or (char.isalnum() and char < "\u0300"):
        return False
    return form(group + char) != form(group) + form(char)


class Normalizer:
    """Converts a text to the form that a vocabulary knows.

    In addition to what `normalized` does, a character that the vocabulary lacks becomes its plain form if the
    vocabulary has that: full-width forms, ligatures, other quotation marks and dashes, letters and their accents apart.
    A digit that it lacks becomes that of ASCII, which models learn in any case, from bytes if need be.

    Args:
        characters: the characters of the vocabulary.
        rule: what the tokenizer itself then changes a character to, such as a small letter.
    """

    def __init__(self, characters: Iterable[str], rule: Callable[[str], str] = str):
        self._known = {*characters, " "}
        self._rule = functools.lru_cache(MOST_KNOWN)(rule)
        self._plain = functools.lru_cache(MOST_KNOWN)(self._plain_form)
        self._apart = functools.lru_cache(MOST_KNOWN)(self._in_parts)
        # Text of these characters alone is unchanged: none of them changes, or combines with another.
        self._unchanged = {char for char in {*self._known, *_characters(" -~")} if self._stays(char)}

    def __call__(self, text: str) -> str:
        """Return the normalised text; normalising it again changes nothing."""
        if self._unchanged.issuperset(text):
            return text
        text = normalized(text)
        return "".join(map(self._apart, unicodedata.normalize("NFC", "".join(map(self._plain, text)))))

    def knows(self, character: str) -> bool:
        """Whether the vocabulary has a character, or what the tokenizer changes it to."""
        return character in self._known or self._known.issuperset(self._rule(character) or "\0")

    def mapped(self, text: str) -> Mapped:
        """Return the normalised text, and the span of the given text for each of its characters."""
        return mapped(text, self)

    def _stays(self, char: str) -> bool:
        is_part = unicodedata.category(char).startswith("M") or "\u1160" <= char <= "\u11ff"
        return not is_part and self._plain(char) == normalized(char) == char

    def _plain_form(self, char: str) -> str:
        """Return a character, or its replacement if the vocabulary lacks it."""
        if char in self._known:
            return char
        if char in _VARIATIONS:
            return ""
        if char.isdecimal():
            return str(unicodedata.decimal(char))
        forms = [unicodedata.normalize("NFKC", char)] if unicodedata.decomposition(char).startswith(_KINDS) else []
        alike = "".join(alike for alike in _ALIKE if {char, *forms}.intersection(alike))
        return next((form for form in (*forms, *alike) if self._known.issuperset(form)), (alike or char)[0])

    def _in_parts(self, char: str) -> str:
        """Return a letter and its accents as separate characters, if the vocabulary has only these."""
        parts = unicodedata.normalize("NFD", char)
        return parts if char not in self._known and self._known.issuperset(parts) else char


class ReadingTokenizer(ABC):
    """A tokenizer that reads texts in their normalised form, without white space at the ends. A source that would
    become empty is read unchanged.

    `read` is for all texts that are input of an encoder, and `encode_targets` for given translations and their
    beginnings, in training too. `encode` and `decode` do not normalise.
    """

    model_bytes: bytes
    """The content of the .spm file."""
    start_id: int
    eos_id: int

    def __copy__(self) -> Self:
        # `copy.copy` would use __reduce__, which is for other processes and loads the model again.
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    @property
    def tags(self) -> Mapping[str, str]:
        """The pieces that stand for languages, by the names of these."""
        return {}

    def language_named(self, text: str) -> str | None:
        """Return the language of `tags` whose tag a text begins with, as users of OPUS-MT type it; usually None."""
        return None

    def typed_tag(self, text: str) -> str:
        """Return the language tag that a text begins with, and the space after it; empty if the tokenizer reads none
        there, so that text in the form of a tag is text."""
        return ""

    @property
    def tag_ids(self) -> tuple[int, ...]:
        """The ids that every encoded text begins with: the tag of a language, or nothing."""
        return ()

    @property
    def start_ids(self) -> tuple[int, ...]:
        """First inputs of a decoder: the start, and the tag of the target language."""
        return (self.start_id,)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that follow those of a source."""
        return (self.eos_id,)

    @abstractmethod
    def text_pieces(self) -> Iterable[str]:
        """Return the pieces of the vocabulary that texts are spelled with, without those for bytes and for control.

        If both sides share a vocabulary but not the .spm file, these are the pieces of the file of this tokenizer.
        """

    @abstractmethod
    def encode_all(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of texts, without normalisation."""

    @abstractmethod
    def spans(self, text: str) -> tuple[list[int], list[Span]]:
        """Return the ids of a text, without normalisation, and the span of each id that is text.

        Tags of languages come first and have no span.
        """

    @functools.cached_property
    def normalizer(self) -> Normalizer:
        """The normalizer of the vocabulary."""
        return Normalizer(set().union(*self.text_pieces()), self.rule)

    def rule(self, character: str) -> str:
        """Return what the normalisation in the .spm file makes of a character."""
        return character

    def read(self, text: str) -> list[int]:
        """Return the ids of a text in its normalised form."""
        return self.read_all([text])[0]

    def read_all(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, as `read` does, in one call, on `threads` threads."""
        return self.encode_all([self.normalizer(text).strip() or text.strip() for text in texts], threads)

    def read_spans(self, text: str) -> tuple[list[int], Mapped, list[Span]]:
        """Return the ids that `read` returns, the normalised text, and the span in that text of each id that is not a
        tag."""
        return self._spans_in(self.normalizer.mapped(text))

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each translation, or beginning of one, in normal form and without white space at the ends.
        Characters that the vocabulary lacks are not replaced."""
        return self.encode_all([normalized(text).strip() for text in texts])

    def target_spans(self, text: str) -> tuple[list[int], Mapped, list[Span]]:
        """Return the ids that `encode_targets` returns for a text, its normal form, and the span in that of each id
        that is not a tag."""
        return self._spans_in(mapped(text))

    def _spans_in(self, mapped: Mapped) -> tuple[list[int], Mapped, list[Span]]:
        before = len(mapped.text) - len(mapped.text.lstrip())
        ids, spans = self.spans(mapped.text.strip())
        return ids, mapped, [(begin + before, end + before) for begin, end in spans]
