"""Options and small answers that several verbs share, so that they read and behave alike everywhere."""

import contextlib
import gzip
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import click

from seq2seq import atomic, ranges
from seq2seq.errors import DataError, shown
from seq2seq.lines import OnInvalid
from seq2seq.ranges import QUANTIZATIONS, Range

logger = logging.getLogger("seq2seq.cli")

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
ANY_PATH = click.Path(path_type=Path)


class _Named(click.Path):
    """A place to write to that has a name."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if str(value) == "-":
            self.fail("standard output cannot take this; give a name", parameter, context)
        return super().convert(value, parameter, context)


NAMED_FILE = _Named(path_type=Path, dir_okay=False)
NAMED_PLACE = _Named(path_type=Path)


class Number(click.ParamType):
    """A number within bounds that the configuration shares, refused in its words."""

    def __init__(self, bounds: Range):
        self.bounds = bounds
        self.name = "integer" if bounds.is_whole else "float"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Called by click with what was typed, or with a default."""
        try:
            return self.bounds.check(float(value))
        except ValueError:
            self.fail(f"must be {self.bounds}, not {shown(value)}", param, context)


batch_tokens_option = click.option(
    "--batch-tokens", type=Number(ranges.COUNT), default=4096, show_default=True, help="Tokens per batch."
)


def computing_options(command: Callable) -> Callable:
    """`--device`, `--precision` and `--threads`."""
    for option in (
        click.option("--threads", type=Number(ranges.THREADS), help="CPU threads."),
        click.option(
            "--precision",
            type=click.Choice(["float32", "bfloat16", "float16"]),
            help="Number format of matrix products [default: float32].",
        ),
        click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 or mps."),
    ):
        command = option(command)
    return command


def engine_options(command: Callable) -> Callable:
    """`--engine` and `--quantization`."""
    for option in (
        click.option(
            "--quantization",
            type=click.Choice(QUANTIZATIONS),
            help="Number format of weights in CTranslate2 [default: float32]. A CTranslate2 folder has its own.",
        ),
        click.option(
            "--engine",
            type=click.Choice(["auto", "torch", "ctranslate2"]),
            default="auto",
            show_default=True,
            help="auto: CTranslate2 on a CPU where it can run MODEL and the search, else PyTorch. A few lines in a "
            "hundred may differ, because their beam searches stop by different rules.",
        ),
    ):
        command = option(command)
    return command


def warn_invalid(path: Path | None) -> OnInvalid:
    """Warns of each line that is not UTF-8 in a file, or in standard input (None or `-`)."""
    name = "standard input" if _is_standard(path) else str(path)
    return lambda number: logger.warning("%s: line %d is not UTF-8; what could not be read is replaced", name, number)


def check_output(output: Path | None, also: Mapping[str, Path | None] | None = None) -> None:
    """Refuse an output that is one of the inputs, or has no folder to be written to.

    The inputs are every path that the running command was given, standard input, and what is named in `also`.
    """
    written, shown = _status(sys.stdout if _is_standard(output) else output), "standard output"
    if not _is_standard(output):
        shown = f"-o {output}"
        if not output.resolve().parent.is_dir():
            raise DataError(f"{output}: there is no folder {output.parent}; make it first")
    if written is None:
        return
    for name, path in [*_paths_given(), *(also or {}).items()]:
        is_folder = not _is_standard(path) and path.is_dir()
        files = path.rglob("*") if is_folder else [sys.stdin if _is_standard(path) else path]
        if any((status := _status(file)) and os.path.samestat(status, written) for file in files):
            relation = f"is a file of {name} {path}" if is_folder else f"and {name} are the same file"
            raise click.UsageError(f"{shown} {relation}; choose another output")


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Standard output (None or `-`), or a file that appears once it is complete, compressed where its name ends in .gz.

    Pipes and devices are written directly.

    Raises:
        DataError: standard output is closed.
    """
    with contextlib.ExitStack() as stack:
        if _is_standard(path):
            if is_closed(sys.stdout):
                raise DataError("standard output is closed; give a file with -o")
            yield sys.stdout.buffer
            return
        path = path.resolve()
        if path.exists() and not path.is_file():
            sink = stack.enter_context(open(path, "wb"))
        else:
            sink = stack.enter_context(atomic.new_file(path))
        if path.suffix.lower() == ".gz":
            sink = stack.enter_context(gzip.GzipFile("", "wb", 6, sink, mtime=0))
        yield sink


def is_closed(stream: TextIO | None) -> bool:
    """Whether a standard stream was closed when the program began; `cli.main` opens nothing in its place."""
    return stream is None or getattr(stream, "name", None) == os.devnull


def chosen_model(path: Path | None) -> Path:
    """The model folder that MODEL stands for; where it was left out, the choice is said."""
    from seq2seq.store.finding import find_model

    folder = find_model(path)
    if path is None:
        logger.info("using %s", folder)
    return folder


def _paths_given() -> Iterator[tuple[str, Path | None]]:
    """Every path among the options and arguments of the command that runs, but its output."""
    context = click.get_current_context(silent=True)
    for parameter in context.command.params if context else ():
        if isinstance(parameter.type, click.Path) and "-o" not in parameter.opts:
            name = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.name.upper()
            value = context.params.get(parameter.name)
            for path in value if isinstance(value, tuple) else (value,):
                if path is not None or name == "-i":
                    yield name, path


def _is_standard(path: Path | None) -> bool:
    return path is None or str(path) == "-"


def _status(place: Path | TextIO | None) -> os.stat_result | None:
    """What tells a file from others, whatever it is called; None for what is not there, or no file."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        status = os.stat(place if isinstance(place, Path) else place.fileno())
        return status if stat.S_ISREG(status.st_mode) else None
    return None
