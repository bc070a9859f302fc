"""The guard before every route: access, the id of a request, its errors, and its metrics.

A web page that is open in a browser must not use a server on the same machine, so the names in Host and Origin are
checked. Keys are for servers that other machines can reach.
"""

import functools
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
import time
import traceback
import unicodedata
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2seq.errors import UserError, shown
from seq2seq.lines import read_lines
from seq2seq.serve.http import GONE, json_answer
from seq2seq.serve.limits import Refusal
from seq2seq.serve.service import Service

logger = logging.getLogger(__name__)

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]/@\s]+)(?::\d{1,5})?", re.IGNORECASE)
USUAL_PORTS = {"http": ":80", "https": ":443"}  # which browsers leave out
# Strings that programs write for a missing value.
NO_VALUES = ("", "none", "null", "nil", "nan", "undefined", "[]", "{}")
_BEARER = re.compile(r"\s*(?:bearer|deepl-auth-key)\s+(\S+)\s*", re.IGNORECASE)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
}
INTERNAL = "internal_error"
TOLD = "s2s.told"  # in the scope of a request


class Keys:
    """The keys of clients; without any, no key is needed."""

    def __init__(self, keys: Collection[str] = ()):
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, path: Path) -> "Keys":
        """Return the keys in a file: one on each line; lines that begin with # are comments.

        Raises:
            UserError: the file cannot be read, has no key, or has a line that cannot be a key.
        """

        def refuse(number: int) -> None:
            raise UserError(f"{path}, line {number}: not UTF-8; save the file as UTF-8")

        keys = []
        for number, line in enumerate(read_lines(path, refuse), start=1):
            key = line.strip()
            if not key or key.startswith("#"):
                continue
            if problem := _no_key(key):
                raise UserError(f"{path}, line {number}: {problem}; write one key on each line")
            keys.append(key)
        if not keys:
            raise UserError(f"{path}: there is no key in it; write one on each line")
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def admit(self, request: Request, given: Any = None, way: str = "send Authorization: Bearer KEY") -> None:
        """Accept a request with a key, as a Bearer token or `given` in its body or address.

        Args:
            request: the request.
            given: key in the body or address.
            way: how clients give a key, for the message to those that have none.

        Raises:
            Refusal: the request has no key, or an unknown one.
        """
        if not self._digests:
            return
        header = _BEARER.fullmatch(request.headers.get("authorization", ""))
        key = _sent(header.group(1)) if header else given
        if not isinstance(key, str) or not key:
            raise Refusal(403, "key", f"this server needs a key; {way}")
        digest = _digest(key)
        known = [hmac.compare_digest(digest, other) for other in self._digests]  # all, for a constant time
        if not any(known):
            raise Refusal(403, "key", "this server does not know this key; check it")


