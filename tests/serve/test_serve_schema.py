"""schemathesis makes requests of what `/openapi.json` says, and finds no error of the server. Slow: about 15 s."""

import subprocess
import sysconfig
from pathlib import Path

import pytest
from support import wrong_files
from support.serving import quick_model, serving

# What may be wrong with a request on one server and right on another is not in the description.
NOT_DESCRIBED = "positive_data_acceptance,negative_data_rejection"


@pytest.mark.slow
def test_the_description_holds_whatever_is_asked(tmp_path):
    """No answer of 500, and every status, type and body as described."""
    quick_model(tmp_path / "model")
    wrong_files.save(tmp_path / "labels", task="classification")
    program = Path(sysconfig.get_path("scripts")) / "schemathesis"
    with serving(tmp_path / "model", tmp_path / "labels") as server:
        done = subprocess.run(
            [program, "run", f"{server.url}/openapi.json", "--exclude-checks", NOT_DESCRIBED, "--max-examples", "120",
             "--generation-database", "none", "--seed", "1"],
            capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        assert server.ask("/ready").status == 200
        assert not [name for name in server.metrics() if 'status="5' in name]
        assert "internal error" not in "".join(server.log)
