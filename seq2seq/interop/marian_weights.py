"""The names of a Marian model's weights, and the conversion to ours and back.

One table serves both directions. Projections that our layers stack in one matrix are separate in Marian.
`interop.marian` reads and writes the files.
"""

import itertools
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from seq2seq.config.schema import ModelConfig
from seq2seq.model.positions import sinusoids

SHARED, OUTPUT, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
ENCODER, DECODER = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
TIED = (SHARED, ENCODER, DECODER, OUTPUT)  # in M2M-100 and mBART, one tensor under several names
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
OUR_SOURCE, OUR_TARGET = "encoder.embedding.tokens.weight", "decoder.embedding.tokens.weight"
OUR_OUTPUT, OUR_BIAS = "output.weight", "output.bias"
# Stored sinusoids may have been computed in float32, or stored in float16.
POSITION_TOLERANCE = 2e-3


# (our part of a layer, Marian's parts that are stacked in it, whether only decoders have it)
PARTS = (
    ("attention.query_key_value", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), False),
    ("attention.output", ("self_attn.out_proj",), False),
    ("attention_residual.norm", ("self_attn_layer_norm",), False),
    ("cross_attention.query", ("encoder_attn.q_proj",), True),
    ("cross_attention.key_value", ("encoder_attn.k_proj", "encoder_attn.v_proj"), True),
    ("cross_attention.output", ("encoder_attn.out_proj",), True),
    ("cross_residual.norm", ("encoder_attn_layer_norm",), True),
    ("feed_forward.inner", ("fc1",), False),
    ("feed_forward.output", ("fc2",), False),
    ("feed_forward_residual.norm", ("final_layer_norm",), False),
)


def layer_table(config: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (our name, Marian's names) of each tensor of the layers; one of our tensors may stack several of
    Marian's."""
    for side, count in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        parts = [part[:2] for part in PARTS if side == "decoder" or not part[2]]
        for number, (our_part, their_parts), kind in itertools.product(range(count), parts, ("weight", "bias")):
            layer = f"{side}.layers.{number}"
            yield f"{layer}.{our_part}.{kind}", tuple(f"model.{layer}.{part}.{kind}" for part in their_parts)


def from_marian(marian: Mapping[str, Tensor], config: ModelConfig, problems: list[str]) -> dict[str, Tensor]:
    """Return our weights: float32, tied ones once under our first name. Missing and unexpected tensors are added to
    `problems`."""
    left = {name: tensor.float() for name, tensor in marian.items()}
    ours: dict[str, Tensor] = {}
    for our_name, names in layer_table(config):
        parts = [left.pop(name, None) for name in names]
        missing = [name for name, part in zip(names, parts, strict=True) if part is None]
        problems += [f"tensor {name} is missing" for name in missing]
        if not missing:
            ours[our_name] = torch.cat(parts) if len(parts) > 1 else parts[0]
    ours |= _embeddings(left, config, problems)
    if BIAS in left:
        ours[OUR_BIAS] = left.pop(BIAS).flatten()
    for name in POSITIONS:
        if name in left and not _are_sinusoids(left.pop(name), config):
            problems.append(f"tensor {name} does not hold sinusoidal positions")
    problems += [f"tensor {name} is unexpected" for name in sorted(left)]
    return ours


def to_marian(ours: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Return Marian's weights, tied ones once; interleaved sinusoids become all sines and then all cosines."""
    marian: dict[str, Tensor] = {}
    for our_name, names in layer_table(config):
        marian.update(zip(names, ours[our_name].chunk(len(names)), strict=True))
    match config.tied_embeddings:
        case "all":
            marian[SHARED] = ours[OUR_SOURCE]
        case "decoder":
            marian |= {ENCODER: ours[OUR_SOURCE], DECODER: ours[OUR_TARGET]}
        case "none":
            marian |= {ENCODER: ours[OUR_SOURCE], DECODER: ours[OUR_TARGET], OUTPUT: ours[OUR_OUTPUT]}
    if config.output_bias:
        marian[BIAS] = ours[OUR_BIAS][None]  # (1, V)
    if config.position_layout == "interleaved":
        marian = {name: _in_halves(name, tensor, config) for name, tensor in marian.items()}
    return {name: tensor.detach().clone().contiguous() for name, tensor in marian.items()}


def _embeddings(left: dict[str, Tensor], config: ModelConfig, problems: list[str]) -> dict[str, Tensor]:
    """Take the embeddings out of `left`; a file may contain tied ones under any of their names, or under several."""
    found = {name: left.pop(name) for name in (SHARED, ENCODER, DECODER, OUTPUT) if name in left}
    match config.tied_embeddings:
        case "all":
            wanted = {OUR_SOURCE: (SHARED, ENCODER, DECODER, OUTPUT)}
        case "decoder":
            wanted = {OUR_SOURCE: (ENCODER,), OUR_TARGET: (DECODER, OUTPUT)}
        case "none":
            wanted = {OUR_SOURCE: (ENCODER,), OUR_TARGET: (DECODER,), OUR_OUTPUT: (OUTPUT,)}
    ours = {}
    for our_name, names in wanted.items():
        there = [name for name in names if name in found] or [SHARED] * (SHARED in found)
        if not there:
            problems.append(f"tensor {names[0]} is missing")
            continue
        ours[our_name] = found[there[0]]
        problems += [
            f"tensors {there[0]} and {name} must be tied, but differ"
            for name in there[1:]
            if not torch.equal(found[name], found[there[0]])
        ]
    return ours


def _are_sinusoids(table: Tensor, config: ModelConfig) -> bool:
    expected = sinusoids(config.max_length, config.d_model, "halves")
    return table.shape == expected.shape and bool((table - expected).abs().max() < POSITION_TOLERANCE)


def _in_halves(name: str, tensor: Tensor, config: ModelConfig) -> Tensor:
    """Return a weight with the D dimensions of the states in Marian's order: even ones (sines), then odd ones
    (cosines).

    All weights that read or write the states are permuted in the same way, so the model computes the same function.
    """
    order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
    part = name.split(".")[-2] if "." in name else name
    if part in ("out_proj", "fc2") or "layer_norm" in part:
        return tensor[order]  # writes: rows of a matrix, or the entries of a vector
    if part in ("q_proj", "k_proj", "v_proj", "fc1", "shared", "embed_tokens", "lm_head") and name.endswith("weight"):
        return tensor[:, order]  # reads
    return tensor
