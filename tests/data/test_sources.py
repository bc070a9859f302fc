"""Laws of the sources: every format gives the same examples, and every bad input is one line with place and remedy."""

import gzip
import json
import logging
import math
import os
import shutil

import pytest
from support.examples import check_one_line, write, write_jsonl, write_parts

from seq2seq.config.corpora import NoiseConfig, SourceConfig
from seq2seq.data import hub
from seq2seq.data.directions import DirectedSource
from seq2seq.data.examples import LabelledText, Pair, Source
from seq2seq.data.file_facts import combined_fingerprint
from seq2seq.data.noise import NoisySource
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import DataError

PAIRS = [
    Pair("Good morning!", "Guten Morgen!"),
    Pair(' "quoted, text" ', "„zitiert“"),
    Pair("line\u2028separator\u0085\x0c", "日本語 🎉"),
    Pair("", "leer"),
    Pair("a\rb", "nur ein Satz"),
]
EXPECTED = [Pair(pair.source.replace("\r", " "), pair.target) for pair in PAIRS]


def write_text(folder, compress=False, end="\n"):
    paths = []
    for side in ("source", "target"):
        content = "".join(getattr(pair, side) + end for pair in PAIRS).encode()
        paths.append(folder / f"text.{side}")
        paths[-1].write_bytes(gzip.compress(content) if compress else content)
    return SourceConfig(source=paths[0], target=paths[1])


def records():
    return [{"en": pair.source, "de": pair.target} for pair in PAIRS]


def config_text(folder):
    return write_text(folder)


def config_gzip(folder):
    return write_text(folder, compress=True)


def config_crlf(folder):
    return write_text(folder, end="\r\n")


def config_tsv_with_header(folder):
    lines = [f"{number}\t{pair.target}\t{pair.source}" for number, pair in enumerate(PAIRS)]
    return SourceConfig(tsv=write(folder / "x.tsv", "id\tde\ten", *lines))


def config_tsv_without_header(folder):
    return SourceConfig(tsv=write(folder / "x.tsv", *(f"{pair.source}\t{pair.target}" for pair in PAIRS)))


def config_tsv_by_number(folder):
    path = write(folder / "x.tsv", *(f"{pair.target}\t-\t{pair.source}" for pair in PAIRS))
    return SourceConfig(tsv=path, source_column=2, target_column=0)


def config_jsonl(folder):
    return SourceConfig(jsonl=write_jsonl(folder / "x.jsonl", records()))


def config_jsonl_nested(folder):
    return SourceConfig(jsonl=write_jsonl(folder / "x.jsonl", [{"translation": record} for record in records()]))


def config_jsonl_named(folder):
    rows = [{"ours": pair.source, "theirs": pair.target} for pair in PAIRS]
    path = write_jsonl(folder / "x.jsonl", rows)
    return SourceConfig(jsonl=path, source_column="ours", target_column="theirs")


def config_dataset_on_disk(folder):
    import datasets

    datasets.DatasetDict({"train": datasets.Dataset.from_list(records())}).save_to_disk(str(folder / "saved"))
    return SourceConfig(hub=str(folder / "saved"))


def config_dataset_with_translation_feature(folder):
    import datasets

    features = datasets.Features({"translation": datasets.Translation(languages=["de", "en"])})
    rows = [{"translation": record} for record in records()]
    datasets.Dataset.from_list(rows, features=features).save_to_disk(str(folder / "saved"))
    return SourceConfig(hub=str(folder / "saved"))


def config_folder_of_jsonl(folder):
    (folder / "files").mkdir()
    write_jsonl(folder / "files" / "validation.jsonl", [{"translation": record} for record in records()])
    return SourceConfig(hub=str(folder / "files"), split="validation")


def config_folder_of_parquet_streamed(folder):
    import datasets

    (folder / "files").mkdir()
    datasets.Dataset.from_list(records()).to_parquet(str(folder / "files" / "train.parquet"))
    return SourceConfig(hub=str(folder / "files"), streaming=True)


def config_dataset_on_disk_streamed(folder):
    return config_dataset_on_disk(folder).model_copy(update={"streaming": True})


FORMS = [value for name, value in sorted(globals().items()) if name.startswith("config_")]


