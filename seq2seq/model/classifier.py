"""The encoder with a classification head.

`tasks.classification` trains it and `inference.classifier` serves it. Its encoder is that of the translation model, so
it loads the encoder half of a translation checkpoint unchanged.

Shapes: B texts, S length, D d_model, C labels.
"""

import torch
from torch import Tensor, nn

from seq2seq.config.schema import ClassifierConfig, ModelConfig
from seq2seq.model.dropout import Dropout
from seq2seq.model.transformer import Encoder


class EncoderClassifier(nn.Module):
    """Encoder, pooling, dropout and one linear layer over the labels."""

    def __init__(self, config: ModelConfig, classifier: ClassifierConfig, vocab_size: int, num_labels: int):
        super().__init__()
        self.config = config
        self.pooling = classifier.pooling
        self.encoder = Encoder(config, vocab_size)
        width = config.d_model * (2 if self.pooling == "mean_max" else 1)
        self.dropout = Dropout(classifier.dropout)
        self.output = nn.Linear(width, num_labels)

    def forward(self, source_ids: Tensor, source_mask: Tensor) -> Tensor:
        """Classify texts, (B, S) ids and mask (True at real tokens) -> logits (B, C)."""
        pooled = self._pool(self.encoder(source_ids, self.encoder.source_bias(source_mask)), source_mask)
        return self.output(self.dropout(pooled))

    def _pool(self, memory: Tensor, mask: Tensor) -> Tensor:
        """Pool the states of the tokens, (B, S, D) -> (B, D), or with mean_max (B, 2D).

        The concatenation of mean and maximum is SWEM-concat (Shen et al. 2018, "Baseline needs more love", section 3).
        """
        if self.pooling == "first":
            return memory[:, 0]
        is_real = mask.unsqueeze(-1)  # (B, S, 1)
        real = is_real.to(memory.dtype)
        mean = (memory * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)  # (B, D)
        if self.pooling == "mean":
            return mean
        return torch.cat([mean, memory.masked_fill(~is_real, -torch.inf).amax(dim=1)], dim=1)  # (B, 2D)
