"""Errors that a user can cause, and helpers for their messages.

Each is a `UserError`: one line that names the file, key or line, and the remedy. The command line prints it and exits
with `exit_code`; a library caller catches it like any exception.
"""

import contextlib
import difflib
import gzip
import json
import logging
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

MOST_PROBLEMS, LONGEST_VALUE = 20, 60


class UserError(Exception):
    """Wrong usage, configuration or input; the message is one line with the remedy."""

    exit_code = 2


class ConfigError(UserError):
    """All problems of a configuration; `problems` has one line for each, without the `origin`, the file's name."""

    def __init__(self, origin: str, problems: Iterable[str]):
        self.origin, self.problems = origin, tuple(problems)
        lines = list(self.problems[:MOST_PROBLEMS])
        if more := len(self.problems) - len(lines):
            lines.append(f"and {counted(more, 'more problem')}")
        super().__init__("\n".join(f"{origin}: {line}" for line in lines))


class DataError(UserError):
    """A corpus, text file or dataset that cannot be read."""


class ModelError(UserError):
    """A model or run folder that is missing, damaged or of the wrong kind."""


class CheckpointError(UserError):
    """A checkpoint that is missing or damaged, or that the run cannot continue from."""


class MissingDependency(UserError):
    """An optional package is not installed; the message names the extra that installs it."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs the package {package}: pip install 'seq2seq-toolkit[{extra}]'")


class RunError(UserError):
    """The run itself failed (diverged, ran out of memory or disk, lost a rank); the input was valid."""

    exit_code = 1


@contextlib.contextmanager
def quiet(name: str, least: int = logging.ERROR) -> Iterator[None]:
    """Suppress what the logger `name` says below the level `least` inside the block."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(least)
    try:
        yield
    finally:
        logger.setLevel(level)


def did_you_mean(word: str, candidates: Iterable[str], least: float = 0.6) -> str:
    """Return `"; did you mean 'x'?"` for the closest candidate, or an empty string if none is close.

    `least` is the similarity, from 0 to 1, that counts as close.
    """
    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=least)
    return f"; did you mean '{close[0]}'?" if close else ""


def typed(name: object) -> str:
    """Return a name of a file or folder as it is typed in a shell, for a command in a message."""
    return shlex.quote(str(name))


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 line`, `2,000 lines`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def some_of(names: Sequence[str], limit: int = 5) -> str:
    """Return the first names, shortened, and the number of the others; quotes show white space at an end."""
    short = [name if len(name) <= 40 else f"{name[:39]}…" for name in names[:limit]]
    first = ", ".join(name if name == name.strip() != "" else repr(name) for name in short)
    return f"{first} and {len(names) - limit:,} more" if len(names) > limit else first


def kind_of(value: Any) -> str:
    """Return JSON's name for a kind of value: `null`, `true`, `false`, `a number`, `text`, `a list`, `an object`."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    kinds = ((str, "text"), (int | float, "a number"), (list | tuple, "a list"), (Mapping, "an object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "a value of another kind")


def reason(error: BaseException) -> str:
    """Return why a library failed, as one line for a message, without terms of Python."""
    match error:
        case UnicodeDecodeError():
            return f"not UTF-8 at byte {error.start + 1:,}"
        case json.JSONDecodeError():
            problem = error.msg.removesuffix(" at")
            return f"{problem[:1].lower()}{problem[1:]} at character {error.pos + 1:,}"
        case RecursionError():
            return "nested too deeply"
        case MemoryError():
            return "out of memory"
        case KeyError():
            return f"{error.args[0] if error.args else 'a key'} is missing"
        case TypeError() | AttributeError():
            return "a value of the wrong kind"
        case OSError() if error.strerror:
            return error.strerror
        case gzip.BadGzipFile():
            return "not gzip data"
        case ValueError() if "integer string conversion" in str(error):
            return "a number with thousands of digits"
    return next(filter(None, map(str.strip, str(error).splitlines())), "the reason is not known")


def _plain(value: Any) -> str:
    """Return a date or a path as text; raise TypeError for binary data and sets of YAML."""
    if isinstance(value, bytes | set):
        raise TypeError
    return str(value)


def shown(value: Any) -> str:
    """Return a value as the user may have written it, shortened to fit into a line."""
    if isinstance(value, str):
        return repr(value) if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]!r}..."
    try:
        text = json.dumps(value, ensure_ascii=False, default=_plain).encode("utf-8", "backslashreplace").decode()
    except (TypeError, ValueError, RecursionError):  # a number of thousands of digits, or a list of lists of lists ...
        return "a value of this kind"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
