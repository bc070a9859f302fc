"""Glossaries: terms of a source language with the words that a translation has to have for them.

`Glossary.read` takes a TSV file (or a CSV as DeepL exports it); `inference.terms` makes translations keep to it; `s2s
glossary check` reports on it. Spans are in code points.
"""

import csv
import functools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seq2seq.errors import DataError, shown
from seq2seq.languages import language_code
from seq2seq.lines import read_lines
from seq2seq.text.scripts import has_unspaced
from seq2seq.text.words import Span, word_spans

HEADER = ("source", "target")
COPY, NEVER = "=", "-"
OPTIONS = ("case",)
LONGEST_TERM, MOST_ENTRIES = 200, 100_000
# Languages that write compounds as one word: "Gartenstuhl" has the term "Stuhl".
COMPOUNDING = frozenset({"de", "nl", "sv", "da", "no", "nb", "nn", "is", "fi", "et", "hu", "af", "lb", "fy"})
SHORTEST_IN_COMPOUND = 4


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

    def occurrences(self, text: str) -> list[Span]:
        """Where a translation says it."""
        return occurrences(self.words, text, not self.as_written)


@dataclass(frozen=True)
class Match:
    """An entry at a place of a source text."""

    entry: Entry
    span: Span
    forms: tuple[str, ...]
    """Those of the entry, in the case of the source text."""
    in_compounds: bool = False
    """A form counts at the end of a longer word too."""


