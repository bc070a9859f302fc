"""Glossaries: terms of a source language with the words that a translation must use for them.

`Glossary.read` takes a TSV file (or a CSV such as DeepL's exports); `inference.glossary_translator` enforces it in
translations; `s2s glossary check` reports on it. Spans are in code points.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import regex

from seq2seq.errors import DataError, counted, shown
from seq2seq.languages import language_code
from seq2seq.text.glossary_rows import rows
from seq2seq.text.scripts import folded, has_unspaced, title, upper
from seq2seq.text.terms import SHORTEST_IN_COMPOUND, Occurrence, Searchable, TermIndex, written
from seq2seq.text.words import Span, word_spans

COPY, NEVER = "=", "-"
OPTIONS = ("case",)
# Letters of an ending, as in "Hundes".
LONGEST_ENDING = 2
LONGEST_TERM, MOST_FORMS, MOST_ENTRIES = 200, 50, 100_000
LONGEST_LINE = 2 * MOST_FORMS * LONGEST_TERM
# Maximum number of problems of one kind that are listed one by one.
MOST_TOLD = 10
# Languages that write nouns with a capital.
NOUNS_WITH_CAPITALS = frozenset({"de", "lb"})
# Languages that write compounds as one word: "Gartenstuhl" has the term "Stuhl".
COMPOUNDING = frozenset({"de", "nl", "sv", "da", "no", "nb", "nn", "is", "fi", "et", "hu", "af", "lb", "fy"})
# Languages whose genitives may end in s: "Acmes". A possessive of the source, as in "Acme's", may become one.
GENITIVES = frozenset({"de", "lb", "nl", "sv", "da", "no", "nb", "nn", "is"})
# Separators of columns in files of other forms, and of words.
_SEPARATOR = re.compile(r"[\s,;=|]")
# A word before one with a capital and small letters: a heading that capitalises its words. "URL" and "I" prove nothing.
_BEFORE_CAPITAL = regex.compile(r"[\w\p{M}'’‐‑-]++\s++[\p{Lu}\p{Lt}]\p{M}*+\p{Ll}")


@dataclass(frozen=True)
class Entry:
    """One term of a glossary."""

    source: str
    forms: tuple[str, ...]
    """Accepted translations, the preferred one first."""
    line: int
    """Line in the file, counted from 1."""
    goes_on: bool = False
    """Whether the last source word may have an ending (`invoice*`)."""
    as_written: bool = False
    """Whether the source matches only in its own case. Otherwise it matches in any case, which is applied to the
    forms."""
    forms_as_written: bool = False
    """Whether translations must have the forms in their own case, except for a capital that begins a sentence."""

    @property
    def is_copy(self) -> bool:
        """Whether translations must copy the source."""
        return self.forms_as_written and self.forms == (self.source,)


@dataclass(frozen=True)
class Forbidden:
    """A word or words that no translation may contain."""

    words: str
    as_written: bool = False
    """Whether matching is case-sensitive."""


@dataclass(frozen=True)
class Match:
    """An entry that occurs in a source text."""

    entry: Entry
    span: Span
    forms: tuple[str, ...]
    """Forms of the entry, in the case of the source text."""
    in_compounds: bool = False
    """Whether a form also counts at the end of a longer word."""
    language: str | None = None
    """Language of the forms."""

    def occurrences(self, text: Searchable) -> list[Span]:
        """Return the spans of a translation that contain one of the forms."""
        any_case = not self.entry.forms_as_written
        found = [span for form in self.forms for span in text.occurrences(form, any_case, self.in_compounds)]
        for form in () if any_case else self.forms:
            begun = text.occurrences(title(form, self.language), any_case=False)
            found += [span for span in begun if text.begins_sentence(span[0])]
        return found

    def begun(self, form: str) -> str:
        """Return a form for the beginning of a sentence: with a capital, unless it is a copy."""
        return form if self.entry.is_copy else title(form, self.language)


class Glossary:
    """Entries in their order; of two entries with the same source, the first one counts.

    Args:
        entries: the terms.
        target_language: determines whether terms are found in compounds, and letter case.
        problems: warnings about omitted or doubtful lines of the file.
        forbidden: words that no translation may contain.
        source_language: determines letter case.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        target_language: str | None = None,
        problems: Sequence[str] = (),
        forbidden: Sequence["Forbidden"] = (),
        source_language: str | None = None,
    ):
        self.entries, self.problems, self.forbidden = tuple(entries), tuple(problems), tuple(forbidden)
        self.source_language, self.target_language = source_language, target_language
        self._in_compounds = target_language is not None and language_code(target_language) in COMPOUNDING
        self._terms = TermIndex[Entry](source_language)
        for entry in self.entries:
            self._terms.add(entry.source, entry, entry.goes_on)
        self._never = TermIndex[Forbidden](target_language)
        for words in self.forbidden:
            self._never.add(words.words, words)

    @staticmethod
    def read(path: str | Path, target_language: str | None = None, source_language: str | None = None) -> "Glossary":
        """Read a glossary from a TSV or CSV file (`glossary_rows`).

        A line is source, tab, target, and optionally a tab and options; a CSV has no options. The target is a list of
        forms separated by |. If it is empty or `=`, the source is copied. A source that ends in * also matches words
        with endings. The source `-` lists targets that no translation may contain. Empty lines, lines that begin with
        #, and a header `source`, tab, `target` are skipped.

        A source with a capital matches only in its own case. Translations may have the forms in any case. The option
        `case` makes both case-sensitive, as for copies; only a capital at the beginning of a sentence is then accepted.

        Raises:
            DataError: the file cannot be read, is not UTF-8, has no entries, or has a line that is not valid; or the
                columns of a CSV may be separated by several marks.
        """
        glossary = Glossary.of(rows(Path(path), LONGEST_LINE), target_language, str(path), source_language, True)
        if not glossary.entries and not glossary.forbidden:
            raise DataError(f"{path}: no entries; a line is source, tab, target")
        return glossary

    @staticmethod
    def of(
        rows: Iterable[tuple[int, Sequence[str]]],
        target_language: str | None,
        name: str,
        source_language: str | None = None,
        checks_forms: bool = False,
    ) -> "Glossary":
        """Make a glossary from numbered lines of one to three columns; errors are those of `read`, with `name` for the
        file. `checks_forms` adds a problem for each form that is forbidden."""
        entries: dict[tuple[str, bool], Entry] = {}
        problems = _Problems()
        forbidden: dict[Forbidden, int] = {}  # and the line
        for number, columns in rows:
            source, target, options = (*map(written, columns), "", "", "")[:3]
            where = f"{name}: line {number}"
            forms = _checked(where, source, target, options)
            as_written = "case" in options
            if source == NEVER:
                for form in forms:
                    forbidden.setdefault(Forbidden(form, as_written), number)
            else:
                if len(columns) == 1 and _SEPARATOR.search(columns[0]):
                    problems.add("no tab", f"line {number}: no tab in {shown(source)}, so translations must copy it")
                elif len(columns) > 1 and not target:
                    why = f"no target for {shown(source)}, so translations must copy it; write = to say so"
                    problems.add("no target", f"line {number}: {why}")
                entry = _entry(source, forms, number, as_written)
                key = (entry.source if entry.as_written else folded(entry.source, source_language), entry.goes_on)
                if key in entries:
                    before = f"is already in line {entries[key].line}, which counts"
                    problems.add("repeated", f"line {number}: {shown(source)} {before}")
                entries.setdefault(key, entry)
            if len(entries) + len(forbidden) > MOST_ENTRIES:
                raise DataError(f"{name}: more than {MOST_ENTRIES:,} entries; split the glossary by subject")
        glossary = Glossary(list(entries.values()), target_language, (), list(forbidden), source_language)
        for line, form in ((one.line, form) for one in glossary.entries for form in one.forms if checks_forms):
            for words in glossary.said(form):
                problems.add("forbidden", f"line {line}: {shown(form)} contains what line {forbidden[words]} forbids")
        glossary.problems = tuple(problems.lines())
        return glossary

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """Source, target and options of each entry, in the form that `of` takes."""
        terms = (
            (
                entry.source + "*" * entry.goes_on,
                COPY if entry.is_copy else "|".join(entry.forms),
                "case" if entry.forms_as_written and not entry.is_copy else "",
            )
            for entry in self.entries
        )
        return (*terms, *((NEVER, one.words, "case" if one.as_written else "") for one in self.forbidden))

    def is_term(self, text: str) -> bool:
        """Whether a whole text is a term with another translation than itself."""
        return any(match.span == (0, len(text)) and not match.entry.is_copy for match in self.matches(text))

    def matches(self, text: str) -> list[Match]:
        """Return the terms in a text: whole words outside of addresses, without the possessive 's, the longest from the
        left, without overlaps."""
        source = Searchable(text, self.source_language, by_words=True)
        found, end = [], 0
        for begin in source.edges:
            if begin < end:
                continue
            candidates = [
                term
                for term in self._terms.at(source, begin)
                if _is_spelled(term, source) and not source.is_in_code(term.span)
            ]
            if candidates:
                entry, span, _, end = max(
                    candidates, key=lambda term: (term.end, term.item.as_written, -term.item.line)
                )
                takes_s = source.is_possessive(end) and language_code(self.target_language) in GENITIVES
                forms = _in_case(_with_genitives(entry) if takes_s else entry, source, span, self.target_language)
                in_compounds = self._in_compounds and not entry.forms_as_written
                found.append(Match(entry, span, forms, in_compounds, self.target_language))
        return found

    def said(self, text: str) -> dict[Forbidden, list[Span]]:
        """Return the forbidden words in a translation, and their places."""
        found: dict[Forbidden, list[Span]] = {}
        if self.forbidden:
            target = Searchable(text, self.target_language)
            for place in self._never.occurrences(target):
                if not place.item.as_written or target.is_spelled(place.item.words, place.span):
                    found.setdefault(place.item, []).append(place.span)
        return found

    def evades(self, text: str, free: str) -> bool:
        """Whether a translation hides a forbidden word in a longer word that the free translation lacks.

        A search that must not produce `Hund` may spell `Einhund` or `Derhunde`. The longer word begins with the
        forbidden word, in any case, or ends with it and at most `LONGEST_ENDING` letters. Short words, which are part
        of many others, and words that are forbidden in one spelling alone do not count.
        """
        if not self._hidden:
            return False
        known, new = (
            {folded(one[slice(*span)], self.target_language) for span in word_spans(one, ())} for one in (free, text)
        )
        return any(map(self._hides, new - known))

    def suppresses_longer(self, word: Forbidden, known: str) -> bool:
        """Whether a search should suppress longer words that begin with a forbidden word: those that would evade it,
        unless the text `known` has one."""
        own = folded(word.words, self.target_language)
        longer = (folded(known[slice(*span)], self.target_language) for span in word_spans(known, ()))
        return own in self._hidden and not any(one != own and one.startswith(own) for one in longer)

    def _hides(self, word: str) -> bool:
        begins = any(word[:end] in self._hidden for end in range(SHORTEST_IN_COMPOUND, len(word)))
        ends = range(max(len(word) - LONGEST_ENDING, 0), len(word) + 1)
        return begins or any(word[begin:end] in self._hidden for end in ends for begin in range(1, end))

    @cached_property
    def _hidden(self) -> frozenset[str]:
        """The forbidden words that longer words may hide."""
        words = (one.words for one in self.forbidden if not one.as_written and len(one.words) >= SHORTEST_IN_COMPOUND)
        return frozenset(folded(one, self.target_language) for one in words)


