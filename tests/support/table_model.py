"""A `StepModel` that reads its probabilities from a table; tests of search import it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from seq2seq.config.schema import SearchConfig
from seq2seq.search.base import Sentence

START, EOS = 0, 1
NUM_STATES = 997


@dataclass
class TableState:
    keys: Tensor  # (R,): which line of the table a row stands at; a function of its source and all its ids
    num_rows: int
    steps: int = 0


class TableModel:
    """Log-probabilities from a table, by all that a row has read: a wrong row or sentence changes what comes next."""

    start_id, eos_id, device = START, EOS, torch.device("cpu")

    def __init__(self, seed: int, vocab_size: int = 7, spread: float = 2.0, max_length: int = 64, suppressed=(START,)):
        self.vocab_size, self.max_length, self.suppressed = vocab_size, max_length, suppressed
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(NUM_STATES, vocab_size, generator=generator) * spread
        self.rows_computed = 0

    def start(self, source_ids, beam_size, max_length):
        keys = [hash(tuple(ids)) % NUM_STATES for ids in source_ids]
        return TableState(torch.tensor(keys).repeat_interleave(beam_size), beam_size)

    def step(self, token_ids, state):
        self.rows_computed += len(token_ids)
        state.keys = (state.keys * 31 + token_ids * 7 + 1) % NUM_STATES
        return self.table[state.keys].log_softmax(-1)

    def reorder(self, state, rows, sentences=None):
        kept = torch.arange(len(rows) // state.num_rows) if sentences is None else sentences
        assert torch.equal(rows // state.num_rows, kept.repeat_interleave(state.num_rows))
        state.keys = state.keys[rows]

    def log_prob(self, source, ids):
        """Of the tokens `ids`, computed without search."""
        key, total = hash(tuple(source)) % NUM_STATES, 0.0
        for last, token in zip((START, *ids), ids, strict=False):
            key = (key * 31 + last * 7 + 1) % NUM_STATES
            total += self.table[key].double().log_softmax(0)[token].item()
        return total


def sources(count: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, 50, (1 + i % 5,), generator=generator).tolist() for i in range(count)]


def sentences(count: int, seed: int = 0) -> list[Sentence]:
    return [Sentence(ids, key=key) for key, ids in enumerate(sources(count, seed))]


def texts(results):
    return [[hypothesis.ids for hypothesis in hypotheses] for hypotheses in results]


def config(**values) -> SearchConfig:
    return SearchConfig(**{"max_length_ratio": 1.0, "max_length_offset": 8, "n_best": 1, **values})
