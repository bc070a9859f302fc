"""One step of decoding: the hidden states of the newest position, computed with the keys and values in a `Cache`, which
is a `DecoderCache` or, for recorded steps, a `StaticCache`.

`inference.steps` calls it. A step returns the same states as `Decoder.forward` returns for its last position.

Shapes: B sentences, N rows (hypotheses) of a sentence, R = B * N, S source length, T maximum number of
positions, t positions so far, D d_model, L layers, H heads, K head_dim.
"""

from typing import Protocol

import torch
from torch import Tensor

from seq2seq.model.attention import SelfAttention, attend, key_bias
from seq2seq.model.transformer import Transformer


class Cache(Protocol):
    """Keys and values of the positions so far, which `decode_step` reads and extends."""

    length: int | Tensor
    """Number of positions so far; a tensor (1,) in a cache for recorded steps."""
    cross: Tensor
    """Keys and values of cross-attention, (L, 2, B, H, S, K)."""
    bias: Tensor | None
    """`key_bias` of the source."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store a layer's key and value of the newest position, and attend to all positions so far; all are (R, H, 1,
        K)."""

    def advance(self) -> None:
        """End the step: the next one has the next position."""


class DecoderCache:
    """Keys and values of a batch: those of self-attention for each row, those of cross-attention for each sentence.

    Those of self-attention are in one preallocated tensor, positions first. Reordering the rows is one copy of all
    positions and layers into a second such tensor; then the two are swapped.

    Args:
        model: the model that decodes.
        memory: (B, S, D).
        source_mask: (B, S), True at real tokens.
        beam_size: rows of each sentence after `spread`; before, it is one.
        max_length: maximum number of positions, T.
    """

    def __init__(self, model: Transformer, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int):
        self.length = 0
        self.beam_size = beam_size
        self.cross = cross_projections(model, memory)
        self.bias = key_bias(source_mask, memory)
        self._num_rows = num_sentences = memory.size(0)
        num_layers, _, _, num_heads, _, head_dim = self.cross.shape
        shape = (max_length, num_layers, 2, num_sentences * beam_size, num_heads, head_dim)
        self._stored = self.cross.new_empty(shape)  # (T, L, 2, R, H, K)
        self._spare: Tensor | None = None  # None until rows are first reordered

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store a key and a value, and attend to all positions (see `Cache.attend`)."""
        stored = self._stored[: self.length + 1, layer, :, : self._num_rows]  # (t, 2, R, H, K)
        stored[-1, 0], stored[-1, 1] = key.squeeze(2), value.squeeze(2)
        return attend(query, *stored.permute(1, 2, 3, 0, 4).unbind(0))

    def advance(self) -> None:
        """Go to the next position."""
        self.length += 1

    def spread(self) -> None:
        """Give each sentence `beam_size` rows, which all continue its present row."""
        sentences = torch.arange(self._num_rows, device=self._stored.device)
        self.reorder(sentences.repeat_interleave(self.beam_size))

    def reorder(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Reorder rows, and select sentences, as `StepModel.reorder` does."""
        if self._spare is None:
            self._spare = torch.empty_like(self._stored)
        before = self._stored[: self.length, :, :, : self._num_rows]
        self._stored, self._spare, self._num_rows = self._spare, self._stored, len(rows)
        after = self._stored[: self.length, :, :, : self._num_rows]
        # A GPU copies element by element, so fewer and wider elements are faster.
        word = torch.int64 if before.size(-1) * before.element_size() % 8 == 0 else before.dtype
        torch.index_select(before.view(word), 3, rows, out=after.view(word))
        if sentences is not None:
            self.cross = self.cross.index_select(2, sentences)
            self.bias = None if self.bias is None else self.bias.index_select(0, sentences)


def cross_projections(model: Transformer, memory: Tensor) -> Tensor:
    """Return the keys and values of a memory (B, S, D) in all layers, (L, 2, B, H, S, K)."""
    return torch.stack([torch.stack(layer.cross_attention.project(memory)) for layer in model.decoder.layers])


def decode_step(model: Transformer, token_ids: Tensor, cache: Cache) -> Tensor:
    """Return the hidden states (R, D) of the ids (R,) at position `cache.length`; the cache grows by this position."""
    decoder, num_sentences = model.decoder, cache.cross.size(2)
    states = decoder.embedding(token_ids[:, None], cache.length)  # (R, 1, D)
    for number, layer in enumerate(decoder.layers):
        states = layer.attention_residual(states, _attend_stored, layer.attention, number, cache)
        states = states.view(num_sentences, -1, states.size(2))  # (B, N, D)
        states = layer.cross_residual(states, layer.cross_attention.attend_projected, *cache.cross[number], cache.bias)
        states = layer.feed_forward_residual(states, layer.feed_forward).view(len(token_ids), 1, -1)  # (R, 1, D)
    cache.advance()
    return decoder.norm(states).squeeze(1)


def _attend_stored(states: Tensor, attention: SelfAttention, layer: int, cache: Cache) -> Tensor:
    """Compute `SelfAttention.forward` for the newest position alone, (R, 1, D) -> (R, 1, D)."""
    query, key, value = attention.query_key_value.split(states)  # (R, H, 1, K) each
    if attention.rotary is not None:
        query, key = attention.rotary(query, cache.length), attention.rotary(key, cache.length)
    context = cache.attend(layer, query, key, value)  # (R, H, 1, K)
    return attention.output(context.transpose(1, 2).flatten(2))
