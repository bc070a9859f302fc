"""Constraints on a translation: each rule writes -inf into the scores of the ids that it forbids at this step.

A search makes `Rules` for its sentences. Rules change choices but not probabilities. With `renormalize`, probabilities
are normalised over the allowed ids; OPUS-MT models need this, because they have a logit for padding, which they were
not trained with.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from seq2seq.config.schema import SearchConfig
from seq2seq.search.base import Sentence, StepModel, min_length

NOT_FORCED = -1

Rule = Callable[[Tensor, Tensor], None]
"""Function of (scores (R, V), ids so far (R, t)) that writes -inf into the scores of forbidden ids."""


class Rules:
    """The rules of one search over B sentences with N rows each."""

    def __init__(self, model: StepModel, sentences: Sequence[Sentence], config: SearchConfig, num_rows: int):
        self._rules: list[Rule] = [partial(forbid_ids, kept_on_device(model.suppressed, model.device))]
        if config.no_repeat_ngram:
            self._rules.append(partial(forbid_repeated_ngrams, config.no_repeat_ngram))
        lengths = [min_length(sentence, config) for sentence in sentences]
        self._eos_id, self._last_early_end = model.eos_id, max(lengths)
        self._min_lengths = on_device(lengths, torch.long, model.device)  # (B,)
        of_sentences = [sentence.forbidden for sentence in sentences]
        self._sequences = sorted({sequence for own in of_sentences for sequence in own if sequence})
        is_forbidden = [[sequence in own for own in of_sentences] for sequence in self._sequences]
        self._is_forbidden = on_device(is_forbidden, torch.bool, model.device)  # (S, B)
        self._renormalize = config.renormalize
        self._num_rows = num_rows
        width = max(len(sentence.prefix) for sentence in sentences)
        prefixes = [[*sentence.prefix, *[NOT_FORCED] * (width - len(sentence.prefix))] for sentence in sentences]
        self._prefixes = on_device(prefixes, torch.long, model.device)  # (B, P)
        self._openings = [(len(sentence.prefix), sentence.opening) for sentence in sentences]
        self._last_opening = max((sentence.fewest for sentence in sentences if sentence.opening), default=0)

    def apply(self, log_probs: Tensor, history: Tensor) -> Tensor:
        """Write -inf into `log_probs` (R, V) for the ids that must not follow `history` (R, t), and return it.

        A forced prefix keeps its probability even if other rules forbid it; so does an opening if they forbid all ids
        of it.
        """
        opened = self._opened(log_probs, history)
        forced = self._forced_at(history.shape[1])
        given = None if forced is None else log_probs.gather(1, forced.clamp(min=0)[:, None])  # (R, 1)
        for rule in self._rules:
            rule(log_probs, history)
        if history.shape[1] < self._last_early_end:
            forbid_early_end(self._eos_id, self._min_lengths.repeat_interleave(self._num_rows), log_probs, history)
        for sequence, where in zip(self._sequences, self._is_forbidden, strict=True):
            forbid_sequence(sequence, where.repeat_interleave(self._num_rows), log_probs, history)
        if self._renormalize:
            total = log_probs.logsumexp(-1, keepdim=True)  # (R, 1)
            if given is not None:
                is_counted = log_probs.gather(1, forced.clamp(min=0)[:, None]) > -torch.inf
                given = torch.where(is_counted, given - total, _among(given, total))
            opened = [(row, ids, _among(values, total[row])) for row, ids, values in opened]
            log_probs -= total.nan_to_num(neginf=0.0)  # where everything is forbidden
        for row, ids, values in opened:
            allowed = log_probs[row, ids]
            log_probs[row] = -torch.inf
            log_probs[row, ids] = torch.where((allowed > -torch.inf).any(), allowed, values)
        if forced is not None:
            force_ids(log_probs, forced, given)
        return log_probs

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences (B',)."""
        self._prefixes = self._prefixes[sentences]
        if self._last_early_end:
            self._min_lengths = self._min_lengths[sentences]
        if self._sequences:
            self._is_forbidden = self._is_forbidden[:, sentences]
        if self._last_opening:
            self._openings = [self._openings[index] for index in sentences.tolist()]

    def _opened(self, log_probs: Tensor, history: Tensor) -> list[tuple[int, Tensor, Tensor]]:
        """Return the rows that are within an opening, the ids that are allowed there, and their log-probabilities."""
        position, found = history.shape[1], []
        if position >= self._last_opening:
            return []
        for index, (begin, opening) in enumerate(self._openings):
            if opening is None or not begin <= position < begin + len(opening.steps):
                continue
            rows = range(index * self._num_rows, (index + 1) * self._num_rows)
            for row, ids in zip(rows, history[rows.start : rows.stop, begin:].tolist(), strict=True):
                if allowed := opening.allowed(ids):
                    choice = torch.tensor(list(allowed), device=log_probs.device)
                    found.append((row, choice, log_probs[row, choice]))
        return found

    def _forced_at(self, position: int) -> Tensor | None:
        if position >= self._prefixes.shape[1]:
            return None
        return self._prefixes[:, position].repeat_interleave(self._num_rows)  # (R,)


