"""The folder of one run: what is where in it, whether a run may go on in it, and which run is the newest.

`tasks.run` opens it before anything heavy starts. What the trainer keeps in it (checkpoints, metrics) is the trainer's.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seq2seq import atomic, config_file
from seq2seq.config import Config
from seq2seq.errors import ConfigError, UserError

RUNS, LATEST = "runs", "latest"


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

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
    def has_checkpoints(self) -> bool:
        """Whether there is something to go on from."""
        return any((self.path / "checkpoints").glob("step_*"))

    def cache(self, config: Config) -> Path:
        """Where tokenised corpora are kept: beside the runs, so that they share them."""
        return config.data.cache_dir or self.path.parent / "cache"


def check(folder: RunFolder, config: Config, overwrite: bool) -> None:
    """Say whether a run of this configuration may start or go on here; changes nothing.

    Raises:
        ConfigError: the run there has checkpoints of another configuration; each key that differs has a line.
        UserError: the folder holds something else than a run.
    """
    if not folder.path.exists():
        return
    if not folder.path.is_dir():
        raise UserError(f"{folder.path}: a file is in the way of the run folder; choose another --run-dir")
    if not folder.config.exists():
        if any(entry for entry in folder.path.iterdir() if not entry.name.startswith(".")):
            raise UserError(f"{folder.path}: not empty and not a run folder; choose another --run-dir")
        return
    if overwrite or not folder.has_checkpoints:
        return
    before = config_file.load(folder.config)
    frozen = [change for change in config_file.changes(before, config) if not config_file.may_change(change[0])]
    if frozen:
        lines = [f"{key}: was {_shown(old)}, now {_shown(new)}" for key, old, new in frozen]
        remedy = f"{folder.path} has checkpoints of another configuration; choose another --run-dir, or --overwrite"
        raise ConfigError(str(folder.config), [*lines, remedy])


def open_folder(folder: RunFolder, config: Config, overwrite: bool) -> None:
    """Make the folder, empty it if asked to, write its `config.yaml`, and make it the newest run.

    Raises:
        UserError: it is to be emptied, and may not be.
    """
    if overwrite and folder.config.exists():
        _check_deletable(folder.path)
        atomic.remove_folder(folder.path)
    folder.path.mkdir(parents=True, exist_ok=True)
    atomic.write_file(folder.config, config_file.dump(config).encode())
    if folder.path.resolve().parent == Path(RUNS).resolve():
        _point_to(folder.path)


@contextlib.contextmanager
def alone_in(folder: RunFolder) -> Iterator[None]:
    """Keep other processes of this machine from training in the folder at the same time.

    Raises:
        UserError: one does so already.
    """
    folder.path.parent.mkdir(parents=True, exist_ok=True)
    # beside the folder, which may be deleted and made again
    with open(folder.path.parent / f".{folder.path.name}.lock", "wb") as file:
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"{folder.path}: another process trains in this folder; wait for it, or choose another --run-dir"
            ) from error
        yield


def _check_deletable(path: Path) -> None:
    for place in (path, *path.rglob("*")):
        if place.is_dir() and not os.access(place, os.W_OK):
            raise UserError(f"{place}: may not be changed; make it writable, or choose another --run-dir")


def _point_to(path: Path) -> None:
    temporary = path.parent / f".{LATEST}.{os.getpid()}"
    # a file system without links: then MODEL has to be named
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(path.name, target_is_directory=True)
        os.replace(temporary, path.parent / LATEST)


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)
