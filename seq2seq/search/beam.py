"""Beam search: the next beams of a sentence are the most likely of all continuations of its beams.

Finished hypotheses are stored separately, so that they never take the slot of a live hypothesis that could still win.
Shapes as in `base`, with N = beam_size.
"""

import bisect
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from seq2seq.config.schema import SearchConfig
from seq2seq.search.base import NO_HYPOTHESIS, Hypothesis, Sentence, StepModel
from seq2seq.search.candidates import largest_candidates
from seq2seq.search.loop import SearchLoop


@torch.inference_mode()
def beam_search(model: StepModel, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
    """Return the `n_best` best finished hypotheses of each sentence, best first.

    Each step looks at the 2 * beam_size best continuations of a sentence. Those among the first beam_size that end are
    finished; the best beam_size that do not end are the next beams. A sentence is over if one of
    these conditions holds:

    - The n_best best finished hypotheses score at least log_prob / limit^a of the best live one, for its length limit
      (`base.length_limits`). Log-probabilities are at most 0 and a is at least 0, so no continuation scores higher.
    - It has been settled for more than `max_extra_steps` steps. Settled means that beam_size hypotheses have finished,
      and the best beam_size of them score at least log_prob / length^a of the best live one at its present length. Only
      a continuation whose mean log-probability rises could still win. The generate method of transformers ends a
      sentence at the first settled step.
    - beam_size hypotheses have finished, and `early_stopping` is set or beam_size is 1.
    - It has reached its length limit.

    `n_best` affects only when the search ends, not which hypotheses it finds, so the first of 5 is the first of 1. If
    fewer than `n_best` have finished at the length limit, live ones follow them, with `finished` False.
    """
    return _BeamSearch(model, sentences, config, config.beam_size).run()


def continuations(scores: Tensor, offsets: Tensor, eos_id: int) -> tuple[Tensor, Tensor]:
    """Return the 2N best continuations of each sentence: first those that do not end, best first, then those that end.

    Args:
        scores: log-probabilities of the next ids, (R, V).
        offsets: log-probabilities of the beams, (B, N).
        eos_id: id of the end.

    Returns:
        Their log-probabilities, which are -inf for ends that are not among the first N, and row within the sentence *
        V + id, (B, 2N) each.
    """
    num_beams = offsets.shape[1]
    log_probs, places = largest_candidates(scores, offsets, 2 * num_beams)  # (B, 2N) each
    is_end = places % scores.shape[1] == eos_id
    log_probs[:, num_beams:].masked_fill_(is_end[:, num_beams:], -torch.inf)
    # There are at most N ends, one per row, so the first N are live.
    order = is_end.long().argsort(dim=1, stable=True)
    return log_probs.gather(1, order), places.gather(1, order)


class _BeamSearch(SearchLoop):
    def __init__(self, model: StepModel, sentences: Sequence[Sentence], config: SearchConfig, num_rows: int):
        super().__init__(model, sentences, config, num_rows)
        self._log_probs = torch.full(self.ids.shape[:2], -torch.inf, device=model.device)  # (B, N)
        self._log_probs[:, 0] = 0.0  # all beams are equal at first, so one of them is enough
        self._finished: list[list[Hypothesis]] = [[] for _ in sentences]  # best first; ties: the earlier
        self._settled_steps = [0] * len(sentences)

    def advance(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        log_probs, places = continuations(log_probs, self._log_probs, self.eos_id)  # (B, 2N) each
        self.report(places, log_probs)
        num_beams = self._log_probs.shape[1]
        self._log_probs, places = log_probs[:, :num_beams], places[:, :num_beams]
        return places % self.vocab_size, places // self.vocab_size

    def read(self, choices: np.ndarray, log_probs: np.ndarray) -> None:
        rows, ids = np.divmod(choices, self.vocab_size)  # (B, 2N) each
        for index, rank in zip(*((ids == self.eos_id) & (log_probs > -math.inf)).nonzero(), strict=True):
            log_prob = float(log_probs[index, rank])
            hypothesis = self.hypothesis(self.ids[index, rows[index, rank]], log_prob, finished=True)
            bisect.insort(self._finished[self.sentences[index]], hypothesis, key=lambda other: -other.score)
        live = self.ids.shape[1]
        rows, ids, log_probs = rows[:, :live, None], ids[:, :live, None], log_probs[:, :live]
        self.ids = np.concatenate([np.take_along_axis(self.ids, rows, 1), ids], axis=2)
        for index, best in enumerate(log_probs.max(1).tolist()):
            sentence = self.sentences[index]
            if not self.results[sentence] and self._is_over(sentence, best):
                self.results[sentence] = self._result(sentence, self.ids[index], log_probs[index])

    def select(self, sentences: Tensor) -> None:
        super().select(sentences)
        self._log_probs = self._log_probs[sentences]

    def _is_over(self, sentence: int, best: float) -> bool:
        """Whether a sentence is over, given the log-probability of its best live hypothesis."""
        config, finished, limit = self.config, self._finished[sentence], self.limits[sentence]
        length, beam_size, penalty = self.ids.shape[2], config.beam_size, config.length_penalty
        if length >= limit:
            return True
        if len(finished) >= config.n_best and finished[config.n_best - 1].score >= best / limit**penalty:
            return True
        if len(finished) < beam_size:
            return False
        if self._settled_steps[sentence] or finished[beam_size - 1].score >= best / length**penalty:
            self._settled_steps[sentence] += 1
        return config.early_stopping or beam_size == 1 or self._settled_steps[sentence] > config.max_extra_steps

    def _result(self, sentence: int, ids: np.ndarray, log_probs: np.ndarray) -> list[Hypothesis]:
        rows = zip(ids, log_probs.tolist(), strict=True)
        live = [self.hypothesis(row, log_prob, finished=False) for row, log_prob in rows if log_prob > -math.inf]
        return [*self._finished[sentence], *live][: self.config.n_best] or [NO_HYPOTHESIS]
