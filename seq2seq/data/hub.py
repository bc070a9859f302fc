"""Datasets through the `datasets` package: opened by hub name or from a local folder, read in blocks.

`sources` and `fetch` read them; every failure of the package becomes one line that names the dataset and the remedy.
"""

import contextlib
import hashlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seq2seq.data.file_facts import file_facts
from seq2seq.errors import DataError, did_you_mean

ROWS_A_BLOCK = 4000
NESTED = "translation"


def open_dataset(name: str, subset: str | None, split: str, streaming: bool = False) -> Any:
    """One split of a dataset of the hub, of a folder of data files, or of a folder that `save_to_disk` wrote.

    Raises:
        DataError: it cannot be reached, is not a dataset, or has no such subset or split.
    """
    folder = Path(name).expanduser()
    try:
        if folder.is_dir():
            return _open_folder(folder, subset, split, streaming)
        return _load(name, subset, split, streaming)
    except DataError:
        raise
    except Exception as error:  # the package raises many kinds, from its own to pyarrow's
        raise DataError(_describe(error, name, subset, split)) from error


def dataset_columns(dataset: Any) -> list[str]:
    """Names of the columns, those inside `translation` among them."""
    features = dataset.features
    if features is None:  # a stream tells its columns with its first row
        return list(_flat(next(iter(dataset.take(1)), {})))
    inner = features.get(NESTED)
    languages = getattr(inner, "languages", None) or (list(inner) if isinstance(inner, dict) else [])
    return [*features, *languages]


def dataset_blocks(
    dataset: Any, names: Sequence[str], origin: str, start: Any = None, label_names: bool = True
) -> Iterator[tuple[tuple[list[Any], ...], Any]]:
    """The values of columns `names`, some rows at a time, each with the place behind them, where `start` goes on.

    A class label is its name, or its number without `label_names`. The place in a stream is the shard and what was read
    of it, so that shards before it are not fetched again.

    Raises:
        DataError: a row has no label (the hidden test sets of the hub have -1), or the data cannot be read on.
    """
    readers = [_reader(dataset, name, origin, label_names) for name in names]
    try:
        for block, place in _blocks(dataset, start):
            yield tuple(read(_column(block, name)) for name, read in zip(names, readers, strict=True)), place
    except DataError:
        raise
    except Exception as error:  # see open_dataset
        raise DataError(f"{origin}: cannot be read on ({_one_line(error)}); fetch the dataset again") from error


def dataset_rows(dataset: Any, names: Sequence[str], origin: str, label_names: bool = True) -> Iterator[tuple]:
    """`dataset_blocks` row by row."""
    for columns, _ in dataset_blocks(dataset, names, origin, label_names=label_names):
        yield from zip(*columns, strict=True)


def dataset_fingerprint(dataset: Any, name: str, cache: Path | None = None) -> str:
    """Changes with the content of a local folder, or with the version of a hub dataset.

    What has to be known of large files is kept in the folder `cache`.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _folder_hash(folder, cache)
    sizes = {split: info.num_examples for split, info in (dataset.info.splits or {}).items()}
    return repr((str(dataset.info.version), sizes, sorted(dataset.info.download_checksums or {})))


def _blocks(dataset: Any, start: Any) -> Iterator[tuple[dict[str, list[Any]], Any]]:
    if hasattr(dataset, "state_dict"):
        if start is not None:
            dataset.load_state_dict(start)
        for block in dataset.iter(batch_size=ROWS_A_BLOCK):
            yield block, dataset.state_dict()
    else:
        for row in range(start or 0, len(dataset), ROWS_A_BLOCK):
            yield dataset[row : row + ROWS_A_BLOCK], row + ROWS_A_BLOCK


def _open_folder(folder: Path, subset: str | None, split: str, streaming: bool) -> Any:
    import datasets

    if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
        saved = datasets.load_from_disk(str(folder))
        if isinstance(saved, datasets.DatasetDict):
            if split not in saved:
                raise DataError(f"{folder}: no split {split!r}; it has {', '.join(saved)}{did_you_mean(split, saved)}")
            saved = saved[split]
        return saved.to_iterable_dataset() if streaming else saved
    if not any(entry.is_file() and not entry.name.startswith(".") for entry in folder.rglob("*")):
        raise DataError(f"{folder}: an empty folder, not a dataset")
    return _load(str(folder), subset, split, streaming)


def _load(name: str, subset: str | None, split: str, streaming: bool) -> Any:
    import datasets

    with _quiet(datasets):
        return datasets.load_dataset(name, subset, split=split, streaming=streaming)


@contextlib.contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """Keep bars off what is not a terminal, and the retries of an unreachable hub to ourselves."""
    hub_logger = logging.getLogger("huggingface_hub")
    level, hide_bars = hub_logger.level, not sys.stderr.isatty() and not datasets.are_progress_bars_disabled()
    hub_logger.setLevel(logging.ERROR)
    if hide_bars:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        hub_logger.setLevel(level)
        if hide_bars:
            datasets.enable_progress_bars()


def _describe(error: Exception, name: str, subset: str | None, split: str) -> str:
    asked = f"{name}{f' ({subset})' if subset else ''}, split {split}"
    kind = type(error).__name__
    if isinstance(error, (ConnectionError, TimeoutError)) or "Offline" in kind or "offline" in str(error):
        remedy = "check the network, or give a folder that holds the dataset (--from or hub)"
        return f"{asked}: the Hugging Face hub cannot be reached; {remedy}"
    if kind == "DatasetNotFoundError":
        return f"{asked}: no such dataset on the Hugging Face hub; check the name, or log in if it is private"
    return f"{asked}: {_one_line(error)}"


def _reader(dataset: Any, name: str, origin: str, label_names: bool) -> Callable[[list[Any]], list[Any]]:
    """What turns the stored values of column `name` into those that are read."""
    feature = (dataset.features or {}).get(name)
    if not hasattr(feature, "int2str"):
        return lambda values: values

    def read_labels(values: list[int | None]) -> list[str | int]:
        if any(value is None or value < 0 for value in values):
            raise DataError(f"{origin}: has examples without a label; use another split, such as validation")
        return [feature.int2str(value) if label_names else value for value in values]

    return read_labels


def _column(block: dict[str, list[Any]], name: str) -> list[Any]:
    return block[name] if name in block else [(row or {}).get(name) for row in block[NESTED]]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    inner = row.get(NESTED)
    return {**row, **inner} if isinstance(inner, dict) else row


def _folder_hash(folder: Path, cache: Path | None) -> str:
    digest = hashlib.sha256()
    for path in sorted(entry for entry in folder.rglob("*") if entry.is_file()):
        digest.update(str(path.relative_to(folder)).encode("utf-8", "surrogateescape") + b"\0")
        digest.update(bytes.fromhex(file_facts(path, cache, is_text=False).sha256))
    return digest.hexdigest()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
