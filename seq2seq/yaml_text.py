"""YAML text as plain values, or one line that says where it is wrong and how to mend it.

`config_file` reads configurations and `--set` values through here. YAML 1.2 without dates, which stay text. Text can
neither run code nor grow: aliases that refer to themselves or multiply are refused before anything is built.
"""

import io
import itertools
import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode
from ruamel.yaml.reader import ReaderError

MOST_BRACKETS = 1100  # those in texts too
MOST_LEVELS, MOST_VALUES, MOST_DIGITS = 30, 100_000, 400
INT = "tag:yaml.org,2002:int"
COLON_WITHOUT_SPACE = re.compile(r"\s*(?:- +)?[A-Za-z_]\w*:[^\s:]")


class YamlProblem(ValueError):
    """Text that is not valid YAML, or more than a configuration can mean; the message is one line."""


class _Constructor(SafeConstructor):
    """Of plain values, where a date is the text that it is written as."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def read_yaml(text: str) -> tuple[Any, list[str]]:
    """The value that `text` describes, and a line for each key that it gives twice, of which the first one counts.

    Raises:
        YamlProblem: it describes none.
    """
    try:
        if _most_brackets(text) > MOST_BRACKETS:  # the parser takes seconds until it gives up
            raise YamlProblem("nested too deeply")
        root = _loader().compose(io.StringIO(text))
        if root is None:
            return None, []
        _measure(root, {})
        return _loader().load(text), list(_duplicate_keys(root, "", set()))
    except YamlProblem:
        raise
    except RecursionError as error:
        raise YamlProblem("nested too deeply") from error
    except Exception as error:  # the parser has no one kind of error for a value that does not fit its tag
        raise YamlProblem(f"not valid YAML: {_in_words(error, text)}") from error


def _loader() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    yaml.allow_duplicate_keys = True  # `_duplicate_keys` collects all of them, where the loader stops at the first
    return yaml


def _most_brackets(text: str) -> int:
    """How many brackets are open at once, where all of them count."""
    steps = [1 if bracket in "[{" else -1 for bracket in re.findall(r"[\[\]{}]", text)]
    return max(itertools.accumulate(steps), default=0)


def _measure(node: Node, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """How many values `node` becomes, and how deep they are nested; `known` are the nodes that were measured."""
    line = node.start_mark.line + 1
    if not isinstance(node, CollectionNode):
        if node.tag == INT and len(node.value) > MOST_DIGITS:  # Python refuses to print it
            raise YamlProblem(f"line {line}: a number of {len(node.value):,} digits; use quotes for text")
        return 1, 1
    if id(node) in known:
        if (measured := known[id(node)]) is None:
            raise YamlProblem(f"line {line}: a value that contains itself; write it out")
        return measured
    known[id(node)] = None
    inner = [item for pair in node.value for item in pair] if isinstance(node, MappingNode) else node.value
    sizes = [_measure(item, known) for item in inner]
    count, depth = 1 + sum(size for size, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)
    if depth > MOST_LEVELS:
        raise YamlProblem(f"line {line}: nested too deeply")
    if count > MOST_VALUES:
        raise YamlProblem(f"line {line}: aliases make more than {MOST_VALUES:,} values of it; write out what is meant")
    known[id(node)] = count, depth
    return count, depth


def _duplicate_keys(node: Node, path: str, seen: set[int]) -> Iterator[str]:
    if not isinstance(node, CollectionNode) or id(node) in seen:
        return
    seen.add(id(node))
    if not isinstance(node, MappingNode):
        for index, item in enumerate(node.value):
            yield from _duplicate_keys(item, f"{path}{index}.", seen)
        return
    first_lines: dict[str, int] = {}
    for key_node, value_node in node.value:
        key, line = str(key_node.value) if isinstance(key_node, ScalarNode) else "?", key_node.start_mark.line + 1
        if key in first_lines:
            yield f"{path}{key}: given twice, on lines {first_lines[key]} and {line}; keep one"
        first_lines.setdefault(key, line)
        yield from _duplicate_keys(value_node, f"{path}{key}.", seen)


def _in_words(error: Exception, text: str) -> str:
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return f"line {line}: a control character (code {error.character}); remove it"
    if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        return "a number is too long, or a value does not fit its tag, such as !!int; use quotes for text"
    lines = text.split("\n")
    index = error.problem_mark.line
    begun = error.context_mark.line if error.context_mark is not None else index
    before = next((number for number in range(index - 1, -1, -1) if _content(lines[number])), index)
    unspaced = [number for number in (before, index) if COLON_WITHOUT_SPACE.match(lines[number])]
    match (error.problem or "").split():
        case ["found", "character", *_] if "'\\t'" in error.problem:
            return f"line {index + 1}: a tab; YAML indents with spaces"
        case ["found", "character", character, *_]:
            return f"line {index + 1}: a value cannot begin with {character}; put it in quotes"
        case ["mapping", "values", *_] | ["could", "not", "find", "expected", *_] if unspaced:
            return f"line {unspaced[0] + 1}: a space after the colon is missing"
        case ["mapping", "values", *_] if _indent(lines[index]) > _indent(lines[before]) and before < index:
            return f"line {index + 1} is indented more than line {before + 1}, which has its value already"
        case ["mapping", "values", *_]:
            return f"line {index + 1}: a second colon; put the value in quotes"
        case ["could", "not", "find", "expected", *_]:
            return f"line {begun + 1}: a key needs a colon and a space behind it"
        case ["expected", "<block", "end>,", *_] if before == index or _indent(lines[index]) == _indent(lines[before]):
            return f"line {index + 1}: text behind a complete value, or keys and '-' are mixed; put text in quotes"
        case ["expected", "<block", "end>,", *_] | ["expected", "'<document", *_]:
            return f"line {index + 1} is indented differently from line {before + 1}"
        case ["expected", "','", "or", closing, *_]:
            return f"line {begun + 1}: a comma or the closing {closing.rstrip(',')} is missing"
        case ["found", "unexpected", "end", *_]:
            return f"line {begun + 1}: a quotation mark is never closed"
        case ["found", "undefined", "alias", alias]:
            return f"line {index + 1}: * begins the name of an alias, and there is no {alias}; use quotes for text"
    return f"line {index + 1}: {error.problem}"


def _content(line: str) -> str:
    return line.partition("#")[0].strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
