"""Glossaries: terms of a source language with the words that a translation has to have for them.

`Glossary.read` takes a TSV file (or a CSV as DeepL exports it); `inference.terms` makes translations keep to it; `s2s
glossary check` reports on it. Spans are in code points.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from seq2seq.errors import DataError, counted, shown
from seq2seq.languages import language_code
from seq2seq.lines import read_lines
from seq2seq.text.scripts import folded, title, upper
from seq2seq.text.terms import Found, Searchable, TermIndex, written
from seq2seq.text.words import Span

HEADER = ("source", "target")
COPY, NEVER = "=", "-"
OPTIONS = ("case",)
LONGEST_TERM, MOST_FORMS, MOST_ENTRIES = 200, 50, 100_000
LONGEST_LINE = 2 * MOST_FORMS * LONGEST_TERM
# Problems of one kind that are told one by one.
MOST_TOLD = 10
# Languages that write compounds as one word: "Gartenstuhl" has the term "Stuhl".
COMPOUNDING = frozenset({"de", "nl", "sv", "da", "no", "nb", "nn", "is", "fi", "et", "hu", "af", "lb", "fy"})
# What separates columns in files of other forms, and words.
_SEPARATOR = re.compile(r"[\s,;=|]")


@dataclass(frozen=True)
class Entry:
    """One term."""

    source: str
    forms: tuple[str, ...]
    """What a translation may say for it, the preferred one first."""
    line: int
    """Of the file, from 1."""
    goes_on: bool = False
    """The last source word may have an ending (`invoice*`)."""
    as_written: bool = False
    """It matches in this spelling alone; others match in any case, which is carried over."""


@dataclass(frozen=True)
class Forbidden:
    """A word or words that no translation may say."""

    words: str
    as_written: bool = False
    """In this spelling alone; others are forbidden in any case."""


@dataclass(frozen=True)
class Match:
    """An entry at a place of a source text."""

    entry: Entry
    span: Span
    forms: tuple[str, ...]
    """Those of the entry, in the case of the source text."""
    in_compounds: bool = False
    """A form counts at the end of a longer word too."""
    language: str | None = None
    """That of the forms."""

    def occurrences(self, text: Searchable) -> list[Span]:
        """Where a translation has one of the forms."""
        any_case = not self.entry.as_written
        return [span for form in self.forms for span in text.occurrences(form, any_case, self.in_compounds)]


class Glossary:
    """Entries in their order; of two with the same source the first one counts.

    Args:
        entries: the terms.
        target_language: whether terms are found in compounds depends on it, and the case of letters.
        problems: what was left out or is doubtful in the file, a line each.
        forbidden: what no translation may say.
        source_language: the case of letters depends on it.
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
        for one in self.forbidden:
            self._never.add(one.words, one)

    @staticmethod
    def read(path: Path, target_language: str | None = None, source_language: str | None = None) -> "Glossary":
        """Read a glossary.

        A line is source, tab, target, and perhaps a tab and options. Targets are forms with | between them, `=` or
        nothing for a copy of the source; a source that ends in * may go on. The source `-` is for targets that no
        translation may say. The option `case` is for terms that match as they are written, as sources with capitals do.
        Empty lines and those that begin with # are left out; so is a header `source`, tab, `target`.

        Raises:
            DataError: the file cannot be read, is not UTF-8, has no entries, or a line is not as described.
        """
        glossary = Glossary.of(_rows(path), target_language, str(path), source_language)
        if not glossary.entries and not glossary.forbidden:
            raise DataError(f"{path}: no entries; a line is source, tab, target")
        return glossary

    @staticmethod
    def of(
        rows: Iterable[tuple[int, Sequence[str]]],
        target_language: str | None,
        name: str,
        source_language: str | None = None,
    ) -> "Glossary":
        """From numbered lines of one to three columns; raises as `read`, with `name` for the file."""
        entries: dict[tuple[str, bool], Entry] = {}
        problems = _Problems()
        forbidden: dict[Forbidden, None] = {}
        for number, columns in rows:
            source, target, options = (*map(written, columns), "", "", "")[:3]
            where = f"{name}: line {number}"
            forms = _checked(where, source, target, options)
            as_written = "case" in options
            if source == NEVER:
                forbidden |= dict.fromkeys(Forbidden(form, as_written) for form in forms)
            else:
                if len(columns) == 1 and _SEPARATOR.search(columns[0]):
                    problems.add("no tab", f"line {number}: no tab in {shown(source)}, so translations must copy it")
                entry = _entry(source, target, forms, number, as_written)
                key = (entry.source if entry.as_written else folded(entry.source, source_language), entry.goes_on)
                if key in entries:
                    before = f"is already in line {entries[key].line}, which counts"
                    problems.add("repeated", f"line {number}: {shown(source)} {before}")
                entries.setdefault(key, entry)
            if len(entries) + len(forbidden) > MOST_ENTRIES:
                raise DataError(f"{name}: more than {MOST_ENTRIES:,} entries; split the glossary by subject")
        return Glossary(list(entries.values()), target_language, problems.lines(), list(forbidden), source_language)

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """Source, target and options of each entry, as `of` takes them."""
        terms = (
            (entry.source + "*" * entry.goes_on, "|".join(entry.forms), "case" if entry.as_written else "")
            for entry in self.entries
        )
        return (*terms, *((NEVER, one.words, "case" if one.as_written else "") for one in self.forbidden))

    def matches(self, text: str) -> list[Match]:
        """The terms in a text: whole words, the longest from the left, none over another."""
        source = Searchable(text, self.source_language, by_words=True)
        found, end = [], 0
        for begin in source.edges:
            if begin < end:
                continue
            here = [one for one in self._terms.at(source, begin) if _is_spelled(one, source)]
            if here:
                entry, span, _, end = max(here, key=lambda one: (one.end, one.item.as_written, -one.item.line))
                forms = tuple(_in_case(form, text[slice(*span)], entry, self.target_language) for form in entry.forms)
                in_compounds = self._in_compounds and not entry.as_written
                found.append(Match(entry, span, forms, in_compounds, self.target_language))
        return found

    def said(self, text: str) -> dict[Forbidden, list[Span]]:
        """Return the forbidden words in a translation, and their places."""
        found: dict[Forbidden, list[Span]] = {}
        if self.forbidden:
            target = Searchable(text, self.target_language)
            for one in self._never.occurrences(target):
                if not one.item.as_written or target.is_spelled(one.item.words, one.span):
                    found.setdefault(one.item, []).append(one.span)
        return found


