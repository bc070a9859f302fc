"""Model folders: a trained model with its tokenizers and settings, which people use, copy and publish.

Training writes `best/` with `save_model`; translation, classification and conversion read folders with `load_model`.
Only the files that config.json lists are read, none of them can contain code, and each is verified first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor, nn

from seq2seq import atomic
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import Config
from seq2seq.config.values import unwritable
from seq2seq.errors import ModelError, UserError, shown
from seq2seq.files import DamagedFile, json_text, read_object, record, verify, write_object
from seq2seq.interop.architectures import FOREIGN, is_foreign
from seq2seq.model.transformer import Transformer
from seq2seq.store.direction import OPTIONS, directed
from seq2seq.store.finding import CONFIG, GENERATION, find_model
from seq2seq.store.footprint import WEIGHTS, check_room
from seq2seq.store.tuning import BEFORE, TUNED, is_tuned, report_loss, tuned_card, tuned_metrics
from seq2seq.tensors import (
    FileTensors,
    Uninitialized,
    copy_rows,
    distinct,
    give_memory,
    load_tied,
    mismatch,
    write_tensors,
)
from seq2seq.text.direction import UNNAMED, Direction
from seq2seq.text.stored import load_tokenizers
from seq2seq.text.tokenizer import (
    LANGUAGES_FILE,
    SOURCE_FILE,
    TARGET_FILE,
    TARGET_VOCABULARY_FILE,
    VOCABULARY_FILE,
    TokenizerPair,
)

FORMAT, FORMAT_VERSION = "seq2seq model", 1
CARD = "README.md"
# Keys that config.json omits; the search settings are in generation_config.json.
NOT_IN_CONFIG = {
    "translation": {"search", "classifier", "labels", "label_names"},
    "classification": {"search", "source_language", "target_language"},
}
SIDES = {"translation": ("source", "target"), "classification": ("source",)}
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

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights by name, with tied ones once (`tensors.distinct`)."""
        return distinct(self.model.state_dict(keep_vars=True))

    def directed(self, direction: Direction | None = UNNAMED, named_with: Mapping[str, str] = OPTIONS) -> "LoadedModel":
        """Return the model for one direction; arguments and errors are those of `store.direction`."""
        described, tokenizers = directed(self.folder, self.description, self.tokenizers, direction, named_with)
        return replace(self, description=described, tokenizers=tokenizers)


def save_model(
    folder: Path,
    weights: Mapping[str, Tensor],
    description: ModelDescription,
    tokenizers: TokenizerPair,
    card: str = "",
    others: Mapping[str, str] | None = None,
) -> Path:
    """Write a model folder, or replace an existing one; `others` are the contents of more text files by name.

    Raises:
        RunError: the disk is full or not writable; an existing folder is unchanged.
    """
    task, tokenizers = description.task, tokenizers.undirected
    with atomic.writing_in(folder, atomic.ROOM_REMEDY), atomic.new_folder(folder) as temporary:
        write_tensors(temporary / WEIGHTS, distinct(weights))
        if task == "translation":
            tokenizers.save(temporary)
        else:
            tokenizers.source.save(temporary / SOURCE_FILE)
            tokenizers.save_languages(temporary)
        values = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **description.model_dump(mode="json", exclude=NOT_IN_CONFIG[task]),
            "tokenizers": {side: getattr(tokenizers, side).fingerprint for side in SIDES[task]},
            "files": {path.name: record(path) for path in sorted(temporary.iterdir())},
        }
        write_object(temporary / CONFIG, values)
        ids = {name: getattr(tokenizers.target, name) for name in SPECIAL_IDS}
        write_object(temporary / GENERATION, {**ids, **description.model_dump(mode="json", include={"search"})})
        for name, text in {CARD: card or f"# {task} model\n", **(others or {})}.items():
            (temporary / name).write_text(text, encoding="utf-8")
    return folder


