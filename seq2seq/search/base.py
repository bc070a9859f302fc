"""What a search steps through, what it returns, and the arithmetic that all searches share.

`inference.steps` makes a `StepModel` of a Transformer or an ensemble; tests make one of a table of probabilities.
Shapes: B sentences, N hypotheses a sentence, R = B * N rows (those of a sentence side by side), V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from seq2seq.config import SearchConfig

LEAVING_SHARE = 0.1
# Up to so many scores the largest is found faster without blocks.
BLOCKS_ABOVE = 2**14


class StepModel(Protocol):
    """A model that continues hypotheses by one token a step; all that it remembers is in the state it hands out."""

    vocab_size: int
    start_id: int
    """What the first step is fed with."""
    eos_id: int
    suppressed: tuple[int, ...]
    """Ids that never come out."""
    stand_ins: tuple[int, ...]
    """More ids that never come out: those that stand for a part of the vocabulary that was left out, and whose
    probabilities always count."""
    max_length: int
    """Most steps that one sentence can take."""
    device: torch.device
    """Where `step` wants its ids and leaves its logits."""

    def start(self, source_ids: Sequence[Sequence[int]], beam_size: int, max_length: int) -> Any:
        """Read the sources; the state has `beam_size` rows a sentence, which all begin with the start id, and room for
        `max_length` steps."""

    def step(self, token_ids: Tensor, state: Any) -> Tensor:
        """Logits (R, V) in float32 of what follows `token_ids` (R,): not normalised, and the caller's to write into."""

    def reorder(self, state: Any, rows: Tensor) -> None:
        """Row i goes on from what row `rows[i]` (R,) was; rows never leave their sentence."""

    def select(self, state: Any, sentences: Tensor) -> None:
        """Keep these sentences (B',) with all their rows, in this order; most stand where they stood."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation in ids, without start and end."""

    ids: tuple[int, ...]
    log_prob: float
    """Sum of the model's log-probabilities of all tokens, the end included."""
    score: float
    """`normalized_score`, what hypotheses are ranked by."""
    finished: bool
    """Whether the model ended it; otherwise it was cut off at the length limit."""


def normalized_score(log_prob: float, length: int, length_penalty: float) -> float:
    """log_prob / length^a: `length` counts the end, higher is better, and a = 0 leaves the log-probability."""
    return log_prob / max(length, 1) ** length_penalty


def length_limits(
    model: StepModel,
    source_ids: Sequence[Sequence[int]],
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]] | None,
) -> list[int]:
    """For each sentence the most tokens of its translation, end included.

    It is max_length_ratio * source length + max_length_offset, no less than a forced prefix and the minimum length
    need, and no more than the model can take.
    """
    prefix_lengths = [len(prefix) for prefix in prefixes] if prefixes is not None else [0] * len(source_ids)
    return [
        min(
            max(
                int(config.max_length_ratio * len(ids)) + config.max_length_offset,
                prefix_length + 1,
                config.min_length + 1,
            ),
            model.max_length,
        )
        for ids, prefix_length in zip(source_ids, prefix_lengths, strict=True)
    ]


def places_of_staying(is_over: Tensor) -> Tensor:
    """The sentences that stay, is_over (B,) -> (B',): the first B' in their places, but for those that are over, whose
    places are taken by the ones that stay behind the first B'. So little has to be moved."""
    staying = (~is_over).nonzero().squeeze(1)
    count = len(staying)
    places = torch.arange(count, device=is_over.device)
    places[is_over[:count]] = staying[staying >= count]
    return places


def worth_leaving(num_done: int, num_sentences: int) -> bool:
    """Whether the finished sentences of a batch should leave now: each time something of the state is copied."""
    return num_done > 0 and num_done >= num_sentences * LEAVING_SHARE


def most_likely_ids(scores: Tensor) -> Tensor:
    """The id of the largest score of each row, (R, V) -> (R,), by the blocks of `largest_candidates`."""
    vocab_size = scores.shape[1]
    if scores.numel() <= BLOCKS_ABOVE:
        return scores.argmax(1)
    width = _block_width(vocab_size)
    block = _block_maxima(scores, width).argmax(1, keepdim=True)  # (R, 1)
    ids = block * width + torch.arange(width, device=scores.device)  # (R, W)
    ids.clamp_(max=vocab_size - 1)
    return ids.gather(1, scores.gather(1, ids).argmax(1, keepdim=True)).squeeze(1)  # (R,)


def largest_candidates(scores: Tensor, offsets: Tensor, num_rows: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest `scores + offset of the row` of each sentence, best first, exactly.

    Sorting out 5 * 8,000 candidates is slow where taking the maximum is fast, so the vocabulary is cut into blocks of
    W ids. What is among the `count` largest of all stands in one of the `count` blocks with the largest maxima, and
    only those are looked at.

    Args:
        scores: (R, V)
        offsets: (R,), added to every entry of a row; -inf takes a row out of the choice
        num_rows: N, rows of a sentence
        count: candidates of a sentence, at most N * V

    Returns:
        values, row within the sentence, id: each (B, count)
    """
    vocab_size = scores.shape[1]
    width = _block_width(vocab_size)
    num_blocks = math.ceil(vocab_size / width)
    if count > num_rows * num_blocks:
        width, num_blocks = 1, vocab_size
    maxima = _block_maxima(scores, width) + offsets[:, None]  # (R, blocks)
    best = maxima.view(-1, num_rows * num_blocks).topk(count, dim=-1).indices  # (B, count)
    row, block = best // num_blocks, best % num_blocks
    ids = (block * width)[:, :, None] + torch.arange(width, device=scores.device)  # (B, count, W)
    exists = ids < vocab_size
    ids = ids.clamp_(max=vocab_size - 1)
    flat = row[:, :, None] * vocab_size + ids
    values = scores.view(-1, num_rows * vocab_size).gather(1, flat.flatten(1)).view_as(ids)
    row_offsets = offsets.view(-1, num_rows).gather(1, row)  # (B, count)
    values = (values + row_offsets[:, :, None]).masked_fill_(~exists, -torch.inf)
    values, place = values.flatten(1).topk(count, dim=-1)  # (B, count)
    return values, row.gather(1, place // width), ids.flatten(1).gather(1, place)


def _block_width(vocab_size: int) -> int:
    return 1 << math.ceil(math.log2(vocab_size) / 2)


def _block_maxima(scores: Tensor, width: int) -> Tensor:
    """The largest of every `width` scores, the last of what is left: (R, V) -> (R, blocks)."""
    whole = scores.shape[1] // width * width
    maxima = scores[:, :whole].unflatten(1, (-1, width)).amax(2)
    if whole == scores.shape[1]:
        return maxima
    return torch.cat([maxima, scores[:, whole:].amax(1, keepdim=True)], dim=1)
