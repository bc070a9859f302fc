"""The output of a command: standard output, or a file that appears when it is complete.

`check_output` looks at it before the work, so that a wrong name costs no translation; `open_output` opens it after.
"""

import contextlib
import errno
import gzip
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TextIO

import click

from seq2seq import atomic
from seq2seq.errors import DataError

STANDARD_OUTPUT = 1  # its descriptor
DESCRIPTORS = Path("/dev/fd"), Path("/proc/self/fd")  # folders with the open descriptors of a process, by number
MOST_LINKS = 40  # from one name to the next, as on Linux; links may form a circle


def check_output(output: Path | None, also: Mapping[str, Path | None] | None = None) -> None:
    """Refuse an output that is one of the inputs, or cannot be written.

    The inputs are all paths given to the running command, standard input, and the paths in `also`.

    Raises:
        click.UsageError: the output is an input.
        DataError: there is no folder for it.
        PermissionError: its folder may not be written to.
    """
    written, shown = _status(sys.stdout if is_standard(output) else output), "standard output"
    if not is_standard(output):
        shown = f"-o {output}"
        _check_folder(output)
    if written is None:
        return
    for name, path in [*_paths_given(), *(also or {}).items()]:
        is_folder = not is_standard(path) and path.is_dir()
        files = path.rglob("*") if is_folder else [sys.stdin if is_standard(path) else path]
        if any((status := _status(file)) and os.path.samestat(status, written) for file in files):
            relation = f"is a file of {name} {path}" if is_folder else f"and {name} are the same file"
            raise click.UsageError(f"{shown} {relation}; choose another output")


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Open standard output (None or `-`), or a file that appears when it is complete.

    A file whose name ends in .gz is compressed. Pipes, devices and open streams (/dev/stderr) are written directly.
    What a killed command left in the folder is deleted.

    Raises:
        DataError: standard output is closed.
    """
    descriptor = descriptor_of(path) if path is not None else None
    if is_standard(path) or descriptor == STANDARD_OUTPUT:
        if sys.stdout is None or getattr(sys.stdout, "name", None) == os.devnull:  # `cli.main` opens it so
            raise DataError("standard output is closed; give a file with -o")
        yield sys.stdout.buffer
        return
    if descriptor is not None:  # a new file in place of the one that it leads to would lose what is there
        with os.fdopen(os.dup(descriptor), "wb") as sink:
            yield sink
        return
    path = path.resolve()
    with contextlib.ExitStack() as stack:
        if _is_special(path):
            sink = stack.enter_context(open(path, "wb"))
        else:
            with contextlib.suppress(OSError):  # a folder that cannot be listed
                atomic.remove_leftovers(path.parent)
            sink = stack.enter_context(atomic.new_file(path))
        if path.suffix.lower() == ".gz":
            sink = stack.enter_context(gzip.GzipFile("", "wb", 6, sink, mtime=0))
        yield sink


def paths_given() -> list[Path]:
    """Return all paths among the options and arguments of the running command, except its output."""
    return [path for _, path in _paths_given() if path is not None]


def is_standard(path: Path | None) -> bool:
    """Whether a path stands for standard input or output."""
    return path is None or str(path) == "-"


def descriptor_of(path: Path) -> int | None:
    """Return the open descriptor that a path names, as /dev/stdout and /dev/fd/3 do; None for any other path."""
    for _ in range(MOST_LINKS):
        if path.parent in DESCRIPTORS and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()
    return None


def _check_folder(output: Path) -> None:
    if (descriptor := descriptor_of(output)) is not None:
        try:
            os.fstat(descriptor)
        except OSError as error:
            raise DataError(f"{output}: not an open stream; name another one, or a file") from error
        return
    folder = output.resolve().parent
    if _is_special(output):
        return
    if not folder.is_dir():
        raise DataError(f"{output}: there is no folder {output.parent}; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(output))


def _is_special(path: Path) -> bool:
    """Whether a path is a pipe or a device, which a file cannot replace."""
    return path.exists() and not path.is_file()


def _paths_given() -> Iterator[tuple[str, Path | None]]:
    """Yield (name of the parameter, path) of all paths given to the running command, except its output."""
    context = click.get_current_context(silent=True)
    for parameter in context.command.params if context else ():
        if not isinstance(parameter.type, click.Path) or "-o" in parameter.opts:
            continue
        name = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.name.upper()
        value = context.params.get(parameter.name)
        for path in value if isinstance(value, tuple) else (value,):
            if path is not None or name == "-i":
                yield name, path


def _status(file: Path | TextIO | None) -> os.stat_result | None:
    """Return the status of a regular file, which identifies it under any name; None for anything else."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        status = os.stat(file if isinstance(file, Path) else file.fileno())
        return status if stat.S_ISREG(status.st_mode) else None
    return None
