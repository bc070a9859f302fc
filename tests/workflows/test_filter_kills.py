"""`s2s filter` killed at random moments, with one and two workers, ends in the bytes of a run without kills."""

import os
import random
import time
from pathlib import Path

import pytest
from support.filtered import contents, make_opposite, spoiled_pairs, write_sides
from support.forked import Forked, s2s
from support.reversed_folder import folder

__all__ = ["folder"]  # a fixture
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

KILLS, FEWEST_KILLS = 4, 3
SHARD_LINES, LINES = 4, 80
DEADLINE = 240  # seconds


@pytest.fixture(scope="module")
def place(folder, tmp_path_factory) -> Path:
    """A folder with a corpus, two models, and the pairs of a run without kills in `whole`."""
    place = tmp_path_factory.mktemp("kills")
    (place / "model").symlink_to(folder / "runs" / "toy" / "best")
    make_opposite(place / "model", place / "opposite")
    write_sides(place, "corpus", spoiled_pairs(LINES, 5)[0])
    finish(started(place, "whole", "1"))
    return place


def started(place: Path, name: str, workers: str) -> Forked:
    command = ["filter", "corpus.en", "corpus.de", "--model", "model", "--reverse", "opposite", "--keep", "0.7"]
    return s2s(place, *command, "-o", name, "--shard-lines", str(SHARD_LINES), "--workers", workers)


def finish(command: Forked) -> None:
    """Wait for a command that is not killed."""
    _, said = command.communicate(DEADLINE)
    assert command.returncode == 0, said


def parts(made: Path) -> int:
    """The number of parts, of scores and of pairs."""
    return len(list(made.rglob("part-*.gz")))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_killed_at_random_moments_the_folder_gets_the_same_bytes(workers, place):
    draw, name, kills = random.Random(int(workers)), f"killed-{workers}", 0
    while kills < KILLS:
        wanted, command = parts(place / name) + draw.randint(2, 7), started(place, name, workers)
        while command.poll() is None and parts(place / name) < wanted:
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.01))
        if command.poll() is not None:
            break
        command.kill()
        command.communicate(DEADLINE)
        kills += 1
    assert kills >= FEWEST_KILLS, command.communicate(DEADLINE)
    finish(started(place, name, workers))
    assert contents(place / name) == contents(place / "whole")
