"""Laws of `fetch`, on datasets made here: plain files under the names the configs read, whole or not at all."""

import gzip
import hashlib
import math
import re
from pathlib import Path

import pytest

import seq2seq.data.fetch as fetching
from seq2seq.config.corpora import SourceConfig
from seq2seq.data.examples import LabelledText, Pair
from seq2seq.data.fetch import fetch
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import DataError
from seq2seq.lines import open_bytes


@pytest.fixture(autouse=True)
def _own_dataset_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")


def save(folder, splits, features=None):
    import datasets

    made = {name: datasets.Dataset.from_list(rows, features=features) for name, rows in splits.items()}
    datasets.DatasetDict(made).save_to_disk(str(folder))
    return str(folder)


def multi30k(folder, last="Ende"):
    rows = {"train": [("A dog.", "Ein Hund."), ("a\nb", last)], "validation": [("V", "W")], "test": [("T", "U")]}
    return save(folder, {name: [{"en": en, "de": de} for en, de in pairs] for name, pairs in rows.items()})


def sst2(folder):
    import datasets

    features = datasets.Features(
        {
            "idx": datasets.Value("int32"),
            "sentence": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["negative", "positive"]),
        }
    )
    row = {"idx": 0, "sentence": 'hide "new\tsecretions ', "label": 1}
    splits = {"train": [row, {**row, "label": 0}], "validation": [row], "test": [{**row, "label": -1}]}
    return save(folder, splits, features)


def test_a_translation_corpus_becomes_aligned_files(tmp_path):
    target = tmp_path / "data" / "multi30k"
    written = fetch("multi30k", target, dataset_path=multi30k(tmp_path / "saved"))
    expected = [f"{part}.{side}" for part in ("train", "val", "test_2016_flickr") for side in ("en", "de")]
    assert sorted(path.name for path in written) == sorted(expected) == sorted(p.name for p in target.iterdir())
    config = SourceConfig(source=target / "train.en", target=target / "train.de")
    assert list(open_pairs(config, "en", "de")) == [Pair("A dog.", "Ein Hund."), Pair("a b", "Ende")]


def test_a_labelled_corpus_becomes_tsv_with_the_labels_as_numbers(tmp_path):
    target = tmp_path / "sst2"
    written = fetch("sst2", target, dataset_path=sst2(tmp_path / "saved"))
    assert [path.name for path in written] == ["train.tsv", "dev.tsv"]
    assert (target / "dev.tsv").read_bytes() == b'sentence\tlabel\nhide "new secretions \t1\n'
    read = list(open_labelled(SourceConfig(tsv=target / "train.tsv")))
    assert read == [LabelledText('hide "new secretions ', label) for label in ("1", "0")]


def test_nested_translations_are_read(tmp_path):
    import datasets

    features = datasets.Features({"translation": datasets.Translation(languages=["de", "en"])})
    rows = [{"translation": {"de": "eins", "en": "one"}}]
    saved = save(tmp_path / "saved", {"train": rows, "validation": rows, "test": rows}, features)
    fetch("wmt14-en-de", tmp_path / "wmt", dataset_path=saved)
    assert (tmp_path / "wmt" / "valid.de").read_text() == "eins\n"


def test_not_a_number_is_an_empty_text_too(tmp_path):
    rows = [{"en": 1.5, "de": math.nan}]
    saved = save(tmp_path / "saved", dict.fromkeys(("train", "validation", "test"), rows))
    fetch("multi30k", tmp_path / "made", dataset_path=saved)
    assert (tmp_path / "made" / "train.en").read_text() == "1.5\n"
    assert (tmp_path / "made" / "train.de").read_text() == "\n"


def test_null_is_an_empty_text(tmp_path):
    import datasets

    features = datasets.Features({side: datasets.Value("string") for side in ("en", "de")})
    rows = [{"en": "a", "de": "b"}, {"en": None, "de": "c"}, {"en": "d", "de": None}]
    saved = save(tmp_path / "saved", dict.fromkeys(("train", "validation", "test"), rows), features)
    fetch("multi30k", tmp_path / "made", dataset_path=saved)
    assert (tmp_path / "made" / "train.en").read_text() == "a\n\nd\n"
    assert (tmp_path / "made" / "train.de").read_text() == "b\nc\n\n"


def test_a_corpus_with_one_split_is_cut_by_its_source_sentences(tmp_path):
    rows = [{"english": f"Sentence {n // 2}", "non_english": f"Satz {n}"} for n in range(4000)]
    saved = save(tmp_path / "saved", {"train": rows})
    parts = []
    for attempt in ("1", "2"):
        fetch("tatoeba", tmp_path / attempt, dataset_path=saved)
        files = {path.name: path.read_text().splitlines() for path in (tmp_path / attempt).iterdir()}
        parts.append(files)
    assert parts[0] == parts[1]
    english = [set(files[f"{part}.en"]) for files in parts[:1] for part in ("train", "valid", "test")]
    assert sum(map(len, english)) == 2000  # no sentence in two parts
    assert all(english)
    assert len(english[1]) < 60 > len(english[2])
    assert all(len(files[f"{part}.en"]) == len(files[f"{part}.de"]) for part in ("train", "valid", "test"))


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    target, saved = tmp_path / "multi30k", multi30k(tmp_path / "saved")
    written = fetch("multi30k", target, dataset_path=saved)
    stamps = [path.stat().st_mtime_ns for path in written]
    assert fetch("multi30k", target, dataset_path=saved) == written  # equal already
    with pytest.raises(DataError, match=r"is there already, and train\.de would change"):
        fetch("multi30k", target, dataset_path=multi30k(tmp_path / "other", last="anders"))
    assert [path.stat().st_mtime_ns for path in written] == stamps
    written[0].unlink()
    with pytest.raises(DataError, match=r"train\.en would change"):
        fetch("multi30k", target, dataset_path=saved)
    assert not written[0].exists()


