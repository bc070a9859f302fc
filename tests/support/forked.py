"""A process forked from that of the tests, which has everything imported: it starts in milliseconds, and tests that are
about processes, but not about the start of Python, kill, stop and await it."""

import contextlib
import gc
import importlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seq2seq.cli import main

# What commands import when they need it.
MODULES = (
    "matplotlib.backends.backend_agg", "matplotlib.figure", "matplotlib.font_manager", "sacrebleu",
    "seq2seq.inference.translator", "seq2seq.tasks.run", "seq2seq.tasks.translation", "seq2seq.workflows.convert",
    "torch.utils.tensorboard",
)  # fmt: skip


def import_modules(names: tuple[str, ...] = MODULES) -> None:
    """Once, and not in every process: about 2 s."""
    for name in names:
        importlib.import_module(name)


class Forked:
    """Work in a process of its own, with the methods of `subprocess.Popen`; its exit code is the number it returns."""

    modules = MODULES

    def __init__(self, work: Callable[[], Any], folder: Path | None = None, **environment: str):
        import_modules(self.modules)
        self.returncode: int | None = None
        self._files = [tempfile.TemporaryFile() for _ in range(2)]
        self.pid = os.fork()
        if self.pid == 0:
            self._run(work, folder, environment)

    def _run(self, work: Callable[[], Any], folder: Path | None, environment: dict[str, str]) -> None:
        code = 1
        gc.freeze()  # objects of the tests that are freed here would wait for threads, which only the parent has
        try:
            for number, (file, name) in enumerate(zip(self._files, ("stdout", "stderr"), strict=True), start=1):
                os.dup2(file.fileno(), number)
                setattr(sys, name, open(number, "w", buffering=1, closefd=False))
            logging.getLogger().handlers.clear()  # those of pytest
            os.environ.update(environment)
            if folder is not None:
                os.chdir(folder)
            code = work() or 0
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Standard output and standard error of the process, when it has ended."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                self.kill()
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(0.01)
        output, errors = (os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in self._files)
        return output.decode(), errors.decode()

    def wait(self, timeout: float = 60) -> int:
        """The exit code, when the process has ended."""
        self.communicate(timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Piped(Forked):
    """A command between two pipes, as in a shell: `stdin` and `stdout` are the ends of the caller."""

    def __init__(self, *typed: str, **environment: str):
        (theirs, feeding), (reading, answering) = os.pipe(), os.pipe()

        def work() -> int:
            os.dup2(theirs, 0)
            os.dup2(answering, 1)
            os.closerange(3, 1024)  # an end of a pipe that another process keeps open would never end
            sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", buffering=1, closefd=False)
            return typed_in_a_shell(*typed)

        super().__init__(work, **environment)
        os.close(theirs)
        os.close(answering)
        self.stdin, self.stdout = open(feeding, "wb"), open(reading, "rb")

    def end(self) -> None:
        """Kill the process if it lives, and close the pipes."""
        self.kill()
        self.wait(60)
        self.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # what it had not read
            self.stdin.close()


def typed_in_a_shell(*typed: str) -> int:
    """The command, with the arguments of the process, which model cards quote."""
    sys.argv = ["s2s", *typed]
    return main(list(typed))


def s2s(folder: Path, *typed: str) -> Forked:
    """The command in a folder."""
    return Forked(lambda: typed_in_a_shell(*typed), folder)


def workers_of(process: int) -> list[int]:
    """The workers of a process: children of any thread that run Python's spawn, without its resource tracker."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread or a process ended meanwhile
            new = task.read_text().split()
            found += [int(child) for child in new if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return found


def dies_in(module: object, name: str, calls: int, half: Callable[..., None] = lambda *_: None) -> Callable[[], None]:
    """Return a function that makes a process die in its call number `calls` of another, of which it does `half`."""

    def prepare() -> None:
        original, counter = getattr(module, name), iter(range(calls))

        def dying(*arguments, **options):
            if next(counter, None) is None:
                half(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        setattr(module, name, dying)

    return prepare
