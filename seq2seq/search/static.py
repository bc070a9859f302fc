"""Greedy and beam search as a step that can be recorded: everything that changes is in tensors that stay in place.

`recorded` makes `StaticBeams` for each shape of a batch. `beam` is the reference: it finds the same hypotheses, but for
ties. Greedy search is a beam search with one row, which ends with its first hypothesis.

Shapes as in `base`, with N = beam_size; B is from a table, and sentences that fill it up are over from the start. T is
the maximum number of steps.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from seq2seq.config.schema import SearchConfig
from seq2seq.search.base import Hypothesis, Sentence, StepModel, min_length, normalized_score
from seq2seq.search.beam import continuations
from seq2seq.search.rules import forbid_ids, kept_on_device, on_device


class StaticModel(StepModel, Protocol):
    """A step model whose state can be a cache of fixed shape, with steps that read nothing from the device."""

    source_specials: int
    """Number of special ids that are added to each source."""
    precision: torch.dtype
    """Number format of matrix products."""

    def static_cache(self, num_sentences: int, num_rows: int, source_length: int, max_length: int) -> Any:
        """Return a cache with room for sources of `source_length` ids and for `max_length` steps. Its method `take`
        copies sentences from another one, and `reorder` is called within a step with parents (B, N)."""

    def load(self, source_ids: Sequence[Sequence[int]], state: Any) -> None:
        """Encode the sources, which may be fewer than the sentences of the cache, and begin with them."""

    def read(self, source_ids: Sequence[Sequence[int]], state: Any) -> None:
        """Copy the sources into `state.source` and `state.mask`, (B, S) each."""

    def encode_static(self, state: Any) -> tuple[Tensor, ...]:
        """Do what `load` does, with the sources that were `read`."""

    def static_step(self, token_ids: Tensor, state: Any) -> Tensor:
        """Return log-probabilities (R, V) of the token after `token_ids` (R,)."""


class Shape(NamedTuple):
    """The sizes and choices that are fixed in a recording."""

    num_sentences: int
    num_rows: int
    source_length: int
    max_length: int
    renormalize: bool
    eos_id: int


# Tensors of the batch, and tensors of each sentence: those that a step reads, changes, and writes at its position.
OF_BATCH = ("position", "divisors", "last_best", "extra_steps", "forbidden")
READ = ("first_ids", "limit_divisors", "limits", "min_lengths")
CHANGED = ("ids", "log_probs", "ended_scores", "ended_log_probs", "ended_at", "settled", "is_over", "lengths")
WRITTEN = ("chosen", "parents")


class StaticBeams:
    """The tensors of a search, and its step."""

    def __init__(self, model: StaticModel, shape: Shape):
        num_sentences, num_rows, source_length, max_length, *_ = shape
        self.shape, self._model = shape, model
        self.cache = model.static_cache(num_sentences, num_rows, source_length, max_length)

        def zeros(*sizes: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(sizes, dtype=dtype, device=model.device)

        self.position = zeros(1)
        self.divisors = zeros(max_length + 1, dtype=torch.float64)
        """length^a of each length."""
        self.last_best, self.extra_steps = zeros(1, 1), zeros(1)
        """n_best - 1; `max_extra_steps`, or -1 where the first beam_size finished hypotheses end a sentence."""
        self.forbidden = zeros(model.vocab_size, dtype=torch.float32)
        self.limits, self.min_lengths = zeros(num_sentences), zeros(num_sentences)
        self.limit_divisors = zeros(num_sentences, dtype=torch.float64)
        self.ids, self.first_ids = zeros(num_sentences, num_rows), zeros(num_sentences, num_rows, 1)
        self.log_probs = zeros(num_sentences, num_rows, dtype=torch.float32)
        self.ended_scores = zeros(num_sentences, num_rows, dtype=torch.float64)
        """Scores of the best N finished hypotheses, best first; -inf where there are fewer."""
        self.ended_log_probs = zeros(num_sentences, num_rows, dtype=torch.float32)
        self.ended_at = zeros(num_sentences, num_rows)
        """Length without the end * N + row."""
        self.settled, self.lengths = zeros(num_sentences), zeros(num_sentences)
        """Steps for which a sentence has been settled (see `beam_search`); its number of ids when it was over."""
        self.is_over = zeros(num_sentences, dtype=torch.bool)
        self.chosen, self.parents = (zeros(num_sentences, max_length, num_rows) for _ in range(2))
        """Id that each row chose at each position, and the row that it continued."""

    def load(
        self, model: StaticModel, sentences: Sequence[Sentence], limits: Sequence[int], config: SearchConfig
    ) -> None:
        """Begin a search for sentences with these length limits, except in the cache; there may be fewer than B."""
        num_spare, penalty = self.shape.num_sentences - len(sentences), config.length_penalty
        starts = [sentence.start[0] if sentence.start else model.start_id for sentence in sentences]
        values = {
            "limits": [*limits, *[1] * num_spare],
            "limit_divisors": [*(limit**penalty for limit in limits), *[1.0] * num_spare],
            "min_lengths": [*(min_length(sentence, config) for sentence in sentences), *[0] * num_spare],
            "is_over": [False] * len(sentences) + [True] * num_spare,
            "ids": [[start] * self.shape.num_rows for start in [*starts, *[model.start_id] * num_spare]],
            "divisors": [max(length, 1) ** penalty for length in range(self.shape.max_length + 1)],
            "last_best": [[config.n_best - 1]],
            "extra_steps": [-1 if config.early_stopping or config.beam_size == 1 else config.max_extra_steps],
        }
        for name, of_name in values.items():
            tensor = getattr(self, name)
            tensor.copy_(on_device(of_name, tensor.dtype, tensor.device))
        for name in ("position", "settled", "lengths", "ended_at", "forbidden"):
            getattr(self, name).zero_()
        forbid_ids(kept_on_device(model.suppressed, model.device), self.forbidden[None], self.ids)
        for tensor in (self.ended_scores, self.ended_log_probs, self.log_probs):
            tensor.fill_(-torch.inf)
        self.log_probs[:, 0] = 0.0  # all beams are equal at first, so one of them is enough
        self.first_ids.copy_(self.ids[:, :, None])

    def take(self, other: "StaticBeams", sentences: Sequence[int]) -> None:
        """Continue these sentences of another search, of whose shape only B is larger; there may be fewer than B."""
        filled = [*sentences, *[sentences[0]] * (self.shape.num_sentences - len(sentences))]
        kept = on_device(filled, torch.long, self.ids.device)
        for name in OF_BATCH:
            getattr(self, name).copy_(getattr(other, name))
        for name in (*READ, *CHANGED, *WRITTEN):
            torch.index_select(getattr(other, name), 0, kept, out=getattr(self, name))
        self.is_over[len(sentences) :] = True
        self.cache.take(other.cache, kept)

    @property
    def changing(self) -> list[Tensor]:
        """Tensors to restore after a step, so that the same step can follow; later steps write the others."""
        return [self.position, self.cache.length, self.cache.table, *(getattr(self, name) for name in CHANGED)]

    def step(self) -> tuple[Tensor]:
        """Extend all hypotheses, and return the log-probabilities of the model, (R, V)."""
        log_probs = self._model.static_step(self.ids.flatten(), self.cache)
        scores = log_probs + self.forbidden
        is_early = (self.position < self.min_lengths)[:, None].expand(-1, self.shape.num_rows).flatten()  # (R,)
        scores[:, self.shape.eos_id].masked_fill_(is_early, -torch.inf)
        if self.shape.renormalize:
            scores -= scores.logsumexp(-1, keepdim=True).nan_to_num_(neginf=0.0)  # where everything is forbidden
        values, places = continuations(scores, self.log_probs, self.shape.eos_id)  # (B, 2N) each
        (live, ended), (places, of_ended) = (each.chunk(2, dim=1) for each in (values, places))  # (B, N) each
        vocab_size = log_probs.shape[1]
        is_end = of_ended % vocab_size == self.shape.eos_id
        self._finish(ended.masked_fill(~is_end, -torch.inf), of_ended // vocab_size)
        ids, parents = places % vocab_size, places // vocab_size
        self.chosen.index_copy_(1, self.position, ids[:, None])
        self.parents.index_copy_(1, self.position, parents[:, None])
        self.ids.copy_(ids)
        self.cache.reorder(parents)
        self.log_probs.copy_(torch.where(self.is_over[:, None], self.log_probs, live))
        self.position.add_(1)
        self._end(live[:, 0])
        return (log_probs,)

    def _finish(self, log_probs: Tensor, rows: Tensor) -> None:
        """Add finished hypotheses (B, N) to the best ones of sentences that are not over; -inf is none."""
        scores = log_probs.double() / self.divisors.index_select(0, self.position + 1)
        ended_at = self.position * self.shape.num_rows + rows
        scores, order = torch.cat([self.ended_scores, scores], 1).sort(dim=1, descending=True, stable=True)
        best = order[:, : self.shape.num_rows]  # of equal ones, the earlier
        found = {
            "ended_scores": scores[:, : self.shape.num_rows],
            "ended_log_probs": torch.cat([self.ended_log_probs, log_probs], 1).gather(1, best),
            "ended_at": torch.cat([self.ended_at, ended_at], 1).gather(1, best),
        }
        for name, values in found.items():
            getattr(self, name).copy_(torch.where(self.is_over[:, None], getattr(self, name), values))

    def _end(self, best: Tensor) -> None:
        """Decide which sentences are over, given the log-probability (B,) of their best live hypotheses (see
        `beam_search`)."""
        last, best = self.ended_scores[:, -1], best.double()
        wanted = self.ended_scores.gather(1, self.last_best.expand(len(best), 1)).squeeze(1)
        has_won = (wanted > -torch.inf) & (wanted >= best / self.limit_divisors)
        are_enough = last > -torch.inf
        leads = last >= best / self.divisors.index_select(0, self.position)
        self.settled += are_enough & ((self.settled > 0) | leads)
        is_over = (self.position >= self.limits) | has_won | (are_enough & (self.settled > self.extra_steps))
        self.lengths.copy_(torch.where(self.is_over, self.lengths, self.position))
        self.is_over |= is_over

    def inputs(self, position: int) -> np.ndarray:
        """Return what each row has read up to the step at a position, (B, N, position + 1)."""
        shape = self.ids.shape
        rows, lengths = np.broadcast_to(np.arange(shape[1]), shape), np.full(shape, position)
        return np.concatenate([self.first_ids.cpu().numpy(), self.histories(rows, lengths)[:, :, :position]], 2)

    def histories(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the first `lengths` (B, C) ids of hypotheses that continue in `rows` (B, C), (B, C, T)."""
        chosen, parents = self.chosen.cpu().numpy(), self.parents.cpu().numpy()  # (B, T, N) each
        ids = np.zeros((*rows.shape, chosen.shape[1]), np.int64)
        for position in reversed(range(lengths.max())):
            ids[:, :, position] = np.take_along_axis(chosen[:, position], rows, 1)
            before = np.take_along_axis(parents[:, position], rows, 1)
            rows = np.where(position < lengths, before, rows)
        return ids

    def results(self, sentences: Sequence[int], config: SearchConfig) -> list[list[Hypothesis]]:
        """Return the hypotheses of sentences that are over, best first: finished ones, then live ones."""
        size = self.shape.num_rows
        ended_at, lengths = self.ended_at.cpu().numpy(), self.lengths.cpu().numpy()  # (B, N), (B,)
        rows = np.concatenate([ended_at % size, np.broadcast_to(np.arange(size), ended_at.shape)], 1)  # (B, 2N)
        lengths = np.concatenate([ended_at // size, lengths[:, None].repeat(size, 1)], 1)
        log_probs = torch.cat([self.ended_log_probs, self.log_probs], 1).tolist()
        ids = self.histories(rows, lengths)

        def hypothesis(sentence: int, column: int) -> Hypothesis:
            own, log_prob = ids[sentence, column, : lengths[sentence, column]], log_probs[sentence][column]
            finished = column < size
            score = normalized_score(log_prob, len(own) + finished, config.length_penalty)
            return Hypothesis(tuple(own.tolist()), log_prob, score, finished)

        nothing = [Hypothesis((), -np.inf, -np.inf, False)]  # the rules forbade every continuation
        found = []
        for sentence in sentences:
            columns = [column for column in range(2 * size) if log_probs[sentence][column] > -np.inf]
            found.append([hypothesis(sentence, column) for column in columns[: config.n_best]] or nothing)
        return found
