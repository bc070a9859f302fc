"""Columns of tables, JSON objects and datasets: the choice of the two that make an example, and recognition of headers.

`sources` makes `Columns` from the config; `tables` and `hub` make examples with them. `check` also reads headers.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.values import as_label, displayed_labels
from seq2seq.data.examples import Example, LabelledText, Pair
from seq2seq.errors import DataError, did_you_mean, kind_of, shown, some_of
from seq2seq.languages import LANGUAGE_NAMES, known_language, languages_named
from seq2seq.lines import as_one_line

TEXT_COLUMNS = ("sentence", "text")
LABEL_COLUMN, PROBABILITIES = "label", "probabilities"
_ANSWER = {LABEL_COLUMN, "probability", PROBABILITIES}  # as `s2s classify --format jsonl` writes it
NESTED = "translation"
"""Column, or key of a JSON object, that holds both sides by language."""

LABEL_WORDS = {
    "label", "labels", "class", "category", "sentiment", "polarity", "rating", "stars", "score", "topic", "intent",
    "target", "gold", "emotion",
}  # fmt: skip
_TEXT_WORDS = {
    "source", "src", "target", "tgt", "trg", "input", "output", "text", "texts", "sentence", "sentences", "sentence1",
    "sentence2", "original", "translation", "source_text", "target_text", "source_language", "target_language",
    "review", "reviews", "comment", "document", "tweet", "utterance", "message", "reference", "hypothesis", "id", "idx",
    "index", "seg", "segment", "quelle", "ziel", "quelltext", "zieltext", "ausgangstext",
}  # fmt: skip
_MOST_LABELS = 20  # allowed in any corpus, even with few examples of each
_ROUNDING = 0.02  # maximum deviation of the sum of probabilities from 1, such as three times 0.33


@dataclass(frozen=True)
class Columns:
    """The two columns of an example: those that the config names, else the first of `defaults` that is present."""

    kind: type[Example]
    keys: tuple[str, str]
    """Keys of the config that name the columns."""
    given: tuple[str | int | None, str | int | None]
    defaults: tuple[tuple[str, ...], tuple[str, ...]]
    called: Mapping[str, str] = field(default_factory=dict)
    """Labels by their names in answers, for labels with such a name (`data.label_names`)."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels by their names in the label column: all labels if it contains probabilities, else those named otherwise in
    answers."""
    is_soft: bool = False
    """Whether the label column contains probabilities of labels."""

    def for_record(self, record: Mapping[str, Any], origin: str) -> "Columns | None":
        """Return the columns of a source with records like this one, with `labels` and `is_soft`.

        A column `label` beside probabilities has the names that the probabilities have. The result is None if the
        object of probabilities is empty, as for a blank line.

        Raises:
            DataError: two names mean the same label, or a name may mean two.
        """
        column = probability_column(record) if self.given[1] is None else self.given[1]
        is_soft = isinstance(record.get(column), dict)
        named = PROBABILITIES if column == LABEL_COLUMN and not is_soft else column
        names = record.get(named)
        if self.kind is not LabelledText or not isinstance(names, dict):
            return self
        if not names:
            return None
        found = list(map(as_one_line, names))
        try:
            called = self._names_of(set(found), record.keys() >= _ANSWER)
            labels = dict(zip(names, displayed_labels(found, called), strict=True))
        except ValueError as error:
            raise DataError(f"{origin}: {named}: {error}") from error
        if not is_soft:  # labels of the data have no entry, so that the fingerprint of a source with them stays
            return replace(self, labels={name: label for name, label in labels.items() if name != label})
        return replace(self, given=(self.given[0], column), labels=labels, is_soft=True)

    def _names_of(self, found: set[str], is_answer: bool) -> Mapping[str, str]:
        """Return `called` if the names of probabilities are those in answers, and nothing if they are labels.

        Raises:
            ValueError: the names, taken together, may be either.
        """
        known = set(self.called.values())
        unclear = [name for name, label in self.called.items() if name != label and name in known & found]
        are_labels, are_answers = known <= found, self.called.keys() <= found
        if not unclear or (are_answers and (is_answer or not are_labels)):
            return self.called
        if are_labels and not are_answers:
            return {}
        both = f"{shown(unclear[0])} is a label of the data and the name of another in answers (data.label_names)"
        if not are_labels:
            raise ValueError(f"{both}; write the probability of every label, by its name in the data or in answers")
        fields = "label and probability beside them, as s2s classify does"
        raise ValueError(f"{both}; if these are answers, write {fields}; if not, choose names that no label has")

    def choose(self, present: Sequence[str], origin: str) -> tuple[str, ...]:
        """Return the names of both columns among `present`.

        Raises:
            DataError: one is missing, or several columns are variants of its language.
        """
        chosen = []
        for key, given, defaults in zip(self.keys, self.given, self.defaults, strict=True):
            if isinstance(given, int):
                problem = f"column {given} is a number, but the columns here have names: {listed(present)}"
                raise DataError(f"{origin}: {problem}")
            wanted = (given,) if given is not None else defaults
            found = [name for name in wanted if name in present]
            if not found and given is None:
                found = [head for name in defaults for head in heads_of(name, present)]
            if len(found) > 1 and self.kind is Pair:
                problem = f"several columns mean {listed(wanted)}: {listed(found)}"
                raise DataError(f"{origin}: {problem}; name one in the config ({key})")
            if not found:
                hint = did_you_mean(wanted[0], present) or f"; name the column in the config ({key})"
                raise DataError(f"{origin}: no column {listed(wanted, ' or ')}; it has {listed(present)}{hint}")
            chosen.append(found[0])
        return tuple(chosen)

    def are_in(self, present: Sequence[str]) -> bool:
        """Whether `present` contains default columns: one under its exact name, or both under other names."""
        found = [any(is_called(head, name) for name in names for head in present) for names in self.defaults]
        return all(found) or any(name in present for names in self.defaults for name in names)

    def example(self, names: Sequence[str], values: Sequence[Any], origin: str) -> Example | None:
        """Return the example of two values; None for a blank text with a blank label.

        Raises:
            DataError: a text is not text, a finite number, a boolean or null; or the label of a text is not one of the
                first three. With `is_soft`, the label must be an object with the probability of each label, at least 0,
                and the sum must be 1 except for rounding.
        """
        values = [None if is_missing(value) else value for value in values]
        if self.is_soft:
            text = as_one_line(_text("" if values[0] is None else values[0], f"{origin}: {names[0]}"))
            return self._with_probabilities(text, values[1], f"{origin}: {names[1]}")
        # null is an empty side, which the filters drop and count, but no label
        needs_label = self.kind is LabelledText and values[0] is not None and str(values[0]).strip()
        nulls = ("", None if needs_label else "")
        values = [null if value is None else value for value, null in zip(values, nulls, strict=True)]
        both = zip(names, values, strict=True)
        return self.of_texts([_text(value, f"{origin}: {name}") for name, value in both], origin)

    def of_texts(self, texts: Sequence[str], origin: str) -> Example | None:
        """Return the example of two texts; None for a blank text with a blank label.

        Raises:
            DataError: the label of a text is blank, or holds a control character.
        """
        first, second = map(as_one_line, texts)
        if self.kind is Pair:
            return Pair(first, second)
        if not first.strip() and not second.strip():
            return None
        label = self.labels.get(second, second)
        if first.strip() and (fault := _label_fault(label)):
            raise DataError(f"{origin}: {fault}")
        return LabelledText(first, label)

    def _with_probabilities(self, text: str, found: Any, origin: str) -> LabelledText | None:
        # classifiers give a blank line no probabilities, which a dataset stores as nulls
        if not text.strip() and (not found or (isinstance(found, dict) and all(map(is_missing, found.values())))):
            return None
        if not isinstance(found, dict):
            raise DataError(f"{origin}: {kind_of(found)} instead of an object with probabilities of labels")
        for name in found:
            if name not in self.labels:
                hint = did_you_mean(name, self.labels) or "; every text has the same labels"
                raise DataError(f"{origin}: unknown label {shown(name)}; it has {some_of(list(self.labels))}{hint}")
        for name in self.labels:
            if name not in found:
                raise DataError(f"{origin}: no probability of {shown(name)}; write 0 where it is impossible")
            value = found[name]
            if type(value) not in (int, float) or not 0 <= value <= 1 + _ROUNDING:
                raise DataError(f"{origin}: {name}: {shown(value)} is not a probability; write a number from 0 to 1")
        total = sum(found.values())
        if abs(total - 1) > _ROUNDING:
            raise DataError(f"{origin}: the probabilities add up to {total:.4g} instead of 1; correct them")
        shares = {label: found[name] / total for name, label in self.labels.items()}
        return LabelledText(text, max(sorted(shares), key=shares.__getitem__), shares)


def pair_columns(config: SourceConfig, source_language: str, target_language: str) -> Columns:
    """Return the columns of sentence pairs."""
    given = (config.source_column, config.target_column)
    return Columns(Pair, ("source_column", "target_column"), given, ((source_language,), (target_language,)))


def label_columns(config: SourceConfig, label_names: Mapping[str, str]) -> Columns:
    """Return the columns of labelled texts."""
    given, called = (config.text_column, config.label_column), {name: label for label, name in label_names.items()}
    return Columns(LabelledText, ("text_column", "label_column"), given, (TEXT_COLUMNS, (LABEL_COLUMN,)), called)


def probability_column(record: Mapping[str, Any]) -> str | None:
    """Return the default column that contains an object of probabilities; None if a record has a plain label."""
    return next((name for name in (PROBABILITIES, LABEL_COLUMN) if isinstance(record.get(name), dict)), None)


def is_called(head: str, name: str) -> bool:
    """Whether a column's header `head` means `name`; a language matches under any of its names and codes."""
    head, name = head.strip().casefold(), name.casefold()
    language = known_language(head)
    return bool(head) and (head == name or (language is not None and language == known_language(name)))


