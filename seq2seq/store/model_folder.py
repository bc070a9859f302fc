"""Model folders: a trained model with its tokenizers and settings, as people use, copy and publish it.

Training writes `best/` through `save_model`; translation, classification and interoperation read folders through
`load_model`. Only the named files are read, none of them can hold code, and each is checked before it is believed.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
from pydantic import ConfigDict, Field, ValidationError, model_validator
from torch import Tensor, nn

from seq2seq import atomic, config_file, hub
from seq2seq.config import ClassifierConfig, Config, DataConfig, ModelConfig, SearchConfig, Section
from seq2seq.config_problems import describe, unwritable
from seq2seq.config_values import Label, displayed_labels
from seq2seq.errors import CheckpointError, ModelError, UserError, did_you_mean, shown
from seq2seq.interop.marian import is_marian, read_marian
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.model.transformer import Transformer
from seq2seq.tensors import (
    DamagedFile,
    as_weights,
    distinct,
    load_tied,
    mismatch,
    read_object,
    read_shapes,
    read_tensors,
    record,
    verify,
    write_tensors,
)
from seq2seq.text.marian_tokenizer import TARGET_VOCABULARY_FILE, VOCABULARY_FILE, load_tokenizers
from seq2seq.text.tokenizer import TokenizerPair

FORMAT, FORMAT_VERSION = "seq2seq model", 1
CONFIG, WEIGHTS, GENERATION, CARD = "config.json", "model.safetensors", "generation_config.json", "README.md"
RUNS, RUN_CONFIG, RUN_METRICS = Path("runs"), "config.yaml", "metrics.jsonl"
SPECIAL_IDS = ("start_id", "eos_id", "pad_id", "unk_id")


class _Description(Section):
    """What config.json says of a model besides its files; a key that is not known belongs to someone else."""

    model_config = ConfigDict(extra="ignore")

    source_language: str | None = None
    target_language: str | None = None
    labels: Annotated[tuple[Label, ...], Field(strict=False)] = ()
    label_names: dict[str, Label] = Field(default={})
    metrics: dict[str, Any] = Field(default={})
    model: ModelConfig
    classifier: ClassifierConfig = ClassifierConfig()

    @model_validator(mode="after")
    def _labels_differ(self) -> "_Description":
        displayed_labels(self.labels, self.label_names)
        return self


class _Generation(Section):
    """What generation_config.json says besides the special ids."""

    model_config = ConfigDict(extra="ignore")

    search: SearchConfig = SearchConfig()


AnySection = TypeVar("AnySection", bound=Section)


@dataclass(frozen=True)
class LoadedModel:
    """A model folder in memory."""

    task: str
    model: nn.Module
    """Transformer or EncoderClassifier, float32, on the processor, in evaluation mode."""
    tokenizers: TokenizerPair
    """In classification, source and target are one tokenizer."""
    source_language: str | None
    target_language: str | None
    search: SearchConfig
    labels: tuple[str, ...]
    folder: Path
    info: dict[str, Any]
    """All of config.json."""


def save_model(
    folder: Path,
    *,
    model_state: Mapping[str, Tensor],
    config: Config,
    tokenizers: TokenizerPair,
    labels: Sequence[str] = (),
    card: str = "",
    metrics: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model folder; one that is there already is replaced as a whole.

    Raises:
        CheckpointError: the disk is full or cannot be written; what was there before is untouched.
    """
    try:
        with atomic.new_folder(folder) as temporary:
            write_tensors(temporary / WEIGHTS, distinct(model_state))
            if config.task == "translation":
                tokenizers.save(temporary)
            else:
                tokenizers.source.save(temporary / "source.spm")
            files = {path.name: record(path) for path in sorted(temporary.iterdir())}
            info = _describe(config, tokenizers, labels, metrics or {}, files)
            (temporary / CONFIG).write_text(_json(info), encoding="utf-8")
            (temporary / GENERATION).write_text(_json(_generation(config, tokenizers)), encoding="utf-8")
            (temporary / CARD).write_text(card or f"# {config.task} model\n", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(
            f"{folder}: the model cannot be written ({error.strerror}); free space or make the folder writable, "
            "then run the same command again"
        ) from error
    return folder


def update_settings(folder: Path, config: Config) -> None:
    """Bring how a model searches, and how it names its labels, in line with `config`; one that is not there, or is
    damaged, stays as it is."""
    changes: dict[str, dict[str, Any]] = {GENERATION: {"search": config.search.model_dump(mode="json")}}
    if config.task == "classification":
        changes[CONFIG] = {"label_names": dict(config.data.label_names)}
    for name, changed in changes.items():
        try:
            values = read_object(folder / name)
        except DamagedFile:
            return
        if values | changed != values:
            atomic.write_file(folder / name, _json(values | changed).encode())


def load_model(folder: Path) -> LoadedModel:
    """Read a model folder, the best model of a run folder, a Marian folder, or any of them from the hub by name.

    Raises:
        ModelError: it is no model folder, or something in it is missing, damaged, or does not fit the rest.
    """
    folder = find_model(Path(folder))
    try:
        info = read_object(folder / CONFIG)
        if is_marian(info):
            return load_marian(folder)
        _check_format(folder, info)
        if bad := next(unwritable(info), None):
            raise DamagedFile(f"{CONFIG}: {bad}")
        for name, recorded in _listed_files(info).items():
            verify(folder / name, recorded)
        tokenizers = _load_tokenizers(folder, info)
        described = _read_section(_Description, info, CONFIG)
        model = _build(folder, info["task"], described, tokenizers)
        search = _load_search(folder, tokenizers)
    except DamagedFile as error:
        raise ModelError(f"{folder}: {error}; copy the folder again, or train the model anew") from error
    return LoadedModel(
        task=info["task"],
        model=model.eval(),
        tokenizers=tokenizers,
        source_language=described.source_language,
        target_language=described.target_language,
        search=search,
        labels=described.labels,
        folder=folder,
        info=info,
    )


def load_marian(folder: Path, torch_file: bool = False) -> LoadedModel:
    """Read a Marian folder as a model of ours; `torch_file` as in `read_marian`.

    Raises:
        ModelError: something is missing or damaged, or settings are not supported, all of which are named.
    """
    marian = read_marian(folder, torch_file)
    config = Config.model_construct(
        task="translation",
        source_language=marian.source_language,
        target_language=marian.target_language,
        data=DataConfig.model_construct(),
        model=marian.config,
        search=marian.search,
    )
    with torch.random.fork_rng(devices=[]):
        model = Transformer(marian.config, marian.tokenizers.source.vocab_size, marian.tokenizers.target.vocab_size)
    load_tied(model, marian.weights)
    files = {path.name: record(path) for path in sorted(folder.iterdir()) if path.suffix in (".safetensors", ".bin")}
    return LoadedModel(
        task="translation",
        model=model.eval(),
        tokenizers=marian.tokenizers,
        source_language=marian.source_language,
        target_language=marian.target_language,
        search=marian.search,
        labels=(),
        folder=folder,
        info=_describe(config, marian.tokenizers, (), {}, files),
    )


def config_of(loaded: LoadedModel) -> Config:
    """A configuration that holds what a model folder holds; the corpora are not part of it."""
    info = loaded.info
    return Config.model_construct(
        task=loaded.task,
        source_language=loaded.source_language,
        target_language=loaded.target_language,
        data=DataConfig.model_construct(label_names=info.get("label_names", {})),
        model=ModelConfig.model_validate(info["model"]),
        classifier=ClassifierConfig.model_validate(info.get("classifier", {})),
        search=loaded.search,
    )


def find_model(path: str | Path | None) -> Path:
    """The model folder that MODEL stands for.

    It is the folder itself, a run folder's `best`, the newest run's where `path` is None, or what the Hugging Face hub
    has under that name where there is no such folder.

    Raises:
        ModelError: there is none.
    """
    if path is None:
        latest = RUNS / "latest"
        if not latest.exists():
            raise ModelError(
                "no model was named and there is no run under runs/; train one (s2s train) or name a MODEL"
            )
        return find_model(latest.resolve())
    folder = atomic.standing(Path(path))
    if folder.is_file():
        raise ModelError(f"{path}: a file; name the model folder that it belongs to")
    if not folder.is_dir():
        if hub.is_hub_name(path):
            return hub.fetch_model(path)
        siblings = [entry.name for entry in folder.parent.iterdir()] if folder.parent.is_dir() else []
        raise ModelError(
            f"{path}: no such folder{did_you_mean(folder.name, siblings) or '; name a model or run folder'}"
        )
    if (folder / CONFIG).is_file():
        return folder
    best = atomic.standing(folder / "best")
    if best.is_dir():
        return best
    if (folder / RUN_CONFIG).is_file() or (folder / "checkpoints").is_dir():
        raise ModelError(f"{path}: this run has no best model yet; it comes with {_first_validation(folder)}")
    raise ModelError(f"{path}: not a model folder ({CONFIG} is missing) nor a run folder (best/ is missing)")


def _first_validation(run: Path) -> str:
    try:
        training = config_file.reread(run / RUN_CONFIG).training
    except UserError:
        return "the first validation"
    if training.init_from:
        return "the first validation, at the start of training"
    step = min(training.validate_every, training.max_steps or math.inf)
    return f"the first validation, at step {step:,}{_latest(run / RUN_METRICS)}"


def _latest(metrics: Path) -> str:
    """Where a run is that has no validation yet, as far as it was logged."""
    try:
        record = json.loads(metrics.read_text(encoding="utf-8").splitlines()[-1])
        return f" (now at step {record['step']:,}, loss {record['loss']:.3f})"
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _describe(
    config: Config, tokenizers: TokenizerPair, labels: Sequence[str], metrics: Mapping[str, Any], files: dict[str, Any]
) -> dict[str, Any]:
    info: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION, "task": config.task}
    if config.task == "translation":
        info |= {"source_language": config.source_language, "target_language": config.target_language}
        info["tokenizers"] = {"source": tokenizers.source.fingerprint, "target": tokenizers.target.fingerprint}
    else:
        info |= {"classifier": config.classifier.model_dump(mode="json"), "labels": list(labels)}
        info["label_names"] = dict(config.data.label_names)
        info["tokenizers"] = {"source": tokenizers.source.fingerprint}
    info["model"] = config.model.model_dump(mode="json")
    info["metrics"] = dict(metrics)
    info["files"] = files
    return info


