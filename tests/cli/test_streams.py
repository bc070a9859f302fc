"""Standard output carries results alone, whatever is closed; and what `-o` names is whole, packed, and no input."""

import functools
import gzip
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import wrong_files
from support.forked import import_modules
from support.wrong_files import TEXTS

from seq2seq.cli import VERBS, main
from seq2seq.training.trainer import Trainer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

INPUT = b"A man rides.\n\nbroken \xff utf-8\nTwo dogs\n"
# What is typed, and which standard streams it cannot do without.
COMMANDS = {
    "translate model -i lines": {1},
    "translate model": {0, 1},
    "translate model -i lines -o out": set(),
    "translate model -i - -o out": {0},
    "translate": {0, 1},
    "translate model -i lines --format jsonl -o -": {1},
    "classify classifier -i lines": {1},
    "classify classifier --gold gold.tsv": {1},
    "classify classifier": {0, 1},
    "score model lines lines": {1},
    "align model lines lines": {1},
    "glossary check terms.tsv": set(),
    "translate model -i few --glossary terms.tsv": {1},
    "translate model -i few --input-format html": {1},
    "translate model --input-format markdown --each-line -o out": {0},
    "align model lines lines -o out": set(),
    "score model lines lines -o out": set(),
    "bleu lines lines": set(),
    "bleu lines": {0},
    "bleu --model model --source lines --reference lines -o out": set(),
    "check lines lines --workers 1": set(),
    "train good.yaml --run-dir run-SEED --set training.max_steps=1": set(),
    "train good.yaml --run-dir run-SEED --dry-run": set(),
    "info model": set(),
    "compare lines other --reference lines": set(),
    "compare lines other --reference lines -o out": set(),
    "runs run": set(),
    "runs diff run run": set(),
    "runs clean run --keep best": set(),
    "plot run -o out.png": set(),
    "plot model --attention word -o out.png": set(),
    "tune model --source few --reference few -o tuned-SEED": set(),
    "average model model -o averaged-SEED": set(),
    "vocabulary trim model --corpus lines -o trimmed-SEED": set(),
    "augment model --text few -o pairs-SEED": set(),
    "filter lines lines -o clean-SEED": set(),
    "distill model good.yaml -o student-SEED": set(),  # its validation set is its training set
    "convert classic --to marian -o converted-SEED": set(),
    "fetch nothing": set(),
    "serve nothing": set(),
    "bench nothing": set(),
    "--help": set(),
    "translate --help": set(),
}
FAIL = (
    "fetch nothing",
    "bench nothing",
    "serve nothing",
    "check lines lines --workers 1",
    "distill model good.yaml -o student-SEED",
    "augment model --text few -o pairs-SEED",  # an untrained model leaves no pairs
    "filter lines lines -o clean-SEED",
)  # they say so, and exit 1 or 2
CLOSINGS = [set(closed) for count in (1, 2, 3) for closed in itertools.combinations(range(3), count)]
seeds = itertools.count()


