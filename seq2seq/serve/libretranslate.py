"""The dialect of LibreTranslate: `/translate`, `/languages`, `/detect`, `/frontend/settings` and `/spec`.

Bodies are JSON or forms of either kind, and fields may also be in the address; errors are `{"error": message}`. Texts
are translated sentence by sentence, as in LibreTranslate. Its clients request a fixed number of alternatives, and get
at most as many as there are (none of a document). Other fields that cannot be respected are refused rather than
ignored. If several models translate a language pair, the first is used. A text with the same source and target
language is returned unchanged.
"""

import asyncio
import functools
import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from seq2seq.languages import is_same_language, language_name, own_code
from seq2seq.serve import http
from seq2seq.serve.guard import Keys
from seq2seq.serve.http import (
    FORM,
    JSON,
    PARTS,
    check_charset,
    fields_of_form,
    fields_of_parts,
    json_answer,
    media_type,
)
from seq2seq.serve.limits import Refusal, bad, unsupported
from seq2seq.serve.models import AUTO, LEAST_GUESS, sample_of
from seq2seq.serve.openapi import Endpoint
from seq2seq.serve.schemas import TranslateRequest, worded
from seq2seq.serve.served import ServedTranslator
from seq2seq.serve.service import Service
from seq2seq.text.identification import LEAST_PROBABILITY, Identifier

# Further paths of LibreTranslate, whose errors have its form too.
OTHER_PATHS = ("/spec", "/suggest", "/download_file")
# LibreTranslate's names for some languages.
ALIASES = {"pb": "pt-BR", "zt": "zh-Hant"}
# Confidences in percent: the least one of a guess, and the least one for which `auto` uses the guess.
LEAST_CONFIDENCE, CERTAIN = 100 * LEAST_GUESS, 100 * LEAST_PROBABILITY


def _or(default: Any) -> BeforeValidator:
    """Return a validator that replaces null and empty fields, which some clients send, by a default."""
    return BeforeValidator(lambda value: default if value in (None, "") else value)


class TranslateBody(BaseModel):
    """The body of `POST /translate`; other fields are ignored."""

    q: str | list[str]
    source: Annotated[str, Field(min_length=1, description="A code of /languages, or auto.")]
    target: Annotated[str, Field(min_length=1)]
    format: Annotated[Literal["text", "html"], _or("text")] = "text"
    alternatives: Annotated[int, AfterValidator(lambda number: max(number, 0)), _or(0)] = 0
    api_key: Annotated[str, _or("")] = ""


class DetectBody(BaseModel):
    """The body of `POST /detect`."""

    q: Annotated[str | list[str], Field(min_length=1)]
    api_key: Annotated[str, _or("")] = ""


class DetectedLanguage(BaseModel):
    """A possible language of a text."""

    confidence: float
    language: str


class Language(BaseModel):
    """An entry of `/languages`."""

    code: str
    name: str
    targets: list[str]


class TranslatedText(BaseModel):
    """An answer of `/translate`, with lists for a list of texts."""

    translatedText: str | list[str]
    alternatives: list[Any] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None


class PlainError(BaseModel):
    """The body of every error."""

    error: str


