"""The best segmentations of every sentence of a corpus, stored once, from which training draws.

SentencePiece takes hundreds of times as long to list them as numpy takes to draw from the list. `tasks` prepares them
for a corpus whose sentences are segmented at random, and `stream.CorpusBatches` draws.

Shapes: N examples, K stored segmentations of each, B examples of a batch.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq import atomic
from seq2seq.config.schema import TokenizerConfig
from seq2seq.data.building import MANIFEST, checksum
from seq2seq.data.corpus import CACHE_REMEDY, TokenCorpus, map_file, read_manifest
from seq2seq.data.encoding import id_type
from seq2seq.files import DamagedFile, record
from seq2seq.processes import in_processes
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

logger = logging.getLogger(__name__)

FORMAT = 2
# Longer lists would take too much of the disk, and are made when a batch needs them.
MOST_STORED = 16
CHUNK_EXAMPLES, CHUNKS_WORTH_A_POOL = 2000, 6
FILES = {"ids": None, "starts": np.int64, "lengths": np.uint32, "scores": np.float32}


class Segmentations:
    """The best segmentations of the examples of a corpus, and a random choice among them."""

    def __init__(self, folder: Path, manifest: dict[str, Any], config: TokenizerConfig, seed: int):
        self._config, self._seed = config, seed
        self._sides = {side: _Side(folder, side, manifest) for side in manifest["types"]}

    def draw(
        self, side: str, indices: np.ndarray, epoch: int, most: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw segmentations for a share `sampling` of these examples.

        The segmentation of an example is determined by (seed, epoch, index, side), whatever the batch is. Each of the K
        stored ones has the weight exp(sampling_alpha * log-probability). One with more pieces than its entry in `most`
        (B,) is not used.

        Returns:
            Whether each example has a drawn segmentation (B,), and for those that have one, all ids in one array and
            the length of each.
        """
        stored, config = self._sides[side], self._config
        uniform = _uniform(self._seed, epoch, side, indices)  # (2, B)
        (chosen,) = (uniform[0] < config.sampling).nonzero()
        scores = stored.scores[indices[chosen]]  # (B', K), -inf after the last segmentation
        weights = np.exp(config.sampling_alpha * (scores - scores[:, :1]).astype(np.float64))
        sums = weights.cumsum(axis=1)
        places = (sums <= uniform[1, chosen, None] * sums[:, -1:]).sum(axis=1)
        places = np.minimum(places, np.isfinite(scores).sum(axis=1) - 1)
        lengths = stored.lengths[indices[chosen], places].astype(np.int64)
        fits = lengths <= most[chosen]
        is_drawn = np.zeros(len(indices), dtype=bool)
        is_drawn[chosen[fits]] = True
        return is_drawn, stored.rows(indices[chosen[fits]], places[fits]), lengths[fits]


