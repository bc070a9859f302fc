"""Ctrl-C at any moment of a command: exit code 130, or the command's own once that is known, and never a traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

TESTS = Path(__file__).parents[1]


@pytest.fixture
def corpus(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a man\n" * 3)
    Path("other").write_text("a dog\n" * 3)
    return tmp_path


def in_a_process(typed: list[str]) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "support.interrupted", *typed]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, preexec_fn=signals_as_in_a_shell)


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["--help", "bleu text other", "bleu text nowhere"])
def test_a_signal_at_any_moment_gives_130_until_the_exit_code_is_known(corpus, typed):
    swept = in_a_process(["sweep", *typed.split()])
    assert swept.returncode == 0, swept.stderr
    (whole, *told), *found = json.loads(Path("found").read_text())
    assert len(found) > 80
    codes = [code for code, _, _ in found]
    assert set(codes) == {130, whole}
    assert {err for code, _, err in found if code == 130} == {""}
    assert {(out, err) for code, out, err in found if code == whole} == {tuple(told)}
    assert (codes[0], codes[-1]) == (130, whole)
    last = max(place for place, code in enumerate(codes) if code == 130)
    # A signal that a finalizer meets comes again a moment later, when a short command has perhaps ended.
    assert codes[:last].count(130) >= 0.9 * last


@pytest.mark.parametrize(("moment", "code"), [("exec", 130), ("end", 0), ("exit", 0)])
def test_the_process_ends_with_its_exit_code_and_not_by_the_signal(corpus, moment, code):
    """With `python -m`, an interrupt of what `exec` runs would end the process by SIGINT, though it was caught."""
    ended = in_a_process([moment, "bleu", "text", "other"])
    assert (ended.returncode, ended.stderr) == (code, "")


def signals_as_in_a_shell():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
