"""The protocol of engines, the names to choose one by, and its search settings.

`loading` opens an engine, PyTorch's (`torch_engine`) or CTranslate2's (`ctranslate2_engine`), and `Translator` gives it
sentences. This module does not import torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from seq2seq.arguments import plain
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import UserError, did_you_mean
from seq2seq.search.base import Hypothesis, Sentence
from seq2seq.text.tokenizer import TokenizerPair

EngineName = Literal["auto", "torch", "ctranslate2"]


class Engine(Protocol):
    """A translator of ids to ids, which treats each sentence independently."""

    max_length: int
    """The maximum length of a source or a target, special ids included."""

    leaves_cpus_idle: bool
    """Whether a search leaves the CPUs idle, because it runs on another device."""

    def translate(self, sentences: Sequence[Sentence], config: SearchConfig) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first, in the order of the sentences."""

    def directed(self, tokenizers: TokenizerPair) -> "Engine":
        """Return an engine with the same weights for another direction of a multilingual model."""

    def grouping_for(self, workers: int) -> "Engine":
        """Return an engine with the same weights that groups sentences as one with this number of workers does.

        In another group, the last bits of a score may differ; with one grouping, results do not depend on the machine's
        number of CPUs.
        """


@dataclass(frozen=True)
class Loaded:
    """An open engine, with the tokenizers and settings that a translator needs."""

    engine: Engine
    tokenizers: TokenizerPair
    search: SearchConfig
    note: str
    """The name of the engine and, if it is PyTorch, the reason; for people."""
    description: ModelDescription
    """The description of the model; for an ensemble, that of the first model."""


# Search settings of measurements: one translation of each sentence, the best that the search finds.
ONE_BEST: Mapping[str, Any] = {"n_best": 1, "sample": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0}


def override_search(config: SearchConfig, changes: Mapping[str, Any]) -> SearchConfig:
    """Return `config` with `changes`.

    Raises:
        UserError: a key does not exist, or a value is not possible.
    """
    known = SearchConfig.model_fields
    if unknown := [key for key in changes if key not in known]:
        raise UserError(f"search.{unknown[0]}: unknown setting{did_you_mean(unknown[0], known)}")
    try:
        return SearchConfig.model_validate(
            {**config.model_dump(), **{key: plain(value) for key, value in changes.items()}}
        )
    except ValidationError as error:
        from seq2seq.config.problems import describe

        problem = describe({**error.errors()[0], "loc": ("search", *error.errors()[0]["loc"])})
        raise UserError(problem) from error
