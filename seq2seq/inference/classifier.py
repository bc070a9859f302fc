"""Lines of text to labels with probabilities.

`Classifier` is loaded from a model folder by `s2s classify` and by library users. It returns a `Classification` for
each line, in order.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seq2seq.data.collate import ClassificationBatch, collate_classification
from seq2seq.inference.batching import equal_parts, token_groups
from seq2seq.inference.one_model import BATCH_TOKENS, OneModel
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


class Classifier(OneModel):
    """A classification model that labels text."""

    task = "classification"
    other_command = "s2s classify needs one of task: classification"

    def __init__(self, loaded: LoadedModel, runtime: Runtime, batch_tokens: int = BATCH_TOKENS):
        super().__init__(loaded, runtime, batch_tokens)
        self._names = loaded.description.label_names
        self.labels = loaded.description.displayed_labels
        self._tokenizer = loaded.tokenizers.source
        self._part_length = self._model.config.max_length - SPECIAL_IDS

    def name_of(self, label: str) -> str:
        """What a label of the training data is called in the answers (`data.label_names` of its config)."""
        return self._names.get(label, label)

    def classify(self, lines: Iterable[str]) -> list[Classification]:
        """Label each line.

        A blank line never reaches the model. A line longer than the model's positions is read in parts, and its
        probabilities are the mean over the parts by length: nothing is dropped.
        """
        lines = [line.strip() for line in lines]
        cuts = [
            equal_parts(ids, math.ceil(len(ids) / self._part_length)) if line else []
            for line, ids in zip(lines, self._tokenizer.encode_all(lines), strict=True)
        ]
        parts = self._probabilities([part for cut in cuts for part in cut])
        answers = []
        for cut, rows in zip(cuts, parts.split(list(map(len, cuts))), strict=True):
            weights = torch.tensor([len(part) for part in cut], dtype=torch.float64)
            mean = (weights @ rows / weights.sum()).tolist()  # (P,) @ (P, C) -> (C,)
            shares = dict(zip(self.labels, mean, strict=True))
            best = max(shares, key=shares.__getitem__)
            answers.append(Classification(best, shares[best], shares) if cut else NO_TEXT)
        return answers

    @torch.inference_mode()
    def _probabilities(self, parts: Sequence[Sequence[int]]) -> Tensor:
        """(P, C) in float64, in the order of `parts`."""
        answers = torch.zeros(len(parts), len(self.labels), dtype=torch.float64)

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
