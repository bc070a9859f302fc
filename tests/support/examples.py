"""Files of examples, and the one line that refuses them; tests of sources and of their columns write and read them."""

import gzip
import json

import pytest

from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import DataError


def write(path, *lines):
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def write_jsonl(path, records):
    return write(path, *(json.dumps(record, ensure_ascii=False) for record in records))


def write_parts(folder, pairs, tag=None):
    """Write a folder of pairs, as `s2s augment` does, with one part; a `tag` precedes each source."""
    folder.mkdir()
    with gzip.open(folder / "part-00000.jsonl.gz", "wt") as part:
        for source, target in pairs:
            part.write(json.dumps({"source": f"{tag} {source}" if tag else source, "target": target}) + "\n")
    (folder / "augment.json").write_text(json.dumps({"counts": {"parts": 1}, "options": {"tag": tag}}))
    return folder


def check_one_line(config, pattern, labelled=False):
    with pytest.raises(DataError, match=pattern) as error:
        list(open_labelled(config) if labelled else open_pairs(config, "en", "de"))
    assert "\n" not in str(error.value)
