"""Datasets through the `datasets` package: opened by hub name or from a local folder, and read in blocks of rows.

`sources` and `fetch` read them; every failure of the package becomes one line with the dataset and the remedy.
"""

import contextlib
import functools
import hashlib
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seq2seq.config.corpora import SourceConfig
from seq2seq.data.columns import NESTED, Columns, flattened
from seq2seq.data.examples import Chunk, Example, Position, Source
from seq2seq.data.file_facts import combined_fingerprint, file_facts
from seq2seq.errors import DataError, did_you_mean, quiet, reason

logger = logging.getLogger(__name__)

CHUNK_ROWS = 4000
PROJECT = "seq2seq"  # the names of the caches of local folders begin with it


class HubSource(Source):
    """A dataset by hub name or from a local folder; a stream is read shard by shard."""

    def __init__(self, config: SourceConfig, columns: Columns, cache: Path | None):
        self._config, self._content = config, folder_digest(str(config.hub), cache)
        dataset = self._open()
        self.name, self.weight = f"{config.hub} ({config.split})", config.weight
        record = dataset.features or next(iter(dataset.take(1)), {})  # features of an object are an object, too
        self._columns = columns = columns.for_record(record, self.name) or columns
        self._names = columns.choose(dataset_columns(dataset), self.name)
        self.size = None if config.streaming else len(dataset)
        content = self._content or _version(dataset, str(config.hub), config.subset, config.split, cache)
        soft = (columns.labels,) if columns.labels else ()
        self._identity = self._names, content, *soft
        self.fingerprint = self._known_as(None if self._content else config.hub)

    @property
    def former(self) -> str:
        """The fingerprint in earlier versions, made from the path of a local folder too."""
        return self._known_as(self._config.hub)

    def _known_as(self, name: str | None) -> str:
        return combined_fingerprint("hub", (name, self._config.subset, self._config.split), *self._identity)

    def chunks(self, start: Position = None) -> Iterator[Chunk]:
        """Yield blocks of rows."""
        number, position = start or (0, None)
        parse = functools.partial(_parse_rows, self._columns, self._names, self.name)
        for values, end in dataset_chunks(self._open(), self._names, self.name, position):
            first, number = number + 1, number + len(values[0])
            yield Chunk(values, first, parse, [number, end])

    def _open(self) -> Any:
        config = self._config
        return open_dataset(str(config.hub), config.subset, config.split, self._content, config.streaming)


def open_dataset(name: str, subset: str | None, split: str, content: str | None, streaming: bool = False) -> Any:
    """Open one split of a dataset of the hub, of a folder of data files, or of a folder that `save_to_disk` wrote.

    `datasets` caches rows by the modification times of files, so a folder gets a cache for its `content`
    (`folder_digest`).

    Raises:
        DataError: it cannot be reached, is not a dataset, or has no such subset or split.
    """
    import datasets

    folder = Path(name).expanduser()
    try:
        if any((folder / file).exists() for file in ("dataset_dict.json", "state.json")):
            return _load_saved(folder, split, streaming)
        if folder.is_dir():
            name = str(folder)
            if not any(entry.is_file() and not entry.name.startswith(".") for entry in folder.rglob("*")):
                raise DataError(f"{folder}: an empty folder, not a dataset")
        kept = Path(datasets.config.HF_DATASETS_CACHE) / f"{PROJECT}-{content}" if content else None
        with _quiet(datasets):
            return datasets.load_dataset(name, subset, split=split, streaming=streaming, cache_dir=kept and str(kept))
    except DataError:
        raise
    except Exception as error:  # the package raises many kinds, its own and pyarrow's
        raise DataError(_describe(error, name, subset, split)) from error


def dataset_columns(dataset: Any) -> list[str]:
    """Return the names of the columns, including those inside `translation`."""
    features = dataset.features
    if features is None:  # the columns of a stream are known with its first row
        return list(flattened(next(iter(dataset.take(1)), {})))
    inner = features.get(NESTED)
    languages = getattr(inner, "languages", None) or (list(inner) if isinstance(inner, dict) else [])
    return [*features, *languages]


def dataset_chunks(
    dataset: Any, names: Sequence[str], origin: str, start: Position = None, label_names: bool = True
) -> Iterator[tuple[tuple[list[Any], ...], Position]]:
    """Yield the values of columns `names` in blocks of rows, each with its end position.

    A class label is given as its name, or as its number without `label_names`. The position in a stream contains the
    shard and the rows read of it, so that earlier shards are not fetched again.

    Raises:
        DataError: a row has no label (hidden test sets have -1), or reading fails.
    """
    is_stream, position = hasattr(dataset, "state_dict"), start or 0
    try:
        if not is_stream and position >= len(dataset):
            return
        if not is_stream:
            dataset = dataset.select(range(position, len(dataset)))
        elif start is not None:
            dataset.load_state_dict(start)
        for rows in dataset.iter(batch_size=CHUNK_ROWS):
            columns = tuple(_values(dataset, rows, name, origin, label_names) for name in names)
            position = dataset.state_dict() if is_stream else position + CHUNK_ROWS
            yield columns, position
    except DataError:
        raise
    except Exception as error:  # see open_dataset
        raise DataError(f"{origin}: reading stopped ({reason(error)[:300]}); fetch the dataset again") from error


