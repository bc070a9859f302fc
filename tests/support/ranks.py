"""Processes that run as the ranks of one run, as torchrun starts them; tests of several ranks share this."""

import socket
import time
from pathlib import Path

from support import toy_run
from support.forked import Forked

ROOT = str(Path(__file__).parents[2])


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def start(folder, world_size, *settings):
    """The toy run, a process for each rank."""
    return start_work(lambda: toy_run.main(folder, *settings), world_size)


def start_work(work, world_size, folder=None):
    """Any work, in a process for each rank."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world_size)}
    return [Forked(work, folder, RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in range(world_size)]


def finish(started):
    """(return code, output, errors) of each."""
    outputs = [process.communicate(timeout=300) for process in started]
    return [(process.returncode, *output) for process, output in zip(started, outputs, strict=True)]


def wait_for(path, started, seconds=300):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, [process.poll() for process in started]
        time.sleep(0.05)
