"""Folders that may not be written and files that may not be read: one line, and nothing changes. Every command.

Root may do both, so the commands run in a process that has given that privilege up (this file is its program).
"""

import contextlib
import ctypes
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import wrong_files

from seq2seq.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="privileges of Linux")]

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
# What is typed, and the place that the answer names.
COMMANDS = {
    "train good.yaml --run-dir locked/run": "locked",
    "train good.yaml --run-dir old-run": "old-run",
    "train good.yaml --run-dir old-run --overwrite": "old-run",
    "train good.yaml --set data.train.source=secret": "secret",
    "train secret": "secret",
    "translate model -i text -o locked/out": "locked",
    "translate sealed -i text": "sealed",
    "translate model -i secret": "secret",
    "bleu --model model --source shorter --reference shorter -o locked/out": "locked",
    "bleu text secret": "secret",
    "classify classifier -i text -o locked/out": "locked",
    "classify classifier --gold secret": "secret",
    "serve sealed --port 0": "sealed",
    "serve model --port 0 --key-file secret": "secret",
    "score model text text -o locked/out": "locked",
    "score model text secret": "secret",
    "align model text text -o locked/out": "locked",
    "align model text secret": "secret",
    "glossary check secret": "secret",
    "translate model -i text --glossary secret": "secret",
    "align kept-model text text --calibrate": "kept-model",
    "check text secret": "secret",
    "check secret": "secret",
    "fetch multi30k --from thesis -o locked/new": "",
    "tune model --source secret --reference secret": "secret",
    "tune model --source few --reference few -o locked/new": "locked",
    "tune kept-model --source few --reference few": "kept-model",
    "average model -o locked/new": "locked",
    "average sealed -o new": "sealed",
    "vocabulary trim model --corpus few -o locked/new": "locked",
    "vocabulary trim model --corpus secret -o new": "secret",
    "vocabulary trim sealed --corpus text -o new": "sealed",
    "distill sealed good.yaml -o new": "sealed",
    "distill model secret -o new": "secret",
    "augment model --text few -o locked/new": "locked",
    "augment model --text secret -o new": "secret",
    "augment sealed --text few -o new": "sealed",
    "filter text text -o locked/new": "locked",
    "filter text secret -o new": "secret",
    "filter text text --model sealed --keep 0.5 -o new": "sealed",
    "convert classic --to marian -o locked/new": "locked",
    "convert classic --to ctranslate2 --force -o locked/new": "locked",
    "convert classic --to argos --force -o locked/new.argosmodel": "locked",
    "convert marian --from marian -o locked/new": "locked",
    "convert sealed --to marian -o new": "sealed",
    "plot model --attention word -o locked/picture.png": "locked",
    "compare model kept-model --source few --reference few -o locked/page.html": "locked",
    "info sealed": "sealed",
}
EARLY = {"translate", "bleu", "classify", "score", "align", "compare", "plot"}  # commands with `check_output`


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, list]:
    """(exit code, standard error, names of what changed) of each command."""
    folder = wrong_files.fill(tmp_path_factory.mktemp("shelf"))
    (folder / "locked").mkdir()
    (folder / "locked" / "kept").write_text("an earlier result")
    shutil.copytree(folder / "model", folder / "sealed")
    shutil.copytree(folder / "model", folder / "kept-model")
    shutil.copyfile(folder / "text", folder / "secret")
    (folder / "few").write_text("".join((folder / "text").read_text().splitlines(keepends=True)[:3]))
    environment = {
        **os.environ,
        "PYTHONPATH": f"{Path(__file__).parents[2]}:{Path(__file__).parents[1]}",
        "OMP_NUM_THREADS": "1",
    }
    environment |= {"XDG_CACHE_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, __file__, *COMMANDS], cwd=folder, env=environment, capture_output=True, text=True,
            preexec_fn=give_up_privileges,
        )  # fmt: skip
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("typed", COMMANDS)
def test_what_may_not_be_written_or_read_is_one_line(answers, typed):
    code, err, changed = answers[typed]
    assert code in (1, 2), err
    said = ("s2s: warning", "s2s: training the tokenizer", "s2s: model: engine: ", "s2s: engine: ")
    told = [line for line in err.splitlines() if not line.startswith(said)]
    assert len(told) == 1, err
    assert COMMANDS[typed] in told[0]
    assert "Traceback" not in err
    assert "internal error" not in err
    assert ".writing" not in err  # the hidden name of an unfinished file
    assert changed == []


@pytest.mark.parametrize("typed", [typed for typed in COMMANDS if "-o locked" in typed and typed.split()[0] in EARLY])
def test_an_output_that_may_not_be_written_is_told_before_the_work(answers, typed):
    assert "engine: " not in answers[typed][1]
    assert len(answers[typed][1].splitlines()) == 1


def give_up_privileges() -> None:
    libc = ctypes.CDLL(None)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # for what is executed next; ordinary users have none to drop


def snapshot() -> dict[str, bytes]:
    """Everything but what runs and conversions keep for themselves."""
    files = [path for path in Path().rglob("*") if path.is_file() and os.access(path, os.R_OK)]
    return {str(path): path.read_bytes() for path in files if path.parts[0] not in ("runs", "cache")}


def run_all(commands: list[str]) -> None:
    answers = {}
    with contextlib.redirect_stderr(io.StringIO()) as stderr, contextlib.redirect_stdout(io.StringIO()):
        assert main(["train", "good.yaml", "--run-dir", "old-run"]) == 0, stderr.getvalue()
    for path in (
        Path("locked"),
        Path("kept-model"),
        *(path for path in [*Path("old-run").rglob("*"), Path("old-run")] if path.is_dir()),
    ):
        path.chmod(0o555)
    for path in (Path("secret"), *Path("sealed").iterdir(), Path("sealed")):
        path.chmod(0)
    for typed in commands:
        before = snapshot()
        with contextlib.redirect_stderr(io.StringIO()) as stderr, contextlib.redirect_stdout(io.StringIO()):
            code = main(shlex.split(typed))
        after = snapshot()
        changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
        answers[typed] = [code, stderr.getvalue(), changed]
    print(json.dumps(answers))


if __name__ == "__main__":
    run_all(sys.argv[1:])