def _values(dataset: Any, rows: dict[str, list[Any]], name: str, origin: str, label_names: bool) -> list[Any]:
    values = rows[name] if name in rows else [(row or {}).get(name) for row in rows[NESTED]]
    feature = (dataset.features or {}).get(name)
    if not hasattr(feature, "int2str"):
        return values
    if any(value is None or value < 0 for value in values):
        raise DataError(f"{origin}: has examples without a label; use another split, such as validation")
    return [feature.int2str(value) for value in values] if label_names else values


def _parse_rows(
    columns: Columns, names: Sequence[str], origin: str, values: tuple[list[Any], ...], first: int
) -> list[Example | None]:
    rows = enumerate(zip(*values, strict=True), start=first)
    return [columns.example(names, row, f"{origin}: row {number}") for number, row in rows]


def _load_saved(folder: Path, split: str, streaming: bool) -> Any:
    import datasets

    saved = datasets.load_from_disk(str(folder))
    if isinstance(saved, datasets.DatasetDict):
        if split not in saved:
            raise DataError(f"{folder}: no split {split!r}; it has {', '.join(saved)}{did_you_mean(split, saved)}")
        saved = saved[split]
    return saved.to_iterable_dataset() if streaming else saved


@contextlib.contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """Hide progress bars outside terminals, and warnings of retries, inside the block."""
    hide_bars = not sys.stderr.isatty() and not datasets.are_progress_bars_disabled()
    if hide_bars:
        datasets.disable_progress_bars()
    try:
        with quiet("huggingface_hub"):
            yield
    finally:
        if hide_bars:
            datasets.enable_progress_bars()


def _describe(error: Exception, name: str, subset: str | None, split: str) -> str:
    dataset = f"{name}{f' ({subset})' if subset else ''}, split {split}"
    kind, is_folder = type(error).__name__, Path(name).expanduser().exists()
    if not is_folder and name.startswith(("/", ".", "~")):  # names on the hub do not
        return f"{name}: no such folder"
    if isinstance(error, (ConnectionError, TimeoutError)) or "Offline" in kind or "offline" in str(error):
        remedy = "check the network, or give a folder that holds the dataset (--from or hub)"
        return f"{dataset}: the Hugging Face hub cannot be reached; {remedy}"
    if kind == "DatasetNotFoundError":
        return f"{dataset}: no such dataset on the Hugging Face hub; check the name, or log in if it is private"
    if kind in ("DataFilesNotFoundError", "EmptyDatasetError") or "Couldn't infer" in str(error):
        remedy = "give one of parquet, JSONL, CSV or text files, or one that save_to_disk wrote"
        return f"{dataset}: {'a folder without data files of one format' if is_folder else 'no data files'}; {remedy}"
    return f"{dataset}: {reason(error)[:300]}"


def _version(dataset: Any, name: str, subset: str | None, split: str, cache: Path | None) -> str:
    """Return a digest of the rows of a dataset of the hub; of a stream, whose rows are not on this disk, the revision.

    A new revision may change only the card of a dataset, and a digest of the rows then stays the same.

    Raises:
        DataError: the dataset cannot be reached any more.
    """
    import datasets

    if kept := [Path(file["filename"]) for file in getattr(dataset, "cache_files", ())]:
        return repr([file_facts(path, cache, is_text=False).sha256 for path in kept])
    try:
        with _quiet(datasets):
            revision = datasets.load_dataset_builder(name, subset).hash
    except Exception as error:  # see open_dataset
        raise DataError(_describe(error, name, subset, split)) from error
    if revision is None:
        logger.warning("%s: its revision is not known, so a change of the dataset is not noticed", name)
    return repr((str(dataset.info.version), revision))


def folder_digest(name: str, cache: Path | None = None) -> str | None:
    """Return a digest of the content of a local folder; None for the name of a hub dataset.

    Facts of files are stored in the folder `cache`.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(entry for entry in folder.rglob("*") if entry.is_file()):
        digest.update(str(path.relative_to(folder)).encode("utf-8", "surrogateescape") + b"\0")
        digest.update(bytes.fromhex(file_facts(path, cache, is_text=False).sha256))
    return digest.hexdigest()
