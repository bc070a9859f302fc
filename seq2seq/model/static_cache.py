"""The cache of recorded decoding steps: its tensors have one shape and stay in one place.

`inference.steps` makes one for each shape of a batch, and `search.static` steps with it.

Shapes: B sentences, N rows (hypotheses) of a sentence, R = B * N, S source length, T maximum number of positions,
L layers, H heads, K head_dim.
"""

import torch
from torch import Tensor

from seq2seq.model.attention import attend
from seq2seq.model.transformer import Transformer

# The bias of keys that are not attended to, as in `attention.key_bias`.
HIDDEN = -1e4


class StaticCache:
    """A `Cache` whose keys and values are never moved.

    Each row stores the key of a position at its own place. A table contains, for each row and position, the row that
    stored the position of this hypothesis. The rows of a sentence attend to all of its keys, with a bias that hides
    those of other hypotheses and of positions that are not reached yet. So a reordering changes the table alone.

    Args:
        model: the model that decodes.
        num_sentences: B.
        num_rows: N.
        source_length: S, a multiple of 8, because kernels copy a bias with another stride.
        max_length: T, a multiple of 8.
    """

    def __init__(self, model: Transformer, num_sentences: int, num_rows: int, source_length: int, max_length: int):
        projections = model.decoder.layers[0].attention.query_key_value
        heads = projections.num_heads, model.config.head_width
        start = len(model.decoder.layers), 2, num_sentences, heads[0]
        zeros, device = projections.weight.new_zeros, projections.weight.device
        self.length = torch.zeros(1, dtype=torch.long, device=device)
        self.cross = zeros(*start, source_length, heads[1])
        width = min(source_length, model.config.max_length)
        self.source = torch.zeros(num_sentences, width, dtype=torch.long, device=device)
        """The ids of the sources, (B, S), for a recorded encoder; the model may have fewer positions than the cache."""
        self.mask = torch.zeros(num_sentences, width, dtype=torch.bool, device=device)
        self.bias = zeros(num_sentences, 1, 1, source_length)
        self.table = torch.zeros(num_sentences, num_rows, max_length, dtype=torch.long, device=device)
        self._rows = torch.arange(num_rows, device=device)[None, :, None]  # (1, N, 1)
        self._stored = zeros(*start, num_rows, max_length, heads[1])  # (L, 2, B, H, N, T, K)
        self._visible = self.bias  # of the present step

    def load(self, cross: Tensor, mask: Tensor) -> None:
        """Begin with the keys and values (L, 2, B', H, S', K) of sources with this mask (B', S'); B' and S' may be
        smaller than B and S."""
        num_sentences, width = mask.shape
        self.cross[:, :, :num_sentences, :, :width] = cross
        self.begin(mask)

    def begin(self, mask: Tensor) -> None:
        """Begin with sources of this mask (B', S'), whose keys and values are stored before or after."""
        num_sentences, width = mask.shape
        self.bias.fill_(HIDDEN)
        self.bias[:num_sentences, 0, 0, :width].masked_fill_(mask, 0.0)
        self.table.fill_(-1)
        self.length.zero_()

    def take(self, other: "StaticCache", sentences: Tensor) -> None:
        """Continue sentences (B,) of another cache, which has the same N, S and T."""
        for mine, theirs, dim in (
            (self.cross, other.cross, 2), (self._stored, other._stored, 2), (self.bias, other.bias, 0),
            (self.table, other.table, 0),
        ):  # fmt: skip
            torch.index_select(theirs, dim, sentences, out=mine)
        self.length.copy_(other.length)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store a key and a value, and attend to all positions (see `Cache.attend`)."""
        if layer == 0:
            self.table.index_copy_(2, self.length, self._rows.expand(len(self.table), -1, 1))
            self._visible = self._bias_of_table()
        query, key, value = (self._by_sentence(each) for each in (query, key, value))  # (B, H, N, K) each
        keys, values = self._stored[layer].unbind(0)  # (B, H, N, T, K) each
        keys.index_copy_(3, self.length, key.unsqueeze(3))
        values.index_copy_(3, self.length, value.unsqueeze(3))
        context = attend(query, keys.flatten(2, 3), values.flatten(2, 3), self._visible)  # (B, H, N, K)
        return context.transpose(1, 2).flatten(0, 1).unsqueeze(2)  # (R, H, 1, K)

    def advance(self) -> None:
        """Go to the next position."""
        self.length.add_(1)

    def reorder(self, parents: Tensor) -> None:
        """Let each row continue the row `parents` (B, N) of its sentence."""
        self.table.copy_(self.table.gather(1, parents[:, :, None].expand_as(self.table)))

    def _by_sentence(self, vectors: Tensor) -> Tensor:
        return vectors.squeeze(2).unflatten(0, self.table.shape[:2]).transpose(1, 2)  # (R, H, 1, K) -> (B, H, N, K)

    def _bias_of_table(self) -> Tensor:
        """Return the bias of all keys of a sentence for each of its rows, (B, 1, N, N * T)."""
        is_own = self.table[:, :, None, :] == self._rows  # (B, N, N, T)
        bias = torch.zeros_like(is_own, dtype=self._stored.dtype).masked_fill_(~is_own, HIDDEN)
        return bias.flatten(2)[:, None]
