"""The mechanical part of plain English: docstrings that parse alone, and words that have plainer ones.

It reads docstrings, comments and other texts of the package by room (a folder, or `root`), and the READMEs.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "seq2seq"
ROOMS = {folder.name: folder for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file()} | {"root": PACKAGE}

# A docstring that begins like this needs the name above it.
FRAGMENT = re.compile(r"(Of|Those|That|As|What|Whatever|Where|So)\b")
# A function's docstring that begins like this has no verb; properties are nouns.
NOUN = re.compile(r"(The|A|An|Each|Every|All|Its|Their|This|These)\b|\(")
# Write: after; not X; continue.
AVOIDED = re.compile(r"\bbehind\b|\bwhat is no\b|\bgo(?:es)? on\b", re.IGNORECASE)
PROPERTIES = {"property", "cached_property"}


def docstrings(tree: ast.Module) -> Iterator[tuple[int, bool, str]]:
    """Yield the line, whether a verb must come first, and the text of each docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if (text := ast.get_docstring(node)) is None:
                continue
            names = {ast.unparse(name).rpartition(".")[2] for name in getattr(node, "decorator_list", ())}
            is_function = not isinstance(node, ast.Module | ast.ClassDef)
            yield node.body[0].lineno, is_function and not names & PROPERTIES, text
        for statement in getattr(node, "body", ())[1:] if isinstance(node, ast.Module | ast.ClassDef) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.lineno, False, str(statement.value.value)  # of the field above it


def texts(source: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string and comment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def findings(source: str) -> list[tuple[int, str]]:
    """Return the line and the beginning of each text that is to be rewritten."""
    tree = ast.parse(source)
    found = [
        (line, text.splitlines()[0])
        for line, has_verb, text in docstrings(tree)
        if FRAGMENT.match(text) or (has_verb and NOUN.match(text))
    ]
    return found + [(line, text[:80]) for line, text in texts(source, tree) if AVOIDED.search(text)]


def findings_of_room(folder: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted(folder.glob("*.py") if folder == PACKAGE else folder.rglob("*.py"))
        for line, text in sorted(findings(path.read_text(encoding="utf-8")))
    ]


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_docstrings_parse_alone_in_plain_words(room):
    found = findings_of_room(ROOMS[room])
    assert not found, "\n".join(found)


def test_readmes_are_in_plain_words():
    paths = [ROOT / "README.md", ROOT / "CHANGELOG.md", *PACKAGE.rglob("*.md"), *ROOT.glob("*/README.md")]
    lines = [(path, line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    found = [f"{path.relative_to(ROOT)}: {line[:100]}" for path, line in lines if AVOIDED.search(line)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        '"""What a module is."""',
        'def f():\n    """Of a counter."""',
        'class C:\n    """Those that wait."""',
        'def f():\n    """The words of a text."""',
        "x = 1  # the word behind it",
        'raise Error("it goes on")',
        'x = 1\n"""What is no text."""',
    ],
)
def test_each_kind_is_found(source):
    assert len(findings(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        'class C:\n    @property\n    def f(self):\n        """The words of a text."""',
        'def f():\n    """Return the words of a text."""',
        'class C:\n    """A text."""',
        'def f():\n    """Whether a text has words."""',
        "goes_on = space_behind = 1",
    ],
)
def test_plain_words_are_not_found(source):
    assert not findings(source)
