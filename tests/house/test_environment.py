"""The tests, and the commands in them, answer alike whatever the user has in the environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.environment import KEPT, NAMES, PREFIXES, REAL_DATA, neutralise

ROOT = Path(__file__).parents[2]
# Of a user who works offline, behind a proxy, in another language, in a narrow terminal, within a job of a cluster.
USERS = {
    "offline": {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
    "proxy": dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"),
    "language": {"LANG": "tr_TR.ISO8859-9", "LC_ALL": "C", "TZ": "Pacific/Kiritimati", "PYTHONIOENCODING": "latin-1"},
    "terminal": {"COLUMNS": "30", "LINES": "5", "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "dumb"},
    "cluster": {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "OMP_NUM_THREADS": "3", "OMP_WAIT_POLICY": "ACTIVE"},
    "folders": {"S2S_DATA": "/nowhere", "XDG_CACHE_HOME": "/nowhere", "XDG_CONFIG_HOME": "/nowhere"},
    "python": {"PYTHONHASHSEED": "7", "MPLBACKEND": "TkAgg", "TQDM_DISABLE": "1", "PYTHONWARNINGS": "default"},
    "devices": {"CUDA_VISIBLE_DEVICES": "", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "3"},
}
QUICK = (
    "cli/test_cli.py",
    "data/test_fetch.py",
    "ground/test_runtime.py",
    "ground/test_plots.py",
    "store/test_newest_run.py",
)


@pytest.mark.parametrize("user", USERS)
def test_what_would_change_an_answer_is_taken_out(user, monkeypatch):
    for name, value in USERS[user].items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(REAL_DATA, raising=False)
    neutralise()
    left = set(USERS[user]) & set(os.environ)
    assert left <= {"OMP_NUM_THREADS", "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES"}
    assert (os.environ.get(REAL_DATA) == "/nowhere") == (user == "folders")


def test_the_lists_do_not_contradict_each_other():
    assert all(name.startswith(PREFIXES) for name in KEPT)
    assert not NAMES & KEPT
    assert all(name == name.upper() for name in NAMES)


@pytest.mark.slow
def test_the_tests_pass_in_any_environment():
    everything = {name: value for one in USERS.values() for name, value in one.items()}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *(str(ROOT / "tests" / name) for name in QUICK)]
    environment = {**os.environ, **everything, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