def test_what_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    saved = multi30k(tmp_path / "saved")
    opened = []
    open_dataset = fetching.open_dataset

    def fail_second(*arguments, **options):
        opened.append(arguments)
        if len(opened) == 2:
            raise DataError("lost the connection")
        return open_dataset(*arguments, **options)

    monkeypatch.setattr(fetching, "open_dataset", fail_second)
    with pytest.raises(DataError, match="lost the connection"):
        fetch("multi30k", tmp_path / "data" / "multi30k", dataset_path=saved)
    assert list((tmp_path / "data").iterdir()) == []


def addressed(folder, contents, digests=None):
    """A corpus of files with an address."""
    folder.mkdir()
    for name, content in contents.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    known = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    files = fetching.PublicFiles(folder.as_uri(), known | (digests or {}), ".gz")
    return fetching.PublicCorpus(None, None, {}, {}, more=files)


@pytest.mark.parametrize("name", ["/not/there", "./not", "~/not/there", "yaml", "none"])
def test_a_folder_that_is_not_a_dataset_is_named_with_the_remedy(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file, text in {"yaml/b/c.yaml": "{}", "none/weights.bin": "x"}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    with pytest.raises(DataError) as refused:
        fetch("sst2", tmp_path / "made", dataset_path=name)
    remedy = "; give one of parquet, JSONL, CSV or text files" if "/" not in name else ": no such folder"
    assert str(refused.value).startswith(name)
    assert remedy in str(refused.value)


def test_files_with_an_address_are_downloaded_whole_or_not_at_all(tmp_path, monkeypatch):
    contents = {"train.en": b"a dog\n", "train.ja": "犬\n".encode()}
    monkeypatch.setitem(fetching.CORPORA, "small_enja", addressed(tmp_path / "there", contents))
    written = fetch("small_enja", tmp_path / "here")
    assert {path.name: path.read_bytes() for path in written} == contents
    assert fetch("small_enja", tmp_path / "here") == written
    with pytest.raises(DataError, match="not on the hub; leave out --from"):
        fetch("small_enja", tmp_path / "x", dataset_path="x")
    changed = addressed(tmp_path / "changed", contents, {"train.ja": "0" * 64})
    cut = addressed(tmp_path / "cut", contents)
    (tmp_path / "cut" / "train.ja.gz").write_bytes(gzip.compress(contents["train.ja"])[:-4])
    missing = addressed(tmp_path / "missing", contents)
    (tmp_path / "missing" / "train.ja.gz").unlink()
    for corpus, said in ((changed, "has another content"), (cut, "cannot be downloaded"), (missing, "cannot be")):
        monkeypatch.setitem(fetching.CORPORA, "small_enja", corpus)
        with pytest.raises(DataError, match=rf"train.ja.gz: {said}") as error:
            fetch("small_enja", tmp_path / "x")
        assert "\n" not in str(error.value)
        assert not (tmp_path / "x").exists()


def test_every_file_of_a_public_corpus_that_a_config_names_is_fetched():
    """A recipe starts after `s2s fetch`, with nothing else to find."""
    named = set()
    for path in (Path(__file__).parents[2] / "configs").glob("*.yaml"):
        named |= {
            match.groups() for match in re.finditer(r"([\w-]+)/([\w.-]+\.(?:en|de|fr|ja|tsv))\b", path.read_text())
        }
    named = {(corpus, file) for corpus, file in named if corpus in fetching.CORPORA}
    assert len(named) > 20
    assert {(corpus, file) for corpus, file in named if file not in fetching.CORPORA[corpus].files} == set()


@pytest.mark.parametrize("name", ["multi30k", "small_enja"])
def test_files_with_an_address_are_those_of_the_recipes(real_data, name):
    for file, digest in fetching.CORPORA[name].more.digests.items():
        paths = list((real_data / name).glob(f"{file}*"))
        if not paths:
            pytest.skip(f"needs {file} under $S2S_DATA/{name}")
        with open_bytes(paths[0]) as stream:
            assert hashlib.sha256(stream.read()).hexdigest() == digest


def test_unknown_names_and_columns_are_one_line(tmp_path):
    with pytest.raises(DataError, match="fetch multi30: no such corpus; did you mean 'multi30k'"):
        fetch("multi30", tmp_path / "x")
    with pytest.raises(DataError, match=r"\(train\): no column 'sentence'; it has en, de"):
        fetch("sst2", tmp_path / "x", dataset_path=multi30k(tmp_path / "saved"))
    with pytest.raises(DataError, match="no split 'validation'"):
        fetch("wmt14-en-de", tmp_path / "x", dataset_path=save(tmp_path / "one", {"train": [{"en": "a", "de": "b"}]}))
    assert not (tmp_path / "x").exists()


def test_without_a_network_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="the Hugging Face hub cannot be reached") as error:
        fetch("multi30k", tmp_path / "multi30k")
    assert "\n" not in str(error.value)
