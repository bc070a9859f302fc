"""Building a tokenised corpus: from sources to files of ids, going on where a preparation was killed.

`corpus` asks for it. Every few seconds what is written is brought to the disk and noted with the place in the source
that follows it; a builder that finds such a note cuts the files back to it and reads on there, to the same bytes as if
nothing had happened.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from seq2seq import atomic
from seq2seq.config_values import as_label
from seq2seq.data.encoding import EncodedBlock, Encoding, encode_spans
from seq2seq.data.filters import FilterCounts, SeenBefore
from seq2seq.data.sources import Source
from seq2seq.data.spans import Position
from seq2seq.data.tables import label_problem
from seq2seq.errors import DataError, did_you_mean, some_of
from seq2seq.files import record

logger = logging.getLogger(__name__)

MANIFEST = "corpus.json"
# What only a builder reads: how far it is, keys of the examples, and their labels in the order of their first coming.
PROGRESS, KEYS, LABELS_AS_READ = "progress.json", "keys", "labels.read"
NOTE_SECONDS = 10.0


def checksum(manifest: Mapping[str, Any]) -> str:
    """Of all that a manifest says beside it."""
    said = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def remove_progress(folder: Path) -> None:
    """Delete what only a builder reads from a corpus that is whole, if that may be changed."""
    for name in (PROGRESS, KEYS, LABELS_AS_READ):
        with contextlib.suppress(OSError):
            (folder / name).unlink()


@dataclass
class _Progress:
    """How far a preparation is: what follows on a kill begins here."""

    source: int = 0
    """The source that is being read."""
    position: Position = None
    """Where in it."""
    bounds: list[int] = field(default_factory=lambda: [0])
    """Examples kept up to the end of each source."""
    read: int = 0
    """Examples of this source that were read."""
    counts: FilterCounts = field(default_factory=FilterCounts)
    label_ids: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Of the files."""


