"""The fields of a protocol buffer, such as a SentencePiece model; reading and writing them needs no package.

`segmenter` reads and writes the pieces of a model, `trained_with` reads its settings.
"""

import struct
from collections.abc import Iterator

FIXED_BYTES = {1: 8, 5: 4}  # by wire type
NUMBER, BYTES, FLOAT = 0, 2, 5


def fields(message: bytes) -> Iterator[tuple[int, int | bytes, bytes]]:
    """Yield (number, value, all bytes) of each field; values are numbers, or bytes that may be a message.

    Raises:
        ValueError: a field has another wire type than SentencePiece uses.
        IndexError: the message ends within a number.
    """
    position = 0
    while position < len(message):
        begin = position
        key, position = _number(message, position)
        kind, value = key & 7, None
        if kind == NUMBER:
            value, position = _number(message, position)
        elif kind == BYTES:
            size, position = _number(message, position)
        elif kind in FIXED_BYTES:
            size = FIXED_BYTES[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if value is None:
            value, position = message[position : position + size], position + size
        yield key >> 3, value, message[begin:position]


def bytes_field(number: int, content: bytes) -> bytes:
    """Return a field that holds bytes or a message."""
    return _varint(number << 3 | BYTES) + _varint(len(content)) + content


def float_field(number: int, value: float) -> bytes:
    """Return a field that holds a number in float32."""
    return _varint(number << 3 | FLOAT) + struct.pack("<f", value)


def _varint(value: int) -> bytes:
    """Return a number in variable length."""
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _number(message: bytes, position: int) -> tuple[int, int]:
    """Return a number of variable length, and the position after it."""
    value = shift = 0
    while True:
        byte = message[position]
        value, shift, position = value | (byte & 0x7F) << shift, shift + 7, position + 1
        if byte < 0x80:
            return value, position
