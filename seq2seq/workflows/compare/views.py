"""Views of a comparison: where systems differ, by kinds of sentences and by what happens to numbers, names and lines.

`comparison` asks `views` for all of them. A value is a score or a share of each row; None where nothing was measured.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from seq2seq.evaluation.text import Score
from seq2seq.text.words import character_spans, numbers_of, word_spans
from seq2seq.workflows.compare.systems import Row, System

MOST_TRAINING_LINES = 1_000_000  # in which words are counted
LENGTHS = ((1, 5), (6, 10), (11, 20), (21, 40), (41, None))
COUNTS = ((0, 0), (1, 4), (5, 19), (20, 99), (100, None))
CHRF, PERCENT, LINES = "chrF", "%", "lines"


@dataclass(frozen=True)
class Bucket:
    """One line of a view."""

    label: str
    count: int
    """The number of sentences, or of numbers and names."""
    values: Mapping[str, float | None]
    """By row."""


@dataclass(frozen=True)
class View:
    """One table of values by row."""

    title: str
    unit: str
    """`chrF`, `%` or `lines`."""
    counted: str
    """The things that are counted in its buckets."""
    buckets: list[Bucket]
    note: str = ""


@dataclass(frozen=True)
class Lines:
    """The material of views: rows with their translations, and the test set."""

    rows: Sequence[Row]
    references: Sequence[str]
    sources: Sequence[str]
    """Empty where they are not known."""
    training_counts: Mapping[str, int] | None = None
    training_note: str = ""

    def means(self, measure: Callable[[System], float | None]) -> dict[str, float | None]:
        """Return, by row, the mean of a measure over its trainings."""
        found: dict[str, float | None] = {}
        for row in self.rows:
            values = [measure(member) for member in row.members]
            known = [value for value in values if value is not None]
            found[row.name] = float(np.mean(known)) if len(known) == len(values) else None
        return found


def views(lines: Lines, scores: Mapping[str, Sequence[Score]]) -> list[View]:
    """Return all views that can be made of what is known; those without a line are left out.

    Args:
        lines: translations and test set.
        scores: by row, chrF of each training.
    """
    side, name = (lines.sources, "source") if lines.sources else (lines.references, "reference")
    found = [_by_number(f"chrF by the number of words of the {name}", list(map(num_words, side)), LENGTHS, scores)]
    if lines.training_counts is not None and lines.sources:
        counts = lines.training_counts
        rarest = [min((counts.get(word, 0) for word in words_of(text)), default=None) for text in lines.sources]
        title = "chrF by the occurrences in the training data of the rarest word of the source"
        found.append(_by_number(title, rarest, COUNTS, scores, lines.training_note))
    found += [_kept(lines), _line_kinds(lines)]
    return [view for view in found if view.buckets]


def words_of(text: str) -> list[str]:
    """Return the words of a text that have a letter, without letter case; in scripts without spaces each character."""
    spans = word_spans(text, character_spans(text))
    return [word.casefold() for begin, end in spans if any(map(str.isalpha, word := text[begin:end]))]


def count_words(texts: Iterable[str], wanted: Iterable[str]) -> Counter[str]:
    """How often the words of `wanted` texts occur in `texts`."""
    known = {word for text in wanted for word in words_of(text)}
    return Counter(word for text in texts for word in words_of(text) if word in known)


def count_training_words(corpora: Sequence[Iterator[str]], wanted: Iterable[str]) -> tuple[Counter[str], str]:
    """Return how often the words of `wanted` texts occur in the corpora of a training, and a note, empty if all lines
    were read: of large corpora, an equal number of the first lines of each counts.
    """
    share = MOST_TRAINING_LINES // max(len(corpora), 1)
    counts = count_words(chain.from_iterable(islice(corpus, share) for corpus in corpora), wanted)
    has_more = [corpus for corpus in corpora if next(corpus, None) is not None]
    return counts, f"Counted in the first {share:,} lines of each training corpus." if has_more else ""


def num_words(text: str) -> int:
    """Words and numbers, without punctuation; characters in scripts without spaces."""
    return sum(any(map(str.isalnum, text[begin:end])) for begin, end in word_spans(text, character_spans(text)))


def _by_number(
    title: str,
    numbers: Sequence[int | None],
    ranges: Sequence[tuple[int, int | None]],
    scores: Mapping[str, Sequence[Score]],
    note: str = "",
) -> View:
    """chrF of the lines whose number is in each range."""
    buckets = []
    for least, most in ranges:
        own = [
            line
            for line, number in enumerate(numbers)
            if number is not None and number >= least and (most is None or number <= most)
        ]
        if own:
            label = f"{least} or more" if most is None else str(least) if least == most else f"{least} to {most}"
            values = {row: float(np.mean([score.of_lines(own) for score in each])) for row, each in scores.items()}
            buckets.append(Bucket(label, len(own), values))
    return View(title, CHRF, "lines", buckets, note)


def _kept(lines: Lines) -> View:
    """Return which share of the numbers and names that the reference copies from the source each row has."""
    buckets = []
    for label, items_of in (("numbers", numbers_of), ("names", names_of)):
        expected = [
            items_of(source) & _contained(items_of, source, reference)
            for source, reference in zip(lines.sources, lines.references, strict=False)
        ]
        if total := sum(map(Counter.total, expected)):

            def share(system: System, items_of: Any = items_of, expected: Any = expected, total: int = total) -> float:
                pairs = zip(expected, lines.sources, system.translations, strict=True)
                kept = sum((own & _contained(items_of, source, text)).total() for own, source, text in pairs)
                return 100 * kept / total

            buckets.append(Bucket(label, total, lines.means(share)))
    length = sum(map(len, lines.references))

    def relative_length(system: System) -> float:
        return 100 * sum(map(len, system.translations)) / length

    if length:
        buckets.append(Bucket("length of the reference, in characters", length, lines.means(relative_length)))
    note = "Counted are the numbers, and the words with a capital after the first word, that the reference copies."
    return View("Kept in the translation, %", PERCENT, "count", buckets, note if lines.sources else "")


def names_of(text: str) -> Counter[str]:
    """Return the words of a text that begin with a capital, without its first word."""
    words = [text[begin:end] for begin, end in word_spans(text, ())]
    first = next((place for place, word in enumerate(words) if word[0].isalnum()), 0)
    return Counter(word for word in words[first + 1 :] if word[0].isupper() and word.isalpha())


def _contained(items_of: Callable[[str], Counter[str]], source: str, text: str) -> Counter[str]:
    """Return the items of the source that a text has, at any place."""
    if items_of is numbers_of:
        return numbers_of(text)
    return Counter(text[begin:end] for begin, end in word_spans(text, ()))


def _line_kinds(lines: Lines) -> View:
    """Return how many lines are copies, empty or flagged, or begin in another letter case than the reference."""
    buckets = []
    total = len(lines.references)
    if lines.sources:

        def copies(system: System) -> float:
            triples = zip(system.translations, lines.sources, lines.references, strict=True)
            return sum(text.split() == source.split() != reference.split() for text, source, reference in triples)

        buckets.append(Bucket("copies of the source", total, lines.means(copies)))

    def empty(system: System) -> float:
        return sum(not text.strip() and bool(reference.strip()) for text, reference in _with_references(system, lines))

    def other_case(system: System) -> float:
        return sum(_case(text) * _case(reference) < 0 for text, reference in _with_references(system, lines))

    buckets.append(Bucket("empty", total, lines.means(empty)))
    buckets.append(Bucket("first letter in another case than the reference", total, lines.means(other_case)))
    flags = {flag for row in lines.rows for member in row.members for own in member.flags or () for flag in own}
    for flag in sorted(flags):

        def flagged(system: System, flag: str = flag) -> float | None:
            return None if system.flags is None else sum(flag in own for own in system.flags)

        buckets.append(Bucket(f"flag {flag}", total, lines.means(flagged)))
    return View("Number of lines", LINES, "of", buckets)


def _with_references(system: System, lines: Lines) -> Iterable[tuple[str, str]]:
    return zip(system.translations, lines.references, strict=True)


def _case(text: str) -> int:
    """Return 1 for a text whose first letter is a capital, -1 for a small one, 0 for neither."""
    letter = next(filter(str.isalpha, text), "")
    return 1 if letter.isupper() else -1 if letter.islower() else 0
