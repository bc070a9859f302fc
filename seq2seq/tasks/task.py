"""What a task hands to a run, and what the tasks prepare in the same way: tokenizers and records.

`translation.build` and `classification.build` make a `Work`; `tasks.run` trains it.
"""

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from torch import nn

from seq2seq import atomic
from seq2seq.config import Config, SourceConfig
from seq2seq.data.batches import MakeBatch
from seq2seq.data.corpus import TokenCorpus
from seq2seq.data.sources import Source
from seq2seq.errors import ModelError
from seq2seq.inspection.overlap import find_overlap, overlap_warning
from seq2seq.runtime import Runtime
from seq2seq.store.model_card import DataRecord, ScoreRecord
from seq2seq.store.model_folder import LoadedModel
from seq2seq.text.marian_tokenizer import load_tokenizers
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.training.progress import waiting_for
from seq2seq.training.state import Validation
from seq2seq.training.step import ComputeLoss

logger = logging.getLogger(__name__)


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
    score_test_sets: Callable[[Path], Sequence[ScoreRecord]]
    """The scores of the model in a folder on each of `data.test`."""
    measure: str = ""
    """Changes when the scores of equal models would: values of different measures cannot be compared."""
    can_start: bool = False
    """Whether the weights to start from are those of a model that already does the task."""


def max_pieces(config: Config) -> int:
    """Pieces of a text for which the model has positions: beside an end, and a start where a text is classified."""
    return max(1, config.model.max_length - (1 if config.task == "translation" else 2))


def prepare_tokenizers(
    config: Config,
    folder: Path | None,
    initial: LoadedModel | None,
    texts: Callable[[], tuple[Iterable[str], Iterable[str]]],
    runtime: Runtime,
) -> TokenizerPair:
    """The tokenizers of a run: those that it has already, else the initial model's, or new ones.

    Args:
        config: of the run.
        folder: where the run keeps them; None keeps them nowhere.
        initial: the model that training starts from.
        texts: the training text of the source side and of the target side.
        runtime: the main rank trains, the others wait and read.

    Raises:
        ModelError: the run's tokenizers are not, or no longer, those of the initial model.
    """

    def made() -> TokenizerPair:
        if initial is None:
            return _train_tokenizers(config, texts)
        unused = [key for key in sorted(config.tokenizer.model_fields_set) if not key.startswith("sampling")]
        if unused and runtime.is_main:
            logger.warning(
                "tokenizer.%s: not used; the tokenizers come from training.init_from", ", tokenizer.".join(unused)
            )
        return initial.tokenizers

    if folder is None:
        return made()
    if runtime.is_main and not folder.is_dir():
        save_tokenizers(made(), folder)
    runtime.barrier()
    tokenizers = load_tokenizers(folder)
    if initial is not None and initial.tokenizers.fingerprint != tokenizers.fingerprint:
        raise ModelError(
            f"training.init_from: {initial.folder} has another vocabulary than {folder}, with which this run began; "
            "put that model back, or start over with --overwrite"
        )
    return tokenizers


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
    with atomic.locked_if_possible(path.with_suffix(".lock")):
        notes = _stored_notes(path)
        if notes is None:
            with waiting_for("comparing the training corpus with the validation and test sets"):
                found = overlap_warning(find_overlap(chain.from_iterable(train), held_out))
            notes = [found] if found else []
            with contextlib.suppress(OSError):  # where nothing can be kept, the next run looks again
                atomic.write_file(path, json.dumps(notes).encode())
    for note in notes:
        logger.warning("%s", note)
    return notes or [
        "No training example is equal to one of the validation and test sets without case, punctuation and space."
    ]


def _stored_notes(path: Path) -> list[str] | None:
    """What was found before; None where nothing is stored, or something else than notes."""
    try:
        notes = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return notes if isinstance(notes, list) and all(isinstance(note, str) for note in notes) else None


def _train_tokenizers(config: Config, texts: Callable[[], tuple[Iterable[str], Iterable[str]]]) -> TokenizerPair:
    logger.info("training the tokenizer (%s, %s pieces)", config.tokenizer.kind, f"{config.tokenizer.vocab_size:,}")
    source, target = texts()
    with waiting_for("training the tokenizer"):
        return _trained_on(source, target, config)


def _trained_on(source: Iterable[str], target: Iterable[str], config: Config) -> TokenizerPair:
    if config.task == "classification" or config.tokenizer.shared:
        shared = Tokenizer.train(_both(source, target), config.tokenizer, config.seed)
        return TokenizerPair(shared, shared)
    return TokenizerPair(
        Tokenizer.train(source, config.tokenizer, config.seed), Tokenizer.train(target, config.tokenizer, config.seed)
    )


def _both(*sides: Iterable[str]) -> Iterable[str]:
    for side in sides:
        yield from side
