"""How much arithmetic a Transformer asks for: the matrix products of real tokens, counted from its sizes.

`training` and `decoding` set it against the machine's measured rate of matrix products. Padding is not counted: it is
no work that anybody asked for. Letters: D d_model, W heads * head_dim, F d_ff, V target vocabulary, S and T lengths.

A multiplication and an addition are two FLOPs, and a product with a weight matrix takes 2 * its size for each token:

    source token    2 * (encoder layers * (4 D W + n D F) + decoder layers * 2 D W)
    target token    2 * (decoder layers * (6 D W + n D F) + D V)
    attention       4 W * (encoder layers * S^2 + decoder layers * (T^2 + S T))    a pair

with n = 3 matrices in a feed-forward layer with swiglu and 2 otherwise. The keys and values of cross-attention belong
to source tokens. Training takes three times as much: each product has two in the backward pass.
"""

import numpy as np

from seq2seq.config import ModelConfig


def source_token_flops(config: ModelConfig) -> int:
    """Forward FLOPs of a source token, without attention's products."""
    layer = 4 * config.d_model * _width(config) + _feed_forward(config)
    return 2 * (config.num_encoder_layers * layer + config.num_decoder_layers * 2 * config.d_model * _width(config))


def target_token_flops(config: ModelConfig, vocab_size: int) -> int:
    """Forward FLOPs of a target token, without attention's products."""
    layer = 6 * config.d_model * _width(config) + _feed_forward(config)
    return 2 * (config.num_decoder_layers * layer + config.d_model * vocab_size)


def forward_flops(config: ModelConfig, vocab_size: int, source: np.ndarray, target: np.ndarray) -> int:
    """Forward FLOPs of sentence pairs of these lengths, ends included; each (pairs,)."""
    source, target = source.astype(np.int64), target.astype(np.int64)
    tokens = source_token_flops(config) * int(source.sum()) + target_token_flops(config, vocab_size) * int(target.sum())
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    weights = encoder * int((source**2).sum()) + decoder * int((target**2 + source * target).sum())
    return tokens + 4 * _width(config) * weights


def training_flops(config: ModelConfig, vocab_size: int, source: np.ndarray, target: np.ndarray) -> int:
    """FLOPs of training, forward and backward, on sentence pairs of these lengths, ends included; each (pairs,)."""
    return 3 * forward_flops(config, vocab_size, source, target)


def decoding_flops(config: ModelConfig, vocab_size: int, source_tokens: int, output_tokens: int, beam_size: int) -> int:
    """FLOPs of translating: every beam is as long as the translation that comes out; attention's products, about one
    in a hundred, are left out."""
    per_output = beam_size * target_token_flops(config, vocab_size)
    return source_token_flops(config) * source_tokens + per_output * output_tokens


def _width(config: ModelConfig) -> int:
    return config.num_heads * config.head_width


def _feed_forward(config: ModelConfig) -> int:
    return (3 if config.activation == "swiglu" else 2) * config.d_model * config.d_ff
