"""Commands on a disk that fills up: one line, nothing lost, and with room again training ends in the same bits.

The disk is a small one of its own where the system lets an ordinary user mount one in a namespace, which a forked
process enters. A limit on the size of files, which any system has, stands for it elsewhere.
"""

import contextlib
import ctypes
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from support import wrong_files
from support.forked import Forked, s2s
from support.whole_runs import corpus, differences

from seq2seq.cli import main
from seq2seq.store.checkpoint import latest_checkpoint
from seq2seq.store.model_folder import load_model

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="mounts and limits of Linux")]

NEW_MOUNTS_AND_USERS = 0x00020000 | 0x10000000  # CLONE_NEWNS | CLONE_NEWUSER
MOUNT = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs"]
NO_MOUNT = 77
PAGE = 4096
SHORT = ("max_steps=24", "validate_every=6", "checkpoint_every=4", "warmup_steps=5")


def start(folder: Path) -> Forked:
    return s2s(folder, "train", "toy.yaml", *(part for one in SHORT for part in ("--set", f"training.{one}")))


def finish(process: Forked) -> tuple[int, list[str]]:
    _, err = process.communicate(timeout=300)
    assert "Traceback" not in err, err
    assert "internal error" not in err, err
    return process.returncode, err.splitlines()


class SmallDisk:
    """What else is on the disk under `runs/` grows until there are `room` bytes left."""

    def __init__(self, room: int):
        self._room = room

    def fill(self, process: Forked, runs: Path) -> None:
        self._ballast = runs / "ballast"
        free = os.statvfs(runs).f_bavail * os.statvfs(runs).f_frsize
        with contextlib.suppress(OSError):  # the run may take the rest at this moment
            self._ballast.write_bytes(bytes(free - self._room))

    def free(self) -> None:
        self._ballast.unlink()


