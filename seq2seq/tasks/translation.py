"""Translation: what `tasks.task` leaves open, for a configuration with `task: translation`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from logging import getLogger
from pathlib import Path
from typing import Any

from torch import nn

from seq2seq.config import FilterConfig
from seq2seq.data.batches import TranslationBatch, TranslationBatches
from seq2seq.data.corpus import TokenCorpus, prepare_corpus
from seq2seq.data.sources import Pair, Source
from seq2seq.evaluation.text import Score, score_texts
from seq2seq.inference.engines import TorchEngine
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.translator import Translator
from seq2seq.inspection.word_pairs import SWAP_LINES, sides_are_swapped
from seq2seq.model.transformer import Transformer
from seq2seq.store.model_card import ScoreRecord
from seq2seq.store.model_folder import LoadedModel, load_model
from seq2seq.tasks.task import Task
from seq2seq.training.loss import LossSum, translation_loss
from seq2seq.training.state import Sample, Validation

logger = getLogger(__name__)


class TranslationTask(Task):
    """Scores are those of the translator that users get, over all sentences of a set."""

    examples = "pairs"

    @property
    def measure(self) -> str:
        """How translations are searched and scored, without what does not change a score."""
        search = self.config.search.model_dump(mode="json", exclude={"batch_tokens", "n_best"})
        return json.dumps({"search": search, "evaluation": self.config.evaluation.model_dump(mode="json")})

    def compute_loss(self, model: nn.Module, batch: TranslationBatch) -> LossSum:
        return translation_loss(model, batch, self.config.training.label_smoothing)

    def validate(self, model: nn.Module) -> Validation:
        def measure(batch: TranslationBatch) -> tuple[float, float, int]:
            sums = translation_loss(model, batch, smoothing=0.0)
            return float(sums.total), float(sums.correct), sums.count

        loss, correct, count = map(sum, zip(*self._measured(measure, self.config.training.batch_tokens), strict=True))
        rank, size = self._runtime.rank, self._runtime.world_size
        texts = [""] * len(self._valid)
        for index, part in enumerate(self._runtime.gather(self._translate(model, self._valid[rank::size]))):
            texts[index::size] = part
        scores = {score.metric: score.score for score in self._scores(texts, self._valid)}
        shown = zip(self._valid[: self.config.training.num_samples], texts, strict=False)
        samples = [Sample(pair.source, pair.target, output) for pair, output in shown]
        return Validation({"valid_loss": loss / count, "valid_accuracy": correct / count, **scores}, samples)

    def score_records(self, metrics: Mapping[str, float]) -> list[ScoreRecord]:
        # A signature depends on the settings alone: a run that continues may end before its next validation.
        signatures = {score.metric: score.signature for score in self._scores(["."], [Pair(".", ".")])}
        return [ScoreRecord("valid", name, metrics[name], signatures[name]) for name in signatures if name in metrics]

    def score_test_sets(self, folder: Path) -> list[ScoreRecord]:
        model, records = load_model(folder).model.to(self._runtime.device), []
        for name, source in self.inputs.tests.items():
            pairs = list(source)
            scores = self._scores(self._translate(model, pairs), pairs)
            records += [ScoreRecord(name, score.metric, score.score, score.signature) for score in scores]
        return records

    def _translate(self, model: nn.Module, pairs: Iterable[Pair]) -> list[str]:
        engine = TorchEngine(TransformerSteps(model, self.tokenizers, self._runtime.device))
        translator = Translator(engine, self.tokenizers, self.config.search)
        return [translation.text for translation in translator.translate([pair.source for pair in pairs])]

    def _scores(self, texts: Sequence[str], pairs: Iterable[Pair]) -> list[Score]:
        evaluation, references = self.config.evaluation, [pair.target for pair in pairs]
        return score_texts(texts, references, evaluation.metrics, evaluation.tokenize, self.config.target_language)

    def _prepare(self, sources: Sequence[Source], filters: FilterConfig | None) -> TokenCorpus:
        return prepare_corpus(sources, self.tokenizers, filters, self.inputs.cache, self.config.data.num_workers)

    def _batches(self, corpus: TokenCorpus, *sampling: Any, max_pieces: int | None = None) -> TranslationBatches:
        return TranslationBatches(corpus, self.tokenizers, *sampling, max_pieces=max_pieces)

    def _new_model(self) -> Transformer:
        return Transformer(self.config.model, self.tokenizers.source.vocab_size, self.tokenizers.target.vocab_size)

    def _load_weights(self, initial: LoadedModel) -> bool:
        self.model.load_state_dict(initial.model.state_dict())
        return True

    def _check_corpora(self) -> None:
        """Say where the sides of a corpus look swapped against those of the first training corpus."""
        if not self._runtime.is_main:
            return
        first, *train = self.inputs.train
        tests = {f"data.test.{name}": source for name, source in self.inputs.tests.items()}
        others = {source.name: source for source in train} | {"data.valid": self.inputs.valid} | tests
        usual = _first_lines(first)
        for name, source in others.items():
            if sides_are_swapped(usual, _first_lines(source)):
                logger.warning("%s: source and target look swapped against data.train; s2s check tells more", name)


def _first_lines(source: Source) -> tuple[list[str], list[str]]:
    pairs = list(islice(source, SWAP_LINES))
    return [pair.source for pair in pairs], [pair.target for pair in pairs]
