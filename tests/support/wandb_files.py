"""The records in the files of W&B that tests of trackers read."""

import struct
from pathlib import Path


def blocks(path: Path) -> list[tuple[int, bytes]]:
    """(kind, content) of the parts of records in a .wandb file: blocks of 32 KiB, as in a log of LevelDB."""
    content, place, found = path.read_bytes(), 7, []
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        found.append((kind, content[place + 7 : place + 7 + length]))
        place += 7 + length
    return found


def wandb_records(path: Path):
    from wandb.proto.wandb_internal_pb2 import Record

    part = b""
    for kind, content in blocks(path):
        part = content if kind in (1, 2) else part + content
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(part)
