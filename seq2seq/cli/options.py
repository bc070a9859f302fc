"""Options and small answers that several verbs share, so that they read and behave alike everywhere."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import click

from seq2seq import ranges
from seq2seq.errors import DataError, shown
from seq2seq.lines import OnInvalid
from seq2seq.ranges import Range

logger = logging.getLogger("seq2seq.cli")

EXISTING = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
ANY_PATH = click.Path(path_type=Path)


class Number(click.ParamType):
    """A number within bounds that the configuration shares, refused in its words."""

    def __init__(self, bounds: Range):
        self.bounds = bounds
        self.name = "integer" if bounds.whole else "float"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Called by click with what was typed, or with a default."""
        try:
            return self.bounds.check(float(value))
        except ValueError:
            self.fail(f"must be {self.bounds}, not {shown(value)}", param, context)


def computing_options(command: Callable) -> Callable:
    """`--device`, `--precision` and `--threads`."""
    for option in (
        click.option("--threads", type=Number(ranges.THREADS), help="Processor threads."),
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


def check_output(output: Path | None, inputs: Mapping[str, Path | None]) -> None:
    """Refuse an output that is one of the inputs, by option or argument name, or has no folder to be written to."""
    if output is None:
        return
    for name, path in inputs.items():
        if path is not None and output.is_file() and path.exists() and path.samefile(output):
            raise click.UsageError(f"-o and {name} are the same file, {output}; choose another output")
    if not output.resolve().parent.is_dir():
        raise DataError(f"{output}: there is no folder {output.parent}; make it first")


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that is there when all of it is; what is no file (a pipe, a device) is written to."""
    if path is None or str(path) == "-":
        yield sys.stdout.buffer
        return
    path = path.resolve()
    if path.exists() and not path.is_file():
        with open(path, "wb") as sink:
            yield sink
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.writing")
    try:
        with open(temporary, "wb") as sink:
            yield sink
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def chosen_model(path: Path | None) -> Path:
    """The model folder that MODEL stands for; where it was left out, the choice is said."""
    from seq2seq.checkpoint import find_model

    folder = find_model(path)
    if path is None:
        logger.info("using %s", folder)
    return folder
