"""What a translation may not be: each rule writes -inf into the scores of what is forbidden at this step.

A `Rules` is made by a search for its sentences and shrinks with them; the functions below it are the rules one by one.
They change choices and not probabilities, unless the configuration says `renormalize`: then what is forbidden counts
for nothing, as OPUS-MT models ask for, which were trained without the padding that they have a logit for.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from seq2seq.config import SearchConfig
from seq2seq.search.base import StepModel

NOT_FORCED = -1


class Rules:
    """The rules of one search over B sentences with N rows each."""

    def __init__(self, model: StepModel, config: SearchConfig, prefixes: Sequence[Sequence[int]] | None, num_rows: int):
        self._eos_id = model.eos_id
        self._suppressed = torch.tensor(model.suppressed, dtype=torch.long, device=model.device)
        self._min_length = config.min_length
        self._no_repeat_ngram = config.no_repeat_ngram
        self._renormalize = config.renormalize
        self._num_rows = num_rows
        self._prefixes = pad_prefixes(prefixes or (), model.device)  # (B, P)

    def apply(self, logits: Tensor, history: Tensor) -> Tensor:
        """Log-probabilities (R, V) of what follows history (R, t), with -inf for what is forbidden.

        A prefix that is forced has the probability that it would have had. `logits` (R, V) may be written into.
        """
        position = history.shape[1]
        scores = logits if self._renormalize else logits.log_softmax(-1)
        forced = self._forced_at(position)
        given = None if forced is None else scores.gather(1, forced.clamp(min=0)[:, None])  # (R, 1)
        forbid_ids(scores, self._suppressed)
        if position < self._min_length:
            forbid_end(scores, self._eos_id)
        if self._no_repeat_ngram:
            forbid_repeated_ngrams(scores, history, self._no_repeat_ngram)
        if self._renormalize:
            normalizer = scores.logsumexp(-1, keepdim=True)  # (R, 1)
            normalizer.nan_to_num_(neginf=0.0)  # where everything is forbidden there is no sum
            scores -= normalizer
            given = None if given is None else given - normalizer
        if forced is not None:
            force_ids(scores, forced, given)
        return scores

    def select(self, sentences: Tensor) -> None:
        """Keep the rules of these sentences (B',)."""
        if self._prefixes.shape[1]:
            self._prefixes = self._prefixes[sentences]

    def _forced_at(self, position: int) -> Tensor | None:
        if position >= self._prefixes.shape[1]:
            return None
        return self._prefixes[:, position].repeat_interleave(self._num_rows)  # (R,)


def pad_prefixes(prefixes: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Prefixes as (B, P), `NOT_FORCED` behind the end of each."""
    width = max((len(prefix) for prefix in prefixes), default=0)
    rows = [[*prefix, *[NOT_FORCED] * (width - len(prefix))] for prefix in prefixes]
    return torch.tensor(rows, dtype=torch.long, device=device).view(len(prefixes), width)


def forbid_ids(scores: Tensor, ids: Tensor) -> None:
    """Ids that never come out."""
    if len(ids):
        scores.index_fill_(1, ids, -torch.inf)


def forbid_end(scores: Tensor, eos_id: int) -> None:
    """Minimum length: it does not end yet."""
    scores[:, eos_id] = -torch.inf


def forbid_repeated_ngrams(scores: Tensor, history: Tensor, size: int) -> None:
    """What would complete an n-gram that history (R, t) already holds (Paulus et al. 2018)."""
    if history.shape[1] < size:
        return
    ngrams = history.unfold(1, size, 1)  # (R, t - n + 1, n)
    begun = history[:, history.shape[1] - size + 1 :]  # (R, n - 1)
    repeats = (ngrams[:, :, :-1] == begun[:, None]).all(-1)  # (R, t - n + 1)
    # A minimum, because an id that one n-gram forbids and another one allows is forbidden.
    limit = torch.where(repeats, -torch.inf, torch.inf).to(scores.dtype)
    scores.scatter_reduce_(1, ngrams[:, :, -1], limit, "amin")


def force_ids(scores: Tensor, forced: Tensor, given: Tensor) -> None:
    """Allow `forced` (R,) alone, with the score `given` (R, 1), in rows where it is not `NOT_FORCED`.

    The score is taken before the other rules are applied, so that a forced id comes even where a rule forbids it.
    """
    is_forced = (forced != NOT_FORCED)[:, None]
    ids = forced.clamp(min=0)[:, None]
    scores.masked_fill_(is_forced, -torch.inf)
    scores.scatter_(1, ids, torch.where(is_forced, given, scores.gather(1, ids)))
