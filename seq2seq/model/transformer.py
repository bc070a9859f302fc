"""The encoder-decoder Transformer (Vaswani et al. 2017), and the cache that decoding keeps.

`tasks` and `checkpoint` make one, training calls `forward`, search calls `new_cache` and `decode_step`; both paths are
the same layers. `Encoder` owns its embedding, so a classifier loads the encoder half of a translation model unchanged.

Shapes: B sentences, S source length, T target length, D d_model, H heads, K head_dim, V vocabulary, R = B * beams.
"""

import torch
from torch import Tensor, nn

from seq2seq.config import ModelConfig
from seq2seq.model.attention import CrossAttention, SelfAttention, key_bias
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
        """An empty cache for decoding `beam_size` rows of each sentence, at most `max_length` positions."""
        return DecoderCache(self, memory, source_mask, beam_size, max_length)

    def decode_step(self, token_ids: Tensor, cache: "DecoderCache") -> Tensor:
        """The ids of position `cache.length`, (R,) sentence-major -> hidden (R, D); the cache grows by one."""
        states = self.decoder.embedding(token_ids[:, None], start=cache.length).squeeze(1)  # (R, D)
        own = cache.extend()  # (t + 1, 2L, R, H*K)
        for index, layer in enumerate(self.decoder.layers):
            key, value = cache.cross[index]
            states = layer.step(states, own[:, 2 * index : 2 * index + 2], key, value, cache.source_bias)
        return self.decoder.norm(states)


class DecoderCache:
    """Keys and values that decoding has computed: self-attention's for each row, cross-attention's once a sentence.

    Self-attention's stand time-first in one preallocated block, so that following the beams copies exactly the
    positions there are, in one call for all layers, into a second block that then takes the first one's place.
    """

    def __init__(self, model: Transformer, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int):
        config = model.config
        self.length = 0
        self.beam_size = beam_size
        self.source_bias = padding_bias(source_mask)
        self.cross = [
            tuple(part.contiguous() for part in layer.cross_attention.project(memory))  # (B, H, S, K) each
            for layer in model.decoder.layers
        ]
        width = config.num_heads * config.head_width
        self._row_shape = (max_length, 2 * config.num_decoder_layers)
        self._width = width
        size = max_length * 2 * config.num_decoder_layers * memory.size(0) * beam_size * width
        dtype = self.cross[0][0].dtype
        self._storage = torch.empty(size, dtype=dtype, device=memory.device)
        self._spare: Tensor | None = None  # greedy search never needs it
        self._view = self._shaped(self._storage, memory.size(0) * beam_size)

    def extend(self) -> Tensor:
        """Room for one more position: (t + 1, 2L, R, H * K), the last position still to be written."""
        self.length += 1
        return self._view[: self.length]

    def reorder(self, rows: Tensor) -> None:
        """Row r goes on from what row `rows[r]` was, (R',); a sentence's beams share its cross keys, which stay."""
        if self._spare is None:
            self._spare = torch.empty_like(self._storage)
        moved = self._shaped(self._spare, rows.size(0))
        torch.index_select(self._view[: self.length], 2, rows, out=moved[: self.length])
        self._storage, self._spare, self._view = self._spare, self._storage, moved

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences, (B',) ascending, with all their rows; the others are finished."""
        beams = torch.arange(self.beam_size, device=sentences.device)
        self.reorder((sentences[:, None] * self.beam_size + beams).flatten())
        self.cross = [(key.index_select(0, sentences), value.index_select(0, sentences)) for key, value in self.cross]
        if self.source_bias is not None:
            self.source_bias = self.source_bias.index_select(0, sentences)

    def _shaped(self, storage: Tensor, num_rows: int) -> Tensor:
        size = self._row_shape[0] * self._row_shape[1] * num_rows * self._width
        return storage[:size].view(*self._row_shape, num_rows, self._width)  # (max_length, 2L, R, H*K)


def padding_bias(mask: Tensor) -> Tensor | None:
    """`key_bias`, or None where a processor sees at once that nothing is padded; asking a GPU would make it wait."""
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