@pytest.fixture(autouse=True)
def _own_dataset_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_form_gives_the_same_pairs_each_time_it_is_read(form, tmp_path):
    source = open_pairs(form(tmp_path), "en", "de")
    assert isinstance(source, Source)
    first = list(source)
    # a blank jsonl or tsv line is no example, but a pair with an empty side is one
    assert first == EXPECTED == list(source)
    assert source.size in (None, len(EXPECTED))
    assert source.weight == 1.0


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_the_fingerprint_follows_content_and_direction(form, tmp_path):
    first, second = (tmp_path / name for name in ("1", "2"))
    first.mkdir()
    second.mkdir()
    config = form(first)
    opened = open_pairs(config, "en", "de").fingerprint
    assert opened == open_pairs(config, "en", "de").fingerprint
    if config.source is None and config.source_column is None and form is not config_tsv_without_header:
        assert opened != open_pairs(config, "de", "en").fingerprint
    PAIRS.append(Pair("one more", "noch eins"))
    try:
        assert opened != open_pairs(form(second), "en", "de").fingerprint
    finally:
        PAIRS.pop()


class Formerly(Source):
    """A source whose fingerprint is the former one."""

    def __init__(self, source: Source):
        self.name, self.weight, self.size, self.fingerprint = source.name, source.weight, source.size, source.former

    def chunks(self, start=None):
        raise NotImplementedError


