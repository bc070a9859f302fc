"""What a search steps through, what it returns, and the arithmetic that all searches share.

`inference.steps` makes a `StepModel` of a Transformer or an ensemble; tests make one of a table of probabilities.
Shapes: B sentences, N hypotheses a sentence, R = B * N rows (those of a sentence side by side), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from seq2seq.config import SearchConfig

if TYPE_CHECKING:  # a translation by CTranslate2 never imports torch
    import torch
    from torch import Tensor


class StepModel(Protocol):
    """A model that continues hypotheses by one token a step; all that it remembers is in the state it hands out."""

    vocab_size: int
    start_id: int
    """What the first step is fed with."""
    eos_id: int
    suppressed: tuple[int, ...]
    """Ids that never come out."""
    max_length: int
    """Most steps that one sentence can take."""
    device: torch.device
    """Where `step` takes ids and returns log-probabilities."""

    def start(self, source_ids: Sequence[Sequence[int]], beam_size: int, max_length: int) -> Any:
        """Read the sources; the state has `beam_size` rows a sentence, which all begin with the start id, and room for
        `max_length` steps."""

    def step(self, token_ids: Tensor, state: Any) -> Tensor:
        """Log-probabilities (R, V) in float32 of what follows `token_ids` (R,); the caller may write into them."""

    def reorder(self, state: Any, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Row i continues what row `rows[i]` (R',) was. Rows stay within their sentence; with `sentences` (B',) only
        those are kept, in this order."""


@dataclass(frozen=True)
class Opening:
    """Allowed ids after a prefix until a text is complete, in any spelling."""

    steps: tuple[Mapping[int, int], ...]
    """For each state the ids that are allowed and the state that each leads to, from state 0 on. In state `len(steps)`
    the text is there, and everything is allowed."""

    def allowed(self, ids: Sequence[int]) -> Mapping[int, int] | None:
        """Return the ids that may follow these after the prefix; None if all may, or these are not allowed."""
        state = self.state(ids)
        return None if state is None or state == len(self.steps) else self.steps[state]

    def state(self, ids: Sequence[int]) -> int | None:
        """Return the state after these ids; None if they are not allowed."""
        state: int | None = 0
        for id_ in ids:
            if state is None or state == len(self.steps):
                return state
            state = self.steps[state].get(id_)
        return state


@dataclass(frozen=True)
class Sentence:
    """One sentence that a search is asked to translate."""

    source_ids: Sequence[int]
    """Without special ids; at least one, and fewer than the model's `max_length`."""
    prefix: Sequence[int] = ()
    """Target ids that the translation begins with."""
    key: int = 0
    """Random draws are keyed by it and the seed, so that they do not depend on the batch."""
    forbidden: tuple[tuple[int, ...], ...] = ()
    """Sequences of target ids that the translation does not have, unless the prefix does."""
    opening: Opening | None = None
    """The opening, which follows the prefix."""

    @property
    def fewest(self) -> int:
        """Ids that prefix and opening may need."""
        return len(self.prefix) + (len(self.opening.steps) if self.opening else 0)


@dataclass(frozen=True)
class Hypothesis:
    """One translation in ids, without start and end."""

    ids: tuple[int, ...]
    log_prob: float
    """Sum of the model's log-probabilities of all tokens, the end included."""
    score: float
    """`normalized_score`, what hypotheses are ranked by."""
    finished: bool
    """Whether the model ended it; otherwise it was cut off at the length limit."""


def normalized_score(log_prob: float, length: int, length_penalty: float) -> float:
    """log_prob / length^a: `length` counts the end, higher is better, and a = 0 leaves the log-probability."""
    return log_prob / max(length, 1) ** length_penalty


def length_limits(sentences: Sequence[Sentence], config: SearchConfig, max_length: int) -> list[int]:
    """For each sentence the most tokens of its translation, end included.

    It is max_length_ratio * source length + max_length_offset, at least what a forced prefix and the minimum length
    need, and at most `max_length`, which is the model's.
    """

    def limit(sentence: Sentence) -> int:
        by_source = int(config.max_length_ratio * len(sentence.source_ids)) + config.max_length_offset
        return min(max(by_source, sentence.fewest + 1, config.min_length + 1), max_length)

    return [limit(sentence) for sentence in sentences]


def rows_per_sentence(config: SearchConfig) -> int:
    """Hypotheses of one sentence that the model computes at a time."""
    return config.n_best if config.sample else config.beam_size
