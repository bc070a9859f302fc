"""Choice of search settings, and of a mean of checkpoints as the model, on a validation set.

`s2s tune` uses it. Every candidate is loaded and translates as `s2s translate` does.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from seq2seq.config.directions import Sides
from seq2seq.data.examples import Pair
from seq2seq.errors import ModelError
from seq2seq.evaluation.text import Score, score_texts
from seq2seq.inference.engine import ONE_BEST
from seq2seq.inference.pipeline import Pipeline
from seq2seq.languages import direction_name
from seq2seq.tasks.directions import rows_of_directions
from seq2seq.text.direction import Direction
from seq2seq.workflows.parts import folder_record

logger = logging.getLogger(__name__)

# Higher penalties favour longer translations; 1 ranks by the mean log-probability of a piece.
LENGTH_PENALTIES = (0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5)
BEAM_SIZES = (1, 2, 4, 5, 8, 12)
# A gain below this, in points of the metric, counts as chance, and the setting is kept. The smallest beam within this
# distance of the best is chosen, because larger ones cost time at every translation.
LEAST_GAIN = 0.1


@dataclass(frozen=True)
class Trial:
    """A candidate and its scores on the validation set."""

    weights: str
    """`the model`, or `mean of N`."""
    beam_size: int
    length_penalty: float
    scores: Mapping[str, float]
    seconds: float

    @property
    def search(self) -> dict[str, Any]:
        """The search settings of the candidate, by key of the configuration's section."""
        return {"beam_size": self.beam_size, "length_penalty": self.length_penalty}


@dataclass(frozen=True)
class Scoring:
    """Settings of the measurement of translations."""

    metric: str
    """The metric that decides: bleu, chrf or chrf++."""
    tokenize: str | None
    target_language: str | None
    """The target language of pairs without a direction."""

    def scores(self, texts: Sequence[str], pairs: Sequence[Pair]) -> dict[str, float]:
        """Return BLEU, chrF and the metric that decides, by name.

        Pairs of several directions have the means over the directions, and the scores of each (`bleu.en-de`).
        """
        each = {
            sides: self._scored([texts[row] for row in rows], [pairs[row].target for row in rows], sides)
            for sides, rows in rows_of_directions(pairs).items()
        }
        if len(each) == 1:
            return {score.metric: score.score for score in next(iter(each.values()))}
        columns = zip(*each.values(), strict=True)
        means = {column[0].metric: fmean(score.score for score in column) for column in columns}
        own = {_named(score.metric, sides): score.score for sides, found in each.items() for score in found}
        return means | own

    def signatures(self, pairs: Sequence[Pair]) -> dict[str, str]:
        """Return the signatures of the scores of these pairs by metric, or by metric and direction if they differ."""
        each = {sides: self._scored(["."], ["."], sides) for sides in rows_of_directions(pairs)}
        found = {_named(score.metric, sides): score.signature for sides, own in each.items() for score in own}
        shared = {score.metric: score.signature for own in each.values() for score in own}
        return shared if set(shared.values()) == set(found.values()) else found

    def _scored(self, texts: Sequence[str], references: Sequence[str], sides: Sides | None) -> list[Score]:
        target = self.target_language if sides is None else sides[1]
        return score_texts(texts, references, self._metrics, self.tokenize, target)

    @property
    def _metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("bleu", "chrf", self.metric)))


