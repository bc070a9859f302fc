"""Search: from a `StepModel` to hypotheses, best first.

`greedy_search`, `sample_search` and `beam_search` share one signature and one result; `search` takes the one that a
`SearchConfig` describes. Nothing here knows a Transformer or a tokenizer.
"""

from collections.abc import Sequence

from seq2seq.config import SearchConfig
from seq2seq.search.base import Hypothesis, StepModel, length_limits, normalized_score
from seq2seq.search.beam import beam_search
from seq2seq.search.greedy import greedy_search, sample_search

__all__ = [
    "Hypothesis",
    "StepModel",
    "beam_search",
    "greedy_search",
    "length_limits",
    "normalized_score",
    "rows_per_sentence",
    "sample_search",
    "search",
]


def search(
    model: StepModel,
    source_ids: Sequence[Sequence[int]],
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    sentence_keys: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Sample, search greedily or keep a beam, as `config` says; see the three functions."""
    if config.sample:
        return sample_search(model, source_ids, config, prefixes, sentence_keys)
    if config.beam_size == 1:
        return greedy_search(model, source_ids, config, prefixes, sentence_keys)
    return beam_search(model, source_ids, config, prefixes, sentence_keys)


def rows_per_sentence(config: SearchConfig) -> int:
    """How many hypotheses of one sentence the model computes at a time."""
    return config.n_best if config.sample else config.beam_size