def heads_of(name: str, present: Sequence[str]) -> list[str]:
    """Return the headers that mean `name`; of variants of a language, those that `languages_named` chooses."""
    found = [head for head in present if is_called(head, name)]
    return languages_named(name, found) if known_language(name) else found


def looks_like_header(fields: Sequence[str]) -> bool:
    """Whether these fields are column names rather than text: two names of languages, words such as `source`, or both
    together, such as `sentence_en`."""
    heads = {_head(field.strip().casefold()) for field in fields}
    return len(fields) > 1 and None not in heads and len(heads) == len(fields)


def _head(field: str) -> str | None:
    """Return a column name in a canonical form; None if the field may be text."""
    words, known = re.split(r"[ _.-]+", field), LABEL_WORDS | _TEXT_WORDS
    if field in LANGUAGE_NAMES or field in known:
        return LANGUAGE_NAMES.get(field, field)
    are_known = all(word in known or known_language(word) is not None for word in words)
    return field if are_known and not known.isdisjoint(words) else None  # codes of languages are also words


def language_columns(fields: Sequence[str]) -> list[str]:
    """Return the fields that name languages; in more than two fields, `id` is not Indonesian."""
    numbers = {"id"} if len(fields) > 2 else set()
    heads = [field for field in fields if " " not in field.strip() and field.strip().casefold() not in numbers]
    return [head for head in heads if known_language(head) is not None]


