"""The tensors of one step; only this module shifts, pads, adds start and end ids, and counts tokens.

`stream` collates for training and validation, `inference` for scoring and classification; search takes `padded`.
Shapes: B sentences, S source length, T target length.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seq2seq.text.tokenizer import Tokenizer, TokenizerPair


class Rows(NamedTuple):
    """Rows of ids in one array; a loop over rows is six times slower, and holds the lock that GPU launches need."""

    ids: np.ndarray  # all rows, one after the other
    lengths: np.ndarray  # int64, of each row

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "Rows":
        """Make `Rows` of a list of rows."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), np.int64, lengths.sum()), lengths)


class _Batch:
    """Base of batches: tensors with a row for each example, and two counts."""

    indices: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """Return the batch on `device`."""
        return self._map(lambda _, tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Return the batch in page-locked memory, from which copies to a GPU are asynchronous."""
        return self._map(lambda _, tensor: tensor.pin_memory())

    def split(self) -> list[Self]:
        """Return the first and the second half of the examples, or the only example, without unnecessary padding."""
        middle, end = self._num_examples // 2, self._num_examples
        return [self._rows(slice(*half)) for half in ((0, middle), (middle, end)) if half[0] < half[1]]

    @property
    def _num_examples(self) -> int:
        return len(self)

    def _rows(self, rows: slice) -> Self:
        def cut(name: str, tensor: Tensor) -> Tensor:
            mask = getattr(self, f"{name.split('_')[0]}_mask", None)
            return tensor[rows] if mask is None else tensor[rows, : int(mask[rows].any(0).nonzero().max()) + 1]

        return self._map(cut)._counted()

    def _map(self, change: Callable[[str, Tensor], Tensor]) -> Self:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        tensors = {name: change(name, value) for name, value in fields.items() if isinstance(value, Tensor)}
        return dataclasses.replace(self, **tensors)  # type: ignore[type-var]

    def _counted(self) -> Self:
        """Return the batch with the counts of its tensors."""
        masks: list[Tensor] = [getattr(self, name) for name in ("source_mask", "target_mask") if hasattr(self, name)]
        tokens = [int(mask.sum()) for mask in masks]
        num_targets = tokens[1] if len(tokens) > 1 else len(self)
        return dataclasses.replace(self, num_targets=num_targets, num_tokens=sum(tokens))  # type: ignore[type-var]


@dataclass(frozen=True)
class TranslationBatch(_Batch):
    """Sentence pairs, padded; masks are True at real tokens."""

    source_ids: Tensor  # (B, S) int64, eos included
    source_mask: Tensor  # (B, S) bool
    target_input: Tensor  # (B, T) int64, the start ids and then the target
    target_output: Tensor  # (B, T) int64, padding below all start ids but one, the target, and then eos
    target_mask: Tensor  # (B, T) bool
    indices: Tensor  # (B,) int64, rows of the corpus
    num_targets: int  # target tokens, eos included
    num_tokens: int  # source and target tokens without padding
    is_filled: bool = False  # whether it has a shape of a table; rows without an example have index -1
    has_spare_targets: bool = False  # whether `num_targets` counts positions without a target too

    def filled(self, rows: int, source: int, target: int, tokenizers: TokenizerPair) -> "TranslationBatch":
        """Return the batch with padding up to this shape, or unchanged if it does not fit in it."""
        down = rows - len(self)
        right = {"source": source - self.source_ids.shape[1], "target": target - self.target_input.shape[1]}
        if min(down, *right.values()) < 0:
            return self

        def pad(name: str, tensor: Tensor) -> Tensor:
            side = name.split("_")[0]
            if name == "indices":
                return functional.pad(tensor, (0, down), value=-1)
            value = 0 if name.endswith("mask") else getattr(tokenizers, side).pad_id
            return functional.pad(tensor, (0, right[side], 0, down), value=value)

        return dataclasses.replace(self._map(pad), is_filled=True)

    @property
    def _num_examples(self) -> int:
        return int((self.indices >= 0).sum()) if self.is_filled else len(self)

    def _counted(self) -> Self:
        return dataclasses.replace(super()._counted(), is_filled=False)


@dataclass(frozen=True)
class ClassificationBatch(_Batch):
    """Labelled texts, padded; the mask is True at real tokens."""

    source_ids: Tensor  # (B, S) int64, bos and eos included
    source_mask: Tensor  # (B, S) bool
    labels: Tensor  # (B,) int64
    indices: Tensor  # (B,) int64, rows of the corpus
    num_targets: int  # B
    num_tokens: int  # source tokens without padding
    probabilities: Tensor | None = None  # (B, C) float32, of each label, where the corpus has them


def collate_translation(
    source: Rows | Sequence[Sequence[int]],
    target: Rows | Sequence[Sequence[int]],
    tokenizers: TokenizerPair,
    indices: Sequence[int],
    tags: tuple[np.ndarray, np.ndarray] | None = None,
) -> TranslationBatch:
    """Make a batch of ids without special ids, on the CPU.

    If the examples have different directions, `tags` are the tags that each source begins with, and those that the
    decoder reads after its start, (B, tags) each; otherwise `tokenizers` add them.
    """
    pad_id, start_ids = tokenizers.target.pad_id, np.array([tokenizers.target.start_ids])
    before = np.zeros((1, 0), np.int64)
    if tags is not None:
        before, after = tags
        start_ids = np.concatenate([np.repeat(start_ids, len(after), axis=0), after], axis=1)
    num_tags = start_ids.shape[1] - 1
    source_ids, source_mask = padded(source, tokenizers.source.pad_id, before, tokenizers.source.end_ids)
    target_output, target_mask = padded(target, pad_id, (pad_id,) * num_tags, (tokenizers.target.eos_id,))
    target_mask[:, :num_tags] = False
    target_input, _ = padded(target, pad_id, start_ids)
    num_targets = int(target_mask.sum())
    arrays = (source_ids, source_mask, target_input, target_output, target_mask, np.asarray(indices, dtype=np.int64))
    tensors = map(torch.from_numpy, arrays)
    return TranslationBatch(*tensors, num_targets=num_targets, num_tokens=int(source_mask.sum()) + num_targets)


def collate_classification(
    texts_ids: Rows | Sequence[Sequence[int]],
    labels: Sequence[int],
    tokenizer: Tokenizer,
    indices: Sequence[int],
    probabilities: np.ndarray | None = None,
) -> ClassificationBatch:
    """Make a batch of ids without special ids, on the CPU: bos, whose state may represent the text, is put first, eos
    last."""
    source_ids, source_mask = padded(texts_ids, tokenizer.pad_id, (tokenizer.bos_id,), (tokenizer.eos_id,))
    arrays = (source_ids, source_mask, np.asarray(labels, dtype=np.int64), np.asarray(indices, dtype=np.int64))
    tensors = map(torch.from_numpy, arrays)
    soft = None if probabilities is None else torch.from_numpy(probabilities)
    return ClassificationBatch(*tensors, len(labels), int(source_mask.sum()), soft)


def padded(
    rows: Rows | Sequence[Sequence[int]],
    pad_id: int,
    before: tuple[int, ...] | np.ndarray = (),
    after: tuple[int, ...] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """Return (ids, mask), (B, longest) each, of rows with special ids before or after each; those before may differ
    from row to row, (B, specials)."""
    start = np.shape(before)[-1]
    specials = start + len(after)
    flat, lengths = rows if isinstance(rows, Rows) else Rows.of(rows)
    longest = int(lengths.max())
    ids = np.full((len(lengths), longest + specials), pad_id, dtype=np.int64)  # (B, L)
    ids[:, start : start + longest][np.arange(longest) < lengths[:, None]] = flat
    ids[:, :start] = before
    for place, id_ in enumerate(after):
        ids[np.arange(len(lengths)), start + lengths + place] = id_
    return ids, np.arange(longest + specials) < lengths[:, None] + specials  # (B, L)
