"""The web page of the server: the files of `page/`, and a form that translates without JavaScript."""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from seq2seq.languages import language_name
from seq2seq.serve.guard import Keys, told
from seq2seq.serve.http import NO_STORE, check_charset, fields_of_form
from seq2seq.serve.limits import Refusal, bad
from seq2seq.serve.models import SIDES
from seq2seq.serve.schemas import TranslateRequest
from seq2seq.serve.served import ServedTranslator
from seq2seq.serve.service import Service
from seq2seq.text.writing import bcp47_tag

NO_CACHE = {"Cache-Control": "no-cache"}  # browsers ask again, so that the files fit each other after an upgrade
FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
KEY = '<p><label for="api_key">Key</label> <input id="api_key" name="api_key" type="password"></p>'


class Page:
    """The page, with the served language pairs in `index.html`, and the other files unchanged."""

    def __init__(self, service: Service, keys: Keys):
        self._service, self._keys = service, keys
        self._index = (FOLDER / INDEX).read_text(encoding="utf-8")

    def routes(self) -> list[Route]:
        """Return one route for each file, so that nothing else can be requested."""
        files = [path for path in sorted(FOLDER.iterdir()) if path.is_file() and path.name != INDEX]
        return [
            Route("/", self.show),
            Route("/", self.translate, methods=["POST"]),
            *(
                Route(f"/{path.name}", lambda request, path=path: FileResponse(path, headers=NO_CACHE))
                for path in files
            ),
        ]

    async def show(self, request: Request) -> Response:
        """Answer with the empty form, and load what details need in the background."""
        self._service.prepare_details()
        return self._filled("", 0, "")

    async def translate(self, request: Request) -> Response:
        """Answer with the form and a translation, or with an error message."""
        fields: dict[str, Any] = {}
        text, number = "", -1
        try:
            check_charset(request)
            fields = fields_of_form(await self._service.bodies.read(request))
            text, chosen = str(fields.get("text", "")), str(fields.get("direction", ""))
            number = int(chosen) if chosen.isdecimal() and len(chosen) < 4 else -1
            self._keys.admit(request, fields.get("api_key"), "enter it in the field Key")
            model = dict(enumerate(self._service.models.translators)).get(number)
            if model is None:
                raise bad("choose a direction", "direction")
            named = {side: str(fields[side]) for side in model.choices if fields.get(side)}
            translating = TranslateRequest(text=text, split="sentences", model=model.name, **named)
            translating = await self._service.sourced(translating)
            model = self._service.models.translator(translating.source, translating.target, model.name)
            answers = await self._service.translated(request, translating)
        except Refusal as refusal:
            words = html.escape(str(told(request, refusal)["message"]))
            return self._filled(text, number, f'<p role="alert">{words}</p>', refusal.status, fields)
        shown = html.escape(answers[0].text)
        language = bcp47_tag(model.target)
        answer = f'<h2>Translation</h2>\n<p><output dir="auto" lang="{language}">{_lines(shown)}</output></p>'
        return self._filled(text, number, answer, fields=fields)

    def _filled(
        self, text: str, chosen: int, answer: str, status: int = 200, fields: Mapping[str, Any] | None = None
    ) -> Response:
        """Return the filled form. Escaped text of users contains no placeholder that is replaced after it."""
        models = self._service.models.translators
        shown = [_direction(model) for model in models]
        words = [
            f"{direction} ({model.name})" if shown.count(direction) > 1 else direction
            for model, direction in zip(models, shown, strict=True)
        ]
        directions = "".join(
            f'<option value="{number}"{_tags(source=model.source, target=model.target)}'
            f"{' selected' * (number == chosen)}>{html.escape(direction)}</option>"
            for number, (model, direction) in enumerate(zip(models, words, strict=True))
        )
        languages = "".join(_languages(side, models, str((fields or {}).get(side, ""))) for side in SIDES)
        page = self._index.replace("<!--directions-->", directions).replace("<!--key-->", KEY if self._keys else "")
        page = page.replace("<!--languages-->", languages)
        # Browsers drop a line end after <textarea>.
        page = page.replace("<!--text-->", "\n" + html.escape(text) if text else "").replace("<!--answer-->", answer)
        return HTMLResponse(page, status, NO_STORE)


def _direction(model: ServedTranslator) -> str:
    if model.choices:
        return f"{model.name}: {max(map(len, model.choices.values()))} languages"
    return f"{language_name(model.source or '?')} to {language_name(model.target or '?')}"


def _languages(side: str, models: Sequence[ServedTranslator], chosen: str) -> str:
    """Return the list of languages of a side, of all models of many languages; empty without such a model."""
    names = {name for model in models for name in model.choices.get(side, ())}
    if not names:
        return ""
    titles = Counter(map(language_name, names))
    shown = {name: language_name(name) if titles[language_name(name)] == 1 else name for name in names}
    options = '<option value="auto">Detect</option>' if side == "source" else ""
    options += "".join(
        f'<option value="{html.escape(name)}"{_tags(**{side: name})}{" selected" * (name == chosen)}>'
        f"{html.escape(title)}</option>"
        for name, title in sorted(shown.items(), key=lambda pair: (pair[0] == pair[1], pair[1].lower()))
    )
    label = {"source": "From", "target": "To"}[side]
    return f'<label for="{side}">{label}</label> <select id="{side}" name="{side}">{options}</select> '


def _tags(**languages: str | None) -> str:
    """Return the attributes of an option with the tags of languages, by side, with which the page marks texts."""
    return "".join(f' data-{side}="{bcp47_tag(name)}"' for side, name in languages.items())


def _lines(escaped: str) -> str:
    return escaped.replace("\r\n", "\n").replace("\n", "<br>\n")
