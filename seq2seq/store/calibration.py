"""Calibration: how to read a model's attention and probabilities, measured on sentences with known translations.

`inference.calibrating` measures it at the end of training, or for `s2s align --calibrate`. It is stored next to the
weights in details.json; aligner, confidence and markup translation read it.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from seq2seq import atomic
from seq2seq.config.values import Label, Section
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
    """Held-out sentences with about the same confidence: predicted and observed share of good translations."""

    predicted: Share
    """Mean confidence."""
    observed: Share
    """Share of good translations."""
    sentences: Count


class ConfidenceMap(Section):
    """Logistic regression from the features of a translation to the probability that it is good."""

    means: Features
    """Mean of each feature; with `scales`, features are normalised to mean 0 and variance 1."""
    scales: Annotated[tuple[Scale, ...], Field(strict=False, min_length=NUM_FEATURES, max_length=NUM_FEATURES)]
    weights: Features
    bias: Number
    table: Annotated[tuple[Reliability, ...], Field(strict=False, min_length=1, max_length=100)]
    """Reliability by confidence, the lowest first."""


class StandInClass(Section):
    """Placeholder words that may replace protected text (`markup.placeholders`)."""

    name: Label
    words: Words
    answers: Words
    """Translation of each word by the model."""
    kept: Share
    """Share of the placeholders that survived translation in the test sentences."""

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if len(self.words) != len(self.answers) or len(set(self.words)) < len(self.words):
            raise ValueError("words must differ, and each must have one answer")
        return self


class Calibration(Section):
    """The calibration of one model."""

    heads: dict[Head, Share] = Field(default={}, max_length=MOST_HEADS)
    """Weights of the attention heads that alignments are read from, by layer.head, counted from 1. A trailing + reads
    a piece at the step whose input it is, instead of the step that predicts it. If empty, all heads weigh the same."""
    distance: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    """Strength of the preference for words at the same relative position (`aligner.distributions`)."""
    accuracy: Share | None = None
    """Share of anchors of held-out sentences that were linked correctly; anchors are words, numbers and names whose
    alignment is certain."""
    anchors: Count = 0
    confidence: ConfidenceMap | None = None
    no_confidence: Annotated[str, Field(max_length=200)] = ""
    """Why calibration found no confidence map; empty if it found one."""
    stand_ins: Annotated[tuple[StandInClass, ...], Field(strict=False, max_length=100)] = ()
    """Classes of placeholders, the best first."""

    @model_validator(mode="after")
    def _has_heads(self) -> Self:
        if (self.heads and not any(self.heads.values())) or (self.accuracy is not None and not self.heads):
            raise ValueError("an accuracy is that of heads, of which one has a weight")
        if self.accuracy is not None and not self.anchors:
            raise ValueError("an accuracy is a share of anchors")
        return self


def read_calibration(folder: Path) -> Calibration:
    """Read the calibration of a model folder; return an empty one if it was never calibrated.

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
    """Return sentences about the measurements, for logs and model cards."""
    if calibration.accuracy is None:
        lines = ["Alignments are rough: too few words have a certain alignment, so no attention heads were chosen."]
    else:
        found, heads = f"{100 * calibration.accuracy:.1f} %", ", ".join(calibration.heads)
        lines = [
            f"Word alignments: of {calibration.anchors:,} words whose alignment is certain, {found} are correct "
            f"(held-out halves; heads {heads})."
        ]
    if calibration.no_confidence:
        lines.append(f"Translations get no confidence (null): {calibration.no_confidence}.")
    if calibration.confidence is not None:
        bins = [
            f"predicted {100 * row.predicted:.0f} %, observed {100 * row.observed:.0f} % (n = {row.sentences})"
            for row in calibration.confidence.table
        ]
        lines.append(f"Confidence, by fifths of held-out sentences (good: chrF of at least 60): {'; '.join(bins)}.")
    if calibration.stand_ins:
        shares = ", ".join(f"{group.name} {100 * group.kept:.0f} %" for group in calibration.stand_ins)
        lines.append(f"Placeholders for variables and addresses, and how many of them a translation keeps: {shares}.")
    return lines


def write_calibration(folder: Path, calibration: Calibration) -> None:
    """Write the calibration next to the weights of a model folder."""
    atomic.write_file(folder / FILE, json_text(calibration.model_dump(mode="json")).encode())
