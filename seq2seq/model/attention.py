"""Scaled dot-product attention, the two layers over it, and a way to look inside.

`SelfAttention` and `CrossAttention` are the sub-layers of `layers.py`; queries meet keys in `attend`, and in a step of
decoding in `attend_stored`; `capture_attention` hands the weights to plots without the layers returning them.

Shapes: B sentences, T queries, S keys, D d_model, H heads, K head_dim. Masks are True at real tokens.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.config import ModelConfig
from seq2seq.model.dropout import Dropout
from seq2seq.model.functions import plain
from seq2seq.model.positions import RotaryPositions

# Below this many weights a head, two plain products are faster on a CPU than the fused kernel.
PLAIN_BELOW = 128 * 128
# How large the projections that `mimic` makes of others are beside them; more makes attention too sharp to begin with.
LIKENESS = 0.5

Observer = Callable[[Tensor], None]


def key_bias(mask: Tensor) -> Tensor:
    """What is added to the scores of each key, (B, 1, 1, S): 0 for a real token, a large negative number for padding.

    The number is finite, so that a row of padding alone gets uniform weights rather than NaN.
    """
    bias = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    return bias.masked_fill_(~mask, -1e4)[:, None, None, :]


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
    is_small = query.device.type == "cpu" and query.size(-2) * key.size(-2) <= PLAIN_BELOW
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
    # one product over sentences and heads together
    products = torch.baddbmm(
        query.new_empty(()),  # beta 0: not read
        query.flatten(0, 1),
        key.flatten(0, 1).transpose(1, 2),
        beta=0,
        alpha=1 / math.sqrt(query.size(-1)),
    )  # (B*H, T, S)
    scores = products.unflatten(0, query.shape[:2])  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = scores + _causal_bias(query.size(-2), query.device)
    return scores.softmax(dim=-1)


def attend_stored(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
    """`attend` for one step of decoding, whose time goes into the number of operations: heads stand beside sentences.

    Args:
        query: (G, N, K), the queries of G heads.
        keys: (G, K, S).
        values: (G, S, K).
        bias: added to the scores, broadcast to (G, N, S).

    Returns:
        (G, N, K).
    """
    # A product that scales wants something to add as well; to make that takes longer than to scale the queries.
    scores = torch.bmm(query * (1 / math.sqrt(query.size(2))), keys)  # (G, N, S)
    if bias is not None:
        scores += bias
    return torch.bmm(scores.softmax(-1), values)  # (G, N, K)


def _causal_bias(length: int, device: torch.device) -> Tensor:
    return torch.full((length, length), -1e4, device=device).triu_(1)  # (T, T)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.num_heads, self.head_dim = config.num_heads, config.head_width
        width = self.num_heads * self.head_dim
        self.query_key_value = nn.Linear(config.d_model, 3 * width)
        self.output = nn.Linear(width, config.d_model)
        self.dropout = Dropout(config.attention_dropout)
        self.rotary = RotaryPositions(config) if config.positions == "rotary" else None
        self.observer: Observer | None = None

    def forward(self, states: Tensor, bias: Tensor | None = None, causal: bool = False) -> Tensor:
        """(B, T, D) -> (B, T, D); `bias` comes from `key_bias`."""
        query, key, value = self._project(states)  # (B, H, T, K) each
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        if self.observer is not None:
            self.observer(attention_weights(query, key, bias, causal))
        context = attend(query, key, value, bias, causal, self.dropout)
        return self.output(context.transpose(1, 2).flatten(2))  # (B, T, D)

    def step_function(self) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """What computes one position of decoding, over those before it and itself.

        Its arguments are

        - states: (R, D), the newest position of each row,
        - newest: (2, R, H * K), the last position's room in `keys` and `values`, written here,
        - keys: (R * H, K, t + 1), and
        - values: (R * H, t + 1, K);

        it returns (R, D).
        """
        query_key_value, output = plain(self.query_key_value), plain(self.output)
        rotary, num_heads, head_dim = self.rotary, self.num_heads, self.head_dim

        def step(states: Tensor, newest: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            rows = states.size(0)
            parts = query_key_value(states).view(rows, 3, -1).transpose(0, 1)  # (3, R, H*K)
            if rotary is not None:
                heads = parts[:2].unflatten(2, (num_heads, 1, head_dim))  # (2, R, H, 1, K)
                parts = torch.cat([rotary(heads, keys.size(2) - 1).flatten(2), parts[2:]])
            newest.copy_(parts[1:])
            query = parts[0].reshape(-1, 1, head_dim)  # (R*H, 1, K)
            return output(attend_stored(query, keys, values).view(rows, -1))  # (R, D)

        return step

    def joined(self) -> dict[nn.Parameter, int]:
        """The weights that are several projections, one above another: of how many, each head's counted by itself."""
        return {self.query_key_value.weight: 3 * self.num_heads}

    @torch.no_grad()
    def mimic(self) -> None:
        """Begin as attention is found in trained models (Trockman and Kolter 2023, "Mimetic initialization of
        self-attention layers"): queries and keys of the same token or position are alike, and what is attended to is
        taken off the state rather than added to it."""
        query, key, value = self.query_key_value.weight.chunk(3)  # (H*K, D) each
        query.copy_(LIKENESS * key)
        self.output.weight.copy_(-LIKENESS * value.T)

    def _project(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        projected = self.query_key_value(states).unflatten(-1, (3, self.num_heads, self.head_dim))  # (B, T, 3, H, K)
        return projected.permute(2, 0, 3, 1, 4).unbind(0)


class CrossAttention(nn.Module):
    """Multi-head attention over the encoder's memory: queries from the decoder, keys and values from the memory."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.num_heads, self.head_dim = config.num_heads, config.head_width
        width = self.num_heads * self.head_dim
        self.query = nn.Linear(config.d_model, width)
        self.key_value = nn.Linear(config.d_model, 2 * width)
        self.output = nn.Linear(width, config.d_model)
        self.dropout = Dropout(config.attention_dropout)
        self.observer: Observer | None = None

    def forward(self, states: Tensor, memory: Tensor, bias: Tensor | None = None) -> Tensor:
        """(B, T, D) over (B, S, D) -> (B, T, D); `bias` comes from `key_bias` of the source."""
        query = self.query(states).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)  # (B, H, T, K)
        key, value = self.project(memory)
        if self.observer is not None:
            self.observer(attention_weights(query, key, bias))
        context = attend(query, key, value, bias, dropout=self.dropout)
        return self.output(context.transpose(1, 2).flatten(2))  # (B, T, D)

    def joined(self) -> dict[nn.Parameter, int]:
        """As in `SelfAttention`."""
        return {self.query.weight: self.num_heads, self.key_value.weight: 2 * self.num_heads}

    @torch.no_grad()
    def mimic(self) -> None:
        """As in `SelfAttention`, for queries and keys: it begins along the diagonal, and at tokens of both sides."""
        self.query.weight.copy_(LIKENESS * self.key_value.weight.chunk(2)[0])

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory, (B, S, D) -> two of (B, H, S, K)."""
        projected = self.key_value(memory).unflatten(-1, (2, self.num_heads, self.head_dim))  # (B, S, 2, H, K)
        return projected.permute(2, 0, 3, 1, 4).unbind(0)

    def step_function(self) -> Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]:
        """What computes one position of decoding; the R / B rows of a sentence are its queries.

        Its arguments are

        - states: (R, D), sentence-major,
        - keys: (B * H, K, S),
        - values: (B * H, S, K), and
        - bias: (B * H, 1, S), or None where nothing is padded;

        it returns (R, D).
        """
        project_query, output = plain(self.query), plain(self.output)
        num_heads, head_dim = self.num_heads, self.head_dim

        def step(states: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
            groups = keys.size(0)  # B*H
            query = project_query(states)  # (R, H*K)
            by_head = query.view(groups // num_heads, -1, num_heads, head_dim).transpose(1, 2)  # (B, H, N, K)
            context = attend_stored(by_head.reshape(groups, -1, head_dim), keys, values, bias)  # (B*H, N, K)
            return output(context.view(by_head.shape).transpose(1, 2).reshape(query.shape))  # (R, D)

        return step


@contextmanager
def capture_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collect the attention weights of every layer whose `forward` runs inside, by module name, each (B, H, T, S).

    A step of decoding hands out nothing.
    """
    captured: dict[str, Tensor] = {}
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, SelfAttention | CrossAttention)}

    def observe(name: str) -> Observer:
        return lambda weights: captured.__setitem__(name, weights.detach())

    for name, layer in layers.items():
        layer.observer = observe(name)
    try:
        yield captured
    finally:
        for layer in layers.values():
            layer.observer = None
