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
    both_sides,
    is_called,
    language_columns,
    looks_like_header,
    probability_column,
)
from seq2seq.data.parts import parts_file
from seq2seq.data.tables import header
from seq2seq.data.text_files import check_form
from seq2seq.errors import DataError, shown, some_of
from seq2seq.languages import known_language
from seq2seq.lines import open_bytes, read_lines
from seq2seq.text.forms import JSON

KINDS = ("tsv", "csv", "jsonl", "tmx")
PAIR, LABELLED = ("source", "target"), ("text", "label")


def corpus_of_files(files: Sequence[Path], source_language: str | None, target_language: str | None) -> "SourceConfig":
    """Return the source of these files: with a label column if it has labelled texts, else pairs.

    A zip archive has one text file for each language, as OPUS packs them (Moses). The columns of a table or of JSON
    objects are those of the languages, or `source` and `target`; without languages, they may also be text and label. If
    one language is given, the other side is the only other language.

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
    kind, *kinds = (path.name.lower().removesuffix(".gz").rpartition(".")[2] for path in (first, *others))
    if len(others) == 1 and not {kind, *kinds} & set(KINDS):
        return SourceConfig(source=first, target=others[0])
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
    """Return the endings of the members of an archive whose names end in a language, such as `c.de-en.de`."""
    found = {name: name.rpartition(".")[2] for name in members(archive) if "." in name}
    return {name: ending for name, ending in found.items() if known_language(ending) is not None}


def _sides(archive: Path, texts: Mapping[str, str], languages: tuple[str | None, str | None]) -> list[Path]:
    """Return the paths of source and target in an archive.

    Raises:
        DataError: they are not known.
    """
    sides = both_sides(languages, sorted(set(texts.values()))) if any(languages) else None
    if sides is None:
        problem, first = f"its text files are {some_of(list(texts))}", next(iter(texts.values()))
        remedy = f"name the languages of source and target by these endings, such as {first}, or extract two files"
        raise DataError(f"{archive}: {problem}; {remedy}")
    found = [[name for name, ending in texts.items() if ending == side] for side in sides]
    if several := next((names for names in found if len(names) > 1), None):
        raise DataError(f"{archive}: {some_of(several)} are in one language; extract two files")
    return [archive / name for (name,) in found]


def _columns_of(path: Path, is_jsonl: bool, languages: tuple[str | None, str | None]) -> dict[str, str]:
    """Return the settings for the columns of a file that names them; none if the languages name them.

    Raises:
        DataError: the first line is not an object or has fewer than two columns, or it is not known which two are read.
    """
    names, label = _names_in(path, is_jsonl)
    sides = tuple(next((name for name in names if is_called(name, side)), "") for side in PAIR)
    is_named = any(is_called(name, language) for name in names for language in languages if language)
    if all(languages):
        return _named(PAIR, sides) if not is_named and all(sides) else {}
    label = label or LABEL_COLUMN
    if label in names and (texts := [name for name in TEXT_COLUMNS if name in names]):
        return _named(LABELLED, (texts[0], label))
    codes = language_columns(names)
    are_codes = len({known_language(code) for code in codes}) > 1 and len(names) - len(codes) < 2
    if not is_jsonl and not (is_named or all(sides) or are_codes or looks_like_header(names[:2])):
        return {}
    by_language = both_sides(languages, names if len(names) == 2 else codes)
    if is_named and by_language:
        return _named(PAIR, by_language)
    if not all(sides) and any(name.strip().casefold() in LABEL_WORDS - {"target"} for name in names[1:2]):
        return _named(LABELLED, names)
    others = names if len(names) == 2 and not codes else None
    if (found := sides if all(sides) else by_language or others) is None:
        if len(names) == 1:
            raise DataError(f"{path}: its only column is {some_of(names)}; write the translations in another one")
        remedy = "name the languages of source and target, or rename two columns to source and target"
        raise DataError(f"{path}: its columns are {some_of(names)}; {remedy}")
    return _named(PAIR, found)


def _named(kinds: tuple[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the settings that name the columns of two kinds."""
    return {f"{kind}_column": name for kind, name in zip(kinds, names, strict=False)}


def _names_in(path: Path, is_jsonl: bool) -> tuple[list[str], str | None]:
    """Return the fields of the first line, and the one with probabilities of labels, if there is one.

    Raises:
        DataError: as `_columns_of`.
    """
    if not is_jsonl:
        return header(path), None
    check_form(path, [JSON])
    number, line = next(((place, line) for place, line in enumerate(read_lines(path), 1) if line.strip()), (0, ""))
    if not number:
        return list(PAIR), None  # as a table without lines
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise DataError(f"{path}: line {number} is not a JSON object; write one object per line")
    names = list(record[NESTED] if isinstance(record.get(NESTED), dict) else record)
    if len(names) < 2:
        found = f"only the key {shown(names[0])}" if names else "no keys"
        raise DataError(f"{path}: line {number} has {found}; write two, such as source and target")
    return names, probability_column(record)
