"""Public corpora by name, read through `datasets` and written as plain files under the names that the configs use.

`s2s fetch` calls `fetch`. The folder appears complete or not at all, and an existing one is never overwritten.
"""

import contextlib
import filecmp
import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seq2seq import atomic
from seq2seq.data.columns import is_missing
from seq2seq.data.hub import dataset_chunks, dataset_columns, folder_digest, open_dataset
from seq2seq.errors import DataError, did_you_mean
from seq2seq.lines import as_one_line


@dataclass(frozen=True)
class PublicCorpus:
    """Location of a corpus on the Hugging Face hub, and the files that its splits and columns become."""

    hub: str
    subset: str | None
    columns: dict[str, str]  # file suffix (a language), or column of the TSV -> column of the dataset
    splits: dict[str, str]  # file stem -> split of the dataset
    tsv: bool = False
    held_out: dict[str, int] = field(default_factory=dict)  # file stem -> examples in 1,000, from the only split


AS_TEXT = {"encoding": "utf-8", "errors": "replace", "newline": "\n"}
ENGLISH_GERMAN = {"en": "en", "de": "de"}
TRAIN_VALID_TEST = {"train": "train", "valid": "validation", "test": "test"}

CORPORA = {
    "multi30k": PublicCorpus(
        "bentrevett/multi30k", None, ENGLISH_GERMAN,
        {"train": "train", "val": "validation", "test_2016_flickr": "test"},
    ),
    "wmt14-en-de": PublicCorpus("wmt/wmt14", "de-en", ENGLISH_GERMAN, TRAIN_VALID_TEST),
    "wmt16-en-de": PublicCorpus("wmt/wmt16", "de-en", ENGLISH_GERMAN, TRAIN_VALID_TEST),
    "opus100-en-de": PublicCorpus("Helsinki-NLP/opus-100", "de-en", ENGLISH_GERMAN, TRAIN_VALID_TEST),
    "tatoeba": PublicCorpus(
        "sentence-transformers/parallel-sentences-tatoeba", "en-de", {"en": "english", "de": "non_english"},
        {"train": "train"}, held_out={"valid": 8, "test": 8},
    ),
    # the hub's test split has no labels
    "sst2": PublicCorpus(
        "stanfordnlp/sst2", None, {"sentence": "sentence", "label": "label"},
        {"train": "train", "dev": "validation"}, tsv=True,
    ),
}  # fmt: skip


def fetch(name: str, destination: Path, dataset_path: str | None = None) -> list[Path]:
    """Write the corpus `name` into the folder `destination` and return its files.

    `dataset_path` names the dataset to read instead: a local folder, or another dataset of the hub, with the same
    columns and splits. A folder that already contains the same files is not changed.

    Raises:
        DataError: there is no corpus of this name, the dataset cannot be read, or the folder holds something else.
        RunError: the folder cannot be written.
    """
    if name not in CORPORA:
        hint = did_you_mean(name, CORPORA)
        raise DataError(f"fetch {name}: no such corpus{hint or ''}; the corpora are {', '.join(CORPORA)}")
    corpus = CORPORA[name]
    with atomic.writing_in(destination, "free disk space, or choose another folder with -o"):
        if destination.exists() and any(destination.iterdir()):
            with tempfile.TemporaryDirectory() as folder:
                names = _write(corpus, Path(folder), dataset_path)
                _, differing, missing = filecmp.cmpfiles(folder, destination, names, shallow=False)
            if changed := [name for name in names if name in differing + missing]:
                remedy = "remove it, or choose with -o"
                raise DataError(f"{destination}: is there already, and {', '.join(changed)} would change; {remedy}")
        else:
            with atomic.new_folder(destination) as folder:
                names = _write(corpus, folder, dataset_path)
    return [destination / name for name in names]


def _write(corpus: PublicCorpus, folder: Path, dataset_path: str | None) -> list[str]:
    """Write the files of a corpus and return their names."""
    names = []
    for stem, split in corpus.splits.items():
        names += _write_split(corpus, stem, _rows(corpus, split, dataset_path), folder)
    return names


def _write_split(corpus: PublicCorpus, stem: str, rows: Iterable[list[str]], folder: Path) -> list[str]:
    """Write the files of a split and of the parts held out from it, and return their names."""
    stems, suffixes = [stem, *corpus.held_out], ["tsv"] if corpus.tsv else list(corpus.columns)
    with contextlib.ExitStack() as stack:
        files = {
            part: [stack.enter_context(open(folder / f"{part}.{suffix}", "w", **AS_TEXT)) for suffix in suffixes]
            for part in stems
        }
        if corpus.tsv:
            files[stem][0].write("\t".join(corpus.columns) + "\n")
        for values in rows:
            part = _part_of(values[0], stem, corpus.held_out)
            texts = ["\t".join(value.replace("\t", " ") for value in values)] if corpus.tsv else values
            for file, text in zip(files[part], texts, strict=True):
                file.write(text + "\n")
    return [f"{part}.{suffix}" for part in stems for suffix in suffixes]


def _rows(corpus: PublicCorpus, split: str, dataset_path: str | None) -> Iterator[list[str]]:
    name, subset = (corpus.hub, corpus.subset) if dataset_path is None else (dataset_path, None)
    dataset = open_dataset(name, subset, split, folder_digest(name))
    origin, present = f"{dataset_path or corpus.hub} ({split})", dataset_columns(dataset)
    wanted = list(corpus.columns.values())
    for column in wanted:
        if column not in present:
            raise DataError(f"{origin}: no column {column!r}; it has {', '.join(present)}")
    for columns, _ in dataset_chunks(dataset, wanted, origin, label_names=False):
        for values in zip(*columns, strict=True):
            yield ["" if is_missing(value) else as_one_line(str(value)) for value in values]


def _part_of(sentence: str, stem: str, held_out: Mapping[str, int]) -> str:
    """Return the part of a pair, determined by its first side alone, so that no sentence is in two parts."""
    key = " ".join(sentence.lower().split()).encode("utf-8", "replace")
    number = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") % 1000
    for part, share in held_out.items():
        if number < share:
            return part
        number -= share
    return stem