def _generation(config: Config, tokenizers: TokenizerPair) -> dict[str, Any]:
    search = config.search.model_dump(mode="json")
    return {**{name: getattr(tokenizers.target, name) for name in SPECIAL_IDS}, "search": search}


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _check_format(folder: Path, info: Mapping[str, Any]) -> None:
    if (folder / "model.bin").is_file():
        raise ModelError(f"{folder}: a CTranslate2 folder, which only translates; name the model it was made from")
    if info.get("format") != FORMAT:
        raise ModelError(f"{folder}: {CONFIG} is not that of a seq2seq model (no 'format': '{FORMAT}')")
    if info.get("format_version") != FORMAT_VERSION:
        version = info.get("format_version")
        raise ModelError(f"{folder}: model format {shown(version)}, not {FORMAT_VERSION}; update seq2seq")
    if info.get("task") not in ("translation", "classification"):
        raise ModelError(f"{folder}: {CONFIG} has task {shown(info.get('task'))}; it is translation or classification")
    if not (folder / WEIGHTS).exists():
        pickles = [path.name for kind in ("*.bin", "*.pt", "*.ckpt", "*.pkl") for path in sorted(folder.glob(kind))]
        reason = f"; {pickles[0]} is not read, because such files can run code" if pickles else ""
        raise ModelError(f"{folder}: {WEIGHTS} is missing{reason}; copy the folder again")


