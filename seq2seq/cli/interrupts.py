"""SIGINT while a command runs: it raises KeyboardInterrupt until the exit code is known, and then changes nothing.

`cli.main` uses it from its first statement to its last.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SECONDS_TO_RETURN = 0.02  # from a finalizer to the code that it interrupted


class Interrupts:
    """A handler of SIGINT in place of Python's own, from the creation to `end`.

    Another handler stays. For example, SIGINT is ignored in processes that a shell script starts in the background.
    """

    def __init__(self, handler: Callable[[int, FrameType | None], None]):
        """Install `handler`, which may raise KeyboardInterrupt."""
        is_main = threading.current_thread() is threading.main_thread()
        self._is_on = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        self._hook_before = sys.unraisablehook
        self._again: threading.Timer | None = None
        if self._is_on:
            signal.signal(signal.SIGINT, handler)
            sys.unraisablehook = self._interrupt_again

    def end(self, exit_code: int, is_process: bool) -> None:
        """Restore the handler, or if the process ends as well, let SIGINT not change its exit code."""
        if self._again is not None:
            self._again.cancel()
        # If KeyboardInterrupt passes code that `exec` compiles from a string, as libraries do that make a dataclass,
        # `python -m` sends SIGINT to itself at its end, although the exception was caught. Each `exec` begins with
        # forgetting it (run_eval_code_obj in CPython's pythonrun.c).
        exec("")
        if self._is_on and is_process:
            # The end waits for threads. After that Python would restore the system's handler, which kills the process.
            signal.signal(signal.SIGINT, lambda number, frame: os._exit(exit_code))
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        elif self._is_on:
            sys.unraisablehook = self._hook_before
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupt_again(self, unraisable: Any) -> None:
        """Repeat a signal whose KeyboardInterrupt was lost in a finalizer or the callback of a weak reference."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._again = threading.Timer(SECONDS_TO_RETURN, os.kill, (os.getpid(), signal.SIGINT))
            self._again.start()
        else:
            self._hook_before(unraisable)
