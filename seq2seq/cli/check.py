"""The command `s2s check`: a report on corpora before training; exit code 1 for an error that would spoil a result."""

import contextlib
import json
import logging
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.config import ranges
from seq2seq.config.directions import direction_name
from seq2seq.config.ranges import Range
from seq2seq.errors import DataError
from seq2seq.lines import open_bytes, read_lines, readable_again

if TYPE_CHECKING:
    from seq2seq.config.corpora import SourceConfig
    from seq2seq.config.directions import LanguagesConfig
    from seq2seq.inspection.check import Corpora

logger = logging.getLogger("seq2seq.cli")

CONFIG_SUFFIXES = (".yaml", ".yml")
SPOILED = 1


@click.command(cls=Command, epilog="Example: s2s check train.en train.de")
@click.argument("files", nargs=-1, required=True, type=options.FILE)
@options.set_option
@click.option("--source-language", help="With FILE: column of the source in JSON Lines or a table with a header.")
@click.option("--target-language", help="With FILE: column of the target.")
@options.format_option
@click.option(
    "--examples", type=options.Number(Range(0, 3)), default=2, help="Number of lines shown of each kind, 0 to 3."
)
@click.option("--workers", type=options.Number(ranges.WORKERS), help="Number of processes [default: one per CPU].")
@click.pass_context
def command(
    context: click.Context,
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    source_language: str | None,
    target_language: str | None,
    form: str,
    examples: int,
    workers: int | None,
) -> None:
    """Report problems of corpora before training.

    \b
    s2s check CONFIG          train, valid and test sets of a config, and their overlap
    s2s check SOURCE TARGET   two text files, line by line
    s2s check FILE            one .tsv, .csv, .jsonl or .tmx of pairs, or of texts with labels

    Exit code 0: no errors (warnings are possible); 1: errors that would spoil results; 2: the check is not
    possible."""
    config = files[0] if len(files) == 1 and files[0].suffix in CONFIG_SUFFIXES else None
    if config is None:
        options.only_for("a CONFIG (a .yaml file)", "overrides")
    else:
        options.only_for("FILE; CONFIG names its languages", "source_language", "target_language")
    if bool(source_language) != bool(target_language):
        raise click.UsageError("--source-language and --target-language belong together; give both")
    if form == "json":
        options.only_for("text; the JSON has all examples", "examples")
    from tqdm import tqdm

    from seq2seq.inspection.check import check_corpora
    from seq2seq.inspection.layout import as_text, wrapped

    with contextlib.ExitStack() as stack:
        paths = [stack.enter_context(readable_again(path)) for path in files]
        if config:
            corpora = _from_config(paths[0], overrides)
        else:
            corpora = {"": _from_files(paths, source_language, target_language)}
        bar = tqdm(unit=" examples", unit_scale=True, disable=None, leave=False, desc="checking")
        update = stack.enter_context(bar).update
        reports = {name: check_corpora(one, workers or 0, progress=update) for name, one in corpora.items()}
    if form == "json":
        found = {name: report.as_dict() for name, report in reports.items()}
        shown = found[""] if "" in found else {"ok": all(report.ok for report in reports.values()), "directions": found}
        click.echo(json.dumps(shown, ensure_ascii=False, indent=1).encode("utf-8", "replace").decode())
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for name, report in reports.items():
            for line in [f"== {name}"] * bool(name) + list(as_text(report, examples, config)):
                click.echo(wrapped(line, width))
    if not all(report.ok for report in reports.values()):
        context.exit(SPOILED)


