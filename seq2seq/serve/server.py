"""The socket, the process, and how they end: `s2s serve` calls `serve`."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from seq2seq.errors import UserError, counted
from seq2seq.serve import libretranslate
from seq2seq.serve.api import Api
from seq2seq.serve.connection import bounded
from seq2seq.serve.glossaries import Glossaries
from seq2seq.serve.guard import LOOPBACK, Guard, Keys, is_loopback
from seq2seq.serve.libretranslate import LibreTranslate
from seq2seq.serve.limits import Limits
from seq2seq.serve.models import Models
from seq2seq.serve.openapi import routes
from seq2seq.serve.page import Page
from seq2seq.serve.service import Service

logger = logging.getLogger(__name__)

# Beyond the time for answers: to send them, and to say that there are none.
LAST_SECONDS = 2


@dataclass(frozen=True)
class Access:
    """Who may reach a server."""

    host: str = "127.0.0.1"
    keys: Keys = field(default_factory=Keys)
    names: Collection[str] = ()
    """Names in Host that are allowed besides those of this machine; any, where others reach it and none are given."""
    origins: Sequence[str] = ()
    """Of web pages that may ask; `*` is any."""
    page: bool = True


def bind(host: str, port: int) -> socket.socket:
    """A socket that holds the address, and does not listen yet.

    Raises:
        UserError: it is taken or not allowed, or there is no such host.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            if os.name != "nt":  # there it would let two servers have one port
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
    """All routes, with the guard in front."""
    plain = LibreTranslate(service, access.keys)
    endpoints = plain.endpoints()
    plain_paths = [*(one.path for one in endpoints), *libretranslate.OTHER_PATHS]
    found = [
        *routes([*Api(service, access.keys).endpoints(), *endpoints]),
        Route("/suggest", plain.suggest, methods=["POST"]),
        *(Page(service, access.keys).routes() if access.page else ()),
    ]
    names = {name.lower() for name in access.names}
    hosts = names | {*LOOPBACK, access.host.lower()} if names or is_loopback(access.host) else None
    guarded = Guard(Router(found, redirect_slashes=False), service, hosts, access.origins, plain_paths)
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
    """Answer requests until SIGTERM or SIGINT; what was taken by then is answered.

    Raises:
        UserError: a model cannot compute, or cannot keep to a default glossary.
    """
    service = Service(models, limits, glossaries)
    service.start()
    for name in ("uvicorn", "python_multipart"):  # their lines hold addresses, and what was wrong with a body
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        application(service, access), http=bounded(limits), ws="none", loop="asyncio", lifespan="off", log_config=None,
        access_log=False, proxy_headers=False, server_header=False, h11_max_incomplete_event_size=limits.header_bytes,
        timeout_graceful_shutdown=round(limits.drain_seconds + LAST_SECONDS),
    )  # fmt: skip
    for model in models:
        logger.info("serving %s", model)
    server = _Server(config, service)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn sends itself what it was sent, once it has ended
        signal.signal(number, server.handle_exit)
    server.run([bound])
    service.queue.close()
    service.worker.join(LAST_SECONDS)
    logger.info("stopped; %s done", counted(service.metrics.done, "sentence"))
    if service.is_computing:  # what nobody waits for; it cannot be interrupted
        sys.stderr.flush()
        os._exit(0)


class _Server(uvicorn.Server):
    """Says where it is once it listens, and tells the service when it is to stop."""

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
        logger.info("stopping; what was taken is answered, for at most %g seconds", service.limits.drain_seconds)
        asyncio.get_running_loop().call_later(service.limits.drain_seconds, service.give_up)
        await super().shutdown(sockets)