def occurrences(
    form: str, text: str, any_case: bool = True, in_compounds: bool = False, language: str | None = None
) -> list[Span]:
    """Where a translation has a form: as whole words where the script has spaces, or at the end of a compound."""
    return Searchable(text, language).occurrences(written(form), any_case, in_compounds)


def places(matches: Sequence[Match], text: str) -> list[Span | None]:
    """Where the text has each term; no place is that of two."""
    found: list[Span | None] = []
    if not matches:
        return found
    target = Searchable(text, matches[0].language)
    taken = bytearray(len(text))
    waiting: dict[tuple[object, ...], Iterator[Span]] = {}
    for match in matches:
        terms = (match.forms, match.entry.as_written, match.in_compounds)
        if terms not in waiting:
            waiting[terms] = iter(sorted(match.occurrences(target)))
        # What is taken stays so: spans that were passed once are not looked at again.
        place = next((span for span in waiting[terms] if not any(taken[slice(*span)])), None)
        if place is not None:
            taken[slice(*place)] = b"\1" * (place[1] - place[0])
        found.append(place)
    return found


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The columns of each line that has any, and its number."""

    def refuse(number: int) -> NoReturn:
        raise DataError(
            f"{path}: line {number} is not UTF-8; convert the file from its encoding, for example "
            f"iconv -f WINDOWS-1252 -t UTF-8 {path} > utf8.tsv"
        )

    is_csv, is_first = path.name.endswith((".csv", ".csv.gz")), True
    for number, text in enumerate(read_lines(path, refuse), start=1):
        if "\0" in text:
            raise DataError(
                f"{path}: line {number} has zero bytes; if it is UTF-16: iconv -f UTF-16 -t UTF-8 {path} > utf8.tsv"
            )
        if "\r" in text:
            raise DataError(f"{path}: line {number} has carriage returns; make them line ends (tr '\\r' '\\n')")
        if len(text) > LONGEST_LINE:
            raise DataError(f"{path}: line {number} has more than {LONGEST_LINE:,} characters; a line is one term")
        if not text.strip() or text.startswith("#"):
            continue
        columns = next(csv.reader([text])) if is_csv else text.split("\t")
        if is_csv:
            columns = columns[:2]  # DeepL's further columns are languages
        if not is_first or tuple(column.strip().casefold() for column in columns[:2]) != HEADER:
            yield number, columns
        is_first = False


def _checked(where: str, source: str, target: str, options: str) -> list[str]:
    """The forms of a target; raises DataError for a line that is not as described."""
    if not source:
        raise DataError(f"{where} has no source term; a line is source, tab, target")
    if unknown := [name for name in options.split(",") if name.strip() not in ("", *OPTIONS)]:
        raise DataError(f"{where}: {shown(unknown[0])} is no option; there is only 'case'")
    forms = list(dict.fromkeys(form.strip() for form in target.split("|") if form.strip()))
    if len(forms) > MOST_FORMS:
        raise DataError(f"{where}: {len(forms):,} forms; a term has at most {MOST_FORMS}")
    if max(map(len, (source, *forms))) > LONGEST_TERM:
        raise DataError(f"{where}: a term has more than {LONGEST_TERM} characters; a glossary has short ones")
    if source == NEVER and not forms:
        raise DataError(f"{where} forbids nothing; a line is -, tab, the words that no translation may say")
    return forms


def _entry(source: str, target: str, forms: Sequence[str], line: int, as_written: bool) -> Entry:
    goes_on = source.endswith("*") and len(source) > 1
    source = source.removesuffix("*").rstrip() if goes_on else source
    is_copy = target in ("", COPY)
    forms = () if is_copy else tuple(forms)
    return Entry(source, forms or (source,), line, goes_on, as_written or is_copy or source != source.lower())


def _is_spelled(one: Found[Entry], text: Searchable) -> bool:
    entry = one.item
    if not entry.as_written:
        return True
    if entry.goes_on:
        return written(text.given[slice(*one.span)]).startswith(entry.source)
    return text.is_spelled(entry.source, one.span)


def _in_case(form: str, text: str, entry: Entry, language: str | None) -> str:
    """A form in the case of the source text: capitals throughout, or the first letter."""
    if entry.as_written:
        return form
    if len(text) > 1 and text.isupper():
        return upper(form, language)
    return title(form, language) if text[0].isupper() else form


class _Problems:
    """Lines about a file: the first ones of each kind, and how many more there are."""

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
