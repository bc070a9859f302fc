"""The cache of CTranslate2 folders, converted from the model folders that users translate with.

`inference.loading` reads entries; `s2s info` lists and removes them. The name of an entry depends on the resolved path
of its model folder, on the folder's content, and on the number format. The content counts as unchanged if its settings
and the sizes and times of all files are unchanged.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from seq2seq import __version__, atomic
from seq2seq.config.description import ModelDescription
from seq2seq.errors import ModelError, RunError
from seq2seq.files import folder_size
from seq2seq.interop import ctranslate2
from seq2seq.lines import shown_name
from seq2seq.text.tokenizer import TokenizerPair

SETTINGS = ("config.json", "generation_config.json")
KEPT_SECONDS = 30 * 24 * 3600  # since the last use
ORIGIN = "converted_from"  # a file of an entry that contains the path of its model folder


@dataclass(frozen=True)
class CachedModel:
    """An entry of the cache."""

    path: Path
    model: Path | None
    """The model folder that was converted; None if the entry does not name it."""
    quantization: str
    bytes: int
    used: float
    """Unix time of the last use, in seconds."""


@contextlib.contextmanager
def converted(folder: Path, quantization: str) -> Iterator[tuple[Path, ModelDescription, TokenizerPair]]:
    """Yield the CTranslate2 folder of a model folder, converted at the first use, with its description and tokenizers.

    It is locked inside the context, so that only one of several processes converts, and none removes an entry that
    another is opening.

    Raises:
        ModelError: `folder` has no translation model, or a damaged one, or (`Obstacles`) one CTranslate2 cannot run.
        RunError: the cache cannot be written, or there is no place for it.
    """
    root = _root()
    model = _name(folder)
    content = _content(folder)
    version = f"{model}-{content}"
    target = root / f"{version}-{quantization}"
    with atomic.locked(root / f"{model}.lock"):
        try:
            description, tokenizers, _ = ctranslate2.read_description(target)
        except ModelError:  # the entry is missing or damaged
            with atomic.writing_in(root, "set XDG_CACHE_HOME to another folder"):
                _convert(folder, content, target, quantization)
                _remove_others(root, model, version)
                _remove_unused(root)
            description, tokenizers, _ = ctranslate2.read_description(target)
        with contextlib.suppress(OSError):  # the cache may be read-only
            os.utime(target)
        yield target, description, tokenizers


def forget(folders: Iterable[Path]) -> None:
    """Remove the conversions of folders that are about to be removed."""
    for folder in folders:
        with contextlib.suppress(RunError):  # without a cache there are none
            for entry in _root().glob(f"{_name(folder)}-*"):
                atomic.remove_folder(entry)


def cached_models() -> list[CachedModel]:
    """Return the converted models of the cache, the most recently used first.

    Raises:
        RunError: there is no place for a cache.
    """
    models = []
    for entry in _entries(_root()):
        with contextlib.suppress(OSError):  # another process removes it
            origin = entry / ORIGIN
            models.append(
                CachedModel(
                    entry,
                    Path(os.fsdecode(origin.read_bytes())) if origin.exists() else None,
                    entry.name.split("-", 2)[-1],
                    folder_size(entry),
                    entry.stat().st_mtime,
                )
            )
    return sorted(models, key=lambda cached: -cached.used)


def clear() -> None:
    """Remove all entries except those that a process is converting or opening, and leftovers of killed processes.

    A process that has loaded a model can still use it. The next process that needs the model converts it again.

    Raises:
        RunError: an entry cannot be removed, or there is no place for a cache.
    """
    root = _root()
    if root.is_dir():
        atomic.remove_leftovers(root)
    for entry in _entries(root):
        try:
            _remove_if_free(entry)
        except FileNotFoundError:
            continue  # another process was faster
        except OSError as error:
            raise RunError(f"{entry}: cannot be removed ({error.strerror or error})") from error


def _entries(root: Path) -> list[Path]:
    return [entry for entry in root.glob("[0-9a-f]*-*") if entry.is_dir()]


def _remove_if_free(entry: Path) -> None:
    """Remove an entry if no process is converting or opening it."""
    with atomic.locked(entry.with_name(f"{entry.name.partition('-')[0]}.lock"), wait=False) as is_free:
        if is_free:
            atomic.remove_folder(entry)


def _remove_others(root: Path, model: str, version: str) -> None:
    """Remove the conversions of a model's earlier contents."""
    for entry in root.glob(f"{model}-*"):
        if not entry.name.startswith(version):
            atomic.remove_folder(entry)


def _remove_unused(root: Path) -> None:
    """Remove the conversions that were not opened for `KEPT_SECONDS`, such as those of deleted models."""
    for entry in _entries(root):
        with contextlib.suppress(OSError):  # another process may be faster
            if entry.stat().st_mtime <= time.time() - KEPT_SECONDS:
                _remove_if_free(entry)


def _convert(folder: Path, content: str, target: Path, quantization: str) -> None:
    from seq2seq.interop.ctranslate2_export import write_ctranslate2  # these import torch
    from seq2seq.store.model_folder import load_model

    loaded = load_model(folder)
    if loaded.description.task != "translation":
        raise ModelError(f"{folder}: a {loaded.description.task} model; use s2s classify")
    target.parent.mkdir(parents=True, exist_ok=True)
    atomic.remove_leftovers(target.parent)
    with atomic.new_folder(target) as temporary:
        write_ctranslate2(temporary, loaded.model, loaded.description, loaded.tokenizers, quantization)
        (temporary / ORIGIN).write_bytes(os.fsencode(folder.resolve()))
        if _content(folder) != content:
            raise ModelError(f"{folder}: it changed while it was converted; try again when nothing writes to it")


def _name(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]


def _content(folder: Path) -> str:
    """Return a digest of a folder's content and of the versions of seq2seq and CTranslate2; reads no weights."""
    known = hashlib.sha256(f"{__version__} {ctranslate2.package().__version__}".encode())
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        status = path.stat()
        known.update(f"{path.name!r} {status.st_size} {status.st_mtime_ns}".encode())
        known.update(path.read_bytes() if path.name in SETTINGS else b"")
    return known.hexdigest()[:16]


def _root() -> Path:
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise RunError("there is no home folder for the cache of converted models; set XDG_CACHE_HOME") from error
    if shown_name(str(cache)) != str(cache):
        raise RunError(
            f"{cache}: CTranslate2 cannot open a folder whose name is not UTF-8; set XDG_CACHE_HOME to another"
        )
    return Path(cache) / "seq2seq" / "ctranslate2"
