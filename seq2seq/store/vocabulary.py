"""The weights of a translation model for another vocabulary: rows of embeddings and output are kept, cut and made.

`workflows` changes models on request (`s2s vocabulary`), `tasks` at the start of fine-tuning (`training.vocabulary`).
All other weights stay the same.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from seq2seq.interop.marian_weights import OUR_BIAS, OUR_OUTPUT, OUR_SOURCE, OUR_TARGET
from seq2seq.store.model_folder import LoadedModel
from seq2seq.text.origins import Origin, origins
from seq2seq.text.segmenter import Segmenter
from seq2seq.text.tokenizer import TokenizerPair
from seq2seq.text.trimming import distinct_readers


def refitted(
    loaded: LoadedModel,
    tokenizers: TokenizerPair,
    counts: Mapping[str, int] | None = None,
    like: Mapping[str, str] | None = None,
) -> dict[str, Tensor]:
    """Return the weights of a model for other tokenizers, under our names; tied ones occur once.

    A piece that the model has keeps its rows. Rows of a new piece are the mean of those of the old pieces that it is
    made of, scaled to their mean norm. Its output bias follows the logarithm of its count.

    Args:
        loaded: the model, in any direction.
        tokenizers: those of the new weights.
        counts: how often pieces occur in text of the target; without them a new bias is the mean of the old ones.
        like: as of `text.origins`.
    """
    old, new = loaded.tokenizers.undirected, tokenizers.undirected
    segmenters = [Segmenter(reader.model_bytes) for reader in distinct_readers(old)]
    sides = (segmenters, segmenters) if old.shared else (segmenters[:1], segmenters[-1:])
    of_target = origins(old.target, new.target, sides[1][::-1], like)
    is_one = old.shared and new.shared
    of_source = of_target if is_one else origins(old.source, new.source, sides[0], like)
    made = {OUR_SOURCE: of_source, OUR_TARGET: of_target, OUR_OUTPUT: of_target}
    state = loaded.weights
    weights = {name: _rows(tensor, made[name]) if name in made else tensor for name, tensor in state.items()}
    if OUR_BIAS in state:
        pieces = new.target.pieces(range(new.target.vocab_size))
        vocabulary = old.target.vocabulary
        is_old = torch.tensor([piece in vocabulary for piece in pieces])
        number = torch.tensor([float((counts or {}).get(piece, 0)) for piece in pieces])
        weights[OUR_BIAS] = _biases(state[OUR_BIAS], of_target, is_old, number)
    return weights


def _rows(matrix: Tensor, made_of: Sequence[Origin]) -> Tensor:
    """Return new rows (V', D), made of rows (V, D)."""
    rows = matrix[torch.tensor([ids[0] for ids in made_of])]
    several = [place for place, ids in enumerate(made_of) if len(ids) > 1]
    if several:
        norms = matrix.norm(dim=1, keepdim=True)  # (V, 1)
        mean, norm = (_means(part, [made_of[place] for place in several]) for part in (matrix, norms))
        rows[several] = mean * (norm / mean.norm(dim=1, keepdim=True).clamp_min(1e-9))
    return rows


def _means(matrix: Tensor, made_of: Sequence[Origin]) -> Tensor:
    """Return the mean of the rows of each origin."""
    begins = torch.tensor([0, *map(len, made_of[:-1])]).cumsum(0)
    return embedding_bag(torch.tensor([id_ for ids in made_of for id_ in ids]), matrix, begins, mode="mean")


def _biases(bias: Tensor, made_of: Sequence[Origin], is_old: Tensor, counts: Tensor) -> Tensor:
    """Return new biases (V'), given old ones (V), and of each new id whether its piece is old, and its count.

    A new piece that occurs has the bias that a line through the old ones gives for the logarithm of its count.
    """
    made = _means(bias[:, None], made_of)[:, 0]
    known, wanted = is_old & (counts > 0), ~is_old & (counts > 0)
    if known.sum() >= 2 and wanted.any():
        x, y = counts.log(), made
        centred = x[known] - x[known].mean()
        slope = (centred * (y[known] - y[known].mean())).sum() / centred.square().sum().clamp_min(1e-9)
        made[wanted] = y[known].mean() + slope * (x[wanted] - x[known].mean())
    return made
