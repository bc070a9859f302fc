"""The texts that the teachers translate, and those that are held out, as files for `workflows.augment`."""

import gzip
import io
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from seq2seq import atomic
from seq2seq.config.corpora import SourceConfig
from seq2seq.config.schema import Config
from seq2seq.data.sources import open_pairs
from seq2seq.lines import as_one_line


def sources(config: Config, corpora: Iterable[SourceConfig]) -> Iterator[str]:
    """Return the source sides of the pairs of corpora, in the languages of a configuration."""
    languages = config.source_language or "", config.target_language or ""
    opened = (open_pairs(corpus, *languages).untagged() for corpus in corpora)  # teachers do not know the tag
    return (pair.source for pair in chain.from_iterable(opened))


def write_lines(path: Path, texts: Iterable[str]) -> None:
    """Write a line for each text, compressed by gzip, unless the file is there."""
    if path.exists():
        return
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", 6, packed, mtime=0) as stream:
        for text in texts:
            stream.write(f"{as_one_line(text)}\n".encode("utf-8", "replace"))
    atomic.write_file(path, packed.getvalue())
