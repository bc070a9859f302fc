"""The description of the server's routes for programs (OpenAPI 3.1), made of the models of their bodies."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from seq2seq import __version__
from seq2seq.serve import libretranslate, schemas

REFUSED = {
    400: "The request is wrong; the field is named.",
    403: "A key is missing, or the name in Host or Origin is not allowed.",
    408: "The request came too slowly.",
    413: "The request is too large.",
    415: "The body is of another type.",
    429: "The queue is full; Retry-After says when to try again.",
    500: "Something went wrong in the server.",
    503: "The server is stopping, or has too many connections.",
    504: "There was no time to answer.",
}
JSON, REF = "application/json", "#/components/schemas/"
OBJECT = {JSON: {"schema": {"type": "object"}}}
# Path: what it does, the body that it takes, what it answers, and what it answers where it refuses.
POSTED: dict[str, tuple[str, type[BaseModel], type[BaseModel], type[BaseModel]]] = {
    "/v1/translate": ("Translate.", schemas.TranslateRequest, schemas.TranslateAnswer, schemas.ErrorAnswer),
    "/v1/classify": ("Label texts.", schemas.ClassifyRequest, schemas.ClassifyAnswer, schemas.ErrorAnswer),
    "/translate": ("As LibreTranslate.", libretranslate.TranslateBody, libretranslate.TranslatedText,
                   libretranslate.PlainError),
    "/detect": ("As LibreTranslate.", libretranslate.DetectBody, libretranslate.DetectedLanguage,
                libretranslate.PlainError),
}  # fmt: skip
LISTS = ("/detect",)
"""Paths that answer with a list."""
SHOWN: dict[str, tuple[str, type[BaseModel]]] = {
    "/v1/models": ("What is served, what requests may hold, and the limits.", schemas.ErrorAnswer),
    "/health": ("The process is alive.", schemas.ErrorAnswer),
    "/ready": ("Requests are answered.", schemas.ErrorAnswer),
    "/metrics": ("For Prometheus.", schemas.ErrorAnswer),
    "/languages": ("As LibreTranslate.", libretranslate.PlainError),
    "/frontend/settings": ("As LibreTranslate.", libretranslate.PlainError),
}


def description() -> dict[str, Any]:
    """The document."""
    streamed = (schemas.TranslatedPart, schemas.StreamEnd)
    models = {model for _, *models in POSTED.values() for model in models} | {*streamed, libretranslate.Language}
    _, definitions = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)],
        ref_template=REF + "{model}",
    )
    posted = {path: {"post": _posted(path, *row)} for path, row in POSTED.items()}
    posted["/v1/translate"]["post"]["responses"]["200"]["content"]["application/x-ndjson"] = {
        "schema": {"anyOf": [_ref(model) for model in streamed]}
    }
    for form in (libretranslate.FORM, libretranslate.PARTS):
        posted["/translate"]["post"]["requestBody"]["content"][form] = {"schema": _ref(libretranslate.TranslateBody)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "seq2seq", "version": __version__, "license": {"name": "MIT", "identifier": "MIT"}},
        "servers": [{"url": "/", "description": "This server."}],
        "paths": posted | {path: {"get": _shown(path, *row)} for path, row in SHOWN.items()},
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _posted(
    path: str, words: str, body: type[BaseModel], answer: type[BaseModel], refused: type[BaseModel]
) -> dict[str, Any]:
    schema = _ref(answer)
    content = {JSON: {"schema": {"type": "array", "items": schema} if path in LISTS else schema}}
    return {
        "summary": words,
        "operationId": _id("post", path),
        "requestBody": {"required": True, "content": {JSON: {"schema": _ref(body)}}},
        "responses": {"200": {"description": "Done.", "content": content}, **_refused(refused, tuple(REFUSED))},
    }


def _shown(path: str, words: str, refused: type[BaseModel]) -> dict[str, Any]:
    languages = {"type": "array", "items": _ref(libretranslate.Language)}
    kinds = {"/metrics": {"text/plain": {"schema": {"type": "string"}}}, "/languages": {JSON: {"schema": languages}}}
    return {
        "summary": words,
        "operationId": _id("get", path),
        "responses": {
            "200": {"description": "Done.", "content": kinds.get(path, OBJECT)},
            **_refused(refused, (403, 500, 503)),
        },
    }


def _refused(model: type[BaseModel], statuses: tuple[int, ...]) -> dict[str, Any]:
    return {
        str(status): {"description": REFUSED[status], "content": {JSON: {"schema": _ref(model)}}} for status in statuses
    }


def _id(method: str, path: str) -> str:
    """The name of an operation, as programs that are made of the description call it."""
    return f"{method}_{path.strip('/').replace('/', '_')}"


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF + model.__name__}