def _from_config(path: Path, overrides: Sequence[str]) -> "dict[str, Corpora]":
    """Return the corpora of each direction by its name, which is empty for a single one."""
    from seq2seq.config.file import load
    from seq2seq.inspection.check import Corpora

    config = load(path, overrides)
    tests = {f"test {name}" if name in ("train", "valid") else name: test for name, test in config.data.test.items()}
    translates = config.task == "translation"
    single = (config.source_language or "", config.target_language or "") if translates else None
    held_out = config.data.valid_sets | tests
    groups = {single: (config.data.train, held_out)}
    if config.languages is not None:
        groups = _by_direction(config.languages, config.data.train, held_out)
    whole = Corpora(
        train=config.data.train,
        held_out=held_out,
        languages=single,
        filters=config.data.filters,
        tokenizer=config.tokenizer,
        preset=config.model.preset,
        training=config.training,
        seed=config.seed,
        label_names=config.data.label_names,
        are_all=len(groups) == 1,
    )
    return {
        "" if config.languages is None else direction_name(sides or ()): replace(
            whole, train=train, held_out=others, languages=sides
        )
        for sides, (train, others) in groups.items()
    }


def _by_direction(
    languages: "LanguagesConfig", train: "Sequence[SourceConfig]", held_out: "Mapping[str, SourceConfig]"
) -> "dict[Any, tuple[list[SourceConfig], dict[str, SourceConfig]]]":
    """Return the training corpora and held-out sets of each direction, except files whose lines have their own."""
    groups: dict[Any, tuple[list[SourceConfig], dict[str, SourceConfig]]] = {}
    for name, source in [*(("", one) for one in train), *held_out.items()]:
        if (sides := languages.sides_of(source, name)) is None:
            logger.warning("%s: lines with languages of their own are not checked", source.jsonl)
            continue
        of_train, others = groups.setdefault(sides, ([], {}))
        if name:
            others[name] = source
        else:
            of_train.append(source)
    return groups


def _from_files(files: Sequence[Path], source_language: str | None, target_language: str | None) -> "Corpora":
    from seq2seq.config.corpora import SourceConfig
    from seq2seq.inspection.check import Corpora

    for path in files:
        open_bytes(path).close()  # raises if it cannot be read
    languages: tuple[str, str] | None = (source_language or "", target_language or "")
    kind = files[0].name.removesuffix(".gz").rpartition(".")[2]
    if len(files) == 2:
        source = SourceConfig(source=files[0], target=files[1])
    elif len(files) > 2 or kind not in ("tsv", "csv", "jsonl", "tmx"):
        raise DataError("give a CONFIG (.yaml), two text files SOURCE and TARGET, or one .tsv, .csv, .jsonl or .tmx")
    else:
        source = SourceConfig(**{kind if kind in ("jsonl", "tmx") else "tsv": files[0]})
        if kind != "tmx" and not (source_language and target_language):
            columns = _columns_of(files[0], kind == "jsonl")
            source = source.model_copy(update=columns)
            languages = None if "label_column" in columns else ("", "")
    return Corpora(train=[source], held_out={}, languages=languages)


def _columns_of(path: Path, is_jsonl: bool) -> dict[str, str]:
    """Return the settings for the columns of a file that names them: text and label if it has both, else the first two.

    Raises:
        DataError: the first line is not an object, or has fewer than two columns.
    """
    from seq2seq.data.columns import (
        LABEL_COLUMN,
        LABEL_WORDS,
        NESTED,
        TEXT_COLUMNS,
        looks_like_header,
        probability_column,
    )
    from seq2seq.data.tables import header
    from seq2seq.data.text_files import check_form
    from seq2seq.text.forms import JSON

    record = {}
    if is_jsonl:
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
    else:
        names = header(path)
    label = probability_column(record) or LABEL_COLUMN
    if label in names and (texts := [name for name in TEXT_COLUMNS if name in names]):
        return {"text_column": texts[0], "label_column": label}
    if not is_jsonl and not looks_like_header(names[:2]):
        return {}
    kinds = ("text", "label") if names[1].strip().casefold() in LABEL_WORDS - {"target"} else ("source", "target")
    return {f"{kind}_column": name for kind, name in zip(kinds, names[:2], strict=True)}
