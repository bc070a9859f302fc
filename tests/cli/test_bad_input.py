"""Whatever a user gives that is wrong: one line, exit 2 (or 1), no traceback, nothing overwritten. Every command.

Each row of the tables is a command line; the folder that it runs in holds files of every wrong kind (`wrong_files`).
"""

import importlib
import shutil
from pathlib import Path

import pytest
from support import wrong_files, wrong_usage_of_models, wrong_usage_of_runs
from support.plain_words import python_words

from seq2seq.cli import VERBS, main


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """Models, and files of every wrong kind."""
    return wrong_files.fill(tmp_path_factory.mktemp("shelf"))


TABLE = {**wrong_usage_of_models.TABLE, **wrong_usage_of_runs.TABLE}
ROWS = [(verb, typed, word) for verb, rows in TABLE.items() for typed, word in rows]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def place(shelf, tmp_path_factory) -> Path:
    """A copy of the shelf with a file that must survive, and what it was."""
    folder = tmp_path_factory.mktemp("place") / "here"
    shutil.copytree(shelf, folder)
    for name in ("kept", "a.argosmodel"):
        (folder / name).write_text("an earlier result")
    return folder


@pytest.mark.parametrize(("verb", "typed", "word"), ROWS, ids=[f"{verb} {typed}" for verb, typed, _ in ROWS])
def test_one_line_and_nothing_overwritten(place, capfd, monkeypatch, verb, typed, word):
    monkeypatch.chdir(place)
    for module in ("huggingface_hub.constants", "datasets.config"):  # they read the environment when they are imported
        monkeypatch.setattr(importlib.import_module(module), "HF_HUB_OFFLINE", True)
    monkeypatch.delenv("S2S_DATA", raising=False)
    before = snapshot(place)
    code = main([verb, *typed.split()])
    out, err = capfd.readouterr()
    assert code in (1, 2), err
    said = ("s2s: warning", "s2s: training the tokenizer", "s2s: model: engine: ", "s2s: engine: ", "s2s: memory: ")
    told = [line for line in err.splitlines() if not line.startswith(said)]
    assert len(told) == 1, err
    assert told[0].startswith("s2s: ")
    assert word in told[0]
    assert "internal error" not in err
    assert not python_words(err), err
    assert verb == "translate" or out == ""
    after = snapshot(place)
    shutil.rmtree(place / "runs", ignore_errors=True)
    changed = {name for name in before if after.get(name) != before[name]}
    assert not changed
    assert {name for name in after if name not in before and not name.startswith("runs/")} == set()


def test_the_table_has_every_command():
    assert set(TABLE) >= set(VERBS)
