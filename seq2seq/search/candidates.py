"""The largest scores of each sentence, found block by block. Shapes as in `base`."""

import math

import torch
from torch import Tensor


def largest_candidates(scores: Tensor, offsets: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest `scores + offset of the row` of each sentence, best first, exactly.

    Top-k of 5 * 8,000 scores is slow and a maximum is fast, so the vocabulary is split into blocks of W ids. The
    `count` largest scores are in the `count` blocks with the largest maxima, and only those blocks are searched.

    Args:
        scores: (R, V)
        offsets: (B, N), added to every entry of a row; -inf excludes a row
        count: number of candidates per sentence, at most N * V

    Returns:
        The values, and row within the sentence * V + id, (B, count) each.
    """
    vocab_size, num_rows = scores.shape[1], offsets.shape[1]
    width = 1 << math.ceil(math.log2(vocab_size) / 2)
    num_blocks = math.ceil(vocab_size / width)
    if count > num_rows * num_blocks:
        width, num_blocks = 1, vocab_size
    maxima = _block_maxima(scores, width).view(-1, num_rows, num_blocks) + offsets[:, :, None]  # (B, N, blocks)
    best = maxima.flatten(1).topk(count, dim=-1).indices  # (B, count)
    row, block = best // num_blocks, best % num_blocks
    ids = (block * width)[:, :, None] + torch.arange(width, device=scores.device)  # (B, count, W)
    exists = ids < vocab_size
    ids = ids.clamp_(max=vocab_size - 1)
    flat = row[:, :, None] * vocab_size + ids
    values = scores.view(-1, num_rows * vocab_size).gather(1, flat.flatten(1)).view_as(ids)
    row_offsets = offsets.gather(1, row)  # (B, count)
    values = (values + row_offsets[:, :, None]).masked_fill_(~exists, -torch.inf)
    values, index = values.flatten(1).topk(count, dim=-1)  # (B, count)
    return values, flat.flatten(1).gather(1, index)


def _block_maxima(scores: Tensor, width: int) -> Tensor:
    """Return the maximum of each block, (R, V) -> (R, blocks); the last block may be narrower."""
    whole = scores.shape[1] // width * width
    maxima = scores[:, :whole].unflatten(1, (-1, width)).amax(2)
    if whole == scores.shape[1]:
        return maxima
    return torch.cat([maxima, scores[:, whole:].amax(1, keepdim=True)], dim=1)
