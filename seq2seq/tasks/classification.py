"""Classification: what `tasks.task` leaves open, for a configuration with `task: classification`.

The encoder may come from a translation model (`training.init_from`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seq2seq.config import FilterConfig
from seq2seq.config_values import displayed_labels
from seq2seq.data.batches import ClassificationBatch, ClassificationBatches
from seq2seq.data.corpus import TokenCorpus, prepare_labelled_corpus
from seq2seq.data.sources import Source
from seq2seq.errors import ConfigError, DataError, some_of
from seq2seq.evaluation.classification import classification_report
from seq2seq.inference.classifier import Classifier
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.store.model_card import ScoreRecord
from seq2seq.store.model_folder import LoadedModel, load_model
from seq2seq.tasks.task import Task
from seq2seq.training.loss import LossSum, classification_loss
from seq2seq.training.state import Sample, Validation

MEASURES = ("accuracy", "precision", "recall", "f1")
MOST_TOKENS = 8192  # of a validation batch


class ClassificationTask(Task):
    """Scores are accuracy, and macro precision, recall and F1."""

    examples = "texts"

    def compute_loss(self, model: nn.Module, batch: ClassificationBatch) -> LossSum:
        return classification_loss(model, batch, self.config.training.label_smoothing)

    def validate(self, model: nn.Module) -> Validation:
        def measure(batch: ClassificationBatch) -> tuple[float, list[int], list[int]]:
            logits = model(batch.source_ids, batch.source_mask).float()  # (B, C)
            total = float(nn.functional.cross_entropy(logits, batch.labels, reduction="sum"))
            return total, batch.indices.tolist(), logits.argmax(dim=1).tolist()

        losses, indices, found = zip(
            *self._measured(measure, min(self.config.training.batch_tokens, MOST_TOKENS)), strict=True
        )
        predicted = dict(zip(chain.from_iterable(indices), chain.from_iterable(found), strict=True))
        answers = [self.labels[predicted[index]] for index in range(len(self._valid))]
        report = classification_report([text.label for text in self._valid], answers, self.labels)
        metrics = {"valid_loss": sum(losses) / len(answers)} | {name: getattr(report, name) for name in MEASURES}
        shown = zip(self._valid[: self.config.training.num_samples], answers, strict=False)
        return Validation(metrics, [Sample(text.text, text.label, answer) for text, answer in shown])

    def score_records(self, metrics: Mapping[str, float]) -> list[ScoreRecord]:
        return _records("valid", metrics)

    def score_test_sets(self, folder: Path) -> list[ScoreRecord]:
        classifier = Classifier(load_model(folder), replace(self._runtime, precision=torch.float32))
        records = []
        for name, source in self.inputs.tests.items():
            texts = list(source)
            gold = [classifier.name_of(text.label) for text in texts]
            if unknown := sorted(set(gold) - set(classifier.labels)):
                known, first = some_of(classifier.labels), some_of(unknown[:1])
                raise DataError(f"data.test.{name}: the model has no label {first!r}; its labels are {known}")
            answers = [answer.label for answer in classifier.classify([text.text for text in texts])]
            records += _records(name, vars(classification_report(gold, answers, classifier.labels)))
        return records

    def _prepare(self, sources: Sequence[Source], filters: FilterConfig | None) -> TokenCorpus:
        workers, labels = self.config.data.num_workers, self.labels or None
        return prepare_labelled_corpus(sources, self.tokenizers.source, filters, self.inputs.cache, workers, labels)

    def _batches(self, corpus: TokenCorpus, *sampling: Any, max_pieces: int | None = None) -> ClassificationBatches:
        return ClassificationBatches(corpus, self.tokenizers.source, *sampling, max_pieces=max_pieces)

    def _new_model(self) -> EncoderClassifier:
        vocab_size = self.tokenizers.source.vocab_size
        return EncoderClassifier(self.config.model, self.config.classifier, vocab_size, len(self.labels))

    def _load_weights(self, initial: LoadedModel) -> bool:
        """The encoder's, and those of the head too where it knows the same labels."""
        self.model.encoder.load_state_dict(initial.model.encoder.state_dict())
        own, found = self.model.state_dict(), initial.model.state_dict()
        fits = initial.description.task == "classification" and initial.description.labels == self.labels
        if fits and {name: own[name].shape for name in own} == {name: found[name].shape for name in found}:
            self.model.load_state_dict(found)
            return True
        return False

    def _check_corpora(self) -> None:
        labels, names, problems = self.labels, self.config.data.label_names, []
        if len(labels) < 2:
            problems.append(f"data.train: all texts have the label {labels[0]!r}; a classifier needs two or more")
        unknown = [label for label in names if label not in labels]
        problems += [
            f"data.label_names.{label}: no text has this label; there are {some_of(labels)}" for label in unknown
        ]
        try:
            displayed_labels(labels, names)
        except ValueError as error:
            problems.append(f"data.label_names: {error}")
        if problems:
            raise ConfigError("config", problems)


def _records(dataset: str, metrics: Mapping[str, Any]) -> list[ScoreRecord]:
    return [ScoreRecord(dataset, name, 100 * metrics[name], "percent") for name in MEASURES if name in metrics]
