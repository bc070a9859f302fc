"""The encoder with a classification head.

`tasks.classification` trains it and `inference.classifier` serves it. Its encoder is the translation model's, so the
encoder half of a translation checkpoint fits as it is.

Shapes: B texts, S length, D d_model, C labels.
"""

import torch
from torch import Tensor, nn

from seq2seq.config import ClassifierConfig, ModelConfig
from seq2seq.model.dropout import Dropout
from seq2seq.model.transformer import Encoder


class EncoderClassifier(nn.Module):
    """Encoder, pooling, dropout and one linear layer over the labels."""

    def __init__(self, config: ModelConfig, classifier: ClassifierConfig, vocab_size: int, num_labels: int):
        super().__init__()
        self.config = config
        self.pooling = classifier.pooling
        self.encoder = Encoder(config, vocab_size)
        width = classifier.hidden or config.d_model
        self.hidden = nn.Linear(config.d_model, width) if classifier.hidden else None
        self.dropout = Dropout(classifier.dropout)
        self.output = nn.Linear(width, num_labels)

    def forward(self, source_ids: Tensor, source_mask: Tensor) -> Tensor:
        """(B, S) ids and mask (True = real) -> logits (B, C)."""
        pooled = self._pool(self.encoder(source_ids, self.encoder.source_bias(source_mask)), source_mask)  # (B, D)
        if self.hidden is not None:
            pooled = torch.tanh(self.hidden(pooled))
        return self.output(self.dropout(pooled))

    def _pool(self, memory: Tensor, mask: Tensor) -> Tensor:
        if self.pooling == "first":
            return memory[:, 0]
        real = mask.unsqueeze(-1).to(memory.dtype)  # (B, S, 1)
        return (memory * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
