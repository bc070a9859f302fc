"""Every setting of a run: typed, documented, strict; read from YAML 1.2 and written back.

`load` reads a file with overrides and finds every problem at once; the command line and `tasks` call it. Each class
below is one section, and the part of the toolkit that a section describes receives that section and nothing else.
The text under a field is its documentation.
"""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from seq2seq.errors import ConfigError, did_you_mean

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
FilePath = Annotated[Path, Field(strict=False)]

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": dict(d_model=128, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, d_ff=512),
    "small": dict(d_model=256, num_heads=4, num_encoder_layers=3, num_decoder_layers=3, d_ff=1024),
    "base": dict(d_model=512, num_heads=8, num_encoder_layers=6, num_decoder_layers=6, d_ff=2048),
    "big": dict(d_model=1024, num_heads=16, num_encoder_layers=6, num_decoder_layers=6, d_ff=4096, dropout=0.3),
    # Most of the depth where it is paid once a sentence rather than once a step (Kasai et al. 2021).
    "deep-encoder": dict(d_model=512, num_heads=8, num_encoder_layers=12, num_decoder_layers=2, d_ff=2048),
    # The shape of the original paper's tutorials: five layers, post-norm, sequences to 200.
    "classic": dict(
        d_model=512, num_heads=8, num_encoder_layers=5, num_decoder_layers=5, d_ff=2048, dropout=0.1,
        norm_position="post", max_length=200,
    ),
}  # fmt: skip


class Section(BaseModel):
    """What all sections share: unknown keys are errors, types are exact, values do not change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class SourceConfig(Section):
    """Where examples come from: exactly one of `source` + `target`, `tsv`, `jsonl` or `hub`."""

    source: FilePath | None = None
    """Text file, one sentence a line; .gz is read as it is."""
    target: FilePath | None = None
    """Its translations, line by line."""
    tsv: FilePath | None = None
    """Tab-separated file without quoting."""
    jsonl: FilePath | None = None
    """One JSON object a line, flat or `{"translation": {"en": ..., "de": ...}}`."""
    hub: str | None = None
    """Dataset of the Hugging Face hub by name, or a local dataset folder."""
    subset: str | None = None
    """Configuration name of a hub dataset (`de-en` of `wmt14`)."""
    split: str = "train"
    """Split of a hub dataset."""
    streaming: bool = False
    """Read a hub dataset as a stream instead of downloading it first."""
    source_column: str | int | None = None
    """Column of the source text: a name, or an index for a TSV without header; default: the language or 0."""
    target_column: str | int | None = None
    """Column of the target text; default: the language or 1."""
    text_column: str | int | None = None
    """Classification: column of the text; default `sentence` or `text`."""
    label_column: str | int | None = None
    """Classification: column of the label; default `label`."""
    weight: PositiveFloat = 1.0
    """How often each example is seen in an epoch; 2.5 is two times, and a third time for a changing half."""

    @model_validator(mode="after")
    def _one_kind(self) -> "SourceConfig":
        kinds = [kind for kind in ("source", "tsv", "jsonl", "hub") if getattr(self, kind) is not None]
        if self.target is not None and self.source is None:
            raise ValueError("has target but no source; two text files need both")
        if len(kinds) != 1:
            given = " and ".join(kinds) or "none"
            raise ValueError(f"needs exactly one of source + target, tsv, jsonl, hub; {given} given")
        if kinds == ["source"] and self.target is None:
            raise ValueError("has source but no target; two text files need both")
        return self

    def files(self) -> Iterator[tuple[str, Path]]:
        """(key, path) of every local file that this source names."""
        for key in ("source", "target", "tsv", "jsonl"):
            if (path := getattr(self, key)) is not None:
                yield key, path


class FilterConfig(Section):
    """Which pairs are left out of training; each rule counts what it dropped."""

    max_length: Positive = 200
    """Longest side kept, in pieces."""
    min_length: Positive = 1
    """Shortest side kept, in pieces."""
    max_ratio: Annotated[float, Field(ge=1.0)] = 3.0
    """Largest ratio of the two lengths in pieces, for pairs whose longer side has more than 10."""
    drop_duplicates: bool = True
    """Leave out pairs that were seen before, character for character."""
    drop_copies: bool = False
    """Leave out pairs whose target is the source."""


class DataConfig(Section):
    """The corpora of a run."""

    train: SourceConfig | Annotated[tuple[SourceConfig, ...], Field(strict=False, min_length=1)]
    """One source, or a list of sources mixed by weight."""
    valid: SourceConfig
    """What decides which checkpoint is best."""
    test: dict[str, SourceConfig] = {}
    """Test sets by name, scored by `s2s bleu --model`."""
    filters: FilterConfig = FilterConfig()
    """What is left out of training; valid and test are never filtered."""
    cache_dir: FilePath | None = None
    """Where tokenised corpora are kept; default: the folder `cache` beside the run folder."""
    num_workers: NonNegative = 0
    """Processes that tokenise; 0 is one for each processor."""
    label_names: dict[str, str] = {}
    """Classification: names shown in place of the labels in the data, such as {"0": negative}."""

    @property
    def train_sources(self) -> tuple[SourceConfig, ...]:
        return (self.train,) if isinstance(self.train, SourceConfig) else self.train


class TokenizerConfig(Section):
    """The SentencePiece model that is trained on the training text."""

    kind: Literal["unigram", "bpe"] = "unigram"
    """Algorithm (Kudo 2018; Sennrich et al. 2016)."""
    vocab_size: Annotated[int, Field(ge=64)] = 8000
    """Pieces, special ids and bytes included; made smaller with a warning when the corpus is too small."""
    shared: bool = True
    """One vocabulary for both languages."""
    byte_fallback: bool = True
    """Spell unknown characters as bytes, so that any text comes back as it was."""
    character_coverage: Annotated[float, Field(gt=0.9, le=1.0)] = 0.9995
    """Share of the training text's characters that get pieces of their own."""
    normalization: Literal["identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf"] = "identity"
    """SentencePiece's rule; anything but identity does not bring the same text back."""
    sample_lines: Positive = 2_000_000
    """Lines, drawn evenly from the corpus, that the tokenizer is trained on."""
    sampling: Probability = 0.0
    """Share of training sentences that are segmented at random (subword regularization, Kudo 2018)."""
    sampling_nbest: Annotated[int, Field(ge=2, le=512)] = 16
    """Best segmentations a random one is drawn from."""
    sampling_alpha: PositiveFloat = 0.2
    """How strongly likely segmentations are preferred; 0 would be uniform."""