WRAPPERS = [
    lambda source: source,
    lambda source: NoisySource(source, NoiseConfig(upper=0.5), ["tr"]),
    lambda source: DirectedSource(source, ("en", "de")),
    lambda source: NoisySource(DirectedSource(source, ("de", "en"), is_reversed=True), NoiseConfig(typos=0.5)),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_the_fingerprint_does_not_know_where_the_content_is_and_formerly_knew_it_of_datasets(form, tmp_path):
    (first := tmp_path / "1").mkdir()
    config = form(first)
    shutil.copytree(first, second := tmp_path / "2")
    dumped = config.model_dump_json().replace(str(first), str(second))
    here, there = (open_pairs(one, "en", "de") for one in (config, SourceConfig(**json.loads(dumped))))
    for wrap in WRAPPERS:
        assert wrap(here).fingerprint == wrap(there).fingerprint
        assert (wrap(here).former != wrap(there).former) == (config.hub is not None)
        assert wrap(here).former == wrap(Formerly(here)).fingerprint
    if config.hub is not None:
        columns, content = here._names, hub.folder_digest(config.hub)
        assert here.former == combined_fingerprint("hub", (config.hub, None, config.split), columns, content)


@pytest.mark.parametrize("columns", [{}, {"text_column": "source", "label_column": "target"}])
def test_a_folder_of_pairs_has_no_labels(tmp_path, columns):
    config = SourceConfig(jsonl=write_parts(tmp_path / "pairs", [("a", "b")]), **columns)
    assert list(open_pairs(config, "en", "de")) == [Pair("a", "b")]
    check_one_line(
        config, "pairs: a folder of pairs, which have no labels; name a file or dataset of labelled texts", True
    )


def test_a_message_about_a_part_counts_the_lines_of_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("seq2seq.data.text_files.CHUNK_BYTES", 1)  # the first chunk is read on opening
    folder = write_parts(tmp_path / "pairs", [("a", "b")] * 3)
    with gzip.open(folder / "part-00001.jsonl.gz", "wt") as part:
        part.write('{"source": "a", "target": "b"}\n{"source": ["a"], "target": "b"}\n')
    (folder / "augment.json").write_text(json.dumps({"counts": {"parts": 2}, "options": {"tag": None}}))
    check_one_line(SourceConfig(jsonl=folder), r"part-00001\.jsonl\.gz: line 2: ")


@pytest.mark.parametrize("text", ["", "  "])
def test_a_blank_text_has_its_label_if_one_is_given(tmp_path, text):
    """Plain or with probabilities; only training corpora leave blank texts out."""
    for label, names in (("a", {}), ({"a": 0.9, "b": 0.1}, {"a": "a", "b": "b"})):
        rows = [{"text": "first", "label": label}, {"text": text, "label": label}]
        path = write_jsonl(tmp_path / "x.jsonl", rows)
        assert [found.label for found in open_labelled(SourceConfig(jsonl=path), label_names=names)] == ["a", "a"]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_dataset_folder_is_read_as_it_is_also_if_its_times_are_those_of_another(tmp_path, form):
    """Copies and archives keep times, by which `datasets` knows files."""
    import datasets

    (folder := tmp_path / "files").mkdir()
    path, write = folder / f"train.{form}", getattr(datasets.Dataset, f"to_{form.replace('jsonl', 'json')}")
    for word in ("one", "two", "one"):
        pairs = [Pair(f"{word} {number}", "x") for number in range(3)]
        path.unlink(missing_ok=True)
        write(datasets.Dataset.from_list([{"en": pair.source, "de": pair.target} for pair in pairs]), str(path))
        os.utime(path, (1_700_000_000, 1_700_000_000))
        source = open_pairs(SourceConfig(hub=str(folder)), "en", "de")
        assert list(source) == list(source) == pairs


def keep_revision(folder, revision, word):
    """Keep the rows of a dataset of the hub at a revision as `datasets` does after a download."""
    from datasets.packaged_modules.json.json import Json

    path = write_jsonl(folder / f"{revision}.jsonl", [{"en": f"{word} {number}", "de": "x"} for number in range(3)])
    names = {"dataset_name": "corpus", "config_id": "default"}
    made = Json(cache_dir=str(folder / "hf"), hash=revision, data_files={"train": [str(path)]}, **names)
    made.download_and_prepare()


@pytest.mark.parametrize("streaming", [False, True])
def test_the_rows_of_a_hub_dataset_are_its_identity_and_of_a_stream_the_revision(tmp_path, monkeypatch, streaming):
    """Also where the number of rows is the same; without the network, the rows that were kept last are read."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    config, found = SourceConfig(hub="corpus", streaming=streaming), []
    for revision, word in (("a" * 40, "one"), ("b" * 40, "two"), ("c" * 40, "two")):
        keep_revision(tmp_path, revision, word)
        source, again = (open_pairs(config, "en", "de") for _ in range(2))
        assert [pair.source for pair in source] == [f"{word} {number}" for number in range(3)]
        assert source.fingerprint == again.fingerprint
        found.append(source.fingerprint)
    assert found[0] not in found[1:]
    assert (found[1] == found[2]) != streaming


def test_unequal_line_counts_are_both_named(tmp_path):
    config = write_text(tmp_path)
    with open(config.target, "ab") as file:
        file.write(b"one more, without an end")
    with pytest.raises(DataError, match=r"text\.source has 5 lines but .*text\.target has 6"):
        open_pairs(config, "en", "de")


def test_broken_utf8_is_replaced_and_its_line_said(tmp_path, caplog):
    config = write_text(tmp_path)
    config.source.write_bytes(b"fine\nbro\xffken\nfine\nfine\n\xfe\n")
    with caplog.at_level(logging.WARNING):
        read = list(open_pairs(config, "en", "de"))
    assert read[1].source == "bro\ufffdken"
    assert "line 2 and in 1 more" in caplog.text


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{not json", "not JSON"),
        ("[1, 2]", "a list instead of an object"),
        ('{"en": ["a"], "de": "b"}', "en: a list instead of text"),
        ('{"en": {}, "de": "b"}', "en: an object instead of text"),
        ('{"en": -Infinity, "de": "b"}', "en: an infinite number instead of text"),
        ("[" * 100_000, "not JSON"),
        ('{"en": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_a_bad_json_line_is_named(line, problem, tmp_path):
    path = write(tmp_path / "x.jsonl", '{"en": "a", "de": "b"}', "", line)
    check_one_line(SourceConfig(jsonl=path), rf"x\.jsonl: line 3: {problem}")


@pytest.mark.parametrize("missing", [None, math.nan])
@pytest.mark.parametrize("side", ["en", "de"])
def test_null_is_an_empty_side_and_no_label(side, missing, tmp_path):
    """NaN too, which pandas writes for null."""
    path = write_jsonl(tmp_path / "x.jsonl", [{"en": "a", "de": "b"}, {"en": "c", "de": "d"} | {side: missing}])
    expected = {"en": ("c", "d"), "de": ("c", "d")}[side]
    sides = [text if name != side else "" for name, text in zip(("en", "de"), expected, strict=True)]
    assert list(open_pairs(SourceConfig(jsonl=path), "en", "de")) == [Pair("a", "b"), Pair(*sides)]
    path = write_jsonl(tmp_path / "y.jsonl", [{"text": missing, "label": "x"}, {"text": "a", "label": missing}])
    with pytest.raises(DataError, match="line 2: label: null instead of text"):
        list(open_labelled(SourceConfig(jsonl=path)))


def test_a_text_that_is_the_number_0_is_a_text(tmp_path):
    for label in ("a", {"a": 0.5, "b": 0.5}):
        path = write_jsonl(tmp_path / "x.jsonl", [{"text": 0, "label": label}])
        names = {"a": "a", "b": "b"} if isinstance(label, dict) else {}
        (found,) = open_labelled(SourceConfig(jsonl=path), label_names=names)
        assert found.text == "0"


def test_every_end_of_a_chunk_of_a_dataset_is_a_position(monkeypatch):
    """Also that of the last, when the rows are a multiple of those of a chunk."""
    import datasets

    monkeypatch.setattr(hub, "CHUNK_ROWS", 2)
    for count in range(6):
        dataset = datasets.Dataset.from_dict({"en": [str(number) for number in range(count)]})
        whole = list(hub.dataset_chunks(dataset, ["en"], "corpus"))
        for read, (_, end) in enumerate(whole, start=1):
            assert list(hub.dataset_chunks(dataset, ["en"], "corpus", end)) == whole[read:]


def test_line_feeds_inside_json_text_do_not_make_a_new_line(tmp_path):
    path = write_jsonl(tmp_path / "x.jsonl", [{"en": "a\nb", "de": "c\r\nd"}])
    assert list(open_pairs(SourceConfig(jsonl=path), "en", "de")) == [Pair("a b", "c  d")]


def test_a_damaged_gzip_file_is_named(tmp_path):
    config = write_text(tmp_path, compress=True)
    config.source.write_bytes(config.source.read_bytes()[:-12])
    check_one_line(config, r"text\.source: damaged")


def test_labelled_texts_from_every_form(tmp_path):
    import datasets

    texts = [("it 's a charming journey . ", 1), ('unflinchingly bleak "and', 0)]
    expected = [LabelledText(text, str(label)) for text, label in texts]
    tsv = write(tmp_path / "x.tsv", "sentence\tlabel", *(f"{text}\t{label}" for text, label in texts))
    bare = write(tmp_path / "bare.tsv", *(f"{label}\t{text}" for text, label in texts))
    rows = [{"text": text, "label": label} for text, label in texts]
    jsonl = write_jsonl(tmp_path / "x.jsonl", rows)
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    for config in (
        SourceConfig(tsv=tsv),
        SourceConfig(tsv=bare, text_column=1, label_column=0),
        SourceConfig(jsonl=jsonl),
        SourceConfig(hub=str(tmp_path / "saved")),
    ):
        assert list(open_labelled(config)) == expected


def test_class_labels_of_a_dataset_have_their_names_and_hidden_ones_are_an_error(tmp_path):
    import datasets

    features = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["negative", "positive"])}
    )
    rows = [{"sentence": "good", "label": 1}, {"sentence": "bad", "label": 0}]
    datasets.Dataset.from_list(rows, features=features).save_to_disk(str(tmp_path / "seen"))
    read = list(open_labelled(SourceConfig(hub=str(tmp_path / "seen"))))
    assert read == [LabelledText("good", "positive"), LabelledText("bad", "negative")]
    hidden = [{**row, "label": -1} for row in rows]
    datasets.Dataset.from_list(hidden, features=features).save_to_disk(str(tmp_path / "hidden"))
    check_one_line(SourceConfig(hub=str(tmp_path / "hidden")), "without a label; use another split", labelled=True)


def test_labelled_texts_do_not_come_from_two_files(tmp_path):
    check_one_line(write_text(tmp_path), "come from tsv, jsonl or hub", labelled=True)


def test_a_dataset_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    check_one_line(SourceConfig(hub="stanfordnlp/sst2"), "stanfordnlp/sst2, split train: .*cannot be reached")
    (tmp_path / "empty").mkdir()
    check_one_line(SourceConfig(hub=str(tmp_path / "empty")), "an empty folder")
    files = config_folder_of_jsonl(tmp_path)
    check_one_line(files.model_copy(update={"split": "valid"}), "split valid: .*validation")
    check_one_line(files.model_copy(update={"subset": "de-en"}), r"\(de-en\)")
    saved = config_dataset_on_disk(tmp_path)
    check_one_line(saved.model_copy(update={"split": "trian"}), "no split 'trian'.*did you mean 'train'")


def test_a_file_that_is_not_utf8_is_told_once_for_each_content(tmp_path, caplog):
    def told() -> list[str]:
        caplog.clear()
        for _ in range(3):  # a run reads its corpora several times, from several objects
            assert len(list(open_pairs(SourceConfig(source=damaged, target=whole), "en", "de"))) == 3
        return caplog.messages

    damaged, whole = tmp_path / "latin.en", write(tmp_path / "whole.de", "a", "b", "c")
    damaged.write_bytes(b"caf\xe9\nb\nn\xe9e\n")
    problem = f"{damaged}: not UTF-8 in line 1 and in 1 more; the bytes were replaced by U+FFFD; convert the file"
    assert told() == [f"{problem} (iconv -f latin1 -t utf-8)"]
    assert told() == []
    damaged.write_bytes(b"caf\xe9\nb\nc\n")
    assert told() == [f"{problem.replace(' and in 1 more', '')} (iconv -f latin1 -t utf-8)"]
