"""Layers of encoder and decoder: residual wrapper, feed-forward layer, embedding, and the two blocks.

`transformer.py` stacks them. Only `Residual` distinguishes pre-norm from post-norm.

Shapes: B sentences, T positions, S source positions, D d_model, F d_ff.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from seq2seq.config.schema import ModelConfig
from seq2seq.model.attention import CrossAttention, SelfAttention
from seq2seq.model.dropout import Dropout
from seq2seq.model.positions import PositionalEmbedding


def make_norm(config: ModelConfig) -> nn.Module:
    """Make a LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019) over D.

    Both divide by sqrt(mean of squares + epsilon): epsilon is inside the root. The variance of LayerNorm is
    the biased one.
    """
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(config.d_model, eps=config.norm_epsilon)


class Residual(nn.Module):
    """The residual connection of a sub-layer, with a norm before the sub-layer (Xiong et al. 2020) or after the sum."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)
        self.norm_first = config.norm_position == "pre"

    def forward(self, states: Tensor, sublayer: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """Apply a sub-layer, (..., D) -> (..., D); `arguments` are passed to it after the states."""
        if self.norm_first:
            return states + self.dropout(sublayer(self.norm(states), *arguments))
        return self.norm(states + self.dropout(sublayer(states, *arguments)))


class FeedForward(nn.Module):
    """Position-wise feed-forward layer (Vaswani et al. 2017, section 3.3); swiglu is Shazeer 2020."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.activation = config.activation
        self.inner = nn.Linear(config.d_model, config.d_ff * (2 if self.activation == "swiglu" else 1))
        self.output = nn.Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, states: Tensor) -> Tensor:
        """Transform each position, (..., D) -> (..., D)."""
        return self.output(self.dropout(self._activate(self.inner(states))))

    def _activate(self, inner: Tensor) -> Tensor:
        match self.activation:
            case "relu":
                # the layer before returns a view; after an in-place change the backward pass would copy it three times
                return functional.relu(inner, inplace=not inner.requires_grad)
            case "gelu":
                return functional.gelu(inner)
            case "silu":
                return functional.silu(inner)
            case "swiglu":
                gate, values = inner.chunk(2, dim=-1)  # (..., F) each
                return functional.silu(gate) * values


class TokenEmbedding(nn.Module):
    """Token embeddings, scaled, with positions, word dropout, a norm where the configuration has it, and dropout."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model)
        nn.init.normal_(self.tokens.weight, std=config.d_model**-0.5)
        self.scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.positions = PositionalEmbedding(config) if config.positions != "rotary" else None
        self.norm = make_norm(config) if config.embedding_norm else None
        self.word_dropout = Dropout(config.word_dropout)  # only its rate is used: whole embeddings are dropped
        self.dropout = Dropout(config.dropout)

    def forward(self, token_ids: Tensor, start: int | Tensor = 0) -> Tensor:
        """Embed (B, T) ids of positions start ... start + T - 1 -> (B, T, D)."""
        embedded = self.tokens(token_ids) * self.scale  # (B, T, D)
        if self.word_dropout.drops:
            kept = self.word_dropout.kept(token_ids.shape, token_ids.device)
            embedded = embedded * kept.unsqueeze(
                -1
            )  # positions are added afterwards, so order and length remain visible
        if self.positions is not None:
            embedded = (embedded + self.positions(token_ids.size(1), start)).to(embedded.dtype)  # tables are float32
        return self.dropout(embedded if self.norm is None else self.norm(embedded))


class Layer(nn.Module, ABC):
    """A layer of a stack, whose activations may be computed again in the backward pass (Chen et al. 2016)."""

    recompute = False
    """Whether training keeps only the inputs; the second computation has the same random numbers, so the gradients are
    the same."""

    def forward(self, states: Tensor, *others: Any) -> Tensor:
        """Transform states as `transform` does."""
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self.transform, states, *others, use_reentrant=False)
        return self.transform(states, *others)

    @abstractmethod
    def transform(self, states: Tensor, *others: Any) -> Tensor:
        """Transform states, (..., D) -> (..., D)."""


class EncoderLayer(Layer):
    """Self-attention and feed-forward layer of the encoder."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention, self.attention_residual = SelfAttention(config), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)

    def transform(self, states: Tensor, bias: Tensor | None) -> Tensor:
        """Transform the states of the source, (B, S, D) -> (B, S, D); `bias` comes from `key_bias`."""
        states = self.attention_residual(states, self.attention, bias)
        return self.feed_forward_residual(states, self.feed_forward)


class DecoderLayer(Layer):
    """Causal self-attention, attention over the memory, and feed-forward layer of the decoder."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention, self.attention_residual = SelfAttention(config), Residual(config)
        self.cross_attention, self.cross_residual = CrossAttention(config), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)

    def transform(self, states: Tensor, memory: Tensor, source_bias: Tensor | None) -> Tensor:
        """Transform the states (B, T, D) of the target, over a memory (B, S, D) -> (B, T, D)."""
        states = self.attention_residual(states, self.attention, None, True)
        states = self.cross_residual(states, self.cross_attention, memory, source_bias)
        return self.feed_forward_residual(states, self.feed_forward)
