"""The shape of the package: who may import whom, no circles, instant help, and files of a readable size."""

import ast
import functools
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "seq2seq"
FILES = sorted(PACKAGE.rglob("*.py"))
TEST_FILES = sorted(Path(__file__).parents[1].rglob("*.py"))

# A unit is a folder of the package or a file beside them. It imports from lower floors and from its own folder.
FLOORS = {
    "errors": 0, "archives": 0, "lines": 0, "files": 0, "languages": 0, "atomic": 0, "hub": 0, "processes": 0,
    "executors": 0, "arguments": 0,
    "config": 1, "runtime": 1, "tensors": 1, "memory": 1, "plots": 1, "recording": 1,
    "model": 2, "search": 2, "text": 2,
    "evaluation": 3, "markup": 3, "data": 3,
    "inspection": 4, "interop": 4,
    "store": 5,
    "training": 6, "inference": 6,
    "tasks": 7,
    "workflows": 8, "bench": 8, "serve": 8,
    "cli": 9,
    "__main__": 10,
}  # fmt: skip

MAX_LINES = 400
FORBIDDEN_NAME = re.compile(r"(?:^|_)(helpers?|utils?|misc|common|managers?)(?:_|$)", re.IGNORECASE)
# The one module of the package that brings names from above it, on first use.
LAZY_ROOT = "seq2seq"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def modules_of(nodes: Iterable[ast.AST], path: Path, name: str) -> set[str]:
    """The modules of the package that the imports among the nodes bring into a file."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                longer = f"{origin}.{alias.name}"
                found.add(longer if longer in MODULES else origin)
    return found


def _running_with_the_file(tree: ast.AST):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from _running_with_the_file(node)


@dataclass
class Facts:
    """The facts of a file of the package that the laws concern; its tree is a hundred times as large."""

    imported: set[str]
    imported_with_the_file: set[str]
    functions: set[str] = field(default_factory=set)
    classes: list[str] = field(default_factory=list)
    beyond: list[tuple[str, str]] = field(default_factory=list)


@functools.cache
def facts(path: Path) -> Facts:
    name, tree = module_name(path), ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    found = Facts(modules_of(nodes, path, name), modules_of(_running_with_the_file(tree), path, name))
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            found.classes.append(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.functions.add(node.name)
            function = f"{name.partition('.')[2]}.{node.name}"
            found.beyond += [(limit, function) for limit, is_beyond in BEYOND.items() if is_beyond(function, node)]
    return found


def unit(module: str) -> str:
    return module.split(".")[1]


def is_folder(name: str) -> bool:
    return (PACKAGE / name).is_dir()


def inside(modules: set[str]) -> set[str]:
    """Those that belong to the package, without its root, which holds only the version and two lazy names."""
    return {module for module in modules if module.startswith(LAZY_ROOT + ".")}


@pytest.mark.parametrize("path", FILES, ids=[module_name(path) for path in FILES])
def test_imports_go_down_or_stay_at_home(path):
    name = module_name(path)
    if name == LAZY_ROOT:
        assert not inside(facts(path).imported_with_the_file), "the root imports nothing before it is asked"
        return
    home = unit(name)
    assert home in FLOORS, f"{home} has no floor; give it one in this test and in the architecture"
    for imported in inside(facts(path).imported):
        assert imported in MODULES, f"{name} imports {imported}, which does not exist"
        other = unit(imported)
        at_home = other == home or (FLOORS[other] == FLOORS[home] and not is_folder(other) and not is_folder(home))
        assert at_home or FLOORS[other] < FLOORS[home], f"{name} (floor {FLOORS[home]}) imports {imported}"


def test_no_circle():
    graph = {name: inside(facts(path).imported) - {name} for name, path in MODULES.items() if name != LAZY_ROOT}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"import circle: {' -> '.join([*above[above.index(name) :], name])}"
        if name not in done:
            for imported in sorted(graph.get(name, ())):
                visit(imported, (*above, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_the_lowest_floor_and_help_need_no_heavy_package():
    light = [name for name in inside(set(MODULES)) if unit(name) == "config" or not FLOORS[unit(name)]] + [
        "seq2seq",
        "seq2seq.cli",
    ]
    heavy = ("torch", "datasets", "sacrebleu", "matplotlib", "sentencepiece", "numpy", "pandas", "regex")
    code = f"import sys, {', '.join(light)}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


# What training reaches by imports that run with their files, tasks and validation included, as a share of the package;
# it needs none of these modules. `cli/test_translate_command.py` counts those of translation as they are imported.
MOST_OF_TRAINING = 0.42
NOT_FOR_TRAINING = ("bench", "serve", "markup", "interop.marian", "interop.m2m", "interop.ctranslate2", "plots")


def test_training_imports_no_more_than_it_needs():
    waiting, reached = ["cli.train", "workflows.train", "tasks.run", "tasks.translation"], set()
    while waiting:
        name = f"{LAZY_ROOT}.{waiting.pop()}"
        if name not in reached:
            reached.add(name)
            found = inside(facts(MODULES[name]).imported_with_the_file)
            waiting += [module.partition(".")[2] for module in found]
    names = {name.partition(".")[2] for name in reached}
    assert not [name for name in names if name.startswith(NOT_FOR_TRAINING)]
    assert not names & {"inference.loading", "inference.ctranslate2_engine", "inference.calibrating", "store.foreign"}
    share = num_lines(reached) / num_lines(MODULES)
    assert MOST_OF_TRAINING - 0.05 < share <= MOST_OF_TRAINING


def num_lines(names) -> int:
    return sum(len(MODULES[name].read_text(encoding="utf-8").splitlines()) for name in names)


def docstring(text: str) -> str | None:
    """The docstring of a file, of which nothing but the beginning is parsed."""
    begun = re.match(r'(?:#.*\n|\s)*(r?""".*?""")\s*$', text, re.DOTALL | re.MULTILINE)
    return ast.get_docstring(ast.parse(begun[1])) if begun else None


def assert_short_with_docstring(text: str) -> None:
    assert len(text.splitlines()) <= MAX_LINES
    assert docstring(text), "a module opens with a docstring"


@pytest.mark.parametrize("path", TEST_FILES, ids=[path.stem for path in TEST_FILES])
def test_a_test_file_is_short_and_says_what_it_tests(path):
    assert_short_with_docstring(path.read_text(encoding="utf-8"))


def test_test_files_have_names_of_their_own():
    names = [path.name for path in TEST_FILES if path.name != "conftest.py"]  # of which each folder may have one
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", FILES, ids=[module_name(path) for path in FILES])
def test_a_file_is_short_and_says_what_lives_in_it(path):
    text = path.read_text(encoding="utf-8")
    assert_short_with_docstring(text)
    assert not re.search(r"\b(TODO|FIXME|XXX)\b|NotImplementedError", text)


@pytest.mark.parametrize("path", FILES, ids=[module_name(path) for path in FILES])
def test_names_explain_themselves(path):
    names = {path.stem, *facts(path).functions, *facts(path).classes}
    vague = sorted(name for name in names if FORBIDDEN_NAME.search(name))
    assert not vague


# -- functions, classes and folders of a readable size -----------------------------------------------

MAX_FUNCTION, MAX_ARGUMENTS, MAX_NESTING, MAX_SHARE = 60, 8, 3, 0.12
LEVELS = ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.Match
# Functions and classes that may still exceed a limit. A row that is no longer needed fails its test: remove it.
EXCEPTIONS = {
    "lines": set(),
    "arguments": set(),
    "nesting": set(),
    "recursion": set(),
    "classes": set(),
}  # fmt: skip


def nesting(node: ast.AST, level: int = 0) -> int:
    """The deepest level of statements in a function, without functions in it; elif is no level."""
    deepest = level
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            is_elif = isinstance(inner, ast.If) and isinstance(node, ast.If) and node.orelse == [inner]
            deepest = max(deepest, nesting(inner, level + (isinstance(inner, LEVELS) and not is_elif)))
    return deepest


def num_arguments(node: ast.FunctionDef) -> int:
    """Without self."""
    names = [given.arg for given in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def calls_itself(node: ast.FunctionDef) -> bool:
    calls = {ast.unparse(inner.func) for inner in ast.walk(node) if isinstance(inner, ast.Call)}
    return not calls.isdisjoint({node.name, f"self.{node.name}", f"cls.{node.name}"})


BEYOND = {
    "lines": lambda name, node: node.end_lineno - node.lineno + 1 > MAX_FUNCTION,
    "arguments": lambda name, node: num_arguments(node) > MAX_ARGUMENTS and not name.startswith("cli."),
    "nesting": lambda name, node: nesting(node) > MAX_NESTING,
    "recursion": lambda name, node: name.startswith("markup.") and calls_itself(node),
}


@pytest.mark.parametrize("limit", BEYOND)
def test_functions_keep_to_the_limits(limit):
    assert {name for path in FILES for beyond, name in facts(path).beyond if beyond == limit} == EXCEPTIONS[limit]


def test_public_classes_have_names_of_their_own():
    names = Counter(name for path in FILES for name in facts(path).classes if not name.startswith("_"))
    assert {name for name, count in names.items() if count > 1} == EXCEPTIONS["classes"]


def test_no_folder_is_most_of_the_package():
    lines = Counter()
    for path in FILES:
        lines[path.relative_to(PACKAGE).parts[0]] += len(path.read_text(encoding="utf-8").splitlines())
    assert not {name for name, count in lines.items() if count > MAX_SHARE * lines.total()}


def test_the_measures_see_what_they_measure():
    (function,) = ast.parse(
        "def f(self, a, *, b):\n"
        "    if a:\n        with b:\n            pass\n"
        "    elif b:\n        for c in a:\n            self.f(c)\n"
        "    else:\n        def g():\n            while b:\n                try:\n                    pass\n"
        "                finally:\n                    pass\n"
    ).body
    assert (nesting(function), num_arguments(function), calls_itself(function)) == (2, 2, True)


def test_the_walk_sees_imports_of_every_kind(tmp_path):
    # The laws above are only as good as this reader of imports.
    path = tmp_path / "sample.py"
    path.write_text(
        "import seq2seq.errors\nfrom seq2seq import lines\nfrom . import config\n"
        "def later():\n    from seq2seq.runtime import start\n"
    )
    tree = ast.parse(path.read_text())
    walks = ast.walk(tree), _running_with_the_file(tree)
    everywhere, at_once = (modules_of(nodes, path, "seq2seq.sample") for nodes in walks)
    assert everywhere == {"seq2seq.errors", "seq2seq.lines", "seq2seq.config", "seq2seq.runtime"}
    assert at_once == everywhere - {"seq2seq.runtime"}
