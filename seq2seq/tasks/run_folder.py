"""The folder of one run: its paths, its lock, and whether its run may continue with a changed configuration.

Next to `config.yaml` it has `identity.json`, the fingerprints of the corpora, the tokenizers and the initial model that
the run began with. `tasks.run` compares both with the current ones; the trainer writes checkpoints and metrics.
"""

import contextlib
import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from logging import getLogger
from pathlib import Path
from typing import Any

from seq2seq import atomic
from seq2seq.config import file as config_file
from seq2seq.config.corpora import FILES
from seq2seq.config.schema import Config
from seq2seq.errors import ConfigError, UserError, shown
from seq2seq.files import DamagedFile, json_text, read_object
from seq2seq.lines import read_records
from seq2seq.store.finding import BEST, CONFIG, LATEST, RUN_CONFIG, RUN_METRICS, RUNS

logger = getLogger(__name__)

# The keys, or sections, that do not change the learned model, apart from rounding.
WITHOUT_EFFECT = (
    *("data.test", "data.cache_dir", "data.num_workers", "training.checkpoint_every", "training.keep_last"),
    *("training.keep_best", "training.log_every", "training.num_samples", "training.trackers"),
    *("training.track_samples", "training.device", "training.threads", "training.shard", "training.compile"),
    *("training.recompute", "training.record"),
)
LIMITS = ("training.max_steps", "training.max_epochs", "training.max_minutes", "training.patience")
# Those that may change when a run continues. With `data.test`, the test sets are scored again, even after the run has
# finished. With `search` and `evaluation`, the best model is measured again. With a limit, the run becomes longer or
# shorter, and the schedule follows. `keep_*` applies from then on.
CHANGEABLE = (
    *("data.label_names", "search", "evaluation", *LIMITS),
    *("training.validate_every", "training.max_bad_steps", "training.max_rollbacks"),
    *WITHOUT_EFFECT,
)
# Tokenizers depend on these keys, and on the content of the corpora or of the initial model.
MAKES_TOKENIZERS = (
    *("task", "seed", "languages", "tokenizer", "data.train", "data.filters", "training.init_from"),
    "training.vocabulary",
)
TOKENIZER = "tokenizer"
FIXED_SHAPES = "fixed_shapes"
SEARCH = "search"  # the search settings that the initial model had
SAVED, EMPTIED = "saved", "emptied"  # whether the run ended with a checkpoint, and whether --overwrite began
# What a run writes in addition to its configuration and its identity. `--overwrite` deletes it, in this order: after a
# kill, nothing can continue from the rest.
WRITTEN = (
    *("checkpoints", BEST, "tokenizer", RUN_METRICS, "samples.txt", "curves.png", "test_scores.json", "made_with.json"),
    *("cleaned.json", "new_limits.json", "added-pieces.tsv", "tensorboard", "trackers.json", "wandb"),
)


