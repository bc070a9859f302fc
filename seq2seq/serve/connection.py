"""A connection of a client that may be slow, or one of very many, or talk nonsense.

`server` gives it to uvicorn, whose own waits for ever and answers in plain text.
"""

import asyncio
import itertools
import secrets
from collections import Counter
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2seq.serve.http import client_of, to_json
from seq2seq.serve.limits import Limits

MALFORMED = "the request is not HTTP, has two lengths, more than {:,} headers, or more than {:,} bytes of headers"
_numbers = itertools.count()


class Strict(h11.Connection):
    """An HTTP/1.1 connection that refuses headers over the limits, and requests that a proxy may read differently.

    h11 bounds the headers alone that come in several pieces; a request with two lengths it reads by one of them.
    """

    def __init__(self, limits: Limits):
        super().__init__(h11.SERVER, limits.header_bytes)
        self._limits = limits

    def next_event(self) -> Any:
        """The next part of a request.

        Raises:
            h11.RemoteProtocolError: it is not HTTP/1.1, or over a limit.
        """
        event = super().next_event()
        if isinstance(event, (h11.Request, h11.EndOfMessage)):
            self._check(event)
        return event

    def _check(self, event: h11.Request | h11.EndOfMessage) -> None:
        names = [name for name, _ in event.headers]
        size = sum(len(name) + len(value) + 4 for name, value in event.headers) + len(getattr(event, "target", b""))
        is_old = isinstance(event, h11.Request) and event.http_version < b"1.1"
        has_two_ends = b"transfer-encoding" in names and (b"content-length" in names or is_old)
        if has_two_ends or size > self._limits.header_bytes or len(names) > self._limits.headers:
            raise h11.RemoteProtocolError("refused")


def bounded(limits: Limits) -> type[H11Protocol]:
    """uvicorn's HTTP/1.1 within limits."""

    class Bounded(H11Protocol):
        """A connection with a bound on each thing that it can take."""

        _receiving: asyncio.TimerHandle | None = None
        _sending: asyncio.TimerHandle | None = None

        def __init__(self, *arguments: Any, **named: Any):
            super().__init__(*arguments, **named)
            self.conn = Strict(limits)
            self.number = next(_numbers)

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.address = client_of(self.client)
            if len(self.connections) > limits.connections and not self._makes_room():
                self._refuse(503, "too_many_connections", "too many connections; try again later")
            else:
                self._watch()

        @property
        def is_waiting(self) -> bool:
            """Whether no request of it is being answered."""
            return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

        def _makes_room(self) -> bool:
            """Close the oldest waiting connection of the client with the most, if it has more than this client."""
            counts = Counter(one.address for one in self.connections)
            most = max(counts, key=lambda address: counts[address])
            waiting = [one for one in self.connections if one.address == most and one.is_waiting]
            if counts[most] <= counts[self.address] or not waiting:
                return False
            oldest = min(waiting, key=lambda one: one.number)
            self.connections.discard(oldest)
            oldest.transport.abort()
            return True

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._receiving, self._sending):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._sending = self.loop.call_later(limits.receive_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._sending is not None:
                self._sending.cancel()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing():
                self._watch()

        def send_400_response(self, msg: str) -> None:
            self._refuse(400, "bad_http", MALFORMED.format(limits.headers, limits.header_bytes))

        def _watch(self) -> None:
            """Let a request, from its first byte to its last, take a bounded time."""
            is_whole = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)
            is_idle = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0] and self.cycle is not None
            if is_whole or is_idle:
                if self._receiving is not None:
                    self._receiving.cancel()
                self._receiving = None
            elif self._receiving is None:
                seconds = limits.receive_seconds + 1  # the application refuses in words a little earlier
                self._receiving = self.loop.call_later(seconds, self.transport.abort)

        def _refuse(self, status: int, code: str, message: str) -> None:
            body = to_json({"error": {"code": code, "message": message, "field": None}})
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
            head += f"x-request-id: {secrets.token_hex(8)}\r\n" + "retry-after: 5\r\n" * (status == 503) + "\r\n"
            self.transport.write(head.encode() + body)
            self.transport.close()

    return Bounded
