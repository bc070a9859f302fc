"""The command `s2s distill`: a small, fast student of one or several teachers.

`workflows.distill` does the steps; this module reads the options, and reports.
"""

import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from seq2seq.cli import options
from seq2seq.cli.augment import log_part
from seq2seq.cli.commands import Command
from seq2seq.errors import counted
from seq2seq.lines import aligned

logger = logging.getLogger("seq2seq.cli")


@click.command(cls=Command, epilog="Example: s2s distill runs/a runs/b student.yaml -o models/student")
@click.argument("arguments", nargs=-1, required=True, type=options.ANY_PATH, metavar="TEACHER... CONFIG")
@click.option("-o", "--output", type=options.NAMED_PLACE, required=True, help="Folder to write; the same command "
              "continues it.")  # fmt: skip
@click.option(
    "--text", "texts", type=options.FILE, multiple=True, help="Further text in the source language; repeatable."
)
@click.option("--interpolate", is_flag=True, help="Train on the genuine pairs of CONFIG too.")
@click.option(
    "--pairs",
    type=options.FOLDER,
    help="Use the pairs of another student, such as models/other/pairs, and add missing parts to them. TEACHERs, data, "
    "--text, --shard-lines and search options must be those of that student [default: new pairs].",
)
@options.set_option
@options.sharding_options
@click.option(
    "--force",
    is_flag=True,
    help="Accept a --text that is not in the source language, or does not have one sentence per line, and keep the "
    "int8 export even if its translations differ too much.",
)
@click.option(
    "--from",
    "source_language",
    type=options.LANGUAGE,
    metavar="LANGUAGE",
    help="Source language, as TEACHER names it [default: that of CONFIG].",
)
@click.option(
    "--to",
    "target_language",
    type=options.LANGUAGE,
    metavar="LANGUAGE",
    help="Target language, as TEACHER names it [default: that of CONFIG].",
)
@options.search_options
def command(
    arguments: tuple[Path, ...],
    output: Path,
    texts: tuple[Path, ...],
    interpolate: bool,
    pairs: Path | None,
    overrides: tuple[str, ...],
    shard_lines: int,
    workers: int,
    executor: str,
    force: bool,
    **loading: Any,
) -> None:
    """Train the model of CONFIG on translations by TEACHERs, an ensemble if there are several.

    Five steps: the teachers translate the source side of data.train and --text; the student is trained; its search
    settings are tuned; it is converted to int8 for CTranslate2; teacher and student are measured. The last two steps
    write int8/, distill.json and report.html. If the command is stopped in any step, the same command continues.

    Without a section model, the student has preset student. Without settings of tokenizer, it has the tokenizer of
    TEACHER, or a new one if TEACHER has many languages. Such a TEACHER translates in the direction of CONFIG.
    """
    *teachers, config = arguments
    _check_usage(teachers, config)
    from seq2seq.config.file import naming
    from seq2seq.workflows.distill.request import Distillation
    from seq2seq.workflows.distill.steps import Student

    given = {key: value for key, value in loading.items() if value is not None}
    student = Student(
        Distillation(
            tuple(teachers),
            config,
            output,
            texts,
            overrides,
            given,
            interpolate,
            pairs,
            shard_lines,
            workers,
            executor,
            is_forced=force,
            command=shlex.join(["s2s", *sys.argv[1:]]),
        )
    )
    with naming(config):
        steps = student.make(log_part)["steps"]
    if "measure" not in steps:
        logger.info("stopped; the same command continues")
        return
    _report(steps["measure"])
    click.echo(f"{output}: report.html; the student is in int8 (for CTranslate2) and model (for PyTorch)")


def _check_usage(teachers: Sequence[Path], config: Path) -> None:
    """Refuse arguments that are not teachers and a configuration."""
    if not teachers:
        raise click.UsageError("name one or more TEACHERs, and then CONFIG, a YAML file")
    if config.is_dir():
        raise click.UsageError(f"{config} is a folder; name CONFIG, a YAML file, after the TEACHERs")
    options.check_executor_options()


def _report(values: Mapping[str, Any]) -> None:
    """Print the figures of the last step."""
    from seq2seq.workflows.distill.figures import MeasuredSystems

    measured = MeasuredSystems.from_json(values)
    for name, count in measured.lines.items():
        click.echo(f"{name}: {counted(count, 'line')}")
        for line in aligned([measured.titles, *measured.rows(name)], ">"):
            click.echo(line)
    for signature in measured.signatures.values():
        click.echo(signature)
