"""What a model's attention and probabilities say, measured on sentences whose translation is known.

`inference.calibrating` measures it at the end of training or for `s2s align --calibrate`; it is kept beside the weights
in details.json, and read by whoever explains translations.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from seq2seq import atomic
from seq2seq.config_values import Label, Section
from seq2seq.errors import ModelError
from seq2seq.files import DamagedFile, json_text, read_object
from seq2seq.lines import as_one_line

FILE = "details.json"
LARGEST_FILE = 2**20
NUM_FEATURES = 4
"""Features of a translation, from which its confidence is computed (`inference.confidence.features`)."""
MOST_HEADS, LARGEST_NUMBER, LONGEST_WORD = 10_000, 1e6, 60
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Number = Annotated[float, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
Features = Annotated[tuple[Number, ...], Field(strict=False, min_length=NUM_FEATURES, max_length=NUM_FEATURES)]
Scale = Annotated[float, Field(gt=0.0, le=LARGEST_NUMBER)]
Head = Annotated[str, Field(pattern=r"^[1-9]\d{0,3}\.[1-9]\d{0,3}\+?$")]
Word = Annotated[str, Field(min_length=1, max_length=LONGEST_WORD, pattern=r"^\S+$")]
Words = Annotated[tuple[Word, ...], Field(strict=False, min_length=1, max_length=100)]


class Reliability(Section):
    """Sentences to which a model gave about the same confidence, none of them used for the map that gave it."""

    predicted: Share
    """Mean confidence."""
    observed: Share
    """Share that were good."""
    sentences: Count


class ConfidenceMap(Section):
    """Logistic regression from the features of a translation to the probability that it is good."""

    means: Features
    """Of each feature; with `scales` they become numbers of mean 0 and variance 1."""
    scales: Annotated[tuple[Scale, ...], Field(strict=False, min_length=NUM_FEATURES, max_length=NUM_FEATURES)]
    weights: Features
    bias: Number
    table: Annotated[tuple[Reliability, ...], Field(strict=False, max_length=100)]
    """By confidence, the lowest first."""


class StandInClass(Section):
    """Words that may stand for what is not translated (`markup.standins`)."""

    name: Label
    words: Words
    answers: Words
    """What the model says for each."""
    kept: Share
    """Share that it kept in the sentences that it was tried with."""

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if len(self.words) != len(self.answers) or len(set(self.words)) < len(self.words):
            raise ValueError("words must differ, and each must have one answer")
        return self


class Calibration(Section):
    """Of one model."""

    heads: dict[Head, Share] = Field(default={}, max_length=MOST_HEADS)
    """Weights of the attention heads that alignments are read from, by layer.head from 1; a trailing + reads a piece at
    the step that it is put in instead of the one that predicts it. Empty: all heads of all layers alike."""
    distance: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    """How much words prefer partners at their own place in the sentence (`aligner.distributions`)."""
    accuracy: Share | None = None
    """Share of the anchors of held-out sentences that were found: words, numbers and names whose partner is certain."""
    anchors: Count = 0
    confidence: ConfidenceMap | None = None
    no_confidence: Annotated[str, Field(max_length=200)] = ""
    """The reason why calibration gave no map."""
    stand_ins: Annotated[tuple[StandInClass, ...], Field(strict=False, max_length=100)] = ()
    """The best first."""


def read_calibration(folder: Path) -> Calibration:
    """That of a model folder; an empty one where it was never calibrated.

    Raises:
        ModelError: the file is damaged.
    """
    if not (folder / FILE).exists():
        return Calibration()
    try:
        values = read_object(folder / FILE, LARGEST_FILE)
        return Calibration.model_validate(values)
    except DamagedFile as error:
        problem = str(error)
    except ValidationError as error:
        problem = ".".join(map(str, error.errors()[0]["loc"])) or "its values"
        problem = f"{problem} is not possible"
    remedy = "delete it, or write it anew with s2s align --calibrate"
    raise ModelError(f"{folder / FILE}: damaged ({as_one_line(problem)[:100]}); {remedy}")


def summary(calibration: Calibration) -> list[str]:
    """What was measured, for logs and model cards."""
    if calibration.accuracy is None:
        lines = ["Alignments are rough: too few words with a certain partner were found to choose attention heads."]
    else:
        found, heads = f"{100 * calibration.accuracy:.1f} %", ", ".join(calibration.heads)
        lines = [
            f"Word alignments: of {calibration.anchors:,} words whose partner is certain, {found} are linked to it "
            f"(held-out halves; heads {heads})."
        ]
    if calibration.no_confidence:
        lines.append(f"Translations get no confidence (null): {calibration.no_confidence}.")
    if calibration.confidence is not None:
        bins = [
            f"{100 * one.predicted:.0f} % of {one.sentences} were to be good, {100 * one.observed:.0f} % were"
            for one in calibration.confidence.table
        ]
        lines.append(f"Confidence, by fifths of held-out sentences (good: chrF of 60 and more): {'; '.join(bins)}.")
    if calibration.stand_ins:
        shares = ", ".join(f"{one.name} {100 * one.kept:.0f} %" for one in calibration.stand_ins)
        lines.append(f"Variables and addresses, kept where these stand for them: {shares}.")
    return lines


def write_calibration(folder: Path, calibration: Calibration) -> None:
    """Keep it beside the weights of a model folder."""
    atomic.write_file(folder / FILE, json_text(calibration.model_dump(mode="json")).encode())
