"""From the names of models to an engine: what `Translator.load` starts with.

A MODEL is a model folder, a run folder, a Marian folder, a CTranslate2 folder that `s2s convert` wrote, or a name on
the Hugging Face hub; several are an ensemble.
"""

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from seq2seq import runtime as runtimes
from seq2seq.config import SearchConfig
from seq2seq.config_problems import describe
from seq2seq.errors import ModelError, UserError, did_you_mean
from seq2seq.inference.batching import Engine
from seq2seq.inference.ctranslate2_engine import CTranslate2Engine, cached_folder
from seq2seq.inference.engines import TorchEngine
from seq2seq.inference.steps import EnsembleSteps, TransformerSteps
from seq2seq.interop import ctranslate2
from seq2seq.processes import usable_processors
from seq2seq.runtime import Runtime
from seq2seq.store.model_folder import LoadedModel, find_model, load_model
from seq2seq.text.tokenizer import TokenizerPair

logger = logging.getLogger(__name__)

EngineName = Literal["auto", "torch", "ctranslate2"]


@dataclass(frozen=True)
class Loaded:
    """What a translator is made of."""

    engine: Engine
    tokenizers: TokenizerPair
    search: SearchConfig


def load_engine(
    paths: Sequence[str | Path | None],
    engine: EngineName | None = None,
    quantization: str | None = None,
    device: str = "auto",
    precision: str | None = None,
    threads: int | None = None,
    search: Mapping[str, Any] | None = None,
) -> Loaded:
    """Load models and open the engine that runs them.

    Args:
        paths: the models; None is the newest run.
        engine: `auto` is ctranslate2 where it is installed and can run the model, else torch; None is what a folder is
            for, which is ctranslate2 for one that was converted and torch for all others.
        quantization: number format of the weights in ctranslate2, before `precision`.
        device: auto, cpu, cuda, cuda:1 or mps.
        precision: number format of matrix products; None is float32.
        threads: processor threads; None is all.
        search: keys that override the model's own search settings.

    Raises:
        ModelError: there is no model, it is damaged, is no translation model, or does not fit the others.
        UserError: a device, precision, engine or search setting that does not exist or is not possible.
    """
    folders = [find_model(path) for path in paths]
    if any(map(ctranslate2.is_ctranslate2, folders)):
        for name, value in (("quantization", quantization), ("precision", precision)):
            if value is not None:
                raise UserError(
                    f"--{name}: a CTranslate2 folder has the number format that it was converted to; leave the option "
                    "out, or convert the model again with --quantization"
                )
        return _load_converted(folders, engine, device, threads, search or {})
    models = [load_model(folder) for folder in folders]
    _check_models(models)
    config = override_search(models[0].description.search, search or {})
    runtime = runtimes.start(device, precision, threads)
    if engine == "ctranslate2" and len(models) > 1:
        raise UserError("an ensemble runs in torch alone; leave out --engine ctranslate2, or name one model")
    if engine == "ctranslate2" and quantization and precision:
        raise UserError("--quantization and --precision both name a number format; leave one out")
    if engine == "ctranslate2" or (engine == "auto" and _can_convert(models, runtime, config)):
        chosen: Engine = _convert(models[0], runtime, quantization, threads)
    else:
        if quantization:
            raise UserError(
                f"quantization {quantization}: ctranslate2 has it; add --engine ctranslate2, or use --precision"
            )
        chosen = _torch_engine(models, runtime)
    return Loaded(chosen, models[0].tokenizers, config)


def override_search(config: SearchConfig, changes: Mapping[str, Any]) -> SearchConfig:
    """`config` with other values for some keys.

    Raises:
        UserError: a key that does not exist, or a value that is not possible.
    """
    known = SearchConfig.model_fields
    if unknown := [key for key in changes if key not in known]:
        raise UserError(f"search.{unknown[0]}: unknown setting{did_you_mean(unknown[0], known)}")
    try:
        return SearchConfig.model_validate({**config.model_dump(), **changes})
    except ValidationError as error:
        problem = describe({**error.errors()[0], "loc": ("search", *error.errors()[0]["loc"])})
        raise UserError(problem) from error


def _load_converted(
    folders: Sequence[Path], engine: EngineName | None, device: str, threads: int | None, search: Mapping[str, Any]
) -> Loaded:
    if len(folders) > 1 or engine == "torch":
        reason = "an ensemble" if len(folders) > 1 else "--engine torch"
        folder = next(folder for folder in folders if ctranslate2.is_ctranslate2(folder))
        raise UserError(f"{folder}: a CTranslate2 folder, not for {reason}; name the model that it was made from")
    description, tokenizers, _ = ctranslate2.read_description(folders[0])
    config = override_search(description.search, search)
    if config.sample and "seed" in search:
        raise UserError(
            f"{folders[0]}: a CTranslate2 folder, which cannot repeat draws by a seed; leave out --seed, or name the "
            "model that it was made from"
        )
    if config.sample:
        logger.warning("%s: a CTranslate2 folder, whose draws differ from run to run", folders[0])
    where = str(runtimes.start(device, None, threads).device)
    opened = CTranslate2Engine(
        folders[0], tokenizers, description.model.max_length, where, threads or usable_processors()
    )
    return Loaded(opened, tokenizers, config)


def _can_convert(models: Sequence[LoadedModel], runtime: Runtime, config: SearchConfig) -> bool:
    return (
        len(models) == 1
        and not config.sample
        and runtime.device.type in ("cpu", "cuda")
        and ctranslate2.is_installed()
        and not ctranslate2.ctranslate2_obstacles(models[0].tokenizers)
    )


def _convert(model: LoadedModel, runtime: Runtime, quantization: str | None, threads: int | None) -> CTranslate2Engine:
    precision = next(name for name, dtype in runtimes.PRECISIONS.items() if dtype == runtime.precision)
    return CTranslate2Engine(
        cached_folder(model, quantization or precision),
        model.tokenizers,
        model.model.config.max_length,
        str(runtime.device),
        threads or usable_processors(),
        functools.cache(lambda: _torch_engine([model], runtime)),
    )


def _torch_engine(models: Sequence[LoadedModel], runtime: Runtime) -> TorchEngine:
    members = [
        TransformerSteps(loaded.model.to(runtime.device, runtime.precision), loaded.tokenizers, runtime.device)
        for loaded in models
    ]
    return TorchEngine(members[0] if len(members) == 1 else EnsembleSteps(members))


def _check_models(models: Sequence[LoadedModel]) -> None:
    for model in models:
        if model.description.task != "translation":
            raise ModelError(f"{model.folder}: a {model.description.task} model; s2s classify is for those")
        if model.tokenizers.fingerprint != models[0].tokenizers.fingerprint:
            first = models[0].folder
            raise ModelError(f"{model.folder}: its vocabulary is not that of {first}; an ensemble needs one vocabulary")
