"""Options and small answers that several verbs share, so that they read and behave alike everywhere."""

import logging
from collections.abc import Callable
from pathlib import Path

import click

from seq2seq.lines import OnInvalid

logger = logging.getLogger("seq2seq.cli")

EXISTING = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
ANY_PATH = click.Path(path_type=Path)


def computing_options(command: Callable) -> Callable:
    """`--device`, `--precision` and `--threads`."""
    for option in (
        click.option("--threads", type=click.IntRange(min=1), help="Processor threads."),
        click.option(
            "--precision",
            type=click.Choice(["float32", "bfloat16", "float16"]),
            help="Number format of matrix products [default: float32].",
        ),
        click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 or mps."),
    ):
        command = option(command)
    return command


def warn_invalid(name: str) -> OnInvalid:
    """Warns of each line of `name` that is not UTF-8."""
    return lambda number: logger.warning("%s: line %d is not UTF-8; what could not be read is replaced", name, number)


def chosen_model(path: Path | None) -> Path:
    """The model folder that MODEL stands for; where it was left out, the choice is said."""
    from seq2seq.checkpoint import find_model

    folder = find_model(path)
    if path is None:
        logger.info("using %s", folder)
    return folder
