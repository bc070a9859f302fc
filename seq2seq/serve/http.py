"""The functions of HTTP that the dialects share: reading bodies within limits, JSON answers, clients that leave."""

import asyncio
import ipaddress
import json
import math
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from seq2seq.serve.limits import SHARES, Limits, Refusal, bad

Result = TypeVar("Result")

NO_STORE = {"Cache-Control": "no-store"}
JSON, FORM, PARTS = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
LINES = "application/x-ndjson"
MOST_FIELDS = 200
_CHARSET = re.compile(r';\s*charset="?([^";\s]*)', re.IGNORECASE)
# Other charsets than UTF-8 are not read, because not every codec of Python is safe for untrusted bytes.
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^";\s]{1,70}))', re.IGNORECASE)
GONE = 499  # nginx's status for a client that has left


def to_json(value: Any) -> bytes:
    """Return JSON in UTF-8; numbers that are not finite become null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False)
    return text.encode("utf-8", errors="replace")


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON answer that must not be cached."""
    return Response(to_json(value), status, {**NO_STORE, **(headers or {})}, JSON)


class Bodies:
    """A reader of the bodies of requests, with a limit on the bytes that are being received.

    The limit applies to each client and, multiplied by `SHARES`, to all clients together.
    """

    def __init__(self, limits: Limits):
        self._limits, self._most = limits, max(limits.client_bytes, limits.body_bytes)
        self._held: Counter[str] = Counter()

    async def read(self, request: Request) -> bytes:
        """Return the body of a request.

        Raises:
            Refusal: the body is too large or arrives too slowly, or too many others are being received.
            ClientDisconnect: the client left.
        """
        client, seconds = client_of(request.client), self._limits.receive_seconds
        self._check_size(int(request.headers.get("content-length", 0)))  # h11 accepts only digits
        body = bytearray()
        try:
            async with asyncio.timeout(seconds):
                async for chunk in request.stream():
                    body += chunk
                    self._held[client] += len(chunk)
                    self._check_size(len(body))
                    self._check_held(client)
        except TimeoutError:
            raise Refusal(408, "too_slow", f"the request was not received within {seconds:g} seconds") from None
        finally:
            self._held[client] -= len(body)
            self._held += Counter()  # drops clients without bytes
        return bytes(body)

    def _check_size(self, size: int) -> None:
        """Refuse a body of too many bytes."""
        if size > (most := self._limits.body_bytes):
            raise Refusal(413, "too_large", f"a request has at most {most:,} bytes; send it in parts")

    def _check_held(self, client: str) -> None:
        """Refuse a body if too many bytes of this client, or of all clients, are being received."""
        if self._held[client] > self._most or self._held.total() > SHARES * self._most:
            raise Refusal(503, "too_many_bytes", "too many requests at a time; try again", retry_after=5)


def check_charset(request: Request) -> None:
    """Check that a form is in UTF-8, as which it is read.

    Raises:
        Refusal: its type names another encoding.
    """
    found = _CHARSET.search(request.headers.get("content-type", ""))
    if found and found[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise bad("the form is not in UTF-8; encode it as UTF-8, and leave out charset")


def fields_of_form(raw: bytes) -> dict[str, Any]:
    """Return the fields of a form or an address; a field that occurs several times is a list.

    Raises:
        Refusal: there are too many fields.
    """
    try:
        pairs = parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Refusal(413, "too_large", f"a form has at most {MOST_FIELDS} fields") from None
    return _gathered(pairs)


async def fields_of_parts(raw: bytes, content_type: str) -> dict[str, Any]:
    """Return the fields of a multipart form (RFC 7578) in UTF-8, as `fields_of_form` does.

    Raises:
        Refusal: the parts cannot be read, are too many, or contain files.
    """
    found = _BOUNDARY.search(content_type)
    boundary = (found[1] or found[2]) if found else ""
    utf8 = raw.decode("utf-8", errors="replace").encode()  # the parser reads a field with an invalid byte as Latin-1

    async def body() -> AsyncGenerator[bytes, None]:
        yield utf8

    headers = Headers({"content-type": f'{PARTS}; boundary="{boundary}"'})
    parser = MultiPartParser(headers, body(), max_files=0, max_fields=MOST_FIELDS, max_part_size=len(utf8) + 1)
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError) as error:
        raise bad(f"the form cannot be read; send at most {MOST_FIELDS} fields, and no files") from error
    return _gathered(form.multi_items())


def _gathered(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        fields[name] = value if name not in fields else [*_listed(fields[name]), value]
    return fields


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def client_of(address: Sequence[Any] | None) -> str:
    """Return the client of an address (host, port): its host, or for IPv6 the /64 network, which one subscriber has."""
    host = str(address[0]) if address else ""
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False).network_address)
    return str(ip)


def media_type(request: Request) -> str:
    """Return the media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """Return the result of `work`, which is cancelled if the client leaves.

    Raises:
        ClientDisconnect: the client left.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
    return value
