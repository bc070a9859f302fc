"""Model folders: a trained model with its tokenizers and settings, as people use, copy and publish it.

Training writes `best/` through `save_model`; translation, classification and interoperation read folders through
`load_model`. Only the named files are read, none of them can hold code, and each is checked before it is believed.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from seq2seq import atomic, config_file, hub
from seq2seq.config import Config
from seq2seq.config_problems import describe, unwritable
from seq2seq.description import ModelDescription
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
RUNS, LATEST, RUN_CONFIG, RUN_METRICS = Path("runs"), "latest", "config.yaml", "metrics.jsonl"
# What config.json leaves out: how to search stands in generation_config.json.
NOT_IN_CONFIG = {
    "translation": {"search", "classifier", "labels", "label_names"},
    "classification": {"search", "source_language", "target_language"},
}
SPECIAL_IDS = ("start_id", "eos_id", "pad_id", "unk_id")


@dataclass(frozen=True)
class LoadedModel:
    """A model folder in memory."""

    description: ModelDescription
    model: nn.Module
    """Transformer or EncoderClassifier, float32, on the CPU, in evaluation mode."""
    tokenizers: TokenizerPair
    """In classification, source and target are one tokenizer."""
    folder: Path
    files: Mapping[str, Mapping[str, Any]]
    """SHA-256 and size of each file, by name."""


def save_model(
    folder: Path,
    weights: Mapping[str, Tensor],
    description: ModelDescription,
    tokenizers: TokenizerPair,
    card: str = "",
) -> Path:
    """Write a model folder; one that is there already is replaced as a whole.

    Raises:
        CheckpointError: the disk is full or cannot be written; what was there before is untouched.
    """
    try:
        with atomic.new_folder(folder) as temporary:
            write_tensors(temporary / WEIGHTS, distinct(weights))
            if description.task == "translation":
                tokenizers.save(temporary)
            else:
                tokenizers.source.save(temporary / "source.spm")
            files = {path.name: record(path) for path in sorted(temporary.iterdir())}
            (temporary / CONFIG).write_text(_json(_config_values(description, tokenizers, files)), encoding="utf-8")
            (temporary / GENERATION).write_text(_json(_generation_values(description, tokenizers)), encoding="utf-8")
            (temporary / CARD).write_text(card or f"# {description.task} model\n", encoding="utf-8")
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


def load_model(folder: str | Path) -> LoadedModel:
    """Read a model folder, the best model of a run folder, a Marian folder, or any of them from the hub by name.

    Raises:
        ModelError: it is no model folder, or something in it is missing, damaged, or does not fit the rest.
    """
    folder = find_model(folder)
    try:
        info = read_object(folder / CONFIG)
        if is_marian(info):
            return load_marian(folder)
        _check_format(folder, info)
        generation = read_object(folder / GENERATION)
        description = _read_description(info, generation)
        files = _listed_files(info, description.task)
        for name, recorded in files.items():
            verify(folder / name, recorded)
        tokenizers = _load_tokenizers(folder, info, generation, description.task)
        model = _build(folder, description, tokenizers)
    except DamagedFile as error:
        raise ModelError(f"{folder}: {error}; copy the folder again, or train the model anew") from error
    return LoadedModel(description, model.eval(), tokenizers, folder, files)


def load_marian(folder: Path, torch_file: bool = False) -> LoadedModel:
    """Read a Marian folder as a model of ours; `torch_file` as in `read_marian`.

    Raises:
        ModelError: something is missing or damaged, or settings are not supported, all of which are named.
    """
    description, tokenizers, weights = read_marian(folder, torch_file)
    with torch.random.fork_rng(devices=[]):
        model = Transformer(description.model, tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    load_tied(model, weights)
    files = {path.name: record(path) for path in sorted(folder.iterdir()) if path.suffix in (".safetensors", ".bin")}
    return LoadedModel(description, model.eval(), tokenizers, folder, files)


def find_model(path: str | Path | None) -> Path:
    """The model folder that MODEL stands for.

    It is the folder itself, a run folder's `best`, the newest run's where `path` is None, or what the Hugging Face hub
    has under that name where there is no such folder.

    Raises:
        ModelError: there is none.
    """
    if path is None:
        latest = RUNS / LATEST
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


def _config_values(description: ModelDescription, tokenizers: TokenizerPair, files: dict[str, Any]) -> dict[str, Any]:
    sides = ("source", "target") if description.task == "translation" else ("source",)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **description.model_dump(mode="json", exclude=NOT_IN_CONFIG[description.task]),
        "tokenizers": {side: getattr(tokenizers, side).fingerprint for side in sides},
        "files": files,
    }


def _generation_values(description: ModelDescription, tokenizers: TokenizerPair) -> dict[str, Any]:
    search = description.search.model_dump(mode="json")
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
    if not (folder / WEIGHTS).exists():
        pickles = [path.name for kind in ("*.bin", "*.pt", "*.ckpt", "*.pkl") for path in sorted(folder.glob(kind))]
        reason = f"; {pickles[0]} is not read, because such files can run code" if pickles else ""
        raise ModelError(f"{folder}: {WEIGHTS} is missing{reason}; copy the folder again")


def _read_description(info: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelDescription:
    for name, values in ((CONFIG, info), (GENERATION, generation)):
        if bad := next(unwritable(values), None):
            raise DamagedFile(f"{name}: {bad}")
    try:
        return ModelDescription.model_validate({**info, "search": generation.get("search")})
    except ValidationError as error:
        problem = error.errors()[0]
        raise DamagedFile(f"{GENERATION if 'search' in problem['loc'] else CONFIG}: {describe(problem)}") from error


def _listed_files(info: Mapping[str, Any], task: str) -> dict[str, Any]:
    """What config.json says of the other files: exactly the names that a model of this task has.

    Tokenizers that came from Marian have a vocabulary of their own, or two.
    """
    expected = {WEIGHTS, "source.spm"} | ({"target.spm"} if task == "translation" else set())
    files = info.get("files")
    if not isinstance(files, dict) or set(files) - {VOCABULARY_FILE, TARGET_VOCABULARY_FILE} != expected:
        raise DamagedFile(f"{CONFIG} does not list the files {', '.join(sorted(expected))}")
    if not all(isinstance(entry, dict) and {"sha256", "size"} <= set(entry) for entry in files.values()):
        raise DamagedFile(f"{CONFIG} lists files without their size and sha256")
    return files


def _load_tokenizers(folder: Path, info: Mapping[str, Any], generation: Mapping[str, Any], task: str) -> TokenizerPair:
    try:
        tokenizers = load_tokenizers(folder, info["files"])
    except UserError as error:
        raise DamagedFile(str(error)) from error
    trained_with = info.get("tokenizers")
    trained_with = trained_with if isinstance(trained_with, dict) else {}
    for side in ("source", "target") if task == "translation" else ("source",):
        if trained_with.get(side) != getattr(tokenizers, side).fingerprint:
            raise DamagedFile(f"{side}.spm is not the tokenizer that this model was trained with")
    for name in SPECIAL_IDS:
        if generation.get(name) != getattr(tokenizers.target, name):
            raise DamagedFile(f"{GENERATION}: {name} {shown(generation.get(name))} is not the tokenizer's")
    return tokenizers


def _build(folder: Path, description: ModelDescription, tokenizers: TokenizerPair) -> nn.Module:
    """The module with its weights; shapes are compared with the file before any memory is asked for."""
    config = description.model
    shapes = read_shapes(folder / WEIGHTS)
    if config.num_encoder_layers + config.num_decoder_layers > len(shapes):
        raise DamagedFile(f"{CONFIG} describes a model far larger than {WEIGHTS}")

    def make() -> nn.Module:
        if description.task == "translation":
            return Transformer(config, tokenizers.source.vocab_size, tokenizers.target.vocab_size)
        labels = len(description.labels)
        return EncoderClassifier(config, description.classifier, tokenizers.source.vocab_size, labels)

    with torch.device("meta"):
        outline = distinct(make().state_dict(keep_vars=True))
    if problem := mismatch(outline, shapes):
        raise DamagedFile(f"{WEIGHTS} is not of the model that {CONFIG} describes: {problem}")
    with torch.random.fork_rng(devices=[]):  # initial values are drawn and thrown away: no one else's draws change
        model = make()
    load_tied(model, as_weights(read_tensors(folder / WEIGHTS)))
    return model
