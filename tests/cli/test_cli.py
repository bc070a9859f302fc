"""The command line: instant help, one line for whatever goes wrong, and exit codes that scripts can trust."""

import errno
import logging
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import click
import pytest

import seq2seq
from seq2seq import cli
from seq2seq.errors import ConfigError, DataError, RunError

ROOT = Path(__file__).parents[2]
VERBS = [verb for verb in cli.VERBS if (ROOT / "seq2seq" / "cli" / f"{verb}.py").exists()]
HEAVY = ("torch", "numpy", "datasets", "sacrebleu", "matplotlib", "sentencepiece", "pydantic")


def s2s(*arguments, **options):
    options = {"capture_output": True, "text": True, "timeout": 60, "stdin": subprocess.DEVNULL, **options}
    return subprocess.run([sys.executable, "-m", "seq2seq", *arguments], **options)


@pytest.fixture
def failing(monkeypatch):
    """`failing(error)` makes `s2s info` raise `error`, and runs it."""

    def run(error, *arguments):
        @click.command("info")
        def command():
            raise error

        monkeypatch.setattr("seq2seq.cli.info.command", command)
        return cli.main([*arguments, "info"])

    import seq2seq.cli.info  # noqa: F401

    return run


# -- help ------------------------------------------------------------------------------------------


def test_every_verb_has_its_file():
    assert list(cli.VERBS) == VERBS


def in_python(code):
    """The finished process that ran `code`, and the seconds of CPU that it took."""
    before = os.times()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    after = os.times()
    return done, after.children_user + after.children_system - before.children_user - before.children_system


@pytest.mark.parametrize(
    "arguments", [["--help"], ["-h"], [], *([verb, "--help"] for verb in VERBS), ["translate", "-h"]]
)
def test_help_is_instant_and_shows_an_example(arguments):
    if arguments and arguments[0] in cli.VERBS and arguments[0] not in VERBS:
        pytest.skip(f"{arguments[0]} is not there")
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr))\n"
        f"from seq2seq.cli import main; sys.exit(main({arguments!r}))"
    )
    help_seconds, click_seconds = [], []
    for _ in range(4):  # in turn, and the best of a few, in CPU time: other programs share this machine
        done, seconds = in_python(code)
        help_seconds.append(seconds)
        click_seconds.append(in_python("import click")[1])
        if min(help_seconds) < 4 * min(click_seconds):
            break
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"
    assert done.stdout.startswith(f"Usage: s2s {arguments[0] if arguments and arguments[0] in VERBS else ''}")
    assert "Example: s2s " in done.stdout
    assert min(help_seconds) < 4 * min(click_seconds), "imports of little use"


def test_the_list_of_commands_is_that_of_their_own_help():
    text = s2s("--help").stdout
    for verb in VERBS:
        command = cli.group.get_command(click.Context(cli.group), verb)
        assert isinstance(command, click.Command)
        assert command.callback is not None
        assert re.search(rf"^  {verb}\b", text, re.MULTILINE)


def test_version():
    assert s2s("--version").stdout == f"s2s {seq2seq.__version__}\n"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == seq2seq.__version__


def test_the_name_to_install_is_that_of_the_project_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [
        (path.relative_to(ROOT), name)
        for path in [*ROOT.glob("*.md"), *(ROOT / "seq2seq").rglob("*.py"), *(ROOT / "seq2seq").rglob("*.md")]
        for name in re.findall(r"pip install (?:-\S+ )*['\"]?([\w.-]+)\[", path.read_text(encoding="utf-8"))
    ]
    assert {name for _, name in named} <= {project["name"], "sacrebleu", "."}
    assert (Path("seq2seq/errors.py"), project["name"]) in named


def test_the_names_of_the_library_come_on_first_use():
    assert {"Translator", "Classifier"} <= set(dir(seq2seq))
    with pytest.raises(AttributeError, match="Translater"):
        seq2seq.Translater  # noqa: B018


# -- wrong use -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], ["'trian'", "did you mean 'train'"]),
        (["frobnicate"], ["'frobnicate'"]),
        (["--nope"], ["--nope"]),
        (["info", "--fromat", "json"], ["--fromat", "--format"]),
        (["info", "--format", "xml"], ["xml", "json"]),
        (["info", "a", "b"], ["b"]),
        (["info", "no/such/folder"], ["no/such/folder"]),
        (["fetch"], ["NAME"]),
        (["fetch", "multi30"], ["did you mean 'multi30k'"]),
        (["average", "x"], ["--output"]),
        (["average", "x", "-o", "y"], ["x"]),
        (["classify", "--format", "json"], ["--gold"]),
        (["classify", "-i", "missing.txt"], ["missing.txt"]),
        (["classify", "--gold", "x.tsv", "-i", "y.txt"], ["--gold"]),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith("s2s: ")
    for word in words:
        assert word in captured.err
    assert list(tmp_path.iterdir()) == []