def _among(log_probs: Tensor, total: Tensor) -> Tensor:
    """Return the log-probabilities (..., N) of forbidden ids, renormalized over these ids and all allowed ones.

    `total` (..., 1) is the logarithm of the sum of the probabilities of the allowed ids.
    """
    whole = torch.logaddexp(log_probs.logsumexp(-1, keepdim=True), total)
    return log_probs - whole.nan_to_num(neginf=0.0)


def on_device(values: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers as a tensor on `device`; a GPU gets them from pinned memory, from which a copy does not wait."""
    tensor = torch.tensor(values, dtype=dtype)
    if device.type == "cuda" and tensor.numel():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


@lru_cache(maxsize=16)
def kept_on_device(ids: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the ids of a model, which are the same in each search, as one tensor that is made once."""
    with torch.inference_mode(False):
        return on_device(ids, torch.long, device)


def forbid_ids(ids: Tensor, scores: Tensor, history: Tensor) -> None:
    """Forbid ids that are never generated."""
    scores.index_fill_(1, ids, -torch.inf)


def forbid_early_end(eos_id: int, min_lengths: Tensor, scores: Tensor, history: Tensor) -> None:
    """Forbid the end before each row has the number of ids in `min_lengths` (R,)."""
    scores[:, eos_id].masked_fill_(history.shape[1] < min_lengths, -torch.inf)


def forbid_repeated_ngrams(size: int, scores: Tensor, history: Tensor) -> None:
    """Forbid each id that completes an n-gram of the history (Paulus et al. 2018)."""
    if history.shape[1] < size:
        return
    ngrams = history.unfold(1, size, 1)  # (R, t - n + 1, n)
    begun = history[:, history.shape[1] - size + 1 :]  # (R, n - 1)
    repeats = (ngrams[:, :, :-1] == begun[:, None]).all(-1)  # (R, t - n + 1)
    # The minimum, because an id that one n-gram forbids stays forbidden if another one allows it.
    limit = torch.where(repeats, -torch.inf, torch.inf).to(scores.dtype)
    scores.scatter_reduce_(1, ngrams[:, :, -1], limit, "amin")


def forbid_sequence(sequence: Sequence[int], where: Tensor, scores: Tensor, history: Tensor) -> None:
    """Forbid the id that completes the sequence, in rows where `where` (R,) is True."""
    before = len(sequence) - 1
    if history.shape[1] < before:
        return
    begun = on_device(sequence[:-1], history.dtype, history.device)  # (L - 1,)
    completes = where & (history[:, history.shape[1] - before :] == begun).all(-1)  # (R,)
    scores[:, sequence[-1]].masked_fill_(completes, -torch.inf)


def force_ids(scores: Tensor, forced: Tensor, given: Tensor) -> None:
    """Allow `forced` (R,) alone, with the score `given` (R, 1), in rows where it is not `NOT_FORCED`."""
    is_forced = (forced != NOT_FORCED)[:, None]
    ids = forced.clamp(min=0)[:, None]
    scores.masked_fill_(is_forced, -torch.inf)
    scores.scatter_(1, ids, torch.where(is_forced, given, scores.gather(1, ids)))
