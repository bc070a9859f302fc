"""YAML text as plain values, or one line that names the place of an error and the remedy.

`file` reads configurations and `--set` values with `read_yaml`. It is YAML 1.2; dates are text. YAML text cannot
run code, and aliases that contain themselves or multiply are refused before any value is built.
"""

import copy
import functools
import json
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode
from ruamel.yaml.reader import ReaderError

from seq2seq.arguments import plain

MOST_LEVELS, MOST_VALUES, MOST_DIGITS = 30, 100_000, 400
INT = "tag:yaml.org,2002:int"
_SURROGATES = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")
COLON_WITHOUT_SPACE = re.compile(r"\s*(?:- +)?[A-Za-z_]\w*:[^\s:]")


class YamlProblem(ValueError):
    """Text that is not valid YAML, or too large for a configuration; the message is one line."""


class _Constructor(SafeConstructor):
    """A constructor of plain values; a date is text."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def read_yaml(text: str) -> tuple[Any, list[str]]:
    """Return the value of `text`, and a line for each duplicate key.

    Raises:
        YamlProblem: `text` is not valid YAML, or too large for a configuration.
    """
    return copy.deepcopy(_read(text))


@functools.lru_cache(maxsize=16)  # a start of a run reads the same two files up to five times, 40 ms each
def _read(text: str) -> tuple[Any, list[str]]:
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    yaml.allow_duplicate_keys = True  # `_Nodes` collects all of them, the loader would stop at the first
    yaml.max_depth = MOST_LEVELS
    nodes = _Nodes()
    try:
        root = yaml.compose(text)
        if root is None:
            return None, []
        nodes.measure(root, "")
        return yaml.constructor.construct_document(root), nodes.duplicates
    except YamlProblem:
        raise
    except Exception as error:  # the parser has no common error for values that do not fit their tags
        raise YamlProblem(f"not valid YAML: {_in_words(error, text)}") from error


def as_yaml(value: Any) -> str:
    """Return a value of JSON on one line, as `read_yaml` reads it; numbers of NumPy are numbers, other values text.

    JSON writes a character above U+FFFF as two escapes, which YAML does not join, so it is written unescaped.
    """
    text = json.dumps(value, default=lambda other: number if (number := plain(other)) is not other else str(other))
    return _SURROGATES.sub(lambda match: json.loads(f'"{match.group()}"'), text)


class _Nodes:
    """The nodes of a document, each measured once, however many aliases it has."""

    def __init__(self) -> None:
        self.duplicates: list[str] = []
        self._sizes: dict[int, tuple[int, int]] = {}

    def measure(self, node: Node, path: str) -> tuple[int, int]:
        """Return the number of values that `node` becomes, and their depth; `path` is the path of its keys."""
        line = node.start_mark.line + 1
        if not isinstance(node, CollectionNode):
            if node.tag == INT and len(node.value) > MOST_DIGITS:  # Python refuses to print it
                raise YamlProblem(f"line {line}: a number of {len(node.value):,} digits; use quotes for text")
            return 1, 1
        if id(node) not in self._sizes:
            self._sizes[id(node)] = 0, 0  # while its own values are measured
            inner = [self.measure(*item) for item in self._items(node, path)]
            count, depth = 1 + sum(size for size, _ in inner), 1 + max((depth for _, depth in inner), default=0)
            if depth > MOST_LEVELS:
                raise YamlProblem(f"line {line}: nested too deeply")
            if count > MOST_VALUES:
                raise YamlProblem(f"line {line}: aliases make more than {MOST_VALUES:,} values of it; write it out")
            self._sizes[id(node)] = count, depth
        elif self._sizes[id(node)] == (0, 0):
            raise YamlProblem(f"line {line}: a value that contains itself; write it out")
        return self._sizes[id(node)]

    def _items(self, node: CollectionNode, path: str) -> list[tuple[Node, str]]:
        if not isinstance(node, MappingNode):
            return [(item, f"{path}{index}.") for index, item in enumerate(node.value)]
        items: list[tuple[Node, str]] = []
        first_lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value) if isinstance(key, ScalarNode) else "?", key.start_mark.line + 1
            if name in first_lines:
                self.duplicates.append(f"{path}{name}: given twice, on lines {first_lines[name]} and {line}; keep one")
            first_lines.setdefault(name, line)
            items += [(key, path), (value, f"{path}{name}.")]
        return items


def _in_words(error: Exception, text: str) -> str:
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return f"line {line}: a control character (code {error.character}); remove it"
    if isinstance(error, RecursionError) or "maximum depth" in str(error):
        return "nested too deeply"
    if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        return "a number is too long, or a value does not fit its tag, such as !!int; use quotes for text"
    lines = re.split("\r\n?|[\n\x85\u2028\u2029]", text)  # as the parser counts them
    problem, index = error.problem or "", error.problem_mark.line
    begun = error.context_mark.line if error.context_mark is not None else index
    before = next((number for number in range(index - 1, -1, -1) if lines[number].partition("#")[0].strip()), index)
    unspaced = [number + 1 for number in (before, index) if COLON_WITHOUT_SPACE.match(lines[number])]
    indents = [len(lines[number]) - len(lines[number].lstrip(" ")) for number in (before, index)]
    has_no_colon = problem.startswith("could not find expected ':'")
    if "'\\t'" in problem:
        return f"line {index + 1}: a tab; YAML indents with spaces"
    if problem.startswith("found character"):
        return f"line {index + 1}: a value cannot begin with {problem.split()[2]}; put it in quotes"
    if problem.startswith("found undefined alias"):
        return f"line {index + 1}: * begins the name of an alias, which is not defined; use quotes for text"
    if problem.startswith("found unexpected end"):
        return f"line {begun + 1}: a quotation mark is never closed"
    if problem.startswith("expected ',' or"):
        return f"line {begun + 1}: a comma or the closing {problem.split()[3].rstrip(',')} is missing"
    if unspaced and (has_no_colon or problem.startswith("mapping values")):
        return f"line {unspaced[0]}: a space after the colon is missing"
    if has_no_colon:
        return f"line {begun + 1}: a key needs a colon and a space after it"
    if problem.startswith(("mapping values", "expected <block end>", "expected '<document")):
        if before < index and indents[0] != indents[1]:
            return f"line {index + 1} is indented differently from line {before + 1}"
        return f"line {index + 1}: a second colon, text after a complete value, or keys next to '-'; put text in quotes"
    if problem.startswith("but found another document"):
        return f"line {index + 1}: a second document begins; keep one"
    if "unhashable" in problem:
        return f"line {index + 1}: a key cannot be a list or have keys of its own; put it in quotes"
    return f"line {index + 1}: {problem}"