def test_no_newest_run_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["info"]) == 2
    assert "runs" in capsys.readouterr().err


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DataError("corpus.de: line 3 is missing"), 2, "s2s: corpus.de: line 3 is missing\n"),
        (ConfigError("a.yaml", ["x: bad", "y: worse"]), 2, "s2s: a.yaml: x: bad\ns2s: a.yaml: y: worse\n"),
        (RunError("diverged"), 1, "s2s: diverged\n"),
        (KeyboardInterrupt(), 130, ""),
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), 1, "s2s: /x/y: permission denied; choose a "),
        (OSError(errno.ENOSPC, "No space left on device", "out"), 1, "s2s: out: no space left on device; free some"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "gone"), 1, "s2s: gone: no such file"),
        (MemoryError(), 1, "s2s: out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), 1, "s2s: out of memory"),
        (ValueError("odd\nsecond line"), 1, "s2s: internal error: ValueError: odd (run with --debug"),
        (AssertionError(), 1, "s2s: internal error: AssertionError"),
        (RecursionError("deep"), 1, "s2s: internal error: RecursionError: deep"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 1, "s2s: "),  # not of standard output, which is open
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_whatever_goes_wrong_is_a_line_and_a_code(failing, capfd, monkeypatch, error, code, message):
    monkeypatch.setattr(cli, "_abandon", lambda stream: None)
    monkeypatch.setattr(cli, "_reader_is_gone", lambda: False)
    assert failing(error) == code
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert "Traceback" not in captured.err
    assert len(captured.err.splitlines()) == message.rstrip("\n").count("\n") + (1 if message else 0)


@pytest.mark.parametrize("before", [True, False])
def test_debug_shows_the_traceback_before_and_after_the_verb(before):
    arguments = ["--debug", "info", "nowhere"] if before else ["info", "nowhere", "--debug"]
    done = s2s(*arguments)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("s2s: nowhere")


def test_debug_behind_two_dashes_is_an_argument():
    done = s2s("info", "--", "--debug")
    assert "Traceback" not in done.stderr
    assert "--debug: no such folder" in done.stderr


# -- streams ---------------------------------------------------------------------------------------


def test_a_reader_that_went_away_ends_it_quietly(tmp_path):
    text = tmp_path / "text"
    text.write_text("the same words in every line\n")
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        done = s2s("bleu", str(text), str(text), stdout=pipe, stderr=subprocess.PIPE, capture_output=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line_and_exit_1(tmp_path):
    text = tmp_path / "text"
    text.write_text("the same words in every line\n")
    with open("/dev/full", "wb") as full:
        done = s2s("bleu", str(text), str(text), stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert done.returncode == 1
    assert done.stderr == "s2s: no space left on device; free some space and run the same command again\n"


def test_an_interrupt_is_quiet_and_exits_130(tmp_path):
    text = tmp_path / "text"
    text.write_text("a\n")
    with subprocess.Popen(
        [sys.executable, "-m", "seq2seq", "bleu", str(text)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        time.sleep(1.0)  # it has started, and waits for standard input
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        assert process.stdout.read() == b""
        assert process.stderr.read() == b""


def test_output_is_utf8_with_line_feeds_in_any_locale(tmp_path):
    text = tmp_path / "größe"
    text.write_text("eins zwei drei vier\n", encoding="utf-8")
    other = tmp_path / "other"
    other.write_text("eins zwei drei vier\n")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = s2s("bleu", str(other), str(text), str(other), text=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "größe" in done.stdout.decode("utf-8")
    assert b"\r" not in done.stdout


def test_warnings_say_what_they_are_and_go_to_stderr(capsys):
    assert cli.main(["--version"]) == 0  # sets up the streams
    logging.getLogger("seq2seq.test").warning("something %s", "odd")
    logging.getLogger("seq2seq.test").info("for your information")
    logging.getLogger("somebody.else").info("not for you")
    captured = capsys.readouterr()
    assert captured.err == "s2s: warning: something odd\ns2s: for your information\n"


def test_a_warning_does_not_break_a_progress_bar(capsys):
    from tqdm import tqdm

    assert cli.main(["--version"]) == 0
    with tqdm(total=2, file=sys.stderr) as bar:
        logging.getLogger("seq2seq.test").warning("in the middle")
        bar.update()
    assert "\rs2s: warning: in the middle\n" in re.sub(r" +\r", "\r", capsys.readouterr().err)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "iterations"),
    [({}, "5000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "0")],
    ids=["none", "iterations", "policy"],
)
def test_idle_threads_leave_the_cpus_to_others_soon_unless_the_user_says_how_long(given, iterations, monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (given | {"OMP_DISPLAY_ENV": "verbose"}).items():
        monkeypatch.setenv(name, value)
    code = "from seq2seq import cli; cli.main(['--help']); import torch"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    if "GOMP_SPINCOUNT" not in shown:
        pytest.skip("torch is not built with GNU OpenMP here")
    assert f"GOMP_SPINCOUNT = '{iterations}'" in shown
