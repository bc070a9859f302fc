"""Choose how a model searches, and which mean of its checkpoints is the model, on a validation set.

`s2s tune` asks for it. Every candidate is what users would get: it is loaded and translates as `s2s translate` does.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq.data.examples import Pair
from seq2seq.evaluation.text import score_texts
from seq2seq.inference.translator import Translator

# Higher penalties favour longer translations; 1 ranks by the mean log-probability of a piece.
LENGTH_PENALTIES = (0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5)
BEAM_SIZES = (1, 2, 4, 5, 8, 12)
# What gains less than this much of the metric is chance: the setting stays as it is, and of the beams the smallest is
# taken that is no further below the best, because a larger one costs time at every translation.
LEAST_GAIN = 0.1


@dataclass(frozen=True)
class Trial:
    """A candidate and what it reached on the validation set."""

    weights: str
    """`the model`, or `mean of N`."""
    beam_size: int
    length_penalty: float
    scores: Mapping[str, float]
    seconds: float

    @property
    def search(self) -> dict[str, Any]:
        """The keys of the search section that were chosen."""
        return {"beam_size": self.beam_size, "length_penalty": self.length_penalty}


@dataclass(frozen=True)
class Scoring:
    """How translations are measured."""

    metric: str
    """The metric that decides: bleu, chrf or chrf++."""
    tokenize: str | None
    target_language: str | None

    def scores(self, texts: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """BLEU, chrF and the metric that decides."""
        found = score_texts(texts, references, self._metrics, self.tokenize, self.target_language)
        return {score.metric: score.score for score in found}

    def signatures(self) -> dict[str, str]:
        """By metric; they depend on the settings alone."""
        found = score_texts(["."], ["."], self._metrics, self.tokenize, self.target_language)
        return {score.metric: score.signature for score in found}

    @property
    def _metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("bleu", "chrf", self.metric)))


class Tuner:
    """Tries candidates on one validation set; none is tried twice."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        scoring: Scoring,
        loading: Mapping[str, Any],
        report: Callable[[Trial], None] = lambda trial: None,
    ):
        """Prepare.

        Args:
            pairs: the validation set.
            scoring: how translations are measured.
            loading: the options of `Translator.load` beside the search settings.
            report: called after each trial.
        """
        self._pairs, self._scoring, self._loading, self._report = pairs, scoring, loading, report
        self.trials: dict[tuple[str, int, float], Trial] = {}

    def tune(self, models: Mapping[str, Path]) -> tuple[Trial, Trial]:
        """The candidate that models start from, and the best one found.

        Args:
            models: folders by what they are called; the first is the model as it is. The weights are chosen first, then
                the length penalty, then the beam, each with the others as they are: a search of all combinations would
                take eight times as long, and find chance.
        """
        first, *means = models.items()
        settings = Translator.load(first[1], **self._loading).config
        start = best = self._trial(*first, settings.beam_size, settings.length_penalty)
        best = self._better(best, [self._trial(*mean, best.beam_size, best.length_penalty) for mean in means])
        name, folder = best.weights, models[best.weights]
        best = self._better(best, [self._trial(name, folder, best.beam_size, value) for value in LENGTH_PENALTIES])
        sizes = [best, *(self._trial(name, folder, size, best.length_penalty) for size in BEAM_SIZES)]
        enough = max(map(self._value, sizes)) - LEAST_GAIN
        good = [trial for trial in sizes if self._value(trial) >= enough]
        return start, min(good, key=lambda trial: trial.beam_size)

    def _value(self, trial: Trial) -> float:
        return trial.scores[self._scoring.metric]

    def _better(self, kept: Trial, others: Sequence[Trial]) -> Trial:
        """The best of the others where it gains enough over the one that would be kept."""
        best = max(others, key=self._value, default=kept)
        return best if self._value(best) - self._value(kept) >= LEAST_GAIN else kept

    def _trial(self, name: str, folder: Path, beam_size: int, length_penalty: float) -> Trial:
        key = name, beam_size, length_penalty
        if key not in self.trials:
            began = time.perf_counter()
            found = translated(folder, self._pairs, self._loading, beam_size=beam_size, length_penalty=length_penalty)
            scores = self._scoring.scores(found, [pair.target for pair in self._pairs])
            self.trials[key] = Trial(name, beam_size, length_penalty, scores, time.perf_counter() - began)
            self._report(self.trials[key])
        return self.trials[key]


def translated(folder: Path, pairs: Sequence[Pair], loading: Mapping[str, Any], **search: Any) -> list[str]:
    """The translations that users of a model get with these search settings."""
    translator = Translator.load(folder, **loading, **search)
    return [translation.text for translation in translator.translate([pair.source for pair in pairs])]
