"""Glossaries of a file's text or of rows; tests import `read` and `of_rows`."""

from pathlib import Path

from seq2seq.text.glossary import Glossary


def read(path: Path, text: str, language: str | None = "de") -> Glossary:
    path.write_text(text, encoding="utf-8")
    return Glossary.read(path, language)


def of_rows(*rows: tuple[str, ...], target: str | None = "de", source: str | None = "en") -> Glossary:
    return Glossary.of(enumerate(rows, start=1), target, "terms", source)
