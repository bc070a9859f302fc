"""Laws of the sources: every format gives the same examples, and every bad input is one line with place and remedy."""

import csv
import gzip
import io
import json
import logging

import pytest

from seq2seq.config.corpora import SourceConfig
from seq2seq.data.examples import LabelledText, Pair, Source
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import DataError
from seq2seq.lines import read_lines

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


def write(path, *lines):
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def write_jsonl(path, records):
    return write(path, *(json.dumps(record, ensure_ascii=False) for record in records))


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


def check_one_line(config, pattern, labelled=False):
    with pytest.raises(DataError, match=pattern) as error:
        list(open_labelled(config) if labelled else open_pairs(config, "en", "de"))
    assert "\n" not in str(error.value)


def test_a_missing_column_names_those_that_are_there_and_the_nearest(tmp_path):
    tsv = write(tmp_path / "x.tsv", "en\tgern", "a\tb")
    check_one_line(SourceConfig(tsv=tsv), "no column 'de'; it has 'en', 'gern'; name .* \\(target_column\\)")
    check_one_line(
        SourceConfig(tsv=tsv, source_column="en", target_column="germ"), "no column 'germ'.*did you mean 'gern'"
    )
    jsonl = write_jsonl(tmp_path / "x.jsonl", [{"translation": {"en": "a", "due": "b"}}])
    check_one_line(SourceConfig(jsonl=jsonl), r"x\.jsonl: line 1: no column 'de'.*'due'")
    check_one_line(SourceConfig(jsonl=jsonl, source_column=0, target_column=1), "column 0 is a number")
    tsv = write(tmp_path / "y.tsv", "review\tlabel", "good\t1")
    check_one_line(SourceConfig(tsv=tsv), "no column 'sentence' or 'text'; it has 'review', 'label'", labelled=True)


def test_columns_are_named_or_numbered_not_both(tmp_path):
    tsv = write(tmp_path / "x.tsv", "a\tb\tc")
    check_one_line(SourceConfig(tsv=tsv, source_column="a", target_column=1), "name both columns, or number both")
    check_one_line(SourceConfig(tsv=tsv, source_column=1), "both columns are number 1")


def test_a_line_with_another_number_of_columns_is_named(tmp_path):
    tsv = write(tmp_path / "x.tsv", "en\tde", "a\tb", "", "a\ttab\tinside")
    check_one_line(SourceConfig(tsv=tsv), r"x\.tsv: line 4 has 3 columns instead of 2")
    tsv = write(tmp_path / "y.tsv", "a\tb\tattribution", "alone")
    check_one_line(SourceConfig(tsv=tsv), r"y\.tsv: line 2 has 1 column instead of at least 2; correct the line")
    tsv = write(tmp_path / "z.tsv", "Hi, there,Hallo")
    check_one_line(SourceConfig(tsv=tsv), r"z\.tsv: line 1 has 1 column .*; a CSV needs a name that ends in \.csv")


QUOTED = [Pair('He said, "really"; yes', "Er sagte"), Pair("A, b; c\td", '"Ja"'), Pair("", "leer"), Pair("d", "e")]


@pytest.mark.parametrize("head", [None, ("en", "de"), ("German", "English"), ("DE", "en-GB")])
@pytest.mark.parametrize(("name", "dialect"), [("x.csv", ","), ("x.csv", ";"), ("x.csv.gz", ";"), ("x.tsv", "\t")])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_what_a_spreadsheet_exports_is_read_without_its_quotes(tmp_path, head, name, dialect, quoting):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=dialect, quoting=quoting)
    swaps = head is not None and head[0].lower() in ("de", "german")
    writer.writerows([head] * (head is not None))
    writer.writerows([(pair.target, pair.source) if swaps else (pair.source, pair.target) for pair in QUOTED])
    content = text.getvalue().encode("utf-8-sig")
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    source = open_pairs(SourceConfig(tsv=tmp_path / name), "en", "de")
    assert list(source) == QUOTED
    assert source.size == len(QUOTED)


def test_a_csv_record_is_one_line(tmp_path):
    path = write(tmp_path / "x.csv", "en,de", 'a,"b', 'c"')
    check_one_line(SourceConfig(tsv=path), r"x\.csv: line 2: not one record .*write each record in one line")
    path = write(tmp_path / "y.csv", "en,de", '"a" b,c')
    check_one_line(SourceConfig(tsv=path), r"y\.csv: line 2: not one record")


@pytest.mark.parametrize(
    "lines",
    [
        ['"Ja," sagte er.\tx', '"a ""b"""\ty'],  # not every quote is a spreadsheet's
        ['"Hi!"\t"Hallo!"', "Yes.\tJa."],  # a text in quotes
        ['"\tx', 'y\t"'], ['a "b" c\td'],
    ],
)  # fmt: skip
def test_quotes_in_other_tsv_are_text(tmp_path, lines):
    source = open_pairs(SourceConfig(tsv=write(tmp_path / "x.tsv", *lines)), "en", "de")
    assert list(source) == [Pair(*line.split("\t")) for line in lines]


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
@pytest.mark.parametrize(
    "head", [("English", "Deutsch"), ("german", "ENGLISH"), ("eng", "deu"), ("en_US", "de-DE"), ("Englisch", "Deutsch")]
)
def test_languages_by_any_of_their_names_head_the_columns(tmp_path, suffix, head):
    path = write(tmp_path / f"x{suffix}", *(("," if suffix == ".csv" else "\t").join(r) for r in (head, ("a", "b"))))
    swaps = head[0] == "german"
    assert list(open_pairs(SourceConfig(tsv=path), "en", "de")) == [Pair("b", "a") if swaps else Pair("a", "b")]
    record = [dict(zip(head, ("a", "b"), strict=True))]
    jsonl = SourceConfig(jsonl=write_jsonl(tmp_path / "x.jsonl", record))
    assert list(open_pairs(jsonl, "eng", "de_DE")) == [Pair("b", "a") if swaps else Pair("a", "b")]