class ModelConfig(Section):
    """The Transformer: a preset, and every number open."""

    preset: Literal["tiny", "small", "base", "big", "deep-encoder", "classic"] | None = "small"
    """Sizes to start from; any key beside it wins."""
    d_model: Positive = 256
    num_heads: Positive = 4
    head_dim: Positive | None = None
    """Width of a head; default d_model / num_heads."""
    num_encoder_layers: Positive = 3
    num_decoder_layers: Positive = 3
    d_ff: Positive = 1024
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    dropout: Probability = 0.1
    """On embeddings and on the output of every sub-layer."""
    attention_dropout: Probability = 0.0
    """On attention weights."""
    activation_dropout: Probability = 0.0
    """Inside the feed-forward layer."""
    word_dropout: Probability = 0.0
    """Share of token embeddings set to zero in training, on both sides."""
    norm: Literal["layer", "rms"] = "layer"
    norm_position: Literal["pre", "post"] = "pre"
    norm_epsilon: PositiveFloat = 1e-5
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    position_layout: Literal["interleaved", "halves"] = "interleaved"
    """Sinusoids: sine and cosine by turns (the paper), or all sines and then all cosines (Marian)."""
    max_length: Positive = 1024
    """Most positions of a sequence, special ids included."""
    tied_embeddings: Literal["none", "decoder", "all"] = "all"
    """Share the decoder's embedding with the output layer, or with the encoder too (Press and Wolf 2017)."""
    scale_embedding: bool = True
    """Multiply embeddings by sqrt(d_model)."""
    output_bias: bool = False
    """Add a bias to the logits."""

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {**PRESETS.get(given.get("preset", "small"), {}), **given}

    @model_validator(mode="after")
    def _fits(self) -> "ModelConfig":
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ValueError(
                f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}; change one or set head_dim"
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(f"rotary positions need an even head_dim, not {self.head_width}")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, not {self.d_model}")
        return self

    @property
    def head_width(self) -> int:
        """K, the width of one head."""
        return self.head_dim or self.d_model // self.num_heads


