"""The search that a `SearchConfig` describes. Nothing in this folder depends on a Transformer or a tokenizer."""

from collections.abc import Sequence

from seq2seq.config.schema import SearchConfig
from seq2seq.search.base import Hypothesis, Sentence, StepModel
from seq2seq.search.beam import beam_search
from seq2seq.search.greedy import greedy_search, sample_search


def search(model: StepModel, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
    """Run the search that `config` selects: sampling, greedy search or beam search; see these three functions."""
    if not sentences:
        return []
    if config.sample:
        return sample_search(model, sentences, config)
    if config.beam_size == 1:
        return greedy_search(model, sentences, config)
    return beam_search(model, sentences, config)
