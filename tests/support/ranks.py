"""Processes that run as the ranks of one run, as torchrun starts them; tests of several ranks share this."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from support import toy_run

ROOT = str(Path(__file__).parents[2])


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def start(folder, world_size, *settings):
    """The toy run, a process for each rank."""
    port = str(free_port())
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            [sys.executable, toy_run.__file__, str(folder), *settings],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]


def finish(started):
    """(return code, output, errors) of each."""
    outputs = [process.communicate(timeout=300) for process in started]
    return [(process.returncode, *output) for process, output in zip(started, outputs, strict=True)]


def wait_for(path, started, seconds=300):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, [process.poll() for process in started]
        time.sleep(0.05)
