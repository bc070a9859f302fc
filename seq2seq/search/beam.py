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
from seq2seq.search.base import Hypothesis, Sentence, StepModel, length_limits
from seq2seq.search.candidates import largest_candidates
from seq2seq.search.rows import Rows
from seq2seq.search.rules import Rules


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
    if not sentences:
        return []
    limits = length_limits(sentences, config, model.max_length)
    state = model.start([sentence.source_ids for sentence in sentences], config.beam_size, max(limits))
    rules = Rules(model, sentences, config, config.beam_size)
    beams = _Beams(model, config, limits)
    num_candidates = min(2, model.vocab_size) * config.beam_size
    while len(beams.sentences):
        log_probs = rules.apply(model.step(beams.last_ids, state), beams.history)  # (R, V)
        parents = beams.advance(*largest_candidates(log_probs, beams.log_probs, num_candidates))  # (B, N)
        rows = beams.indices.gather(1, parents)
        beams.finish_sentences()
        staying = beams.leave()
        if staying is not None:
            rules.select(staying)
            rows = rows[staying]
        model.reorder(state, rows.flatten(), staying)
    return beams.results


class _Beams(Rows):
    """The live hypotheses of the sentences of a batch, and the finished ones of all sentences."""

    def __init__(self, model: StepModel, config: SearchConfig, limits: Sequence[int]):
        super().__init__(model, config, limits, config.beam_size)
        self.log_probs[:, 1:] = -torch.inf  # all beams begin alike: one of them is enough
        self._finished: list[list[Hypothesis]] = [[] for _ in limits]  # best first; of equal ones the earlier

    def advance(self, log_probs: Tensor, parents: Tensor, ids: Tensor) -> Tensor:
        """Go on with the candidates (B, 2N), best first; which beams the new ones continue, (B, N)."""
        num_beams = self.log_probs.shape[1]
        is_end = ids == self._eos_id
        self._keep_ended(is_end[:, :num_beams] & (log_probs[:, :num_beams] > -torch.inf), log_probs, parents)
        live = is_end.long().argsort(dim=1, stable=True)[:, :num_beams]  # ends behind all others
        self.log_probs = log_probs.masked_fill(is_end, -torch.inf).gather(1, live)
        parents = parents.gather(1, live)
        self.ids = self.ids.gather(1, parents[:, :, None].expand(-1, -1, self.ids.shape[2]))
        self.position += 1
        self.ids[:, :, self.position] = ids.gather(1, live)
        return parents

    def finish_sentences(self) -> None:
        """Write the results of the sentences that are over now."""
        best = self.log_probs.amax(1).tolist()
        for index, sentence in enumerate(self.sentences.tolist()):
            if not self.results[sentence] and self._is_over(sentence, best[index]):
                found = self._finished[sentence][: self._config.n_best]
                if len(found) < self._config.n_best:
                    found += self._cut_off(index)[: self._config.n_best - len(found)]
                # Nothing is found where the rules forbid every continuation.
                self.results[sentence] = found or [Hypothesis((), -math.inf, -math.inf, False)]

    def _keep_ended(self, ended: Tensor, log_probs: Tensor, parents: Tensor) -> None:
        index, rank = ended.nonzero(as_tuple=True)
        ids = self.ids[index, parents[index, rank], 1 : self.position + 1]
        columns = (self.sentences[index], ids, log_probs[index, rank])
        for sentence, row, log_prob in zip(*(column.tolist() for column in columns), strict=True):
            hypothesis = self.hypothesis(row, log_prob, finished=True)
            bisect.insort(self._finished[sentence], hypothesis, key=lambda one: -one.score)

    def _is_over(self, sentence: int, best: float) -> bool:
        """Whether a sentence is, whose best live hypothesis has the log-probability `best`."""
        finished, limit, penalty = self._finished[sentence], self._limits[sentence], self._config.length_penalty
        if self.position >= limit:
            return True
        # Many unlikely ends may come before the likely one, so their number alone is not enough.
        if len(finished) >= self._config.beam_size and (
            self._config.early_stopping or finished[0].score >= best / self.position**penalty
        ):
            return True
        n_best = self._config.n_best
        return len(finished) >= n_best and finished[n_best - 1].score >= best / limit**penalty

    def _cut_off(self, index: int) -> list[Hypothesis]:
        rows = zip(self.ids[index, :, 1 : self.position + 1].tolist(), self.log_probs[index].tolist(), strict=True)
        return [self.hypothesis(ids, log_prob, finished=False) for ids, log_prob in rows if log_prob > -math.inf]
