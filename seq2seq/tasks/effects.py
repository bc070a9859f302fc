"""Settings that have no effect in a run, each with the reason; `tasks.run` warns of them before training.

Other keys can make a setting ineffective. `training.progress.too_long` finds settings that a short training never uses.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from seq2seq.config.corpora import NoiseConfig, SourceConfig
from seq2seq.config.schema import Config
from seq2seq.config.values import Section
from seq2seq.languages import is_same_language

Condition = Callable[[Config], bool]


def _classifies(config: Config) -> bool:
    return config.task == "classification"


def _translates(config: Config) -> bool:
    return config.task == "translation"


def _has_no_dropout(config: Config) -> bool:
    sections = [config.model] + [config.classifier] * _classifies(config)
    return not config.training.init_from and not any(
        value for section in sections for key, value in section if key.endswith("dropout")
    )


# Keys or sections, with the reason why they have no effect and the condition for it.
WITHOUT_EFFECT: Mapping[tuple[str, ...], tuple[str, Condition]] = {
    ("classifier", "data.label_names"): ("task is translation", _translates),
    ("search", "evaluation", "target_language", "tokenizer.shared"): ("task is classification", _classifies),
    ("model.num_decoder_layers", "model.tied_embeddings", "model.output_bias"): (
        "a classifier has no decoder",
        _classifies,
    ),
    ("training.final_learning_rate",): (
        "only the schedules cosine and linear end at it",
        lambda config: config.training.schedule not in ("cosine", "linear"),
    ),
    ("training.track_samples",): ("there are no trackers", lambda config: config.training.trackers == ()),
    ("training.dropout_epochs",): ("there is no dropout", _has_no_dropout),
    ("tokenizer.init_from",): (
        "the tokenizers come from training.init_from",
        lambda config: config.training.init_from is not None,
    ),
    ("tokenizer.sampling_nbest", "tokenizer.sampling_alpha"): (
        "tokenizer.sampling is 0",
        lambda config: not config.tokenizer.sampling,
    ),
    ("tokenizer.sampling_nbest",): (
        "tokenizer.kind is bpe, whose segmentations have no probabilities",
        lambda config: config.tokenizer.kind == "bpe" and bool(config.tokenizer.sampling),
    ),
    ("model.position_layout", "model.position_formula", "model.position_offset"): (
        "model.positions is not sinusoidal",
        lambda config: config.model.positions != "sinusoidal",
    ),
    ("model.initialization",): (
        "the weights come from training.init_from",
        lambda config: config.training.init_from is not None,
    ),
    ("training.vocabulary",): (
        "it changes the initial model of a translation (training.init_from)",
        lambda config: config.training.init_from is None or _classifies(config),
    ),
    ("evaluation.tokenize",): (
        "bleu is not in evaluation.metrics",
        lambda config: "bleu" not in config.evaluation.metrics,
    ),
    ("search.early_stopping",): ("search.beam_size is 1", lambda config: config.search.beam_size == 1),
    ("data.temperature",): ("there is one direction", lambda config: config.languages is None),
    ("search.seed",): ("search.sample is false", lambda config: not config.search.sample),
}
OF_HUB = ("subset", "split", "streaming")
OF_DIRECTIONS = ("from_", "to", "both_ways", "from_column", "to_column")
OF_PAIRS, OF_TEXTS = ("source_column", "target_column"), ("text_column", "label_column")


def without_effect(config: Config, ranks: int = 1) -> Iterator[str]:
    """Yield a line for each written key that has no effect next to the others, and for two equal languages.

    `config` is the configuration as written, before `inputs.complete`.
    """
    for keys, (reason, holds) in WITHOUT_EFFECT.items():
        if holds(config):
            yield from (f"{key}: no effect; {reason}" for name in keys for key in _written(config, name))
    if config.training.shard and ranks == 1:
        yield "training.shard: no effect; there is one process, start several with torchrun"
    named = config.data.train_sources
    is_one = isinstance(config.data.valid, SourceConfig)
    named |= {f"data.valid{'' if is_one else f'.{name}'}": one for name, one in config.data.valid_sets.items()}
    named |= {f"data.test.{name}": test for name, test in config.data.test.items()}
    for name, source in named.items():
        if source.name is not None and not (name.startswith("data.train") and config.data.stages):
            yield f"{name}.name: no effect; only data.stages name sources, those of data.train"
        if not name.startswith("data.train") and _differs(source, "weight"):
            yield f"{name}.weight: no effect; only the sources of data.train are mixed by weight"
        yield from (f"{name}.{key}: no effect; {reason}" for key, reason in _of_source(source, config))
    if config.data.stages and config.data.stages[0].restart:
        yield "data.stages.0.restart: no effect; the schedule of the learning rate starts there anyway"
    is_one_direction = _translates(config) and config.languages is None
    if is_one_direction and is_same_language(config.source_language, config.target_language):
        yield f"source_language and target_language are both {config.source_language}; check them"


def _of_source(source: SourceConfig, config: Config) -> Iterator[tuple[str, str]]:
    others, task = (OF_TEXTS, config.task) if _translates(config) else ((*OF_PAIRS, *OF_DIRECTIONS), config.task)
    yield from ((key.removesuffix("_"), f"task is {task}") for key in others if _differs(source, key))
    if source.hub is None:
        yield from ((key, "the source is not a dataset on a hub") for key in OF_HUB if _differs(source, key))
    if source.source is not None or source.tmx is not None:
        kind = "two text files" if source.source is not None else "a TMX file, which names the languages of its texts"
        yield from ((key, f"the source is {kind}") for key in OF_PAIRS if _differs(source, key))
    if source.noise is not None and not any(getattr(source.noise, kind) for kind in NoiseConfig.kinds):
        yield "noise", "all its shares are 0"


def _written(config: Config, name: str) -> Iterator[str]:
    """Yield the key, or each key of a section, that was written and differs from its default."""
    *parents, last = name.split(".")
    section: Any = config
    for part in parents:
        section = getattr(section, part)
    value = getattr(section, last)
    if isinstance(value, Section):
        yield from (f"{name}.{key}" for key in sorted(value.model_fields_set) if _differs(value, key))
    elif last in section.model_fields_set and _differs(section, last):
        yield name


def _differs(section: Section, key: str) -> bool:
    return getattr(section, key) != type(section).model_fields[key].get_default(call_default_factory=True)
