"""The toolkit's dialect: `/v1`, health and metrics. `server` makes routes from its endpoints."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from seq2seq import __version__
from seq2seq.inference.translation import Translation
from seq2seq.serve import metrics
from seq2seq.serve.guard import Keys, told
from seq2seq.serve.http import (
    JSON,
    LINES,
    NO_STORE,
    client_of,
    json_answer,
    media_type,
    to_json,
    unless_gone,
)
from seq2seq.serve.limits import Refusal
from seq2seq.serve.openapi import Endpoint
from seq2seq.serve.request import Translating
from seq2seq.serve.schemas import (
    Body,
    ClassifyAnswer,
    ClassifyRequest,
    ErrorAnswer,
    StreamEnd,
    TranslateAnswer,
    TranslatedPart,
    TranslateRequest,
    parsed,
)
from seq2seq.serve.service import Service


class Api:
    """The endpoints of the toolkit's dialect, for one service."""

    def __init__(self, service: Service, keys: Keys):
        self._service, self._keys = service, keys

    def endpoints(self) -> list[Endpoint]:
        """Return all endpoints."""
        return [
            Endpoint(
                "/v1/translate", "Translate.", self.translate, ErrorAnswer, TranslateAnswer,
                streamed=(TranslatedPart, StreamEnd), body=TranslateRequest, read=self._body,
            ),
            Endpoint(
                "/v1/classify", "Label texts.", self.classify, ErrorAnswer, ClassifyAnswer, body=ClassifyRequest,
                read=self._body,
            ),
            Endpoint(
                "/v1/models", "List the models, the values that requests may have, and the limits.", self.models,
                ErrorAnswer,
            ),
            Endpoint("/health", "Report that the process is alive.", self.health, ErrorAnswer),
            Endpoint("/ready", "Report whether requests are answered.", self.ready, ErrorAnswer),
            Endpoint(
                "/metrics", "Return the metrics for Prometheus.", self.metrics, ErrorAnswer, str,
                answer_type="text/plain",
            ),
        ]  # fmt: skip

    async def translate(self, request: Request, body: TranslateRequest) -> Response:
        """Answer with translations, together or streamed line by line."""
        answers = self._service.accept(await self._service.sourced(body), client_of(request.client))
        if body.stream:
            return _Lines(_streamed(request, answers, body.details), lambda: self._service.leave(answers))
        try:
            translations = await unless_gone(request, answers.joined())
            listed = [shown(translation, body.details) for translation in translations]
            return json_answer({**_head(answers), "translations": listed, **_foot(answers)})
        finally:
            self._service.leave(answers)

    async def classify(self, request: Request, body: ClassifyRequest) -> Response:
        """Answer with labels."""
        answers = self._service.classifying(body.texts, body.model, client_of(request.client))
        try:
            results = await unless_gone(request, answers.all())
            shown = [vars(result) for result in results]
            return json_answer({"model": answers.model.as_dict(), "classifications": shown, **_foot(answers)})
        finally:
            self._service.leave(answers)

    async def models(self, request: Request) -> Response:
        """Answer with the models, the values that requests may have, and the limits."""
        self._keys.admit(request)
        service = self._service
        return json_answer(
            {
                "version": __version__,
                "models": [model.facts() for model in service.models],
                "abilities": service.abilities(),
                "limits": service.limits.as_dict(),
            }
        )

    async def health(self, request: Request) -> Response:
        """Answer that the process is alive."""
        return json_answer({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Answer that requests are answered.

        Raises:
            Refusal: the server is stopping, or a batch takes too long.
        """
        if not self._service.is_ready:
            why = "the server is stopping" if self._service.draining else "no batch was finished for a long time"
            raise Refusal(503, "not_ready", why, retry_after=5)
        return json_answer({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """Answer with the metrics for Prometheus."""
        self._keys.admit(request)
        return Response(self._service.metrics.text(), headers={"Content-Type": metrics.CONTENT_TYPE, **NO_STORE})

    async def _body(self, request: Request, kind: type[Body]) -> Any:
        self._keys.admit(request)
        if media_type(request) not in (JSON, ""):
            raise Refusal(415, "bad_type", "send JSON: Content-Type: application/json")
        return parsed(kind, await self._service.bodies.read(request))


class _Lines(StreamingResponse):
    """A streamed answer in JSON Lines, with a function that is called when it was sent or the client has left."""

    def __init__(self, lines: AsyncIterator[bytes], close: Callable[[], None]):
        super().__init__(lines, headers={**NO_STORE, "X-Accel-Buffering": "no"}, media_type=LINES)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


async def _streamed(request: Request, answers: Translating, kinds: Collection[str]) -> AsyncIterator[bytes]:
    try:
        async for index, piece, translation in answers.parts():
            span = [piece.begin, piece.begin + len(piece.text)]
            line = shown(translation.shifted(piece.begin), kinds)
            yield to_json({"index": index, "source": span, "before": piece.before, **line}) + b"\n"
            await asyncio.sleep(0)  # lets the loop notice that the client has left; otherwise each write is logged
    except Exception as error:  # the status has been sent, so the last line contains the error
        yield to_json({"error": told(request, error)}) + b"\n"
    else:
        yield to_json({"done": True, **_head(answers), **_foot(answers)}) + b"\n"


def shown(translation: Translation, kinds: Collection[str]) -> dict[str, Any]:
    """Return the JSON form of a translation; `sentences` is the older name of `details`, which will be removed."""
    fields = translation.as_json(kinds)
    return {**fields, "sentences": fields["details"]} if "details" in fields else fields


def _head(answers: Translating) -> dict[str, Any]:
    return {"model": answers.model.as_dict(), "source": answers.model.source, "target": answers.model.target}


def _foot(answers: Any) -> dict[str, Any]:
    return {"usage": answers.usage(), "timing": answers.timing()}