class RunFolder:
    """The paths of a run; `at` makes the object from a user's path."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / RUN_CONFIG  # the resolved configuration
        self.identity = path / "identity.json"  # fingerprints of what the run is trained with
        self.tokenizer = path / "tokenizer"
        self.checkpoints = path / "checkpoints"
        self.best = path / BEST  # the model folder of the best model so far
        self.metrics = path / RUN_METRICS  # one JSON object a line
        self.curves = path / "curves.png"
        self.test_scores = path / "test_scores.json"  # of the best model, with the test sets and settings
        self.made_with = path / "made_with.json"  # code, packages and machine of the latest start
        self.cleaned = path / "cleaned.json"  # how far the run was when its checkpoints were deleted
        self.new_limits = path / "new_limits.json"  # limits that changed; until training ends, the run is not finished

    @classmethod
    def at(cls, path: Path) -> "RunFolder":
        """Return the run folder with links and dots resolved, so that a run has only one path.

        Raises:
            UserError: the path is a broken link.
        """
        is_latest = path.name == LATEST and path.parent.resolve() == RUNS.resolve()
        if (path.is_symlink() or is_latest) and not path.exists():
            raise UserError(
                f"{path}: {'the link to the newest run' if is_latest else 'a link'} leads nowhere; "
                "choose another --run-dir"
            )
        resolved, here = path.resolve(), Path.cwd().resolve()
        return cls(resolved.relative_to(here) if here in resolved.parents else resolved)

    @property
    def has_learned(self) -> bool:
        """Whether there is a checkpoint or a model."""
        return any(self.checkpoints.glob("step_*")) or self.best.is_dir()

    @property
    def is_run(self) -> bool:
        """Whether a run began in the folder. A `config.yaml` alone, or next to files of another toolkit, is a user's.

        A run that was killed at its beginning may have its identity alone. Runs of version 0.1.0 have none.
        """
        if not self.config.exists():
            return [*self.path.glob("[!.]*")] == [self.identity]
        of_older = chain(self.tokenizer.glob("*.spm"), self.checkpoints.glob("step_*/state.json"))
        return self.identity.exists() or any(of_older)

    def cache(self, config: Config) -> Path:
        """Return the folder of tokenised corpora; by default the runs of one folder share it."""
        return config.data.cache_dir or self.path.parent / "cache"

    def check(self, config: Config) -> None:
        """Check that a run may be in this folder; changes nothing.

        Raises:
            UserError: the folder contains something other than a run, or is used for something else.
        """
        path, initial = self.path.resolve(), config.training.init_from
        is_file = path.exists() and not path.is_dir()
        problems = {
            "is the folder of tokenised corpora": path == self.cache(config).resolve(),
            "holds the model of training.init_from": initial
            and path in (initial.resolve(), *initial.resolve().parents),
            "is a file": is_file,
            "not empty and not a run folder": not self.is_run and not is_file and any(path.glob("[!.]*")),
        }
        if problem := next((problem for problem, applies in problems.items() if applies), ""):
            raise UserError(f"{self.path}: {problem}; choose another --run-dir")

    @property
    def lock(self) -> Path:
        """The lock file, next to the folder, so that it stays when the content is deleted; the same for every path to
        the folder."""
        path = self.path.resolve()
        return path.parent / f".{path.name}.lock"

    def is_training(self) -> bool:
        """Whether a process of this machine trains in the folder."""
        if not self.lock.exists():
            return False
        with contextlib.suppress(OSError), atomic.locked(self.lock, wait=False) as is_free:
            return not is_free
        return False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes of this machine from training in the folder at the same time.

        Raises:
            UserError: another process trains in the folder.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.locked(self.lock, wait=False) as is_free:
            if not is_free:
                raise UserError(
                    f"{self.path}: another process trains in this folder; wait for it, or choose another --run-dir"
                )
            yield

    def empty(self) -> None:
        """Delete what the run wrote, and keep other files in the folder.

        The configuration and the identity stay until they are replaced: after a kill, the folder still counts as a run,
        and no configuration is lost.

        Raises:
            UserError: a folder in it is not writable.
        """
        written = [path for path in (self.path / name for name in WRITTEN) if path.exists() or path.is_symlink()]
        for folder in (self.path, *written, *chain.from_iterable(path.rglob("*") for path in written)):
            if folder.is_dir() and not os.access(folder, os.W_OK):
                raise UserError(f"{folder}: is not writable; make it writable, or choose another --run-dir")
        write_note(self.identity, read_note(self.identity) | {EMPTIED: True})
        for path in written:
            if path.is_dir() and not path.is_symlink():
                atomic.remove_folder(path)
            else:
                path.unlink()

    def keep_table(self, table: Path | None) -> None:
        """Copy the table of the pieces that `training.vocabulary` added, unless it is empty."""
        if table is not None and (content := table.read_bytes()):
            atomic.write_file(self.path / table.name, content)

    def note_saved(self) -> None:
        """Note in the identity that the run has a checkpoint, if it has one."""
        if any(self.checkpoints.glob("step_*")):
            write_note(self.identity, read_note(self.identity) | {SAVED: True})

    def make_newest(self) -> None:
        """Let the link `runs/latest` name the run, if the run is in `runs/`, as a folder or as a link."""
        names = [entry.name for entry in sorted(RUNS.glob("*")) if entry.name != LATEST and entry.exists()]
        name = next((name for name in names if (RUNS / name).samefile(self.path)), None)
        latest, temporary = RUNS / LATEST, RUNS / f".{LATEST}.{os.getpid()}"
        if name is None or (latest.is_symlink() and os.readlink(latest) == name):
            return
        try:
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(name, target_is_directory=True)
            os.replace(temporary, latest)
        except OSError as error:  # a file system without links, or a folder of this name
            temporary.unlink(missing_ok=True)
            logger.warning(
                "%s: runs/latest does not lead to this run (%s); name the run as MODEL", self.path, error.strerror
            )


def may_change(key: str) -> bool:
    """Whether a run that has learned something may continue with another value of this key."""
    return _is_in(key, CHANGEABLE)


def changes_model(key: str) -> bool:
    """Whether the learned model depends on this key by more than rounding."""
    return not _is_in(key, WITHOUT_EFFECT)


def differences(folder: RunFolder, config: Config, now: Mapping[str, str]) -> dict[str, str]:
    """Return, by key, a description of what has changed since the run in the folder began; empty without a run.

    `now` contains the current fingerprints by key (`Inputs.identity`). A path is no difference if the fingerprint of
    what it leads to is the same.
    """
    if not folder.config.exists():
        return {}
    if folder.tokenizer.is_dir():
        now = {**now, TOKENIZER: _fingerprint_of(folder.tokenizer)}
    before = read_note(folder.identity)
    content = {
        key: f"{_named(key, config)} changed since the run began"
        for key, fingerprint in now.items()
        if before.get(key, fingerprint) != fingerprint
    }
    same = paths_of(key for key, fingerprint in now.items() if before.get(key) == fingerprint)
    settings = changes(config_file.load(folder.config, check_files=False), config)
    return content | {key: f"was {_written(old)}, now {_written(new)}" for key, old, new in settings if key not in same}


def paths_of(fingerprints: Iterable[str]) -> set[str]:
    """Return the keys of the paths for whose contents an identity has these fingerprints, given by their keys."""
    return {path for key in fingerprints for path in (key, *(f"{key}.{kind}" for kind in (*FILES, "hub")))}


def changes(old: Config, new: Config) -> list[tuple[str, Any, Any]]:
    """Return (key, old value, new value) of every setting that differs."""
    before, after = (dict(config_file.settings_of(each.model_dump(mode="json"))) for each in (old, new))
    keys = dict.fromkeys([*before, *after])
    return [(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]


def refusal(folder: RunFolder, changed: Mapping[str, str]) -> ConfigError | None:
    """Return the error, with remedies, if a run that has learned something cannot continue with these changes."""
    frozen = [f"{key}: {what}" for key, what in changed.items() if not may_change(key)]
    if not frozen or not folder.has_learned:
        return None
    ways = ["undo the change", "start over with --overwrite", "choose another --run-dir"]
    ways += [_from_its_best(folder)] * folder.best.is_dir()
    frozen.append(f"{folder.path} was trained with other settings; {', or '.join(ways)}")
    return ConfigError(str(folder.config), frozen)


def stale_tokenizers(changed: Iterable[str]) -> list[str]:
    """Return the changed keys for which tokenizers must be trained again."""
    return [key for key in changed if _is_in(key, MAKES_TOKENIZERS)]


def open_run(folder: RunFolder, config: Config, overwrite: bool, now: Mapping[str, str]) -> None:
    """Create the folder or continue in it: delete stale tokenizers, store the configuration and its identity `now`.

    Raises:
        ConfigError: the run in it was trained with other settings or data.
        UserError: `overwrite` is set and the folder is not writable, or its checkpoints are gone.
    """
    if folder.path.is_dir():
        atomic.remove_leftovers(folder.path)
    if overwrite and folder.is_run:
        folder.empty()
    changed = {} if overwrite else differences(folder, config, now)
    if error := refusal(folder, changed):
        raise error
    if not any(folder.checkpoints.glob("step_*")) and (why := _why_without_checkpoint(folder)):
        ways = f"start over with --overwrite, or {_from_its_best(folder)}"
        raise UserError(f"{folder.path}: {why}, so the run cannot continue; {ways}")
    before = {} if overwrite else read_note(folder.identity)
    if folder.has_learned and not before:
        logger.warning("%s: missing or damaged, so the data may have changed since the run began", folder.identity)
    stale = stale_tokenizers(changed) or ([] if before else [folder.identity.name])
    if folder.tokenizer.is_dir() and stale and not folder.has_learned:
        logger.info("making the tokenizers again, for another %s; nothing was learned yet", ", ".join(stale))
        atomic.remove_folder(folder.tokenizer)
        before = {}
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.cleaned.unlink(missing_ok=True)  # from here on, the checkpoints give the state
    kept = {TOKENIZER, FIXED_SHAPES, SEARCH, SAVED} if folder.has_learned else {TOKENIZER}
    write_note(folder.identity, {**now, **{key: before[key] for key in before.keys() & kept}})
    limits = {key: what for key, what in changed.items() if key in LIMITS}
    if limits and folder.has_learned:
        write_note(folder.new_limits, limits)  # before config.yaml has them: the newest checkpoint may say `finished`
    atomic.write_file(folder.config, config_file.dump(config).encode())  # second, because it alone makes no run
    folder.make_newest()


def _from_its_best(folder: RunFolder) -> str:
    options = ["--set", f"training.init_from={folder.path}", "--run-dir", f"{folder.path}-2"]
    return f"train on from its best model: {shlex.join(options)}"


def _why_without_checkpoint(folder: RunFolder) -> str:
    """Return why a run has no checkpoint; empty if it may begin again.

    A run that was killed between its first best model and its first checkpoint has neither `SAVED` nor a later step.
    """
    note = read_note(folder.identity)
    if folder.cleaned.exists():
        return "s2s runs clean deleted the checkpoints"
    metrics = read_note(folder.best / CONFIG).get("metrics")
    best = metrics.get("step") if isinstance(metrics, Mapping) else None
    records = read_records(folder.metrics)[0] if best and folder.metrics.exists() else []
    is_later = any(isinstance(step := record.get("step"), int) and step > best for record in records)
    has_learned = folder.best.is_dir() and (is_later or SAVED in note or folder.test_scores.exists())
    return "its checkpoints are missing" if has_learned and EMPTIED not in note else ""


def began_with_fixed_shapes(folder: RunFolder, config: Config) -> bool | None:
    """Return whether the batches of a run that has learned something have the shapes of a table; None if it may choose.

    The position in the data is a number of batches, so batches stay as they are on another device.
    """
    if not folder.has_learned:
        return None
    unknown = False if config.training.record == "auto" else None  # it began when `auto` recorded nothing
    return read_note(folder.identity).get(FIXED_SHAPES, unknown)


def with_begun_search(folder: RunFolder, config: Config) -> Config:
    """Return the configuration with the search settings that the run in the folder took from its initial model, which
    `s2s tune` may have changed since. Written settings stay, and so do all until the run has learned something."""
    taken = read_note(folder.identity).get(SEARCH, {}) if folder.has_learned else {}
    unwritten = {key: taken[key] for key in taken.keys() - config.search.model_fields_set}
    return config.model_copy(update={"search": config.search.model_copy(update=unwritten)})


def note_beginning(folder: RunFolder, config: Config, fixed_shapes: bool, search: Mapping[str, Any]) -> None:
    """Store the fingerprint of the run's tokenizers, whether its batches have the shapes of a table, and, at the first
    start, the `search` settings of its initial model.

    Raises:
        ConfigError: the run continues, and began with other tokenizers.
    """
    if error := refusal(folder, differences(folder, config, {})):
        raise error
    began = {TOKENIZER: _fingerprint_of(folder.tokenizer), FIXED_SHAPES: fixed_shapes}
    began |= {} if folder.has_learned else {SEARCH: search}
    write_note(folder.identity, read_note(folder.identity) | began)


def read_note(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file that can be made again; empty if the file is missing or damaged."""
    try:
        return read_object(path)
    except DamagedFile:
        return {}


def write_note(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object, completely or not at all."""
    atomic.write_file(path, json_text(values).encode())


def _fingerprint_of(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of all files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _named(key: str, config: Config) -> str:
    """Return the files or the value of a key of an identity, for a message."""
    if key == TOKENIZER:
        return "a file of the run's tokenizers"
    value: Any = config
    named = "data.valid." if key.startswith("data.valid.") else ""
    for part in [*named.split(".")[:2], key.removeprefix(named)] if named else key.split("."):
        value = value[part] if isinstance(value, dict) else value[int(part)] if part.isdigit() else getattr(value, part)
    if key.startswith("data."):
        sources = value if isinstance(value, tuple) else (value,)
        return " or ".join(str(path) for each in sources for path in [p for _, p in each.files()] or [each.hub])
    return str(value)


def _written(value: Any) -> str:
    """Return a setting as it is written in a configuration."""
    return "unset" if value is None else value if isinstance(value, str) else shown(value)


def _is_in(key: str, keys: Iterable[str]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in keys)
