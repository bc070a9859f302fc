"""The encoder-decoder Transformer (Vaswani et al. 2017).

`tasks` and `store` create it, training calls `forward`, and search decodes with `decoding`. `Encoder` owns its
embedding, so a classifier loads the encoder half of a translation model unchanged.

Shapes: B sentences, S source length, T target length, D d_model, V vocabulary.
"""

from torch import Tensor, nn

from seq2seq.config.schema import ModelConfig
from seq2seq.model.attention import CrossAttention, HeadProjections, SelfAttention, key_bias
from seq2seq.model.layers import DecoderLayer, EncoderLayer, TokenEmbedding, make_norm


class Encoder(nn.Module):
    """The encoder, from token ids to a memory: embedding, layers, and with pre-norm a final norm."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.embedding = TokenEmbedding(config, vocab_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.norm = make_norm(config) if config.norm_position == "pre" else nn.Identity()
        initialize(self, config)

    def forward(self, source_ids: Tensor, source_bias: Tensor | None) -> Tensor:
        """Encode (B, S) ids, given the `source_bias` of their mask -> memory (B, S, D)."""
        states = self.embedding(source_ids)
        for layer in self.layers:
            states = layer(states, source_bias)
        return self.norm(states)

    def source_bias(self, source_mask: Tensor) -> Tensor | None:
        """Return the `key_bias` of a mask (B, S), True at real tokens."""
        return key_bias(source_mask, self.embedding.tokens.weight)


class Decoder(nn.Module):
    """The decoder, from target ids over a memory to hidden states."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.embedding = TokenEmbedding(config, vocab_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.norm = make_norm(config) if config.norm_position == "pre" else nn.Identity()
        initialize(self, config)

    def forward(self, target_ids: Tensor, memory: Tensor, source_bias: Tensor | None) -> Tensor:
        """Decode (B, T) ids over a memory (B, S, D) -> (B, T, D).

        Target padding needs no mask: it is at the end, and no position attends to later ones.
        """
        states = self.embedding(target_ids)
        for layer in self.layers:
            states = layer(states, memory, source_bias)
        return self.norm(states)


class Transformer(nn.Module):
    """Encoder, decoder and output layer, with embeddings tied as configured."""

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

    def forward(self, source_ids: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        """Run teacher forcing up to the output layer, which the loss applies to real tokens alone.

        Args:
            source_ids: (B, S).
            source_mask: (B, S), True at real tokens.
            target_input: (B, T), beginning with the start id.

        Returns:
            Hidden states, (B, T, D).
        """
        bias = self.encoder.source_bias(source_mask)
        return self.decoder(target_input, self.encoder(source_ids, bias), bias)

    def encode(self, source_ids: Tensor, source_mask: Tensor) -> Tensor:
        """Encode (B, S) ids and their mask -> memory (B, S, D)."""
        return self.encoder(source_ids, self.encoder.source_bias(source_mask))

    def decode(self, target_ids: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Decode (B, T) ids over a memory (B, S, D) -> hidden states (B, T, D); position t sees ids 0 ... t."""
        return self.decoder(target_ids, memory, key_bias(source_mask, memory))

    def project(self, hidden: Tensor) -> Tensor:
        """Apply the output layer, (..., D) -> logits (..., V)."""
        return self.output(hidden)


def initialize(module: nn.Module, config: ModelConfig) -> None:
    """Initialize every linear layer: Glorot-uniform matrices (Glorot and Bengio 2010) and zero biases.

    A layer that computes several projections is initialised as that many layers. With `mimetic`, attention weights are
    then set by `mimic`. Weights without values, on the `meta` device, are left.
    """
    if any(weight.is_meta for weight in module.parameters()):
        return
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            count = layer.count if isinstance(layer, HeadProjections) else 1
            for part in layer.weight.chunk(count):
                nn.init.xavier_uniform_(part)
            nn.init.zeros_(layer.bias)
    if config.initialization == "mimetic":
        for layer in module.modules():
            if isinstance(layer, SelfAttention | CrossAttention):
                layer.mimic()
