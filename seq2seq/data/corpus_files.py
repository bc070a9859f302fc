"""Corpora that a command names by files instead of a configuration: two text files, or one file or folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from seq2seq.archives import is_archive, members
from seq2seq.config.corpora import SourceConfig
from seq2seq.data.columns import (
    LABEL_COLUMN,
    LABEL_WORDS,
    NESTED,
    TEXT_COLUMNS,
    is_called,
    looks_like_header,
    probability_column,
)
from seq2seq.data.parts import parts_file
from seq2seq.data.tables import header
from seq2seq.data.text_files import check_form
from seq2seq.errors import DataError, some_of
from seq2seq.languages import known_language
from seq2seq.lines import open_bytes, read_lines
from seq2seq.text.forms import JSON

KINDS = ("tsv", "csv", "jsonl", "tmx")


def corpus_of_files(files: Sequence[Path], source_language: str | None, target_language: str | None) -> "SourceConfig":
    """Return the source of these files: with a label column if it has labelled texts, else pairs.

    A zip archive has one text file for each language, as OPUS packs them (Moses). The columns of a table or of JSON
    objects are those of the languages, if they are given, or `source` and `target`; without languages, they are the
    first two, or text and label.

    Raises:
        DataError: the files cannot be read, or are not a corpus.
    """
    first, *others = files
    if not others and parts_file(first).is_file():
        return SourceConfig(jsonl=first)
    if not others and is_archive(first) and (texts := _texts_in(first)):
        first, *others = _sides(first, texts, (source_language, target_language))
    for path in (first, *others):
        open_bytes(path).close()  # raises if it cannot be read
    if len(others) == 1:
        return SourceConfig(source=first, target=others[0])
    kind = first.name.removesuffix(".gz").rpartition(".")[2]
    if others or kind not in KINDS:
        raise DataError(
            f"{' '.join(map(str, files))}: not a corpus; give two text files SOURCE and TARGET, or one .tsv, .csv, "
            ".jsonl, .tmx or .zip"
        )
    source = SourceConfig(**{kind if kind in ("jsonl", "tmx") else "tsv": first})
    if kind == "tmx":
        return source
    return source.model_copy(update=_columns_of(first, kind == "jsonl", (source_language, target_language)))


def _texts_in(archive: Path) -> dict[str, str]:
    """Return the languages of the members of an archive whose names end in a language, such as `c.de-en.de`."""
    found = {name: known_language(name.rpartition(".")[2]) for name in members(archive) if "." in name}
    return {name: code for name, code in found.items() if code is not None}


def _sides(archive: Path, texts: Mapping[str, str], languages: tuple[str | None, str | None]) -> list[Path]:
    """Return the paths of source and target in an archive.

    Raises:
        DataError: they are not known.
    """
    found = [[name for name, code in texts.items() if code == known_language(side)] for side in languages]
    if any(len(names) != 1 for names in found):
        problem = f"its text files are {some_of(list(texts))}"
        raise DataError(f"{archive}: {problem}; name the languages of source and target, or extract two files")
    return [archive / names[0] for names in found]


def _columns_of(path: Path, is_jsonl: bool, languages: tuple[str | None, str | None]) -> dict[str, str]:
    """Return the settings for the columns of a file that names them; none if the languages name them.

    Raises:
        DataError: the first line is not an object, or has fewer than two columns.
    """
    names, label = _names_in(path, is_jsonl)
    sides = {"source_column": "source", "target_column": "target"}
    if all(languages):
        is_named = any(is_called(name, language or "") for name in names for language in languages)
        return sides if not is_named and set(names).issuperset(sides.values()) else {}
    label = label or LABEL_COLUMN
    if label in names and (texts := [name for name in TEXT_COLUMNS if name in names]):
        return {"text_column": texts[0], "label_column": label}
    if not is_jsonl and not looks_like_header(names[:2]):
        return {}
    kinds = ("text", "label") if names[1].strip().casefold() in LABEL_WORDS - {"target"} else ("source", "target")
    return {f"{kind}_column": name for kind, name in zip(kinds, names[:2], strict=True)}


def _names_in(path: Path, is_jsonl: bool) -> tuple[list[str], str | None]:
    """Return the fields of the first line, and the one with probabilities of labels, if there is one.

    Raises:
        DataError: as `_columns_of`.
    """
    if not is_jsonl:
        return header(path), None
    check_form(path, [JSON])
    try:
        record = json.loads(next(read_lines(path), ""))
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise DataError(f"{path}: line 1 is not a JSON object; write one object per line")
    names = list(record[NESTED] if isinstance(record.get(NESTED), dict) else record)
    if len(names) < 2:
        raise DataError(f"{path}: line 1 has the columns {', '.join(names) or 'none'}; two are needed")
    return names, probability_column(record)
