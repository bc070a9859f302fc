"""Under the real torchrun: ranks that are killed are started again and end in the bits of ranks that were not."""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from support.forked import typed_in_a_shell
from support.ranks import ROOT, finish, start_work
from support.whole_runs import corpus, differences

from seq2seq import runtime
from seq2seq.tasks import task

STEPS = ("--set", "training.max_steps=35")
FEW_STEPS = ("--set", "training.max_steps=2")
# The command in a new interpreter, which imports what the command imports, and no earlier than it.
THEN_THREADS = """
import os, sys
from pathlib import Path
from seq2seq.cli import main

code = main(sys.argv[1:])
print(*(Path(f"/proc/self/task/{thread}/comm").read_text().strip() for thread in os.listdir("/proc/self/task")))
sys.exit(code)
"""
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to find the ranks")]


def torchrun(folder, *program):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--max-restarts", "3",
        *program,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **piped)


def rank_processes(process):
    """Process ids of the ranks that run, by rank."""
    found = {}
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        try:
            environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found |= {int(value[5:]): int(child) for value in environment if value.startswith(b"RANK=")}
    return found


def steps(run):
    return [int(path.name.removeprefix("step_")) for path in run.glob("checkpoints/step_*")]


def kill_after(step, rank, process, run):
    deadline = time.monotonic() + 300
    while max(steps(run), default=0) < step or rank not in rank_processes(process):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(rank_processes(process)[rank], signal.SIGKILL)


def test_killed_ranks_are_started_again_from_the_last_checkpoint(tmp_path):
    whole, killed = (corpus(tmp_path / name) for name in ("whole", "killed"))
    ended = finish(start_work(lambda: typed_in_a_shell("train", "toy.yaml", *STEPS), 2, whole))
    assert [code for code, _, _ in ended] == [0, 0], ended
    process = torchrun(killed, "-m", "seq2seq", "train", "toy.yaml", *STEPS)
    run = killed / "runs" / "toy"
    for step, rank in ((7, 1), (14, 0)):
        kill_after(step, rank, process, run)
    errors = process.communicate(timeout=600)[1]
    assert process.returncode == 0, errors
    assert errors.count("continuing from step") >= 2
    for rank in range(2):
        assert f"rank {rank} of 2 ended without a report" in errors
    assert differences(whole / "runs" / "toy", run) == []


@pytest.mark.parametrize("part", ["_new_tokenizers", "find_overlap"])
def test_ranks_wait_for_the_preparation_however_long_it_takes(tmp_path, monkeypatch, part):
    """The tokenizer and the search for overlap are the work of the main rank alone."""
    limit, original = 10, getattr(task, part)
    monkeypatch.setattr(runtime, "WAIT_LIMIT", timedelta(seconds=limit))
    monkeypatch.setattr(task, part, lambda *given: time.sleep(limit + 3) or original(*given))
    folder = corpus(tmp_path / "run")
    short = ("--set", "training.max_steps=1")
    ended = finish(start_work(lambda: typed_in_a_shell("train", "toy.yaml", *short), 2, folder))
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert steps(folder / "runs" / "toy") == [1]
    assert not list(folder.rglob("ranks-*"))


def test_no_thread_of_gloo_outlives_a_run(tmp_path):
    """Such a thread may ask for the interpreter's lock while the interpreter ends, which aborts the process."""
    (tmp_path / "then_threads.py").write_text(THEN_THREADS)
    process = torchrun(corpus(tmp_path / "run"), tmp_path / "then_threads.py", "train", "toy.yaml", *FEW_STEPS)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert output.count("python") >= 2, output
    assert "gloo" not in output
