"""`s2s check`: what is odd in corpora, before anything is trained; exit code 1 where it would spoil a result."""

import contextlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seq2seq import ranges
from seq2seq.cli.options import FILE, Number
from seq2seq.errors import DataError
from seq2seq.lines import open_bytes, read_lines, readable_again
from seq2seq.ranges import Range

if TYPE_CHECKING:
    from seq2seq.config import SourceConfig
    from seq2seq.inspection.check import Corpora

CONFIG_SUFFIXES = (".yaml", ".yml")
SPOILED = 1


@click.command(
    "check",
    short_help="Report what is odd in corpora before training.",
    epilog="Example: s2s check train.en train.de",
)
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="With CONFIG: override one key (repeatable)."
)
@click.option("--source-language", help="With FILE: column of the source in a JSONL or a table with header.")
@click.option("--target-language", help="With FILE: column of the target.")
@click.option("-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--examples", type=Number(Range(0, 3)), default=2, show_default=True, help="Lines shown of each kind.")
@click.option("--workers", type=Number(ranges.WORKERS), default=0, help="Processes [default: one per CPU].")
@click.pass_context
def command(
    context: click.Context,
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    source_language: str | None,
    target_language: str | None,
    form: str,
    examples: int,
    workers: int,
) -> None:
    """Report on corpora before anything is trained.

    \b
    s2s check CONFIG          train, valid and test of a config, and what they share
    s2s check SOURCE TARGET   two text files, line by line
    s2s check FILE            one .tsv, .csv or .jsonl of pairs, or of texts with labels

    Exit code 0 if all is well or merely odd, 1 if something would spoil a result, 2 if the check cannot be made."""
    if not _is_config(files) and overrides:
        raise click.UsageError("--set belongs to a CONFIG (a .yaml file)")
    from tqdm import tqdm

    from seq2seq.inspection.check import check_corpora
    from seq2seq.inspection.layout import as_text, wrapped

    with contextlib.ExitStack() as stack:
        read = [stack.enter_context(readable_again(path)) for path in files]
        corpora = _from_config(read[0], overrides) if _is_config(files) else _from_files(
            read, source_language, target_language
        )  # fmt: skip
        bar = tqdm(unit=" examples", unit_scale=True, disable=None, leave=False, desc="checking")
        report = check_corpora(corpora, workers, progress=stack.enter_context(bar).update)
    if form == "json":
        click.echo(json.dumps(report.as_dict(), ensure_ascii=False, indent=1).encode("utf-8", "replace").decode())
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for line in as_text(report, examples, files[0] if _is_config(files) else None):
            click.echo(wrapped(line, width))
    if not report.ok:
        context.exit(SPOILED)


def _is_config(files: Sequence[Path]) -> bool:
    return len(files) == 1 and files[0].suffix in CONFIG_SUFFIXES


def _from_config(path: Path, overrides: Sequence[str]) -> "Corpora":
    from seq2seq.config_file import load
    from seq2seq.inspection.check import Corpora

    config = load(path, overrides)
    translates = config.task == "translation"
    return Corpora(
        train=config.data.train,
        held_out={"valid": config.data.valid} | {_test_name(name): test for name, test in config.data.test.items()},
        languages=(config.source_language or "", config.target_language or "") if translates else None,
        filters=config.data.filters,
        tokenizer=config.tokenizer,
        preset=config.model.preset,
        training=config.training,
        seed=config.seed,
    )


def _test_name(name: str) -> str:
    return f"test {name}" if name in ("train", "valid") else name


def _from_files(files: Sequence[Path], source_language: str | None, target_language: str | None) -> "Corpora":
    from seq2seq.config import SourceConfig
    from seq2seq.inspection.check import Corpora

    for path in files:
        open_bytes(path).close()
    languages: tuple[str, str] | None = (source_language or "", target_language or "")
    if len(files) == 2:
        source = SourceConfig(source=files[0], target=files[1])
    elif len(files) == 1:
        kind = files[0].with_suffix("").suffix if files[0].suffix == ".gz" else files[0].suffix
        if kind not in (".tsv", ".csv", ".jsonl"):
            raise DataError(
                f"{files[0]}: one file is a config (.yaml), a .tsv, .csv or .jsonl; text needs SOURCE and TARGET"
            )
        source = SourceConfig(jsonl=files[0]) if kind == ".jsonl" else SourceConfig(tsv=files[0])
        if not (source_language and target_language):
            source, languages = _columns_of(files[0], kind)
    else:
        raise DataError(f"{len(files)} files; give a CONFIG, SOURCE and TARGET, or one .tsv, .csv or .jsonl")
    return Corpora(train=[source], held_out={}, languages=languages)


def _columns_of(path: Path, kind: str) -> "tuple[SourceConfig, tuple[str, str] | None]":
    """How one file is read whose columns were not named: labelled texts if it says so, else its first two columns."""
    from seq2seq.config import SourceConfig
    from seq2seq.data.columns import LABEL_COLUMN, LABEL_WORDS, NESTED, TEXT_COLUMNS, looks_like_header
    from seq2seq.data.tables import header

    if kind != ".jsonl":
        names = header(path)
        if LABEL_COLUMN in names and any(name in names for name in TEXT_COLUMNS):
            return SourceConfig(tsv=path), None
        if not looks_like_header(names[:2]):
            return SourceConfig(tsv=path), ("", "")
        if names[1].strip().casefold() in LABEL_WORDS - {"target"}:
            return SourceConfig(tsv=path, text_column=names[0], label_column=names[1]), None
        return SourceConfig(tsv=path, source_column=names[0], target_column=names[1]), ("", "")
    first = next(read_lines(path), "")
    try:
        record = json.loads(first)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise DataError(f"{path}: line 1 is not a JSON object; write one object per line")
    if LABEL_COLUMN in record and any(name in record for name in TEXT_COLUMNS):
        return SourceConfig(jsonl=path), None
    names = list(record.get(NESTED, record) if isinstance(record.get(NESTED, record), dict) else record)
    if len(names) < 2:
        raise DataError(f"{path}: line 1 has the columns {', '.join(names) or 'none'}; two are needed")
    return SourceConfig(jsonl=path), (names[0], names[1])
