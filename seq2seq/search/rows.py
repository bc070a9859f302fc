"""What every search keeps of the sentences of a batch: the ids of their rows, and the results of those that are over.

Shapes as in `base`; T is the longest length limit.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from seq2seq.config import SearchConfig
from seq2seq.search.base import Hypothesis, StepModel, normalized_score

# Sentences that are over leave a batch once they are this share of it: each time, the rest of the state is copied.
LEAVING_SHARE = 0.1


class Rows:
    """The rows of the sentences that have not left, N each.

    Args:
        limits: most tokens of each sentence's translation.
        num_rows: N.
    """

    def __init__(self, model: StepModel, config: SearchConfig, limits: Sequence[int], num_rows: int):
        self.position = 0
        self.results: list[list[Hypothesis]] = [[] for _ in limits]
        """Of each sentence, empty until it is over."""
        self.sentences = torch.arange(len(limits), device=model.device)  # (B,)
        self.log_probs = torch.zeros(len(limits), num_rows, device=model.device)  # (B, N)
        self.ids = torch.full((len(limits), num_rows, 1 + max(limits)), model.start_id, device=model.device)
        """(B, N, 1 + T): the start id, and what followed."""
        self._eos_id, self._config, self._limits = model.eos_id, config, limits

    @property
    def last_ids(self) -> Tensor:
        """What the model is fed with next, (R,)."""
        return self.ids[:, :, self.position].flatten()

    @property
    def history(self) -> Tensor:
        """Ids so far, without the start, (R, t)."""
        return self.ids[:, :, 1 : self.position + 1].flatten(0, 1)

    @property
    def indices(self) -> Tensor:
        """Of the rows in the state of the model, (B, N)."""
        return torch.arange(self.log_probs.numel(), device=self.log_probs.device).view_as(self.log_probs)

    def leave(self) -> Tensor | None:
        """Drop the sentences that have results, once they are enough; the indices of the others, (B',)."""
        staying = [index for index, sentence in enumerate(self.sentences.tolist()) if not self.results[sentence]]
        num_over = len(self.sentences) - len(staying)
        if not num_over or num_over < len(self.sentences) * LEAVING_SHARE:
            return None
        kept = torch.tensor(staying, dtype=torch.long, device=self.ids.device)
        self.sentences, self.log_probs, self.ids = self.sentences[kept], self.log_probs[kept], self.ids[kept]
        return kept

    def hypothesis(self, ids: Sequence[int], log_prob: float, finished: bool) -> Hypothesis:
        """Of these ids, without start and end."""
        score = normalized_score(log_prob, len(ids) + finished, self._config.length_penalty)
        return Hypothesis(tuple(ids), log_prob, score, finished)
