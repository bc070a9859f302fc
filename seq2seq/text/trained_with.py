"""The settings that a SentencePiece model was trained with, read from the model itself.

`tasks.inputs` records them for a run that takes its tokenizers from another model. The model is a protocol buffer.
"""

import struct
from collections.abc import Iterator
from typing import Any

from seq2seq.text.protobuf import fields

KINDS = {1: "unigram", 2: "bpe"}
TRAINER, NORMALIZER = 2, 3  # fields of the model, each a message


def trained_with(model: bytes) -> dict[str, Any]:
    """Return values by the keys of `TokenizerConfig`; keys that the model does not record are omitted."""
    found: dict[str, Any] = {"kind": "unigram", "byte_fallback": False}  # defaults, which the model does not record
    try:
        for section, field, value in _settings(model):
            match section, field:  # as sentencepiece_model.proto numbers them
                case (2, 3) if value in KINDS:
                    found["kind"] = KINDS[value]
                case (2, 10):
                    found["character_coverage"] = round(struct.unpack("<f", value)[0], 6)
                case (2, 31):
                    found["extra_pieces"] = (*found.get("extra_pieces", ()), value.decode())
                case (2, 35):
                    found["byte_fallback"] = bool(value)
                case (3, 1):
                    found["normalization"] = value.decode()
    except (IndexError, struct.error, UnicodeDecodeError, ValueError):
        return {}
    return found


def _settings(model: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield (section, field, value) of each setting of the trainer and the normalizer."""
    for section, content, _ in fields(model):
        if section in (TRAINER, NORMALIZER):
            for field, value, _ in fields(content):
                yield section, field, value
