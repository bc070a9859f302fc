"""Search for terms in a text: whole words, in any spelling that looks the same.

`glossary` makes a `TermIndex` of its terms and of its forbidden words, and a `Searchable` of each text. The cost of a
search grows with the text, not with the number of terms. Spans are in code points of the text as given.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Generic, NamedTuple, TypeVar

import regex

from seq2seq.languages import language_code
from seq2seq.text.normalization import mapped, normalized
from seq2seq.text.scripts import LETTERS, WORD, folded, graphemes, has_unspaced, upper
from seq2seq.text.splitting import sentence_ends
from seq2seq.text.untranslatable import codes
from seq2seq.text.words import Span

Item = TypeVar("Item")
SHORTEST_IN_COMPOUND = 4
# Languages that join a short word to the next one: l'eau, dell'arte. A term may begin after the apostrophe.
ELIDING = frozenset({"fr", "it", "ca", "oc", "co", "sc", "wa", "ga", "gd", "mt", "eo"})
# Languages that write plurals so: foto's. In others, a term may end before 's at the end of a word.
PLURAL_APOSTROPHE = frozenset({"nl", "af", "fy"})
# Apostrophes and hyphens that look the same.
_ALIKE = str.maketrans("’‐‑", "'--")
_APOSTROPHE, _POSSESSIVE = re.compile("'"), re.compile(r"'s\b")
_PARTS = regex.compile(rf"{LETTERS}|\X")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")


def written(text: str) -> str:
    """Return text in its normal form, with single spaces."""
    return " ".join(normalized(text).split())


def keys(term: str, language: str | None) -> tuple[str, ...]:
    """Return the folded forms of a term: for any case, and if it differs, for capitals (Greek ones have no accents)."""
    return tuple(dict.fromkeys((_key(term, language), _key(upper(term, language), language))))


def _key(text: str, language: str | None) -> str:
    return folded(normalized(text), language).translate(_ALIKE)


class Searchable:
    """A text with the places where terms may begin and end.

    Args:
        given: the text.
        language: its language, which determines letter case.
        by_words: whether terms must be whole words with hyphens and apostrophes, as in `word_spans`; otherwise they
            must be whole runs of letters.
    """

    def __init__(self, given: str, language: str | None = None, by_words: bool = False):
        self.given, self._language, self._by_words = given, language, by_words
        self.language = language_code(language)
        self.text = _key(given, language)
        self._spans: list[Span] | None = None
        if len(self.text) != len(given) or "  " in self.text or normalized(given) != given:
            whole = mapped(given, lambda part: _key(part, language))
            kept = [at for at, char in enumerate(whole.text) if char != " " or whole.text[at - 1 : at] != " "]
            self.text, self._spans = "".join(whole.text[at] for at in kept), [whole.spans[at] for at in kept]

    def given_span(self, begin: int, end: int) -> Span:
        """Return the span of the given text that corresponds to a span of the folded text."""
        return (begin, end) if self._spans is None else (self._spans[begin][0], self._spans[end - 1][1])

    @cached_property
    def edges(self) -> list[int]:
        """Places of the folded text where a term may begin or end, in order; none is within a character or a word."""
        found = {0, len(self.text)}
        may_elide = self._by_words and self.language in ELIDING
        for match in (WORD if self._by_words else _PARTS).finditer(self.text):
            found.update(match.span())
            if has_unspaced(match[0][0]):
                found.update(match.start() + at for at in accumulate(map(len, graphemes(match[0]))))
                continue
            if may_elide:
                found.update(match.start() + mark.end() for mark in _APOSTROPHE.finditer(match[0]))
            if match[0].endswith("'s") and self.is_possessive(match.end() - 2):
                found.add(match.end() - 2)
        return sorted(found)

    def is_possessive(self, place: int) -> bool:
        """Whether the possessive 's, or in most languages a short word, follows a place of the folded text."""
        return self.language not in PLURAL_APOSTROPHE and _POSSESSIVE.match(self.text, place) is not None

    @cached_property
    def _edges(self) -> frozenset[int]:
        return frozenset(self.edges)

    def is_edge(self, place: int) -> bool:
        """Whether a term may begin or end at a place of the folded text."""
        return place in self._edges

    def next_edge(self, place: int) -> int:
        """Return the first edge at a place or after it."""
        return self.edges[bisect_left(self.edges, place)]

    def is_in_code(self, span: Span) -> bool:
        """Whether a span of the given text is a part, and not the whole, of an address, a path, a code or the like."""
        begin, end = span
        place = bisect_right(self._codes, (begin, len(self.given))) - 1
        return place >= 0 and self._codes[place] != span and end <= self._codes[place][1]

    @cached_property
    def _codes(self) -> list[Span]:
        return list(codes(self.given))

    def begins_sentence(self, place: int) -> bool:
        """Whether no letter or digit precedes a place of the given text in its sentence."""
        starts, firsts = self._sentences
        return place <= firsts[bisect_right(starts, place) - 1]

    @cached_property
    def _sentences(self) -> tuple[list[int], list[int]]:
        """The beginnings of the sentences of the given text, and their first letters or digits."""
        starts = [0, *sentence_ends(self.given)]
        spans = pairwise([*starts, len(self.given)])
        found = [(_LETTER_OR_DIGIT.search(self.given, begin, end), end) for begin, end in spans]
        return starts, [first.start() if first else end for first, end in found]

    def occurrences(self, term: str, any_case: bool = True, in_compounds: bool = False) -> list[Span]:
        """Return the spans of a term in the text, in order: as a whole word, or at the end of a longer word."""
        in_compounds = in_compounds and len(term) >= SHORTEST_IN_COMPOUND
        found = set()
        for index, key in enumerate(keys(term, self._language)):
            for span in self._spans_of(key, in_compounds, term[:1].isupper()):
                if self.is_spelled(term, span) if not any_case else not index or self.given[slice(*span)].isupper():
                    found.add(span)
        return _apart(sorted(found))

    def _spans_of(self, key: str, in_compounds: bool, is_noun: bool) -> Iterator[Span]:
        """Yield each span of a folded term between two edges; in compounds, it may begin within a word.

        A term with a capital (`is_noun`) is only in words with one: `Ende` is in `Wochenende`, and not in `lachende`.
        """
        begin = self.text.find(key) if key else -1  # a term of invisible marks has an empty key
        while begin >= 0:
            end = begin + len(key)
            if self.is_edge(end) and (self.is_edge(begin) or (in_compounds and self._is_in_word(begin, is_noun))):
                yield self.given_span(begin, end)
            begin = self.text.find(key, begin + 1)

    def is_spelled(self, term: str, span: Span, goes_on: bool = False) -> bool:
        """Whether a span contains a term in exactly this case; if it `goes_on`, the term may have an ending there."""
        found, expected = (text.translate(_ALIKE) for text in (written(self.given[slice(*span)]), term))
        return found.startswith(expected) if goes_on else found == expected

    def _is_in_word(self, place: int, has_capital: bool) -> bool:
        """Whether a character begins at a place within a word, and the word has a capital if it must."""
        if self._spans is not None and place and self._spans[place] == self._spans[place - 1]:
            return False
        begin = self.edges[bisect_right(self.edges, place) - 1]
        return not has_capital or self.given[self.given_span(begin, begin + 1)[0]].isupper()


