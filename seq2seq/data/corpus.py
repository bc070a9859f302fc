"""The tokenised corpus: built once from sources, kept on disk under its fingerprint, read memory-mapped.

`tasks` prepares a corpus and hands it to the sampler and to the batches. Neither building nor reading holds the corpus
in memory. A folder under its final name is whole (see `atomic`).
"""

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from seq2seq import atomic
from seq2seq.config import FilterConfig
from seq2seq.data.encoding import EncodedBlock, Encoding, encode_blocks, id_type
from seq2seq.data.filters import FilterCounts, PairFilter, SeenBefore
from seq2seq.data.sources import Source
from seq2seq.errors import DataError, RunError, did_you_mean
from seq2seq.tokenizer import Tokenizer, TokenizerPair

logger = logging.getLogger(__name__)

FORMAT = 1
MANIFEST = "corpus.json"


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

    @cached_property
    def source_lengths(self) -> np.ndarray:
        """(examples,) int32, special ids not counted."""
        return np.diff(self._source_offsets).astype(np.int32)

    @cached_property
    def target_lengths(self) -> np.ndarray | None:
        """(examples,) int32, special ids not counted; None in a labelled corpus."""
        return None if self._is_labelled else np.diff(self._target_offsets).astype(np.int32)


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
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _locked(cache_dir / f"{fingerprint}.lock"):
            folder = cache_dir / fingerprint
            atomic.restore(folder)
            manifest = _read_manifest(folder, fingerprint)
            if manifest is None:
                builder = _Builder(sources, encoding, types, labels, fingerprint, num_workers)
                with atomic.new_folder(folder) as partial:
                    manifest = builder.build(partial)
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"{cache_dir}: cannot be written ({reason}); make room, or set data.cache_dir") from error
    return TokenCorpus(folder, manifest, weights)


class _Builder:
    """Writes one corpus into an empty folder."""

    def __init__(
        self,
        sources: Sequence[Source],
        encoding: Encoding,
        types: dict[str, np.dtype],
        labels: Sequence[str] | None,
        fingerprint: str,
        num_workers: int,
    ):
        self._sources, self._encoding, self._types = sources, encoding, types
        self._fingerprint, self._num_workers = fingerprint, num_workers
        self._given_labels = labels
        self._label_ids: dict[str, int] = {label: i for i, label in enumerate(labels or ())}
        self._seen = SeenBefore()
        self._counts = FilterCounts()

    def build(self, folder: Path) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            writers = {side: stack.enter_context(_SideWriter(folder, side)) for side in self._types}
            labels_file = stack.enter_context(open(folder / "labels", "wb")) if "target" not in self._types else None
            bounds = [0]
            for source in self._sources:
                for block in self._blocks(source):
                    self._write(block, writers, labels_file, source.name)
                bounds.append(self._counts.kept)
        self._check_not_empty()
        manifest = {
            "format": FORMAT,
            "fingerprint": self._fingerprint,
            "sources": [source.name for source in self._sources],
            "bounds": bounds,
            "types": {side: id_type_.name for side, id_type_ in self._types.items()},
            "counts": {"kept": self._counts.kept, "dropped": self._counts.dropped},
            "labels": self._sort_labels(folder) if labels_file else [],
        }
        manifest["files"] = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        return manifest

    def _blocks(self, source: Source) -> Iterator[EncodedBlock]:
        from tqdm import tqdm

        unit = "pairs" if "target" in self._types else "texts"
        with tqdm(total=source.size, desc=f"tokenising {source.name}", unit=f" {unit}", disable=None) as bar:
            for block in encode_blocks(source, self._encoding, self._num_workers):
                bar.update(block.counts.total)
                yield block

    def _write(
        self, block: EncodedBlock, writers: dict[str, "_SideWriter"], labels_file: BinaryIO | None, origin: str
    ) -> None:
        if block.keys is not None:
            is_new = self._seen.first_time(block.keys)
            block.keep(is_new)
            block.counts.kept = int(is_new.sum())
            block.counts.drop("duplicate", len(is_new) - block.counts.kept)
        self._counts.add(block.counts)
        writers["source"].write(block.source_ids, block.source_lengths)
        if labels_file is None:
            writers["target"].write(block.target_ids, block.target_lengths)
        else:
            ids = [self._label_id(label, origin) for label in block.labels]
            labels_file.write(np.array(ids, dtype=np.int32).tobytes())

    def _label_id(self, label: str, origin: str) -> int:
        if self._given_labels is not None and label not in self._label_ids:
            known = ", ".join(self._given_labels)
            hint = did_you_mean(label, self._given_labels) or "; mend the label, or train with examples of it"
            raise DataError(f"{origin}: label {label!r} is not one of those in the training corpus ({known}){hint}")
        return self._label_ids.setdefault(label, len(self._label_ids))

    def _sort_labels(self, folder: Path) -> list[str]:
        """The classes in their order; the ids on disk, which were given as labels came, are put into it."""
        if self._given_labels is not None:
            return list(self._given_labels)
        names = sorted(self._label_ids, key=lambda name: (0, int(name), "") if name.isdecimal() else (1, 0, name))
        order = np.zeros(len(names), dtype=np.int32)
        order[[self._label_ids[name] for name in names]] = np.arange(len(names))
        ids = np.fromfile(folder / "labels", dtype=np.int32)
        order[ids].tofile(folder / "labels")
        return names

    def _check_not_empty(self) -> None:
        if self._counts.kept == 0:
            names = ", ".join(source.name for source in self._sources)
            if self._counts.total == 0:
                raise DataError(f"{names}: no examples; the file has no lines")
            raise DataError(f"{names}: {self._counts}; nothing is left: loosen data.filters")


class _SideWriter:
    """Appends ids and offsets of one side to its two files."""

    def __init__(self, folder: Path, side: str):
        self._paths = folder / f"{side}.ids", folder / f"{side}.offsets"
        self._written = 0

    def __enter__(self) -> "_SideWriter":
        self._stack = contextlib.ExitStack()
        self._ids, self._offsets = (self._stack.enter_context(open(path, "wb")) for path in self._paths)
        self._offsets.write(np.zeros(1, dtype=np.int64).tobytes())
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.__exit__(*exception)

    def write(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        self._ids.write(ids.tobytes())
        self._offsets.write((self._written + np.cumsum(lengths, dtype=np.int64)).tobytes())
        self._written += len(ids)


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


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among the processes of this machine: the ranks of a run wait for the first to build."""
    with open(path, "wb") as file:
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
