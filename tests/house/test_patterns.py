"""Regular expressions mean the same in every supported Python."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import seq2seq

# What moves the place of a search before it fails.
MOVING = {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT, codes.ASSERT, codes.ASSERT_NOT}


def patterns(value: Any) -> Iterator[re.Pattern]:
    """Yield the patterns in a value of a module."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from patterns(each)
    elif isinstance(value, dict):
        yield from patterns([*value.keys(), *value.values()])


def operations(parsed: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each operation of a parsed pattern, also those within others, with its arguments."""
    if isinstance(parsed, parser.SubPattern):
        for operation, arguments in parsed:
            yield operation, arguments
            yield from operations(arguments)
    elif isinstance(parsed, list | tuple):
        for each in parsed:
            yield from operations(each)


def is_unreliable(pattern: str, flags: int = 0) -> bool:
    """Whether a possessive quantifier repeats something that may fail in the middle.

    Python before 3.11.5 then goes on where that failed (python/cpython#106052); an atomic group does not.
    """
    found = (arguments for operation, arguments in operations(parser.parse(pattern, flags))
             if operation is codes.POSSESSIVE_REPEAT)  # fmt: skip
    return any(operation in MOVING for _, _, item in found for operation, _ in operations(item))


NAMES = [module.name for module in pkgutil.walk_packages(seq2seq.__path__, "seq2seq.") if "__main__" not in module.name]


def test_no_pattern_depends_on_the_version_of_python():
    found = {}
    for name in NAMES:
        for pattern in patterns(list(vars(importlib.import_module(name)).values())):
            if isinstance(pattern.pattern, str):
                found[pattern.pattern] = name, pattern.flags & ~re.UNICODE
    assert len(found) > 50
    assert {pattern: where for pattern, (where, flags) in found.items() if is_unreliable(pattern, flags)} == {}


@pytest.mark.parametrize("pattern", [r"(?:\.\d++)*+", r"x(?:a|-\w+)++", r"(?:\*(?!/))*+"])
def test_such_patterns_are_found(pattern):
    assert is_unreliable(pattern)
    assert not is_unreliable(f"(?>{pattern[:-1]})")
