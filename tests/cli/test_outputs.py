"""Outputs of commands, and what is there before them: open streams, private files, leftovers of killed commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.forked import Forked, s2s
from support.wrong_files import TEXTS, save

from seq2seq import atomic
from seq2seq.cli import main
from seq2seq.cli.outputs import descriptor_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names of streams as on Linux")

WRITERS = [
    ["translate", "model", "-i", "text"],
    ["score", "model", "text", "text"],
    ["align", "model", "text", "text"],
    ["classify", "classifier", "-i", "text"],
]
PICTURES = [
    ["plot", "model", "--attention", "A man."],
    ["compare", "model", "classifier", "--source", "text", "--reference", "text"],
    ["bleu", "--model", "model", "--source", "text", "--reference", "text"],
]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shelf")
    save(folder / "model")
    save(folder / "classifier", task="classification")
    (folder / "text").write_text("".join(f"{text}\n" for text in TEXTS[:3]))
    return folder


@pytest.fixture(autouse=True)
def there(shelf, monkeypatch):
    monkeypatch.chdir(shelf)


@pytest.fixture(scope="module")
def plain(shelf) -> dict[str, str]:
    """Each of the writers, with what it writes to standard output."""
    found = {}
    for typed in WRITERS:
        written, told = (process := s2s(shelf, *typed)).communicate(60)
        assert process.returncode == 0, told
        found[typed[0]] = written
    return found


@pytest.mark.slow
@pytest.mark.parametrize("typed", WRITERS, ids=lambda typed: typed[0])
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/stderr", "/dev/fd/1", "link"])
def test_a_stream_under_another_name_keeps_what_is_in_its_file(shelf, plain, tmp_path, typed, name):
    """The shell appends to a file: a new file in its place would lose the lines that are there."""
    path, file = (tmp_path / "link" if name == "link" else name), tmp_path / "all"
    (tmp_path / "link").symlink_to("/dev/stdout")
    with open(file, "w") as all_of_it:
        all_of_it.write("earlier\n")
        all_of_it.flush()

        def redirected() -> int:
            os.dup2(all_of_it.fileno(), 2 if name == "/dev/stderr" else 1)
            return main([*typed, "-o", str(path)])

        _, told = (process := Forked(redirected)).communicate(60)
        assert process.returncode == 0, told
        os.lseek(all_of_it.fileno(), 0, os.SEEK_END)
        all_of_it.write("later\n")
    text = file.read_text()
    assert text.startswith("earlier\n")
    assert text.endswith("later\n")
    assert plain[typed[0]] in text


@pytest.mark.parametrize("typed", PICTURES, ids=lambda typed: typed[0])
@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/2"])
def test_what_needs_a_name_of_its_own_is_written_to_no_stream(capsys, typed, name):
    assert main([*typed, "-o", name]) == 2
    assert "this cannot be written to standard output or another stream; give a name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "descriptor"),
    [("/dev/stdout", 1), ("/dev/fd/7", 7), ("/proc/self/fd/2", 2), ("/dev/null", None), ("text", None), ("loop", None)],
)
def test_the_descriptor_of_a_name(name, descriptor):
    if name == "loop" and not Path(name).is_symlink():
        Path(name).symlink_to("loop")
    assert descriptor_of(Path(name)) == descriptor


@pytest.mark.parametrize("typed", [*WRITERS, *PICTURES], ids=lambda typed: typed[0])
def test_a_folder_that_is_missing_is_told_and_not_made(capsys, typed):
    assert main([*typed, "-o", "missing/out.svg"]) == 2
    assert "missing/out.svg: there is no folder missing; create it first" in capsys.readouterr().err
    assert not Path("missing").exists()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o666])
@pytest.mark.parametrize("typed", WRITERS[:2], ids=lambda typed: typed[0])
def test_a_new_version_may_be_read_by_whom_the_old_one_might(tmp_path, typed, mode):
    file = tmp_path / "private"
    file.write_text("an earlier result")
    file.chmod(mode)
    assert main([*typed, "-o", str(file)]) == 0
    assert file.stat().st_mode & 0o777 == mode | 0o600
    assert file.read_text() != "an earlier result"


def test_a_folder_too(tmp_path):
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    with atomic.new_folder(folder) as new:
        assert new.stat().st_mode & 0o777 == 0o700  # while it is written as well
        (new / "weights").write_bytes(b"")
    assert folder.stat().st_mode & 0o777 == 0o700
    with atomic.new_folder(tmp_path / "public") as new:
        (new / "weights").write_bytes(b"")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "public").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_the_leftover_of_a_killed_command_goes_with_the_next_one(tmp_path):
    killed = subprocess.run(
        [sys.executable, "-c", "import os, sys; from pathlib import Path; from seq2seq import atomic\n"
         "with atomic.new_file(Path(sys.argv[1])) as file: file.write(b'half'); file.flush(); os.kill(os.getpid(), 9)",
         str(tmp_path / "out")],
    )  # fmt: skip
    assert killed.returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    assert main(["translate", "model", "-i", "text", "-o", str(tmp_path / "other")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


@pytest.mark.parametrize("write", [atomic.new_file, atomic.new_folder], ids=["file", "folder"])
def test_an_error_names_what_the_user_named(tmp_path, write):
    """Not the hidden name under which it is written."""
    place = tmp_path / "place"

    def fail() -> None:
        with write(place) as made:
            if write is atomic.new_folder:
                (made / "missing" / "file").read_bytes()

    if write is atomic.new_file:
        place.mkdir()  # a file cannot replace a folder
    with pytest.raises(OSError) as failure:  # noqa: PT011
        fail()
    assert str(failure.value.filename).startswith(str(place))
    assert ".writing" not in str(failure.value.filename)


@pytest.mark.parametrize(
    "typed", ["average model", "tune model --source text --reference text", "convert model --to marian"]
)
@pytest.mark.parametrize("place", ["run/best", "run/checkpoints/step_1"])
def test_no_model_is_written_where_training_would_delete_it(shelf, capsys, typed, place):
    if not Path(place).exists():
        save(shelf / place)
    assert main([*typed.split(), "-o", f"{place}/inside/new"]) == 2
    assert f"{place}/inside/new: in {shelf / place}, which training replaces as a whole" in capsys.readouterr().err
    assert not Path(f"{place}/inside").exists()


def test_a_stream_that_is_not_open_is_one_line(capsys):
    assert main(["translate", "model", "-i", "text", "-o", "/dev/fd/987"]) in (1, 2)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "engine: " not in line]
    assert "/dev/fd/987: not an open stream" in line
