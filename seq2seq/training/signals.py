"""The handling of SIGINT, SIGTERM and SIGHUP: the first signal requests a stop, a second one ends the process.

The trainer finishes its step, saves and returns; commands with nothing to save stop immediately.
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
from seq2seq.training.activity import Phase
from seq2seq.training.progress import clear_bars

NAMES: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
if HANGUP := getattr(signal, "SIGHUP", None):  # the terminal is gone; Windows has none
    NAMES[HANGUP] = "SIGHUP"
AGAIN = {"Ctrl-C": "press Ctrl-C again", "SIGTERM": "send SIGTERM again", "SIGHUP": "send SIGTERM twice"}
INTERRUPTED = 130
SECONDS_TO_LEAVE = 3.0

log = logging.getLogger(__name__)


class StopSignal:
    """A context in which the first signal sets `requested` to its name, and a second one ends the process immediately.

    A thread answers both, because the main thread handles a signal only between two operations. SIGHUP never counts as
    the second signal, because a closing terminal sends it several times, and a service manager sends it in addition to
    SIGTERM. SIGHUP stays ignored if it is ignored already, for example under nohup.
    """

    def __init__(
        self, runtime: Runtime, first: Callable[[str], str], second: Callable[[], str], has_to_leave: bool = False
    ):
        """Prepare; entering the context installs the handlers.

        Args:
            runtime: rank and number of ranks; only the main rank logs.
            first: returns the message for the first signal, from its name.
            second: returns the message for a second signal.
            has_to_leave: whether the process ends a few seconds after the first signal, even if the main thread is
                busy.
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
        """Let the first signal, or a pending one, raise KeyboardInterrupt inside the context.

        With several ranks nothing is raised, because the other ranks would wait, unless the process `has_to_leave`.
        """
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
            self._raises = False  # so that a second signal does not interrupt the clean-up
            raise KeyboardInterrupt

    def _answer(self, wakeups: socket.socket) -> None:
        begun, answered = None, set()
        with wakeups, contextlib.suppress(TimeoutError):
            for number in self._arriving(wakeups):
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

    def _arriving(self, wakeups: socket.socket) -> Iterator[int]:
        """Yield the number of each signal when it arrives, until the context is left."""
        while numbers := wakeups.recv(64):
            yield from self._before.keys() & set(numbers)

    def _say(self, text: str) -> None:
        if self._is_main:
            log.info("%s", text)


@contextlib.contextmanager
def leaving_at_once(runtime: Runtime, message: str) -> Iterator[None]:
    """Let the first signal log `message` and raise KeyboardInterrupt, for work that can be killed without loss."""
    stop = StopSignal(runtime, lambda name: f"{name}: {message}", lambda: "stopped", has_to_leave=True)
    with stop, stop.interrupting():
        yield


def deliver(name: str) -> None:
    """Send this process the signal with a name of `NAMES`, for the program that called the training."""
    signal.raise_signal(next(number for number, own in NAMES.items() if own == name))


def answers(
    runtime: Runtime, whereabouts: Callable[[], tuple[Phase, int, int | None]]
) -> tuple[Callable[[str], str], Callable[[], str]]:
    """Return functions that make the trainer's messages for a first and a second signal.

    `whereabouts` returns the current phase, the step, and the step of the last checkpoint (None before the first).
    """
    task = {Phase.SAVING: "saving", Phase.VALIDATING: "finishing the validation and a step, and saving"}
    if runtime.world_size == 1:
        task |= {Phase.VALIDATING: "leaving the validation and saving", Phase.PREPARING: "stopping"}

    def first(name: str) -> str:
        phase, _, saved = whereabouts()
        last = "no checkpoint yet" if saved is None else f"last checkpoint: step {saved:,}"
        return f"{task.get(phase, 'finishing this step and saving')}; {AGAIN[name]} to quit without saving ({last})"

    def second() -> str:
        _, step, saved = whereabouts()
        if saved is None:
            return f"stopped without saving; {counted(step, 'step')} lost; the same command starts over"
        lost = counted(step - saved, "step")
        return f"stopped without saving; {lost} since step {saved:,} lost; the same command continues from there"

    return first, second
