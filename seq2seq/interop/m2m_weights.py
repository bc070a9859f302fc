"""The weights of M2M-100, NLLB-200 and mBART: Marian's names, and the norms and learned positions that Marian lacks.

`interop.m2m` opens the files; a module is filled from them, tensor by tensor.
"""

from collections.abc import Iterator

import torch

from seq2seq.config.schema import ModelConfig
from seq2seq.interop.m2m_settings import POSITION_OFFSET
from seq2seq.interop.marian_weights import (
    BIAS,
    OUR_BIAS,
    OUR_SOURCE,
    POSITION_TOLERANCE,
    POSITIONS,
    SHARED,
    TIED,
    layer_table,
)
from seq2seq.model.positions import sinusoids
from seq2seq.model.transformer import Transformer
from seq2seq.tensors import HeldTensors, are_equal, copy_rows, distinct

# Sinusoids that old folders store.
_SINUSOIDS = tuple(name + "s" for name in POSITIONS)


def tensor_table(config: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (our name, their names) of each tensor but the tied embeddings; ours may be several of theirs, stacked."""
    yield from layer_table(config)
    for side, positions in zip(("encoder", "decoder"), POSITIONS, strict=True):
        for kind in ("weight", "bias"):
            yield f"{side}.norm.{kind}", (f"model.{side}.layer_norm.{kind}",)
            if config.embedding_norm:
                yield f"{side}.embedding.norm.{kind}", (f"model.{side}.layernorm_embedding.{kind}",)
        if config.positions == "learned":
            yield f"{side}.embedding.positions.weight", (positions,)
    if config.output_bias:
        yield OUR_BIAS, (BIAS,)


def fill(model: Transformer, stored: HeldTensors, problems: list[str]) -> None:
    """Copy stored weights into a model with tied embeddings; what is missing, too much or of another shape goes to
    `problems`.

    Raises:
        DamagedFile: a tensor has values that no trained model has.
    """
    own = distinct(model.state_dict(keep_vars=True))
    left = set(stored.shapes)
    for our_name, names in [*tensor_table(model.config), (OUR_SOURCE, (_embeddings(stored),))]:
        left -= set(names)
        for name, part in zip(names, own[our_name].chunk(len(names)), strict=True):
            skipped = POSITION_OFFSET if name in POSITIONS else 0
            part = part[None] if name == BIAS else part  # (1, V)
            expected = (part.shape[0] + skipped, *part.shape[1:])
            if name not in stored.shapes:
                problems.append(f"tensor {name} is missing")
            elif stored.shapes[name] != expected:
                problems.append(f"tensor {name} has shape {stored.shapes[name]}, not {tuple(expected)}")
            else:
                copy_rows(stored, name, part, skipped)
    for name in TIED:
        if name in left:
            left.discard(name)
            if not are_equal(stored, name, own[OUR_SOURCE]):
                problems.append(f"tensor {name} is to be tied to the embeddings, but differs")
    for name in _SINUSOIDS:
        if name in left and _holds_sinusoids(stored, name, model.config):
            left.discard(name)
    problems += [f"tensor {name} is unexpected" for name in sorted(left)]


def _embeddings(stored: HeldTensors) -> str:
    """Return the name of the embeddings, which are in a file under any of these."""
    return next((name for name in TIED if name in stored.shapes), SHARED)


def _holds_sinusoids(stored: HeldTensors, name: str, config: ModelConfig) -> bool:
    shape = stored.shapes[name]
    if config.positions != "sinusoidal" or len(shape) != 2 or shape[1] != config.d_model:
        return False
    expected = sinusoids(shape[0], config.d_model, config.position_layout, config.position_formula)
    table = torch.cat([block for _, block in stored.blocks(name)])
    return bool((table - expected)[POSITION_OFFSET:].abs().max() < POSITION_TOLERANCE)  # a row of zeros is for padding
