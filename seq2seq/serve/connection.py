"""A connection of a client that may be slow, or one of very many, or talk nonsense.

`server` gives it to uvicorn, whose own waits for ever and answers in plain text.
"""

import asyncio
import secrets
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2seq.serve.http import to_json
from seq2seq.serve.limits import Limits


def bounded(limits: Limits) -> type[H11Protocol]:
    """uvicorn's HTTP/1.1 within limits."""

    class Bounded(H11Protocol):
        """A connection with a bound on each thing that it can take."""

        _receiving: asyncio.TimerHandle | None = None
        _sending: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                self._refuse(503, "too_many_connections", "too many connections; try again later")
            else:
                self._watch()

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
            self._refuse(400, "bad_http", "this is not HTTP, or a header is too large")

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
