"""Text work and device work of groups of lines, in turn or at the same time.

The work of a group is a generator. It does the text work itself (normalise, tokenise, detokenise, judge), yields each
call that uses the device, and is sent the result. `Translator` and `Pipeline` make such generators. `finish` runs one
of them; `side_by_side` runs those of a stream, with their text work in threads next to a device that is no CPU.
"""

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")
Work = Generator[Callable[[], Any], Any, Result]
"""Text work that yields calls which use the device, and returns a result."""


class _Step(NamedTuple):
    """The end of a piece of text work: the next call that uses the device, or None and the result."""

    call: Callable[[], Any] | None
    result: Any = None


class _Prepared(NamedTuple):
    """Work and its first step; or no work, at the end of a stream or after an error."""

    work: Work | None
    step: _Step = _Step(None)
    failure: BaseException | None = None


def finish(work: Work[Result]) -> Result:
    """Do all of the work in this thread, and return its result."""
    step = _advance(work)
    while step.call is not None:
        step = _advance(work, step.call())
    return step.result


def side_by_side(works: Iterable[Work[Result]]) -> Iterator[Result]:
    """Yield the result of each work, in order.

    All calls that use the device are made in this thread, one at a time. While one is made, a thread advances the next
    work to its first call, and another thread does the text work after the first call of the work before. These threads
    must not use the device: a launch by another thread ends the recording of a CUDA graph.

    A result does not wait for input: it is yielded before the next call is made, unless the next work has arrived at
    its first call already. Errors are raised after the results of all works before, as `finish` would raise them; so is
    KeyboardInterrupt if it comes during a call.
    """
    before: _Begun | None = None
    with _Ahead(works) as ahead, ThreadPoolExecutor(1, "s2s-text") as text:
        while True:
            if before is not None and not ahead.is_ready:
                yield before.result()
                before = None
            after, failure = _begin(ahead.take(), text)
            if before is not None:
                yield before.result()
            if failure is not None:
                raise failure
            if after is None:
                return
            before = after


def _advance(work: Work, value: Any = None) -> _Step:
    """Do the text work up to the next call that uses the device, or to the result."""
    try:
        return _Step(work.send(value))
    except StopIteration as end:
        return _Step(None, end.value)


def _begin(prepared: _Prepared, text: ThreadPoolExecutor) -> "tuple[_Begun | None, BaseException | None]":
    """Make the first call of prepared work; return it begun, or the error."""
    if prepared.work is None:
        return None, prepared.failure
    try:
        return _Begun(prepared.work, prepared.step, text), None
    except BaseException as error:  # raised after the results of the works before
        return None, error


class _Begun:
    """Work whose first call has been made; its text work continues in the thread of `text`."""

    def __init__(self, work: Work, step: _Step, text: ThreadPoolExecutor):
        self._work, self._text = work, text
        self._continue(step)

    def result(self) -> Any:
        """Wait for the text work, make further calls that use the device, and return the result."""
        while self._later is not None:
            self._continue(self._later.result())
        return self._result

    def _continue(self, step: _Step) -> None:
        self._result, self._later = step.result, None
        if step.call is not None:
            self._later = self._text.submit(_advance, self._work, step.call())


class _Ahead:
    """A thread that takes works from an iterator and advances each to its first call; two of them wait at most."""

    def __init__(self, works: Iterable[Work]):
        self._prepared: queue.Queue[_Prepared] = queue.Queue(1)
        self._is_over = threading.Event()
        # not a thread that the end of the process waits for: it may wait for input
        threading.Thread(target=self._run, args=(works,), name="s2s-text-ahead", daemon=True).start()

    @property
    def is_ready(self) -> bool:
        """Whether `take` does not wait."""
        return not self._prepared.empty()

    def take(self) -> _Prepared:
        """Wait for the next work, and return it."""
        return self._prepared.get()

    def __enter__(self) -> "_Ahead":
        return self

    def __exit__(self, *error: object) -> None:
        """Let the thread end as soon as it does not wait for input."""
        self._is_over.set()
        while self.is_ready:
            self._prepared.get_nowait()  # makes room, so that a waiting thread sees `_is_over`

    def _run(self, works: Iterable[Work]) -> None:
        failure = None
        try:
            for work in works:
                self._prepared.put(_Prepared(work, _advance(work)))
                if self._is_over.is_set():
                    return
        except BaseException as error:  # raised by the thread that takes it
            failure = error
        self._prepared.put(_Prepared(None, failure=failure))
