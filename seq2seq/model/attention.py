"""Scaled dot-product attention, the two layers over it, and a way to look inside.

`SelfAttention` and `CrossAttention` are the sub-layers of `layers.py`; queries meet keys in `attend`;
`capture_attention` hands the weights to plots without the layers returning them.

Shapes: B sentences, T queries, S keys, D d_model, H heads, K head_dim. Masks are True at real tokens.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import UnionType

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.config import ModelConfig
from seq2seq.model.dropout import Dropout
from seq2seq.model.positions import RotaryPositions
from seq2seq.runtime import on_cpu, product_type

# Below this many weights a head, two plain products are faster on a CPU than the fused kernel.
PLAIN_BELOW = 128 * 128
# Size of the projections that `mimic` copies, relative to the others; more makes attention too sharp at the start.
LIKENESS = 0.5

Observer = Callable[[Tensor], None]


def key_bias(mask: Tensor, states: Tensor) -> Tensor | None:
    """Added to the scores of each key, (B, 1, 1, S): 0 for a real token, a large negative number for padding.

    The number is finite, so that a row of padding alone gets uniform weights rather than NaN. On a CPU it is float32,
    or None where nothing is padded; to ask a GPU would mean to wait for it. A GPU's kernels want the type of their
    products with `states` and strides that are multiples of 8; they would copy any other bias, once a layer.
    """
    num_rows, width = mask.shape
    stride, dtype = width, torch.float32
    if not on_cpu(states):
        # always wider than a row, so that a compiled layer sees one layout
        stride, dtype = width - width % 8 + 8, product_type(states)
    elif mask.all():
        return None
    bias = torch.zeros(num_rows, 1, 1, stride, dtype=dtype, device=mask.device)[..., :width]  # (B, 1, 1, S)
    return bias.masked_fill_(~mask[:, None, None, :], -1e4)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    causal: bool = False,
    dropout: Dropout | None = None,
) -> Tensor:
    """softmax(query key^T / sqrt(K) + bias) value (Vaswani et al. 2017, equation 1).

    Args:
        query: (B, H, T, K).
        key: (B, H, S, K).
        value: (B, H, S, K).
        bias: added to the scores, broadcast to (B, H, T, S).
        causal: query t sees keys 0 ... t alone; T and S are equal.
        dropout: applied to the weights.

    Returns:
        (B, H, T, K).
    """
    is_small = on_cpu(query) and query.size(-2) * key.size(-2) <= PLAIN_BELOW
    if not is_small and not (causal and bias is not None):
        rate = dropout.rate if dropout is not None and dropout.training else 0.0
        if bias is not None:
            bias = bias.to(query.dtype)
        return functional.scaled_dot_product_attention(query, key, value, bias, dropout_p=rate, is_causal=causal)
    weights = attention_weights(query, key, bias, causal)  # (B, H, T, S)
    if dropout is not None:
        weights = dropout(weights)
    context = torch.bmm(weights.to(value.dtype).flatten(0, 1), value.flatten(0, 1))  # (B*H, T, K)
    return context.unflatten(0, value.shape[:2])  # (B, H, T, K)


def attention_weights(query: Tensor, key: Tensor, bias: Tensor | None = None, causal: bool = False) -> Tensor:
    """softmax(query key^T / sqrt(K) + bias) over the keys, (B, H, T, S); arguments as in `attend`."""
    queries, keys = query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2)  # (B*H, T, K), (B*H, K, S)
    unread = query.new_empty(())  # beta is 0
    scores = torch.baddbmm(unread, queries, keys, beta=0, alpha=1 / math.sqrt(query.size(-1)))
    scores = scores.unflatten(0, query.shape[:2])  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias
    if causal:
        length = query.size(-2)
        scores = scores + torch.full((length, length), -1e4, device=query.device).triu_(1)  # (T, T)
    return scores.softmax(dim=-1)


class HeadProjections(nn.Linear):
    """`count` projections into H heads, computed at once."""

    def __init__(self, config: ModelConfig, count: int):
        super().__init__(config.d_model, count * config.num_heads * config.head_width)
        self.count, self.num_heads = count, config.num_heads

    @property
    def parts(self) -> int:
        """Matrices that are stacked in the weight: one for each projection and head."""
        return self.count * self.num_heads

    def split(self, states: Tensor) -> tuple[Tensor, ...]:
        """(B, T, D) -> `count` times (B, H, T, K)."""
        projected = self(states).unflatten(-1, (self.count, self.num_heads, -1))  # (B, T, count, H, K)
        if projected.requires_grad:  # the gradients are stacked along this dimension, and need no copy after it
            return tuple(part.transpose(1, 2) for part in projected.unbind(2))
        return projected.permute(2, 0, 3, 1, 4).unbind(0)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.query_key_value = HeadProjections(config, 3)
        self.output = nn.Linear(config.num_heads * config.head_width, config.d_model)
        self.dropout = Dropout(config.attention_dropout)
        self.rotary = RotaryPositions(config) if config.positions == "rotary" else None
        self.observer: Observer | None = None

    def forward(self, states: Tensor, bias: Tensor | None = None, causal: bool = False) -> Tensor:
        """(B, T, D) -> (B, T, D); `bias` comes from `key_bias`."""
        query, key, value = self.query_key_value.split(states)  # (B, H, T, K) each
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        if self.observer is not None:
            self.observer(attention_weights(query, key, bias, causal))
        context = attend(query, key, value, bias, causal, self.dropout)
        return self.output(context.transpose(1, 2).flatten(2))  # (B, T, D)

    @torch.no_grad()
    def mimic(self) -> None:
        """Begin as attention is found in trained models (Trockman and Kolter 2023, "Mimetic initialization of
        self-attention layers"): queries and keys of the same token or position are alike, and what is attended to is
        subtracted from the state."""
        query, key, value = self.query_key_value.weight.chunk(3)  # (H*K, D) each
        query.copy_(LIKENESS * key)
        self.output.weight.copy_(-LIKENESS * value.T)


class CrossAttention(nn.Module):
    """Multi-head attention over the encoder's memory: queries from the decoder, keys and values from the memory."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.query = HeadProjections(config, 1)
        self.key_value = HeadProjections(config, 2)
        self.output = nn.Linear(config.num_heads * config.head_width, config.d_model)
        self.dropout = Dropout(config.attention_dropout)
        self.observer: Observer | None = None

    def forward(self, states: Tensor, memory: Tensor, bias: Tensor | None = None) -> Tensor:
        """(B, T, D) over (B, S, D) -> (B, T, D); `bias` comes from `key_bias` of the source."""
        return self.attend_projected(states, *self.project(memory), bias)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory, (B, S, D) -> two of (B, H, S, K)."""
        return self.key_value.split(memory)

    def attend_projected(self, states: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        """`forward` over what `project` made of the memory."""
        (query,) = self.query.split(states)  # (B, H, T, K)
        if self.observer is not None:
            self.observer(attention_weights(query, key, bias))
        context = attend(query, key, value, bias, dropout=self.dropout)
        return self.output(context.transpose(1, 2).flatten(2))  # (B, T, D)

    @torch.no_grad()
    def mimic(self) -> None:
        """As in `SelfAttention`, for queries and keys: it begins along the diagonal, and at tokens of both sides."""
        self.query.weight.copy_(LIKENESS * self.key_value.weight.chunk(2)[0])


@contextmanager
def capture_attention(
    model: nn.Module, kind: type | UnionType = SelfAttention | CrossAttention
) -> Iterator[dict[str, Tensor]]:
    """Collect the attention weights of every layer of a `kind` whose `forward` runs inside, by module name, each
    (B, H, T, S)."""
    captured: dict[str, Tensor] = {}
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, kind)}

    def observe(name: str) -> Observer:
        return lambda weights: captured.__setitem__(name, weights.detach())

    for name, layer in layers.items():
        layer.observer = observe(name)
    try:
        yield captured
    finally:
        for layer in layers.values():
            layer.observer = None
