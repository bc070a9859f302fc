"""The state of a run between steps and in checkpoints, and the pure functions that read it.

`RunState` is the JSON part of a checkpoint. The end of a run, the best model and divergence are functions of it and of
the training section.
"""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from seq2seq.config.schema import TrainingConfig
from seq2seq.data.stages import ONE_STAGE, Stages
from seq2seq.errors import RunError, counted
from seq2seq.training.judged import LOSS, Judged, standard_error

if TYPE_CHECKING:
    from seq2seq.data.stream import BatchStream  # imports torch, and `s2s runs` reads states without it

DEFAULT_STEPS = 20_000
LEAST_BLEU = 1.0  # below it, BLEU counts chance matches, or uses the wrong tokenizer
SE = "_se"  # the suffix of the name of a standard error
# The values of training.best_metric with their keys in a validation; `auto` is the first of them that was measured.
METRIC_KEYS = {
    "bleu": "bleu", "accuracy": "accuracy", "chrf": "chrf", "chrf++": "chrf++", "f1": "f1", "loss": LOSS,
}  # fmt: skip


def is_standard_error(name: str, names: Container[str]) -> bool:
    """Whether `name` is the standard error of another of `names`, as `bleu_se` is of `bleu`.

    The name of a direction may end with `SE` too.
    """
    return name.endswith(SE) and name.removesuffix(SE) in names


@dataclass(frozen=True)
class Sample:
    """One validation sentence and the model's output for it."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Validation:
    """The result of a validation: `valid_loss`, `bleu`, ... and the sentences for samples.txt."""

    metrics: Mapping[str, float]
    samples: Sequence[Sample] = ()
    contributions: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The contribution of each sentence, by metric (`evaluation.uncertainty`)."""

    @property
    def errors(self) -> dict[str, float]:
        """The standard errors of the metrics, by the name of the metric with `SE`."""
        return {f"{name}{SE}": standard_error(values) for name, values in self.contributions.items()}


@dataclass(frozen=True)
class TrainingResult:
    """The outcome of a call of the trainer."""

    status: str
    """`finished`, `stopped` (by a signal; it can be continued), or `already finished` (nothing was trained)."""
    reason: str
    """The limit that was reached, or the name of the signal."""
    step: int
    """The last step."""
    best_step: int | None
    """The step of the best model: the latest whose score is at most two standard errors below the highest (`judged`).
    None before the first validation."""
    best_value: float | None
    """The score of the best model, which may be below the highest of the run."""
    metric: str | None
    """The metric of the scores, which decides about the best model."""
    is_improving: bool = False
    """Whether the last validation improved on the last one of its stage that had improved: its score is better by more
    than two standard errors, or does not differ and its loss is lower by more than two."""
    epoch: float = 0.0
    """The epochs since the start of the run."""
    seconds: float = 0.0
    """The seconds of training since the begin of the run."""


