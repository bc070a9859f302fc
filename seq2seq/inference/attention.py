"""The attention weights of a model for one sentence, with the pieces that they belong to.

`s2s plot --attention` draws a `SentenceAttention`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from seq2seq.data.collate import collate_classification, collate_translation
from seq2seq.errors import DataError
from seq2seq.inference.translator import Translator
from seq2seq.model.attention import capture_attention
from seq2seq.store.model_folder import load_model
from seq2seq.text.direction import UNNAMED, Direction

# The positions of a start and an end around a text.
SPECIAL_IDS = 2


@dataclass(frozen=True)
class SentenceAttention:
    """The attention weights of one layer."""

    weights: np.ndarray
    """(H, T, S); each row adds up to 1."""
    source_pieces: list[str]
    target_pieces: list[str]
    """The piece of each row: the one that the position predicts (in a translation) or reads (in a classifier)."""
    layer: int
    """The layer, from 1."""
    num_layers: int
    is_translation: bool


def sentence_attention(
    folder: Path,
    sentence: str,
    target: str | None = None,
    layer: int | None = None,
    direction: Direction = UNNAMED,
) -> SentenceAttention:
    """Return the attention of the model in `folder` for a sentence.

    For a translation model this is the cross-attention of each piece of the translation (`target`, or the model's own);
    for a classifier it is the self-attention of the encoder. `layer` counts from 1; None is the last layer.
    `direction` is for a multilingual model.

    Raises:
        ModelError: there is no model in `folder`.
        DataError: the model has no such layer, or the sentence or translation is too long for it.
        UserError: the model does not have the languages, or needs them.
    """
    loaded = load_model(folder).directed(direction)
    config, tokenizers = loaded.model.config, loaded.tokenizers
    translates = loaded.description.task == "translation"
    num_layers = config.num_decoder_layers if translates else config.num_encoder_layers
    layer = num_layers if layer is None else layer
    if not 1 <= layer <= num_layers:
        raise DataError(f"layer {layer}: the model has {num_layers}, counted from 1")
    source_ids = tokenizers.source.read(sentence)
    _check_length(source_ids, config.max_length, "sentence", "sentence")
    if translates:
        if target is None:
            translator = Translator.load(
                folder, engine="torch", device="cpu", source_language=direction.source, target_language=direction.target
            )
            text = translator.translate([sentence])[0].text
        else:
            text = target
        target_ids = tokenizers.target.encode(text)
        _check_length(target_ids, config.max_length, "translation", "sentence" if target is None else "translation")
        batch = collate_translation([source_ids], [target_ids], tokenizers, [0])
        inputs = (batch.source_ids, batch.source_mask, batch.target_input)
        name, rows = f"decoder.layers.{layer - 1}.cross_attention", batch.target_output
        first = len(tokenizers.target.start_ids) - 1
    else:
        batch = collate_classification([source_ids], [0], tokenizers.source, [0])
        inputs = (batch.source_ids, batch.source_mask)
        name, rows, first = f"encoder.layers.{layer - 1}.attention", batch.source_ids, 0
    with torch.inference_mode(), capture_attention(loaded.model) as captured:
        loaded.model(*inputs)
    return SentenceAttention(
        weights=captured[name][0].float().numpy()[:, first:],
        source_pieces=tokenizers.source.pieces(batch.source_ids[0].tolist()),
        target_pieces=tokenizers.target.pieces(rows[0, first:].tolist()),
        layer=layer,
        num_layers=num_layers,
        is_translation=translates,
    )


def _check_length(ids: Sequence[int], max_length: int, what: str, given: str) -> None:
    """Refuse a text (`what`) that is too long for the model; the user has `given` a text that can be shorter."""
    if len(ids) + SPECIAL_IDS > max_length:
        most = max_length - SPECIAL_IDS
        raise DataError(f"the {what} has {len(ids)} pieces, more than the model's {most}; take a shorter {given}")