class LibreTranslate:
    """The endpoints of LibreTranslate, for one service."""

    def __init__(self, service: Service, keys: Keys):
        self._service, self._keys = service, keys

    def endpoints(self) -> list[Endpoint]:
        """Return all endpoints."""
        words, detected = "As in LibreTranslate.", list[DetectedLanguage]
        return [
            Endpoint(
                "/translate", words, self.translate, PlainError, TranslatedText, body=TranslateBody,
                body_types=(JSON, FORM, PARTS), read=self._body,
            ),
            Endpoint("/detect", words, self.detect, PlainError, detected, body=DetectBody, read=self._body),
            Endpoint("/languages", words, self.languages, PlainError, list[Language]),
            Endpoint("/frontend/settings", words, self.settings, PlainError),
        ]  # fmt: skip

    async def translate(self, request: Request, body: TranslateBody) -> Response:
        """Answer with a translation, or with a list of translations for a list of texts."""
        if body.format not in self._service.abilities()["formats"]:
            raise unsupported("format", f"{body.format} format is not supported")
        is_list = isinstance(body.q, list)
        texts = body.q if is_list else [body.q]
        self._service.check_texts(texts)
        source, target = (ALIASES.get(code.lower(), code) for code in (body.source, body.target))
        guess = await self._guess(texts, body.format) if source.lower() == AUTO else []
        least = LEAST_CONFIDENCE if len(self._service.models.sources) > 1 else CERTAIN
        if guess and guess[0]["confidence"] > least:
            source = guess[0]["language"] if self._has(guess[0]["language"], target) else source
        model = self._model(source, target, body.format != "text")
        columns: dict[str, list[Any]] = {"translatedText": texts, "alternatives": [[] for _ in texts]}
        if model is not None:
            limits, beam = self._service.limits, model.translator.config.beam_size
            most = min(beam - 1, limits.alternatives) if body.format == "text" else 0
            asked = TranslateRequest(
                text=texts, split="sentences", alternatives=min(body.alternatives, most), format=body.format,
                model=model.name, source=model.direction.source, target=model.direction.target,
            )  # fmt: skip
            answers = await self._service.translated(request, asked)
            columns = {
                "translatedText": [answer.text for answer in answers],
                "alternatives": [[other.text for other in answer.alternatives] for answer in answers],
            }
        if not body.alternatives:
            del columns["alternatives"]
        if guess:  # empty without `auto`, and with it if the models name no languages
            columns["detectedLanguage"] = guess[:1] * len(texts)
        return json_answer({name: values if is_list else values[0] for name, values in columns.items()})

    def _model(self, source: str, target: str, explains: bool = False) -> ServedTranslator | None:
        """Return the model of a language pair; None if both languages are the same, and texts are returned unchanged.

        With `explains`, models with alignments come before those without.

        Raises:
            Refusal: there is no such model; the message is that of LibreTranslate.
        """
        models = self._service.models
        for language in (source, target):
            if language.lower() != AUTO and models.translators and not models.knows(language):
                raise bad(f"{_shown(language)} is not supported")
        try:
            model = models.translator(source, target, explains=explains)
            is_copy = model.source is not None and model.source == model.target
            return None if is_copy else model
        except Refusal as refusal:
            if refusal.field not in ("source", "target") or source.lower() == AUTO:
                raise
            if code(source).lower() == code(target).lower():
                return None
            if self._has(source, target):  # a language has several names, which the message lists
                raise
            names = [f"{language_name(each)} ({_shown(each)})" for each in (target, source)]
            raise bad("{} is not available as a target language from {}".format(*names)) from refusal

    @functools.cached_property
    def _codes(self) -> dict[str, str]:
        """The code of each language; names of one language in several models have the same code.

        A name in a model of many languages has the code of a model of one pair, or else two letters, unless these are
        of several languages.
        """
        models = self._service.models
        names = models.languages()
        many = [set(chain.from_iterable(model.choices.values())) for model in models.translators]
        several = {own for known in many for own, count in Counter(map(own_code, known)).items() if count > 1}
        pairs = names.keys() - set().union(*many)
        codes = {name: code(name) for name in names}
        for name in names.keys() - pairs:
            own = own_code(name)
            alike = [other for other in names if own_code(other) == own]
            if own not in several and all(is_same_language(name, other) for other in alike):
                given = {codes[other] for other in pairs.intersection(alike)}
                codes[name] = given.pop() if len(given) == 1 else own
        return codes

    @functools.cached_property
    def _identifier(self) -> Identifier:
        return Identifier(self._codes)

    @functools.cached_property
    def _languages(self) -> list[dict[str, Any]]:
        targets: dict[str, set[str]] = {}
        for name, others in self._service.models.languages().items():
            own = self._codes[name]
            targets.setdefault(own, {own}).update(self._codes[other] for other in others)
        names = {own: language_name(own) for own in sorted(targets)}
        counts = Counter(names.values())
        return [
            {"code": own, "name": name if counts[name] == 1 else f"{name} ({own})", "targets": sorted(targets[own])}
            for own, name in names.items()
        ]

    @property
    def _first(self) -> dict[str, Any] | None:
        """The entry of the first language with other targets; None if the models name no languages."""
        return max(self._languages, key=lambda one: len(one["targets"]) > 1, default=None)

    async def detect(self, request: Request, body: DetectBody) -> Response:
        """Answer with the possible languages of a text on this server, the likeliest first."""
        texts = body.q if isinstance(body.q, list) else [body.q]
        self._service.check_texts(texts)
        return json_answer(await self._guess(texts))

    async def suggest(self, request: Request) -> Response:
        """Refuse suggestions of users."""
        raise Refusal(403, "no_suggestions", "Suggestions are disabled on this server")

    async def languages(self, request: Request) -> Response:
        """Answer with all languages and their target languages."""
        return json_answer(self._languages)

    async def settings(self, request: Request) -> Response:
        """Answer with the settings that LibreTranslate's page requests."""
        entries = {one["code"]: one for one in self._languages}
        source = self._first
        target = next((own for own in source["targets"] if own != source["code"]), None) if source else None
        sides = {"source": source, "target": entries.get(target)}
        shown = {side: {"code": one["code"], "name": one["name"]} for side, one in sides.items() if one}
        limits = self._service.limits
        return json_answer(
            {
                "charLimit": limits.request_characters,
                "frontendTimeout": 500,
                "apiKeys": bool(self._keys),
                "keyRequired": bool(self._keys),
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": shown,
            }
        )

    async def _guess(self, texts: Sequence[str], form: str = "text") -> list[dict[str, Any]]:
        """Return the languages of this server that texts may have, the likeliest first.

        Without a guess, this is the first source language, with confidence 0.
        """
        guesses = await asyncio.to_thread(lambda: self._identifier.ranked(sample_of(texts, form)))
        shown = [{"confidence": round(100 * share, 1), "language": self._codes[name]} for name, share in guesses]
        likely = [guess for guess in shown if guess["confidence"] >= LEAST_CONFIDENCE]
        return likely or ([{"confidence": 0.0, "language": self._first["code"]}] if self._first else [])

    def _has(self, source: str, target: str) -> bool:
        """Whether a model has this language pair, or both languages are the same."""
        models = self._service.models.translators
        is_same = code(source).lower() == code(target).lower()
        return is_same or any(model.has("source", source) and model.has("target", target) for model in models)

    async def _body(self, request: Request, kind: type[BaseModel]) -> Any:
        """Return the body of a request, made from its body and address.

        Raises:
            Refusal: the body is malformed, has another type, or has no valid key.
        """
        raw = await self._service.bodies.read(request)
        fields: Any = fields_of_form(request.scope["query_string"])
        match media_type(request):
            case "" | http.FORM:
                check_charset(request)
                fields |= fields_of_form(raw)
            case http.PARTS:
                check_charset(request)
                fields |= await fields_of_parts(raw, request.headers["content-type"])
            case http.JSON:
                try:
                    fields = json.loads(raw)
                except (ValueError, RecursionError):
                    raise bad("the body is not JSON in UTF-8") from None
                if not isinstance(fields, dict):
                    raise bad("the body is not a JSON object")
            case _:
                raise Refusal(415, "bad_type", f"send {JSON}, {FORM} or {PARTS}")
        self._keys.admit(request, fields.get("api_key"), "send Authorization: Bearer KEY, or the field api_key")
        try:
            return kind.model_validate(fields)
        except ValidationError as error:
            raise _refusal(error) from None


def code(language: str) -> str:
    """Return a language as LibreTranslate names it: the shortest code, with a subtag such as a region if it has one."""
    tag = language.strip().replace("_", "-")
    return tag if "-" in tag else own_code(language)


def _shown(language: str) -> str:
    """Return a language code of a client for a message, if it is safe to repeat."""
    return language if re.fullmatch(r"[\w-]{1,20}", language) else "this language"


def _refusal(error: ValidationError) -> Refusal:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    name = str(first["loc"][0])
    if first["type"] in ("missing", "string_too_short"):
        return bad(f"Invalid request: missing {name} parameter")
    return bad(f"Invalid request: {name}: {worded(first['msg'])}")
