"""Shortlists: for each source piece the target pieces that it is translated to, learned from translated text.

The output layer is a large part of decoding, and most of a vocabulary never comes into question. `s2s shortlist` learns
from a corpus, by word alignment, what does; `inference.engines` asks which pieces a batch of sentences may need and
computes no others (Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation", 3.3).
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from seq2seq import atomic
from seq2seq.errors import DataError, ModelError, RunError
from seq2seq.lines import read_lines
from seq2seq.tensors import DamagedFile, read_tensors, tensor_bytes
from seq2seq.text.tokenizer import TokenizerPair

CANDIDATES = 100
# Pieces that are on every shortlist, the most frequent ones: what no single source piece stands for.
ALWAYS = 500
# What is learned from: pairs of lines, and pairs of a source and a target piece in them (about 40 bytes each).
MOST_PAIRS, MOST_CELLS = 200_000, 2**25
ITERATIONS = 5


@dataclass(frozen=True)
class Shortlist:
    """The target pieces that each source piece may need.

    Source id s may need `ids[starts[s] : starts[s + 1]]`, and every sentence `always`.
    """

    starts: np.ndarray
    """(V_source + 1,)"""
    ids: np.ndarray
    always: np.ndarray
    fingerprint: str
    """Of the tokenizers whose ids these are."""

    def candidates(self, sentences: Iterable[Sequence[int]]) -> np.ndarray:
        """The target ids that translations of these sentences, source ids, may need, ascending."""
        pieces = sorted(set(itertools.chain.from_iterable(sentences)))
        needed = (self.ids[self.starts[piece] : self.starts[piece + 1]] for piece in pieces)
        return np.unique(np.concatenate([self.always, *needed]))

    def save(self, path: Path) -> None:
        """Write one file, as a whole.

        Raises:
            RunError: it cannot be written.
        """
        stored = {name: torch.from_numpy(getattr(self, name)) for name in ("starts", "ids", "always")}
        stored["fingerprint"] = torch.tensor(list(self.fingerprint.encode()), dtype=torch.uint8)
        try:
            atomic.write_file(path, tensor_bytes(stored))
        except OSError as error:
            raise RunError(f"{path}: cannot be written ({error.strerror or error}); choose another output") from error

    @classmethod
    def load(cls, path: Path, tokenizers: TokenizerPair) -> "Shortlist":
        """Read what `save` wrote.

        Raises:
            ModelError: it is no shortlist, is damaged, or was made with other tokenizers.
        """
        try:
            stored = {name: tensor.numpy() for name, tensor in read_tensors(path).items()}
        except DamagedFile as error:
            raise ModelError(f"{path}: {error}; make it with s2s shortlist") from error
        if set(stored) != {"starts", "ids", "always", "fingerprint"}:
            raise ModelError(f"{path}: not a shortlist; make one with s2s shortlist")
        fingerprint = bytes(stored.pop("fingerprint")).decode(errors="replace")
        if fingerprint != tokenizers.fingerprint:
            raise ModelError(f"{path}: made with the vocabulary of another model; make one for this with s2s shortlist")
        shortlist = cls(**stored, fingerprint=fingerprint)
        if not shortlist._fits(tokenizers):
            raise ModelError(f"{path}: damaged, it names pieces that do not exist; make it again with s2s shortlist")
        return shortlist

    def _fits(self, tokenizers: TokenizerPair) -> bool:
        starts, num_target = self.starts, tokenizers.target.vocab_size
        return (
            all(column.ndim == 1 and column.dtype == np.int32 for column in (starts, self.ids, self.always))
            and len(starts) == tokenizers.source.vocab_size + 1
            and (starts[0], starts[-1]) == (0, len(self.ids))
            and bool((np.diff(starts) >= 0).all())
            and all(((column >= 0) & (column < num_target)).all() for column in (self.ids, self.always))
        )


def learn_shortlist(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]], tokenizers: TokenizerPair, candidates: int = CANDIDATES
) -> Shortlist:
    """The likeliest target pieces of each source piece, by IBM model 1 (Brown et al. 1993, section 4.1) over the sets
    of pieces of both sides, and those that are spelled like it, as names and numbers are.

    Args:
        pairs: source and target ids of translations, without special ids; evenly some of them where they are many.
        tokenizers: whose ids these are.
        candidates: most target pieces of a source piece.
    """
    num_source, num_target = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    sets = [(np.unique(np.array(source, int)), np.unique(np.array(target, int))) for source, target in pairs]
    num_cells = sum(len(source) * len(target) for source, target in sets)
    sets = sets[:: max(math.ceil(num_cells / MOST_CELLS), 1)]
    source_ids, target_ids, probabilities = _translation_probabilities(sets, num_target)
    order = np.lexsort((-probabilities, source_ids))
    source_ids, target_ids = source_ids[order], target_ids[order]
    first = np.searchsorted(source_ids, source_ids)  # where the source piece of each begins
    is_kept = np.arange(len(source_ids)) - first < candidates
    alike = _spelled_alike(tokenizers)
    keys = np.unique(np.concatenate([source_ids[is_kept] * num_target + target_ids[is_kept], alike]))
    counts = np.bincount(np.concatenate([[], *(target for _, target in sets)]).astype(int), minlength=num_target)
    frequent = np.argsort(-counts, kind="stable")[:ALWAYS]
    return Shortlist(
        starts=np.searchsorted(keys, np.arange(num_source + 1) * num_target).astype(np.int32),
        ids=(keys % num_target).astype(np.int32),
        always=np.sort(frequent[counts[frequent] > 0]).astype(np.int32),
        fingerprint=tokenizers.fingerprint,
    )


def read_pairs(source: Path, target: Path, tokenizers: TokenizerPair) -> list[tuple[list[int], list[int]]]:
    """The ids of translated lines of two files, evenly some of them where they are more than `MOST_PAIRS`.

    Raises:
        DataError: a file cannot be read, they have not equally many lines, or no line has text on both sides.
    """
    counts = [sum(1 for _ in read_lines(path)) for path in (source, target)]
    if counts[0] != counts[1]:
        raise DataError(
            f"{source} has {counts[0]:,} lines and {target} {counts[1]:,}; they must be equal (s2s check shows where)"
        )
    step = max(math.ceil(counts[0] / MOST_PAIRS), 1)
    texts = [list(itertools.islice(read_lines(path), 0, None, step)) for path in (source, target)]
    sides = zip((tokenizers.source, tokenizers.target), texts, strict=True)
    sources, targets = (tokenizer.encode_all(lines) for tokenizer, lines in sides)
    pairs = [pair for pair in zip(sources, targets, strict=True) if all(pair)]
    if not pairs:
        raise DataError(f"{source} and {target}: no line has text on both sides; give translated text")
    return pairs


def _translation_probabilities(
    sets: Sequence[tuple[np.ndarray, np.ndarray]], num_target: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Source id, target id and p(target | source) of every two pieces that some pair of sentences has."""
    sizes = [(len(source), len(target)) for source, target in sets]
    # A cell is a source and a target piece of one pair; an event is a target piece of one pair, which has one cause.
    keys = np.concatenate([np.zeros(0, int), *((s[:, None] * num_target + t).ravel() for s, t in sets)])
    starts = np.cumsum([0, *(num_targets for _, num_targets in sizes)])
    events = np.concatenate(
        [np.zeros(0, int), *(np.tile(np.arange(b, b + t), s) for (s, t), b in zip(sizes, starts[:-1], strict=True))]
    )
    keys, cells, counts = np.unique(keys, return_inverse=True, return_counts=True)
    source_ids, target_ids = keys // num_target, keys % num_target
    probabilities = counts.astype(float)  # to begin with, as often as they stand together
    for _ in range(ITERATIONS):
        weights = probabilities[cells]
        weights /= np.bincount(events, weights)[events]
        expected = np.bincount(cells, weights, minlength=len(keys))
        probabilities = expected / np.bincount(source_ids, expected)[source_ids]
    return source_ids, target_ids, probabilities


def _spelled_alike(tokenizers: TokenizerPair) -> np.ndarray:
    """source id * V_target + target id of pieces that are the same text."""
    num_source, num_target = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    targets = {piece: id_ for id_, piece in enumerate(tokenizers.target.pieces(range(num_target)))}
    pieces = enumerate(tokenizers.source.pieces(range(num_source)))
    return np.array([id_ * num_target + targets[piece] for id_, piece in pieces if piece in targets], int)
