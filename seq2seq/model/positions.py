"""Positions of tokens: sinusoidal, learned and rotary.

`PositionalEmbedding` holds vectors that are added to embeddings; `RotaryPositions` rotates queries and keys inside
self-attention. Encoder and decoder make one of either kind from the model's configuration.

Shapes: B sentences, T positions, D d_model, H heads, K head_dim.
"""

import torch
from torch import Tensor, nn

from seq2seq.config.schema import ModelConfig
from seq2seq.model.buffers import Float32Buffers


def sinusoids(
    num_positions: int, width: int, layout: str = "interleaved", formula: str = "paper", first: int = 0
) -> Tensor:
    """Return sinusoidal positions (Vaswani et al. 2017, section 3.5), float32, (num_positions, width); `width` is even.

    Frequency i is 10000^(-2i / width), and with the formula of `fairseq` 10000^(-i / (width/2 - 1)). `interleaved` puts
    its sine and cosine at 2i and 2i + 1, as the paper does; `halves` puts all sines before all cosines, as Marian does.
    The first row is position `first`.
    """
    steps = torch.arange(0, width, 2, dtype=torch.float64)
    frequencies = 10000.0 ** (-steps / (width if formula == "paper" else width - 2))
    angles = torch.arange(first, first + num_positions, dtype=torch.float64)[:, None] * frequencies  # (T, D/2)
    if layout == "halves":
        return torch.cat([angles.sin(), angles.cos()], dim=1).float()  # (T, D)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1).float()  # (T, D)


class PositionalEmbedding(Float32Buffers):
    """One vector for each absolute position: fixed sinusoids, or learned ones."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        if config.positions == "learned":
            self.weight = nn.Parameter(torch.empty(config.max_length, config.d_model))
            nn.init.normal_(self.weight, std=config.d_model**-0.5)
        else:
            kind = config.position_layout, config.position_formula, config.position_offset
            table = sinusoids(config.max_length, config.d_model, *kind)
            self.register_buffer("weight", table, persistent=False)  # computed, so not part of a model's file

    def forward(self, length: int, start: int | Tensor = 0) -> Tensor:
        """Return the vectors of positions start ... start + length - 1, (length, D)."""
        return _entries(self.weight, length, start)


class RotaryPositions(Float32Buffers):
    """Rotary positions (Su et al. 2021, RoFormer, section 3.2.2): pair i of a head is rotated by position *
    10000^(-2i/K).

    Pairs are (i, i + K/2). The product of a rotated query and key depends only on the distance of their positions.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        table = sinusoids(config.max_length, config.head_width, "halves")
        sine, cosine = table.chunk(2, dim=1)  # (max_length, K/2) each
        self.register_buffer("sine", torch.cat([-sine, sine], dim=1), persistent=False)
        self.register_buffer("cosine", torch.cat([cosine, cosine], dim=1), persistent=False)

    def forward(self, vectors: Tensor, start: int | Tensor = 0) -> Tensor:
        """Rotate (..., T, K) queries or keys of positions start ... start + T - 1; the shape is unchanged."""
        cosine, sine = (_entries(table, vectors.size(-2), start) for table in (self.cosine, self.sine))  # (T, K) each
        swapped = torch.cat(vectors.chunk(2, dim=-1)[::-1], dim=-1)
        return (vectors * cosine + swapped * sine).to(vectors.dtype)


def _entries(table: Tensor, length: int, start: int | Tensor) -> Tensor:
    """Return entries start ... start + length - 1 of a table; a tensor (1,) is one position, which a recording reads
    from the device."""
    return table[start : start + length] if isinstance(start, int) else table.index_select(0, start)
