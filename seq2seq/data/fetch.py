"""Public corpora by name, written as plain files under the names that the configs use.

Most are read through `datasets`; files that the hub does not have come from the repositories of their authors. `s2s
fetch` calls `fetch`. The folder appears complete or not at all, and an existing one is never overwritten.
"""

import contextlib
import filecmp
import gzip
import hashlib
import http.client
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seq2seq import atomic
from seq2seq.data.columns import is_missing
from seq2seq.data.hub import dataset_chunks, dataset_columns, folder_digest, open_dataset
from seq2seq.errors import DataError, did_you_mean, reason
from seq2seq.lines import as_one_line


@dataclass(frozen=True)
class PublicFiles:
    """Files with an address."""

    url: str
    """The address of their folder."""
    digests: dict[str, str]
    """The SHA-256 of the content of each file, which is the one that the recipes were measured on."""
    ending: str = ""
    """`.gz` if they are compressed there."""


@dataclass(frozen=True)
class PublicCorpus:
    """Location of a corpus on the Hugging Face hub, and the files that its splits and columns become."""

    hub: str | None
    """None: the corpus consists of `more`."""
    subset: str | None
    columns: dict[str, str]  # file suffix (a language), or column of the TSV -> column of the dataset
    splits: dict[str, str]  # file stem -> split of the dataset
    tsv: bool = False
    held_out: dict[str, int] = field(default_factory=dict)  # file stem -> examples in 1,000, from the only split
    more: PublicFiles = PublicFiles("", {})
    """Files that the hub does not have."""

    @property
    def files(self) -> list[str]:
        """The names of all files."""
        stems = (*self.splits, *self.held_out)
        return [*(f"{stem}.{suffix}" for stem in stems for suffix in self.suffixes), *self.more.digests]

    @property
    def suffixes(self) -> list[str]:
        """The endings of the files of a split."""
        return ["tsv"] if self.tsv else list(self.columns)


AS_TEXT = {"encoding": "utf-8", "errors": "replace", "newline": "\n"}
ENGLISH_GERMAN = {"en": "en", "de": "de"}
TRAIN_VALID_TEST = {"train": "train", "valid": "validation", "test": "test"}
# Elliott et al. 2016 and 2017: French, and the test set of 2017.
MULTI30K = PublicFiles(
    "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw",
    {
        "test_2017_flickr.en": "ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98",
        "test_2017_flickr.de": "c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081",
        "test_2017_flickr.fr": "6f3764e31dac41e9455e612958bcfd4e877c5e15cd66df2c2b2be6d9bd83e5b6",
        "test_2016_flickr.fr": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
        "train.fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
        "val.fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
    },
    ".gz",
)
# 50,000 pairs of the Tanaka corpus, chosen and segmented by Odashi.
SMALL_ENJA = PublicFiles(
    "https://raw.githubusercontent.com/odashi/small_parallel_enja/312408a11c5fbcbc09443bebb18121f7efdcd61e",
    {
        "train.en": "148b05dcd28638fe20ee84f2b1127001c80982be352007dda241fb759adadc76",
        "train.ja": "fc81a1434349ec98a449d7ae9cd2530057f689637684ecfed3501ea6a8a07ecc",
        "dev.en": "04a2673449770657fd5e3b963cb856be3130923212b6db8ac7eaeef18f06c041",
        "dev.ja": "cd534f56b8639dc130f86a365e5ec0aa70042000bdd740a622fbbf8b6be4acca",
        "test.en": "45edb380749ec2b49cca7618fc5a7595fc9f791180672ba466b90c873a4aa8bf",
        "test.ja": "d37dc460a81b064e4106c8913eb11fa300da05cf3f58a7a5bbfec7e20947ddef",
    },
)
SECONDS = 60  # to wait for a server

CORPORA = {
    "multi30k": PublicCorpus(
        "bentrevett/multi30k", None, ENGLISH_GERMAN,
        {"train": "train", "val": "validation", "test_2016_flickr": "test"}, more=MULTI30K,
    ),
    "small_enja": PublicCorpus(None, None, {}, {}, more=SMALL_ENJA),
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
    columns and splits; files that are not on the hub are then left out. A folder that already contains the same files
    is not changed.

    Raises:
        DataError: there is no corpus of this name, it cannot be read, or the folder holds something else.
        RunError: the folder cannot be written.
    """
    if name not in CORPORA:
        hint = did_you_mean(name, CORPORA)
        raise DataError(f"fetch {name}: no such corpus{hint or ''}; the corpora are {', '.join(CORPORA)}")
    corpus = CORPORA[name]
    if corpus.hub is None and dataset_path is not None:
        raise DataError(f"fetch {name}: its files are not on the hub; leave out --from")
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
    for stem, split in corpus.splits.items():
        _write_split(corpus, stem, _rows(corpus, split, dataset_path), folder)
    if dataset_path is not None:
        return [name for name in corpus.files if name not in corpus.more.digests]
    for name in corpus.more.digests:
        (folder / name).write_bytes(_downloaded(corpus.more, name))
    return corpus.files


def _downloaded(files: PublicFiles, name: str) -> bytes:
    """Return the content of a file.

    Raises:
        DataError: it cannot be downloaded, or has changed.
    """
    address = f"{files.url}/{name}{files.ending}"
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            content = answer.read()
        if files.ending:
            content = gzip.decompress(content)
    except urllib.error.HTTPError as error:
        raise DataError(f"{address}: the server answers {error.code}; try again later") from error
    except (OSError, EOFError, zlib.error, http.client.HTTPException) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        told = reason(why) if isinstance(why, Exception) else str(why)
        raise DataError(f"{address}: cannot be downloaded ({told}); try again with a network") from error
    if hashlib.sha256(content).hexdigest() != files.digests[name]:
        raise DataError(f"{address}: has another content than the recipes were measured on; try again later")
    return content


def _write_split(corpus: PublicCorpus, stem: str, rows: Iterable[list[str]], folder: Path) -> None:
    """Write the files of a split and of the parts held out from it."""
    stems, suffixes = [stem, *corpus.held_out], corpus.suffixes
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


def _rows(corpus: PublicCorpus, split: str, dataset_path: str | None) -> Iterator[list[str]]:
    name, subset = (corpus.hub or "", corpus.subset) if dataset_path is None else (dataset_path, None)
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
