"""The loading of models and of the engine that runs them, for `Translator.load`.

A MODEL is a model folder, a run folder, a Marian folder, a CTranslate2 folder that `s2s convert` wrote, or a name on
the Hugging Face hub. Several MODELs form an ensemble.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from seq2seq.arguments import checked_computing
from seq2seq.config import ranges
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import ModelError, RunError, UserError, did_you_mean, shown
from seq2seq.inference.ctranslate2_engine import CTranslate2Engine, difference
from seq2seq.inference.engine import Engine, EngineName, Loaded, override_search
from seq2seq.interop.ctranslate2 import Obstacles, is_ctranslate2, read_description
from seq2seq.languages import check_direction
from seq2seq.processes import usable_cpus
from seq2seq.search.base import Sentence, StepModel
from seq2seq.store.direction import directed, single_languages
from seq2seq.store.finding import find_model
from seq2seq.text.direction import UNNAMED, Direction
from seq2seq.text.tokenizer import TokenizerPair

if TYPE_CHECKING:
    from seq2seq.store.model_folder import LoadedModel

logger = logging.getLogger(__name__)

# Linux has one of these files if torch can use a GPU of NVIDIA (also on Jetson and in WSL) or AMD.
GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvhost-gpu", "/dev/dxg", "/dev/kfd")
# Larger blocks are the caches of searches, which are allocated once for a batch. In 16 bits, code that oneDNN compiles
# is allocated between kept blocks, so that they cannot be merged and reused, which fragments the heap.
CACHE_BYTES = 2**25


def load_engine(
    paths: Sequence[str | Path | None],
    engine: EngineName = "auto",
    quantization: str | None = None,
    device: str = "auto",
    precision: str | None = None,
    threads: int | None = None,
    search: Mapping[str, Any] | None = None,
    direction: Direction | None = UNNAMED,
) -> Loaded:
    """Load models and open the engine that runs them.

    Args:
        paths: MODELs; None means the newest translation run.
        engine: `auto` means ctranslate2 on a CPU if it can run the model and the search, else torch.
        quantization: number format of the weights in ctranslate2; None means that of `precision`.
        device: auto, cpu, cuda, cuda:1 or mps.
        precision: number format of matrix products; None means float32 on a CPU, and `auto` on a GPU.
        threads: CPU threads; None means all.
        search: keys that override search settings of the model.
        direction: languages, for a multilingual model; None opens it for all, and `Translator.directed` chooses.

    Raises:
        ModelError: there is no model, it is damaged or not a translation model, or it does not fit the others.
        UserError: a device, precision, engine, language or search setting does not exist or is not possible.
        RunError: `engine` is ctranslate2, and the cache of converted models cannot be written.
    """
    device, precision, threads = checked_computing(device, precision, threads)
    folders, search = _checked_folders(paths, engine, quantization), search or {}
    is_exported = _check_options(folders, engine, quantization, precision)
    has_choice = engine != "ctranslate2" and not is_exported
    device, number_format = _resolved(device, precision, threads)
    if search.get("record") is True:
        check_recording(device, engine == "ctranslate2" or is_exported)
    reasons = {
        "--engine torch": engine == "torch",
        "an ensemble": len(folders) > 1,
        f"{device} is not a CPU": device != "cpu",
        f"--precision {number_format}": number_format != "float32",
    }
    found = next((reason for reason, applies in reasons.items() if applies), "") or difference(search)
    reason = found if has_choice else ""
    if not reason:
        try:
            kind = quantization or default_format(device, precision, number_format)
            opened = _open_ctranslate2(folders[0], has_choice, kind, device, threads, search, direction)
        except (RunError, Obstacles) as error:
            if not has_choice:
                raise
            logger.warning("%s", error)
            opened = "no converted model"
        if isinstance(opened, Loaded):
            return opened
        reason = opened
    if quantization:
        raise UserError(
            f"--quantization {quantization}: only CTranslate2 has this option, but PyTorch is used ({reason}); "
            "leave it out, or what needs PyTorch"
        )
    return _open_torch(folders, device, precision, threads, search, reason, direction)


def changed_search(engine: Engine, config: SearchConfig, changes: Mapping[str, Any]) -> SearchConfig:
    """Return the search settings `config` with `changes`, for an engine that is open.

    Raises:
        UserError: as in `override_search`; or the engine does not have a setting, for which `load_engine` would choose
            another one.
    """
    after = override_search(config, changes)
    changed = {name: value for name, value in vars(after).items() if value != getattr(config, name)}
    if "record" in changed:
        raise UserError("search.record: chosen when the model is loaded; give it to load")
    if not isinstance(engine, CTranslate2Engine):
        return after
    seed = "search.seed" if after.sample and "seed" in changed else ""
    if name := difference(changed) or seed:
        place = "CTranslate2, which runs this model, does not have it as PyTorch does"
        raise UserError(f"{name}: {place}; give it to load, which chooses the engine")
    if engine.leaves_cpus_idle:
        check_beam_format(engine.compute_type, after)
    return after


def _checked_folders(paths: Sequence[str | Path | None], engine: str, quantization: str | None) -> list[Path]:
    """Return the folders of the models; refuse values that the options of a command exclude, but a program may give."""
    for name, value, known in (
        ("engine", engine, get_args(EngineName)),
        ("quantization", quantization, (None, *ranges.QUANTIZATIONS)),
    ):
        if value not in known:
            names = [each for each in known if each is not None]
            close = did_you_mean(str(value), names)
            raise UserError(f"{name} {shown(value)}: choose one of {', '.join(names)}{close}")
    return [find_model(path, "translation") for path in paths]


def _check_options(
    folders: Sequence[Path], engine: EngineName, quantization: str | None, precision: str | None
) -> bool:
    """Refuse options that exclude each other, and return whether a folder is a CTranslate2 folder."""
    exports = [folder for folder in folders if is_ctranslate2(folder)]
    if exports and (quantization or precision):
        raise UserError(
            f"--{'quantization' if quantization else 'precision'}: a CTranslate2 folder has the number format that it "
            "was converted to; leave the option out, or convert the model again with --quantization"
        )
    if exports and (engine == "torch" or len(folders) > 1):
        reason = "an ensemble" if len(folders) > 1 else "--engine torch"
        raise UserError(
            f"{exports[0]}: a CTranslate2 folder, not possible with {reason}; name the model that it was converted from"
        )
    if engine == "ctranslate2" and len(folders) > 1:
        raise UserError("an ensemble runs only in torch; leave out --engine ctranslate2, or name one model")
    if engine != "torch" and quantization and precision:
        raise UserError("--quantization and --precision both name a number format; leave one out")
    return bool(exports)


def _resolved(device: str, precision: str | None, threads: int | None) -> tuple[str, str]:
    """Return the device and the number format; torch, whose import takes a second, is imported only if necessary."""
    has_no_gpu = sys.platform == "linux" and not any(map(os.path.exists, GPU_DEVICES))
    if precision in (None, "float32") and (device == "cpu" or (device in (None, "auto") and has_no_gpu)):
        return "cpu", "float32"
    from seq2seq.runtime import start

    runtime = start(device, precision, threads)
    return str(runtime.device), str(runtime.precision).removeprefix("torch.")


def default_format(device: str, precision: str | None, number_format: str) -> str:
    """Return the number format of CTranslate2 without --quantization; on a GPU it is float16, not bfloat16."""
    return "float16" if device != "cpu" and precision in (None, "auto") else number_format


def check_beam_format(compute_type: str, config: SearchConfig) -> None:
    """Refuse a beam search by CTranslate2 in bfloat16 on a GPU.

    Raises:
        UserError: log-probabilities would be rounded to 8 bits, which cost 2.1 BLEU on an H200.
    """
    if "bfloat16" in compute_type and config.beam_size > 1 and not config.sample:
        raise UserError(
            f"CTranslate2 rounds the log-probabilities of a beam search in {compute_type}, which costs 2 BLEU; choose "
            "--quantization float16, or --engine torch"
        )


def try_out(engine: Engine, tokenizers: TokenizerPair, device: str) -> None:
    """Translate a piece, because CTranslate2 loads the libraries of a GPU at the first translation.

    Raises:
        UserError: a library is missing; the message names it.
    """
    sentence = Sentence((tokenizers.source.eos_id,), start=tokenizers.target.start_ids)
    try:
        engine.translate([sentence], SearchConfig(beam_size=1, max_length_ratio=1.0, max_length_offset=1))
    except RuntimeError as error:
        raise UserError(
            f"ctranslate2 on {device}: {' '.join(str(error).split())}; add the folder of a missing library to "
            "LD_LIBRARY_PATH, or use --engine torch"
        ) from error


def _open_ctranslate2(
    folder: Path,
    has_choice: bool,
    quantization: str,
    device: str,
    threads: int | None,
    search: Mapping[str, Any],
    direction: Direction | None,
) -> Loaded | str:
    """Return the engine or, if there `has_choice`, the reason why PyTorch has to be used."""
    if is_ctranslate2(folder):
        source = contextlib.nullcontext((folder, *read_description(folder)[:2]))
    else:
        from seq2seq.inference.conversion_cache import converted

        source = converted(folder, quantization)
    with source as (opened, described, known):
        description, tokenizers = directed(folder, described, known, direction)
        config = override_search(description.search, search)
        if has_choice and (reason := difference(vars(config))):
            return reason
        if config.sample and "seed" in search:
            raise UserError(f"{folder}: CTranslate2 cannot repeat draws by a seed; leave out --seed, or use torch")
        if config.sample:
            logger.warning("%s: CTranslate2's draws differ from run to run", folder)
        length, workers = description.model.max_length, threads or usable_cpus()
        runner = CTranslate2Engine(opened, tokenizers, length, device, workers)
        if device != "cpu":
            check_beam_format(runner.compute_type, config)
            try_out(runner, tokenizers, device)
        return Loaded(runner, tokenizers, config, f"CTranslate2, {runner.compute_type}", description)


def _open_torch(
    folders: Sequence[Path],
    device: str,
    precision: str | None,
    threads: int | None,
    search: Mapping[str, Any],
    reason: str,
    direction: Direction | None,
) -> Loaded:
    from seq2seq.inference.steps import EnsembleSteps, TransformerSteps
    from seq2seq.inference.torch_engine import TorchEngine
    from seq2seq.recording import CudaGraphs
    from seq2seq.runtime import keep_few_kernels, keep_large_blocks, start
    from seq2seq.store.model_folder import load_model

    keep_few_kernels()
    runtime = start(device, precision, threads)
    if str(runtime.precision) != "torch.float32":
        keep_large_blocks(CACHE_BYTES)
    models = [load_model(folder) for folder in folders]
    for model in models:
        if model.description.task != "translation":
            raise ModelError(f"{model.folder}: a {model.description.task} model; use s2s classify")
        if model.tokenizers.fingerprint != models[0].tokenizers.fingerprint:
            first = models[0].folder
            raise ModelError(f"{model.folder}: its vocabulary is not that of {first}; an ensemble needs one vocabulary")
    models = [model.directed(direction) for model in models]
    _check_directions(models)
    config = override_search(models[0].description.search, search)
    steps = [
        TransformerSteps(model.model.to(runtime.device, runtime.precision), model.tokenizers, runtime.device)
        for model in models
    ]
    model = steps[0] if len(steps) == 1 else EnsembleSteps(steps)
    is_recorded, recording = _choose_recording(config, runtime.device.type, model)
    engine = TorchEngine(model, recorder=CudaGraphs() if is_recorded else None)
    note = f"PyTorch on {runtime.device} ({'; '.join(filter(None, (reason, recording)))})"
    return Loaded(engine, models[0].tokenizers, config, note, models[0].description)


def _check_directions(models: Sequence["LoadedModel"]) -> None:
    """Refuse an ensemble of several directions.

    Raises:
        ModelError: the directions of two models differ.
    """
    sides = [single_languages(model.description, model.tokenizers) for model in models]
    for model, own in zip(models, sides, strict=True):
        remedy = "an ensemble needs models of the same direction"
        check_direction(model.folder, own, models[0].folder, sides[0], remedy)


def check_recording(device: str, is_ctranslate2: bool) -> None:
    """Refuse a request for recorded searches that would have no effect; the setting of a model is only noted.

    Raises:
        UserError: the engine is CTranslate2, or the device is not a CUDA device.
    """
    if is_ctranslate2 or not device.startswith("cuda"):
        place = "CTranslate2" if is_ctranslate2 else device
        raise UserError(f"--record on needs PyTorch on a CUDA device, not {place}; leave the option out")


def _choose_recording(config: SearchConfig, device: str, model: StepModel) -> tuple[bool, str]:
    """Return whether steps are recorded, and a note, which is empty without CUDA unless `search.record` is true."""
    if device != "cuda":
        return False, "search.record needs a CUDA device" if config.record is True else ""
    if config.record is False:
        return False, "steps are not recorded"
    from seq2seq.search.recorded import obstacle

    found = obstacle(model, (), config)
    return not found, f"steps are not recorded: {found}" if found else "steps are recorded"
