"""The tokenised corpus: built once from sources, stored on disk under its fingerprint, and read memory-mapped.

`tasks` prepares a corpus and passes it to the sampler and to the batches. Neither building (see `building`) nor reading
loads the corpus into memory. A folder under its final name is complete (see `atomic`).
"""

import contextlib
import hashlib
import json
import logging
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq import atomic
from seq2seq.config.corpora import FilterConfig
from seq2seq.data.building import LABELS, MANIFEST, PROBABILITIES, CorpusBuilder, checksum, remove_progress
from seq2seq.data.encoding import Encoding
from seq2seq.data.examples import Source
from seq2seq.data.filters import FilterCounts, PairFilter
from seq2seq.files import DamagedFile, read_object, verify
from seq2seq.text.tokenizer import TokenizerPair

logger = logging.getLogger(__name__)

FORMAT = 4
LABELLED_FORMAT = 2  # of corpora of labelled texts
# An interrupted preparation is continued by the next request for the same corpus, or deleted after a day.
ABANDONED_SECONDS = 24 * 3600
CACHE_REMEDY = "free disk space, or set data.cache_dir to another folder"


class TokenCorpus:
    """A prepared corpus, read-only: ids without special ids, by example.

    `parts` are the (start, stop, weight) ranges of its sources, `counts` the numbers of kept and dropped examples, and
    `labels` the classes of a labelled corpus, whose examples have no target.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any], weights: Sequence[float]):
        bounds, types = manifest["bounds"], manifest["types"]
        self.folder = folder
        self.counts = FilterCounts(**manifest["counts"])
        self.labels: tuple[str, ...] = tuple(manifest["labels"])
        self.parts = list(zip(bounds[:-1], bounds[1:], weights, strict=True))
        self._ids = {side: map_file(folder / f"{side}.ids", name) for side, name in types.items()}
        self._offsets = {side: map_file(folder / f"{side}.offsets", np.int64) for side in types}
        if "target" not in types:
            self._labels = map_file(folder / LABELS, np.int32)
        self._bounds = np.array(bounds)
        self._is_soft = np.isin(np.arange(len(weights)), manifest["soft"])  # by source
        if self._is_soft.any():
            self._shares = map_file(folder / PROBABILITIES, np.float32).reshape(-1, len(self.labels))

    def __len__(self) -> int:
        return len(self._offsets["source"]) - 1

    def ids(self, side: str, indices: np.ndarray) -> list[list[int]]:
        """Return the ids of one side, source or target, of each of these examples; a labelled text is a source."""
        flat, lengths = self.rows(side, indices)
        ids, ends = flat.tolist(), np.cumsum(lengths).tolist()
        return [ids[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]

    def rows(self, side: str, indices: np.ndarray, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of one side in one array, and the int64 length of each example; `most` is the maximum length
        of each."""
        starts, lengths = self._offsets[side][indices], self.lengths(side, indices, most)
        begins = np.cumsum(lengths) - lengths
        return self._ids[side][np.repeat(starts - begins, lengths) + np.arange(lengths.sum())], lengths

    def lengths(self, side: str, indices: np.ndarray, most: int | None = None) -> np.ndarray:
        """Return the int64 length of one side of each of these examples; `most` is the maximum."""
        lengths = self._offsets[side][1:][indices] - self._offsets[side][indices]
        return lengths if most is None else np.minimum(lengths, most)

    def label_ids(self, indices: np.ndarray) -> list[int]:
        """Return the class of each of these examples, as an index into `labels`."""
        return self._labels[indices].tolist()

    def probabilities(self, indices: np.ndarray) -> np.ndarray | None:
        """Return the probability of each label, (B, C) float32, if a source of the corpus has them; else None.

        An example with a plain label has probability 1 for it, and 0 for the others.
        """
        if not self._is_soft.any():
            return None
        found = np.zeros((len(indices), len(self.labels)), np.float32)
        found[np.arange(len(indices)), self._labels[indices]] = 1.0
        sources = np.searchsorted(self._bounds, indices, side="right") - 1
        not_stored = np.cumsum(np.where(self._is_soft, 0, np.diff(self._bounds)))  # examples up to here without a row
        is_soft = self._is_soft[sources]
        found[is_soft] = self._shares[(indices - not_stored[sources])[is_soft]]
        return found

    @property
    def source_lengths(self) -> "LengthsOnDisk":
        """Length of each source in pieces, without special ids."""
        return LengthsOnDisk(self._offsets["source"])

    @property
    def target_lengths(self) -> "LengthsOnDisk | None":
        """Length of each target in pieces, without special ids; None in a labelled corpus."""
        return LengthsOnDisk(self._offsets["target"]) if "target" in self._offsets else None