class _Side:
    def __init__(self, folder: Path, side: str, manifest: dict[str, Any]):
        types, number = FILES | {"ids": manifest["types"][side]}, manifest["number"]
        arrays = {name: map_file(folder / f"{side}.{name}", np.dtype(kind)) for name, kind in types.items()}
        self._ids, self._starts = arrays["ids"], arrays["starts"]
        self.lengths, self.scores = (arrays[name].reshape(-1, number) for name in ("lengths", "scores"))  # (N, K)

    def rows(self, indices: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the ids of these segmentations of these examples in one array."""
        every = self.lengths[indices].astype(np.int64)  # (B, K)
        lengths = np.take_along_axis(every, places[:, None], 1).squeeze(1)
        before = np.where(np.arange(every.shape[1]) < places[:, None], every, 0).sum(1)
        starts, begins = self._starts[indices] + before, np.cumsum(lengths) - lengths
        return self._ids[np.repeat(starts - begins, lengths) + np.arange(lengths.sum())]


def _uniform(seed: int, epoch: int, side: str, indices: np.ndarray) -> np.ndarray:
    """Return two numbers in [0, 1) for each index, (2, B): a hash of the arguments (SplitMix64, Steele et al. 2014)."""
    key = hashlib.sha256(f"{seed} {epoch} {side}".encode()).digest()
    with np.errstate(over="ignore"):
        first = _mixed(np.frombuffer(key[:8], np.uint64) + indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        second = _mixed(first + np.frombuffer(key[8:16], np.uint64))
    return (np.stack([first, second]) >> np.uint64(11)) * 2.0**-53


def _mixed(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def prepare_segmentations(
    corpus: TokenCorpus, tokenizers: TokenizerPair, config: TokenizerConfig, seed: int, num_workers: int = 0
) -> Segmentations | None:
    """Return the segmentations of a corpus, from the folder next to it if they are there, else built into it.

    None if nothing is drawn, or nothing can be stored: BPE models do not list segmentations, and lists of more than
    `MOST_STORED` are too large.

    Raises:
        RunError: the folder cannot be written, or a process died.
    """
    if not config.sampling or config.sampling_nbest > MOST_STORED:
        return None
    sides = {"source": tokenizers.source} | ({} if corpus.target_lengths is None else {"target": tokenizers.target})
    if not all(tokenizer.lists_segmentations for tokenizer in sides.values()):
        return None
    number, cache = config.sampling_nbest, corpus.folder.parent
    content = json.dumps(["segmentations", FORMAT, corpus.folder.name, number])
    folder = cache / hashlib.sha256(content.encode()).hexdigest()[:32]
    try:
        return Segmentations(folder, read_manifest(folder), config, seed)
    except DamagedFile:
        pass
    with atomic.writing_in(cache, CACHE_REMEDY), atomic.locked(cache / f"{folder.name}.lock"):
        try:
            manifest = read_manifest(folder)  # another process built it
        except DamagedFile:
            with atomic.new_folder(folder) as partial:
                manifest = _build(partial, folder.name, corpus, sides, number, num_workers)
    return Segmentations(folder, manifest, config, seed)


def _build(
    folder: Path, name: str, corpus: TokenCorpus, sides: dict[str, Tokenizer], number: int, num_workers: int
) -> dict[str, Any]:
    for side, tokenizer in sides.items():
        _write_side(folder, side, corpus, _Listing(tokenizer, number), num_workers)
    manifest = {
        "format": FORMAT,
        "fingerprint": name,
        "number": number,
        "types": {side: id_type(tokenizer.vocab_size).name for side, tokenizer in sides.items()},
        "files": {f"{side}.{kind}": record(folder / f"{side}.{kind}") for side in sides for kind in FILES},
    }
    manifest["checksum"] = checksum(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return manifest


def _write_side(folder: Path, side: str, corpus: TokenCorpus, listing: "_Listing", num_workers: int) -> None:
    """Write the files of one side, with the segmentations of each text in the order of the corpus."""
    from tqdm import tqdm

    position = 0  # in the file of ids
    with ExitStack() as stack:
        files = {kind: stack.enter_context(open(folder / f"{side}.{kind}", "wb")) for kind in FILES}
        doing = f"segmenting the {side}s"
        bar = stack.enter_context(tqdm(total=len(corpus), desc=doing, unit=" texts", disable=None))
        for arrays in in_processes(listing, _chunks(corpus, side), num_workers, CHUNKS_WORTH_A_POOL):
            totals = arrays["lengths"].sum(axis=1, dtype=np.int64)
            arrays["starts"] = position + np.cumsum(totals) - totals
            position += int(totals.sum())
            for kind, file in files.items():
                file.write(arrays[kind].tobytes())
            bar.update(len(totals))


def _chunks(corpus: TokenCorpus, side: str) -> Iterator[list[list[int]]]:
    for start in range(0, len(corpus), CHUNK_EXAMPLES):
        yield corpus.ids(side, np.arange(start, min(start + CHUNK_EXAMPLES, len(corpus))))


def drawn_from(tokenizer: Tokenizer, row: Sequence[int]) -> str:
    """Return the text whose segmentations may replace a row of ids; empty if it has a piece that is unknown, because
    its ids do not tell the text."""
    return "" if tokenizer.unk_id in row else tokenizer.decode(row)


@dataclass(frozen=True)
class _Listing:
    """The listing of the best segmentations of the texts of a chunk; it is sent to each process."""

    tokenizer: Tokenizer
    number: int

    def __call__(self, rows: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
        lengths = np.zeros((len(rows), self.number), np.uint32)
        scores = np.full((len(rows), self.number), -np.inf, np.float32)
        ids: list[int] = []
        for index, row in enumerate(rows):
            text = drawn_from(self.tokenizer, row)
            found = (self.tokenizer.segmentations(text, self.number) if text else []) or [(list(row), 0.0)]
            for place, (pieces, score) in enumerate(found):
                lengths[index, place], scores[index, place] = len(pieces), score
                ids += pieces
        return {"lengths": lengths, "scores": scores, "ids": np.array(ids, id_type(self.tokenizer.vocab_size))}
