"""The command in which SIGINT comes at a given moment: `python -m support.interrupted MOMENT [ARGUMENT ...]`.

Moments are the calls after which Python looks for signals, counted from the first statement of `main`; `exec` is the
first of code that `exec` compiles from a string, and `end` and `exit` come after `main` has returned. `sweep` tries
many numbers in forks of this process, which has no torch and is copied quickly; the file `found` lists the answers.
"""

import atexit
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from seq2seq import cli
from seq2seq.cli.interrupts import Interrupts


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Moments:
    """A profile function that interrupts at a moment."""

    def __init__(self, is_it: Callable[[int, FrameType], bool]):
        self.count = 0
        self._is_it = is_it

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code is signal.signal.__code__ and frame.f_back.f_code is Interrupts.end.__code__:
            sys.setprofile(None)  # the handler is the caller's again
        elif event == "c_return" or (event == "call" and frame.f_code is not cli.main.__code__):
            self.count += 1
            if self._is_it(self.count, frame):
                sys.setprofile(None)
                interrupt()


def interrupted_main(moment: int, arguments: list[str]) -> tuple[int, int]:
    """The exit code, and the number of moments until then; moment 0 never comes."""
    moments = Moments(lambda count, frame: count == moment)
    sys.setprofile(moments)
    code = cli.main(arguments)
    sys.setprofile(None)
    return code, moments.count


def in_a_fork(moment: int, arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; an exception that leaves `main` is code 99."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            sys.stdout, sys.stderr = open("stdout", "w"), open("stderr", "w", buffering=1)
            code, moments = interrupted_main(moment, arguments)
            sys.stdout.close()
            Path("moments").write_text(str(moments))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, Path("stdout").read_text(), Path("stderr").read_text()


def sweep(arguments: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main(arguments)  # so that everything is imported
    found = [in_a_fork(0, arguments)]
    moments = int(Path("moments").read_text())
    at = sorted({*range(1, moments, moments // 60), *range(1, 40), *range(moments - 40, moments + 1)})
    found += [in_a_fork(moment, arguments) for moment in at]
    Path("found").write_text(json.dumps(found))


if __name__ == "__main__":
    moment = sys.argv.pop(1)
    if moment == "sweep":
        sweep(sys.argv[1:])
        sys.exit()
    if moment == "exec":
        sys.setprofile(Moments(lambda count, frame: frame.f_code.co_name == "<module>" and "<string>" in str(frame)))
    if moment == "exit":
        atexit.register(interrupt)
    code = cli.main()
    if moment == "end":
        interrupt()
    sys.exit(code)
