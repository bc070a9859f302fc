"""Folders that several processes write at the same time, and that people keep files of their own in.

A cache serves any number of runs and conversions that start together; what a dead process left is cleared away; and
nothing is touched that no process of ours can have made.
"""

import contextlib
import ctypes
import functools
import io
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from support.forked import import_modules
from support.our_models import make_ours
from support.wrong_files import CONFIG, TEXTS

from seq2seq import atomic
from seq2seq.cli import main
from seq2seq.inference.loading import load_engine
from seq2seq.store import model_folder
from seq2seq.training.trainer import Trainer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

DRY_RUN = ["train", "run.yaml", "--dry-run"]


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder to train in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    monkeypatch.setattr(Trainer, "time_steps", functools.partialmethod(Trainer.time_steps, most_steps=1))
    monkeypatch.setattr("seq2seq.tasks.run.FEED_SECONDS", 0.01)
    import_modules()  # once, and not in every process that starts
    for name, count in (("text", 40), ("valid", 9)):
        Path(name).write_text("".join(f"{line} {number}\n" for number in range(count) for line in TEXTS))
    config = CONFIG.replace("valid: {source: text, target: text}", "valid: {tsv: valid.tsv}")
    Path("run.yaml").write_text(config.replace("cpu}", "cpu, precision: float32, batch_tokens: 512}"))
    shared = f"{TEXTS[0]} 0\t{TEXTS[0]} 0\n"  # with the training text, so that there is an overlap to note
    Path("valid.tsv").write_text("en\tde\n" + shared + "".join(f"{line}\t{line} x\n" for line in TEXTS))
    return tmp_path


def quietly(*typed: str) -> tuple[int, str]:
    with contextlib.redirect_stderr(io.StringIO()) as stderr, contextlib.redirect_stdout(io.StringIO()):
        code = main(list(typed))
    return code, stderr.getvalue()


def together(*works: Callable[[], None]) -> list[str]:
    """Run each in a process of its own, all let go at the same moment; returns what each that failed says."""
    start, go = os.pipe()
    children, failures = [], []
    for number, work in enumerate(works):
        said = Path(f"said-{number}")
        if (child := os.fork()) == 0:
            code = 1
            try:
                os.close(go)
                os.read(start, 1)
                work()
                code = 0
            except BaseException:
                said.write_text(traceback.format_exc())
            finally:
                os._exit(code)
        children.append((child, said))
    os.close(start)
    os.close(go)
    for child, said in children:
        if os.waitpid(child, 0)[1]:
            failures.append(said.read_text() if said.exists() else "killed")
    return failures


def s2s(*typed: str) -> Callable[[], None]:
    def work():
        code, err = quietly(*typed)
        assert code == 0, err

    return work


@pytest.mark.slow
def test_runs_and_conversions_may_start_together_on_one_cache(place):
    ours = make_ours(place / "model", ending=4.0)
    for number in range(4):
        cache, user_cache = place / f"cache-{number}", place / f"user-cache-{number}"
        os.environ["XDG_CACHE_HOME"] = str(user_cache)
        seeds = (0, 0, 1, 2) if number % 2 else (0, 0, 0, 0, 1, 2)
        runs = [
            s2s(*DRY_RUN, f"--set=data.cache_dir={cache}", f"--set=seed={seed}", f"--run-dir=runs/{number}-{i}")
            for i, seed in enumerate(seeds)
        ]
        runs[-1] = s2s(
            "train", "run.yaml", f"--set=data.cache_dir={cache}", f"--set=seed={seeds[-1]}", f"--run-dir=runs/{number}"
        )
        conversions = [lambda: load_engine([ours.folder], "ctranslate2", threads=1)] * 2 if number % 2 else []
        assert together(*runs, *conversions) == []
        assert hidden(cache) + hidden(user_cache) == []


def hidden(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob(".*"))


USERS_OWN = [".config.yaml.old", ".notes.writing", ".mine.old", ".x.deleting", ".best.1234.writing", "a.writing",
             ".step_00000001.old", ".abc-1.old", ".overlap.json.7-0-0.writing"]  # fmt: skip


@pytest.mark.slow
def test_what_people_keep_beside_a_run_and_in_a_cache_survives(place):
    assert quietly("train", "run.yaml")[0] == 0
    run, kept = Path("runs/run"), []
    for folder in (run, run / "checkpoints", Path("runs/cache"), Path("runs/cache/files")):
        for name in USERS_OWN:
            (folder / name).write_text("do not lose this")
            (folder / f"{name[:-1]}er.old").mkdir()
            os.utime(folder / name, (1, 1))
            kept += [folder / name, folder / f"{name[:-1]}er.old"]
    assert quietly("train", "run.yaml", "--set", "training.max_steps=2")[0] == 0
    Path("text").write_text(Path("text").read_text() + "another corpus\n")
    assert quietly("train", "run.yaml", "--run-dir", "runs/other")[0] == 0
    assert [path for path in kept if not path.exists()] == []


