"""The command `s2s check`: a report on corpora before training; exit code 1 for an error that would spoil a result."""

import contextlib
import logging
import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.config import ranges
from seq2seq.config.ranges import Range
from seq2seq.languages import direction_name
from seq2seq.lines import readable_again, shown_json

if TYPE_CHECKING:
    from seq2seq.config.corpora import DataConfig
    from seq2seq.config.directions import LanguagesConfig, Sides
    from seq2seq.inspection.check import Corpora

logger = logging.getLogger("seq2seq.cli")

CONFIG_SUFFIXES = (".yaml", ".yml")
SPOILED = 1


@click.command(cls=Command, epilog="Example: s2s check train.en train.de")
@click.argument("files", nargs=-1, required=True, type=options.FILE)
@options.set_option
@click.option(
    "--source-language",
    help="With FILE and --target-language: language or column of the source [default: found in FILE].",
)
@click.option(
    "--target-language",
    help="With FILE and --source-language: language or column of the target [default: found in FILE].",
)
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
    s2s check FILE            one .tsv, .csv, .jsonl or .tmx of pairs, or of texts with labels; a .zip of OPUS

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
        click.echo(shown_json(shown, indent=1))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for name, report in reports.items():
            for line in [f"== {name}"] * bool(name) + list(as_text(report, examples, config, overrides)):
                click.echo(wrapped(line, width))
    if not all(report.ok for report in reports.values()):
        context.exit(SPOILED)


def _from_config(path: Path, overrides: Sequence[str]) -> "dict[str, Corpora]":
    """Return the corpora of each direction by its name, which is empty for a single one."""
    from seq2seq.config.file import load, naming
    from seq2seq.inspection.check import Corpora
    from seq2seq.tasks.lengths import with_fitting_filters

    written = load(path, overrides)
    if written.training.init_from or written.tokenizer.init_from:
        from seq2seq.tasks.inputs import completed  # takes a second: it loads torch

        with naming(path):
            config, tokenizers = completed(written)
    else:
        config, tokenizers = with_fitting_filters(written), None
    translates = config.task == "translation"
    single = (config.source_language or "", config.target_language or "") if translates else None
    whole = Corpora(
        train=config.data.train,
        held_out=config.data.held_out,
        languages=single,
        filters=config.data.filters,
        tokenizer=config.tokenizer,
        model=written.model,
        training=config.training,
        seed=config.seed,
        label_names=config.data.label_names,
        tokenizers=tokenizers,
        has_languages=config.languages is not None,
    )
    if config.languages is None:
        return {"": whole}
    groups = _by_direction(config.languages, config.data)
    are_all = len(groups) == 1
    return {
        direction_name(sides): replace(whole, **sets, languages=sides, are_all=are_all)
        for sides, sets in groups.items()
    }


def _by_direction(languages: "LanguagesConfig", data: "DataConfig") -> "dict[Sides, dict[str, Any]]":
    """Return the training corpora and held-out sets of each direction, as fields of `Corpora`.

    Files whose lines have languages of their own are left out.
    """
    from seq2seq.config.corpora import held_out_names

    groups: dict[Sides, Any] = defaultdict(lambda: {"train": [], "reversed_train": set(), "valid": {}, "test": {}})
    train = [("train", "", source) for source in data.train]
    held_out = [("valid", *item) for item in data.valid_sets.items()] + [("test", *item) for item in data.test.items()]
    for field, name, source in [*train, *held_out]:
        if (sides := languages.sides_of(source, name)) is None:
            logger.warning("%s: lines with languages of their own are not checked", source.jsonl)
        elif field != "train":
            groups[sides][field][name] = source
        else:
            groups[sides]["train"].append(source)
            if source.both_ways:
                group = groups[sides[::-1]]
                group["reversed_train"].add(len(group["train"]))
                group["train"].append(source)
    for sets in groups.values():
        sets["held_out"] = held_out_names(sets.pop("valid"), sets.pop("test"))
    return groups


def _from_files(files: Sequence[Path], source_language: str | None, target_language: str | None) -> "Corpora":
    from seq2seq.data.corpus_files import corpus_of_files
    from seq2seq.inspection.check import Corpora

    source = corpus_of_files(files, source_language, target_language)
    languages = None if source.label_column is not None else (source_language or "", target_language or "")
    return Corpora(train=[source], held_out={}, languages=languages)
