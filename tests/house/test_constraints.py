"""`constraints.txt` holds for the oldest Python that `pyproject.toml` names, whatever Python runs the tests."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())
OLDEST = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]


@pytest.mark.parametrize("name", PINS)
def test_a_pinned_release_supports_the_oldest_python(name):
    try:
        installed = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        pytest.skip("not installed")
    if installed.version.partition("+")[0] != PINS[name]:
        pytest.skip(f"{installed.version} is installed")
    versions = SpecifierSet(installed.metadata.get("Requires-Python") or "")
    assert versions.contains(f"{OLDEST.removeprefix('>=')}.0")
