"""The encoder-decoder Transformer (Vaswani et al. 2017), and the cache that decoding keeps.

`tasks` and `checkpoint` make one, training calls `forward`, search calls `new_cache` and `decode_step`; both paths are
the same layers. `Encoder` owns its embedding, so a classifier loads the encoder half of a translation model unchanged.

Shapes: B sentences, S source length, T target length, D d_model, H heads, K head_dim, V vocabulary, R = B * beams.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from seq2seq.config import ModelConfig
from seq2seq.model.attention import CrossAttention, SelfAttention, key_bias
from seq2seq.model.functions import plain
from seq2seq.model.layers import DecoderLayer, EncoderLayer, TokenEmbedding, make_norm


class Encoder(nn.Module):
    """Token ids to a memory: embedding, layers, and with pre-norm a last norm."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.embedding = TokenEmbedding(config, vocab_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.norm = make_norm(config) if config.norm_position == "pre" else nn.Identity()
        initialize(self, config)

    def forward(self, source_ids: Tensor, source_mask: Tensor) -> Tensor:
        """(B, S) ids and mask (True = real) -> memory (B, S, D)."""
        bias = padding_bias(source_mask)
        states = self.embedding(source_ids)
        for layer in self.layers:
            states = layer(states, bias)
        return self.norm(states)


