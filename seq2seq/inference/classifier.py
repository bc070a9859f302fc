"""The classification of lines of text: labels with probabilities.

`s2s classify`, the server and library users load a `Classifier` from model folders. It returns a `Classification` for
each line, in order.

Shapes: P parts of lines, B parts in a batch, C labels.
"""

import math
from collections import ChainMap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from seq2seq.data.collate import ClassificationBatch, collate_classification
from seq2seq.errors import ModelError, shown, some_of
from seq2seq.inference.groups import equal_parts, token_groups
from seq2seq.inference.one_model import OneModel
from seq2seq.lines import checked_texts
from seq2seq.memory import in_parts
from seq2seq.runtime import Runtime
from seq2seq.store.model_folder import LoadedModel

logger = getLogger(__name__)

SPECIAL_IDS = 2  # the tokenizer's start before a text and its end after it


@dataclass(frozen=True)
class Classification:
    """The answer for one line; a blank line has the label "", probability 0 and no probabilities of labels."""

    label: str
    probability: float
    probabilities: dict[str, float]
    """The probability of every label, in the model's order; they add up to 1."""


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
        """Return the probabilities of labels, (C,) float64, in the model's order, of each line; None for a blank line.

        A line longer than the model's positions is read in parts, and its probabilities are the mean over the parts,
        weighted by length. Nothing is dropped.
        """
        cuts = [equal_parts(ids, math.ceil(len(ids) / self._part_length)) for ids in self._tokenizer.read_all(lines)]
        parts = self._of_parts([part for cut in cuts for part in cut])
        means = []
        for cut, rows in zip(cuts, parts.split(list(map(len, cuts))), strict=True):
            weights = torch.tensor([len(part) for part in cut], dtype=torch.float64)
            means.append(weights @ rows / weights.sum() if cut else None)  # (P,) @ (P, C) -> (C,)
        return means

    @torch.inference_mode()
    def _of_parts(self, parts: Sequence[Sequence[int]]) -> Tensor:
        """Return the probabilities of labels, (P, C) float64, in the order of `parts`."""
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
    """A classification model, or an ensemble of several, whose probabilities are averaged.

    The models may have different tokenizers and sizes. Their displayed labels must be the same, in any order; `labels`
    and `description` are those of the first model.

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
        described = [member.description for member in members]
        self._names = ChainMap(*(dict(zip(one.labels, one.displayed_labels, strict=True)) for one in described))

    @classmethod
    def load(
        cls,
        *paths: str | Path | None,
        device: str = "auto",
        precision: str | None = None,
        threads: int | None = None,
        batch_tokens: int | None = None,
    ) -> Self:
        """Load model folders or run folders (then their best models); without a path, the newest classification run.

        Several models form an ensemble. The options are those of `OneModel.load`.

        Raises:
            ModelError: there is no model, it is damaged or not a classifier, or its labels differ from the first's.
            UserError: the device or precision does not exist on this machine.
        """
        return cls(*(ClassifierModel.load(path, device, precision, threads, batch_tokens) for path in paths or (None,)))

    def names_of(self, labels: Sequence[str]) -> list[str]:
        """Return the displayed names (`data.label_names` of the config) of labels of the training data.

        Labels that are all displayed names, and not all labels of the first model's data, are returned unchanged. A
        warning is logged where the labels may be either, and mean different classes.
        """
        found, names = set(labels), [self._names.get(label, label) for label in labels]
        may_be_names, are_of_data = found <= set(self.labels), found <= set(self.description.labels)
        if may_be_names and found <= self._names.keys() and names != list(labels):
            label, name = next(pair for pair in zip(labels, names, strict=True) if pair[0] != pair[1])
            both = f"{shown(label)} is a name in answers, and a label of the data, which answers call {shown(name)}"
            read = "labels of the data" if are_of_data else "names in answers"
            logger.warning("%s; the labels are read as %s. If that is wrong, write labels of the data", both, read)
        return list(labels) if may_be_names and not are_of_data else names

    def classify(self, lines: Iterable[str]) -> list[Classification]:
        """Return the classification of each line; blank lines do not reach a model.

        Raises:
            TypeError: `lines` is not a list of texts.
        """
        lines = [line.strip() for line in checked_texts(lines, "classify")]
        return list(map(self._answer, *(member.probabilities(lines) for member in self._members)))

    def _answer(self, *rows: Tensor | None) -> Classification:
        """Return the classification of a line from the probabilities (C,) by each member; None for a blank line."""
        ordered = [row[order] for row, order in zip(rows, self._orders, strict=True) if row is not None]
        if not ordered:
            return NO_TEXT
        shares = dict(zip(self.labels, torch.stack(ordered).mean(dim=0).tolist(), strict=True))
        best = max(shares, key=shares.__getitem__)
        return Classification(best, shares[best], shares)