class Occurrence(NamedTuple, Generic[Item]):
    """An item whose term begins at a place of a text."""

    item: Item
    span: Span
    begin: int
    """Begin in the folded text; so is `end`."""
    end: int


class TermIndex(Generic[Item]):
    """Items, indexed by the folded forms of their terms."""

    def __init__(self, language: str | None = None):
        self._language = language
        self._items: dict[str, list[tuple[Item, bool, bool]]] = defaultdict(list)
        self._lengths: dict[str, set[int]] = defaultdict(set)

    def add(self, term: str, item: Item, goes_on: bool = False) -> None:
        """Add an item for a term; if `goes_on`, the last word may have an ending."""
        for index, key in enumerate(keys(term, self._language)):
            self._items[key].append((item, index > 0, goes_on))
            self._lengths[key[0]].add(len(key))

    def at(self, text: Searchable, begin: int) -> Iterator[Occurrence[Item]]:
        """Yield the items whose terms begin at an edge of a text."""
        for length in self._lengths.get(text.text[begin : begin + 1], ()):
            end = begin + length
            for item, in_capitals, goes_on in self._items.get(text.text[begin:end], ()):
                if text.is_edge(end):
                    last = end
                elif goes_on:
                    last = text.next_edge(end)
                else:
                    continue
                span = text.given_span(begin, last)
                if not in_capitals or text.given[slice(*span)].isupper():
                    yield Occurrence(item, span, begin, last)

    def occurrences(self, text: Searchable) -> Iterator[Occurrence[Item]]:
        """Yield all items whose terms a text contains, by place; places of an item may overlap those of another."""
        if self._items:
            for begin in text.edges:
                yield from self.at(text, begin)


def _apart(spans: Iterable[Span]) -> list[Span]:
    """Return the spans that begin after the end of the last one that was taken, from the first on."""
    found: list[Span] = []
    for span in spans:
        if not found or found[-1][1] <= span[0]:
            found.append(span)
    return found