def update_settings(folder: Path, config: Config) -> bool:
    """Write the search settings and label names of `config` into a model folder, and return whether they were others; a
    missing or damaged folder is left unchanged.

    Tuned search settings (`update_search`) are kept, unless those of `config` have changed since.
    """
    search = config.search.model_dump(mode="json")
    changes: dict[str, dict[str, Any]] = {GENERATION: {"search": search}}
    if config.task == "classification":
        changes[CONFIG] = {"label_names": dict(config.data.label_names)}
    has_changed = False
    for name, changed in changes.items():
        try:
            values = read_object(folder / name)
        except DamagedFile:
            return has_changed
        if name == GENERATION:
            if values.get(BEFORE) == search:
                continue
            report_loss(folder, values)
        kept = {key: value for key, value in values.items() if name != GENERATION or key not in (TUNED, BEFORE)}
        if kept | changed != values:
            atomic.write_file(folder / name, json_text(kept | changed).encode())
            has_changed = True
    return has_changed


def update_search(folder: Path, search: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Change keys of a model folder's search settings, and store with them how they were `found`, and what they were.
    The scores in the card are then those after the change.

    Raises:
        ModelError: it is not a model folder of seq2seq, or damaged.
    """
    try:
        _check_format(folder, read_object(folder / CONFIG))
        values = read_object(folder / GENERATION)
    except DamagedFile as error:
        raise ModelError(f"{folder}: {error}; copy the folder again, or train the model anew") from error
    before, was_tuned = values.get(BEFORE, values["search"]), is_tuned(values)
    values |= {"search": values["search"] | search, TUNED: found, BEFORE: before}
    atomic.write_file(folder / GENERATION, json_text(values).encode())
    if (was_tuned or is_tuned(values)) and (folder / CARD).is_file():
        card = (folder / CARD).read_text("utf-8", errors="replace")
        atomic.write_file(folder / CARD, tuned_card(card, values).encode())


def load_model(folder: str | Path) -> LoadedModel:
    """Load a model folder, the best model of a run folder, a folder of transformers (Marian, M2M-100, NLLB, mBART), or
    any of them from the hub by name.

    Raises:
        ModelError: it is not a model folder, or a file is missing, damaged, or does not fit the others; or the weights
            are larger than the memory of this machine.
    """
    return _load(find_model(folder), with_weights=True)


def load_outline(folder: str | Path) -> LoadedModel:
    """Load a model as `load_model` does, but without its weights and the memory for them: its module is on the meta
    device. Only a Marian folder is loaded with them.

    Raises:
        ModelError: as `load_model`.
    """
    return _load(find_model(folder), with_weights=False)


def _load(folder: Path, with_weights: bool) -> LoadedModel:
    try:
        info = read_object(folder / CONFIG)
        if with_weights or info.get("model_type") == "marian":
            check_room(folder)
        if is_foreign(info):
            return load_foreign(folder, with_weights=with_weights)
        _check_format(folder, info)
        generation = read_object(folder / GENERATION)
        description = _read_description(info, generation)
        files = _listed_files(info, description.task)
        for name, recorded in files.items():
            verify(folder / name, recorded)
        tokenizers = _load_tokenizers(folder, info, generation, description.task)
        model = _build(folder, description, tokenizers, with_weights)
    except DamagedFile as error:
        raise ModelError(f"{folder}: {error}; copy the folder again, or train the model anew") from error
    return LoadedModel(description, model.eval(), tokenizers, folder, files)


def load_foreign(
    folder: Path, torch_file: bool = False, model_type: str | None = None, with_weights: bool = True
) -> LoadedModel:
    """Load a folder of transformers, of an architecture in `interop.architectures`; `torch_file` as in `read_marian`,
    `with_weights` as in `read_m2m`.

    Raises:
        ModelError: the folder is not of `model_type`, a file is missing or damaged, or settings are not supported; the
            message names all of them.
    """
    description: ModelDescription
    tokenizers: TokenizerPair
    found = _model_type(folder)
    if model_type not in (None, found):
        raise ModelError(f"{folder}: a model of {FOREIGN[found]}; name that with --from")
    if found == "marian":
        from seq2seq.interop.marian import read_marian

        description, tokenizers, weights = read_marian(folder, torch_file)
        with Uninitialized():
            model = new_module(description, tokenizers)
        load_tied(model, weights)
    else:
        from seq2seq.interop.m2m import read_m2m

        description, tokenizers, model = read_m2m(folder, torch_file, with_weights)
    files = {path.name: record(path) for path in sorted(folder.iterdir()) if path.suffix in (".safetensors", ".bin")}
    return LoadedModel(description, model.eval(), tokenizers, folder, files)


def _model_type(folder: Path) -> str:
    """Return the architecture that transformers' config.json names.

    Raises:
        ModelError: it is not one that is read.
    """
    try:
        info = read_object(folder / CONFIG)
    except DamagedFile as error:
        raise ModelError(f"{folder}: {error}; copy the folder again") from error
    if not is_foreign(info):
        raise ModelError(f"{folder}: model_type {shown(info.get('model_type'))} (possible: {', '.join(FOREIGN)})")
    return info["model_type"]


def _check_format(folder: Path, info: Mapping[str, Any]) -> None:
    if (folder / "model.bin").is_file():
        raise ModelError(f"{folder}: a CTranslate2 folder, which can only translate; name the model it was made from")
    if info.get("format") != FORMAT:
        raise ModelError(f"{folder}: {CONFIG} is not that of a seq2seq model (no 'format': '{FORMAT}')")
    if (version := info.get("format_version")) != FORMAT_VERSION:
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
        description = ModelDescription.model_validate({**info, "search": generation.get("search")})
    except ValidationError as error:
        from seq2seq.config.problems import describe

        problem = error.errors()[0]
        raise DamagedFile(f"{GENERATION if 'search' in problem['loc'] else CONFIG}: {describe(problem)}") from error
    if not is_tuned(generation):
        return description
    return description.model_copy(update={"metrics": tuned_metrics(description.metrics, generation)})


def _listed_files(info: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Return the entries of config.json for the other files, which must be exactly those of a model of this task.

    Tokenizers that came from other toolkits also have files of vocabularies and languages.
    """
    expected = {WEIGHTS, SOURCE_FILE} | ({TARGET_FILE} if task == "translation" else set())
    files = info.get("files")
    if (
        not isinstance(files, dict)
        or set(files) - {VOCABULARY_FILE, TARGET_VOCABULARY_FILE, LANGUAGES_FILE} != expected
    ):
        raise DamagedFile(f"{CONFIG} does not list the files {', '.join(sorted(expected))}")
    if not all(isinstance(entry, dict) and {"sha256", "size"} <= set(entry) for entry in files.values()):
        raise DamagedFile(f"{CONFIG} lists files without their size and sha256")
    return files


def _load_tokenizers(folder: Path, info: Mapping[str, Any], generation: Mapping[str, Any], task: str) -> TokenizerPair:
    try:
        tokenizers = load_tokenizers(folder, info["files"])
    except UserError as error:
        raise DamagedFile(str(error)) from error
    if info.get("tokenizers") != {side: getattr(tokenizers, side).fingerprint for side in SIDES[task]}:
        raise DamagedFile("the .spm files are not those of the tokenizers that this model was trained with")
    for name in SPECIAL_IDS:
        if generation.get(name) != getattr(tokenizers.target, name):
            raise DamagedFile(f"{GENERATION}: {name} {shown(generation.get(name))} is not the tokenizer's")
    return tokenizers


def _build(folder: Path, description: ModelDescription, tokenizers: TokenizerPair, with_weights: bool) -> nn.Module:
    """Return the module, with its weights or on the meta device; shapes are compared before memory is allocated."""
    config, stored = description.model, FileTensors([folder / WEIGHTS])
    if config.num_encoder_layers + config.num_decoder_layers > len(stored.shapes):
        raise DamagedFile(f"{CONFIG} describes a model far larger than {WEIGHTS}")
    with Uninitialized("meta"):
        model = new_module(description, tokenizers)
    if problem := mismatch(distinct(model.state_dict(keep_vars=True)), stored.outlines()):
        raise DamagedFile(f"{WEIGHTS} does not fit the model that {CONFIG} describes: {problem}")
    if with_weights:
        give_memory(model)
        for name, tensor in distinct(model.state_dict()).items():
            copy_rows(stored, name, tensor)
    return model


def new_module(description: ModelDescription, tokenizers: TokenizerPair) -> nn.Module:
    """Return a model with random weights."""
    config, sizes = description.model, (tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    if description.task == "translation":
        return Transformer(config, *sizes)
    from seq2seq.model.classifier import EncoderClassifier

    return EncoderClassifier(config, description.classifier, sizes[0], len(description.labels))
