"""Building a tokenised corpus: source -> chunks -> filters and ids (in worker processes) -> duplicates -> files.

`corpus` calls it. Every few seconds the files are synced to disk, and a note records their sizes and the position in
the source. A builder that finds such a note truncates the files to these sizes and continues from there; the result has
the same bytes as without the interruption.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from seq2seq import atomic
from seq2seq.config.values import as_label
from seq2seq.data.encoding import EncodedChunk, Encoding
from seq2seq.data.examples import Position, Source
from seq2seq.data.filters import FilterCounts, SeenBefore
from seq2seq.errors import DataError, did_you_mean, shown, some_of
from seq2seq.files import record
from seq2seq.processes import in_processes

logger = logging.getLogger(__name__)

MANIFEST = "corpus.json"
# Files that only builders use: progress, keys of the examples, and their labels in order of occurrence.
PROGRESS, KEYS, LABELS_AS_READ = "progress.json", "keys", "labels.read"
LABELS, PROBABILITIES = "labels", "probabilities"
NOTE_SECONDS = 10.0
# Minimum number of chunks; starting processes takes as long as tokenising some tens of thousands of sentences.
CHUNKS_WORTH_A_POOL = 25


def checksum(manifest: Mapping[str, Any]) -> str:
    """Return the checksum of all other values of a manifest."""
    values = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def remove_progress(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Delete files that only the builder needs, or that are empty, from a complete corpus, if that is permitted."""
    for name in {PROGRESS, KEYS, LABELS_AS_READ, PROBABILITIES} - manifest["files"].keys():
        with contextlib.suppress(OSError):
            (folder / name).unlink()


@dataclass
class _Progress:
    """The progress of a preparation, as noted on disk."""

    source: int = 0  # index of the source being read
    position: Position = None  # in that source
    read: int = 0  # examples read from that source
    bounds: list[int] = field(default_factory=lambda: [0])  # examples kept up to the end of each source
    counts: FilterCounts = field(default_factory=FilterCounts)
    label_ids: dict[str, int] = field(default_factory=dict)
    soft: dict[str, list[str]] = field(default_factory=dict)  # labels with probabilities, by index of source
    sizes: dict[str, int] = field(default_factory=dict)  # sizes of the files, in bytes


