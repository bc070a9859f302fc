"""`s2s augment` killed at random moments, with one and two workers, ends in the bytes of a run without kills.

SIGKILL comes to the command itself or to one of its workers. A cluster of other processes gives the same bytes too.
"""

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest
from support.cluster import cluster
from support.forked import Forked, s2s, workers_of
from support.number_words import sentences
from support.reversed_folder import folder

__all__ = ["folder"]  # a fixture
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")]

KILLS = 6
SECONDS = 300  # for a command, on a busy machine
SHARD_LINES, LINES = 6, 240


@pytest.fixture(scope="module")
def place(folder, tmp_path_factory) -> Path:
    """A folder with a text, a model, and the pairs of a run without kills in `whole`."""
    place = tmp_path_factory.mktemp("kills")
    (place / "text").write_text("".join(f"{' '.join(row)}\n" for row in sentences(LINES, 5)))
    (place / "model").symlink_to(folder / "runs" / "toy" / "best")
    finish(started(place, "whole", "1"))
    return place


def started(place: Path, name: str, workers: str, *options: str) -> Forked:
    command = ["augment", "model", "--text", "text", "-o", name, "--shard-lines", str(SHARD_LINES)]
    return s2s(place, *command, *(options or ("--workers", workers)))


def finish(command: Forked) -> None:
    """Wait for a command that is not killed."""
    _, said = command.communicate(SECONDS)
    assert command.returncode == 0, said


def contents(made: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in made.iterdir()}


def parts(made: Path) -> int:
    return len(list(made.glob("part-*.gz")))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_killed_at_random_moments_the_folder_gets_the_same_bytes(workers, place):
    draw, name = random.Random(int(workers)), f"killed-{workers}"
    kills = 0
    while kills < KILLS:
        before, command = parts(place / name), started(place, name, workers)
        wanted = before + draw.randint(1, 4)
        while command.poll() is None and parts(place / name) < wanted:
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.02))
        if command.poll() is not None:
            break
        command.kill()
        command.communicate(SECONDS)
        kills += 1
    assert kills >= 4, command.communicate(SECONDS)
    finish(started(place, name, workers))
    assert contents(place / name) == contents(place / "whole")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_tells_how_much_is_complete(workers, place):
    name = f"stopped-{workers}"
    command = started(place, name, workers)
    while command.poll() is None and parts(place / name) < 3:
        time.sleep(0.002)
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(SECONDS)
    assert command.returncode == 130
    told = [line for line in said.splitlines() if "interrupted" in line]
    complete = int(re.fullmatch(rf"s2s: .*{name}: interrupted; (\d+) of 40 parts complete; .*continues", told[-1])[1])
    assert len(told) == 1
    assert 3 <= complete <= parts(place / name)
    finish(started(place, name, workers))
    assert contents(place / name) == contents(place / "whole")


def test_a_worker_that_is_killed_is_replaced(place):
    command = started(place, "worker", "2")
    seen: list[int] = []  # oldest first: one that has made parts, and does not start only now
    killed: set[int] = set()
    while command.poll() is None and len(killed) < 3:
        time.sleep(0.01)
        running = workers_of(command.pid)
        seen += [worker for worker in running if worker not in seen]
        if parts(place / "worker") > 8 * len(killed):
            for worker in [worker for worker in seen if worker in running and worker not in killed][:1]:
                os.kill(worker, signal.SIGKILL)
                killed.add(worker)
    finish(command)
    assert len(killed) >= 2
    assert contents(place / "worker") == contents(place / "whole")


def test_a_cluster_gives_the_same_bytes_also_after_the_end_of_its_scheduler(place):
    pytest.importorskip("distributed")
    with cluster(place, processes=(processes := [])) as executor:
        ended = started(place, "cluster", "", "--executor", executor)
        while ended.poll() is None and parts(place / "cluster") < 3:
            time.sleep(0.002)
        for process in processes:
            process.kill()
        _, said = ended.communicate(SECONDS)
    assert ended.returncode == 1, said
    assert "the executor has ended, such as the scheduler of a cluster; the same command continues\n" in said
    (place / "scheduler.json").unlink()
    with cluster(place) as executor:
        finish(started(place, "cluster", "", "--executor", executor))
    assert contents(place / "cluster") == contents(place / "whole")