class Tuner:
    """Evaluation of candidates on one validation set; none is evaluated twice."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        scoring: Scoring,
        loading: Mapping[str, Any],
        report: Callable[[Trial], None] = lambda trial: None,
    ):
        """Initialize without evaluating anything.

        Args:
            pairs: the validation set. Pairs without a direction have that of `loading`, or the only one of the model.
            scoring: how translations are measured; of several directions, the mean decides.
            loading: options of `Translator.load` other than the search settings.
            report: called after each trial.
        """
        self._pairs, self._scoring, self._loading, self._report = pairs, scoring, loading, report
        self._model, self._record = Path(), ""  # the tuned model, and its fingerprint before the first trial
        self.trials: dict[tuple[str, int, float], Trial] = {}

    def tune(self, models: Mapping[str, Path]) -> tuple[Trial, Trial]:
        """Return the candidate with the settings of the model, and the best candidate.

        Args:
            models: folders by name; the first is the model itself, the others are means of checkpoints. The weights are
                chosen first, then the length penalty, then the beam size, at least the model's n_best. A search of all
                combinations would take eight times as long, and fit noise.

        Raises:
            ModelError: a model cannot be read, or as in `check_unchanged`.
        """
        first, *means = models.items()
        self._model, self._record = first[1], folder_record(first[1])
        settings = Pipeline.load(first[1], **self._loading, all_languages=True).translator.config
        if settings.sample:
            logger.warning(
                "%s: draws its translations at random (search.sample); the chosen beam size and length penalty take "
                "effect only without it", first[1],
            )  # fmt: skip
        fewest = 1 if settings.sample else settings.n_best  # hypotheses of a beam from which the model returns n_best
        start = best = self._trial(*first, settings.beam_size, settings.length_penalty)
        best = self._better(best, [self._trial(*mean, best.beam_size, best.length_penalty) for mean in means])
        name, folder = best.weights, models[best.weights]
        best = self._better(best, [self._trial(name, folder, best.beam_size, value) for value in LENGTH_PENALTIES])
        sizes = [best, *(self._trial(name, folder, size, best.length_penalty) for size in BEAM_SIZES if size >= fewest)]
        enough = max(map(self._value, sizes)) - LEAST_GAIN
        good = [trial for trial in sizes if self._value(trial) >= enough]
        chosen = min(good, key=lambda trial: trial.beam_size)
        if (loss := self._value(start) - self._value(chosen)) > 0:
            logger.info(
                "beam size %d instead of %d: %s is %.2f lower, which is less than %g", chosen.beam_size,
                start.beam_size, self._scoring.metric, loss, LEAST_GAIN,
            )  # fmt: skip
        return start, chosen

    def check_unchanged(self) -> None:
        """Check that the tuned model still has the weights and settings of the first trial.

        Raises:
            ModelError: it has others, so the scores of trials cannot be compared.
        """
        with contextlib.suppress(OSError):  # it is gone
            if folder_record(self._model) == self._record:
                return
        raise ModelError(f"{self._model}: changed while it was tuned; tune it again when nothing writes to it")

    def _value(self, trial: Trial) -> float:
        return trial.scores[self._scoring.metric]

    def _better(self, kept: Trial, others: Sequence[Trial]) -> Trial:
        """Return the best of the others if its gain over `kept` is large enough, else `kept`."""
        best = max(others, key=self._value, default=kept)
        return best if self._value(best) - self._value(kept) >= LEAST_GAIN else kept

    def _trial(self, name: str, folder: Path, beam_size: int, length_penalty: float) -> Trial:
        key = name, beam_size, length_penalty
        if key not in self.trials:
            began = time.perf_counter()
            found = translated(folder, self._pairs, self._loading, beam_size=beam_size, length_penalty=length_penalty)
            scores = self._scoring.scores(found, self._pairs)
            self.trials[key] = Trial(name, beam_size, length_penalty, scores, time.perf_counter() - began)
            self.check_unchanged()
            self._report(self.trials[key])
        return self.trials[key]


def score_changes(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the scores before and after tuning by name, as `update_search` stores them."""
    return {name: {"before": before[name], "after": after[name]} for name in before}


def translated(folder: Path, pairs: Sequence[Pair], loading: Mapping[str, Any], **search: Any) -> list[str]:
    """Return the best translations with these search settings, as users of the model get them, each in the direction of
    its pair."""
    groups, texts = rows_of_directions(pairs), [""] * len(pairs)
    whole = Pipeline.load(folder, **loading, **search, **ONE_BEST, all_languages=None not in groups)
    for sides, rows in groups.items():
        pipeline = whole if sides is None else Pipeline(whole.translator.directed(Direction(*sides)))
        answers = pipeline.translate([pairs[row].source for row in rows])
        for row, answer in zip(rows, answers, strict=True):
            texts[row] = answer.text
    return texts


def _named(metric: str, sides: Sides | None) -> str:
    return metric if sides is None else f"{metric}.{direction_name(sides)}"
