"""What the trainer remembers between steps and in checkpoints, and the pure functions that read it.

`RunState` is the JSON part of a checkpoint. When a run ends, which model is best and when training has diverged are
functions of it and of the training section.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from seq2seq.config.schema import TrainingConfig
from seq2seq.errors import RunError, counted
from seq2seq.evaluation.uncertainty import standard_error
from seq2seq.training.judged import LOSS, Judged

DEFAULT_STEPS = 20_000
LEAST_BLEU = 1.0  # below it BLEU counts chance matches, or has the wrong tokenizer
SE = "_se"  # ends the name of a standard error
# The values of training.best_metric but `auto`, which is the first of them that was measured; their validation keys.
METRIC_KEYS = {
    "bleu": "bleu", "accuracy": "accuracy", "chrf": "chrf", "chrf++": "chrf++", "f1": "f1", "loss": LOSS,
}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """One validation sentence and the model's output for it."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Validation:
    """What a validation found: `valid_loss`, `bleu`, ... and the sentences for samples.txt."""

    metrics: Mapping[str, float]
    samples: Sequence[Sample] = ()
    contributions: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The contribution of each sentence, by metric (`evaluation.uncertainty`)."""

    @property
    def errors(self) -> dict[str, float]:
        """Standard errors of the metrics, by metric with `SE`."""
        return {f"{name}{SE}": standard_error(values) for name, values in self.contributions.items()}


@dataclass(frozen=True)
class TrainingResult:
    """How a call of the trainer ended."""

    status: str
    """`finished`, `stopped` (by a signal; it can be continued), or `already finished` (nothing was trained)."""
    reason: str
    """Which limit was reached, or the name of the signal."""
    step: int
    best_step: int | None
    best_value: float | None
    metric: str | None
    is_improving: bool = False
    """Whether the last validation was better, beyond chance, than those before it."""


@dataclass
class Window:
    """Sums since the last log line."""

    steps: int = 0
    loss: float = 0.0
    targets: float = 0.0
    correct: float = 0.0
    tokens: float = 0.0
    grad_norm: float = 0.0
    seconds: float = 0.0

    def add(self, other: "Window") -> None:
        """Add the sums of other steps."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class RunState:
    """How far a run is. All of it is in every checkpoint."""

    step: int = 0
    seconds: float = 0.0
    """Time trained, validation included, over all starts."""
    validation_seconds: float = 0.0
    """How long the last validation took: reserved at the end of a run that is limited in minutes."""
    metric: str | None = None
    measure: str | None = None
    """How the values below were measured."""
    best: Judged | None = None
    """The model in `best/`: the latest whose score is not below the highest beyond chance."""
    highest: Judged | None = None
    """The model with the highest score."""
    shown: Judged | None = None
    """The latest model that improved, beyond chance, on the one that had this place before."""
    validations: list[tuple[int, float]] = field(default_factory=list)
    """(step, value of the best metric) of every validation."""
    validated_step: int | None = None
    validations_since_best: int = 0
    """Validations since that of `shown`, for patience."""
    bad_in_a_row: int = 0
    bad_steps: int = 0
    rollbacks: int = 0
    rate_scale: float = 1.0
    """Factor on the learning rate; a roll-back lowers it."""
    smooth_loss: float | None = None
    lowest_loss: float | None = None
    split_above: int | None = None
    """Batches with more padded tokens than this are split from the start: one of that size did not fit."""
    finished: str | None = None
    """Why the run ended, once it has."""
    window: Window = field(default_factory=Window)
    logged_step: int = 0
    """The step of the last log line."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "RunState":
        """What `to_json` gave."""
        plain = {**values, "window": Window(**values["window"])}
        plain["validations"] = [(step, value) for step, value in values["validations"]]
        for name in ("best", "highest", "shown"):
            plain[name] = None if values[name] is None else Judged(**values[name])
        return cls(**plain)

    @property
    def best_step(self) -> int | None:
        """The step of the best model."""
        return self.best.step if self.best else None

    @property
    def best_value(self) -> float | None:
        """The value of the best model."""
        return self.best.value if self.best else None

    def note_loss(self, loss: float) -> None:
        """Follow the loss of a step (nats a target); one odd batch counts as no more than three times the usual."""
        if self.smooth_loss is None:
            self.smooth_loss = loss
        self.smooth_loss += 0.1 * (min(loss, 3 * self.smooth_loss) - self.smooth_loss)
        if self.step >= 10:
            lowest = math.inf if self.lowest_loss is None else self.lowest_loss
            self.lowest_loss = min(self.smooth_loss, lowest)

    def note_validation(self, metric: str, found: Judged) -> bool:
        """Record a validation at this step; returns whether its model is the best so far.

        The best model is the latest whose score is not below the highest beyond chance.
        A value that is not finite is best only where there is no other. The model that training starts from, at step 0,
        is no validation of the run, and stays the best until a later one has a higher score.
        """
        self.validated_step = self.step
        if metric != self.metric:  # another metric was chosen since: earlier values cannot be compared
            self.forget_validations()
            self.metric = metric
        sign, is_recorded = _sign(metric), self.step > 0
        if is_recorded and found.value is not None:
            others = [entry for entry in self.validations if entry[0] != self.step]
            self.validations = [*others, (self.step, found.value)]
        if self.shown is None or found.improves_on(self.shown, sign):
            self.validations_since_best, self.shown = 0, found
        elif is_recorded:
            self.validations_since_best += 1
        is_highest = self.highest is None or found.lead(self.highest, sign) > 0
        if is_highest:
            self.highest = found
        if is_best := self._is_best(found, is_highest, sign):
            self.best = found
        return is_best

    def _is_best(self, found: Judged, is_highest: bool, sign: int) -> bool:
        if self.best is None or (self.best.step == 0 and self.step > 0):
            return is_highest
        return found.compared(self.highest, sign) >= 0

    def forget_validations(self) -> None:
        """Let the next validation be the best; a finished run keeps the count that may have ended it."""
        self.metric, self.validations = None, []
        self.best = self.highest = self.shown = None
        if self.finished is None:
            self.validations_since_best = 0

    def note_best_anew(self, metric: str, found: Judged) -> bool:
        """Record the best model as another measure finds it, and forget the validations of the other models."""
        was_recorded = found.step in dict(self.validations)
        self.forget_validations()
        self.metric = metric
        self.best = self.highest = self.shown = found
        if was_recorded and found.value is not None:
            self.validations = [(found.step, found.value)]
        return True

    def best_steps(self, count: int | None = None) -> list[int]:
        """The `count` best validated steps, or all: that of the best model, then by value, later ones before equals."""
        sign = _sign(self.metric or "loss")

        def order(entry: tuple[int, float]) -> tuple[bool, float, int]:
            return entry[0] != self.best_step, -sign * entry[1], -entry[0]

        return [step for step, _ in sorted(self.validations, key=order)[:count]]


def has_diverged(state: RunState) -> bool:
    """Whether the smoothed loss has risen from its lowest by more than chance and hard batches explain."""
    if state.lowest_loss is None or state.smooth_loss is None:
        return False
    return state.smooth_loss > 1.5 * state.lowest_loss + 0.5


def deciding_metric(wanted: str, metrics: Mapping[str, float], before: str | None = None) -> tuple[str, float]:
    """The name and value of the metric that decides which model is best; `wanted` is `training.best_metric`.

    `auto` does not decide by a BLEU below `LEAST_BLEU`, unless the run decided by BLEU `before`.

    Raises:
        RunError: it was not measured.
    """
    name = wanted
    if wanted == "auto":
        name, *others = [name for name, key in METRIC_KEYS.items() if key in metrics]
        if name == "bleu" != before and others and not metrics["bleu"] >= LEAST_BLEU:
            name = others[0]
    if METRIC_KEYS[name] not in metrics:
        raise RunError(f"training.best_metric: {name} was not measured; choose one of {', '.join(metrics)}")
    return name, metrics[METRIC_KEYS[name]]


def _sign(metric: str) -> int:
    """Return 1 if higher values of a metric are better, -1 if lower ones are."""
    return -1 if metric == "loss" else 1


def limits(config: TrainingConfig) -> tuple[float, float, float]:
    """(steps, epochs, seconds) after which training ends; infinite where there is no limit."""
    unlimited = config.max_steps is None and config.max_epochs is None and config.max_minutes is None
    steps = DEFAULT_STEPS if unlimited else config.max_steps or math.inf
    return steps, config.max_epochs or math.inf, (config.max_minutes or math.inf) * 60


def further(result: TrainingResult, config: TrainingConfig) -> str:
    """Return how to continue, if a limit ended a training that still improved, or has ended it before; else empty."""
    names = ("max_steps", "max_epochs", "max_minutes")
    limit = next((limit for limit in zip(names, limits(config), strict=True) if limit[0] in result.reason), None)
    if limit is None or not (result.is_improving or result.status == "already finished"):
        return ""
    key, value = limit
    twice = f"{2 * value / 60 if key == 'max_minutes' else 2 * value:.10g}"
    ended = f"training.{key} ended training while the model still improved, so its answers may be poor; "
    return f"{ended * result.is_improving}to continue, run the same command with --set training.{key}={twice}"


def progress(state: RunState, epoch: float, config: TrainingConfig) -> float:
    """The share of training that is done, in [0, 1], by the limit that will be reached first."""
    steps, epochs, seconds = limits(config)
    usable = max(1e-9, seconds - state.validation_seconds)
    return min(1.0, max(state.step / steps, epoch / epochs, state.seconds / usable))


def dropout_share(epoch: float, dropout_epochs: float) -> float:
    """The share of dropout at this point of training, in [0, 1], in eighths: where layers are compiled, each of them
    takes graphs of its own."""
    return round(8 * min(1.0, epoch / dropout_epochs)) / 8


def end_reason(state: RunState, epoch: float, config: TrainingConfig) -> str | None:
    """Why training ends here, or None when it continues."""
    steps, epochs, seconds = limits(config)
    if state.step >= steps:
        return f"max_steps {steps:,.0f} reached"
    if epoch >= epochs:
        return f"max_epochs {epochs:g} reached"
    if state.seconds >= seconds - state.validation_seconds:
        return f"max_minutes {seconds / 60:g} reached"
    if config.patience and state.validations_since_best >= config.patience:
        return f"no significant improvement of {state.metric} in {counted(config.patience, 'validation')}"
    return None
