"""The bodies of requests and answers of `/v1`, checked and described by pydantic; `openapi` shows them."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seq2seq.serve.limits import Refusal, bad
from seq2seq.text.alignment import KINDS

HALF = r"a text has half of a character (a lone surrogate, such as \ud83d); do not cut texts within a character"

Texts = Annotated[str | list[str], Field(description="One text, or several.")]
Span = Annotated[list[int], Field(description="Begin and end, in code points.")]


class Body(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: Texts

    @property
    def texts(self) -> list[str]:
        """The texts, as a list."""
        return [self.text] if isinstance(self.text, str) else self.text


class GlossaryBody(BaseModel):
    """Terms of a request, each with source, target and perhaps an option, in the format of s2s glossary check."""

    model_config = ConfigDict(extra="forbid", strict=True)

    entries: list[Annotated[list[str], Field(min_length=2, max_length=3)]] = []
    names: list[str] = Field([], description="Further glossaries of this server, by name.")


class TranslateRequest(Body):
    """The body of `POST /v1/translate`, which other dialects make too. `GET /v1/models` lists the possible values."""

    model: str | None = Field(
        None,
        description="Name of a model [default: the first model of the language pair that has what is requested].",
    )
    source: str | None = Field(
        None,
        description="Language of the text; optional if only one direction fits. auto: the one of the texts, among the "
        "source languages of the models that fit.",
    )
    target: str | None = Field(None, description="Language to translate into; optional if only one direction fits.")
    format: Literal["text", "plain", "html", "xml", "markdown"] = Field(
        "text",
        description="plain: lines whose variables, addresses and code are kept unchanged. html, xml, markdown: each "
        "text is a document, whose tags are kept with their words too.",
    )
    split: Literal["lines", "sentences", "none"] = Field(
        "lines", description="Units that are translated independently. With lines, results are those of s2s translate."
    )
    alternatives: int = Field(
        0,
        ge=0,
        description="Next best translations of each text; fewer than beam_size, and at most limits.alternatives.",
    )
    prefix: str | list[str] | None = Field(None, description="Required beginning of each translation.")
    beam_size: int | None = Field(
        None,
        ge=1,
        description="Hypotheses of the search; at most limits.beam_size, or the model's own if that is larger "
        "[default: the model's own].",
    )
    details: list[Literal["sentences", "alignment", "words", "confidence", "terms"]] = Field(
        [], description="Further fields of answers to texts, not to documents; spans are in code points."
    )
    glossary: str | list[str] | GlossaryBody | None = Field(
        None,
        description="Names of glossaries of this server, or entries: terms that translations must contain "
        "[default: the default glossaries of the server]. [] means none.",
    )
    stream: bool = Field(
        False, description="Answer with JSON Lines, one for each line or sentence as soon as it is done."
    )

    @property
    def is_document(self) -> bool:
        """Whether each text is a document, which is split by its format."""
        return self.format != "text"

    @property
    def explains(self) -> bool:
        """Whether alignments, probabilities or confidence are requested."""
        return not {"sentences", *KINDS}.isdisjoint(self.details)

    @property
    def needs_alignments(self) -> bool:
        """Whether details, terms or documents are requested, which need the alignments of a model."""
        given = self.glossary
        terms = [*given.entries, *given.names] if isinstance(given, GlossaryBody) else given
        return self.explains or self.is_document or bool(terms)

    @property
    def prefixes(self) -> list[str]:
        """The prefixes: empty, or in a valid request one for each text."""
        return [self.prefix] * len(self.texts) if isinstance(self.prefix, str) and self.prefix else self.prefix or []

    @property
    def search(self) -> tuple[tuple[str, int], ...]:
        """The names and values of search settings, in the form of `Settings.search`."""
        given = {"n_best": self.alternatives + 1, "beam_size": self.beam_size}
        return tuple((name, value) for name, value in given.items() if value is not None)


class ClassifyRequest(Body):
    """The body of `POST /v1/classify`."""

    model: str | None = Field(None, description="Name of a classifier; optional if there is only one.")


class ModelName(BaseModel):
    """The model that answered; the fingerprint changes with its files."""

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
    """Times in milliseconds."""

    queued_ms: float
    compute_ms: float


class Usage(BaseModel):
    """The amount of computed text."""

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
    """A line of a streamed answer. A translated text consists of `before` and `text` of all its parts, in order."""

    index: int = Field(description="Number of the text, from 0.")
    source: Span
    before: str


class StreamEnd(BaseModel):
    """The last line of a complete streamed answer; the last line of an incomplete one has `error`."""

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
    """The reason why a request was not answered."""

    code: str
    message: str
    field: str | None


class ErrorAnswer(BaseModel):
    """The body of every error."""

    error: ErrorBody


def parsed(kind: type[Body], body: bytes) -> Any:
    """Return the request of this type in a body.

    Raises:
        Refusal: the body is not JSON, or not of this type; the message names the first problem.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> Refusal:
    errors = error.errors(include_url=False, include_input=False)
    # For a field of several types, the deepest problem probably belongs to the intended type.
    same_field = (problem for problem in errors if problem["loc"][:1] == errors[0]["loc"][:1])
    first = max(same_field, key=lambda problem: len(problem["loc"]))
    if first["type"] == "json_invalid" and re.search("surrogate|end of hex escape", first["ctx"]["error"]):
        return bad(HALF, code="bad_json")
    if first["type"] == "json_invalid":
        return bad("the body is not JSON in UTF-8", code="bad_json")
    where = [str(part) for part in first["loc"] if part not in ("str", "list[str]", "GlossaryBody")]
    if first["type"] == "extra_forbidden":
        return bad("there is no such field", ".".join(where)[:100])
    return bad(worded(first["msg"]), ".".join(where)[:100] or None)


def worded(message: str) -> str:
    """Return a message of pydantic in the style of the server's messages."""
    return message[:1].lower() + message[1:].replace(" after validation", "")  # in messages on the length of a list
