"""The folder of one run: what is where in it, whether a run may go on in it, and which run is the newest.

`tasks.run` opens it before anything heavy starts. What the trainer keeps in it (checkpoints, metrics) is the trainer's.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seq2seq import atomic, config_file
from seq2seq.config import Config
from seq2seq.errors import ConfigError, UserError
from seq2seq.store.model_folder import LATEST, RUNS
from seq2seq.tasks.identity import (
    TOKENIZER,
    config_changes,
    content_changes,
    fingerprint_of,
    makes_other_tokenizers,
    may_change,
    read_identity,
    write_identity,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run; `at` makes one of what a user typed."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> "RunFolder":
        """The folder itself, whatever links and dots lead to it: one run has one path.

        Raises:
            UserError: a link leads nowhere.
        """
        is_latest = path.name == LATEST and path.parent.resolve() == RUNS.resolve()
        if is_latest and not path.is_symlink() and not path.exists():
            raise UserError(f"{path}: is the link to the newest run, and there is none yet; choose another --run-dir")
        try:
            resolved, here = path.resolve(), Path.cwd().resolve()
        except (OSError, RuntimeError):  # a link that leads to itself
            resolved = None
        if resolved is None or (path.is_symlink() and not resolved.exists()):
            raise UserError(f"{path}: a link that leads nowhere; delete it, or make the folder that it names")
        return cls(resolved.relative_to(here) if here in resolved.parents else resolved)

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def identity(self) -> Path:
        """Fingerprints of what the run is trained with."""
        return self.path / "identity.json"

    @property
    def tokenizer(self) -> Path:
        """The tokenizers that the run was started with."""
        return self.path / "tokenizer"

    @property
    def best(self) -> Path:
        """The model folder of the best model so far."""
        return self.path / "best"

    @property
    def metrics(self) -> Path:
        """What was measured, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def curves(self) -> Path:
        """The learning curves."""
        return self.path / "curves.png"

    @property
    def checkpoints(self) -> Path:
        """What the run goes on from."""
        return self.path / "checkpoints"

    @property
    def test_scores(self) -> Path:
        """The scores of the best model on the test sets, and what they were measured with."""
        return self.path / "test_scores.json"

    @property
    def has_learned(self) -> bool:
        """Whether there is something to go on from, or a model to lose."""
        return any(self.checkpoints.glob("step_*")) or self.best.is_dir()

    def cache(self, config: Config) -> Path:
        """Where tokenised corpora are kept: beside the runs, so that they share them."""
        return config.data.cache_dir or self.path.parent / "cache"


def differences(folder: RunFolder, config: Config, now: Mapping[str, str]) -> list[tuple[str, str]]:
    """(key, what happened to it) of what is not as the run in the folder began; without a run there, nothing.

    `now` are the fingerprints of what the configuration names, as far as they are known.
    """
    if not folder.config.exists():
        return []
    found = config_changes(config_file.reread(folder.config), config)
    if folder.tokenizer.is_dir():
        now = {**now, TOKENIZER: fingerprint_of(folder.tokenizer)}
    return found + content_changes(read_identity(folder.identity) or {}, config, now)


def refusal(folder: RunFolder, changed: Sequence[tuple[str, str]]) -> ConfigError | None:
    """Why a run that has learned something cannot go on when this changed, and what else can be done; or None."""
    frozen = [f"{key}: {what}" for key, what in changed if not may_change(key)]
    if not frozen or not folder.has_learned:
        return None
    ways = ["put it back", "start over with --overwrite", "choose another --run-dir"]
    if folder.best.is_dir():
        ways.append(f"train on from its best model: --set training.init_from={folder.path} --run-dir {folder.path}-2")
    return ConfigError(str(folder.config), [*frozen, f"{folder.path} was trained otherwise; {', or '.join(ways)}"])


def check_place(folder: RunFolder, config: Config) -> None:
    """Say whether there may be a run in this folder; changes nothing.

    Raises:
        UserError: the folder holds something else than a run, or is for something else.
    """
    if folder.path.resolve() == folder.cache(config).resolve():
        raise UserError(f"{folder.path}: is where tokenised corpora are kept; choose another --run-dir")
    initial = config.training.init_from.resolve() if config.training.init_from else None
    if initial and folder.path.resolve() in (initial, *initial.parents):
        raise UserError(f"{folder.path}: holds the model of training.init_from; choose another --run-dir")
    if not folder.path.exists():
        return
    if not folder.path.is_dir():
        raise UserError(f"{folder.path}: a file is in the way of the run folder; choose another --run-dir")
    if not folder.config.exists() and any(not entry.name.startswith(".") for entry in folder.path.iterdir()):
        raise UserError(f"{folder.path}: not empty and not a run folder; choose another --run-dir")