class Glossary:
    """Entries in their order; of two with the same source the first one counts.

    Args:
        entries: the terms.
        target_language: whether terms are found in compounds depends on it.
        problems: what was left out when the file was read, a line each.
        forbidden: what no translation may say.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        target_language: str | None = None,
        problems: Sequence[str] = (),
        forbidden: Sequence["Forbidden"] = (),
    ):
        self.entries, self.problems, self.forbidden = tuple(entries), tuple(problems), tuple(forbidden)
        self._in_compounds = target_language is not None and language_code(target_language) in COMPOUNDING
        self._first_words: dict[str, list[tuple[Entry, list[str]]]] = defaultdict(list)
        self._beginnings: list[tuple[Entry, str]] = []
        self._unspaced: list[Entry] = []
        for entry in self.entries:
            words = [entry.source[begin:end].casefold() for begin, end in word_spans(entry.source, ())]
            if has_unspaced(entry.source):
                self._unspaced.append(entry)
            elif entry.goes_on and len(words) == 1:
                self._beginnings.append((entry, words[0]))
            else:
                self._first_words[words[0]].append((entry, words))

    @staticmethod
    def read(path: Path, target_language: str | None = None) -> "Glossary":
        """Read a glossary.

        A line is source, tab, target, and perhaps a tab and options. Targets are forms with | between them, `=` or
        nothing for a copy of the source; a source that ends in * may go on. The source `-` is for targets that no
        translation may say. The option `case` is for terms that match as they are written, as sources with capitals do.
        Empty lines and those that begin with # are left out; so is a header `source`, tab, `target`.

        Raises:
            DataError: the file cannot be read, or a line is not as described.
        """
        return Glossary.of(_rows(path), target_language, str(path))

    @staticmethod
    def of(rows: Iterable[tuple[int, Sequence[str]]], target_language: str | None, name: str) -> "Glossary":
        """From numbered lines of two or three columns; raises as `read`, with `name` for the file."""
        entries: dict[tuple[str, bool], Entry] = {}
        problems: list[str] = []
        forbidden: list[Forbidden] = []
        for number, columns in rows:
            source, target, options = (*columns, "", "", "")[:3]
            where = f"{name}: line {number}"
            if not source:
                raise DataError(f"{where} has no source term; a line is source, tab, target")
            if unknown := [name for name in options.split(",") if name.strip() not in ("", *OPTIONS)]:
                raise DataError(f"{where}: {shown(unknown[0])} is no option; there is only 'case'")
            if max(map(len, (source, *target.split("|")))) > LONGEST_TERM:
                raise DataError(f"{where}: a term has more than {LONGEST_TERM} characters; a glossary has short ones")
            if source == NEVER:
                words = [form.strip() for form in target.split("|") if word_spans(form, ())]
                if not words:
                    raise DataError(f"{where} forbids nothing; a line is -, tab, the words that no translation may say")
                forbidden += [Forbidden(one, "case" in options) for one in words]
                continue
            entry = _entry(source, target, number, "case" in options)
            if not word_spans(entry.source, ()):
                raise DataError(f"{where} has no source term; a line is source, tab, target")
            key = (entry.source if entry.as_written else entry.source.casefold(), entry.goes_on)
            if key in entries:
                problems.append(f"line {number}: {shown(source)} stands in line {entries[key].line}, which counts")
            entries.setdefault(key, entry)
        if len(entries) + len(forbidden) > MOST_ENTRIES:
            raise DataError(f"{name}: more than {MOST_ENTRIES:,} entries; split the glossary by subject")
        return Glossary(list(entries.values()), target_language, problems, list(dict.fromkeys(forbidden)))

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
        words = word_spans(text, ())
        folded = [text[begin:end].casefold() for begin, end in words]
        found, end = [], 0
        for index, (begin, _) in enumerate(words):
            if begin < end:
                continue
            spans = [(entry, (begin, words[last][1])) for entry, last in self._starting(folded, index)]
            spans = [(entry, span) for entry, span in spans if _is_spelled(entry, text[slice(*span)])]
            if spans:
                entry, span = max(spans, key=lambda one: (one[1][1], one[0].as_written, -one[0].line))
                forms = tuple(_in_case(form, text[slice(*span)], entry) for form in entry.forms)
                found.append(Match(entry, span, forms, self._in_compounds and not entry.as_written))
                end = span[1]
        return sorted([*found, *self._unspaced_matches(text, found)], key=lambda match: match.span)

    def _starting(self, words: Sequence[str], index: int) -> Iterator[tuple[Entry, int]]:
        """The entries that begin at a word, and the last word of each."""
        for entry, own in self._first_words.get(words[index], ()):
            here = words[index : index + len(own)]
            goes_on = entry.goes_on and len(here) == len(own) and here[-1].startswith(own[-1]) and here[:-1] == own[:-1]
            if here == own or goes_on:
                yield entry, index + len(own) - 1
        for entry, beginning in self._beginnings:
            if words[index].startswith(beginning):
                yield entry, index

    def _unspaced_matches(self, text: str, taken: Sequence[Match]) -> Iterator[Match]:
        used = [match.span for match in taken]
        for entry in sorted(self._unspaced, key=lambda entry: -len(entry.source)):
            for found in re.finditer(re.escape(entry.source), text):
                if all(found.end() <= begin or end <= found.start() for begin, end in used):
                    used.append(found.span())
                    yield Match(entry, found.span(), entry.forms)


def occurrences(form: str, text: str, any_case: bool = True, in_compounds: bool = False) -> list[Span]:
    """Where a translation has a form: as whole words where the script has spaces, or at the end of a compound."""
    return [found.span() for found in _pattern(form, any_case, in_compounds).finditer(text)]


@functools.lru_cache(maxsize=MOST_ENTRIES)
def _pattern(form: str, any_case: bool, in_compounds: bool) -> re.Pattern[str]:
    first, last = ("" if has_unspaced(end) or not end.isalnum() else r"\b" for end in (form[0], form[-1]))
    if in_compounds and len(form) >= SHORTEST_IN_COMPOUND:
        first = ""
    pattern = first + r"\s+".join(map(re.escape, form.split())) + last
    return re.compile(pattern, re.IGNORECASE if any_case else 0)


def places(matches: Sequence[Match], text: str) -> list[Span | None]:
    """Where the text has each term; no place is that of two."""
    taken: set[Span] = set()
    found: list[Span | None] = []
    for match in matches:
        free = [
            span
            for form in match.forms
            for span in occurrences(form, text, not match.entry.as_written, match.in_compounds)
            if all(span[1] <= begin or end <= span[0] for begin, end in taken)
        ]
        found.append(min(free, default=None))
        taken.update(free and [min(free)])
    return found


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The columns of each line that has any, and its number."""
    for number, line in enumerate(read_lines(path), start=1):
        text = unicodedata.normalize("NFC", line)
        if not text.strip() or text.startswith("#"):
            continue
        columns = next(csv.reader([text])) if path.name.endswith((".csv", ".csv.gz")) else text.split("\t")
        columns = [" ".join(column.split()) for column in columns]
        if path.name.endswith((".csv", ".csv.gz")):
            columns = columns[:2]  # DeepL's further columns are languages
        if number > 1 or tuple(column.casefold() for column in columns[:2]) != HEADER:
            yield number, columns


def _entry(source: str, target: str, line: int, as_written: bool) -> Entry:
    goes_on = source.endswith("*") and len(source) > 1
    source = source.removesuffix("*").rstrip() if goes_on else source
    is_copy = target in ("", COPY)
    forms = (source,) if is_copy else tuple(form.strip() for form in target.split("|") if form.strip())
    return Entry(source, forms or (source,), line, goes_on, as_written or is_copy or source != source.lower())


def _is_spelled(entry: Entry, text: str) -> bool:
    if not entry.as_written:
        return True
    written = " ".join(text.split())
    return written.startswith(entry.source) if entry.goes_on else written == entry.source


def _in_case(form: str, text: str, entry: Entry) -> str:
    """A form in the case of the source text: capitals throughout, or the first letter."""
    if entry.as_written:
        return form
    if len(text) > 1 and text.isupper():
        return form.upper()
    return form[0].upper() + form[1:] if text[0].isupper() else form
