"""What a run is trained with: what is kept of it in the run's folder, and what may be different when the run goes on.

Beside `config.yaml`, which says it in words, `identity.json` has the fingerprints of the corpora, of the tokenizers and
of the initial model. `tasks.run` compares both before it goes on.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq import atomic, config_file
from seq2seq.config import Config, SourceConfig
from seq2seq.data.examples import Source
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.store.model_folder import LoadedModel

# What may have another value when a run goes on, and what then happens. A name of a section stands for all its keys.
CHANGEABLE = {
    "data.test": "the test sets are scored again at the end, also where the run had finished",
    "data.label_names": "`best/` shows the new names from now on",
    "data.cache_dir": "corpora are tokenised again where the new place does not have them",
    "data.num_workers": "another speed, the same corpus",
    "search": "the best model so far is measured anew, and `best/` searches as the config says",
    "evaluation": "the best model so far is measured anew",
    "training.max_steps": "the run goes further or ends earlier; `cosine` and `linear` follow the new end",
    "training.max_epochs": "as `max_steps`",
    "training.max_minutes": "as `max_steps`; time already trained counts",
    "training.patience": "counts the validations since the best one, also those before the change",
    "training.validate_every": "what is learned stays the same",
    "training.checkpoint_every": "what is learned stays the same",
    "training.keep_last": "holds from the next checkpoint on; what was deleted does not come back",
    "training.keep_best": "as `keep_last`",
    "training.average": "decided at the end of training",
    "training.average_count": "as `average`; of the checkpoints that are still there",
    "training.log_every": "what is learned stays the same",
    "training.num_samples": "what is learned stays the same",
    "training.max_bad_steps": "holds from now on",
    "training.max_rollbacks": "holds from now on; earlier roll-backs count",
    "training.device": "the same training, not the same bits",
    "training.threads": "the same training, not always the same bits",
    "training.shard": "the same training, not the same bits",
}
# What tokenizers are trained from: these keys, and the content of the corpora or of the initial model.
MAKES_TOKENIZERS = ("task", "seed", "tokenizer", "data.train", "data.filters", "training.init_from")
TOKENIZER = "tokenizer"


@dataclass(frozen=True)
class Sources:
    """The corpora of a run, opened: their fingerprints are known, and nothing of them is held."""

    train: tuple[Source, ...]
    valid: Source
    tests: Mapping[str, Source]

    @classmethod
    def open(cls, config: Config, cache: Path) -> "Sources":
        """The corpora of the configuration; what has to be known of large files is kept in the folder `cache`.

        Raises:
            DataError: a corpus cannot be read as what it was said to be.
        """

        def opened(source: SourceConfig) -> Source:
            if config.task == "classification":
                return open_labelled(source, cache)
            return open_pairs(source, config.source_language or "", config.target_language or "", cache)

        data = config.data
        tests = {name: opened(source) for name, source in data.test.items()}
        return cls(tuple(map(opened, data.train_sources)), opened(data.valid), tests)


def may_change(key: str) -> bool:
    """Whether a run that has learned something goes on when this key has another value."""
    return _is_in(key, CHANGEABLE)


def identity(config: Config, sources: Sources, initial: LoadedModel | None) -> dict[str, str]:
    """By key of the configuration, the fingerprint of what it names."""
    train = config.data.train
    keys = ["data.train"] if isinstance(train, SourceConfig) else [f"data.train.{i}" for i in range(len(train))]
    found = dict(zip(keys, (source.fingerprint for source in sources.train), strict=True))
    found["data.valid"] = sources.valid.fingerprint
    if initial is not None:
        content = [initial.files, initial.tokenizers.fingerprint]
        found["training.init_from"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return found


def config_changes(old: Config, new: Config) -> list[tuple[str, str]]:
    """(key, what happened to it) of every setting that differs."""
    return [(key, f"was {_shown(before)}, now {_shown(after)}") for key, before, after in config_file.changes(old, new)]


def content_changes(old: Mapping[str, str], config: Config, now: Mapping[str, str]) -> list[tuple[str, str]]:
    """(key, what happened to it) of everything in both identities whose content is another."""
    return [
        (key, f"{_named(key, config)} changed since the run began")
        for key, fingerprint in now.items()
        if old.get(key, fingerprint) != fingerprint
    ]


def makes_other_tokenizers(key: str) -> bool:
    """Whether tokenizers have to be trained again when what this key names is another."""
    return _is_in(key, MAKES_TOKENIZERS)


def read_identity(path: Path) -> dict[str, str] | None:
    """The identity in a file; None where there is none, as in runs of earlier versions, or it is damaged."""
    values = read_noted(path)
    return values if values and all(isinstance(value, str) for value in values.values()) else None


def read_noted(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a run; an empty one where there is none."""
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def write_identity(path: Path, values: Mapping[str, str]) -> None:
    """Write it whole or not at all."""
    atomic.write_file(path, (json.dumps(values, indent=1) + "\n").encode())


def fingerprint_of(folder: Path) -> str:
    """Of the names and contents of all files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _named(key: str, config: Config) -> str:
    """What a key names, for a message."""
    if key == TOKENIZER:
        return "a file in the run's folder of tokenizers"
    if key == "training.init_from":
        return str(config.training.init_from)
    sources: Sequence[SourceConfig] = config.data.train_sources
    number = key.removeprefix("data.train").removeprefix(".")
    source = config.data.valid if key == "data.valid" else sources[int(number or 0)]
    return " or ".join(str(path) for _, path in source.files()) or str(source.hub)


def _is_in(key: str, keys: Sequence[str] | Mapping[str, str]) -> bool:
    return any(key == one or key.startswith(one + ".") for one in keys)


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)
