"""Beam search: of all continuations of all beams of a sentence, the most likely ones go on.

Live hypotheses and finished ones are kept apart, so that a finished one never takes the place of one that could still
win. Scores are log_prob / length^a (`base.normalized_score`); shapes as in `base`, with N = beam_size.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from seq2seq.config import SearchConfig
from seq2seq.search.base import Hypothesis, Sentence, StepModel, length_limits
from seq2seq.search.candidates import largest_candidates, places_of_staying, worth_leaving
from seq2seq.search.rules import Rules


@torch.inference_mode()
def beam_search(model: StepModel, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
    """The `n_best` best finished hypotheses of each sentence, best first.

    Each step looks at the 2 * beam_size best continuations of a sentence. Those among the first beam_size that end are
    finished; the best beam_size that do not end are the next beam. A sentence is over when

    - beam_size hypotheses have finished, and the best of them scores no less than the best live one as it stands (with
      `early_stopping` whatever is still live), or
    - the n_best best of them score at least log_prob / max_length^a of the best live one: since log-probabilities are
      at most 0 and a at least 0, nothing that could still finish is better, or
    - it has reached its length limit (`base.length_limits`).

    `n_best` only decides when the search may stop early, never where it goes, so the first of 5 is the first of 1.
    Where fewer than `n_best` have finished at the length limit, live ones follow them, with `finished` False.
    """
    results: list[list[Hypothesis]] = [[] for _ in sentences]
    if not results:
        return results
    limits = length_limits(sentences, config, model.max_length)
    state = model.start([sentence.source_ids for sentence in sentences], config.beam_size, max(limits))
    rules = Rules(model, sentences, config, config.beam_size)
    beams = _Beams(model, config, limits)
    while len(beams.sentences):
        log_probs = rules.apply(model.step(beams.last_ids, state), beams.history)  # (R, V)
        before = beams.log_probs.flatten()  # (R,)
        beams.advance(*largest_candidates(log_probs, before, config.beam_size, beams.num_candidates))
        staying = beams.retire(results)
        if staying is not None:
            rules.select(staying)
            model.select(state, staying)
        model.reorder(state, beams.parent_rows)
    return results


class _Beams:
    """The live and the finished hypotheses of the sentences of a batch.

    A sentence that is over has its result written at once. What its rows compute until it leaves, with others, is
    not looked at.
    """

    def __init__(self, model: StepModel, config: SearchConfig, limits: Sequence[int]):
        num_sentences, beam_size, n_best, device = len(limits), config.beam_size, config.n_best, model.device
        self.position = 0
        self.num_candidates = min(2, model.vocab_size) * beam_size
        self.sentences = torch.arange(num_sentences, device=device)  # (B,)
        self.log_probs = torch.full((num_sentences, beam_size), -torch.inf, device=device)  # (B, N)
        self.log_probs[:, 0] = 0.0  # all beams begin alike: one of them is enough
        self._eos_id, self._length_penalty = model.eos_id, config.length_penalty
        self._early_stopping = config.early_stopping
        self._last_ids = torch.full((num_sentences, beam_size), model.start_id, device=device)  # (B, N)
        self._ids = torch.full((num_sentences, beam_size, max(limits)), model.eos_id, device=device)  # (B, N, T)
        self._parents = torch.zeros_like(self.log_probs, dtype=torch.long)  # (B, N)
        self._limits = torch.tensor(limits, device=device)  # (B,)
        self._num_over = 0
        self._is_over = torch.zeros(num_sentences, dtype=torch.bool, device=device)
        self._num_finished = torch.zeros(num_sentences, dtype=torch.long, device=device)
        self._pool_scores = torch.full((num_sentences, n_best), -torch.inf, device=device)  # (B, n_best), best first
        self._pool_lengths = torch.zeros_like(self._pool_scores, dtype=torch.long)
        self._pool_log_probs = self._pool_scores.clone()
        self._pool_ids = self._ids[:, :1].repeat(1, n_best, 1)  # (B, n_best, T)

    @property
    def history(self) -> Tensor:
        """Ids so far: (R, t)."""
        return self._ids.flatten(0, 1)[:, : self.position]

    @property
    def last_ids(self) -> Tensor:
        """What the model is fed with next: (R,)."""
        return self._last_ids.flatten()

    @property
    def parent_rows(self) -> Tensor:
        """The row that each row continues: (R,)."""
        num_sentences, beam_size = self._parents.shape
        first_rows = torch.arange(0, num_sentences * beam_size, beam_size, device=self._parents.device)
        return (first_rows[:, None] + self._parents).flatten()

    def advance(self, log_probs: Tensor, parents: Tensor, ids: Tensor) -> None:
        """Go on with the candidates (B, 2N), best first: those that end into the pool, the best others live."""
        beam_size = self.log_probs.shape[1]
        is_end = ids == self._eos_id
        ending = log_probs[:, :beam_size].masked_fill(~is_end[:, :beam_size], -torch.inf)
        self.position += 1
        self._finish(ending, parents[:, :beam_size])
        places = is_end.long().argsort(dim=1, stable=True)[:, :beam_size]  # ends behind all others
        self.log_probs = log_probs.masked_fill(is_end, -torch.inf).gather(1, places)
        self._parents = parents.gather(1, places)
        self._last_ids = ids.gather(1, places)
        self._ids = self._histories(self._parents)
        self._ids[:, :, self.position - 1] = self._last_ids

    def retire(self, results: list[list[Hypothesis]]) -> Tensor | None:
        """Write the results of sentences that are over now; once enough are, they leave: the places of the others."""
        best_live = self.log_probs.amax(1)
        # Many unlikely ends may come before the likely one, so their number alone says nothing.
        nothing_near = self._pool_scores[:, 0] >= best_live / self.position**self._length_penalty
        nothing_near |= self._early_stopping
        is_over = (
            ((self._num_finished >= self.log_probs.shape[1]) & nothing_near)
            | (self._pool_scores[:, -1] >= best_live / self._limits**self._length_penalty)
            | (self._limits <= self.position)
        )
        over_now = (is_over & ~self._is_over).nonzero().squeeze(1)
        if not len(over_now):
            return None
        for sentence, hypotheses in zip(self.sentences[over_now].tolist(), self._read(over_now), strict=True):
            results[sentence] = hypotheses
        self._is_over |= is_over
        self._num_over += len(over_now)
        if not worth_leaving(self._num_over, len(self.sentences)):
            return None
        staying = places_of_staying(self._is_over)
        self._select(staying)
        return staying

    def _finish(self, log_probs: Tensor, parents: Tensor) -> None:
        """Merge new hypotheses (B, N), where they are not -inf, into the pool; of equal ones the earlier is better."""
        scores = log_probs / self.position**self._length_penalty
        self._num_finished += (log_probs > -torch.inf).sum(1)
        merged = torch.cat([self._pool_scores, scores], dim=1)
        ranked, places = merged.sort(dim=1, descending=True, stable=True)
        n_best = self._pool_scores.shape[1]
        places = places[:, :n_best]
        lengths = torch.full_like(parents, self.position)
        self._pool_scores = ranked[:, :n_best]
        self._pool_log_probs = torch.cat([self._pool_log_probs, log_probs], dim=1).gather(1, places)
        self._pool_lengths = torch.cat([self._pool_lengths, lengths], dim=1).gather(1, places)
        ids = torch.cat([self._pool_ids, self._histories(parents)], dim=1)
        self._pool_ids = ids.gather(1, places[:, :, None].expand(-1, -1, ids.shape[2]))

    def _histories(self, parents: Tensor) -> Tensor:
        return self._ids.gather(1, parents[:, :, None].expand(-1, -1, self._ids.shape[2]))  # (B, N, T)

    def _read(self, places: Tensor) -> list[list[Hypothesis]]:
        """The hypotheses of these sentences: the pool, and where it is not full, what is live."""
        n_best = self._pool_scores.shape[1]
        pool = (self._pool_ids, self._pool_lengths - 1, self._pool_log_probs, self._pool_scores)
        lengths = torch.full_like(self._parents, self.position)
        live = (self._ids, lengths, self.log_probs, self.log_probs / self.position**self._length_penalty)
        finished = _hypotheses(*(column[places] for column in pool), finished=True)
        cut_off = _hypotheses(*(column[places] for column in live), finished=False)
        nothing = [Hypothesis((), -math.inf, -math.inf, False)]  # the rules forbade every continuation
        return [[*best, *rest][:n_best] or nothing for best, rest in zip(finished, cut_off, strict=True)]

    def _select(self, sentences: Tensor) -> None:
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[sentences])
        self._num_over = 0


def _hypotheses(
    ids: Tensor, num_ids: Tensor, log_probs: Tensor, scores: Tensor, finished: bool
) -> list[list[Hypothesis]]:
    """Those of each sentence whose log-probability is not -inf; ids (B, n, T), the others (B, n)."""
    columns = (ids.tolist(), num_ids.tolist(), log_probs.tolist(), scores.tolist())
    return [
        [
            Hypothesis(tuple(row[:count]), log_prob, score, finished)
            for row, count, log_prob, score in zip(*sentence, strict=True)
            if log_prob > -math.inf
        ]
        for sentence in zip(*columns, strict=True)
    ]
