"""The loop that all searches share: score, apply the rules, pick, write the results of what is over, reorder.

Shapes as in `base`; T is the longest length limit.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from seq2seq.config import SearchConfig
from seq2seq.search.base import Hypothesis, Sentence, StepModel, length_limits, normalized_score
from seq2seq.search.rules import Rules

# Sentences that are over leave a batch once they are this share of it: each time, all that stays is copied.
LEAVING_SHARE = 0.1


class SearchLoop(ABC):
    """N rows of each sentence, lengthened until every sentence is over; a search says how in `advance`."""

    def __init__(self, model: StepModel, sentences: Sequence[Sentence], config: SearchConfig, num_rows: int):
        self.config, self.eos_id = config, model.eos_id
        self.limits = length_limits(sentences, config, model.max_length)
        self.results: list[list[Hypothesis]] = [[] for _ in sentences]
        """Of each sentence, empty until it is over."""
        self.sentences = list(range(len(sentences)))
        """Indices of the B sentences that have not left."""
        self.position = 0
        self.log_probs = torch.zeros(len(sentences), num_rows, device=model.device)  # (B, N)
        self.ids = torch.full((len(sentences), num_rows, 1 + max(self.limits)), model.start_id, device=model.device)
        """(B, N, 1 + T): the start id, and up to `position` what followed."""
        self._model, self._rules = model, Rules(model, sentences, config, num_rows)
        self._state = model.start([sentence.source_ids for sentence in sentences], num_rows, max(self.limits))

    def run(self) -> list[list[Hypothesis]]:
        """The results."""
        while self.sentences:
            log_probs = self._model.step(self.ids[:, :, self.position].flatten(), self._state)  # (R, V)
            log_probs = self._rules.apply(log_probs, self.ids[:, :, 1 : self.position + 1].flatten(0, 1))
            rows = torch.arange(len(log_probs), device=log_probs.device).view_as(self.log_probs)  # (B, N)
            parents = self.advance(log_probs)
            if parents is not None:
                rows = rows.gather(1, parents)
            staying = self._leave()
            if staying is not None:
                rows = rows[staying]
                self._rules.select(staying)
            if parents is not None or staying is not None:
                self._model.reorder(self._state, rows.flatten(), staying)
        return self.results

    @abstractmethod
    def advance(self, log_probs: Tensor) -> Tensor | None:
        """Add an id to each row, by the log-probabilities (R, V), and write the results of sentences that are over.

        Returns:
            Which row of its sentence each row continues, (B, N); None where each continues itself.
        """

    def hypothesis(self, ids: Sequence[int], log_prob: float, finished: bool) -> Hypothesis:
        """Of these ids, without start and end."""
        score = normalized_score(log_prob, len(ids) + finished, self.config.length_penalty)
        return Hypothesis(tuple(ids), log_prob, score, finished)

    def _leave(self) -> Tensor | None:
        """Drop the sentences that are over, if they are enough; the indices of the others, (B',)."""
        staying = [index for index, sentence in enumerate(self.sentences) if not self.results[sentence]]
        num_over = len(self.sentences) - len(staying)
        if not num_over or num_over < len(self.sentences) * LEAVING_SHARE:
            return None
        kept = torch.tensor(staying, dtype=torch.long, device=self.ids.device)
        self.log_probs, self.ids = self.log_probs[kept], self.ids[kept]
        self.sentences = [self.sentences[index] for index in staying]
        return kept
