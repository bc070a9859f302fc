"""Terms in a text: found wherever it has them in a spelling that looks the same, as whole words.

`glossary` makes a `TermIndex` of its terms and of its forbidden words, and a `Searchable` of each text. The cost of a
search grows with the text, not with the number of terms. Spans are in code points of the text as given.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

import regex

from seq2seq.languages import language_code
from seq2seq.text.normalization import mapped, normalized
from seq2seq.text.scripts import LETTERS, WORD, folded, graphemes, has_unspaced, upper
from seq2seq.text.words import Span

Item = TypeVar("Item")
SHORTEST_IN_COMPOUND = 4
# Languages that write a short word and the next one together: l'eau, dell'arte. A term may begin after the apostrophe.
ELIDING = frozenset({"fr", "it", "ca", "oc", "co", "sc", "wa", "ga", "gd", "mt", "eo"})
# Apostrophes and hyphens that look the same.
_ALIKE = str.maketrans("’‐‑", "'--")
_APOSTROPHE = re.compile("'")
_PARTS = regex.compile(rf"{LETTERS}|\X")


def written(text: str) -> str:
    """Text in its normal form, with single spaces."""
    return " ".join(normalized(text).split())


def keys(term: str, language: str | None) -> tuple[str, ...]:
    """The folded forms of a term: in any case, and if it differs, in capitals (Greek ones have no accents)."""
    return tuple(dict.fromkeys((_key(term, language), _key(upper(term, language), language))))


def _key(text: str, language: str | None) -> str:
    return folded(normalized(text), language).translate(_ALIKE)


class Searchable:
    """A text with the places where terms may begin and end.

    Args:
        given: the text.
        language: its language, which decides what case letters have.
        by_words: terms are whole words with their hyphens and apostrophes, as `word_spans` has them; otherwise runs of
            letters are whole.
    """

    def __init__(self, given: str, language: str | None = None, by_words: bool = False):
        self.given, self._language, self._by_words = given, language, by_words
        self.text = _key(given, language)
        self._spans: list[Span] | None = None
        if len(self.text) != len(given) or "  " in self.text or normalized(given) != given:
            whole = mapped(given, lambda part: _key(part, language))
            kept = [at for at, char in enumerate(whole.text) if char != " " or whole.text[at - 1 : at] != " "]
            self.text, self._spans = "".join(whole.text[at] for at in kept), [whole.spans[at] for at in kept]

    def given_span(self, begin: int, end: int) -> Span:
        """The span of the given text for one of the folded text."""
        return (begin, end) if self._spans is None else (self._spans[begin][0], self._spans[end - 1][1])

    @cached_property
    def edges(self) -> list[int]:
        """Where a term may begin or end in the folded text, in order; not within a character, a word or a number."""
        found = {0, len(self.text)}
        may_elide = self._by_words and language_code(self._language) in ELIDING
        for match in (WORD if self._by_words else _PARTS).finditer(self.text):
            found.update(match.span())
            if has_unspaced(match[0][0]):
                found.update(match.start() + at for at in accumulate(map(len, graphemes(match[0]))))
            elif may_elide:
                found.update(match.start() + mark.end() for mark in _APOSTROPHE.finditer(match[0]))
        return sorted(found)

    @cached_property
    def _edges(self) -> frozenset[int]:
        return frozenset(self.edges)

    def is_edge(self, place: int) -> bool:
        """Whether a term may begin or end at a place of the folded text."""
        return place in self._edges

    def next_edge(self, place: int) -> int:
        """The first edge at a place or after it."""
        return self.edges[bisect_left(self.edges, place)]

    def occurrences(self, term: str, any_case: bool = True, in_compounds: bool = False) -> list[Span]:
        """Where the text has a term, in order: whole, or at the end of a longer word."""
        in_compounds = in_compounds and len(term) >= SHORTEST_IN_COMPOUND
        found = set()
        for index, key in enumerate(keys(term, self._language)):
            begin = self.text.find(key) if key else -1  # nothing is left of a term of marks that are not read
            while begin >= 0:
                end = begin + len(key)
                if self.is_edge(end) and (self.is_edge(begin) or (in_compounds and self._begins_character(begin))):
                    span = self.given_span(begin, end)
                    if self.is_spelled(term, span) if not any_case else not index or self.given[slice(*span)].isupper():
                        found.add(span)
                begin = self.text.find(key, begin + 1)
        return _apart(sorted(found))

    def is_spelled(self, term: str, span: Span) -> bool:
        """Whether a span has a term in this case."""
        return written(self.given[slice(*span)]).translate(_ALIKE) == term.translate(_ALIKE)

    def _begins_character(self, place: int) -> bool:
        return self._spans is None or not place or self._spans[place] != self._spans[place - 1]


class Found(NamedTuple, Generic[Item]):
    """An item whose term begins at a place."""

    item: Item
    span: Span
    begin: int
    """In the folded text."""
    end: int


class TermIndex(Generic[Item]):
    """Items by the folded forms of their terms."""

    def __init__(self, language: str | None = None):
        self._language = language
        self._items: dict[str, list[tuple[Item, bool, bool]]] = defaultdict(list)
        self._lengths: dict[str, set[int]] = defaultdict(set)

    def add(self, term: str, item: Item, goes_on: bool = False) -> None:
        """Add an item for a term, whose last word may be longer if it goes on."""
        for index, key in enumerate(keys(term, self._language)):
            self._items[key].append((item, index > 0, goes_on))
            self._lengths[key[0]].add(len(key))

    def at(self, text: Searchable, begin: int) -> Iterator[Found[Item]]:
        """The items whose terms begin at an edge of a text."""
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
                    yield Found(item, span, begin, last)

    def occurrences(self, text: Searchable) -> Iterator[Found[Item]]:
        """All items whose terms a text has, by place; one item's places may overlap another's."""
        if self._items:
            for begin in text.edges:
                yield from self.at(text, begin)


def _apart(spans: Iterable[Span]) -> list[Span]:
    """Of spans in order, those that begin after the last one that was taken."""
    found: list[Span] = []
    for span in spans:
        if not found or found[-1][1] <= span[0]:
            found.append(span)
    return found