def dies_while(write: Callable[[Path], None], target: Path) -> None:
    """In a process that is killed while it writes `target`."""
    if (child := os.fork()) == 0:
        try:
            write(target)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def half_a_file(target: Path) -> None:
    with atomic.new_file(target) as file:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def half_a_folder(target: Path) -> None:
    with atomic.new_folder(target) as folder:
        (folder / "half").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_dead_processes_left_is_cleared_away_and_what_is_being_written_is_not(tmp_path, monkeypatch):
    for name in ("one", "two words", "new\nline", ".hidden"):
        dies_while(half_a_file, tmp_path / name)
        dies_while(half_a_folder, tmp_path / f"{name}-folder")
    assert len(hidden(tmp_path)) == 8
    here = f"{os.getpid()}-{atomic._HOST}"
    (tmp_path / f".first.{here}00000000-3.writing").touch()  # of an earlier process with this one's number
    elsewhere = tmp_path / f".theirs.{os.getpid()}-{'0' * 16}-3.writing"  # of another container, which may still write
    elsewhere.touch()
    with atomic.new_file(tmp_path / "mine") as file, atomic.new_folder(tmp_path / "folder") as folder:
        in_child = os.fork()
        if in_child == 0:
            atomic.remove_leftovers(tmp_path)
            os._exit(0)
        os.waitpid(in_child, 0)
        atomic.remove_leftovers(tmp_path)
        file.write(b"whole")
        (folder / "file").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == [elsewhere.name, "folder", "mine"]
    monkeypatch.setattr(atomic, "OTHER_HOSTS_SECONDS", -1.0)  # as if a day had passed
    atomic.remove_leftovers(tmp_path)
    assert not elsewhere.exists()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_process_that_nobody_waited_for_counts_as_dead(tmp_path):
    """The kernel keeps its id: an init that does not reap orphans keeps it forever."""
    if (child := os.fork()) == 0:
        half_a_file(tmp_path / "part")
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    try:
        assert len(hidden(tmp_path)) == 1
        atomic.remove_leftovers(tmp_path)
        assert not hidden(tmp_path)
    finally:
        os.waitpid(child, 0)


def test_a_lock_holds_on_a_file_of_another_user_and_ends_with_its_process():
    """A lock file that may only be read, in a folder that may not be written: the superuser becomes someone else."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    lock, (reading, writing) = folder / "lock", os.pipe()
    lock.touch()
    lock.chmod(0o444)
    folder.chmod(0o555)
    if (child := os.fork()) == 0:
        if os.geteuid() == 0:
            os.setuid(65534)
        with atomic.locked(lock):
            os.write(writing, b"held")
            time.sleep(60)
        os._exit(0)
    try:
        assert os.read(reading, 4)
        with atomic.locked(lock, wait=False) as is_free:
            assert not is_free
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with atomic.locked(lock, wait=False) as is_free:
        assert is_free
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_processes_that_write_one_file_leave_one_of_their_versions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "note"

    def write(letter: str) -> None:
        for _ in range(60):
            atomic.write_file(target, letter.encode() * 5000)

    assert together(*(lambda letter=letter: write(letter) for letter in "abcdef")) == []
    assert len(set(target.read_text())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


@pytest.mark.slow
def test_a_leftover_of_any_kind_in_the_cache_is_in_nobodys_way(place):
    assert quietly(*DRY_RUN)[0] == 0
    cache = Path("runs/cache")
    fingerprint = next(path.name for path in cache.iterdir() if len(path.name) == 32)
    for name in (f".overlap-x.json{atomic.WRITING}", f".{'a' * 32}{atomic.WRITING}", f".{'b' * 32}.old", ".x.writing"):
        (cache / name).touch()
        os.utime(cache / name, (1, 1))
    for path in cache.glob(f"{fingerprint}/*"):
        path.unlink()
    (cache / fingerprint).rmdir()
    atomic.unfinished(cache / fingerprint).write_text("a file where a folder belongs")
    code, err = quietly(*DRY_RUN)
    assert (code, "cannot be" in err) == (0, False), err
    (note,) = cache.glob("overlap-*.json")
    note.unlink()
    note.mkdir()
    assert quietly(*DRY_RUN)[0] == 0


@pytest.mark.slow
def test_a_damaged_note_of_overlaps_is_made_again(place):
    said = quietly(*DRY_RUN)
    (note,) = Path("runs/cache").glob("overlap-*.json")
    before = note.read_bytes()
    for content in ("", "{", "[1]", "{}", "null", "[" * 100_000, "\0"):
        note.write_text(content)
        assert quietly(*DRY_RUN) == said, content[:9]
        assert note.read_bytes() == before, content[:9]
    assert json.loads(before)


def without_privileges(work: Callable[[], None]) -> Callable[[], None]:
    """Root may write everywhere, unless it gives its capabilities up; nobody else has any."""

    def unprivileged():
        capset = ctypes.CDLL(None, use_errno=True).capset
        assert capset(ctypes.byref((ctypes.c_uint32 * 2)(0x20080522, 0)), (ctypes.c_uint32 * 6)()) == 0
        work()

    return unprivileged


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="capabilities of Linux")
def test_a_cache_that_may_only_be_read_and_has_everything_is_used(place):
    typed = [*DRY_RUN, "--set=data.cache_dir=cache", "--run-dir=elsewhere/run"]
    assert quietly(*typed)[0] == 0
    cache = Path("cache")
    (cache / "files" / "old").touch()
    before = {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    for path in [*cache.rglob("*"), cache]:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        assert together(*[without_privileges(s2s(*typed))] * 2) == []
        Path("text").write_text("\n".join([*TEXTS, "something new"]))
        (failure,) = together(without_privileges(s2s(*typed)))
    finally:
        for path in [cache, *cache.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
    assert "cache: cannot be written (Permission denied)" in failure
    assert {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_weights_have_the_mode_that_the_user_wants(tmp_path, umask):
    before = os.umask(umask)
    try:
        make_ours(tmp_path / "model")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").iterdir()}
    assert model_folder.WEIGHTS in modes
    assert set(modes.values()) == {0o666 & ~umask}