def occurrences(
    form: str, text: str, any_case: bool = True, in_compounds: bool = False, language: str | None = None
) -> list[Span]:
    """Return the spans of a translation that contain a form: whole words if the script has spaces, or ends of
    compounds."""
    return Searchable(text, language).occurrences(written(form), any_case, in_compounds)


def places(matches: Sequence[Match], text: str) -> list[Span | None]:
    """Return the span of each term in the text, or None; no two terms share a span."""
    found: list[Span | None] = []
    if not matches:
        return found
    target = Searchable(text, matches[0].language)
    taken = bytearray(len(text))
    waiting: dict[tuple[object, ...], Iterator[Span]] = {}
    for match in matches:
        terms = (match.forms, match.entry.forms_as_written, match.in_compounds)
        if terms not in waiting:
            found_spans = match.occurrences(target)
            waiting[terms] = iter(sorted(found_spans, key=lambda span: (_is_end_of_word(text, span), span)))
        # Taken spans stay taken, so a span that was skipped once need not be examined again.
        place = next((span for span in waiting[terms] if not any(taken[slice(*span)])), None)
        if place is not None:
            taken[slice(*place)] = b"\1" * (place[1] - place[0])
        found.append(place)
    return found


def _is_end_of_word(text: str, span: Span) -> bool:
    """Whether a span begins within a word of a script with spaces, as the end of a compound."""
    before = text[max(span[0] - 1, 0) : span[0]]
    return before.isalpha() and not has_unspaced(before)