class Guard:
    """An application that checks requests before it passes them to the routes.

    Args:
        app: routes.
        service: service whose metrics count the requests.
        hosts: names of the server that are accepted in Host; None means any.
        origins: origins of other web pages that may send requests; `*` means any.
        plain: prefixes of paths whose errors are `{"error": message}`, as in LibreTranslate.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        hosts: Collection[str] | None,
        origins: Sequence[str],
        plain: Sequence[str],
    ):
        self._app, self._service, self._plain = app, service, tuple(plain)
        self._hosts, self._origins = hosts, set(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        scope["app"] = self  # a router that is part of an application raises if it has no route
        request, begun = Request(scope, receive), time.monotonic()
        request_id = secrets.token_hex(8)
        scope[TOLD] = functools.partial(self._told, request_id)
        status = GONE

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                more = {**HEADERS, "X-Request-Id": request_id}
                message["headers"] = [*message["headers"], *((k.lower().encode(), v.encode()) for k, v in more.items())]
            await send(message)

        try:
            try:
                self._check_names(request)
                await self._app(scope, receive, send_marked)
            except ClientDisconnect:
                status = GONE
            except Exception as error:
                body = told(request, error)
                if status == GONE:
                    await self._refused(request, error, body)(scope, receive, send_marked)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._service.metrics.requests.labels(route, status).inc()
            self._service.metrics.request_seconds.observe(time.monotonic() - begun)

    def _check_names(self, request: Request) -> None:
        host = request.headers.get("host", "")
        name = _HOST.fullmatch(host)
        if self._hosts is not None and (name is None or _in_one_form(name.group(1)) not in self._hosts):
            message = "this name in Host is not allowed; start the server with --allow-host NAME"
            raise Refusal(403, "host", message)
        origin = request.headers.get("origin")
        same_origin = (f"http://{host}", f"https://{host}")
        if origin is not None and origin not in same_origin and not self._origins & {origin, "*"}:
            raise Refusal(
                403, "origin", "requests from other origins are not allowed; start it with --cors-origin ORIGIN"
            )

    def _told(self, request_id: str, error: Exception) -> dict[str, Any]:
        body = _explained(error)
        if body["code"] == INTERNAL:
            logger.error("request %s: internal error: %s", request_id, _place(error))
        if not isinstance(error, HTTPException):
            self._service.metrics.refused.labels(body["code"]).inc()
        return body

    def _refused(self, request: Request, error: Exception, body: dict[str, Any]) -> Response:
        status = error.status if isinstance(error, Refusal) else getattr(error, "status_code", 500)
        is_plain = request.url.path.startswith(self._plain)
        words = f"{body['field']}: {body['message']}" if body["field"] else body["message"]
        return json_answer({"error": words if is_plain else body}, status, dict(getattr(error, "headers", None) or {}))


def told(request: Request, error: Exception) -> dict[str, Any]:
    """Return the error as clients see it, after it was counted, and logged if it is internal.

    The guard does this for all errors that reach it; what answers with an error of its own calls it.
    """
    return request.scope[TOLD](error)


def _explained(error: Exception) -> dict[str, Any]:
    """Return the error as clients see it; an internal error reveals no details."""
    match error:
        case Refusal():
            return {"code": error.code, "message": error.message, "field": error.field}
        case HTTPException():
            return {"code": error.detail.lower().replace(" ", "_"), "message": error.detail.lower(), "field": None}
    message = "internal error; find it in the server's log by the X-Request-Id of this answer"
    return {"code": INTERNAL, "message": message, "field": None}


def _no_key(line: str) -> str | None:
    """Return why a line of a key file cannot be a key, or None."""
    if re.search(r"\s", line):
        return "a key contains a space"
    if not line.isprintable():
        return "a key contains an invisible character"
    if line.strip("\"'").casefold() in NO_VALUES:
        return f"{shown(line)} is not a key: programs write it for a missing value"
    return None


def _digest(key: str) -> bytes:
    return hashlib.sha256(unicodedata.normalize("NFC", key).encode("utf-8", "replace")).digest()


def _sent(token: str) -> str:
    """Return a key from a header, whose bytes are UTF-8 or else Latin-1."""
    try:
        return token.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return token


def host_name(given: str) -> str:
    """Return a name of --allow-host as it is compared with Host: as `sent_name`, without a port.

    Raises:
        UserError: it is not the name of a host.
    """
    found = _HOST.fullmatch(given.strip())
    if found is None:
        raise UserError(f"--allow-host {given}: not the name of a host; write it without a scheme, such as example.org")
    return sent_name(found.group(1))


def origin_of(given: str) -> str:
    """Return an origin of --cors-origin as browsers send it: in lower case, without the usual port and a last slash.

    Raises:
        UserError: it is not an origin.
    """
    if given.strip() == "*":
        return "*"
    scheme, separator, place = given.strip().lower().removesuffix("/").partition("://")
    found = _HOST.fullmatch(place)
    if not separator or not scheme or found is None:
        raise UserError(f"--cors-origin {given}: not an origin; write one such as https://example.org, without a path")
    name, port = sent_name(found.group(1)), place.removeprefix(found.group(1))
    return f"{scheme}://{name}{port if port != USUAL_PORTS.get(scheme) else ''}"


def sent_name(host: str) -> str:
    """Return the name of a host as it is sent: in lower case, and encoded where it is not ASCII (RFC 3490). An IPv6
    address, given with or without brackets, is in its shortest form.

    Raises:
        UserError: it is not the name of a host.
    """
    try:
        return _in_one_form(host) if host.isascii() else host.lower().encode("idna").decode()
    except UnicodeError as error:
        raise UserError(f"{host}: not the name of a host; check it") from error


def _in_one_form(host: str) -> str:
    """Return a name in lower case, or an IPv6 address in its shortest form, in brackets and without a zone."""
    try:
        return f"[{ipaddress.IPv6Address(host.strip('[]').partition('%')[0])}]"
    except ValueError:
        return host.lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _place(error: Exception) -> str:
    """Return the type and place of an error, without its message, which may contain text of a client."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return " ".join([type(error).__name__, *(f"at {Path(frame.filename).name}:{frame.lineno}" for frame in last)])
