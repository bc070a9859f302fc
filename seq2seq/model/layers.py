"""The layers that encoder and decoder are stacked from: residual wrapper, feed-forward, embedding, and the two blocks.

`transformer.py` stacks them. `Residual` is the only place that knows pre-norm from post-norm.

Shapes: B sentences, T positions, S source positions, D d_model, F d_ff, R rows of decoding.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.config import ModelConfig
from seq2seq.model.attention import CrossAttention, SelfAttention
from seq2seq.model.dropout import Dropout
from seq2seq.model.functions import plain
from seq2seq.model.positions import PositionalEmbedding


def make_norm(config: ModelConfig) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019) over D.

    Both divide by sqrt(mean of squares + epsilon): epsilon stands under the root, and the variance is the biased one.
    """
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(config.d_model, eps=config.norm_epsilon)


class Residual(nn.Module):
    """A sub-layer's residual connection with its norm, before the sub-layer (Xiong et al. 2020) or after the sum."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)
        self.norm_first = config.norm_position == "pre"

    def forward(self, states: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., D) -> (..., D)."""
        if self.norm_first:
            return states + self.dropout(sublayer(self.norm(states)))
        return self.norm(states + self.dropout(sublayer(states)))

    def step_function(self, sublayer: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """`forward` around a sub-layer's step, whose further arguments it hands on; without dropout."""
        norm = plain(self.norm)
        if self.norm_first:
            return lambda states, *others: states + sublayer(norm(states), *others)
        return lambda states, *others: norm(states + sublayer(states, *others))


class FeedForward(nn.Module):
    """Position-wise feed-forward layer (Vaswani et al. 2017, section 3.3); swiglu is Shazeer 2020."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.activation = config.activation
        self.inner = nn.Linear(config.d_model, config.d_ff * (2 if self.activation == "swiglu" else 1))
        self.output = nn.Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return self.output(self.dropout(self._activate(self.inner(states))))

    def step_function(self) -> Callable[[Tensor], Tensor]:
        """`forward` without dropout, for a step of decoding."""
        inner, output, activate = plain(self.inner), plain(self.output), self._activate
        return lambda states: output(activate(inner(states)))

    def _activate(self, inner: Tensor) -> Tensor:
        match self.activation:
            case "relu":
                return functional.relu(inner, inplace=True)
            case "gelu":
                return functional.gelu(inner)
            case "silu":
                return functional.silu(inner)
            case "swiglu":
                gate, values = inner.chunk(2, dim=-1)  # (..., F) each
                return functional.silu(gate) * values


class TokenEmbedding(nn.Module):
    """Token embeddings, scaled, with positions, word dropout and dropout."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model)
        nn.init.normal_(self.tokens.weight, std=config.d_model**-0.5)
        self.scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.positions = PositionalEmbedding(config) if config.positions != "rotary" else None
        self.word_dropout = config.word_dropout
        self.dropout = Dropout(config.dropout)

    def forward(self, token_ids: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, D)."""
        embedded = self.tokens(token_ids) * self.scale  # (B, T, D)
        if self.training and self.word_dropout:
            kept = torch.rand(token_ids.shape, device=token_ids.device) >= self.word_dropout
            embedded = embedded * kept.unsqueeze(-1)  # positions stay, so that order and length are still seen
        if self.positions is not None:
            embedded = embedded + self.positions(token_ids.size(1))
        return self.dropout(embedded)

    def step_function(self) -> Callable[[Tensor, int], Tensor]:
        """`forward` without any dropout for a step of decoding: ids (R,) and their position -> (R, D)."""
        tokens, scale = self.tokens.weight, self.scale
        if self.positions is None:
            return lambda token_ids, position: torch.embedding(tokens, token_ids) * scale
        positions = self.positions.weight

        def step(token_ids: Tensor, position: int) -> Tensor:
            return torch.add(positions[position], torch.embedding(tokens, token_ids), alpha=scale)  # (R, D)

        return step


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention, self.attention_residual = SelfAttention(config), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)

    def forward(self, states: Tensor, bias: Tensor | None) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        states = self.attention_residual(states, lambda inner: self.attention(inner, bias))
        return self.feed_forward_residual(states, self.feed_forward)


LayerStep = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor], Tensor | None], Tensor]
"""What `DecoderLayer.step_function` makes: (states, own, memory, bias) -> states."""


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the memory, and feed-forward."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention, self.attention_residual = SelfAttention(config), Residual(config)
        self.cross_attention, self.cross_residual = CrossAttention(config), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)

    def forward(self, states: Tensor, memory: Tensor, source_bias: Tensor | None) -> Tensor:
        """(B, T, D) over (B, S, D) -> (B, T, D)."""
        states = self.attention_residual(states, lambda inner: self.attention(inner, causal=True))
        states = self.cross_residual(states, lambda inner: self.cross_attention(inner, memory, source_bias))
        return self.feed_forward_residual(states, self.feed_forward)

    def step_function(self) -> LayerStep:
        """What computes one position of decoding, without dropout: (R, D) -> (R, D).

        Its arguments are

        - states: (R, D), sentence-major rows,
        - own: what self-attention's step takes beside them,
        - memory: keys and values of cross-attention's step, and
        - bias: of the source, as there.
        """
        attend = self.attention_residual.step_function(self.attention.step_function())
        attend_memory = self.cross_residual.step_function(self.cross_attention.step_function())
        feed_forward = self.feed_forward_residual.step_function(self.feed_forward.step_function())

        def step(states: Tensor, own: Sequence[Tensor], memory: Sequence[Tensor], bias: Tensor | None) -> Tensor:
            return feed_forward(attend_memory(attend(states, *own), *memory, bias))

        return step
