"""Searches that follow every row to its end without comparing rows: the most likely token, or a random one.

Both run the same loop and differ in how the next token is chosen. Shapes as in `base`.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from seq2seq.config import SearchConfig
from seq2seq.search.base import Hypothesis, Sentence, StepModel, length_limits, normalized_score
from seq2seq.search.candidates import most_likely_ids, places_of_staying, worth_leaving
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
    """Lengthen every row by what `choose` chooses until it ends; sentences whose rows have all ended leave."""
    results: list[list[Hypothesis]] = [[] for _ in sentences]
    if not results:
        return results
    limits = length_limits(sentences, config, model.max_length)
    state = model.start([sentence.source_ids for sentence in sentences], num_rows, max(limits))
    rules = Rules(model, sentences, config, num_rows)
    rows = _Rows(model, limits, num_rows)
    while len(rows.sentences):
        log_probs = rules.apply(model.step(rows.last_ids, state), rows.history)  # (R, V)
        chosen = choose(log_probs, rows.position, rows.sentences)
        rows.append(chosen, log_probs.gather(1, chosen[:, None]).squeeze(1))
        staying = rows.retire(results, config.length_penalty)
        if staying is not None:
            rules.select(staying)
            model.select(state, staying)
    return results


class _Rows:
    """The rows that are being followed: N for each sentence that has not left."""

    def __init__(self, model: StepModel, limits: Sequence[int], num_rows: int):
        num_sentences, device = len(limits), model.device
        self.position = 0
        self.sentences = torch.arange(num_sentences, device=device)  # (B,)
        self.last_ids = torch.full((num_sentences * num_rows,), model.start_id, device=device)  # (R,)
        self._eos_id = model.eos_id
        self._num_rows = num_rows
        self._limits = torch.tensor(limits, device=device).repeat_interleave(num_rows)  # (R,)
        self._ids = torch.full((num_sentences * num_rows, max(limits)), model.eos_id, device=device)  # (R, T)
        self._log_probs = torch.zeros_like(self._ids, dtype=torch.float32)
        self._is_over = torch.zeros_like(self.last_ids, dtype=torch.bool)

    @property
    def history(self) -> Tensor:
        """Ids so far: (R, t)."""
        return self._ids[:, : self.position]

    def append(self, chosen: Tensor, log_probs: Tensor) -> None:
        """Add a token to each row; what comes after a row's end is not looked at."""
        self.last_ids = chosen
        self._ids[:, self.position] = chosen
        self._log_probs[:, self.position] = log_probs
        self.position += 1
        self._is_over |= (chosen == self._eos_id) | (self._limits <= self.position)

    def retire(self, results: list[list[Hypothesis]], length_penalty: float) -> Tensor | None:
        """Write the hypotheses of sentences that are over, once enough are; the places of the others."""
        is_done = self._is_over.view(-1, self._num_rows).all(1)  # (B,)
        num_done = int(is_done.sum())
        if not worth_leaving(num_done, len(is_done)):
            return None
        done = is_done.nonzero().squeeze(1)
        for sentence, hypotheses in zip(self.sentences[done].tolist(), self._read(done, length_penalty), strict=True):
            results[sentence] = hypotheses
        staying = places_of_staying(is_done)
        self._select(staying)
        return staying

    def _read(self, done: Tensor, length_penalty: float) -> list[list[Hypothesis]]:
        rows = self._rows_of(done)
        columns = (self._ids[rows], self._log_probs[rows], self._limits[rows])
        ranked = []
        for ids, log_probs, limit in zip(*(column.tolist() for column in columns), strict=True):
            finished = self._eos_id in ids[:limit]
            length = ids.index(self._eos_id) + 1 if finished else limit
            log_prob = sum(log_probs[:length])
            score = normalized_score(log_prob, length, length_penalty)
            ranked.append(Hypothesis(tuple(ids[: length - finished]), log_prob, score, finished))
        groups = [ranked[start : start + self._num_rows] for start in range(0, len(ranked), self._num_rows)]
        return [sorted(group, key=lambda hypothesis: -hypothesis.score) for group in groups]

    def _select(self, sentences: Tensor) -> None:
        rows = self._rows_of(sentences)
        self.sentences = self.sentences[sentences]
        for name in ("last_ids", "_limits", "_ids", "_log_probs", "_is_over"):
            setattr(self, name, getattr(self, name)[rows])

    def _rows_of(self, sentences: Tensor) -> Tensor:
        offsets = torch.arange(self._num_rows, device=sentences.device)
        return (sentences[:, None] * self._num_rows + offsets).flatten()
