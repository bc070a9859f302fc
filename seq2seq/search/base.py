"""The protocol that a search decodes with, its input and output records, and the arithmetic that all searches share.

`inference.steps` makes a `StepModel` of a Transformer or an ensemble; tests make one of a table of probabilities.
Shapes: B sentences, N hypotheses per sentence, R = B * N rows (those of a sentence are adjacent), V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from seq2seq.config.schema import SearchConfig

if TYPE_CHECKING:  # a translation by CTranslate2 never imports torch
    import torch
    from torch import Tensor


class StepModel(Protocol):
    """A model that extends hypotheses by one token per step; all its memory is in the state that it returns."""

    vocab_size: int
    start_id: int
    """Input of the first step."""
    eos_id: int
    suppressed: tuple[int, ...]
    """Ids that are never generated."""
    max_length: int
    """Maximum number of steps of a sentence."""
    device: torch.device
    """Device of the ids that `step` takes, and of the log-probabilities that it returns."""

    def start(self, source_ids: Sequence[Sequence[int]], beam_size: int, max_length: int) -> Any:
        """Read the sources and return a state. It has `beam_size` rows per sentence, which all begin with the start id,
        and room for `max_length` steps."""

    def step(self, token_ids: Tensor, state: Any) -> Tensor:
        """Return log-probabilities (R, V) in float32 of the token after `token_ids` (R,); the caller may overwrite
        them."""

    def reorder(self, state: Any, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Let row i continue row `rows[i]` (R',). Rows stay within their sentence; with `sentences` (B',), only those
        are kept, in this order."""


@dataclass(frozen=True)
class Opening:
    """Allowed ids after a prefix until a text is complete, in any spelling."""

    steps: tuple[Mapping[int, int], ...]
    """For each state, from 0 on, the ids that are allowed and the state that each leads to. In state `len(steps)` the
    text is complete, and every id is allowed."""

    def allowed(self, ids: Sequence[int]) -> Mapping[int, int] | None:
        """Return the ids that may follow `ids` after the prefix; None if all may, or if `ids` are not allowed."""
        state = self.state(ids)
        return None if state is None or state == len(self.steps) else self.steps[state]

    def state(self, ids: Sequence[int]) -> int | None:
        """Return the state after `ids`; None if they are not allowed."""
        state: int | None = 0
        for id_ in ids:
            if state is None or state == len(self.steps):
                return state
            state = self.steps[state].get(id_)
        return state


@dataclass(frozen=True)
class Sentence:
    """One sentence to translate."""

    source_ids: Sequence[int]
    """Source ids without special ids; at least one, and fewer than the model's `max_length`."""
    prefix: Sequence[int] = ()
    """Target ids that the translation begins with."""
    key: int = 0
    """Key of random draws, together with the seed, so that they do not depend on the batch."""
    forbidden: tuple[tuple[int, ...], ...] = ()
    """Sequences of target ids that must not occur in the translation, except in the prefix."""
    opening: Opening | None = None
    """Constraint on the ids that follow the prefix."""
    start: tuple[int, ...] = ()
    """First inputs of the decoder, such as the start id and the tag of a language, which are not part of the
    translation; empty for the start id of the model."""
    min_length: int = 0
    """Minimum number of ids of the translation, if more than the setting `min_length`."""

    @property
    def fewest(self) -> int:
        """Maximum number of ids that prefix and opening need."""
        return len(self.prefix) + (len(self.opening.steps) if self.opening else 0)


@dataclass(frozen=True)
class Hypothesis:
    """One translation in ids, without start and end."""

    ids: tuple[int, ...]
    log_prob: float
    """Sum of the model's log-probabilities of all tokens, the end included."""
    score: float
    """`normalized_score` of the hypothesis, by which hypotheses are ranked."""
    finished: bool
    """Whether the model ended it; otherwise it was cut off at the length limit."""


NO_HYPOTHESIS = Hypothesis((), -math.inf, -math.inf, False)
"""Result of a search whose rules forbid every continuation."""


def normalized_score(log_prob: float, length: int, length_penalty: float) -> float:
    """Return log_prob / length^a: `length` includes the end, higher is better, and a = 0 gives the log-probability."""
    return log_prob / max(length, 1) ** length_penalty


def length_limits(sentences: Sequence[Sentence], config: SearchConfig, max_length: int) -> list[int]:
    """Return, for each sentence, the maximum number of tokens of its translation, end included.

    The limit is max_length_ratio * source length + max_length_offset, but at least what a forced prefix and the minimum
    length need, and at most `max_length`, the limit of the model, without the positions that a longer `start` takes.
    """

    def limit(sentence: Sentence) -> int:
        by_source = int(config.max_length_ratio * len(sentence.source_ids)) + config.max_length_offset
        room = max_length - max(len(sentence.start) - 1, 0)
        return min(max(by_source, sentence.fewest + 1, min_length(sentence, config) + 1), room)

    return [limit(sentence) for sentence in sentences]


def min_length(sentence: Sentence, config: SearchConfig) -> int:
    """Return the minimum number of ids of the translation of a sentence, without the end."""
    return max(sentence.min_length, config.min_length)


def rows_per_sentence(config: SearchConfig) -> int:
    """Return the number of hypotheses of a sentence that the model computes together."""
    return config.n_best if config.sample else config.beam_size