class ClassifierConfig(Section):
    """The head of a classification model."""

    pooling: Literal["first", "mean"] = "mean"
    """What stands for the text: the first token, or the mean over its tokens."""
    hidden: NonNegative = 0
    """Width of a hidden tanh layer before the labels; 0 is none."""
    dropout: Probability = 0.1
    """On the pooled vector."""


class TrainingConfig(Section):
    """How the model is trained."""

    max_steps: Positive | None = None
    """Optimiser steps; without max_steps, max_epochs and max_minutes it is 20,000."""
    max_epochs: PositiveFloat | None = None
    """Passes over the training corpus."""
    max_minutes: PositiveFloat | None = None
    """End by the clock, validation included; the schedule follows it."""
    batch_tokens: Positive = 4096
    """Target tokens a batch and rank, padding counted (source tokens in classification)."""
    batch_sentences: Positive | None = None
    """Most sentences in a batch."""
    accumulate: Positive = 1
    """Batches a step; their gradients add up to that of one large batch."""
    learning_rate: PositiveFloat = 1e-3
    warmup_steps: NonNegative = 1000
    schedule: Literal["inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    """What follows warm-up; cosine and linear end at `final_learning_rate` when training ends."""
    final_learning_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Where cosine and linear end, as a share of learning_rate."""
    betas: Annotated[tuple[Probability, Probability], Field(strict=False)] = (0.9, 0.98)
    epsilon: PositiveFloat = 1e-9
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """Decoupled (AdamW), on matrices only."""
    clip_norm: PositiveFloat | None = 1.0
    """Largest norm of the gradient; null for none."""
    label_smoothing: Probability = 0.1
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto is bfloat16 where the device multiplies it natively, else float32."""
    compile: bool = False
    """Compile the model with torch.compile."""
    ema: Probability | None = None
    """Decay of an exponential moving average of the weights; it is validated and saved as the model."""
    average: Literal["none", "last", "best"] = "none"
    """At the end, average the last or best checkpoints and keep the result if it validates better."""
    average_count: Annotated[int, Field(ge=2)] = 5
    """How many checkpoints are averaged."""
    best_metric: Literal["auto", "loss", "bleu", "chrf", "accuracy", "f1"] = "auto"
    """What `best/` and early stopping go by; auto is bleu, or accuracy in classification."""
    patience: Positive | None = None
    """Validations without a better best_metric after which training stops."""
    validate_every: Positive = 500
    checkpoint_every: Positive = 500
    keep_last: Positive = 3
    keep_best: NonNegative = 1
    """Checkpoints kept beyond the last ones, by best_metric."""
    log_every: Positive = 50
    num_samples: NonNegative = 5
    """Validation sentences whose translations are followed in samples.txt."""
    max_bad_steps: Positive = 10
    """Steps in a row with a gradient that is not finite after which the run ends."""
    init_from: FilePath | None = None
    """Model or run folder whose weights and tokenizers training starts from."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""
    threads: Positive | None = None
    """Processor threads of one rank."""


class SearchConfig(Section):
    """How a translation is searched for."""

    beam_size: Positive = 5
    """Hypotheses kept a sentence; 1 is greedy."""
    length_penalty: Annotated[float, Field(ge=0.0)] = 1.0
    """a in score = log-probability / length^a."""
    max_length_ratio: PositiveFloat = 2.0
    """A translation has at most max_length_ratio * source pieces + max_length_offset pieces."""
    max_length_offset: NonNegative = 10
    min_length: NonNegative = 0
    """Fewest pieces of a translation."""
    no_repeat_ngram: NonNegative = 0
    """No n pieces occur twice in a translation; 0 is off."""
    n_best: Positive = 1
    """Translations returned a sentence."""
    sample: bool = False
    """Draw translations at random instead of searching for the best."""
    temperature: PositiveFloat = 1.0
    top_k: NonNegative = 0
    """Draw from the k most likely pieces; 0 is all."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Draw from the smallest set of pieces with this probability (Holtzman et al. 2020)."""
    seed: int = 1
    """Of the random draws."""
    batch_tokens: Positive = 4096
    """Source tokens decoded together, padding and beams counted."""

    @model_validator(mode="after")
    def _possible(self) -> "SearchConfig":
        if not self.sample and self.n_best > self.beam_size:
            raise ValueError(f"n_best {self.n_best} is more than beam_size {self.beam_size}; raise beam_size")
        if not self.sample and (self.top_k or self.top_p < 1.0 or self.temperature != 1.0):
            raise ValueError("temperature, top_k and top_p need sample: true")
        return self


class EvaluationConfig(Section):
    """How translations are scored."""

    metrics: Annotated[tuple[Literal["bleu", "chrf", "ter"], ...], Field(strict=False, min_length=1)] = ("bleu", "chrf")
    tokenize: str | None = None
    """sacrebleu's BLEU tokenizer; default: by the target language (zh, ja-mecab, ko-mecab, else 13a)."""


class Config(Section):
    """One run."""

    task: Literal["translation", "classification"] = "translation"
    source_language: str | None = None
    target_language: str | None = None
    seed: int = 1
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    classifier: ClassifierConfig = ClassifierConfig()
    training: TrainingConfig = TrainingConfig()
    search: SearchConfig = SearchConfig()
    evaluation: EvaluationConfig = EvaluationConfig()


# What may change between two starts of one run: it decides how long and how closely it is watched, not what it computes.
CHANGEABLE = (
    "data.test", "data.num_workers", "data.cache_dir", "data.label_names", "search", "evaluation",
    "training.max_steps", "training.max_epochs", "training.max_minutes", "training.patience",
    "training.validate_every", "training.checkpoint_every", "training.keep_last", "training.keep_best",
    "training.log_every", "training.num_samples", "training.max_bad_steps", "training.average",
    "training.average_count", "training.device", "training.threads",
)  # fmt: skip


def load(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration, apply `KEY=VALUE` overrides, and check everything that can be checked without work.

    Relative data paths are looked up from the current folder, then under `$S2S_DATA`, then from the config's own
    folder, and are absolute in the result.

    Raises:
        ConfigError: with one line for each problem found.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(str(path), [f"cannot be read ({reason})"]) from error
    return parse(text, origin=str(path), folder=path.parent, overrides=overrides)


def parse(text: str, origin: str = "config", folder: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """`load` for text at hand; `folder` is the config's own folder for relative paths."""
    values, problems = _read_yaml(text, origin)
    for override in overrides:
        problems += _apply_override(values, override)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        problems += [_describe(problem) for problem in error.errors()]
        # Sections that stand on their own are checked further, so that one start shows every problem.
        _, path_problems = _resolve_paths(values, folder)
        raise ConfigError(origin, _unique(problems + path_problems)) from error
    problems += _cross_check(config)
    resolved, path_problems = _resolve_paths(values, folder)
    problems += path_problems
    if problems:
        raise ConfigError(origin, _unique(problems))
    return Config.model_validate(resolved)


def dump(config: Config) -> str:
    """The whole configuration as YAML; `parse(dump(config))` is `config`."""
    stream = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096
    yaml.dump(_without_unset(config), stream)
    return stream.getvalue()


def changes(old: Config, new: Config) -> list[tuple[str, Any, Any]]:
    """(key, old value, new value) of every setting that differs."""
    before, after = _flatten(old.model_dump(mode="json")), _flatten(new.model_dump(mode="json"))
    keys = [*before, *(key for key in after if key not in before)]
    return [(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]


def may_change(key: str) -> bool:
    """Whether a run that has checkpoints goes on when this key has another value."""
    return any(key == allowed or key.startswith(allowed + ".") for allowed in CHANGEABLE)


def shipped_folder() -> Path:
    """The folder that holds the shipped `data/` and `configs/`: inside an installed package, or the checkout."""
    installed = Path(__file__).parent / "shipped"
    return installed if installed.is_dir() else Path(__file__).parent.parent


def _read_yaml(text: str, origin: str) -> tuple[dict[str, Any], list[str]]:
    try:
        root = _yaml_loader().compose(io.StringIO(text))
        values = _yaml_loader().load(text) if root is not None else {}
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(origin, [f"{line}not valid YAML ({error.problem})"]) from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(origin, [f"not valid YAML ({' '.join(str(error).split())})"]) from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConfigError(origin, ["not a mapping of keys to values; begin with 'data:'"])
    return values, list(_duplicate_keys(root))


def _yaml_loader() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True  # `_duplicate_keys` collects all of them, where the loader stops at the first
    return yaml


def _duplicate_keys(node: Node | None, path: str = "") -> Iterator[str]:
    if isinstance(node, MappingNode):
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in first_lines:
                yield f"{path}{key}: given twice, on lines {first_lines[key]} and {line}; keep one"
            first_lines.setdefault(key, line)
            yield from _duplicate_keys(value_node, f"{path}{key}.")
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            yield from _duplicate_keys(item, f"{path}{index}.")


def _apply_override(values: dict[str, Any], override: str) -> list[str]:
    key, separator, text = override.partition("=")
    if not separator or not key:
        return [f"--set {override}: write KEY=VALUE, such as training.max_steps=100"]
    try:
        value = _yaml_loader().load(text) if text else None
    except YAMLError:
        value = text
    section = values
    *parents, last = key.strip().split(".")
    for name in parents:
        inner = section.get(name)
        if not isinstance(inner, dict):
            inner = section[name] = {}
        section = inner
    section[last] = value
    return []


def _describe(problem: Mapping[str, Any]) -> str:
    """One line for one pydantic problem: the path of the key, what is wrong, and what would be right."""
    location = [part for part in problem["loc"] if not _is_union_branch(part)]
    key = ".".join(str(part) for part in location) or "config"
    value = problem["input"]
    match problem["type"]:
        case "extra_forbidden":
            return f"{key}: unknown key{did_you_mean(str(location[-1]), _fields_at(location[:-1]))}"
        case "missing":
            return f"{key}: missing; this key has no default"
        case "literal_error":
            expected = problem["ctx"]["expected"].replace(" or ", ", ").replace("'", "")
            return f"{key}: {value!r} is not one of {expected}{did_you_mean(str(value), expected.split(', '))}"
        case "value_error":
            return f"{key}: {problem['ctx']['error']}"
        case _:
            message = problem["msg"].removeprefix("Input ").removeprefix("should be ").removeprefix("a valid ")
            return f"{key}: {value!r} should be {message}" if not isinstance(value, dict) else f"{key}: {message}"


def _is_union_branch(part: Any) -> bool:
    # pydantic puts the name of the branch it tried into the path of a key: not a key of the file
    return isinstance(part, str) and (
        part == "SourceConfig" or part.startswith(("tuple[", "function-", "lax-or-strict"))
    )


def _fields_at(location: Sequence[Any]) -> list[str]:
    fields: Any = Config
    for part in location:
        if isinstance(part, int):
            continue
        if fields is DataConfig and part in ("train", "valid", "test"):
            return list(SourceConfig.model_fields)
        fields = fields.model_fields[part].annotation if part in fields.model_fields else SourceConfig
        if not (isinstance(fields, type) and issubclass(fields, Section)):
            return []
    return list(fields.model_fields)


def _cross_check(config: Config) -> list[str]:
    problems = []
    training = config.training
    if config.task == "translation":
        for key in ("source_language", "target_language"):
            if getattr(config, key) is None:
                problems.append(f"{key}: missing; name the language, such as en")
        if config.model.tied_embeddings == "all" and not config.tokenizer.shared:
            problems.append(
                "model.tied_embeddings: all needs tokenizer.shared: true; use decoder, or share the vocabulary"
            )
        allowed = ("auto", "loss", "bleu", "chrf")
        metric = training.best_metric
        if metric in ("bleu", "chrf") and metric not in config.evaluation.metrics:
            problems.append(f"training.best_metric: {metric} is not in evaluation.metrics; add it there")
    else:
        allowed = ("auto", "loss", "accuracy", "f1")
    if training.best_metric not in allowed:
        problems.append(
            f"training.best_metric: {training.best_metric!r} is not a metric of {config.task}; use one of {', '.join(allowed)}"
        )
    if training.average != "none" and training.average_count > max(training.keep_last, training.keep_best):
        kept = "keep_last" if training.average == "last" else "keep_best"
        problems.append(
            f"training.average_count: {training.average_count} checkpoints are not kept; raise training.{kept}"
        )
    return problems


def _resolve_paths(values: Mapping[str, Any], folder: Path | None) -> tuple[dict[str, Any], list[str]]:
    """A copy of the raw values with absolute paths, and a line for each file that is missing or empty."""
    problems: list[str] = []

    def resolve(source: Any, key: str) -> Any:
        if not isinstance(source, Mapping):
            return source
        resolved = dict(source)
        for name in ("source", "target", "tsv", "jsonl"):
            if isinstance(source.get(name), str):
                found, problem = _find(source[name], folder)
                resolved[name] = str(found)
                problems.extend([f"{key}.{name}: {problem}"] if problem else [])
        if isinstance(source.get("hub"), str) and source["hub"].startswith((".", "/", "~")):
            found, problem = _find(source["hub"], folder, kind="folder")
            resolved["hub"] = str(found)
            problems.extend([f"{key}.hub: {problem}"] if problem else [])
        return resolved

    copied = dict(values)
    data = copied.get("data")
    if isinstance(data, Mapping):
        data = copied["data"] = dict(data)
        train = data.get("train")
        if isinstance(train, (list, tuple)):
            data["train"] = [resolve(source, f"data.train.{index}") for index, source in enumerate(train)]
        elif train is not None:
            data["train"] = resolve(train, "data.train")
        if "valid" in data:
            data["valid"] = resolve(data["valid"], "data.valid")
        if isinstance(data.get("test"), Mapping):
            data["test"] = {name: resolve(source, f"data.test.{name}") for name, source in data["test"].items()}
    training = copied.get("training")
    if isinstance(training, Mapping) and isinstance(training.get("init_from"), str):
        found, problem = _find(training["init_from"], folder, kind="folder")
        copied["training"] = {**training, "init_from": str(found)}
        problems.extend([f"training.init_from: {problem}"] if problem else [])
    return copied, problems


def _find(name: str, folder: Path | None, kind: str = "file") -> tuple[Path, str | None]:
    path = Path(name).expanduser()
    places = [Path.cwd()]
    if os.environ.get("S2S_DATA"):
        places.append(Path(os.environ["S2S_DATA"]).expanduser())
    if folder is not None:
        places.append(folder)
    candidates = [(place / path).resolve() for place in places]
    for candidate in candidates:
        if kind == "folder" and candidate.is_dir():
            return candidate, None
        if kind == "file" and candidate.is_file():
            empty = candidate.stat().st_size == 0
            return candidate, f"{candidate} has no lines" if empty else None
    looked = _unique(str(candidate.parent) for candidate in candidates)
    beside = [entry.name for parent in looked if Path(parent).is_dir() for entry in Path(parent).iterdir()]
    return candidates[0], f"{kind} {name} not found (looked in {', '.join(looked)}){did_you_mean(path.name, beside)}"


def _without_unset(value: Any) -> Any:
    """Plain values for YAML, without the keys that are null by default and null here."""
    if isinstance(value, Section):
        fields = type(value).model_fields
        return {
            name: _without_unset(item)
            for name, item in value
            if item is not None or fields[name].get_default() is not None
        }
    if isinstance(value, Mapping):
        return {name: _without_unset(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_without_unset(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _unique(items: Any) -> list[Any]:
    return list(dict.fromkeys(items))
