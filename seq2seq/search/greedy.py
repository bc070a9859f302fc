"""Searches with independent rows: each step takes the most likely token of a row, or draws one.

Shapes as in `base`.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from seq2seq.config.schema import SearchConfig
from seq2seq.runtime import on_cpu
from seq2seq.search.base import NO_HYPOTHESIS, Hypothesis, Sentence, StepModel
from seq2seq.search.candidates import largest_candidates
from seq2seq.search.loop import SearchLoop

Choose = Callable[[Tensor, list[int]], Tensor]
"""(log-probabilities (R, V) after the rules, indices of the B sentences) -> ids (R,)"""


@torch.inference_mode()
def greedy_search(model: StepModel, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
    """Return one hypothesis per sentence, with the most likely token at every step."""

    def most_likely(log_probs: Tensor, indices: list[int]) -> Tensor:
        if not on_cpu(log_probs):
            return log_probs.argmax(1)
        return largest_candidates(log_probs, log_probs.new_zeros(len(log_probs), 1), 1)[1].squeeze(1)

    return _IndependentRows(model, sentences, config, 1, most_likely).run()


@torch.inference_mode()
def sample_search(model: StepModel, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
    """Draw `n_best` translations of each sentence, best score first; the same translation may be drawn twice.

    Each sentence has its own generator, keyed by (seed, key of the sentence), so that its translations do not depend on
    the batch. `log_prob` is that of the model, without the temperature.
    """
    generators = [np.random.default_rng((config.seed % 2**64, sentence.key)) for sentence in sentences]

    def draw(log_probs: Tensor, indices: list[int]) -> Tensor:
        draws = [generators[index].random(config.n_best, np.float32) for index in indices]
        return draw_ids(log_probs, torch.from_numpy(np.concatenate(draws)).to(log_probs.device), config)

    return _IndependentRows(model, sentences, config, config.n_best, draw).run()


def draw_ids(logits: Tensor, draws: Tensor, config: SearchConfig) -> Tensor:
    """Return the id at which the cumulative probability exceeds `draws`.

    Args:
        logits: (R, V)
        draws: (R,), uniform in [0, 1)
        config: temperature, top_k and top_p, which is applied to the probabilities after the other two

    Returns:
        The ids, (R,).
    """
    ids = None
    vocab_size = logits.shape[1]
    if config.top_k:
        logits, ids = logits.topk(min(config.top_k, vocab_size), dim=-1)
    elif config.top_p < 1.0:
        logits, ids = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = torch.softmax(logits.float() / config.temperature, dim=-1)
    cumulative = probabilities.cumsum(-1)
    if config.top_p < 1.0:
        probabilities = probabilities.masked_fill(cumulative - probabilities >= config.top_p, 0.0)
        cumulative = probabilities.cumsum(-1)
    # Rounding may move a draw close to 1 beyond the last sum; an id with probability 0 is never chosen.
    target = (draws[:, None] * cumulative[:, -1:]).to(cumulative.dtype)
    index = torch.searchsorted(cumulative, target, right=True)
    last_possible = (probabilities > 0).long().mul(torch.arange(1, probabilities.shape[1] + 1, device=logits.device))
    index = torch.minimum(index, last_possible.amax(-1, keepdim=True).sub(1).clamp(min=0))
    return (index if ids is None else ids.gather(1, index)).squeeze(1)


class _IndependentRows(SearchLoop):
    """A search in which `choose` maps log-probabilities (R, V) to the next id of each row, (R,)."""

    def __init__(
        self, model: StepModel, sentences: Sequence[Sentence], config: SearchConfig, num_rows: int, choose: Choose
    ):
        super().__init__(model, sentences, config, num_rows)
        self._choose = choose
        self._log_probs = np.zeros((len(sentences), num_rows), np.float32)  # also of those that left

    def advance(self, log_probs: Tensor) -> tuple[Tensor, None]:
        chosen = self._choose(log_probs, self.sentences)  # (R,)
        log_probs = log_probs.gather(1, chosen[:, None])  # (R, 1)
        ids = chosen.view(len(self.sentences), -1)  # (B, N)
        self.report(ids, log_probs.view_as(ids))
        return ids, None

    def read(self, choices: np.ndarray, log_probs: np.ndarray) -> None:
        had_ended = (self.ids == self.eos_id).any(2)  # (B, N)
        self._log_probs[self.sentences] += np.where(had_ended, np.float32(0), log_probs)
        self.ids = np.concatenate([self.ids, choices[:, :, None]], axis=2)
        is_over = (had_ended | (choices == self.eos_id)).all(1)  # (B,)
        for index, sentence in enumerate(self.sentences):
            if not self.results[sentence] and (is_over[index] or self.ids.shape[2] >= self.limits[sentence]):
                self.results[sentence] = self._result(self.ids[index], self._log_probs[sentence])

    def _result(self, rows: np.ndarray, log_probs: np.ndarray) -> list[Hypothesis]:
        found = []
        for ids, log_prob in zip(rows, log_probs.tolist(), strict=True):
            if log_prob == -math.inf:  # an id was chosen where all were forbidden
                found.append(NO_HYPOTHESIS)
                continue
            (ends,) = (ids == self.eos_id).nonzero()
            found.append(self.hypothesis(ids[: ends[0]] if len(ends) else ids, log_prob, len(ends) > 0))
        return sorted(found, key=lambda hypothesis: -hypothesis.score)
