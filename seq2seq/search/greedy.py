"""Searches that follow every row to its end without comparing rows: the most likely token, or a random one.

Both run the same loop and differ in how the next token is chosen. Shapes as in `base`.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from seq2seq.config import SearchConfig
from seq2seq.search.base import Hypothesis, Sentence, StepModel, length_limits
from seq2seq.search.candidates import most_likely_ids
from seq2seq.search.rows import Rows
from seq2seq.search.rules import Rules

Choose = Callable[[Tensor, int, Tensor], Tensor]
"""(log-probabilities (R, V) after the rules, position, sentences (B',) still searched) -> ids (R,)"""


@torch.inference_mode()
def greedy_search(model: StepModel, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
    """Take the most likely token at every step: one hypothesis a sentence."""

    def most_likely(log_probs: Tensor, position: int, searched: Tensor) -> Tensor:
        return most_likely_ids(log_probs)

    return _follow(model, sentences, config, 1, most_likely)


@torch.inference_mode()
def sample_search(model: StepModel, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
    """Draw `n_best` translations of each sentence, best score first; the same one may be drawn twice.

    A sentence draws from a generator of its own, keyed by (seed, key of the sentence), so that its translations do not
    depend on the sentences beside it. `log_prob` is the model's own, whatever the
    temperature.
    """
    limits = length_limits(sentences, config, model.max_length)
    keys = [sentence.key for sentence in sentences]
    draws = _uniform_draws(config.seed, keys, limits, config.n_best).to(model.device)  # (B, T, N)

    def drawn(log_probs: Tensor, position: int, searched: Tensor) -> Tensor:
        return draw_ids(log_probs, draws[searched, position].flatten(), config)

    return _follow(model, sentences, config, config.n_best, drawn)


def draw_ids(logits: Tensor, draws: Tensor, config: SearchConfig) -> Tensor:
    """The id at which the cumulative probability passes `draws`.

    Args:
        logits: (R, V)
        draws: (R,), uniform in [0, 1)
        config: temperature, top_k and top_p; the last counts probability after the first two

    Returns:
        ids (R,)
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
    # A draw next to 1 may pass the last sum by rounding; what has no probability is never reached.
    target = (draws[:, None] * cumulative[:, -1:]).to(cumulative.dtype)
    place = torch.searchsorted(cumulative, target, right=True)
    last_possible = (probabilities > 0).long().mul(torch.arange(1, probabilities.shape[1] + 1, device=logits.device))
    place = torch.minimum(place, last_possible.amax(-1, keepdim=True).sub(1).clamp(min=0))
    return (place if ids is None else ids.gather(1, place)).squeeze(1)


def _uniform_draws(seed: int, keys: Sequence[int], limits: Sequence[int], num_rows: int) -> Tensor:
    draws = np.zeros((len(limits), max(limits, default=0), num_rows), dtype=np.float32)
    for row, (key, limit) in enumerate(zip(keys, limits, strict=True)):
        generator = np.random.default_rng((seed % 2**64, key))
        draws[row, :limit] = generator.random((limit, num_rows), dtype=np.float32)
    return torch.from_numpy(draws)


def _follow(
    model: StepModel, sentences: Sequence[Sentence], config: SearchConfig, num_rows: int, choose: Choose
) -> list[list[Hypothesis]]:
    """Lengthen every row by what `choose` chooses until it ends."""
    if not sentences:
        return []
    limits = length_limits(sentences, config, model.max_length)
    state = model.start([sentence.source_ids for sentence in sentences], num_rows, max(limits))
    rules = Rules(model, sentences, config, num_rows)
    rows = _Rows(model, config, limits, num_rows)
    while len(rows.sentences):
        log_probs = rules.apply(model.step(rows.last_ids, state), rows.history)  # (R, V)
        chosen = choose(log_probs, rows.position, rows.sentences)
        rows.append(chosen, log_probs.gather(1, chosen[:, None]))
        indices, staying = rows.indices, rows.leave()
        if staying is not None:
            rules.select(staying)
            model.reorder(state, indices[staying].flatten(), staying)
    return rows.results


class _Rows(Rows):
    """Rows that do not compete; what comes after a row's end does not count."""

    def __init__(self, model: StepModel, config: SearchConfig, limits: Sequence[int], num_rows: int):
        super().__init__(model, config, limits, num_rows)
        self._is_over = torch.zeros_like(self.log_probs, dtype=torch.bool)  # (B, N)
        self._last = torch.tensor(limits, device=model.device)[:, None]  # (B, 1)

    def append(self, chosen: Tensor, log_probs: Tensor) -> None:
        """Add an id, (R,), with its log-probability to each row, and write the results of sentences that are over."""
        self.position += 1
        self.ids[:, :, self.position] = chosen.view_as(self.log_probs)
        self.log_probs += log_probs.view_as(self.log_probs).masked_fill(self._is_over, 0.0)
        self._is_over |= (chosen == self._eos_id).view_as(self._is_over) | (self._last <= self.position)
        for index in self._is_over.all(1).nonzero().flatten().tolist():
            sentence = int(self.sentences[index])
            if not self.results[sentence]:
                self.results[sentence] = self._read(index, self._limits[sentence])

    def leave(self) -> Tensor | None:
        """As `Rows.leave`."""
        staying = super().leave()
        if staying is not None:
            self._is_over, self._last = self._is_over[staying], self._last[staying]
        return staying

    def _read(self, index: int, limit: int) -> list[Hypothesis]:
        found = []
        rows = self.ids[index, :, 1 : 1 + limit].tolist()
        for ids, log_prob in zip(rows, self.log_probs[index].tolist(), strict=True):
            finished = self._eos_id in ids
            found.append(self.hypothesis(ids[: ids.index(self._eos_id)] if finished else ids, log_prob, finished))
        return sorted(found, key=lambda hypothesis: -hypothesis.score)
