"""The routes that programs use, and their description (OpenAPI 3.1): both follow from `Endpoint`.

Each dialect makes a list of them; `server` makes of all lists the routes and the document under `/openapi.json`.
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
    408: "The request came too slowly.",
    413: "The request is too large.",
    415: "The body is of another type.",
    429: "The queue is full; Retry-After says when to try again.",
    500: "Something went wrong in the server.",
    503: "The server is stopping, or receives too much.",
    504: "There was no time to answer.",
}
WITHOUT_BODY = (403, 500, 503)
DOCUMENT_PATHS = ("/openapi.json", "/spec")
REF = "#/components/schemas/"


@dataclass(frozen=True)
class Endpoint:
    """A path that programs may ask for: what answers it, and what the description says."""

    path: str
    summary: str
    handler: Callable[..., Awaitable[Response]]
    """Takes the request, and if there is a `body` what `read` made of it."""
    refused: type[BaseModel]
    """The body of answers that refuse."""
    answer: Any = dict[str, Any]
    """The body of other answers: a type of pydantic."""
    answer_type: str = JSON
    streamed: tuple[type[BaseModel], ...] = ()
    """What the lines of an answer in JSON Lines may be."""
    body: type[BaseModel] | None = None
    """The body of requests, which are POST then; others are GET."""
    body_types: tuple[str, ...] = (JSON,)
    read: Callable[[Request, type[BaseModel]], Awaitable[Any]] | None = None
    """Reads and checks a body."""

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return "POST" if self.body else "GET"

    def route(self) -> Route:
        """Return the route."""

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

    return [*(one.route() for one in endpoints), *(Route(path, show) for path in DOCUMENT_PATHS)]


def description(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the document."""
    kinds = {repr(kind): kind for one in endpoints for kind in one.kinds()}
    schemas, definitions = TypeAdapter.json_schemas(
        [(name, "validation", TypeAdapter(kinds[name])) for name in sorted(kinds)], ref_template=REF + "{model}"
    )
    shown = {name: schemas[name, "validation"] for name in kinds}
    return {
        "openapi": "3.1.0",
        "info": {"title": "seq2seq", "version": __version__, "license": {"name": "MIT", "identifier": "MIT"}},
        "servers": [{"url": "/", "description": "This server."}],
        "paths": {one.path: {one.method.lower(): _operation(one, shown)} for one in endpoints},
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(one: Endpoint, shown: dict[str, Any]) -> dict[str, Any]:
    """Return the description of an endpoint; `shown` has the schemas by the names of their types."""
    content = {one.answer_type: {"schema": shown[repr(one.answer)]}}
    if one.streamed:
        content[LINES] = {"schema": {"anyOf": [shown[repr(kind)] for kind in one.streamed]}}
    refused = {JSON: {"schema": shown[repr(one.refused)]}}
    operation = {
        "summary": one.summary,
        "operationId": f"{one.method.lower()}_{one.path.strip('/').replace('/', '_')}",  # a name in made clients
        "responses": {
            "200": {"description": "Done.", "content": content},
            **{
                str(status): {"description": REFUSED[status], "content": refused}
                for status in (REFUSED if one.body else WITHOUT_BODY)
            },
        },
    }
    if one.body:
        schema = {"schema": shown[repr(one.body)]}
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(one.body_types, schema)}
    return operation