class LengthsOnDisk:
    """Lengths computed on demand from the stored offsets."""

    def __init__(self, offsets: np.ndarray, tags: int = 0):
        """Initialize; each length includes a number of tags, which batches add."""
        self._offsets, self._tags = offsets, tags

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, indices: np.ndarray | slice) -> np.ndarray:
        """Return the length of each index, int32."""
        return (self._offsets[1:][indices] - self._offsets[:-1][indices] + self._tags).astype(np.int32)

    def with_tags(self, tags: int) -> "LengthsOnDisk":
        """Return the lengths with a number of tags."""
        return LengthsOnDisk(self._offsets, tags)


def prepare_corpus(
    sources: Sequence[Source],
    tokenizers: TokenizerPair,
    filters: FilterConfig | None,
    cache_dir: Path,
    num_workers: int = 0,
    labels: Sequence[str] | None = None,
) -> TokenCorpus:
    """Return the examples of `sources` as a corpus of ids, from the cache if it is there, else built into the cache.

    Args:
        sources: sentence pairs if `labels` is None, else labelled texts, which the source tokenizer encodes.
        tokenizers: tokenizers of both sides.
        filters: None keeps every example, in order.
        cache_dir: folder of the stored corpora.
        num_workers: number of processes, 0 for one per CPU; the result does not depend on it.
        labels: the allowed classes, in order (those of the training corpus). If it is empty, the classes are those that
            occur: numbers by value, then names in alphabetical order.

    Raises:
        DataError: a source cannot be read, no example is left, or a label is not among `labels`.
        RunError: the cache cannot be written, or a process died.
    """
    sides = {"source": tokenizers.source} | ({"target": tokenizers.target} if labels is None else {})
    encoding = Encoding(sides, PairFilter.of(filters, sources) if filters else None)
    settings = [filters and filters.model_dump(), tokenizers.fingerprint, list(sides), labels and list(labels)]
    settings += encoding.filter.tags if encoding.filter else []  # earlier versions filtered sources with their tags
    settings += [LABELLED_FORMAT] if encoding.is_labelled else []
    content = [FORMAT, [source.fingerprint for source in sources], *settings]
    folder = cache_dir / hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    try:
        manifest = read_manifest(folder)  # needs no write permission for the cache
    except DamagedFile:
        manifest = _build(folder, sources, encoding, labels or (), num_workers)
    remove_progress(folder, manifest)
    return TokenCorpus(folder, manifest, [source.weight for source in sources])


def _build(
    folder: Path, sources: Sequence[Source], encoding: Encoding, labels: Sequence[str], num_workers: int
) -> dict[str, Any]:
    """Build the corpus, or wait for another process that builds it; return its manifest."""
    cache_dir = folder.parent
    with atomic.writing_in(cache_dir, CACHE_REMEDY):
        cache_dir.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(cache_dir, keep=folder)
        with atomic.locked(_lock(folder)):
            if (manifest := _built_by_another(folder)) is not None:
                return manifest
            with atomic.new_folder(folder, resume=True) as partial:
                builder = CorpusBuilder(partial, sources, encoding, labels, num_workers)
                return builder.build({"format": FORMAT, "fingerprint": folder.name})


def _built_by_another(folder: Path) -> dict[str, Any] | None:
    """Return the manifest if another process built the corpus, else None; a damaged corpus is logged."""
    try:
        return read_manifest(folder)
    except DamagedFile as error:
        if folder.exists():
            logger.warning("%s: the tokenised corpus is damaged (%s); building it anew", folder, error)
        return None


def _lock(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.lock"


def _remove_abandoned(cache_dir: Path, keep: Path) -> None:
    """Delete preparations that were killed and that no other process continued.

    Errors are ignored, because other processes create, rename and delete files concurrently, and files of other users
    may be protected.
    """
    atomic.remove_leftovers(cache_dir)
    for partial in list(cache_dir.iterdir()):
        match = re.fullmatch(rf"\.([0-9a-f]{{32}}){re.escape(atomic.WRITING)}", partial.name)
        if match is not None and match[1] != keep.name:
            with contextlib.suppress(OSError):
                _remove_if_abandoned(partial, _lock(cache_dir / match[1]))


def _remove_if_abandoned(partial: Path, lock: Path) -> None:
    if time.time() - partial.stat().st_mtime <= ABANDONED_SECONDS:
        return
    with atomic.locked(lock, wait=False) as is_free:
        if is_free:
            shutil.rmtree(partial)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a complete corpus. Every byte is verified, which takes about a second for 10 million pairs
    (1.2 GB).

    Raises:
        DamagedFile: a file is missing, or changed after it was written.
    """
    manifest = read_object(folder / MANIFEST)
    if manifest.get("checksum") != checksum(manifest):
        raise DamagedFile(f"{MANIFEST} changed after it was written")
    if manifest["fingerprint"] != folder.name:
        raise DamagedFile(f"{MANIFEST} belongs to another corpus")
    for name, recorded in manifest["files"].items():
        verify(folder / name, recorded)
    return manifest


def map_file(path: Path, dtype: Any) -> np.ndarray:
    """Return the numbers in a file, which are read when they are used."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