def both_sides(languages: Sequence[str | None], present: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of the source and target language among `present`.

    If one of `languages` is missing, its side has the only other name. If both are, `present` must have two names. The
    result is None if a side has no name, or several.
    """
    found = [heads_of(name, present) if name else [] for name in languages]
    for side, other in enumerate(reversed(languages)):
        if not languages[side]:
            found[side] = [head for head in present if not other or not is_called(head, other)]
    if not any(languages):
        found = [[head] for head in present]
    return (found[0][0], found[1][0]) if list(map(len, found)) == [1, 1] else None


def label_problem(labels: int, examples: int) -> str | None:
    """Return an error message if there are too many labels to be classes, so that columns are probably swapped; else
    None."""
    if labels <= _MOST_LABELS or 2 * labels <= examples:
        return None
    return f"{labels:,} labels for {examples:,} examples; are the columns swapped? (keys text_column, label_column)"


def flattened(record: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object or row with the keys inside `translation` added to the others."""
    inner = record.get(NESTED)
    return {**record, **inner} if isinstance(inner, dict) else record


def listed(names: Sequence[str], conjunction: str = ", ") -> str:
    """Return names in quotes, for a message."""
    return conjunction.join(f"'{name}'" for name in names) or "none"


def is_missing(value: Any) -> bool:
    """Whether a value is null, or NaN, which pandas writes for null."""
    return value is None or (isinstance(value, float) and math.isnan(value))


@lru_cache
def _label_fault(label: str) -> str | None:
    """Return why a text cannot have this label, or None; each label is examined once."""
    if not label.strip():
        return "a text without a label; write the label, or leave the text out"
    try:
        as_label(label)
    except ValueError as error:
        return f"label {error}"
    return None


def _text(value: Any, origin: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(int(value)) if isinstance(value, bool) else str(value)
    kind = "an infinite number" if isinstance(value, float) else kind_of(value)
    raise DataError(f"{origin}: {kind} instead of text; leave the example out or write its text")