@dataclass
class Window:
    """Sums over the steps since the last log line."""

    steps: int = 0
    loss: float = 0.0
    targets: float = 0.0
    correct: float = 0.0
    tokens: float = 0.0
    grad_norm: float = 0.0
    seconds: float = 0.0

    def add(self, other: "Window") -> None:
        """Add the sums of more steps."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class RunState:
    """The state of a run; every checkpoint contains all of it."""

    step: int = 0
    seconds: float = 0.0
    """Seconds of training, validation included, over all starts of the run."""
    validation_seconds: float = 0.0
    """Duration of the last validation, in seconds, which a run that is limited in minutes reserves at its end."""
    metric: str | None = None
    measure: str | None = None
    """A description of how the values below were measured (`Work.measure`)."""
    best: Judged | None = None
    """The model in `best/`: the latest whose score is not significantly below the highest."""
    highest: Judged | None = None
    """The model with the highest score."""
    shown: Judged | None = None
    """The latest model that was significantly better than the previous model in this field; None at the start of a
    stage."""
    validations: list[tuple[int, float]] = field(default_factory=list)
    """(step, value of the deciding metric) of every validation."""
    validated_step: int | None = None
    validations_since_best: int = 0
    """Validations since that of `shown`, for patience."""
    stage: int = 0
    """Index of the stage that training is in."""
    stage_step: int = 0
    """The step after which this stage began."""
    schedule_step: int = 0
    """The step at which a stage last started the schedule of the learning rate again; 0 if none has."""
    schedule_seconds: float = 0.0
    """`seconds` at that step."""
    bad_in_a_row: int = 0
    bad_steps: int = 0
    rollbacks: int = 0
    rate_scale: float = 1.0
    """Factor on the learning rate; a roll-back lowers it."""
    smooth_loss: float | None = None
    lowest_loss: float | None = None
    finished: str | None = None
    """Why the run ended; None until then."""
    window: Window = field(default_factory=Window)
    logged_step: int = 0
    """The step of the last log line."""

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "RunState":
        """Return the state whose `to_json` gave these values.

        Raises:
            KeyError, TypeError, ValueError: these are not the values of a state.
        """
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
        """Update the moving average of the loss with that of a step, in nats per target.

        The loss of one unusual batch counts as at most three times the average.
        """
        if self.smooth_loss is None:
            self.smooth_loss = loss
        self.smooth_loss += 0.1 * (min(loss, 3 * self.smooth_loss) - self.smooth_loss)
        if self.step >= 10:
            lowest = math.inf if self.lowest_loss is None else self.lowest_loss
            self.lowest_loss = min(self.smooth_loss, lowest)

    def note_validation(self, metric: str, judged: Judged) -> bool:
        """Record a validation at this step, and return whether its model is the best so far.

        The best model is the latest whose score is not significantly below the highest. A value that is not finite is
        the best only if there is no other. The model that training starts from, at step 0, does not count as a
        validation of the run, and is the best until a later one has a higher score.
        """
        self.validated_step = self.step
        if metric != self.metric:  # the metric was changed, so earlier values cannot be compared
            self.forget_validations()
            self.metric = metric
        sign, is_recorded = _sign(metric), self.step > 0
        if is_recorded and judged.value is not None:
            others = [entry for entry in self.validations if entry[0] != self.step]
            self.validations = [*others, (self.step, judged.value)]
        if self.shown is None or judged.improves_on(self.shown, sign):
            self.validations_since_best, self.shown = 0, judged
        elif is_recorded:
            self.validations_since_best += 1
        is_highest = self.highest is None or judged.lead(self.highest, sign) > 0
        if is_highest:
            self.highest = judged
        if is_best := self._is_best(judged, is_highest, sign):
            self.best = judged
        return is_best

    def _is_best(self, judged: Judged, is_highest: bool, sign: int) -> bool:
        if self.best is None or (self.best.step == 0 and self.step > 0):
            return is_highest
        return judged.compared(self.highest, sign) >= 0

    def begin_stage(self, stage: int, restarts: bool) -> None:
        """Enter a stage after this step; with `restarts`, the schedule of the learning rate starts again.

        Patience counts from here. The loss on other data may be higher, which is no divergence. The best model remains
        the best of all stages, because they share a validation set.
        """
        self.stage, self.stage_step = stage, self.step
        self.validations_since_best, self.shown = 0, None
        self.smooth_loss = self.lowest_loss = None
        if restarts:
            self.schedule_step, self.schedule_seconds = self.step, self.seconds

    def forget_validations(self) -> None:
        """Drop earlier validations, so that the next is the best; a finished run keeps the count for patience."""
        self.metric, self.validations = None, []
        self.best = self.highest = self.shown = None
        if self.finished is None:
            self.validations_since_best = 0

    def note_best_anew(self, metric: str, judged: Judged) -> bool:
        """Record the best model's value under a new measure, and drop the validations of the other models.

        Patience does not count from a model of an earlier stage.
        """
        was_recorded = judged.step in dict(self.validations)
        self.forget_validations()
        self.metric = metric
        self.best = self.highest = judged
        self.shown = judged if self.stage == 0 or judged.step > self.stage_step else None
        if was_recorded and judged.value is not None:
            self.validations = [(judged.step, judged.value)]
        return True

    def best_steps(self, count: int | None = None) -> list[int]:
        """Return the `count` best validated steps, or all: that of the best model, then by value, later steps first."""
        sign = _sign(self.metric or "loss")

        def order(entry: tuple[int, float]) -> tuple[bool, float, int]:
            return entry[0] != self.best_step, -sign * entry[1], -entry[0]

        return [step for step, _ in sorted(self.validations, key=order)[:count]]


def change_stage(state: RunState, stream: "BatchStream", config: TrainingConfig, stages: Stages) -> str | None:
    """Enter the next stage if its first epoch is reached, or if patience ends this one, whose other epochs are skipped.

    Returns:
        A remark for the log; None if the stage continues.
    """
    remark, reached = "", stages.at(stream.epoch)
    if reached == state.stage < stages.last and (reason := lost_patience(state, config)):
        skipped = f"epochs {stream.epoch:.4g} to {stages.each[state.stage].end:g} are skipped"
        remark = f"; {skipped} ({reason})"
        stream.skip_to(int(stages.each[state.stage].end))
        reached += 1
    if reached == state.stage:
        return None
    restarts = any(stage.restarts for stage in stages.each[state.stage + 1 : reached + 1])
    state.begin_stage(reached, restarts)
    return remark + "; the schedule of the learning rate starts again" * restarts


def has_diverged(state: RunState) -> bool:
    """Whether the smoothed loss has risen from its lowest value by more than hard batches would explain."""
    if state.lowest_loss is None or state.smooth_loss is None:
        return False
    return state.smooth_loss > 1.5 * state.lowest_loss + 0.5


def deciding_key(metric: str, best_of: str) -> str:
    """Return the key of a deciding metric in a validation; `best_of` is `training.best_of`."""
    return METRIC_KEYS[metric] if best_of == "mean" else f"{METRIC_KEYS[metric]}.{best_of}"


def deciding_metric(
    wanted: str, metrics: Mapping[str, float], before: str | None = None, best_of: str = "mean"
) -> tuple[str, float]:
    """Return the name and value of the metric that decides which model is best; `wanted` is `training.best_metric`.

    With several directions, `best_of` chooses the mean, the worst or one of them.

    `auto` does not choose a BLEU below `LEAST_BLEU` if another metric was measured, unless the run chose BLEU `before`.

    Raises:
        RunError: the metric was not measured.
    """
    name = wanted
    if wanted == "auto":
        name, *others = [name for name, key in METRIC_KEYS.items() if key in metrics]
        if name == "bleu" != before and others and not metrics["bleu"] >= LEAST_BLEU:
            name = others[0]
    if METRIC_KEYS[name] not in metrics:
        raise RunError(f"training.best_metric: {name} was not measured; choose one of {', '.join(metrics)}")
    if (key := deciding_key(name, best_of)) not in metrics:
        raise RunError(f"training.best_of: {best_of} was not measured; choose one of {', '.join(metrics)}")
    return name, metrics[key]


def _sign(metric: str) -> int:
    """Return 1 if higher values of a metric are better, -1 if lower ones are."""
    return -1 if metric == "loss" else 1


def limits(config: TrainingConfig) -> tuple[float, float, float]:
    """Return (steps, epochs, seconds) after which training ends; infinite if there is no limit."""
    unlimited = config.max_steps is None and config.max_epochs is None and config.max_minutes is None
    steps = DEFAULT_STEPS if unlimited else config.max_steps or math.inf
    return steps, config.max_epochs or math.inf, (config.max_minutes or math.inf) * 60


def progress(state: RunState, epoch: float, config: TrainingConfig, stages: Stages = ONE_STAGE) -> float:
    """Return the share of training that is done, in [0, 1], by the limit that will be reached first."""
    return _share_done(state, epoch, config, stages, (0, 0.0, 0.0), math.inf)


def schedule_progress(state: RunState, epoch: float, config: TrainingConfig, stages: Stages = ONE_STAGE) -> float:
    """Return the share of the schedule of the learning rate that is done, in [0, 1].

    The schedule ends with training, or where a stage starts it again.
    """
    start, end = stages.schedule(state.stage)
    return _share_done(state, epoch, config, stages, (state.schedule_step, start, state.schedule_seconds), end)


def _share_done(
    state: RunState,
    epoch: float,
    config: TrainingConfig,
    stages: Stages,
    start: tuple[int, float, float],
    end: float,
) -> float:
    """Return the share between `start` (step, epoch, seconds) and the first of the limits and the epoch `end`."""
    steps, epochs, seconds = limits(config)
    first_step, first_epoch, first_second = start
    before = stages.work(first_epoch)
    # A lowered limit may leave no work: then all is done.
    work, whole = stages.work(epoch) - before, max(1e-9, stages.work(min(end, epochs)) - before)
    usable = max(1e-9, seconds - state.validation_seconds - first_second)
    by_step = (state.step - first_step) / max(1, steps - first_step)
    return min(1.0, max(by_step, work / whole, (state.seconds - first_second) / usable))


def dropout_share(epoch: float, dropout_epochs: float) -> float:
    """Return the share of dropout at this point of training, in [0, 1].

    The share is rounded to eighths, as in earlier versions, so that runs keep their results.
    """
    return round(8 * min(1.0, epoch / dropout_epochs)) / 8


def lost_patience(state: RunState, config: TrainingConfig) -> str | None:
    """Return why patience ends the stage, or None if it does not."""
    if config.patience and state.validations_since_best >= config.patience:
        return f"no significant improvement of {state.metric} in {counted(config.patience, 'validation')}"
    return None


def end_reason(state: RunState, epoch: float, config: TrainingConfig, stages: Stages = ONE_STAGE) -> str | None:
    """Return why training ends here, or None if it continues.

    Patience ends training in the last stage, or if the next one begins after the last epoch of training: the skipped
    epochs of a stage count.
    """
    steps, epochs, seconds = limits(config)
    if state.step >= steps:
        return f"max_steps {steps:,.0f} reached"
    if epoch >= epochs:
        return f"max_epochs {epochs:g} reached"
    if state.seconds >= seconds - state.validation_seconds:
        return f"max_minutes {seconds / 60:g} reached"
    reason, following = lost_patience(state, config), stages.each[state.stage].end
    if reason is None or state.stage == stages.last:
        return reason
    if following < epochs:
        return None
    return f"{reason}; the next stage begins at epoch {following:g}, after the end of training"