class CorpusBuilder:
    """Writes one corpus into a folder that is empty, or as a builder of the same corpus was stopped in it."""

    def __init__(
        self,
        folder: Path,
        sources: Sequence[Source],
        encoding: Encoding,
        types: dict[str, np.dtype],
        labels: Sequence[str] | None,
        num_workers: int,
    ):
        """`types` are those of the ids of each side; `labels` the classes that may occur, None for any."""
        self._folder, self._sources, self._encoding, self._types = folder, sources, encoding, types
        self._num_workers, self._given_labels = num_workers, labels
        self._is_labelled = "target" not in types
        self._seen = SeenBefore()

    def build(self, identity: dict[str, Any]) -> None:
        """Write what is not there yet, and last the manifest, which has `identity` in it.

        Raises:
            DataError: a source cannot be read, nothing is left of it, or it has a label that is not a given one.
            OSError: the folder cannot be written.
        """
        atomic.remove_leftovers(self._folder)
        self._progress = self._take_up()
        try:
            with contextlib.ExitStack() as stack:
                self._files = {name: stack.enter_context(self._open(name)) for name in self._written()}
                self._read_sources()
            self._check_not_empty()
            labels = self._sort_labels() if self._is_labelled else []
        except DataError:
            shutil.rmtree(self._folder)  # it will be another corpus once it is mended
            raise
        manifest = {
            **identity,
            "sources": [source.name for source in self._sources],
            "bounds": self._progress.bounds,
            "types": {side: id_type.name for side, id_type in self._types.items()},
            "counts": asdict(self._progress.counts),
            "labels": labels,
            "files": {name: record(self._folder / name) for name in self._kept()},
        }
        manifest["checksum"] = checksum(manifest)
        (self._folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")

    def _kept(self) -> list[str]:
        """The files of the corpus."""
        sides = [f"{side}.{kind}" for side in self._types for kind in ("ids", "offsets")]
        return sides + ["labels"] * self._is_labelled

    def _written(self) -> list[str]:
        """The files that grow while the sources are read."""
        sides = [f"{side}.{kind}" for side in self._types for kind in ("ids", "offsets")]
        return sides + [LABELS_AS_READ] * self._is_labelled + [KEYS] * self._encoding.finds_duplicates

    # -- going on ----------------------------------------------------------------------------------------------------

    def _take_up(self) -> _Progress:
        """Where a builder was stopped in this folder, or the beginning."""
        try:
            values = json.loads((self._folder / PROGRESS).read_bytes())
            progress = _Progress(**{**values, "counts": FilterCounts(**values["counts"])})
            whole = all((self._folder / name).stat().st_size >= progress.sizes[name] for name in self._written())
        except (OSError, ValueError, TypeError, KeyError):
            whole = False
        if not whole:
            label_ids = {label: i for i, label in enumerate(self._given_labels or ())}
            return _Progress(label_ids=label_ids, sizes=dict.fromkeys(self._written(), 0))
        if self._encoding.finds_duplicates:
            count = progress.sizes[KEYS] // np.dtype(np.uint64).itemsize
            self._seen.first_time(np.fromfile(self._folder / KEYS, dtype=np.uint64, count=count))
        logger.info("the preparation was interrupted after %s examples; continuing there", f"{progress.counts.total:,}")
        return progress

    def _open(self, name: str) -> BinaryIO:
        """A file of the corpus, cut back to what is known to be in it."""
        file = open(self._folder / name, "ab")
        file.truncate(self._progress.sizes[name])
        file.seek(0, os.SEEK_END)
        if not self._progress.sizes[name] and name.endswith(".offsets"):
            file.write(np.zeros(1, dtype=np.int64).tobytes())
        return file

    def _note(self) -> None:
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        self._progress.sizes = {name: file.tell() for name, file in self._files.items()}
        atomic.write_file(self._folder / PROGRESS, json.dumps(asdict(self._progress)).encode())

    # -- reading and writing -----------------------------------------------------------------------------------------

    def _read_sources(self) -> None:
        progress, noted = self._progress, time.monotonic()
        for number, source in list(enumerate(self._sources))[progress.source :]:
            for block in self._blocks(source):
                self._write(block, source.name)
                progress.position = block.end
                if time.monotonic() - noted > NOTE_SECONDS:
                    self._note()
                    noted = time.monotonic()
            progress.bounds.append(progress.counts.kept)
            progress.source, progress.position, progress.read = number + 1, None, 0

    def _blocks(self, source: Source) -> Iterator[EncodedBlock]:
        from tqdm import tqdm

        unit, read = "texts" if self._is_labelled else "pairs", self._progress.read
        spans = source.spans(self._progress.position)
        with tqdm(
            total=source.size, initial=read, desc=f"tokenising {Path(source.name).name}", unit=f" {unit}", disable=None
        ) as bar:
            for block in encode_spans(spans, self._encoding, self._num_workers):
                bar.update(block.counts.total)
                self._progress.read += block.counts.total
                yield block

    def _write(self, block: EncodedBlock, origin: str) -> None:
        if block.keys is not None:
            is_new = self._seen.first_time(block.keys)
            block.keep(is_new)
            block.counts.kept = int(is_new.sum())
            block.counts.drop("duplicate", len(is_new) - block.counts.kept)
            self._files[KEYS].write(block.keys[is_new].tobytes())
        self._progress.counts.add(block.counts)
        self._write_side("source", block.source_ids, block.source_lengths)
        if self._is_labelled:
            ids = [self._label_id(label, origin) for label in block.labels]
            self._files[LABELS_AS_READ].write(np.array(ids, dtype=np.int32).tobytes())
        else:
            self._write_side("target", block.target_ids, block.target_lengths)

    def _write_side(self, side: str, ids: np.ndarray, lengths: np.ndarray) -> None:
        file = self._files[f"{side}.ids"]
        written = file.tell() // ids.itemsize
        file.write(ids.tobytes())
        self._files[f"{side}.offsets"].write((written + np.cumsum(lengths, dtype=np.int64)).tobytes())

    # -- labels ------------------------------------------------------------------------------------------------------

    def _label_id(self, label: str, origin: str) -> int:
        label_ids = self._progress.label_ids
        if self._given_labels is not None and label not in label_ids:
            hint = did_you_mean(label, self._given_labels) or "; correct the label, or train with examples of it"
            raise DataError(
                f"{origin}: label {some_of([label])!r} is not one of those in the training corpus "
                f"({some_of(self._given_labels)}){hint}"
            )
        if label not in label_ids:
            try:
                label_ids[as_label(label)] = len(label_ids)
            except ValueError as error:
                raise DataError(f"{origin}: label {error}") from error
        return label_ids[label]

    def _sort_labels(self) -> list[str]:
        """The classes in their order; the ids of the examples, which were given as labels came, are put into it."""
        label_ids = self._progress.label_ids
        if self._given_labels is None and (problem := label_problem(len(label_ids), self._progress.counts.kept)):
            raise DataError(f"{', '.join(source.name for source in self._sources)}: {problem}")
        by_value = sorted(label_ids, key=lambda name: (0, int(name), "") if name.isdecimal() else (1, 0, name))
        names = by_value if self._given_labels is None else list(self._given_labels)
        order = np.zeros(len(names), dtype=np.int32)
        order[[label_ids[name] for name in names]] = np.arange(len(names))
        order[np.fromfile(self._folder / LABELS_AS_READ, dtype=np.int32)].tofile(self._folder / "labels")
        return names

    def _check_not_empty(self) -> None:
        counts = self._progress.counts
        if counts.kept == 0:
            names = ", ".join(source.name for source in self._sources)
            if counts.total == 0:
                raise DataError(f"{names}: no examples; the file has no lines")
            raise DataError(f"{names}: {counts}; nothing is left: loosen data.filters")
