"""Where a model looks in one sentence: attention weights with the pieces that they belong to.

`s2s plot --attention` asks for a `SentenceAttention` and draws it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from seq2seq.data.collate import collate_classification, collate_translation
from seq2seq.errors import DataError
from seq2seq.inference.translator import Translator
from seq2seq.model.attention import capture_attention
from seq2seq.store.model_folder import LoadedModel, load_model

# A text that is classified has most of them around it: a start and an end.
SPECIAL_IDS = 2


@dataclass(frozen=True)
class SentenceAttention:
    """One layer's weights."""

    weights: np.ndarray
    """(H, T, S); each row adds up to 1."""
    source_pieces: list[str]
    target_pieces: list[str]
    """Of each row: the piece that the position predicts (a translation), or reads (a classifier)."""
    layer: int
    """From 1."""
    num_layers: int
    sentence: str
    is_translation: bool


def sentence_attention(
    folder: Path, sentence: str, target: str | None = None, layer: int | None = None
) -> SentenceAttention:
    """Where the model in `folder` looks.

    A translation model answers with the cross-attention of each piece of the translation (`target`, or else its own);
    a classifier with its encoder's self-attention. `layer` counts from 1; None is the last.

    Raises:
        ModelError: there is no model in `folder`.
        DataError: the model has no such layer, or no positions for so long a sentence or translation.
    """
    loaded = load_model(folder)
    config = loaded.model.config
    translates = loaded.description.task == "translation"
    num_layers = config.num_decoder_layers if translates else config.num_encoder_layers
    layer = num_layers if layer is None else layer
    if not 1 <= layer <= num_layers:
        raise DataError(f"layer {layer}: the model has {num_layers}, counted from 1")
    _check_length(loaded.tokenizers.source.encode(sentence), config.max_length, "sentence")
    if not translates:
        return _of_text(loaded, sentence, layer, num_layers)
    if target is None:
        target = Translator.load(folder, engine="torch", device="cpu").translate([sentence])[0].text
    _check_length(loaded.tokenizers.target.encode(target), config.max_length, "translation")
    return _of_translation(loaded, sentence, target, layer, num_layers)


def _check_length(ids: Sequence[int], max_length: int, what: str) -> None:
    if len(ids) + SPECIAL_IDS > max_length:
        most = max_length - SPECIAL_IDS
        raise DataError(f"the {what} has {len(ids)} pieces, more than the model's {most}; take a shorter one")


def _of_translation(loaded: LoadedModel, sentence: str, target: str, layer: int, num_layers: int) -> SentenceAttention:
    pair = loaded.tokenizers
    batch = collate_translation([pair.source.encode(sentence)], [pair.target.encode(target)], pair, [0])
    inputs = (batch.source_ids, batch.source_mask, batch.target_input)
    weights = _weights(loaded.model, inputs, f"decoder.layers.{layer - 1}.cross_attention")
    source = pair.source.pieces(batch.source_ids[0].tolist())
    target_pieces = pair.target.pieces(batch.target_output[0].tolist())
    return SentenceAttention(weights, source, target_pieces, layer, num_layers, sentence, True)


def _of_text(loaded: LoadedModel, text: str, layer: int, num_layers: int) -> SentenceAttention:
    tokenizer = loaded.tokenizers.source
    batch = collate_classification([tokenizer.encode(text)], [0], tokenizer, [0])
    weights = _weights(loaded.model, (batch.source_ids, batch.source_mask), f"encoder.layers.{layer - 1}.attention")
    pieces = tokenizer.pieces(batch.source_ids[0].tolist())
    return SentenceAttention(weights, pieces, pieces, layer, num_layers, text, False)


def _weights(model: nn.Module, inputs: tuple[torch.Tensor, ...], name: str) -> np.ndarray:
    with torch.inference_mode(), capture_attention(model) as captured:
        model(*inputs)
    return captured[name][0].float().numpy()  # (H, T, S)
