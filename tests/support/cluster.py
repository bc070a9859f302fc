"""A Dask cluster on this machine; each of its workers is a process."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def command_settings() -> dict[str, str]:
    """The environment in which other processes find what this one imports."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


# A scheduler tells of the first death, not of the fourth: each new worker takes a second to start.
TOLD_AT_ONCE = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}


@contextlib.contextmanager
def cluster(
    folder: Path, count: int = 2, threads: int = 1, processes: list[subprocess.Popen] | None = None
) -> Iterator[str]:
    """Yield the name of the executor of `count` workers with `threads` threads each.

    `processes` gets the scheduler, and the process that starts the workers.
    """
    file = folder / "scheduler.json"
    options = {
        "scheduler": ["--no-dashboard", "--host", "127.0.0.1", "--port", "0"],
        "worker": ["--nworkers", str(count), "--nthreads", str(threads), "--no-dashboard"],
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--scheduler-file", str(file), *own],
            env=command_settings() | TOLD_AT_ONCE,
            cwd=folder,
            stderr=subprocess.DEVNULL,
        )
        for kind, own in options.items()
    ]
    if processes is not None:
        processes += started
    try:
        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        yield f"dask:{file}"
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)