class SmallFiles:
    """No file of the running process can grow to the size of a checkpoint's weights."""

    def fill(self, process: Forked, runs: Path) -> None:
        # the weights of a complete checkpoint: one in the middle of its writing has an empty file, and a limit of
        # nothing would also stop the message on standard error, which is a file here
        weights = (latest_checkpoint(runs / "toy" / "checkpoints") / "model.safetensors").stat().st_size
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (weights // 2, resource.RLIM_INFINITY))

    def free(self) -> None:
        """The limit went with its process."""


def snapshot(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_out_of_room(folder: Path, whole: Path, disk: SmallDisk | SmallFiles) -> None:
    """Train until there is something to lose, let the room end, look at what is left, and go on."""
    run, process = folder / "runs" / "toy", start(folder)
    deadline = time.monotonic() + 300
    while not (list(run.glob("checkpoints/step_*")) and (run / "best").exists()):
        assert process.poll() is None, process.communicate(1)
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGSTOP)
    good = latest_checkpoint(run / "checkpoints")
    before = snapshot(good)
    disk.fill(process, folder / "runs")
    process.send_signal(signal.SIGCONT)
    assert_one_line(*finish(process), run)
    assert snapshot(good) == before
    assert load_model(run).folder == run / "best"
    if isinstance(disk, SmallDisk):
        assert_one_line(*finish(start(folder)), run)
        assert snapshot(good) == before
    disk.free()
    code, lines = finish(start(folder))
    assert code == 0, lines
    assert any("continuing from step" in line for line in lines)
    assert differences(whole / "runs" / "toy", run) == []


def assert_one_line(code: int, lines: list[str], run: Path) -> None:
    assert code == 1, lines
    name = str(run.relative_to(run.parent.parent))
    told = [line for line in lines if name in line and ("cannot be written" in line or "no space left" in line)]
    assert told == lines[-1:], lines


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that was never short of room."""
    folder = corpus(tmp_path_factory.mktemp("room") / "whole")
    assert finish(start(folder))[0] == 0
    return folder


@pytest.mark.parametrize("pages", [0, 1, 40])
def test_a_disk_that_fills_up_costs_nothing(whole, tmp_path, pages):
    folder = corpus(tmp_path / "short")
    process = Forked(lambda: on_a_small_disk(folder, whole, pages * PAGE))
    _, err = process.communicate(timeout=900)
    if process.returncode == NO_MOUNT:
        pytest.skip("this system lets nobody mount a disk of their own")
    assert process.returncode == 0, err


def on_a_small_disk(folder: Path, whole: Path, room: int) -> int:
    """Mount a disk under `runs/`, and let its room end."""
    if not mount(folder / "runs"):
        return NO_MOUNT
    run_out_of_room(folder, whole, SmallDisk(room))
    return 0


def mount(folder: Path) -> bool:
    """Make a folder that is a disk which this process and its children alone have, and return whether that worked."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(NEW_MOUNTS_AND_USERS):
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    folder.mkdir()
    return subprocess.run([*MOUNT, str(folder)], capture_output=True).returncode == 0


# What is typed, and the place on the full disk that the line names.
WRITING = {
    "train good.yaml --run-dir full/run": "full/run",
    "translate model -i text -o full/out": "full/out",
    "average model -o full/new": "full/new",
    "tune model --source few --reference few -o full/new": "full/new",
    "vocabulary trim model --corpus few -o full/new": "full/new",
    "vocabulary extend model --corpus words -o full/new": "full/new",
    "vocabulary transplant model other-words -o full/new": "full/new",
    "convert classic --to marian -o full/new": "full/new",
    "convert model --to ctranslate2 --force -o full/new": "full/new",
    "convert model --to argos --force -o full/new.argosmodel": "full/new.argosmodel",
}


def test_a_full_disk_is_a_failure_of_the_run_whatever_is_written(tmp_path):
    """Law: exit code 1, as scripts may try again, and one line that names the output and not what is read."""
    wrong_files.fill(tmp_path)
    (tmp_path / "few").write_text("A man.\nTwo dogs.\nA bicycle.\n")
    (tmp_path / "words").write_text("Ωμέγα\n" * 9)
    process = Forked(partial(on_a_full_disk, tmp_path), tmp_path)
    out, err = process.communicate(timeout=300)
    if process.returncode == NO_MOUNT:
        pytest.skip("this system lets nobody mount a disk of their own")
    assert process.returncode == 0, err
    answers = json.loads(out.splitlines()[-1])
    assert answers.keys() == WRITING.keys()
    for typed, (code, lines) in answers.items():
        assert code == 1, (typed, lines)
        named, reason, _ = lines[-1].casefold().partition("no space left on device")
        assert reason, lines
        assert WRITING[typed] in named, lines


def on_a_full_disk(folder: Path) -> int:
    """Type each command, and print its exit code and standard error."""
    if not mount(folder / "full"):
        return NO_MOUNT
    ballast, answers = Path("full/ballast"), {}
    ballast.write_bytes(bytes(os.statvfs("full").f_bavail * os.statvfs("full").f_frsize))
    for typed in WRITING:
        with contextlib.redirect_stderr(io.StringIO()) as stderr, contextlib.redirect_stdout(io.StringIO()):
            code = main(typed.split())
        answers[typed] = code, stderr.getvalue().splitlines()
    print(json.dumps(answers))
    return 0


def test_a_limit_on_the_size_of_files_costs_nothing(whole, tmp_path):
    run_out_of_room(corpus(tmp_path / "short"), whole, SmallFiles())


def test_a_full_disk_shows_no_error_of_a_thread(tmp_path):
    """TensorBoard writes in a thread of its own, which keeps its error for the next call and would also print it."""
    program = """
import resource, sys, threading
from pathlib import Path
from seq2seq.training.trackers import TensorBoard, TrackedRun
board = TensorBoard()
board.start(TrackedRun(Path(sys.argv[1]), 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    for step in range(1000):
        board.scalars(step, {"loss": 1.0})
        board._writer.flush()
except OSError:
    print("told")
threading.Thread(target=lambda: 1 / 0).start()  # the errors of other threads are still shown
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout == "told\n", done.stderr
    assert done.stderr.count("Traceback") == 1
    assert "ZeroDivisionError" in done.stderr
