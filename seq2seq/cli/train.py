"""The command `s2s train`, which trains a model or continues a run."""

import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.errors import typed

if TYPE_CHECKING:
    from seq2seq.config.schema import Config
    from seq2seq.training.state import TrainingResult

logger = logging.getLogger("seq2seq.cli")


@click.command(cls=Command, epilog="Example: s2s train configs/multi30k-en-de.yaml --set training.max_minutes=13")
@click.argument("config", type=options.FILE, required=False)
@options.set_option
@click.option(
    "--run-dir", type=options.FOLDER, metavar="DIR", help="Run folder [default: runs/NAME, the name of CONFIG]."
)
@click.option("--overwrite", is_flag=True, help="Start over: first delete the run in the folder.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the configuration, figures and an estimate of the time. Prepares the corpora, trains nothing.",
)
def command(
    config: Path | None, overrides: tuple[str, ...], run_dir: Path | None, overwrite: bool, dry_run: bool
) -> None:
    """Train a model, or continue a run.

    Without CONFIG, the demonstration is trained, on the phrasebook of the toolkit. If the training stops, the same
    command continues it. With torchrun, the command trains on several devices.
    """
    if dry_run:
        options.only_for("training; leave out --dry-run", "overwrite")
    from seq2seq.workflows.train import resolve

    path, settings, folder = resolve(config, overrides, run_dir)
    from seq2seq.config.file import naming
    from seq2seq.tasks import run

    with naming(path):
        if dry_run:
            if (report := run.describe(settings, folder)) is not None:
                click.echo(report)
            return
        result = run.train(settings, folder, shlex.join(["s2s", *sys.argv[1:]]), overwrite)
    if result is not None:
        _log_result(result, folder, settings)


def _log_result(result: "TrainingResult", folder: Path, config: "Config") -> None:
    if result.status == "stopped":
        done = f"Saved at step {result.step:,} and stopped" if result.step else "Stopped before the first step"
        logger.info("%s (%s). Run the same command to continue.", done, result.reason)
        return
    best = ""
    if result.best_value is not None:
        best = f"; best {result.metric} {result.best_value:.4g} at step {result.best_step:,}"
    if result.best_step == 0:
        best += ", the initial model: training has not improved on it"
    logger.info("%s at step %s: %s%s", result.status, f"{result.step:,}", result.reason, best)
    from seq2seq.training.progress import further

    if way := further(result, config.training):
        logger.log(logging.WARNING if result.is_improving else logging.INFO, "%s", way)
    verb = "translate" if config.task == "translation" else "classify"
    logger.info("try: echo 'Your text.' | s2s %s %s%s", verb, typed(folder), _named_languages(config))
    if config.task == "translation" and config.data.test:
        logger.info("and: s2s bleu --model %s", typed(folder))


def _named_languages(config: "Config") -> str:
    """Return the options that a model of many languages needs, with the first of its trained directions."""
    return " --from {} --to {}".format(*config.first_direction) if config.first_direction else ""
