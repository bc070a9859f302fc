"""The tokenised corpus: built once from sources, kept on disk under its fingerprint, read memory-mapped.

`tasks` prepares a corpus and hands it to the sampler and to the batches. Neither building, which is `building`'s, nor
reading holds the corpus in memory. A folder under its final name is whole (see `atomic`).
"""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq import atomic
from seq2seq.config import FilterConfig
from seq2seq.data.building import MANIFEST, CorpusBuilder, remove_progress
from seq2seq.data.encoding import Encoding, id_type
from seq2seq.data.filters import FilterCounts, PairFilter
from seq2seq.data.sources import Source
from seq2seq.errors import RunError
from seq2seq.tokenizer import Tokenizer, TokenizerPair

logger = logging.getLogger(__name__)

FORMAT = 2
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

    With `filters` None every pair is kept, in order. The result does not depend on `num_workers` (0: one a processor).

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
        cache_dir.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(cache_dir, but=folder)
        with atomic.locked(_lock(folder)):
            atomic.restore(folder)
            manifest = _read_manifest(folder, fingerprint)
            if manifest is None:
                with atomic.new_folder(folder, goes_on=True) as partial:
                    builder = CorpusBuilder(partial, sources, encoding, types, labels, num_workers)
                    manifest = builder.build({"format": FORMAT, "fingerprint": fingerprint})
            remove_progress(folder)
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"{cache_dir}: cannot be written ({reason}); make room, or set data.cache_dir") from error
    return TokenCorpus(folder, manifest, weights)


def _lock(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.lock"


def _remove_abandoned(cache_dir: Path, but: Path) -> None:
    """Delete what killed preparations left and none has gone on with since."""
    for partial in cache_dir.glob(f".*{atomic.WRITING}"):
        folder = cache_dir / partial.name[1 : -len(atomic.WRITING)]
        if folder != but and time.time() - partial.stat().st_mtime > ABANDONED_SECONDS:
            with atomic.locked(_lock(folder), wait=False) as is_free:
                if is_free:
                    shutil.rmtree(partial)


def _read_manifest(folder: Path, fingerprint: str) -> dict[str, Any] | None:
    """The manifest of a whole corpus; None, with a warning, if something of it is missing or of another size."""
    if not folder.exists():
        return None
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        sizes = {name: (folder / name).stat().st_size for name in manifest["files"]}
        if manifest["format"] == FORMAT and manifest["fingerprint"] == fingerprint and sizes == manifest["files"]:
            return manifest
        problem = "its files have other sizes than it says"
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"{type(error).__name__}: {error}"
    logger.warning("%s: the tokenised corpus is damaged (%s); building it anew", folder, problem)
    return None


def _map_side(folder: Path, side: str, type_name: str) -> tuple[np.ndarray, np.ndarray]:
    return _map_file(folder / f"{side}.ids", type_name), _map_file(folder / f"{side}.offsets", np.int64)


def _map_file(path: Path, dtype: Any) -> np.ndarray:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
