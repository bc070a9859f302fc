"""Lines of text to labels with probabilities.

`Classifier` is loaded from model folders by `s2s classify` and by library users. It returns a `Classification` for each
line, in order.

Shapes: P parts of lines, B parts in a batch, C labels.
"""

import math
from collections import ChainMap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from seq2seq.data.collate import ClassificationBatch, collate_classification
from seq2seq.errors import ModelError, some_of
from seq2seq.inference.batching import equal_parts, token_groups
from seq2seq.inference.one_model import OneModel
from seq2seq.lines import checked_texts
from seq2seq.memory import in_parts
from seq2seq.runtime import Runtime
from seq2seq.store.model_folder import LoadedModel

SPECIAL_IDS = 2  # the tokenizer's start in front of a text and its end behind it


@dataclass(frozen=True)
class Classification:
    """The answer for one line; a blank line has no label, probability 0 and no classes."""

    label: str
    probability: float
    probabilities: dict[str, float]
    """Of every label, in the model's order; they add up to 1."""


NO_TEXT = Classification(label="", probability=0.0, probabilities={})


class ClassifierModel(OneModel):
    """One classification model with its tokenizer."""

    task = "classification"
    other_command = "s2s classify needs one of task: classification"

    def __init__(self, loaded: LoadedModel, runtime: Runtime, batch_tokens: int | None = None):
        super().__init__(loaded, runtime, batch_tokens)
        self.folder = loaded.folder
        self._num_labels = len(loaded.description.labels)
        self._tokenizer = loaded.tokenizers.source
        self._part_length = self._model.config.max_length - SPECIAL_IDS

    def probabilities(self, lines: Sequence[str]) -> list[Tensor | None]:
        """(C,) in float64 of each line, in the model's order of labels; None of a line without text.

        A line longer than the model's positions is read in parts, and its probabilities are the mean over the parts by
        length: nothing is dropped.
        """
        cuts = [equal_parts(ids, math.ceil(len(ids) / self._part_length)) for ids in self._tokenizer.read_all(lines)]
        parts = self._of_parts([part for cut in cuts for part in cut])
        found = []
        for cut, rows in zip(cuts, parts.split(list(map(len, cuts))), strict=True):
            weights = torch.tensor([len(part) for part in cut], dtype=torch.float64)
            found.append(weights @ rows / weights.sum() if cut else None)  # (P,) @ (P, C) -> (C,)
        return found

    @torch.inference_mode()
    def _of_parts(self, parts: Sequence[Sequence[int]]) -> Tensor:
        """(P, C) in float64, in the order of `parts`."""
        answers = torch.zeros(len(parts), self._num_labels, dtype=torch.float64)

        def compute(batch: ClassificationBatch) -> Tensor:
            batch = batch.to(self._runtime.device)
            with self._runtime.autocast():
                logits = self._model(batch.source_ids, batch.source_mask)  # (B, C)
            return logits.float().softmax(dim=-1).double().cpu()

        for indices in token_groups([len(part) + SPECIAL_IDS for part in parts], self.batch_tokens):
            texts = [parts[index] for index in indices]
            batch = collate_classification(texts, [0] * len(indices), self._tokenizer, indices)
            answers[torch.tensor(indices)] = torch.cat(in_parts(compute, batch))
        return answers


class Classifier:
    """Labels text by a classification model, or by an ensemble: the mean of the probabilities of several models.

    The models may have different tokenizers and sizes. Their labels are the same as answers show them, in any order;
    `labels` and `description` are those of the first.

    Raises:
        ModelError: a model has other labels than the first.
    """

    def __init__(self, *members: ClassifierModel):
        first = members[0]
        self.description = first.description
        self.labels = first.description.displayed_labels
        for member in members[1:]:
            if different := sorted(set(member.description.displayed_labels) ^ set(self.labels)):
                raise ModelError(
                    f"{member.folder}: its labels are not those of {first.folder} (only one has {some_of(different)}); "
                    "an ensemble needs the same labels"
                )
        self._members = members
        self._orders = [list(map(member.description.displayed_labels.index, self.labels)) for member in members]
        self._names = ChainMap(*(member.description.label_names for member in members))

    @classmethod
    def load(
        cls,
        *paths: str | Path | None,
        device: str = "auto",
        precision: str | None = None,
        threads: int | None = None,
        batch_tokens: int | None = None,
    ) -> Self:
        """Load a model folder or a run folder (then its best model); several are an ensemble; none is the
        newest classification run.

        The options are those of `OneModel.load`.

        Raises:
            ModelError: there is no model, it is damaged, is no classifier, or has other labels than the first.
            UserError: a device or precision that does not exist here.
        """
        return cls(*(ClassifierModel.load(path, device, precision, threads, batch_tokens) for path in paths or (None,)))

    def name_of(self, label: str) -> str:
        """What a label of the training data is called in the answers (`data.label_names` of its config)."""
        return self._names.get(label, label)

    def classify(self, lines: Iterable[str]) -> list[Classification]:
        """Label each line; a blank line never reaches a model."""
        lines = [line.strip() for line in checked_texts(lines, "classify")]
        return list(map(self._answer, *(member.probabilities(lines) for member in self._members)))

    def _answer(self, *rows: Tensor | None) -> Classification:
        """Of one line, for which each member has a row (C,)."""
        found = [row[order] for row, order in zip(rows, self._orders, strict=True) if row is not None]
        if not found:
            return NO_TEXT
        shares = dict(zip(self.labels, torch.stack(found).mean(dim=0).tolist(), strict=True))
        best = max(shares, key=shares.__getitem__)
        return Classification(best, shares[best], shares)
