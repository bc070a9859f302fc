"""SIGINT, SIGTERM and SIGHUP as requests to stop, answered immediately; a second one ends the process.

The trainer finishes its step, saves and returns; work that has nothing to save is abandoned.
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
from typing import Any

from seq2seq.errors import counted
from seq2seq.runtime import Runtime
from seq2seq.training.progress import clear_bars

NAMES: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
if HANGUP := getattr(signal, "SIGHUP", None):  # the terminal is gone; Windows has none
    NAMES[HANGUP] = "SIGHUP"
AGAIN = {"Ctrl-C": "press Ctrl-C again", "SIGTERM": "send SIGTERM again", "SIGHUP": "send SIGTERM twice"}
INTERRUPTED = 130
SECONDS_TO_LEAVE = 3.0

log = logging.getLogger(__name__)


class StopSignal:
    """Inside the context, the first signal sets `requested` to its name; a second one ends the process at once.

    A thread answers both, because the main thread handles a signal only between two operations. SIGHUP is never the
    second signal: a terminal that closes sends it several times, and a service manager next to SIGTERM. It stays
    ignored where it is ignored already, as under nohup.
    """

    def __init__(
        self, runtime: Runtime, first: Callable[[str], str], second: Callable[[], str], has_to_leave: bool = False
    ):
        """Prepare.

        Args:
            runtime: the main rank logs the answers.
            first: the answer to the first signal, whose name it gets.
            second: the answer to a second one.
            has_to_leave: the process ends soon after the first signal, even if the main thread cannot handle it.
        """
        self.requested = ""
        self._is_main, self._is_alone = runtime.is_main, runtime.world_size == 1
        self._first, self._second = first, second
        # torchrun forwards to its ranks a Ctrl-C that the terminal has sent to them as well
        self._same_within = 0.25 if self._is_alone else 2.0
        self._raises, self._has_to_leave = False, has_to_leave
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            wakeups, self._socket = socket.socketpair()
            self._socket.setblocking(False)
            self._wakeup_before = signal.set_wakeup_fd(self._socket.fileno(), warn_on_full_buffer=False)
            numbers = [number for number in NAMES if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in numbers}
            self._thread = threading.Thread(target=self._answer, args=(wakeups,), daemon=True, name="s2s-signals")
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            signal.set_wakeup_fd(self._wakeup_before)
            self._socket.close()  # ends the thread, after its last answer
            self._thread.join(timeout=1.0)
        self._before = {}

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """The first signal raises KeyboardInterrupt inside, even one that came before; not where other ranks wait."""
        self._raises = self._is_alone or self._has_to_leave
        try:
            if self._raises and self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._raises = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested = self.requested or NAMES[number]
        if self._raises:
            self._raises = False  # the cleaning up is not interrupted
            raise KeyboardInterrupt

    def _answer(self, wakeups: socket.socket) -> None:
        begun, answered = None, set()
        with wakeups, contextlib.suppress(TimeoutError):
            while numbers := wakeups.recv(64):  # the numbers of signals; none when the context is left
                for number in self._before.keys() & set(numbers):
                    if number not in answered and begun is None:
                        self._say(self._first(NAMES[number]))
                        wakeups.settimeout(SECONDS_TO_LEAVE if self._has_to_leave else None)
                    answered.add(number)
                    if number == HANGUP:
                        continue
                    begun = begun or time.monotonic()
                    if time.monotonic() - begun > self._same_within:
                        self._say(self._second())
                        raise TimeoutError
            return
        clear_bars()
        os._exit(INTERRUPTED)

    def _say(self, text: str) -> None:
        if self._is_main:
            log.info("%s", text)


@contextlib.contextmanager
def leaving_at_once(runtime: Runtime, said: str) -> Iterator[None]:
    """For work that can be killed without loss: the first signal logs `said` and raises KeyboardInterrupt."""
    stop = StopSignal(runtime, lambda name: f"{name}: {said}", lambda: "stopped", has_to_leave=True)
    with stop, stop.interrupting():
        yield


def answers(
    runtime: Runtime, whereabouts: Callable[[], tuple[str, int, int | None]]
) -> tuple[Callable[[str], str], Callable[[], str]]:
    """The answers of a trainer to a first and a second signal.

    `whereabouts` returns what it does beside steps, if anything, the step, and the step of the last checkpoint.
    """
    task = {"saving": "saving", "validating": "finishing the validation and a step, and saving"}
    if runtime.world_size == 1:
        task |= {"validating": "leaving the validation and saving", "preparing": "stopping"}

    def first(name: str) -> str:
        doing, _, saved = whereabouts()
        last = "no checkpoint yet" if saved is None else f"last checkpoint: step {saved:,}"
        return f"{task.get(doing, 'finishing this step and saving')}; {AGAIN[name]} to quit without saving ({last})"

    def second() -> str:
        _, step, saved = whereabouts()
        if saved is None:
            return f"stopped without saving; {counted(step, 'step')} lost; the same command starts over"
        lost = counted(step - saved, "step")
        return f"stopped without saving; {lost} since step {saved:,} lost; the same command continues from there"

    return first, second
