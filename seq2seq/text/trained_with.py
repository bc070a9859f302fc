"""The settings that a SentencePiece model was trained with, read from the model itself.

`tasks.inputs` records them for a run that takes its tokenizers from another model. The model is a protocol buffer;
reading six fields of it needs no package.
"""

import struct
from collections.abc import Iterator
from typing import Any

KINDS = {1: "unigram", 2: "bpe"}
TRAINER, NORMALIZER = 2, 3  # fields of the model, each a message


def trained_with(model: bytes) -> dict[str, Any]:
    """Return values by the keys of `TokenizerConfig`; keys that the model does not record are omitted."""
    found: dict[str, Any] = {"kind": "unigram", "byte_fallback": False}  # defaults, which the model does not record
    try:
        for section, content in _fields(model):
            for field, value in _fields(content) if section in (TRAINER, NORMALIZER) else ():
                match section, field:  # as sentencepiece_model.proto numbers them
                    case (2, 3) if value in KINDS:
                        found["kind"] = KINDS[value]
                    case (2, 10):
                        found["character_coverage"] = round(struct.unpack("<f", value)[0], 6)
                    case (2, 35):
                        found["byte_fallback"] = bool(value)
                    case (3, 1):
                        found["normalization"] = value.decode()
    except (IndexError, struct.error, UnicodeDecodeError, ValueError):
        return {}
    return found


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of the fields of a protocol buffer; values are numbers or bytes."""
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        match key & 7:
            case 0:
                value, place = _number(message, place)
            case 1:
                value, place = message[place : place + 8], place + 8
            case 2:
                length, place = _number(message, place)
                value, place = message[place : place + length], place + length
            case 5:
                value, place = message[place : place + 4], place + 4
            case kind:
                raise ValueError(f"wire type {kind}")
        yield key >> 3, value


def _number(message: bytes, place: int) -> tuple[int, int]:
    """Return a variable-length number, and the place after it."""
    value = shift = 0
    while True:
        byte = message[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place
