"""The socket, its connections, and the life of the server process; `s2s serve` calls `serve`.

`Bounded` overrides methods of uvicorn's `H11Protocol` and reads its attributes. It was written against uvicorn 0.54.
"""

import asyncio
import functools
import itertools
import logging
import math
import os
import secrets
import signal
import socket
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2seq.errors import UserError, counted
from seq2seq.serve import libretranslate
from seq2seq.serve.glossaries import Glossaries
from seq2seq.serve.guard import LOOPBACK, Guard, Keys, is_loopback, sent_name
from seq2seq.serve.http import client_of, to_json
from seq2seq.serve.libretranslate import LibreTranslate
from seq2seq.serve.limits import Limits
from seq2seq.serve.models import Models
from seq2seq.serve.openapi import routes
from seq2seq.serve.page import Page
from seq2seq.serve.service import Service
from seq2seq.serve.v1 import Api

logger = logging.getLogger(__name__)

# Seconds after the time for answers, to send answers and refusals.
LAST_SECONDS = 2
MALFORMED = "the request is not HTTP, has two lengths, more than {:,} headers, or more than {:,} bytes of headers"
_numbers = itertools.count()


@dataclass(frozen=True)
class Access:
    """The access to a server."""

    host: str = "127.0.0.1"
    keys: Keys = field(default_factory=Keys)
    names: Collection[str] = ()
    """Names that are allowed in Host, in addition to those of this machine. If other machines can reach the server and
    no names are given, any name is allowed."""
    origins: Sequence[str] = ()
    """Origins of web pages that may send requests; `*` means any."""
    page: bool = True


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address and does not listen yet.

    Raises:
        UserError: the address is taken or not allowed, or there is no such host.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            if os.name != "nt":  # on Windows it would let two servers share a port
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except BaseException:
            bound.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise UserError(f"{host} port {port}: {reason}; choose another with --host and --port") from error
    return bound


def application(service: Service, access: Access) -> ASGIApp:
    """Return the application: all routes, after the guard."""
    plain = LibreTranslate(service, access.keys)
    endpoints = plain.endpoints()
    plain_paths = [*(endpoint.path for endpoint in endpoints), *libretranslate.OTHER_PATHS]
    all_routes = [
        *routes([*Api(service, access.keys).endpoints(), *endpoints]),
        Route("/suggest", plain.suggest, methods=["POST"]),
        *(Page(service, access.keys).routes() if access.page else ()),
    ]
    names = {name.lower() for name in access.names}
    hosts = names | {*LOOPBACK, sent_name(access.host)} if names or is_loopback(access.host) else None
    guarded = Guard(Router(all_routes, redirect_slashes=False), service, hosts, access.origins, plain_paths)
    if not access.origins:
        return guarded
    return CORSMiddleware(
        guarded,
        allow_origins=access.origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["X-Request-Id", "Retry-After"],
    )


def serve(
    models: Models, limits: Limits, access: Access, bound: socket.socket, glossaries: Glossaries | None = None
) -> None:
    """Answer requests until SIGTERM or SIGINT; requests accepted by then are still answered.

    Raises:
        UserError: a model cannot compute, or cannot use a default glossary.
    """
    service = Service(models, limits, glossaries)
    service.start()
    for name in ("uvicorn", "python_multipart"):  # their lines contain addresses and parts of bodies
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        application(service, access), http=functools.partial(Bounded, limits), ws="none", loop="asyncio",
        lifespan="off", log_config=None, access_log=False, proxy_headers=False, server_header=False,
        h11_max_incomplete_event_size=limits.header_bytes,
        timeout_graceful_shutdown=round(limits.drain_seconds + LAST_SECONDS),
    )  # fmt: skip
    for model in models:
        logger.info("serving %s", model)
    server = _Server(config, service)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises received signals again at its end
        signal.signal(number, server.handle_exit)
    server.run([bound])
    service.queue.close()
    service.worker.join(LAST_SECONDS)
    logger.info("stopped; %s done", counted(service.metrics.done, "sentence"))
    if service.is_computing:  # for nobody; a computation cannot be interrupted
        sys.stderr.flush()
        os._exit(0)


class Strict(h11.Connection):
    """An HTTP/1.1 connection that refuses headers over the limits, and requests that a proxy may read differently.

    h11 limits only headers that arrive in several pieces, and reads a request with two lengths by one of them.
    """

    def __init__(self, limits: Limits):
        super().__init__(h11.SERVER, limits.header_bytes)
        self._limits = limits

    def next_event(self) -> Any:
        """Return the next part of a request.

        Raises:
            h11.RemoteProtocolError: the request is not HTTP/1.1, or over a limit.
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


class Bounded(H11Protocol):
    """An HTTP/1.1 connection with limits on number and time, and with JSON answers to malformed input.

    Connections of uvicorn have no timeout for receiving a request, and answer malformed input in plain text.
    """

    _receiving: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None

    def __init__(self, limits: Limits, **named: Any):
        super().__init__(**named)
        self.limits, self.conn = limits, Strict(limits)
        self.number = next(_numbers)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.address = client_of(self.client)
        if len(self.connections) > self.limits.connections and not self._makes_room():
            self._refuse(503, "too_many_connections", "too many connections; try again later")
        else:
            self._watch()

    @property
    def is_waiting(self) -> bool:
        """Whether no request of the connection is being answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _makes_room(self) -> bool:
        """Close the oldest waiting connection of the client with the most connections, and return whether it was done.

        Nothing is closed unless that client has more connections than the client of this one.
        """
        counts = Counter(connection.address for connection in self.connections)
        most = max(counts, key=lambda address: counts[address])
        waiting = [other for other in self.connections if other.address == most and other.is_waiting]
        if counts[most] <= counts[self.address] or not waiting:
            return False
        oldest = min(waiting, key=lambda connection: connection.number)
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
        self._watch_sending()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._sending is not None:
            self._sending.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._watch()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "bad_http", MALFORMED.format(self.limits.headers, self.limits.header_bytes))

    def _watch(self) -> None:
        """Limit the time from the first byte of a request to its last."""
        is_whole = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)
        is_idle = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0] and self.cycle is not None
        if is_whole or is_idle:
            if self._receiving is not None:
                self._receiving.cancel()
            self._receiving = None
        elif self._receiving is None:
            seconds = self.limits.receive_seconds + 1  # the application refuses with a message a little earlier
            self._receiving = self.loop.call_later(seconds, self.transport.abort)

    def _watch_sending(self, unsent: float = math.inf) -> None:
        """Close the connection if its client has read nothing since `unsent` bytes waited, and look again later."""
        waiting = self.transport.get_write_buffer_size()
        if waiting < unsent:
            self._sending = self.loop.call_later(self.limits.receive_seconds, self._watch_sending, waiting)
        else:
            self.transport.abort()

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = to_json({"error": {"code": code, "message": message, "field": None}})
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        head += f"x-request-id: {secrets.token_hex(8)}\r\n" + "retry-after: 5\r\n" * (status == 503) + "\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()


class _Server(uvicorn.Server):
    """A uvicorn server that logs its address, and tells the service when it stops."""

    def __init__(self, config: uvicorn.Config, service: Service):
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port = (sockets or [])[0].getsockname()[:2]
        logger.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        service = self._service
        service.draining = True
        logger.info("stopping; accepted requests are answered for at most %g seconds", service.limits.drain_seconds)
        asyncio.get_running_loop().call_later(service.limits.drain_seconds, service.give_up)
        await super().shutdown(sockets)