def _listed_files(info: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json says of the other files: exactly the names that a model of this task has.

    Tokenizers that came from Marian have a vocabulary of their own, or two.
    """
    expected = {WEIGHTS, "source.spm"} | ({"target.spm"} if info["task"] == "translation" else set())
    files = info.get("files")
    if not isinstance(files, dict) or set(files) - {VOCABULARY_FILE, TARGET_VOCABULARY_FILE} != expected:
        raise DamagedFile(f"{CONFIG} does not list the files {', '.join(sorted(expected))}")
    if not all(isinstance(entry, dict) and {"sha256", "size"} <= set(entry) for entry in files.values()):
        raise DamagedFile(f"{CONFIG} lists files without their size and sha256")
    return files


def _load_tokenizers(folder: Path, info: Mapping[str, Any]) -> TokenizerPair:
    try:
        tokenizers = load_tokenizers(folder, _listed_files(info))
    except UserError as error:
        raise DamagedFile(str(error)) from error
    trained_with = info.get("tokenizers")
    trained_with = trained_with if isinstance(trained_with, dict) else {}
    for side in ("source", "target") if info["task"] == "translation" else ("source",):
        if trained_with.get(side) != getattr(tokenizers, side).fingerprint:
            raise DamagedFile(f"{side}.spm is not the tokenizer that this model was trained with")
    return tokenizers


def _build(folder: Path, task: str, described: _Description, tokenizers: TokenizerPair) -> nn.Module:
    """The module with its weights; shapes are compared with the file before any memory is asked for."""
    config = described.model
    shapes = read_shapes(folder / WEIGHTS)
    if config.num_encoder_layers + config.num_decoder_layers > len(shapes):
        raise DamagedFile(f"{CONFIG} describes a model far larger than {WEIGHTS}")

    def make() -> nn.Module:
        if task == "translation":
            return Transformer(config, tokenizers.source.vocab_size, tokenizers.target.vocab_size)
        return EncoderClassifier(config, described.classifier, tokenizers.source.vocab_size, len(described.labels))

    with torch.device("meta"):
        outline = distinct(make().state_dict(keep_vars=True))
    if problem := mismatch(outline, shapes):
        raise DamagedFile(f"{WEIGHTS} is not of the model that {CONFIG} describes: {problem}")
    with torch.random.fork_rng(devices=[]):  # initial values are drawn and thrown away: no one else's draws change
        model = make()
    load_tied(model, as_weights(read_tensors(folder / WEIGHTS)))
    return model


def _load_search(folder: Path, tokenizers: TokenizerPair) -> SearchConfig:
    generation = read_object(folder / GENERATION)
    for name in SPECIAL_IDS:
        if generation.get(name) != getattr(tokenizers.target, name):
            raise DamagedFile(f"{GENERATION}: {name} {shown(generation.get(name))} is not the tokenizer's")
    return _read_section(_Generation, generation, GENERATION).search


def _read_section(kind: type[AnySection], values: Mapping[str, Any], origin: str) -> AnySection:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise DamagedFile(f"{origin}: {describe(error.errors()[0])}") from error