def open_folder(folder: RunFolder, config: Config, overwrite: bool, now: Mapping[str, str]) -> None:
    """Make the folder, or go on in it: what is stale is deleted, what the run is trained with is written down.

    `now` are the fingerprints of what the configuration names. The folder becomes the newest run.

    Raises:
        ConfigError: the run there has learned from something else; each thing that differs has a line.
        UserError: it is to be emptied, and may not be.
    """
    if folder.path.is_dir():
        atomic.remove_leftovers(folder.path)
    if overwrite and folder.config.exists():
        _empty(folder)
    changed = differences(folder, config, now)
    if error := refusal(folder, changed):
        raise error
    before = read_identity(folder.identity)
    if before is None and folder.has_learned:
        logger.warning(
            "%s: begun by an earlier version, which kept no fingerprints of the data; whether they are the same is not "
            "known", folder.path,
        )  # fmt: skip
    elif folder.tokenizer.is_dir() and not folder.has_learned:
        stale = [key for key, _ in changed if makes_other_tokenizers(key)]
        if stale or before is None:
            reason = f"{', '.join(stale)} changed" if stale else "what they were made from is not known"
            logger.info("making the tokenizers again: %s, and nothing was learned yet", reason)
            atomic.remove_folder(folder.tokenizer)
            before = None
    folder.path.mkdir(parents=True, exist_ok=True)
    atomic.write_file(folder.config, config_file.dump(config).encode())
    tokenizers = {key: value for key, value in (before or {}).items() if key == TOKENIZER}
    write_identity(folder.identity, {**now, **tokenizers})
    _make_newest(folder.path)


def note_tokenizers(folder: RunFolder, config: Config) -> None:
    """Write down which tokenizers the run has; those of a run that goes on are the ones that it began with.

    Raises:
        ConfigError: they are not.
    """
    noted, now = read_identity(folder.identity) or {}, {TOKENIZER: fingerprint_of(folder.tokenizer)}
    if error := refusal(folder, content_changes(noted, config, now)):
        raise error
    write_identity(folder.identity, noted | now)


@contextlib.contextmanager
def alone_in(folder: RunFolder) -> Iterator[None]:
    """Keep other processes of this machine from training in the folder at the same time.

    Raises:
        UserError: one does so already.
    """
    folder.path.parent.mkdir(parents=True, exist_ok=True)
    # beside the folder: the lock outlives whatever happens to what is in it
    with atomic.locked(folder.path.parent / f".{folder.path.name}.lock", wait=False) as is_free:
        if not is_free:
            raise UserError(
                f"{folder.path}: another process trains in this folder; wait for it, or choose another --run-dir"
            )
        yield


def _empty(folder: RunFolder) -> None:
    """Delete what is in the folder, and not the folder: it may be where the user is, or where a disk is mounted.

    The checkpoints go first, so that a kill in the middle leaves nothing that could be gone on with.
    """
    for place in (folder.path, *folder.path.rglob("*")):
        if place.is_dir() and not os.access(place, os.W_OK):
            raise UserError(f"{place}: may not be changed; make it writable, or choose another --run-dir")
    for entry in sorted(folder.path.iterdir(), key=lambda entry: (entry != folder.checkpoints, entry != folder.best)):
        if entry.is_dir() and not entry.is_symlink():
            atomic.remove_folder(entry)
        else:
            entry.unlink()


def _make_newest(path: Path) -> None:
    """Let `runs/latest` name the run, where it has a name in `runs/`, be it a link."""
    entries = sorted(RUNS.iterdir()) if RUNS.is_dir() else []
    name = next((entry.name for entry in entries if entry.name != LATEST and _is_same(entry, path)), None)
    latest, temporary = RUNS / LATEST, RUNS / f".{LATEST}.{os.getpid()}"
    if name is None or (latest.is_symlink() and os.readlink(latest) == name):
        return
    try:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(name, target_is_directory=True)
        os.replace(temporary, latest)
    except OSError as error:  # a file system without links, or something that is none under this name
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        logger.warning("%s: not made the newest run (%s); name it as MODEL", path, error.strerror)


def _is_same(entry: Path, path: Path) -> bool:
    try:
        return entry.samefile(path)
    except OSError:  # a link that leads nowhere
        return False
