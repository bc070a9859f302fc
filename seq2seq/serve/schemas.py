"""The bodies of requests and answers of `/v1`, checked and described by pydantic; `openapi` shows them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seq2seq.serve.limits import Refusal, bad
from seq2seq.text.alignment import KINDS

Texts = Annotated[str | list[str], Field(description="One text, or several.")]
Span = Annotated[list[int], Field(description="Begin and end, in code points.")]


class Body(BaseModel):
    """A request; fields that are not known are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: Texts

    @property
    def texts(self) -> list[str]:
        """Always a list."""
        return [self.text] if isinstance(self.text, str) else self.text


class GlossaryBody(BaseModel):
    """Terms of a request: source and target of each, in the form of s2s glossary check."""

    model_config = ConfigDict(extra="forbid", strict=True)

    entries: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = []
    names: list[str] = Field([], description="Further glossaries of this server, by name.")


class TranslateRequest(Body):
    """`POST /v1/translate`; other dialects make one too. `GET /v1/models` lists what the fields may hold."""

    model: str | None = Field(None, description="Name of a model [default: the first one of the language pair].")
    source: str | None = Field(None, description="Language of the text; optional if only one model fits.")
    target: str | None = Field(None, description="Language to translate into; may be left out where one model fits.")
    format: Literal["text", "plain", "html", "xml", "markdown"] = Field(
        "text",
        description="plain: lines whose variables, addresses and code stay. html, xml, markdown: each text is a "
        "document, whose tags stay with their words too.",
    )
    split: Literal["lines", "sentences", "none"] = Field(
        "lines", description="What is translated on its own. Lines give what s2s translate gives for a file."
    )
    alternatives: int = Field(0, ge=0, description="Next best translations of each text; fewer than beam_size.")
    prefix: str | list[str] | None = Field(None, description="What each translation begins with.")
    beam_size: int | None = Field(None, ge=1)
    details: list[Literal["sentences", "alignment", "words", "confidence", "terms"]] = Field(
        [], description="What answers hold besides translations; spans are in code points."
    )
    glossary: str | list[str] | GlossaryBody | None = Field(
        None,
        description="Names of glossaries of this server, or entries: terms that translations must contain "
        "[default: the default glossaries of the server]. [] is none.",
    )
    stream: bool = Field(False, description="Answer with JSON lines, one for each line or sentence as it is done.")

    @property
    def is_document(self) -> bool:
        """Whether each text is a document, which is cut by its format."""
        return self.format != "text"

    @property
    def explains(self) -> bool:
        """Whether alignments, probabilities or confidence are requested."""
        return not {"sentences", *KINDS}.isdisjoint(self.details)

    @property
    def prefixes(self) -> list[str]:
        """Empty, or one for each text if the request is right."""
        return [self.prefix] * len(self.texts) if isinstance(self.prefix, str) and self.prefix else self.prefix or []

    @property
    def search(self) -> tuple[tuple[str, int], ...]:
        """Names and values of search settings, as `Settings` has them."""
        given = {"n_best": self.alternatives + 1, "beam_size": self.beam_size}
        return tuple((name, value) for name, value in given.items() if value is not None)


class ClassifyRequest(Body):
    """`POST /v1/classify`."""

    model: str | None = Field(None, description="A classifier; may be left out where there is one.")


class ModelName(BaseModel):
    """Which model answered; the fingerprint changes when it does."""

    name: str
    fingerprint: str


class Scored(BaseModel):
    """A translation; translation and normalized_score are older names of text and score."""

    text: str
    log_prob: float | None = Field(description="The model's log-probability; null for a document.")
    score: float | None = Field(description="log_prob / tokens^a, which ranks alternatives.")
    tokens: int
    translation: str = Field(deprecated=True)
    normalized_score: float | None = Field(deprecated=True)


class Translated(Scored):
    """The translation of one text."""

    flags: list[str]
    alternatives: list[Scored]
    details: list[dict[str, Any]] | None = Field(None, description="One object per sentence, if requested.")
    terms: list[dict[str, Any]] | None = Field(None, description="The terms of glossaries, if requested.")
    sentences: list[dict[str, Any]] | None = Field(None, deprecated=True)


class Timing(BaseModel):
    """Milliseconds."""

    queued_ms: float
    compute_ms: float


class Usage(BaseModel):
    """What was computed."""

    characters: int
    sentences: int
    target_tokens: int = 0


class TranslateAnswer(BaseModel):
    """A translation for each text, in order."""

    model: ModelName
    source: str | None
    target: str | None
    translations: list[Translated]
    usage: Usage
    timing: Timing


class TranslatedPart(Translated):
    """A line of a streamed answer. A translated text is `before` and `text` of its parts, one after the other."""

    index: int = Field(description="Number of the text, from 0.")
    source: Span
    before: str


class StreamEnd(BaseModel):
    """The last line of a streamed answer that is whole; `error` stands there in one that is not."""

    done: Literal[True] = True
    model: ModelName
    source: str | None
    target: str | None
    usage: Usage
    timing: Timing


class Classified(BaseModel):
    """The label of one text, and the probability of every label; a blank text has none."""

    label: str
    probability: float
    probabilities: dict[str, float]


class ClassifyAnswer(BaseModel):
    """A label for each text, in order."""

    model: ModelName
    classifications: list[Classified]
    usage: Usage
    timing: Timing


class ErrorBody(BaseModel):
    """Why a request was not answered."""

    code: str
    message: str
    field: str | None


class ErrorAnswer(BaseModel):
    """Every answer that is no success."""

    error: ErrorBody


def parsed(kind: type[Body], body: bytes) -> Any:
    """A request of this kind.

    Raises:
        Refusal: it is no JSON, or not of this kind; the first problem is named.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> Refusal:
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    # Of a field that may be of several kinds, the problem that lies deepest is of the kind that was meant.
    first = max((one for one in errors if one["loc"][:1] == errors[0]["loc"][:1]), key=lambda one: len(one["loc"]))
    if first["type"] == "json_invalid":
        return bad("the body is not JSON in UTF-8", code="bad_json")
    where = [str(part) for part in first["loc"] if part not in ("str", "list[str]", "GlossaryBody")]
    if first["type"] == "extra_forbidden":
        return bad("there is no such field", ".".join(where)[:100])
    return bad(worded(first["msg"]), ".".join(where)[:100] or None)


def worded(message: str) -> str:
    """Return a message of pydantic in the words of the server."""
    return message[:1].lower() + message[1:].replace(" after validation", "")  # of the length of a list
