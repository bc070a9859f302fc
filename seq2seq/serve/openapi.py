"""The endpoints that programs use, from which their routes and their description (OpenAPI 3.1) are made.

Each dialect makes a list of `Endpoint`s; `server` makes routes and the document `/openapi.json` from all lists.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from seq2seq import __version__
from seq2seq.serve.http import JSON, LINES, to_json

REFUSED = {
    400: "The request is wrong; the field is named.",
    403: "A key is missing, or the name in Host or Origin is not allowed.",
    408: "The request was received too slowly.",
    413: "The request is too large.",
    415: "The body is of another type.",
    429: "The queue is full; try again after the seconds in Retry-After.",
    500: "Internal error of the server.",
    503: "The server is stopping, or receives too much.",
    504: "The request was not answered before its deadline.",
}
WITHOUT_BODY = (403, 500, 503)
DOCUMENT_PATHS = ("/openapi.json", "/spec")
REF = "#/components/schemas/"


@dataclass(frozen=True)
class Endpoint:
    """A path for programs, with its handler and its description."""

    path: str
    summary: str
    handler: Callable[..., Awaitable[Response]]
    """Answers a request, from the request and, if there is a `body`, the result of `read`."""
    refused: type[BaseModel]
    """The body of errors."""
    answer: Any = dict[str, Any]
    """The body of other answers, a type for pydantic."""
    answer_type: str = JSON
    streamed: tuple[type[BaseModel], ...] = ()
    """The types of the lines of an answer in JSON Lines."""
    body: type[BaseModel] | None = None
    """The body of requests, which then use POST; without a body they use GET."""
    body_types: tuple[str, ...] = (JSON,)
    read: Callable[[Request, type[BaseModel]], Awaitable[Any]] | None = None
    """Reads and checks a body."""

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return "POST" if self.body else "GET"

    def route(self) -> Route:
        """Return the route of the endpoint."""

        async def respond(request: Request) -> Response:
            if self.body is None or self.read is None:
                return await self.handler(request)
            return await self.handler(request, await self.read(request, self.body))

        return Route(self.path, respond, methods=[self.method])

    def kinds(self) -> list[Any]:
        """Return the types that the description shows."""
        return [self.answer, self.refused, *self.streamed, *([self.body] if self.body else [])]


def routes(endpoints: Sequence[Endpoint]) -> list[Route]:
    """Return the routes of the endpoints, and those of their description."""
    document = to_json(description(endpoints))

    async def show(request: Request) -> Response:
        return Response(document, media_type=JSON)

    return [*(endpoint.route() for endpoint in endpoints), *(Route(path, show) for path in DOCUMENT_PATHS)]


def description(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document of the endpoints."""
    kinds = {repr(kind): kind for endpoint in endpoints for kind in endpoint.kinds()}
    schemas, definitions = TypeAdapter.json_schemas(
        [(name, "validation", TypeAdapter(kinds[name])) for name in sorted(kinds)], ref_template=REF + "{model}"
    )
    shown = {name: schemas[name, "validation"] for name in kinds}
    return {
        "openapi": "3.1.0",
        "info": {"title": "seq2seq", "version": __version__, "license": {"name": "MIT", "identifier": "MIT"}},
        "servers": [{"url": "/", "description": "This server."}],
        "paths": {each.path: {each.method.lower(): _operation(each, shown)} for each in endpoints},
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(endpoint: Endpoint, shown: dict[str, Any]) -> dict[str, Any]:
    """Return the description of an endpoint; `shown` has the schemas by the names of their types."""
    content = {endpoint.answer_type: {"schema": shown[repr(endpoint.answer)]}}
    if endpoint.streamed:
        content[LINES] = {"schema": {"anyOf": [shown[repr(kind)] for kind in endpoint.streamed]}}
    refused = {JSON: {"schema": shown[repr(endpoint.refused)]}}
    name = f"{endpoint.method.lower()}_{endpoint.path.strip('/').replace('/', '_')}"
    operation = {
        "summary": endpoint.summary,
        "operationId": name,  # a method's name in generated clients
        "responses": {
            "200": {"description": "Done.", "content": content},
            **{
                str(status): {"description": REFUSED[status], "content": refused}
                for status in (REFUSED if endpoint.body else WITHOUT_BODY)
            },
        },
    }
    if endpoint.body:
        schema = {"schema": shown[repr(endpoint.body)]}
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(endpoint.body_types, schema)}
    return operation
