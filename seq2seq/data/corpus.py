"""The tokenised corpus: built once from sources, kept on disk under its fingerprint, read memory-mapped.

`tasks` prepares a corpus and hands it to the sampler and to the batches. Neither building, which is `building`'s, nor
reading holds the corpus in memory. A folder under its final name is whole (see `atomic`).
"""

import contextlib
import functools
import hashlib
import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq import atomic
from seq2seq.config import FilterConfig
from seq2seq.data.building import MANIFEST, CorpusBuilder, checksum, remove_progress
from seq2seq.data.encoding import Encoding, id_type
from seq2seq.data.filters import FilterCounts, PairFilter
from seq2seq.data.sources import Source
from seq2seq.errors import RunError
from seq2seq.files import DamagedFile, read_object, verify
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

logger = logging.getLogger(__name__)

FORMAT = 3
# A preparation that was killed goes on when it is asked for again; what nobody asks for is deleted after a day.
ABANDONED_SECONDS = 24 * 3600


class TokenCorpus:
    """The read side of a prepared corpus: ids without special ids, by example.

    `parts` are the (start, stop, weight) ranges of its sources, `counts` what was kept and dropped, and `labels` the
    classes of a labelled corpus, whose examples have no target.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any], weights: Sequence[float]):
        bounds = manifest["bounds"]
        self.folder = folder
        self.fingerprint: str = manifest["fingerprint"]
        self.counts = FilterCounts(**manifest["counts"])
        self.labels: tuple[str, ...] = tuple(manifest["labels"])
        self.parts = list(zip(bounds[:-1], bounds[1:], weights, strict=True))
        self._source_ids, self._source_offsets = _map_side(folder, "source", manifest["types"]["source"])
        self._is_labelled = "target" not in manifest["types"]
        if not self._is_labelled:
            self._target_ids, self._target_offsets = _map_side(folder, "target", manifest["types"]["target"])
        else:
            self._labels = _map_file(folder / "labels", np.int32)

    def __len__(self) -> int:
        return len(self._source_offsets) - 1

    def source(self, index: int) -> list[int]:
        """The source ids of an example, or the ids of a labelled text."""
        return self._source_ids[self._source_offsets[index] : self._source_offsets[int(index) + 1]].tolist()

    def target(self, index: int) -> list[int]:
        """The target ids of an example."""
        return self._target_ids[self._target_offsets[index] : self._target_offsets[int(index) + 1]].tolist()

    def label(self, index: int) -> int:
        """The class of an example, as a place in `labels`."""
        return int(self._labels[index])

    @property
    def source_lengths(self) -> "LengthsOnDisk":
        """By example, special ids not counted."""
        return LengthsOnDisk(self._source_offsets)

    @property
    def target_lengths(self) -> "LengthsOnDisk | None":
        """By example, special ids not counted; None in a labelled corpus."""
        return None if self._is_labelled else LengthsOnDisk(self._target_offsets)


class LengthsOnDisk:
    """Lengths that are looked up where a corpus is stored, instead of being held in memory."""

    def __init__(self, offsets: np.ndarray):
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, indices: np.ndarray | slice) -> np.ndarray:
        """int32, one for each index."""
        return (self._offsets[1:][indices] - self._offsets[:-1][indices]).astype(np.int32)


def prepare_corpus(
    sources: Sequence[Source],
    tokenizers: TokenizerPair,
    filters: FilterConfig | None,
    cache_dir: Path,
    num_workers: int = 0,
) -> TokenCorpus:
    """The sentence pairs of `sources` as ids: from the cache if it has them, else built into it.

    With `filters` None every pair is kept, in order. The result does not depend on `num_workers` (0: one per CPU).

    Raises:
        DataError: a source cannot be read, or no pair is left.
        RunError: the cache cannot be written, or a process died.
    """
    rules = PairFilter(filters) if filters else None
    encoding = Encoding(tokenizers.source, tokenizers.target, rules)
    types = {"source": id_type(tokenizers.source.vocab_size), "target": id_type(tokenizers.target.vocab_size)}
    return _prepare(sources, encoding, types, tokenizers.fingerprint, None, cache_dir, num_workers)


def prepare_labelled_corpus(
    sources: Sequence[Source],
    tokenizer: Tokenizer,
    filters: FilterConfig | None,
    cache_dir: Path,
    num_workers: int = 0,
    labels: Sequence[str] | None = None,
) -> TokenCorpus:
    """The labelled texts of `sources` as ids, as `prepare_corpus` does it.

    `labels` are the classes that may occur, in their order (those of the training corpus); without them they are what
    occurs, numbers by value and names by alphabet.

    Raises:
        DataError: as `prepare_corpus`, or a label is not among `labels`.
    """
    encoding = Encoding(tokenizer, None, PairFilter(filters) if filters else None)
    types = {"source": id_type(tokenizer.vocab_size)}
    return _prepare(sources, encoding, types, tokenizer.fingerprint, labels, cache_dir, num_workers)


def _prepare(
    sources: Sequence[Source],
    encoding: Encoding,
    types: dict[str, np.dtype],
    tokenizer_fingerprint: str,
    labels: Sequence[str] | None,
    cache_dir: Path,
    num_workers: int,
) -> TokenCorpus:
    filters = encoding.filter.config.model_dump() if encoding.filter else None
    identity = [FORMAT, [source.fingerprint for source in sources], filters, tokenizer_fingerprint, list(types), labels]
    fingerprint = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
    weights = [source.weight for source in sources]
    folder = cache_dir / fingerprint
    try:
        manifest = _read_manifest(folder, fingerprint)  # where everything is there, the cache need not be ours to write
    except DamagedFile:
        make_builder = functools.partial(
            CorpusBuilder, sources=sources, encoding=encoding, types=types, labels=labels, num_workers=num_workers
        )
        manifest = _build(folder, fingerprint, make_builder)
    remove_progress(folder)
    return TokenCorpus(folder, manifest, weights)


def _build(folder: Path, fingerprint: str, make_builder: Callable[[Path], CorpusBuilder]) -> dict[str, Any]:
    """Build the corpus, or wait for another process that does; returns its manifest."""
    cache_dir = folder.parent
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(cache_dir, but=folder)
        with atomic.locked(_lock(folder)):
            atomic.restore(folder)
            if not _is_whole(folder, fingerprint):
                with atomic.new_folder(folder, goes_on=True) as partial:
                    make_builder(partial).build({"format": FORMAT, "fingerprint": fingerprint})
            return _read_manifest(folder, fingerprint)
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"{cache_dir}: cannot be written ({reason}); make room, or set data.cache_dir") from error
    except DamagedFile as error:
        raise RunError(f"{folder}: damaged as soon as it was written ({error}); set data.cache_dir") from error


def _lock(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.lock"


def _remove_abandoned(cache_dir: Path, but: Path) -> None:
    """Delete what killed preparations left and none has gone on with since.

    Other processes make, rename and delete at the same time, and what another user left may not be ours to delete.
    """
    atomic.remove_leftovers(cache_dir)
    for partial in list(cache_dir.iterdir()):
        match = re.fullmatch(rf"\.([0-9a-f]{{32}}){re.escape(atomic.WRITING)}", partial.name)
        if match is None or match[1] == but.name:
            continue
        with contextlib.suppress(OSError):
            if time.time() - partial.stat().st_mtime > ABANDONED_SECONDS:
                with atomic.locked(_lock(cache_dir / match[1]), wait=False) as is_free:
                    if is_free:
                        shutil.rmtree(partial)


def _is_whole(folder: Path, fingerprint: str) -> bool:
    """Whether a corpus is there; warns of one that is damaged."""
    try:
        _read_manifest(folder, fingerprint)
    except DamagedFile as error:
        if folder.exists():
            logger.warning("%s: the tokenised corpus is damaged (%s); building it anew", folder, error)
        return False
    return True


def _read_manifest(folder: Path, fingerprint: str) -> dict[str, Any]:
    """The manifest of a whole corpus. Every byte is compared: a second, where ten million pairs take 1.2 GB.

    Raises:
        DamagedFile: something of it is missing, or changed after it was written.
    """
    manifest = read_object(folder / MANIFEST)
    if manifest.get("checksum") != checksum(manifest):
        raise DamagedFile(f"{MANIFEST} changed after it was written")
    if manifest["fingerprint"] != fingerprint:
        raise DamagedFile(f"{MANIFEST} is of another corpus")
    for name, recorded in manifest["files"].items():
        verify(folder / name, recorded)
    return manifest


def _map_side(folder: Path, side: str, type_name: str) -> tuple[np.ndarray, np.ndarray]:
    return _map_file(folder / f"{side}.ids", type_name), _map_file(folder / f"{side}.offsets", np.int64)


def _map_file(path: Path, dtype: Any) -> np.ndarray:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
