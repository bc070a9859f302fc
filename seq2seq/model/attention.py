"""Scaled dot-product attention, the two layers built on it, and a way to capture attention weights.

`SelfAttention` and `CrossAttention` are the sub-layers of `layers.py`; both call `attend`. `capture_attention` collects
the weights for plots and alignments, so that the layers need not return them.

Shapes: B sentences, T queries, S keys, D d_model, H heads, K head_dim. Masks are True at real tokens.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType, UnionType

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.config.schema import ModelConfig
from seq2seq.model.dropout import Dropout, reads_tensors
from seq2seq.model.positions import RotaryPositions
from seq2seq.runtime import on_cpu, product_type

# At most this many weights per head: two plain products are faster on a CPU than the fused kernel.
PLAIN_BELOW = 128 * 128
# Scale of the projections that `mimic` copies; a larger one makes attention too sharp at the start.
LIKENESS = 0.5

Observer = Callable[[Tensor], None]
# The observers of the layers, of the running thread alone: other threads may use the same layers meanwhile.
_OBSERVERS: ContextVar[Mapping[nn.Module, Observer]] = ContextVar("observers", default=MappingProxyType({}))


def key_bias(mask: Tensor, states: Tensor) -> Tensor | None:
    """Return the bias that is added to the scores of each key, (B, 1, 1, S): 0 for a real token, -10,000 for padding.

    The number is finite, so that a row that consists of padding gets uniform weights instead of NaN. On a CPU the bias
    is float32, or None if nothing is padded; on a GPU that test would need a synchronisation. On a GPU it has the type
    of matrix products with `states`, and strides that are multiples of 8; kernels would copy any other bias, once per
    layer.
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
    """Return softmax(query key^T / sqrt(K) + bias) value (Vaswani et al. 2017, equation 1).

    Args:
        query: (B, H, T, K).
        key: (B, H, S, K).
        value: (B, H, S, K).
        bias: added to the scores, broadcast to (B, H, T, S).
        causal: query t attends only to keys 0 ... t; T and S must be equal.
        dropout: applied to the weights.

    Returns:
        (B, H, T, K).
    """
    is_plain = on_cpu(query) and query.size(-2) * key.size(-2) <= PLAIN_BELOW
    if dropout is not None and dropout.drops and reads_tensors():
        is_plain = True  # the fused kernel takes the rate as a number
    if not is_plain and not (causal and bias is not None):
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
    """Return softmax(query key^T / sqrt(K) + bias) over the keys, (B, H, T, S); arguments as for `attend`."""
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
    """`count` projections into H heads, computed in one product."""

    def __init__(self, config: ModelConfig, count: int):
        super().__init__(config.d_model, count * config.num_heads * config.head_width)
        self.count, self.num_heads = count, config.num_heads

    @property
    def parts(self) -> int:
        """Number of matrices stacked in the weight: one for each projection and head."""
        return self.count * self.num_heads

    def split(self, states: Tensor) -> tuple[Tensor, ...]:
        """Project (B, T, D) into `count` tensors, (B, H, T, K) each."""
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

    def forward(self, states: Tensor, bias: Tensor | None = None, causal: bool = False) -> Tensor:
        """Attend over `states`, (B, T, D) -> (B, T, D); `bias` comes from `key_bias`."""
        query, key, value = self.query_key_value.split(states)  # (B, H, T, K) each
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        if observer := _observer_of(self):
            observer(attention_weights(query, key, bias, causal))
        context = attend(query, key, value, bias, causal, self.dropout)
        return self.output(context.transpose(1, 2).flatten(2))  # (B, T, D)

    @torch.no_grad()
    def mimic(self) -> None:
        """Initialize weights as attention in trained models has them (Trockman and Kolter 2023, "Mimetic initialization
        of self-attention layers"): queries and keys of the same token or position are similar, and the attended values
        are subtracted from the state."""
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

    def forward(self, states: Tensor, memory: Tensor, bias: Tensor | None = None) -> Tensor:
        """Attend from `states` (B, T, D) over `memory` (B, S, D) -> (B, T, D); `bias` comes from `key_bias` of the
        source."""
        return self.attend_projected(states, *self.project(memory), bias)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of a memory, (B, S, D) -> two tensors (B, H, S, K)."""
        return self.key_value.split(memory)

    def attend_projected(self, states: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute `forward` with the keys and values that `project` returned."""
        (query,) = self.query.split(states)  # (B, H, T, K)
        if observer := _observer_of(self):
            observer(attention_weights(query, key, bias))
        context = attend(query, key, value, bias, dropout=self.dropout)
        return self.output(context.transpose(1, 2).flatten(2))  # (B, T, D)

    @torch.no_grad()
    def mimic(self) -> None:
        """Initialize queries and keys as `SelfAttention.mimic` does; attention begins along the diagonal, and at tokens
        that both sides share."""
        self.query.weight.copy_(LIKENESS * self.key_value.weight.chunk(2)[0])


@contextmanager
def capture_attention(
    model: nn.Module, kind: type | UnionType = SelfAttention | CrossAttention
) -> Iterator[dict[str, Tensor]]:
    """Yield a dictionary that collects the attention weights of every layer of a `kind` whose `forward` runs inside the
    block, in this thread: by module name, (B, H, T, S) each. Compiled layers are not observed."""
    captured: dict[str, Tensor] = {}

    def observe(name: str) -> Observer:
        return lambda weights: captured.__setitem__(name, weights.detach())

    observers = {layer: observe(name) for name, layer in model.named_modules() if isinstance(layer, kind)}
    token = _OBSERVERS.set(observers)
    try:
        yield captured
    finally:
        _OBSERVERS.reset(token)


def _observer_of(layer: nn.Module) -> Observer | None:
    return None if torch.compiler.is_compiling() else _OBSERVERS.get().get(layer)
