"""Export of our Transformer to the format of CTranslate2.

`workflows.convert` writes folders for users, `inference.conversion_cache` for itself. The output
bias suppresses the decoder's start and padding, so that every program that runs the folder gets the results of our own
search.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import ModelConfig
from seq2seq.files import record, write_object
from seq2seq.interop.ctranslate2 import DESCRIPTION, FORMAT, Obstacles, package
from seq2seq.model.transformer import Transformer
from seq2seq.text.tokenizer import TokenizerPair

# Added to the logits of suppressed ids; within the range of float16.
NEVER = -1e4
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "swiglu": "SWISH"}


def write_ctranslate2(
    folder: Path, model: Transformer, description: ModelDescription, tokenizers: TokenizerPair, quantization: str
) -> None:
    """Write a model into `folder`, which must exist.

    Sources must be passed to the engine as pieces without the end, which it adds. A multilingual model needs the end
    and the tag of the source, and the tag of the target as the prefix of a translation.

    Raises:
        Obstacles: CTranslate2 cannot run the model; the message names each obstacle.
    """
    if found := list(obstacles(tokenizers)):
        raise Obstacles(f"CTranslate2 cannot run this model: {'; '.join(found)}")
    spec = _specification(model, tokenizers)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(folder))
    tokenizers.save(folder)
    files = {path.name: record(path) for path in sorted(folder.iterdir())}
    described = description.model_dump(mode="json", exclude={"classifier", "labels", "label_names"})
    values = {"format": FORMAT, "quantization": quantization, **described, "files": files}
    write_object(folder / DESCRIPTION, values)


def obstacles(tokenizers: TokenizerPair) -> Iterator[str]:
    """Yield each reason why CTranslate2 cannot run a model; all our architectures are supported."""
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        pieces = tokenizer.pieces(range(tokenizer.vocab_size))
        if len(set(pieces)) < len(pieces):
            yield f"the {side} vocabulary has a piece twice"
        if any(not piece or "\n" in piece for piece in pieces):
            yield f"the {side} vocabulary has an empty piece, or one with a line feed"
    for name in ("eos_id", "unk_id"):
        ids = getattr(tokenizers.source, name), getattr(tokenizers.target, name)
        if tokenizers.source.pieces([ids[0]]) != tokenizers.target.pieces([ids[1]]):
            yield f"the two sides have different pieces for {name}"


def _specification(model: Transformer, tokenizers: TokenizerPair) -> Any:
    specs = package().specs
    config = model.config
    shape: dict[str, Any] = dict(
        num_heads=config.num_heads,
        pre_norm=config.norm_position == "pre",
        activation=getattr(specs.common_spec.Activation, ACTIVATIONS[config.activation]),
        ffn_glu=config.activation == "swiglu",
        rms_norm=config.norm == "rms",
        layernorm_embedding=config.embedding_norm,
        head_dim=config.head_width if config.head_width * config.num_heads != config.d_model else None,
    )
    if config.positions == "rotary":
        shape |= dict(rotary_dim=config.head_width, rotary_interleave=False)
    encoder = specs.transformer_spec.TransformerEncoderSpec(config.num_encoder_layers, **shape)
    decoder = specs.transformer_spec.TransformerDecoderSpec(config.num_decoder_layers, **shape)
    if config.positions == "rotary":
        del encoder.position_encodings  # the decoder's specification has none then
    _fill_stack(encoder, encoder.embeddings[0], model.encoder, config)
    _fill_stack(decoder, decoder.embeddings, model.decoder, config)
    decoder.projection.weight = _array(model.output.weight)
    decoder.projection.bias = _output_bias(model, tokenizers)
    spec = specs.TransformerSpec(encoder, decoder)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    target = tokenizers.target
    spec.config.unk_token, spec.config.eos_token, spec.config.decoder_start_token = target.pieces(
        [target.unk_id, target.eos_id, target.start_id]
    )
    spec.config.bos_token = spec.config.decoder_start_token
    if tokenizers.starts_with_tag:
        spec.config.decoder_start_token = None  # CTranslate2 takes it as the first piece of a prefix
    spec.config.add_source_eos = not tokenizers.needs_direction
    spec.register_source_vocabulary(tokenizers.source.pieces(range(tokenizers.source.vocab_size)))
    spec.register_target_vocabulary(target.pieces(range(target.vocab_size)))
    return spec


def _output_bias(model: Transformer, tokenizers: TokenizerPair) -> np.ndarray:
    target = tokenizers.target
    bias = model.output.bias
    bias = torch.zeros(target.vocab_size) if bias is None else bias.detach().clone().float()
    bias[list(tokenizers.never_generated)] = NEVER
    return _array(bias)


def _fill_stack(spec: Any, embeddings: Any, stack: nn.Module, config: ModelConfig) -> None:
    embeddings.weight = _array(stack.embedding.tokens.weight)
    spec.scale_embeddings = config.scale_embedding
    if stack.embedding.positions is not None:
        spec.position_encodings.encodings = _array(stack.embedding.positions.weight)
    if config.embedding_norm:
        _fill_norm(spec.layernorm_embedding, stack.embedding.norm)
    if config.norm_position == "pre":
        _fill_norm(spec.layer_norm, stack.norm)
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        own, feed_forward = layer.attention, layer.feed_forward
        _fill_block(layer_spec.self_attention, layer.attention_residual, own.query_key_value, own.output)
        if hasattr(layer, "cross_attention"):
            cross = layer.cross_attention
            _fill_block(layer_spec.attention, layer.cross_residual, cross.query, cross.key_value, cross.output)
        _fill_norm(layer_spec.ffn.layer_norm, layer.feed_forward_residual.norm)
        _fill_linear(layer_spec.ffn.linear_1, feed_forward.output)
        if config.activation == "swiglu":
            halves = (feed_forward.inner.weight.chunk(2), feed_forward.inner.bias.chunk(2))
            for part, *values in zip((layer_spec.ffn.linear_0, layer_spec.ffn.linear_0_noact), *halves, strict=True):
                part.weight, part.bias = map(_array, values)
        else:
            _fill_linear(layer_spec.ffn.linear_0, feed_forward.inner)


def _fill_block(spec: Any, residual: nn.Module, *linears: nn.Linear) -> None:
    _fill_norm(spec.layer_norm, residual.norm)
    for linear_spec, linear in zip(spec.linear, linears, strict=True):
        _fill_linear(linear_spec, linear)


def _fill_linear(spec: Any, layer: nn.Linear) -> None:
    spec.weight, spec.bias = _array(layer.weight), _array(layer.bias)


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = _array(norm.weight)
    if getattr(norm, "bias", None) is not None:
        spec.beta = _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    # copied, because CTranslate2 quantizes in place, and the model may still be in use
    return tensor.detach().float().cpu().contiguous().numpy().copy()