def _checked(where: str, source: str, target: str, options: str) -> list[str]:
    """Return the forms of a target; raise DataError for a line that is not valid."""
    if not source:
        raise DataError(f"{where} has no source term; a line is source, tab, target")
    if unknown := [name for name in options.split(",") if name.strip() not in ("", *OPTIONS)]:
        raise DataError(f"{where}: {shown(unknown[0])} is not an option; the only one is 'case'")
    forms = list(dict.fromkeys(form.strip() for form in target.split("|") if form.strip()))
    if len(forms) > MOST_FORMS:
        raise DataError(f"{where}: {len(forms):,} forms; a term has at most {MOST_FORMS}")
    if max(map(len, (source, *forms))) > LONGEST_TERM:
        raise DataError(f"{where}: a term has more than {LONGEST_TERM} characters; a glossary has short ones")
    if source == NEVER and not forms:
        raise DataError(f"{where} forbids nothing; a line is -, tab, the words that no translation may contain")
    return forms


def _entry(source: str, forms: Sequence[str], line: int, has_option: bool) -> Entry:
    goes_on = source.endswith("*") and len(source) > 1
    source = source.removesuffix("*").rstrip() if goes_on else source
    is_copy = list(forms) in ([], [COPY])
    forms = () if is_copy else tuple(forms)
    is_exact = has_option or is_copy
    return Entry(source, forms or (source,), line, goes_on, is_exact or source != source.lower(), is_exact)


