"""Beam search: of all continuations of all beams of a sentence, the most likely ones are the next beams.

Finished hypotheses are kept apart from live ones, so that none takes the slot of a live one that could still win.
Shapes as in `base`, with N = beam_size.
"""

import bisect
import math
from collections.abc import Sequence

import numpy as np
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
        self._log_probs = torch.full(self.ids.shape[:2], -torch.inf, device=model.device)  # (B, N)
        self._log_probs[:, 0] = 0.0  # all beams begin alike: one of them is enough
        self._finished: list[list[Hypothesis]] = [[] for _ in sentences]  # best first; of equal ones the earlier

    def advance(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        num_beams = self._log_probs.shape[1]
        log_probs, places = largest_candidates(log_probs, self._log_probs, 2 * num_beams)  # (B, 2N) each
        is_end = places % self.vocab_size == self.eos_id
        log_probs[:, num_beams:].masked_fill_(is_end[:, num_beams:], -torch.inf)
        # Ends behind all others. There are at most N, one of each row, so the first N go on.
        order = is_end.long().argsort(dim=1, stable=True)
        log_probs, places = log_probs.gather(1, order), places.gather(1, order)
        self.report(places, log_probs)
        self._log_probs, places = log_probs[:, :num_beams], places[:, :num_beams]
        return places % self.vocab_size, places // self.vocab_size

    def read(self, choices: np.ndarray, log_probs: np.ndarray) -> None:
        rows, ids = np.divmod(choices, self.vocab_size)  # (B, 2N) each
        for index, rank in zip(*((ids == self.eos_id) & (log_probs > -math.inf)).nonzero(), strict=True):
            log_prob = float(log_probs[index, rank])
            hypothesis = self.hypothesis(self.ids[index, rows[index, rank]], log_prob, finished=True)
            bisect.insort(self._finished[self.sentences[index]], hypothesis, key=lambda one: -one.score)
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
        """Whether a sentence is over, if the best of its live hypotheses has this log-probability."""
        config, finished, limit = self.config, self._finished[sentence], self.limits[sentence]
        length = self.ids.shape[2]
        if length >= limit:
            return True
        # Many unlikely ends may come before the likely one, so their number alone is not enough.
        if len(finished) >= config.beam_size and (
            config.early_stopping or finished[0].score >= best / length**config.length_penalty
        ):
            return True
        enough = len(finished) >= config.n_best
        return enough and finished[config.n_best - 1].score >= best / limit**config.length_penalty

    def _result(self, sentence: int, ids: np.ndarray, log_probs: np.ndarray) -> list[Hypothesis]:
        rows = zip(ids, log_probs.tolist(), strict=True)
        live = [self.hypothesis(row, log_prob, finished=False) for row, log_prob in rows if log_prob > -math.inf]
        nothing = [Hypothesis((), -math.inf, -math.inf, False)]  # the rules forbade every continuation
        return [*self._finished[sentence], *live][: self.config.n_best] or nothing
