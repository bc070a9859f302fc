"""One server of each kind for all tests of a process that ask it for nothing special."""

import json
import shutil

import pytest
from support.serving import serving


@pytest.fixture(scope="session")
def server(trained_in_reverse):
    with serving(trained_in_reverse / "runs" / "toy", "--beam-size", "5") as served:
        yield served


@pytest.fixture(scope="session")
def both_ways(trained_in_reverse, tmp_path_factory):
    """A server whose second model has the languages of the first exchanged."""
    run, back = trained_in_reverse / "runs" / "toy", tmp_path_factory.mktemp("page") / "back"
    shutil.copytree(run / "best", back)
    config = json.loads((back / "config.json").read_text())
    config["source_language"], config["target_language"] = config["target_language"], config["source_language"]
    (back / "config.json").write_text(json.dumps(config))
    with serving(run, back, "--beam-size", "5") as served:
        yield served
