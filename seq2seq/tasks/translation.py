"""The task of translation: the abstract methods of `tasks.task`, for a configuration with `task: translation`."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from logging import getLogger
from pathlib import Path

import numpy as np
import torch
from torch import nn

from seq2seq.config.directions import BEST_OF, Sides
from seq2seq.data.collate import TranslationBatch
from seq2seq.data.directions import RowTags, tempered
from seq2seq.data.examples import Pair, Source
from seq2seq.data.stages import Part
from seq2seq.errors import ConfigError, DataError, did_you_mean, some_of
from seq2seq.evaluation.text import Score, score_texts
from seq2seq.evaluation.uncertainty import Measured, of_ratio
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator
from seq2seq.inspection.correspondence import find_unrelated, log_lengths
from seq2seq.inspection.swapped_sides import LINES, sides_are_swapped
from seq2seq.languages import direction_name
from seq2seq.model.transformer import Transformer
from seq2seq.store.calibration import Calibration
from seq2seq.store.direction import may_know_others
from seq2seq.store.model_card import ScoreRecord
from seq2seq.store.model_folder import LoadedModel, load_model
from seq2seq.tasks.directions import (
    MOST_TIMES,
    WORST,
    by_direction,
    rows_of_directions,
    target_of,
    unknown_share,
)
from seq2seq.tasks.stages import Share, shares_of
from seq2seq.tasks.task import Task
from seq2seq.text.direction import Direction
from seq2seq.training.loss import LossSum, translation_loss
from seq2seq.training.state import is_standard_error

logger = getLogger(__name__)


class TranslationTask(Task):
    """Translation; it is scored with the `Translator` that users get, on all sentences of a set."""

    examples = "pairs"

    @property
    def measure(self) -> str:
        """The settings of search and evaluation that change a score, as JSON."""
        search = self.config.search.model_dump(mode="json", exclude={"batch_tokens", "n_best", "record"})
        return json.dumps({"search": search, "evaluation": self.config.evaluation.model_dump(mode="json")})

    def _loss(self, model: nn.Module, batch: TranslationBatch, smoothing: float, r_drop: float = 0.0) -> LossSum:
        return translation_loss(model, batch, smoothing, r_drop, compiled=self.compilation.is_on)

    def _answers(self, model: nn.Module, examples: Sequence[Pair]) -> list[str]:
        answers = [""] * len(examples)
        for sides, rows in rows_of_directions(examples).items():
            texts = self._translations(model, sides, [examples[row].source for row in rows])
            for row, text in zip(rows, texts, strict=True):
                answers[row] = text
        return answers

    def _translations(self, model: nn.Module, sides: Sides | None, sources: Sequence[str]) -> list[str]:
        if self.answer_precision != torch.float32 and not self.config.training.shard:  # shards cannot be copied
            model = copy.deepcopy(model).to(self.answer_precision)
        tokenizers = self.tokenizers if sides is None else self.tokenizers.directed(Direction(*sides))
        engine = TorchEngine(TransformerSteps(model, tokenizers, self._runtime.device))
        translator = Translator(engine, tokenizers, self.config.search)
        return [translation.text for translation in translator.translate(sources)]

    def _scores(self, answers: Sequence[str], examples: Sequence[Pair]) -> dict[str, Measured]:
        def measured(rows: Sequence[int], sides: Sides | None) -> dict[str, Measured]:
            references = [examples[row].target for row in rows]
            found = self._score([answers[row] for row in rows], references, sides and sides[1])
            return {score.metric: score.measured for score in found}

        groups = rows_of_directions(examples)
        return by_direction({sides: measured(rows, sides) for sides, rows in groups.items()}, groups)

    def _ratio(self, name: str, numerators: np.ndarray, denominators: np.ndarray) -> dict[str, Measured]:
        groups = rows_of_directions(self._valid)
        found = {sides: {name: of_ratio(numerators[rows], denominators[rows])} for sides, rows in groups.items()}
        return by_direction(found, groups)

    def score_records(self, dataset: str, scores: Mapping[str, float]) -> list[ScoreRecord]:
        records, trained = [], self.inputs.known
        names = list(dict.fromkeys(name.partition(".")[2] for name in scores if not is_standard_error(name, scores)))
        directions = [name for name in names if name and name != WORST]
        for direction in ["", *directions]:
            target = self.config.single_languages[1] if not direction else target_of(direction, self.config.languages)
            # A signature depends only on the settings, so a placeholder text gives it; no validation may have run yet.
            for score in self._score(["."], ["."], target):
                zero_shot = "" if direction in trained or may_know_others(self.tokenizers) else ", zero-shot"
                title = f"{dataset} ({direction}{zero_shot})" if direction else dataset
                name = f"{score.metric}.{direction}" if direction else score.metric
                is_mean = not direction and directions
                if name in scores and not (is_mean and len(directions) == 1):
                    signature = f"mean of {len(directions)} directions" if is_mean else score.signature
                    records.append(ScoreRecord(title, score.metric, scores[name], signature))
        return records

    def _score(self, texts: Sequence[str], references: Sequence[str], target: str | None = None) -> list[Score]:
        evaluation, target = self.config.evaluation, target or self.config.target_language
        return score_texts(texts, references, evaluation.metrics, evaluation.tokenize, target)

    def calibrate(self, folder: Path) -> Calibration:
        """Return the calibration of alignments and confidence of the model in `folder`, on the validation set; of a
        model of many directions, on the first of them."""
        from seq2seq.inference.calibrating import MOST_PAIRS, calibrate  # at the end of a run, if at all

        sides, rows = next(iter(rows_of_directions(self._valid).items()))
        loaded = load_model(folder).directed(None if sides is None else Direction(*sides))
        pairs = [(self._valid[row].source, self._valid[row].target) for row in rows[:MOST_PAIRS]]
        here = replace(self._runtime, precision=self.answer_precision)
        loaded.model.to(here.device)
        return calibrate(loaded, here, pairs, partial(self._translations, loaded.model, sides))

    def _tags_of_training(self) -> RowTags | None:
        if self.config.languages is None:
            return None
        sizes = [stop - start for start, stop, _ in self.corpus.parts]
        return RowTags(self.tokenizers, [source.direction for source in self.inputs.train], sizes)

    def _tags_of_validation(self) -> RowTags | None:
        if self.config.languages is None:
            return None
        return RowTags(self.tokenizers, [pair.direction for pair in self._valid], [1] * len(self._valid))

    def direction_figures(self) -> list[str]:
        if self.config.languages is None:
            return []
        sources: dict[Sides, list[Source]] = {}
        for source in self.inputs.train:
            sources.setdefault(source.direction, []).append(source)
        unknown = {sides: 100 * unknown_share(sources[sides], self.tokenizers) for sides in sources}
        lines = [
            f"{stage}{direction_name(sides)}: {share}; unknown characters {unknown[sides]:.2g} %"
            for stage, shares in self._shares_of_directions().items()
            for sides, share in shares.items()
        ]
        count = self.corpus.counts.tags
        texts = [f"{count:,} texts contain the tag of a language, which is read as text"] * bool(count)
        return [*lines, *texts]

    def _warn_of_directions(self) -> None:
        """Warn of pairs that are seen very often, and of directions that are not validated.

        Raises:
            ConfigError: `training.best_of` is a direction that is not validated.
            DataError: a direction is validated that the model does not learn, so that its score would mean nothing.
        """
        for stage, shares in self._shares_of_directions().items():
            for sides, share in shares.items():
                if share.times > MOST_TIMES:
                    often = f"each pair is seen {share.times:,.0f} times an epoch"
                    logger.warning("%s%s: %s; lower data.temperature", stage, direction_name(sides), often)
        validated = {direction_name(pair.direction): None for pair in self._valid if pair.direction}
        best_of, choices = self.config.training.best_of, (*BEST_OF, *validated)
        if best_of not in choices:  # the configuration names no directions of a set whose lines name theirs
            ways = f"{', '.join(choices)}{did_you_mean(best_of, choices)}"
            raise ConfigError("config", [f"training.best_of: {best_of} is not one of {ways}"])
        trained = list(map(direction_name, self.inputs.trained))
        initial, known = self.inputs.initial, self.inputs.known
        knows_few = initial is None or not may_know_others(initial.tokenizers)
        if knows_few and (unknown := [name for name in validated if name not in known]):
            remedy = "move such sets to data.test, or add pairs to data.train"
            raise DataError(f"data.valid: data.train has no pairs for {some_of(unknown)}; {remedy}")
        if missing := [name for name in trained if name not in validated]:
            count = "this direction does not count" if len(missing) == 1 else "these directions do not count"
            logger.warning("data.valid: no set for %s; %s for the best model", some_of(missing), count)
        if others := [name for name in known if name not in trained]:
            remedy = "add pairs with a small weight to data.train to keep them, and a set to data.valid to see it"
            logger.warning("%s: trained before but not now, so the model may forget them; %s", some_of(others), remedy)

    def _shares_of_directions(self) -> dict[str, dict[Sides, Share]]:
        """Return the shares of the directions in an epoch of each stage, by the beginning of a line about it."""
        directions, stages = [source.direction for source in self.inputs.train], self.stages
        return {
            f"stage {number}, " if stages.last else "": shares_of(stage.parts, self.corpus.parts, directions)
            for number, stage in enumerate(stages.each, start=1)
        }

    def _weighed(self, parts: list[Part]) -> list[Part]:
        if self.config.languages is None:
            return parts
        directions = [source.direction for source in self.inputs.train]
        return tempered(parts, directions, self.config.data.temperature)

    def _new_model(self) -> Transformer:
        return Transformer(self.config.model, self.tokenizers.source.vocab_size, self.tokenizers.target.vocab_size)

    def _load_weights(self, initial: LoadedModel) -> bool:
        self.model.load_state_dict(initial.model.state_dict())
        return True

    def _check_corpora(self) -> None:
        """Warn of corpora whose sides are equal, look swapped against the first corpus, or do not correspond."""
        if not self._runtime.is_main:
            return
        if self.config.languages is not None:
            self._warn_of_directions()
        first, *train = self.inputs.train
        others = {source.name: source for source in train} | self.inputs.held_out
        usual: dict[Sides | None, tuple[list[str], list[str]]] = {}
        for name, source in {"data.train": first, **others}.items():
            sources, targets = lines = _first_lines(source)
            known = usual.setdefault(source.direction, lines)
            if sources == targets:
                logger.warning("%s: source and target are the same text; check the names of the files", name)
            elif known is not lines and sides_are_swapped(known, lines):
                logger.warning("%s: source and target look swapped against data.train; for details run s2s check", name)
        for source in self.inputs.train:
            sides = _first_lines(source)
            lengths = np.stack(list(map(log_lengths, sides)))
            if find_unrelated(lengths, None, np.arange(lengths.shape[1])):
                problem = "the lines of source and target do not correspond, at least in part"
                logger.warning("%s: %s; for details run s2s check", source.name, problem)


def _first_lines(source: Source) -> tuple[list[str], list[str]]:
    pairs = list(islice(source.untagged(), LINES))
    return [pair.source for pair in pairs], [pair.target for pair in pairs]
