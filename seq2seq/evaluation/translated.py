"""Translations in files: lines of text, or the JSON Lines of `s2s translate --format jsonl`.

`s2s bleu` and `s2s compare` read them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2seq.errors import DataError

_JSON_LINES = (".jsonl", ".jsonl.gz")


def json_records(path: Path, lines: Sequence[str]) -> list[Mapping[str, Any]] | None:
    """Return the objects of a file of JSON Lines, each with its translation as one line in `text`; None for text.

    Raises:
        DataError: a line has no translation.
    """
    if not path.name.lower().endswith(_JSON_LINES):
        return None
    return [_record(path, number, line) for number, line in enumerate(lines, start=1)]


def translations(path: Path, lines: Sequence[str]) -> list[str]:
    """Return the translations in the lines of a file.

    Raises:
        DataError: as `json_records`.
    """
    records = json_records(path, lines)
    return list(lines) if records is None else [record["text"] for record in records]


def _record(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        record = None
    text = record.get("text", record.get("translation")) if isinstance(record, dict) else None  # the older key
    if not isinstance(text, str):
        raise DataError(f"{path}: line {number:,} is not an object with a translation; write it with s2s translate")
    return {**record, "text": " ".join(text.splitlines())}
