"""Ctrl-C at any moment of a command: exit code 130, or the command's own once that is known, and never a traceback."""

import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from support.interrupted import interrupted_main

from seq2seq.cli import main

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

TESTS = Path(__file__).parents[1]


@pytest.fixture
def corpus(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a man\n" * 3)
    Path("other").write_text("a dog\n" * 3)
    return tmp_path


def in_a_fork(moment: int, arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; an exception that leaves `main` is code 99."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            sys.stdout, sys.stderr = open("stdout", "w"), open("stderr", "w", buffering=1)
            code, moments = interrupted_main(moment, arguments)
            sys.stdout.close()
            Path("moments").write_text(str(moments))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, Path("stdout").read_text(), Path("stderr").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["--help", "bleu text other", "bleu text nowhere"])
def test_a_signal_at_any_moment_gives_130_until_the_exit_code_is_known(corpus, typed):
    arguments = typed.split()
    main(arguments)  # so that everything is imported
    whole, *told = in_a_fork(0, arguments)
    moments = int(Path("moments").read_text())
    at = sorted({*range(1, moments, moments // 60), *range(1, 40), *range(moments - 40, moments + 1)})
    found = [in_a_fork(moment, arguments) for moment in at]
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
    command = [sys.executable, "-m", "support.interrupted", moment, "bleu", "text", "other"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, preexec_fn=signals_as_in_a_shell)
    assert (ended.returncode, ended.stderr) == (code, "")


def signals_as_in_a_shell():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
