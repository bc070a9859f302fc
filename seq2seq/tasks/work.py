"""What a task hands to a run, and what the tasks prepare in the same way: tokenizers, weights to start from, records.

`translation.build` and `classification.build` make a `Work`; `tasks.run` trains it.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from torch import nn

from seq2seq import atomic
from seq2seq.config import Config, SourceConfig
from seq2seq.data.batches import MakeBatch
from seq2seq.data.corpus import TokenCorpus
from seq2seq.data.overlap import find_overlap, overlap_warning
from seq2seq.data.sources import Source
from seq2seq.errors import ConfigError
from seq2seq.model_card import DataRecord, ScoreRecord
from seq2seq.model_folder import LoadedModel, load_model
from seq2seq.runtime import Runtime
from seq2seq.tokenizer import Tokenizer, TokenizerPair
from seq2seq.training.state import Validation
from seq2seq.training.step import ComputeLoss

logger = logging.getLogger(__name__)

# What may differ from the model that training starts from: it adds no weights and changes no shapes.
FREE_KEYS = frozenset({"preset", "dropout", "attention_dropout", "activation_dropout", "word_dropout", "max_length"})
# What only a decoder has, so that a classifier does not care.
DECODER_KEYS = frozenset({"num_decoder_layers", "tied_embeddings", "output_bias"})


@dataclass(frozen=True)
class Work:
    """All that differs between the tasks."""

    model: nn.Module
    """On the processor, with the weights to start from."""
    tokenizers: TokenizerPair
    labels: tuple[str, ...]
    corpus: TokenCorpus
    """Of training."""
    make_batch: MakeBatch
    compute_loss: ComputeLoss
    validate: Callable[[nn.Module], Validation]
    data: tuple[DataRecord, ...]
    """For the model card."""
    notes: tuple[str, ...]
    score_records: Callable[[Mapping[str, float]], Sequence[ScoreRecord]]
    """The scores of a validation, with signatures, for the model card."""


def load_initial(config: Config) -> LoadedModel | None:
    """The model that training starts from, if the configuration names one."""
    return load_model(config.training.init_from) if config.training.init_from else None


def complete(config: Config, initial: LoadedModel | None) -> Config:
    """The configuration with the shape of the initial model; without one, as it is.

    Raises:
        ConfigError: a key that was written out says something else than the initial model.
    """
    if initial is None:
        return config
    theirs: Mapping[str, Any] = dict(initial.model.config)
    ours = dict(config.model)
    free = FREE_KEYS | (DECODER_KEYS if config.task == "classification" else frozenset())
    if ours["positions"] == "learned":
        free -= {"max_length"}
    written = config.model.model_fields_set - free
    problems = [
        f"model.{key}: {ours[key]}, but the model of training.init_from has {theirs[key]}; leave the key out"
        for key in sorted(written)
        if ours[key] != theirs[key]
    ]
    if problems:
        raise ConfigError("config", problems)
    kept = {key: ours[key] for key in free}
    model = type(config.model).model_validate({**theirs, **kept, "preset": None})
    return config.model_copy(update={"model": model})


def prepare_tokenizers(
    config: Config,
    folder: Path | None,
    initial: LoadedModel | None,
    texts: Callable[[], tuple[Iterable[str], Iterable[str]]],
    runtime: Runtime,
) -> TokenizerPair:
    """The tokenizers of a run: the initial model's, those that the run has already, or new ones.

    Args:
        config: of the run.
        folder: where the run keeps them; None keeps them nowhere.
        initial: the model that training starts from.
        texts: the training text of the source side and of the target side.
        runtime: the main rank trains, the others wait and read.
    """
    if initial is not None:
        tokenizers = initial.tokenizers
        if folder is not None and runtime.is_main:
            save_tokenizers(tokenizers, folder)
        return tokenizers
    if folder is None:
        return _train_tokenizers(config, texts)
    if runtime.is_main and not folder.is_dir():
        save_tokenizers(_train_tokenizers(config, texts), folder)
    runtime.barrier()
    return TokenizerPair.load(folder)


def save_tokenizers(tokenizers: TokenizerPair, folder: Path) -> None:
    """Write both tokenizers, or neither."""
    with atomic.new_folder(folder) as temporary:
        tokenizers.save(temporary)


def data_record(role: str, config: SourceConfig, source: Source, examples: int) -> DataRecord:
    """A corpus for the model card, without the folders of the machine that it lies on."""
    path = config.source or config.tsv or config.jsonl
    name = path.name if path else " ".join(filter(None, (config.hub, config.subset, config.split)))
    return DataRecord(role, name, examples, source.fingerprint[:16])


def overlap_notes(train: Sequence[Source], held_out: Mapping[str, Source], cache: Path, runtime: Runtime) -> list[str]:
    """What training shares with the sets it is judged by: warned about, and returned for the model card.

    The answer is kept in the cache under the fingerprints of all corpora: a run that goes on need not look again.
    """
    identity = [
        [source.fingerprint for source in train],
        {name: source.fingerprint for name, source in held_out.items()},
    ]
    path = cache / f"overlap-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]}.json"
    if not runtime.is_main:
        return []
    if not path.exists():
        found = overlap_warning(find_overlap(chain.from_iterable(train), held_out))
        atomic.write_file(path, json.dumps([found] if found else []).encode())
    notes = json.loads(path.read_bytes())
    for note in notes:
        logger.warning("%s", note)
    return notes or ["No training example is equal or nearly equal to one of the validation and test sets."]


def _train_tokenizers(config: Config, texts: Callable[[], tuple[Iterable[str], Iterable[str]]]) -> TokenizerPair:
    logger.info("training the tokenizer (%s, %d pieces)", config.tokenizer.kind, config.tokenizer.vocab_size)
    source, target = texts()
    if config.task == "classification" or config.tokenizer.shared:
        shared = Tokenizer.train(_both(source, target), config.tokenizer, config.seed)
        return TokenizerPair(shared, shared)
    return TokenizerPair(
        Tokenizer.train(source, config.tokenizer, config.seed), Tokenizer.train(target, config.tokenizer, config.seed)
    )


def _both(*sides: Iterable[str]) -> Iterable[str]:
    for side in sides:
        yield from side