@pytest.mark.parametrize("head", ["English\tFrench", "source\ttarget", "Text\tTranslation", "id\tsentence\tlang"])
def test_a_header_that_nobody_knows_is_no_pair(tmp_path, head):
    path = write(tmp_path / "x.tsv", head, "a\tb\tc")
    first, second, *_ = head.split("\t")
    named = f"source_column: {first}, target_column: {second}"
    check_one_line(SourceConfig(tsv=path), rf"line 1 looks like a header .*\({named}\), or remove it$")
    check_one_line(SourceConfig(tsv=path, source_column=0, target_column=1), "line 1 looks like a header")


@pytest.mark.parametrize(
    "line", ["It\tEs", "No.\tNein.", "Text\ttext", "German\tDeutsch", "Hello\tHallo", "the source\tdie Quelle", "\t"]
)
def test_short_first_pairs_are_no_header(tmp_path, line):
    path = write(tmp_path / "x.tsv", line, "a\tb")
    assert len(list(open_pairs(SourceConfig(tsv=path), "en", "de"))) == 2


REVIEWS = [f"a review of number {i}\t{label}" for i, label in enumerate(["good", "bad", "3"] * 30)]


@pytest.mark.parametrize("head", ["review\tsentiment", "Kommentar\tStimmung", "Text der Kritik\tUrteil", "Text\tclass"])
def test_a_header_never_becomes_a_class(tmp_path, head):
    path = write(tmp_path / "x.tsv", head, *REVIEWS)
    named = r"\(text_column: {}, label_column: {}\)".format(*head.split("\t"))
    check_one_line(SourceConfig(tsv=path), rf"line 1 looks like a header .*{named}, or remove it$", labelled=True)
    assert len(list(open_labelled(SourceConfig(tsv=write(tmp_path / "y.tsv", *REVIEWS))))) == 90


def test_a_header_of_swapped_columns_names_them_rightly(tmp_path):
    path = write(tmp_path / "x.tsv", "sentiment\treview", *("\t".join(line.split("\t")[::-1]) for line in REVIEWS))
    named = r"\(text_column: review, label_column: sentiment\)"
    check_one_line(SourceConfig(tsv=path), rf"line 1 looks like a header .*{named}, or remove it$", labelled=True)


@pytest.mark.parametrize(
    "lines",
    [
        ["fine\tgood", *REVIEWS],
        ["fine\t7", *REVIEWS],  # a number is no name of a column
        ["a long review, and not the name of a column\trare", *REVIEWS],
        ["fine\trare", *REVIEWS, "another\tas rare"],
        ["fine\tgood", "foul\tbad", "ill\tbad"],  # too few to say
    ],
)
def test_rare_labels_are_no_header(tmp_path, lines):
    assert len(list(open_labelled(SourceConfig(tsv=write(tmp_path / "x.tsv", *lines))))) == len(lines)


def test_no_first_line_of_the_real_corpora_is_taken_for_a_header(real_data, tmp_path):
    for folder, names in (
        ("multi30k", ("train.en", "train.de")), ("multi30k", ("val.fr", "val.de")),
        ("tatoeba", ("train.en", "train.de")), ("small_enja", ("train.en", "train.ja")),
    ):  # fmt: skip
        sides = [[line.replace("\t", " ") for line in read_lines(real_data / folder / f"{n}.gz")][:500] for n in names]
        pairs = list(map(Pair, *sides))
        for first in range(0, 500, 5):  # any line may be the first
            lines = [f"{pair.source}\t{pair.target}" for pair in pairs[first : first + 3]]
            assert (
                list(open_pairs(SourceConfig(tsv=write(tmp_path / "x.tsv", *lines)), "en", "de"))
                == pairs[first : first + 3]
            )
    for name, size in (("train", 67_349), ("dev", 872)):
        path = real_data / "sst2" / f"{name}.tsv.gz"
        assert open_labelled(SourceConfig(tsv=path)).size == size
        bare = list(read_lines(path))[1:3001]
        for first in range(0, 500, 10):
            open_labelled(SourceConfig(tsv=write(tmp_path / "x.tsv", *bare[first:])))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{not json", "not JSON"),
        ("[1, 2]", "a list instead of an object"),
        ('{"en": ["a"], "de": "b"}', "en: a list instead of text"),
        ('{"en": {}, "de": "b"}', "en: an object instead of text"),
        ("[" * 100_000, "not JSON"),
        ('{"en": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_a_bad_json_line_is_named(line, problem, tmp_path):
    path = write(tmp_path / "x.jsonl", '{"en": "a", "de": "b"}', "", line)
    check_one_line(SourceConfig(jsonl=path), rf"x\.jsonl: line 3: {problem}")


@pytest.mark.parametrize("side", ["en", "de"])
def test_null_is_an_empty_side_and_no_label(side, tmp_path):
    path = write_jsonl(tmp_path / "x.jsonl", [{"en": "a", "de": "b"}, {"en": "c", "de": "d"} | {side: None}])
    expected = {"en": ("c", "d"), "de": ("c", "d")}[side]
    sides = [text if name != side else "" for name, text in zip(("en", "de"), expected, strict=True)]
    assert list(open_pairs(SourceConfig(jsonl=path), "en", "de")) == [Pair("a", "b"), Pair(*sides)]
    path = write_jsonl(tmp_path / "y.jsonl", [{"text": None, "label": "x"}, {"text": "a", "label": None}])
    with pytest.raises(DataError, match="line 2: label: null instead of text"):
        list(open_labelled(SourceConfig(jsonl=path)))


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
