"""Columns of tables, of JSON objects and of datasets: which two make an example, and what a header looks like.

`sources` makes `Columns` from the config; `tables` and `hub` make examples with them. `check` asks for headers too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seq2seq.config_data import SourceConfig
from seq2seq.data.examples import Example, LabelledText, Pair
from seq2seq.errors import DataError, did_you_mean
from seq2seq.languages import LANGUAGE_NAMES, known_language
from seq2seq.lines import as_one_line

TEXT_COLUMNS = ("sentence", "text")
LABEL_COLUMN = "label"
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
    "index",
}  # fmt: skip
_MOST_LABELS = 20  # that a small corpus may have, however few examples there are of each


@dataclass(frozen=True)
class Columns:
    """Which two columns make an example: what the config names, else the first of `defaults` that is present."""

    kind: type[Example]
    keys: tuple[str, str]
    """Of the config, by which they are named."""
    given: tuple[str | int | None, str | int | None]
    defaults: tuple[tuple[str, ...], tuple[str, ...]]

    def choose(self, present: Sequence[str], origin: str) -> tuple[str, ...]:
        """The names of both columns among `present`.

        Raises:
            DataError: one is missing.
        """
        chosen = []
        for key, given, defaults in zip(self.keys, self.given, self.defaults, strict=True):
            if isinstance(given, int):
                problem = f"column {given} is a number, but the columns here have names: {listed(present)}"
                raise DataError(f"{origin}: {problem}")
            wanted = (given,) if given is not None else defaults
            found = [name for name in wanted if name in present]
            if not found and given is None:
                found = [head for head in present if any(is_called(head, name) for name in defaults)]
            if not found:
                hint = did_you_mean(wanted[0], present) or f"; name the column in the config ({key})"
                raise DataError(f"{origin}: no column {listed(wanted, ' or ')}; it has {listed(present)}{hint}")
            chosen.append(found[0])
        return tuple(chosen)

    def are_in(self, present: Sequence[str]) -> bool:
        """Whether `present` has default columns: one under its exact name, or both under other names."""
        found = [any(is_called(head, name) for name in names for head in present) for names in self.defaults]
        return all(found) or any(name in present for names in self.defaults for name in names)

    def example(self, names: Sequence[str], values: Sequence[Any], origin: str) -> Example:
        """The example of two values.

        Raises:
            DataError: a value is not text, a number or a truth value.
        """
        both = zip(names, values, strict=True)
        return self.kind(*(as_one_line(_text(value, f"{origin}: {name}")) for name, value in both))


def pair_columns(config: SourceConfig, source_language: str, target_language: str) -> Columns:
    """The columns of sentence pairs."""
    given = (config.source_column, config.target_column)
    return Columns(Pair, ("source_column", "target_column"), given, ((source_language,), (target_language,)))


def label_columns(config: SourceConfig) -> Columns:
    """The columns of labelled texts."""
    given = (config.text_column, config.label_column)
    return Columns(LabelledText, ("text_column", "label_column"), given, (TEXT_COLUMNS, (LABEL_COLUMN,)))


def is_called(head: str, name: str) -> bool:
    """Whether a column's header `head` means `name`, for a language under any of its names and codes."""
    head, name = head.strip().casefold(), name.casefold()
    language = known_language(head)
    return bool(head) and (head == name or (language is not None and language == known_language(name)))


def looks_like_header(fields: Sequence[str]) -> bool:
    """Whether these fields are column names rather than text: two names of languages, or words such as `source`."""
    words = [field.strip().casefold() for field in fields]
    # a code of two or three letters is also a word
    heads = {LANGUAGE_NAMES.get(word, word if word in LABEL_WORDS | _TEXT_WORDS else None) for word in words}
    return len(words) > 1 and None not in heads and len(heads) == len(words)


def label_problem(labels: int, examples: int) -> str | None:
    """The error message where there are too many labels to be classes: the columns are probably swapped."""
    if labels <= _MOST_LABELS or 2 * labels <= examples:
        return None
    return f"{labels:,} labels for {examples:,} examples; are the columns swapped? (keys text_column, label_column)"


def flattened(record: dict[str, Any]) -> dict[str, Any]:
    """A JSON object or row with the keys inside `translation` beside the others."""
    inner = record.get(NESTED)
    return {**record, **inner} if isinstance(inner, dict) else record


def listed(names: Sequence[str], conjunction: str = ", ") -> str:
    """Names in quotes, for a message."""
    return conjunction.join(f"'{name}'" for name in names) or "none"


def _text(value: Any, origin: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return str(int(value)) if isinstance(value, bool) else str(value)
    raise DataError(f"{origin}: {type(value).__name__} instead of text; leave the example out or write its text")