class Decoder(nn.Module):
    """Target ids over a memory to hidden states."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.embedding = TokenEmbedding(config, vocab_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.norm = make_norm(config) if config.norm_position == "pre" else nn.Identity()
        initialize(self, config)

    def forward(self, target_ids: Tensor, memory: Tensor, source_bias: Tensor | None) -> Tensor:
        """(B, T) ids over a memory (B, S, D) -> (B, T, D).

        Target padding needs no mask: it stands at the end, and no position looks ahead.
        """
        states = self.embedding(target_ids)
        for layer in self.layers:
            states = layer(states, memory, source_bias)
        return self.norm(states)


class Transformer(nn.Module):
    """Encoder, decoder and output layer, tied as the configuration says."""

    def __init__(self, config: ModelConfig, source_vocab_size: int, target_vocab_size: int):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config, source_vocab_size)
        self.decoder = Decoder(config, target_vocab_size)
        self.output = nn.Linear(config.d_model, target_vocab_size, bias=config.output_bias)
        if config.tied_embeddings == "none":
            nn.init.normal_(self.output.weight, std=config.d_model**-0.5)
        else:
            self.output.weight = self.decoder.embedding.tokens.weight
        if config.tied_embeddings == "all":
            self.encoder.embedding.tokens.weight = self.decoder.embedding.tokens.weight
        if self.output.bias is not None:
            nn.init.zeros_(self.output.bias)

    @property
    def output_weight(self) -> Tensor:
        """(V, D)."""
        return self.output.weight

    @property
    def output_bias(self) -> Tensor | None:
        """(V,) or None."""
        return self.output.bias

    def forward(self, source_ids: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        """Teacher forcing, up to the output layer, which the loss applies to real tokens alone.

        Args:
            source_ids: (B, S).
            source_mask: (B, S), True at real tokens.
            target_input: (B, T), beginning with the start id.

        Returns:
            Hidden states, (B, T, D).
        """
        return self.decode(target_input, self.encode(source_ids, source_mask), source_mask)

    def encode(self, source_ids: Tensor, source_mask: Tensor) -> Tensor:
        """(B, S) ids and mask -> memory (B, S, D)."""
        return self.encoder(source_ids, source_mask)

    def decode(self, target_ids: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """(B, T) ids over a memory (B, S, D) -> hidden states (B, T, D); position t sees ids 0 ... t."""
        return self.decoder(target_ids, memory, padding_bias(source_mask))

    def project(self, hidden: Tensor) -> Tensor:
        """(..., D) -> logits (..., V)."""
        return self.output(hidden)

    def new_cache(self, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int) -> "DecoderCache":
        """An empty cache for decoding each sentence, at most `max_length` positions: one row of it, and after
        `DecoderCache.spread` `beam_size` rows."""
        return DecoderCache(self, memory, source_mask, beam_size, max_length)

    def decode_step(self, token_ids: Tensor, cache: "DecoderCache") -> Tensor:
        """The ids of position `cache.length`, (R,) sentence-major -> hidden (R, D); the cache grows by one."""
        states = cache.embed(token_ids, cache.length)  # (R, D)
        for step, own, memory in zip(cache.layer_steps, cache.extend(), cache.cross, strict=True):
            states = step(states, own, memory, cache.source_bias)
        return cache.norm(states)


class DecoderCache:
    """Keys and values that decoding has computed: self-attention's for each row, cross-attention's once a sentence.

    Self-attention's stand time-first in one preallocated block, so that following the beams copies exactly the
    positions there are, in one call for all layers, into a second block that then takes the first one's place. Both are
    handed out as the steps of `SelfAttention` and `CrossAttention` multiply them, with no copy.

    `embed`, `layer_steps` and `norm` are the decoder's functions of one step: they last as long as a batch, so that
    they never outlive the parameters that they hold.
    """

    def __init__(self, model: Transformer, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int):
        config = model.config
        self.length = 0
        self.beam_size = beam_size
        self.embed = model.decoder.embedding.step_function()
        self.layer_steps = [layer.step_function() for layer in model.decoder.layers]
        self.norm = plain(model.decoder.norm)
        self._num_heads, self._num_layers = config.num_heads, config.num_decoder_layers
        self._width = config.num_heads * config.head_width
        self._max_length = max_length
        parts = [part for layer in model.decoder.layers for part in layer.cross_attention.project(memory)]
        self._set_cross([part.contiguous() for part in parts], padding_bias(source_mask))
        size = max_length * self._num_layers * 2 * memory.size(0) * beam_size * self._width
        self._storage = torch.empty(size, dtype=parts[0].dtype, device=memory.device)
        self._spare: Tensor | None = None  # until rows are first moved
        self._use(self._room(memory.size(0)))

    def extend(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Room for one more position: for each layer `newest`, `keys` and `values` of `SelfAttention`'s step."""
        newest = self._view[self.length].unbind(0)  # (2, R, H*K) each
        self.length += 1
        keys, values = self._keys[..., : self.length].unbind(0), self._values[:, :, : self.length].unbind(0)
        return zip(newest, keys, values, strict=True)

    def spread(self) -> None:
        """From here on `beam_size` rows of each sentence, which all go on from the one there was."""
        sentences = torch.arange(self._view.size(3), device=self._view.device)
        self.reorder(sentences.repeat_interleave(self.beam_size))

    def reorder(self, rows: Tensor) -> None:
        """Row r goes on from what row `rows[r]` was, (R',); a sentence's beams share its cross keys, which stay."""
        if self._spare is None:
            self._spare = torch.empty_like(self._storage)
        before, self._spare, self._storage = self._view, self._storage, self._spare
        self._use(self._room(rows.size(0)))
        torch.index_select(before[: self.length], 3, rows, out=self._view[: self.length])

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences, (B',) in this order, with all their rows; the others are finished.

        Only what is not in its place already is copied.
        """
        count = len(sentences)
        to = (sentences != torch.arange(count, device=sentences.device)).nonzero().squeeze(1)
        source = sentences[to]
        beams = torch.arange(self.beam_size, device=sentences.device)
        rows_to, rows_from = ((some[:, None] * self.beam_size + beams).flatten() for some in (to, source))
        stored = self._view[: self.length]
        stored.index_copy_(3, rows_to, stored.index_select(3, rows_from))
        self._use(self._view[:, :, :, : count * self.beam_size])
        parts = [part.index_copy_(0, to, part.index_select(0, source))[:count] for part in self._cross]
        self._set_cross(parts, None if self._bias is None else self._bias.index_select(0, sentences))

    def _set_cross(self, parts: list[Tensor], bias: Tensor | None) -> None:
        """Keys and values of the layers by turns, (B, H, S, K) each, and the bias of their positions, (B, 1, 1, S)."""
        self._cross, self._bias = parts, bias
        by_head = [part.flatten(0, 1) for part in parts]  # (B*H, S, K)
        self.cross = [(key.transpose(1, 2), value) for key, value in zip(by_head[::2], by_head[1::2], strict=True)]
        self.source_bias = None
        if bias is not None:
            self.source_bias = bias.to(parts[0].dtype).expand(-1, self._num_heads, -1, -1).flatten(0, 1)  # (B*H, 1, S)

    def _room(self, num_rows: int) -> Tensor:
        shape = (self._max_length, self._num_layers, 2, num_rows, self._width)
        return self._storage[: math.prod(shape)].view(shape)

    def _use(self, view: Tensor) -> None:
        self._view = view  # (max_length, L, 2, R, H*K)
        by_head = self._view.unflatten(4, (self._num_heads, -1)).flatten(3, 4)  # (max_length, L, 2, R*H, K)
        self._keys = by_head[:, :, 0].permute(1, 2, 3, 0)  # (L, R*H, K, max_length)
        self._values = by_head[:, :, 1].permute(1, 2, 0, 3)  # (L, R*H, max_length, K)


def padding_bias(mask: Tensor) -> Tensor | None:
    """`key_bias`, or None where a CPU sees at once that nothing is padded; asking a GPU would make it wait."""
    if mask.device.type == "cpu" and not torch.compiler.is_compiling() and bool(mask.all()):
        return None
    return key_bias(mask)


def initialize(module: nn.Module, config: ModelConfig) -> None:
    """Glorot-uniform matrices (Glorot and Bengio 2010) and zero biases for every linear layer.

    A layer that computes several projections at once is initialised as that many layers. With `mimetic`, attention
    begins as `mimic` says.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            parts = {"query_key_value": 3, "key_value": 2}.get(name.rpartition(".")[2], 1)
            for part in layer.weight.chunk(parts):
                nn.init.xavier_uniform_(part)
            nn.init.zeros_(layer.bias)
    if config.initialization == "mimetic":
        for layer in module.modules():
            if isinstance(layer, SelfAttention | CrossAttention):
                layer.mimic()