@pytest.fixture(autouse=True)
def _short_measurements(monkeypatch):
    """A dry run times one step."""
    monkeypatch.setattr(Trainer, "time_steps", functools.partialmethod(Trainer.time_steps, most_steps=1))
    monkeypatch.setattr("seq2seq.tasks.run.FEED_SECONDS", 0.01)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    import_modules()
    folder = wrong_files.fill(tmp_path_factory.mktemp("streams"))
    (folder / "lines").write_bytes(INPUT)
    (folder / "other").write_bytes(INPUT.replace(b"man", b"woman"))
    (folder / "terms.tsv").write_text("word\tWort\n")
    (folder / "few").write_text("A word.\nTwo words.\n")
    (folder / "gold.tsv").write_text(
        "sentence\tlabel\n" + "".join(f"{text}\t{i % 2}\n" for i, text in enumerate(TEXTS))
    )
    (folder / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    (folder / "run" / "config.yaml").write_text((folder / "good.yaml").read_text())
    (folder / "runs").mkdir()
    (folder / "runs" / "latest").symlink_to("../run")
    return folder


def run(typed: str, folder: Path, closed: set[int] = frozenset()) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in a process that has these descriptors closed."""
    (folder / "stdin").write_bytes(INPUT if 0 in COMMANDS[typed] else b"")  # what is not read is refused
    if (child := os.fork()) == 0:
        code = 99
        try:
            os.chdir(folder)
            for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
                opened = os.open(name, os.O_RDONLY if mode == "r" else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(opened, number)
                os.close(opened)
                setattr(sys, name, None if number in closed else open(number, mode, closefd=False))
            for number in closed:
                os.close(number)
            answered = main(shlex.split(typed.replace("SEED", str(next(seeds)))))
            sys.stdout.flush()
            # A file that got the descriptor would get what libraries print.
            assert all(os.path.samestat(os.fstat(number), os.stat(os.devnull)) for number in closed)
            code = answered
        finally:
            os._exit(code)
    next(seeds)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, (folder / "stdout").read_text(), (folder / "stderr").read_text()


def test_every_command_is_here():
    assert {typed.split()[0] for typed in COMMANDS} - {"--help"} == set(VERBS)


@pytest.mark.slow
@pytest.mark.parametrize("typed", COMMANDS)
def test_results_alone_whatever_is_closed(folder, typed):
    check_closings(folder, typed, CLOSINGS if COMMANDS[typed] else [{0, 1}, {2}, {0, 1, 2}])


def check_closings(folder, typed, closings):
    code, out, _ = run(typed, folder)
    assert code == 0 or typed in FAIL
    for closed in closings:
        (folder / "out").unlink(missing_ok=True)
        missing = COMMANDS[typed] & closed
        answered, said, err = run(typed, folder, closed)
        assert answered == (2 if missing else code), (closed, err)
        assert "s2s: " not in said
        assert "rror: " not in err
        assert len(said.splitlines()) == (0 if 1 in closed or missing else len(out.splitlines())), closed
        if 2 in closed:
            assert err == ""
        elif missing:
            told = err.splitlines()[-1]
            assert told.startswith(f"s2s: standard {'input' if 0 in missing else 'output'} is closed; ")
        if not missing and "-o out" in typed and not typed.endswith(".png"):
            assert (folder / "out").exists()
            assert b"s2s:" not in (folder / "out").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("closing", ["2>&-", "<&- >&- 2>&-"])
def test_a_shell_that_closes_them_gets_its_lines(folder, closing):
    (folder / "out").unlink(missing_ok=True)
    typed = f"{shlex.quote(sys.executable)} -m seq2seq translate -i lines {'-o out' if '<&-' in closing else '> out'}"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", f"{typed} {closing}"], cwd=folder, env=environment, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len((folder / "out").read_bytes().splitlines()) == 4
    assert b"s2s:" not in (folder / "out").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_nobody_being_told_is_no_failure(folder):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "seq2seq", "translate", "-i", "lines"]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 4)


# -- what -o names ---------------------------------------------------------------------------------

WRITING = [
    "translate model -i lines", "classify classifier -i lines", "classify classifier --gold gold.tsv",
    "score model lines lines", "bleu --model model --source lines --reference lines",
]  # fmt: skip


@pytest.mark.parametrize("typed", WRITING)
def test_a_name_that_ends_in_gz_is_packed(folder, typed, monkeypatch, capfdbinary):
    monkeypatch.chdir(folder)
    for name in ("plain", "packed.gz", "packed.txt.GZ"):
        assert main([*typed.split(), "-o", name]) == 0
    assert gzip.decompress(Path("packed.gz").read_bytes()) == Path("plain").read_bytes() != b""
    assert Path("packed.txt.GZ").read_bytes() == Path("packed.gz").read_bytes()
    os.mkfifo("pipe.gz")
    read = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe.gz").read_bytes()), daemon=True)
    reader.start()
    assert main([*typed.split(), "-o", "pipe.gz"]) == 0
    reader.join(20)
    assert gzip.decompress(read[0]) == Path("plain").read_bytes()
    Path("pipe.gz").unlink()


INPUTS = {
    "translate model -i {lines}": None,
    "translate model -i lines --prefix-file {four}": None,
    "translate {model} -i lines": None,
    "translate model {model} -i lines": None,
    "classify {classifier} -i lines": None,
    "classify classifier -i {lines}": None,
    "classify classifier --gold {gold.tsv}": None,
    "score model {lines} lines": None,
    "score model lines {four}": None,
    "score {model} lines lines": None,
    "bleu --model model --source {lines} --reference four": None,
    "bleu --model model --source lines --reference {four}": None,
    "bleu --model {model} --source lines --reference lines": None,
    "bleu --model tested": "{four}",
    "translate model": "{stdin}",
    "translate model -i -": "{stdin}",
}


def names_of(path: Path) -> Iterator[str]:
    """The file, or one of the folder's, by every name that it can have."""
    file = next(iter(sorted(path.glob("*.json")))) if path.is_dir() else path
    for name in ("link", "hard", "folder-link"):
        Path(name).unlink(missing_ok=True)
    Path("link").symlink_to(file)
    os.link(file, "hard")
    Path("folder-link").symlink_to(file.resolve().parent)
    yield from (str(file), "link", "hard", f"./x/../{file}", f"folder-link/{file.name}", str(file.resolve()))


@pytest.mark.parametrize("typed", INPUTS)
def test_no_input_is_an_output(folder, typed, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    Path("x").mkdir(exist_ok=True)
    Path("stdin").write_bytes(INPUT)
    Path("four").write_bytes(INPUT)
    if not Path("tested").exists():
        run_folder = Path("tested")
        run_folder.mkdir()
        shutil.copytree("model", run_folder / "best")
        config = (
            Path("good.yaml")
            .read_text()
            .replace("num_workers", "test: {news: {source: four, target: four}}, num_workers")
        )
        (run_folder / "config.yaml").write_text(config)
    arguments = typed.replace("{", "").replace("}", "").split()
    named = (INPUTS[typed] or typed).split("{")[1].split("}")[0]
    for link in ("link", "hard", "folder-link"):
        Path(link).unlink(missing_ok=True)
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    for name in names_of(Path(named)):
        with open("stdin") as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            assert main([*arguments, "-o", name]) == 2, name
        err = capfd.readouterr().err
        notes = ("not UTF-8", "standard input is not read")
        assert len([line for line in err.splitlines() if not any(note in line for note in notes)]) == 1
        assert "choose another output" in err
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_standard_output_that_is_an_input_is_refused(folder):
    """Each translation would be translated again."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for redirected in ("-i lines >> lines", "< stdin >> stdin"):
        (folder / "stdin").write_bytes(INPUT)
        typed = f"{shlex.quote(sys.executable)} -m seq2seq translate model {redirected}"
        done = subprocess.run(["bash", "-c", typed], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 2
        assert "choose another output" in done.stderr
    assert (folder / "stdin").read_bytes() == (folder / "lines").read_bytes() == INPUT


@pytest.mark.parametrize(
    "typed",
    ["bleu --model model --source lines --reference lines", "compare lines other --reference lines", "plot run",
     "average model model", "vocabulary trim model --corpus lines", "vocabulary extend model --corpus lines",
     "vocabulary transplant model other",
     "convert classic --to marian", "fetch multi30k --from thesis"],
)  # fmt: skip
def test_what_cannot_go_to_standard_output_makes_no_file_of_that_name(folder, typed, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    assert main([*typed.split(), "-o", "-"]) == 2
    assert "this cannot be written to standard output" in capfd.readouterr().err
    assert not Path("-").exists()
