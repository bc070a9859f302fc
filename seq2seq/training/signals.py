"""SIGINT and SIGTERM as a wish to stop, acknowledged at once; a second one ends the process and says what it costs.

The trainer finishes its step, saves and returns; work that has nothing to save is left where it is.
"""

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, NoReturn

from seq2seq.errors import counted
from seq2seq.runtime import Runtime
from seq2seq.training.progress import clear_bars

NAMES: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
INTERRUPTED = 130
SECONDS_TO_LEAVE = 3.0

log = logging.getLogger(__name__)


class StopSignal:
    """Inside the context, the first signal sets `requested` to its name; a second one ends the process at once.

    A thread answers both, because the main thread hears of a signal only between two operations.
    """

    def __init__(self, runtime: Runtime, first: Callable[[str], str], second: Callable[[], str]):
        """Prepare.

        Args:
            runtime: the main rank speaks for all.
            first: what to say to the first signal, whose name it gets.
            second: what to say to a second one.
        """
        self.requested = ""
        self._is_main, self._is_alone = runtime.is_main, runtime.world_size == 1
        self._first, self._second = first, second
        # torchrun passes on to its ranks a Ctrl-C that the terminal has sent to them as well
        self._same_within = 0.25 if self._is_alone else 2.0
        self._raises = self._leaves = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        self.requested = ""
        if threading.current_thread() is threading.main_thread():
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            self._socket, self._wakeup_before = theirs, signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
            self._before = {number: signal.signal(number, self._note) for number in NAMES}
            self._thread = threading.Thread(target=self._answer, args=(ours,), daemon=True, name="s2s-signals")
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            signal.set_wakeup_fd(self._wakeup_before)
            self._socket.close()  # ends the thread, once it has answered what came
            self._thread.join(timeout=1.0)
        self._before = {}

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """The first signal raises KeyboardInterrupt inside, also one that came before; not where other ranks wait."""
        self._raises = self._is_alone or self._leaves
        try:
            if self._raises and self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._raises = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested = self.requested or NAMES[number]
        if self._raises:
            self._raises = False  # what cleans up is not interrupted
            raise KeyboardInterrupt

    def _answer(self, wakeups: socket.socket) -> None:
        first = None
        with wakeups:
            while numbers := self._receive(wakeups):
                for number in NAMES.keys() & set(numbers):
                    if first is None:
                        first = time.monotonic()
                        self._say(self._first(NAMES[number]))
                    elif time.monotonic() - first > self._same_within:
                        self._say(self._second())
                        _end()
                if self._leaves and first is not None:
                    wakeups.settimeout(SECONDS_TO_LEAVE)

    def _receive(self, wakeups: socket.socket) -> bytes:
        """Numbers of signals; none when the context is left."""
        try:
            return wakeups.recv(64)
        except TimeoutError:
            _end()

    def _say(self, text: str) -> None:
        if self._is_main:
            log.info("%s", text)


@contextlib.contextmanager
def leaving_at_once(runtime: Runtime, said: str) -> Iterator[None]:
    """For work that can be killed without loss: the first signal says so and raises KeyboardInterrupt.

    Where the main thread computes on in C for seconds, the process ends without it.
    """
    stop = StopSignal(runtime, lambda name: f"{name}: {said}", lambda: "stopped")
    stop._leaves = True
    with stop, stop.interrupting():
        yield


def answers(
    runtime: Runtime, whereabouts: Callable[[], tuple[str, int, int | None]]
) -> tuple[Callable[[str], str], Callable[[], str]]:
    """What a trainer says to a first and to a second signal.

    `whereabouts` gives what it does beside steps, if anything, the step, and the step of the last checkpoint.
    """
    task = {"saving": "saving", "validating": "finishing the validation and a step, and saving"}
    if runtime.world_size == 1:
        task |= {"validating": "leaving the validation and saving", "preparing": "stopping"}

    def first(name: str) -> str:
        doing, _, saved = whereabouts()
        again = "press Ctrl-C again" if name == NAMES[signal.SIGINT] else f"send {name} again"
        last = "no checkpoint yet" if saved is None else f"last checkpoint: step {saved:,}"
        return f"{task.get(doing, 'finishing this step and saving')}; {again} to quit without saving ({last})"

    def second() -> str:
        _, step, saved = whereabouts()
        if saved is None:
            return f"stopped without saving; {counted(step, 'step')} lost; the same command starts over"
        lost = counted(step - saved, "step")
        return f"stopped without saving; {lost} since step {saved:,} lost; the same command continues from there"

    return first, second


def _end() -> NoReturn:
    clear_bars()
    os._exit(INTERRUPTED)