class CorpusBuilder:
    """Builder of one corpus, in a folder that is empty or that an interrupted builder of the same corpus left."""

    def __init__(
        self, folder: Path, sources: Sequence[Source], encoding: Encoding, labels: Sequence[str], workers: int
    ):
        """Initialize; `labels` are the allowed classes, empty for any."""
        self._folder, self._sources, self._encoding = folder, sources, encoding
        self._given_labels, self._num_workers = labels, workers
        self._is_labelled = encoding.is_labelled
        self._sides = [f"{side}.{kind}" for side in encoding.types for kind in ("ids", "offsets")]
        self._written = self._sides + [LABELS_AS_READ, PROBABILITIES] * self._is_labelled
        self._written += [KEYS] * encoding.finds_duplicates
        self._seen = SeenBefore()

    def build(self, head: dict[str, Any]) -> dict[str, Any]:
        """Write missing files, and last the manifest, which begins with `head`; return the manifest.

        Raises:
            DataError: a source cannot be read, no example is left, or a label is not an allowed one.
            OSError: the folder cannot be written.
        """
        atomic.remove_leftovers(self._folder)
        self._progress = self._resumed()
        try:
            with contextlib.ExitStack() as stack:
                self._files = {name: stack.enter_context(self._open(name)) for name in self._written}
                for index in range(self._progress.source, len(self._sources)):
                    self._read(index)
            counts, names = self._progress.counts, ", ".join(source.name for source in self._sources)
            if counts.total == 0:
                raise DataError(f"{names}: no examples; name another file")
            if counts.kept == 0:
                raise DataError(f"{names}: {counts}; nothing is left: loosen data.filters")
            labels = self._sort_labels(names) if self._is_labelled else []
        except DataError:
            shutil.rmtree(self._folder)  # a corrected source is another corpus
            raise
        files = self._sides + [LABELS] * self._is_labelled + [PROBABILITIES] * bool(self._progress.soft)
        manifest = {
            **head,
            "sources": [source.name for source in self._sources],
            "bounds": self._progress.bounds,
            "types": {side: id_type.name for side, id_type in self._encoding.types.items()},
            "counts": asdict(counts),
            "labels": labels,
            "soft": list(map(int, self._progress.soft)),
            "files": {name: record(self._folder / name) for name in files},
        }
        manifest["checksum"] = checksum(manifest)
        (self._folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        return manifest

    def _read(self, index: int) -> None:
        from tqdm import tqdm

        source, progress, noted = self._sources[index], self._progress, time.monotonic()
        chunks = source.chunks(progress.position)
        unit = " texts" if self._is_labelled else " pairs"
        name = f"tokenising {Path(source.name).name}"
        with tqdm(total=source.size, initial=progress.read, desc=name, unit=unit, disable=None) as bar:
            for chunk in in_processes(self._encoding, chunks, self._num_workers, CHUNKS_WORTH_A_POOL):
                self._write(chunk, source.name)
                bar.update(chunk.counts.total)
                progress.read += chunk.counts.total
                progress.position = chunk.end
                if time.monotonic() - noted > NOTE_SECONDS:
                    self._note()
                    noted = time.monotonic()
        progress.bounds.append(progress.counts.kept)
        progress.source, progress.position, progress.read = index + 1, None, 0

    def _write(self, chunk: EncodedChunk, origin: str) -> None:
        if chunk.keys is not None:
            is_new = self._seen.first_time(chunk.keys)
            chunk.keep(is_new)
            chunk.counts.kept = int(is_new.sum())
            chunk.counts.drop("duplicate", len(is_new) - chunk.counts.kept)
            self._files[KEYS].write(chunk.keys[is_new].tobytes())
        self._progress.counts.add(chunk.counts)
        for side, ids in chunk.ids.items():
            file = self._files[f"{side}.ids"]
            start = file.tell() // ids.itemsize
            file.write(ids.tobytes())
            ends = start + np.cumsum(chunk.lengths[side], dtype=np.int64)
            self._files[f"{side}.offsets"].write(ends.tobytes())
        if self._is_labelled:
            label_ids = [self._label_id(label, origin) for label in chunk.labels]
            self._files[LABELS_AS_READ].write(np.array(label_ids, dtype=np.int32).tobytes())
        if chunk.probabilities:
            for label in chunk.probabilities:
                self._label_id(label, origin)
            labels = self._progress.soft[str(self._progress.source)] = self._in_order(chunk.probabilities)
            rows = np.stack([chunk.probabilities[label] for label in labels], axis=1)  # (B, C)
            self._files[PROBABILITIES].write(rows.tobytes())

    # -- resuming ----------------------------------------------------------------------------------------------------

    def _resumed(self) -> _Progress:
        """Return the progress noted in this folder, or the beginning if there is no note or, after a power cut, files
        are too short."""
        try:
            values = json.loads((self._folder / PROGRESS).read_bytes())
            progress = _Progress(**{**values, "counts": FilterCounts(**values["counts"])})
            is_whole = all((self._folder / name).stat().st_size >= progress.sizes[name] for name in self._written)
        except (OSError, ValueError, TypeError, KeyError):
            is_whole = False
        if not is_whole:
            label_ids = {label: i for i, label in enumerate(self._given_labels)}
            return _Progress(label_ids=label_ids, sizes=dict.fromkeys(self._written, 0))
        if self._encoding.finds_duplicates:
            count = progress.sizes[KEYS] // np.dtype(np.uint64).itemsize
            self._seen.first_time(np.fromfile(self._folder / KEYS, dtype=np.uint64, count=count))
        logger.info("the preparation was interrupted after %s examples; continuing there", f"{progress.counts.total:,}")
        return progress

    def _open(self, name: str) -> BinaryIO:
        """Open a file of the corpus, truncated to its noted size."""
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

    # -- labels and checks -------------------------------------------------------------------------------------------

    def _label_id(self, label: str, origin: str) -> int:
        label_ids = self._progress.label_ids
        if label not in label_ids:
            if self._given_labels:
                raise unknown_label(label, self._given_labels, origin)
            try:
                label_ids[as_label(label)] = len(label_ids)
            except ValueError as error:
                raise DataError(f"{origin}: label {error}") from error
        return label_ids[label]

    def _sort_labels(self, sources: str) -> list[str]:
        """Return the classes in their order, and write the labels of the examples as indices into it.

        Raises:
            DataError: there are too many, or a source has probabilities for only some of them.
        """
        from seq2seq.data.columns import label_problem

        label_ids, names = self._progress.label_ids, self._in_order(self._progress.label_ids)
        if not self._given_labels and (problem := label_problem(len(names), self._progress.counts.kept)):
            raise DataError(f"{sources}: {problem}")
        for source, own in self._progress.soft.items():
            if missing := [name for name in names if name not in own]:
                origin, first = self._sources[int(source)].name, shown(missing[0])
                raise DataError(f"{origin}: no probabilities of label {first}, which other texts have; add them")
        order = np.zeros(len(names), dtype=np.int32)
        order[[label_ids[name] for name in names]] = np.arange(len(names))
        order[np.fromfile(self._folder / LABELS_AS_READ, dtype=np.int32)].tofile(self._folder / LABELS)
        return names

    def _in_order(self, labels: Collection[str]) -> list[str]:
        """Return labels in the given order, else numbers by value, then names in alphabetical order."""
        if self._given_labels:
            return [label for label in self._given_labels if label in labels]
        return sorted(labels, key=lambda name: (0, int(name), "") if name.isdecimal() else (1, 0, name))


def unknown_label(label: str, known: Sequence[str], origin: str) -> DataError:
    """Return the error for a label that is not one of the `known` ones of the training corpus."""
    hint = did_you_mean(label, known) or "; correct the label, or train with examples of it"
    return DataError(
        f"{origin}: label {shown(label)} is not one of those in the training corpus ({some_of(known)}){hint}"
    )
