"""The task of classification: the abstract methods of `tasks.task`, for a configuration with `task: classification`.

The encoder may come from a translation model (`training.init_from`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from logging import getLogger
from pathlib import Path

from torch import nn

from seq2seq.config.description import ModelDescription
from seq2seq.config.values import displayed_labels
from seq2seq.data.collate import ClassificationBatch
from seq2seq.data.examples import LabelledText
from seq2seq.errors import ConfigError, shown, some_of
from seq2seq.evaluation.uncertainty import Measured, of_macro_scores
from seq2seq.inference.classifier import Classifier, ClassifierModel
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.store.model_card import ScoreRecord
from seq2seq.store.model_folder import LoadedModel
from seq2seq.tasks.task import Task
from seq2seq.training.loss import LossSum, classification_loss

logger = getLogger(__name__)

MEASURES = ("accuracy", "precision", "recall", "f1")


class ClassificationTask(Task):
    """Classification; its scores are accuracy, and macro precision, recall and F1."""

    examples = "texts"

    def _loss(self, model: nn.Module, batch: ClassificationBatch, smoothing: float, r_drop: float = 0.0) -> LossSum:
        return classification_loss(model, batch, smoothing, r_drop)

    def _answers(self, model: nn.Module, examples: Sequence[LabelledText]) -> list[str]:
        described = ModelDescription.of(self.config, self.labels).model_copy(update={"label_names": {}})
        loaded = LoadedModel(described, model, self.tokenizers, Path(), {})
        classifier = Classifier(ClassifierModel(loaded, replace(self._runtime, precision=self.answer_precision)))
        return [answer.label for answer in classifier.classify([text.text for text in examples])]

    def _scores(self, answers: Sequence[str], examples: Sequence[LabelledText]) -> dict[str, Measured]:
        gold = [text.label for text in examples]
        return of_macro_scores(gold, answers)

    def score_records(self, dataset: str, scores: Mapping[str, float]) -> list[ScoreRecord]:
        return [ScoreRecord(dataset, name, 100 * scores[name], "percent") for name in MEASURES if name in scores]

    def _new_model(self) -> EncoderClassifier:
        vocab_size = self.tokenizers.source.vocab_size
        return EncoderClassifier(self.config.model, self.config.classifier, vocab_size, len(self.labels))

    def _load_weights(self, initial: LoadedModel) -> bool:
        """Load the weights of the encoder, and those of the head if labels and pooling are the same."""
        self.model.encoder.load_state_dict(initial.model.encoder.state_dict())
        was, pooling = initial.description, self.config.classifier.pooling
        differing = {
            "the initial model is not a classifier": was.task != "classification",
            "the initial model has other labels": was.labels != self.labels,
            f"classifier.pooling is {pooling}, and that of the initial model {was.classifier.pooling}":
                was.classifier.pooling != pooling,
        }  # fmt: skip
        if why := next((words for words, applies in differing.items() if applies), ""):
            if self._runtime.is_main:
                logger.info("the classification head is new: %s", why)
            return False
        self.model.load_state_dict(initial.model.state_dict())
        return True

    def _check_corpora(self) -> None:
        labels, names, problems = self.labels, self.config.data.label_names, []
        if len(labels) < 2:
            problems.append(f"data.train: all texts have the label {shown(labels[0])}; a classifier needs two or more")
        unknown = [label for label in names if label not in labels]
        problems += [
            f"data.label_names.{label}: no text has this label; the labels are {some_of(labels)}" for label in unknown
        ]
        try:
            displayed_labels(labels, names)
        except ValueError as error:
            problems.append(f"data.label_names: {error}")
        if problems:
            raise ConfigError("config", problems)
