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

from seq2seq.data.collate import TranslationBatch
from seq2seq.data.examples import Pair, Source
from seq2seq.evaluation.text import Score, score_texts
from seq2seq.evaluation.uncertainty import Measured
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator
from seq2seq.inspection.correspondence import find_unrelated, log_lengths
from seq2seq.inspection.swapped_sides import LINES, sides_are_swapped
from seq2seq.model.transformer import Transformer
from seq2seq.store.calibration import Calibration
from seq2seq.store.model_card import ScoreRecord
from seq2seq.store.model_folder import LoadedModel, load_model
from seq2seq.tasks.task import Task
from seq2seq.training.loss import LossSum, translation_loss

logger = getLogger(__name__)


class TranslationTask(Task):
    """Translation; it is scored with the `Translator` that users get, on all sentences of a set."""

    examples = "pairs"

    @property
    def measure(self) -> str:
        """The settings of search and evaluation that change a score, as JSON."""
        search = self.config.search.model_dump(mode="json", exclude={"batch_tokens", "n_best"})
        return json.dumps({"search": search, "evaluation": self.config.evaluation.model_dump(mode="json")})

    def _loss(self, model: nn.Module, batch: TranslationBatch, smoothing: float, r_drop: float = 0.0) -> LossSum:
        return translation_loss(model, batch, smoothing, r_drop, compiled=self.compilation.is_on)

    def _answers(self, model: nn.Module, examples: Sequence[Pair]) -> list[str]:
        return self._translations(model, [pair.source for pair in examples])

    def _translations(self, model: nn.Module, sources: Sequence[str]) -> list[str]:
        if self.answer_precision != torch.float32 and not self.config.training.shard:  # shards cannot be copied
            model = copy.deepcopy(model).to(self.answer_precision)
        engine = TorchEngine(TransformerSteps(model, self.tokenizers, self._runtime.device))
        translator = Translator(engine, self.tokenizers, self.config.search)
        return [translation.text for translation in translator.translate(sources)]

    def _scores(self, answers: Sequence[str], examples: Sequence[Pair]) -> dict[str, Measured]:
        return {score.metric: score.measured for score in self._score(answers, [pair.target for pair in examples])}

    def score_records(self, dataset: str, scores: Mapping[str, float]) -> list[ScoreRecord]:
        # A signature depends only on the settings, so a placeholder text gives it; no validation may have run yet.
        signatures = {score.metric: score.signature for score in self._score(["."], ["."])}
        return [ScoreRecord(dataset, name, scores[name], signatures[name]) for name in signatures if name in scores]

    def _score(self, texts: Sequence[str], references: Sequence[str]) -> list[Score]:
        evaluation = self.config.evaluation
        return score_texts(texts, references, evaluation.metrics, evaluation.tokenize, self.config.target_language)

    def calibrate(self, folder: Path) -> Calibration:
        """Return the calibration of alignments and confidence of the model in `folder`, on the validation set."""
        from seq2seq.inference.calibrating import MOST_PAIRS, calibrate  # at the end of a run, if at all

        loaded, pairs = load_model(folder), [(pair.source, pair.target) for pair in self._valid[:MOST_PAIRS]]
        here = replace(self._runtime, precision=self.answer_precision)
        loaded.model.to(here.device)
        return calibrate(loaded, here, pairs, partial(self._translations, loaded.model))

    def _new_model(self) -> Transformer:
        return Transformer(self.config.model, self.tokenizers.source.vocab_size, self.tokenizers.target.vocab_size)

    def _load_weights(self, initial: LoadedModel) -> bool:
        self.model.load_state_dict(initial.model.state_dict())
        return True

    def _check_corpora(self) -> None:
        """Warn of corpora whose sides are equal, look swapped against the first corpus, or do not correspond."""
        if not self._runtime.is_main:
            return
        first, *train = self.inputs.train
        tests = {f"data.test.{name}": source for name, source in self.inputs.tests.items()}
        others = {source.name: source for source in train} | {"data.valid": self.inputs.valid} | tests
        usual = _first_lines(first)
        for name, source in {"data.train": first, **others}.items():
            sources, targets = usual if source is first else _first_lines(source)
            if sources == targets:
                logger.warning("%s: source and target are the same text; check the names of the files", name)
            elif source is not first and sides_are_swapped(usual, (sources, targets)):
                logger.warning("%s: source and target look swapped against data.train; for details run s2s check", name)
        for source in self.inputs.train:
            sides = _first_lines(source)
            lengths = np.stack(list(map(log_lengths, sides)))
            if find_unrelated(lengths, None, np.arange(lengths.shape[1])):
                problem = "the lines of source and target do not correspond, at least in part"
                logger.warning("%s: %s; for details run s2s check", source.name, problem)


def _first_lines(source: Source) -> tuple[list[str], list[str]]:
    pairs = list(islice(source, LINES))
    return [pair.source for pair in pairs], [pair.target for pair in pairs]
