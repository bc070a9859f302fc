"""Documents for `s2s translate --input-format`: the whole input at once, or a document on each line."""

import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from seq2seq.cli import options
from seq2seq.errors import DataError, reason
from seq2seq.lines import DAMAGE, text_bytes

if TYPE_CHECKING:
    from seq2seq.inference.marked import MarkupTranslator
    from seq2seq.markup.translation import Marked

logger = logging.getLogger("seq2seq.cli")

WORDS = {
    "placeholder": "cut at variables or addresses, because the model lost what stood for them",
    "markup": "written without their emphasis, or left as they were, because Markdown would have read them otherwise",
    "verbatim": "copied, completely or in part, because the text cannot be translated",
    "lost": "translated without some words or signs, because the model does not know them",
    "empty": "left as they were, because their translation was empty",
}


def check(models: tuple[Path, ...], prefix_file: Path | None, form: str, details: str | None, loading: Any) -> None:
    """Refuse what documents cannot have."""
    if len(models) > 1:
        raise click.UsageError("--input-format needs one MODEL, whose attention is read; an ensemble has several")
    if prefix_file is not None or loading["sample"] or (loading["n_best"] or 1) > 1:
        raise click.UsageError("--input-format: leave out --prefix-file, --sample and --n-best, which are for lines")
    if form != "text" or details is not None:
        raise click.UsageError("--input-format: leave out --format and --details; the output is a document again")


def translate(
    model: Path, input_path: Path | None, output_path: Path | None, kind: str, each_line: bool, glossary: Path | None,
    given: dict[str, Any],
) -> None:  # fmt: skip
    """Translate a document, or those on the lines of the input."""
    from seq2seq.inference.aligner import load_both
    from seq2seq.inference.marked import MarkupTranslator, WithTerms
    from seq2seq.inference.streaming import open_input, read_idle_batches
    from seq2seq.inference.terms import TermTranslator, read_glossary

    source = open_input(input_path, keeps_bom=not each_line)
    text = None if each_line else _document(source, input_path)
    translator, aligner = load_both(model, **given)
    kept = None
    if glossary is not None:
        kept = WithTerms(TermTranslator(translator, aligner, read_glossary(glossary, translator)))
    marker = MarkupTranslator(kept or translator, aligner)
    flags: Counter[str] = Counter()
    lines = () if text is not None else read_idle_batches(source, on_invalid=options.warn_invalid(input_path))
    with options.open_output(output_path) as sink:
        logger.info("engine: %s", translator.engine_note)
        for batch in lines if text is None else [[text]]:
            for one in _named(marker, batch, kind, input_path):
                sink.write(one.text.encode("utf-8", errors="surrogateescape") + (b"\n" if each_line else b""))
                flags.update(one.flags)
            sink.flush()
    tell_terms(kept.statuses if kept else Counter())
    for flag, count in flags.items():
        logger.info("%s %s", "1 segment was" if count == 1 else f"{count:,} segments were", WORDS[flag])


def _named(marker: "MarkupTranslator", batch: list[str], kind: str, path: Path | None) -> "list[Marked]":
    try:
        return marker.translate(batch, kind)
    except DataError as error:
        raise DataError(f"{path or 'standard input'}: {error}") from error


def tell_terms(statuses: Counter[str]) -> None:
    """Say how many terms of a glossary have which status."""
    if statuses:
        logger.info("terms: %s", ", ".join(f"{count:,} {status}" for status, count in sorted(statuses.items())))


def _document(source: BinaryIO, path: Path | None) -> str:
    name = path or "standard input"
    try:
        return text_bytes(source, str(name), keeps_bom=True).read().decode("utf-8")
    except DAMAGE as error:
        raise DataError(f"{name}: cannot be read ({reason(error)})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: not UTF-8 (byte {error.start:,}); convert it to UTF-8") from error
