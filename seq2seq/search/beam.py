"""Beam search: of all continuations of all beams of a sentence, the most likely ones are the next beams.

Finished hypotheses are kept apart from live ones, so that none takes the slot of a live one that could still win.
Shapes as in `base`, with N = beam_size.
"""

import bisect
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from seq2seq.config import SearchConfig
from seq2seq.search.base import Hypothesis, Sentence, StepModel
from seq2seq.search.candidates import largest_candidates
from seq2seq.search.loop import SearchLoop


@torch.inference_mode()
def beam_search(model: StepModel, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
    """The `n_best` best finished hypotheses of each sentence, best first.

    Each step looks at the 2 * beam_size best continuations of a sentence. Those among the first beam_size that end are
    finished; the best beam_size that do not end are the next beams. A sentence is over when

    - beam_size hypotheses have finished, and the best of them scores no less than the best live one as it stands (with
      `early_stopping` whatever is still live), or
    - the n_best best of them score at least log_prob / max_length^a of the best live one: since log-probabilities are
      at most 0 and a at least 0, nothing that could still finish is better, or
    - it has reached its length limit (`base.length_limits`).

    `n_best` decides when the search may stop early, never where it goes, so the first of 5 is the first of 1.
    Where fewer than `n_best` have finished at the length limit, live ones follow them, with `finished` False.
    """
    return _BeamSearch(model, sentences, config, config.beam_size).run()


class _BeamSearch(SearchLoop):
    def __init__(self, model: StepModel, sentences: Sequence[Sentence], config: SearchConfig, num_rows: int):
        super().__init__(model, sentences, config, num_rows)
        self.log_probs[:, 1:] = -torch.inf  # all beams begin alike: one of them is enough
        self._finished: list[list[Hypothesis]] = [[] for _ in sentences]  # best first; of equal ones the earlier

    def advance(self, log_probs: Tensor) -> Tensor:
        num_beams = self.log_probs.shape[1]
        count = min(2, log_probs.shape[1]) * num_beams
        log_probs, parents, ids = largest_candidates(log_probs, self.log_probs, count)  # (B, 2N) each
        is_end = ids == self.eos_id
        self._keep_finished(log_probs[:, :num_beams].masked_fill(~is_end[:, :num_beams], -torch.inf), parents)
        live = is_end.long().argsort(dim=1, stable=True)[:, :num_beams]  # ends behind all others
        parents = parents.gather(1, live)
        self.log_probs = log_probs.masked_fill(is_end, -torch.inf).gather(1, live)
        self.ids = self.ids.gather(1, parents[:, :, None].expand(-1, -1, self.ids.shape[2]))
        self.position += 1
        self.ids[:, :, self.position] = ids.gather(1, live)
        best = self.log_probs.amax(1).tolist()
        for index, sentence in enumerate(self.sentences):
            if not self.results[sentence] and self._is_over(sentence, best[index]):
                self.results[sentence] = self._result(index, sentence)
        return parents

    def _keep_finished(self, log_probs: Tensor, parents: Tensor) -> None:
        """What ends now: `log_probs` (B, N) are not -inf there."""
        indices, ranks = (log_probs > -torch.inf).nonzero(as_tuple=True)
        ids = self.ids[indices, parents[indices, ranks], 1 : self.position + 1]
        columns = (indices, ids, log_probs[indices, ranks])
        for index, row, log_prob in zip(*(column.tolist() for column in columns), strict=True):
            hypothesis = self.hypothesis(row, log_prob, finished=True)
            bisect.insort(self._finished[self.sentences[index]], hypothesis, key=lambda one: -one.score)

    def _is_over(self, sentence: int, best: float) -> bool:
        """Whether a sentence is over, if the best of its live hypotheses has this log-probability."""
        config, finished, limit = self.config, self._finished[sentence], self.limits[sentence]
        if self.position >= limit:
            return True
        # Many unlikely ends may come before the likely one, so their number alone is not enough.
        if len(finished) >= config.beam_size and (
            config.early_stopping or finished[0].score >= best / self.position**config.length_penalty
        ):
            return True
        enough = len(finished) >= config.n_best
        return enough and finished[config.n_best - 1].score >= best / limit**config.length_penalty

    def _result(self, index: int, sentence: int) -> list[Hypothesis]:
        rows = zip(self.ids[index, :, 1 : self.position + 1].tolist(), self.log_probs[index].tolist(), strict=True)
        live = [self.hypothesis(ids, log_prob, finished=False) for ids, log_prob in rows if log_prob > -math.inf]
        nothing = [Hypothesis((), -math.inf, -math.inf, False)]  # the rules forbade every continuation
        return [*self._finished[sentence], *live][: self.config.n_best] or nothing
