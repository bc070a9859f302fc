"""The run that reverses sentences, under the name `folder`."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(reversed_run) -> Path:
    """A run that has learned to translate words in reverse order, with its calibration."""
    return reversed_run
