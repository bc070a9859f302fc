"""Load models and open the engine that runs them, for `Translator.load`.

A MODEL is a model folder, a run folder, a Marian folder, a CTranslate2 folder that `s2s convert` wrote, or a name on
the Hugging Face hub; several are an ensemble.
"""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from seq2seq import runtime as runtimes
from seq2seq.config import SearchConfig
from seq2seq.config_problems import describe
from seq2seq.errors import ModelError, RunError, UserError, did_you_mean
from seq2seq.inference.batching import Engine
from seq2seq.inference.conversion_cache import converted
from seq2seq.inference.ctranslate2_engine import DIFFERENT, CTranslate2Engine
from seq2seq.inference.engines import TorchEngine
from seq2seq.inference.steps import EnsembleSteps, TransformerSteps
from seq2seq.interop import ctranslate2
from seq2seq.processes import usable_processors
from seq2seq.store.model_folder import find_model, load_model
from seq2seq.text.tokenizer import TokenizerPair

logger = logging.getLogger(__name__)

EngineName = Literal["auto", "torch", "ctranslate2"]


@dataclass(frozen=True)
class Loaded:
    """An open engine, and what a translator needs beside it."""

    engine: Engine
    tokenizers: TokenizerPair
    search: SearchConfig
    note: str
    """The engine and, where that is PyTorch, the reason; for people."""


def load_engine(
    paths: Sequence[str | Path | None],
    engine: EngineName = "auto",
    quantization: str | None = None,
    device: str = "auto",
    precision: str | None = None,
    threads: int | None = None,
    search: Mapping[str, Any] | None = None,
) -> Loaded:
    """Load models and open the engine that runs them.

    Args:
        paths: the models; None is the newest run.
        engine: `auto` is ctranslate2 on a CPU where it can run the model and the search, else torch.
        quantization: number format of the weights in ctranslate2, before `precision`.
        device: auto, cpu, cuda, cuda:1 or mps.
        precision: number format of matrix products; None is float32.
        threads: CPU threads; None is all.
        search: keys that override the model's own search settings.

    Raises:
        ModelError: there is no model, it is damaged, is no translation model, or does not fit the others.
        UserError: a device, precision, engine or search setting that does not exist or is not possible.
        RunError: `engine` is ctranslate2, and the cache of converted models cannot be written.
    """
    folders, search = [find_model(path) for path in paths], search or {}
    exports = [folder for folder in folders if ctranslate2.is_ctranslate2(folder)]
    if exports and (quantization or precision):
        raise UserError(
            f"--{'quantization' if quantization else 'precision'}: a CTranslate2 folder has the number format that it "
            "was converted to; leave the option out, or convert the model again with --quantization"
        )
    if exports and (engine == "torch" or len(folders) > 1):
        reason = "an ensemble" if len(folders) > 1 else "--engine torch"
        raise UserError(f"{exports[0]}: a CTranslate2 folder, not for {reason}; name the model that it was made from")
    if engine == "ctranslate2" and len(folders) > 1:
        raise UserError("an ensemble runs in torch alone; leave out --engine ctranslate2, or name one model")
    if engine != "torch" and quantization and precision:
        raise UserError("--quantization and --precision both name a number format; leave one out")
    runtime = runtimes.start(device, precision, threads)
    number_format = str(runtime.precision).removeprefix("torch.")
    has_choice = not exports and engine != "ctranslate2"

    def reason_for_torch(settings: Mapping[str, Any]) -> str:
        reasons = {
            "--engine torch": engine == "torch",
            "an ensemble": len(folders) > 1,
            f"{runtime.device} is not a CPU": runtime.device.type != "cpu",
            f"--precision {number_format}": number_format != "float32",
            **{f"search.{name}": settings.get(name) for name in DIFFERENT},
        }
        return next((reason for reason, applies in reasons.items() if has_choice and applies), "")

    reason = reason_for_torch(search)  # as far as it is known before a model is read
    if not reason:
        if exports:
            source = contextlib.nullcontext((folders[0], *ctranslate2.read_description(folders[0])[:2]))
        else:
            source = converted(folders[0], quantization or number_format)
        try:
            with source as (folder, description, tokenizers):
                config = override_search(description.search, search)
                reason = reason_for_torch(vars(config))
                if not reason:
                    _check_draws(folders[0], config, search)
                    length, workers = description.model.max_length, threads or usable_processors()
                    opened = CTranslate2Engine(folder, tokenizers, length, str(runtime.device), workers)
                    return Loaded(opened, tokenizers, config, f"CTranslate2, {opened.compute_type}")
        except (RunError, ctranslate2.Obstacles) as error:
            if not has_choice:
                raise
            logger.warning("%s", error)
            reason = "no converted model"
    if quantization:
        raise UserError(f"--quantization {quantization}: CTranslate2 alone has it, and here PyTorch is used ({reason})")
    models = [load_model(folder) for folder in folders]
    for model in models:
        if model.description.task != "translation":
            raise ModelError(f"{model.folder}: a {model.description.task} model; s2s classify is for those")
        if model.tokenizers.fingerprint != models[0].tokenizers.fingerprint:
            first = models[0].folder
            raise ModelError(f"{model.folder}: its vocabulary is not that of {first}; an ensemble needs one vocabulary")
    config = override_search(models[0].description.search, search)
    steps = [
        TransformerSteps(model.model.to(runtime.device, runtime.precision), model.tokenizers, runtime.device)
        for model in models
    ]
    opened = TorchEngine(steps[0] if len(steps) == 1 else EnsembleSteps(steps))
    return Loaded(opened, models[0].tokenizers, config, f"PyTorch on {runtime.device} ({reason})")


def override_search(config: SearchConfig, changes: Mapping[str, Any]) -> SearchConfig:
    """`config` with `changes`.

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


def _check_draws(folder: Path, config: SearchConfig, search: Mapping[str, Any]) -> None:
    if config.sample and "seed" in search:
        raise UserError(f"{folder}: CTranslate2 cannot repeat draws by a seed; leave out --seed, or use --engine torch")
    if config.sample:
        logger.warning("%s: CTranslate2's draws differ from run to run", folder)