def _is_spelled(found: Occurrence[Entry], text: Searchable) -> bool:
    entry = found.item
    if not entry.as_written:
        return True
    return text.is_spelled(entry.source, found.span, entry.goes_on)


def _with_genitives(entry: Entry) -> Entry:
    """Return an entry whose forms may also end in s; the preferred one stays the first."""
    genitives = (f"{form}s" for form in entry.forms if form[-1:].isalpha() and form[-1:] not in "sxzß")
    return replace(entry, forms=tuple(dict.fromkeys((*entry.forms, *genitives))))


def _in_case(entry: Entry, source: Searchable, span: Span, language: str | None) -> tuple[str, ...]:
    """Return the forms of an entry in the case of its match: all capitals, or a capital first letter.

    A capital that only begins a sentence of the source is not applied, because the term may be elsewhere in the
    translation.
    """
    text = source.given[slice(*span)]
    if entry.as_written:
        return entry.forms
    if len(text) > 1 and text.isupper():
        return tuple(upper(form, language) for form in entry.forms)
    is_heading = _BEFORE_CAPITAL.match(source.given, span[0]) and source.language not in NOUNS_WITH_CAPITALS
    if not text[0].isupper() or (source.begins_sentence(span[0]) and not is_heading):
        return entry.forms
    return tuple(title(form, language) for form in entry.forms)


class _Problems:
    """Warnings about a file: the first ones of each kind, and the number of the others."""

    def __init__(self) -> None:
        self._kinds: dict[str, list[str]] = {}

    def add(self, kind: str, line: str) -> None:
        """Add a line."""
        self._kinds.setdefault(kind, []).append(line)

    def lines(self) -> list[str]:
        """Return all lines."""
        told = []
        for kind, lines in self._kinds.items():
            told += lines[:MOST_TOLD]
            if more := len(lines) - MOST_TOLD:
                told += [f"{counted(more, 'more line')}: {kind}"] * (more > 0)
        return told
