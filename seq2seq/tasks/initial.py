"""The model that training starts from (`training.init_from`), and what a configuration takes over from it.

`tasks.run` loads it and completes the configuration before anything else is made. Whatever is not written out is as in
the initial model: its architecture, its dropout, and how it searches.
"""

from collections.abc import Mapping
from typing import Any

from seq2seq.config import FREE_MODEL_KEYS, Config, ModelConfig, SearchConfig
from seq2seq.errors import ConfigError
from seq2seq.presets import PRESETS
from seq2seq.store.model_folder import LoadedModel, load_model
from seq2seq.tasks.task import max_pieces

# What only a decoder has, so that a classifier does not care.
DECODER_KEYS = frozenset({"num_decoder_layers", "tied_embeddings", "output_bias"})
# How a model searches for the best translation; how many are wanted, or drawn, is for each use to say.
SEARCH_KEYS = frozenset(
    {"beam_size", "length_penalty", "early_stopping", "max_length_ratio", "max_length_offset", "min_length",
     "no_repeat_ngram", "renormalize"}
)  # fmt: skip


def load_initial(config: Config) -> LoadedModel | None:
    """The model that training starts from, if the configuration names one."""
    return load_model(config.training.init_from) if config.training.init_from else None


def complete(config: Config, initial: LoadedModel | None) -> Config:
    """The configuration with what is not written out taken from the initial model, if there is one.

    Training examples that are longer than the model has positions are filtered out, whatever `data.filters` says.

    Raises:
        ConfigError: a key that was written out says something else than the initial model.
    """
    if initial is not None:
        config = config.model_copy(update={"model": _model(config, initial), "search": _search(config, initial)})
    return _within_positions(config)


def _model(config: Config, initial: LoadedModel) -> ModelConfig:
    theirs: Mapping[str, Any] = dict(initial.model.config)
    ours = dict(config.model)
    given = config.model.model_fields_set
    preset = config.model.preset if "preset" in given else None
    written = given | PRESETS.get(preset or "", {}).keys()
    free = FREE_MODEL_KEYS - ({"max_length"} if theirs["positions"] == "learned" else set())
    fixed = written - free - (DECODER_KEYS if config.task == "classification" else set())
    problems = [
        f"model.{_said(config.model, key)}, but the model of training.init_from has {theirs[key]}; leave the key out"
        for key in sorted(fixed)
        if ours[key] != theirs[key]
    ]
    if problems:
        raise ConfigError("config", problems)
    return ModelConfig.model_validate({**theirs, **{key: ours[key] for key in written}, "preset": None})


def _said(model: ModelConfig, key: str) -> str:
    """A key with its value, or the preset that it has it from."""
    value = getattr(model, key)
    return f"{key}: {value}" if key in model.model_fields_set else f"preset: {model.preset} has {key} {value}"


def _search(config: Config, initial: LoadedModel) -> SearchConfig:
    """How the initial model searches; a classifier does not say."""
    if config.task != "translation" or initial.description.task != "translation":
        return config.search
    taken = {key: getattr(initial.description.search, key) for key in SEARCH_KEYS - config.search.model_fields_set}
    return SearchConfig.model_validate({**dict(config.search), **taken})


def _within_positions(config: Config) -> Config:
    filters, most = config.data.filters, max_pieces(config)
    if filters.max_length <= most:
        return config
    narrowed = filters.model_copy(update={"max_length": most})
    return config.model_copy(update={"data": config.data.model_copy(update={"filters": narrowed})})
