"""Corpora that a command names by files: the columns are those of the languages, whatever stands beside them."""

import json
import zipfile
from itertools import permutations
from pathlib import Path

import pytest

from seq2seq.config.corpora import SourceConfig
from seq2seq.data.corpus_files import corpus_of_files
from seq2seq.data.sources import open_pairs
from seq2seq.errors import DataError

PAIRS = [("A man walks.", "Ein Mann geht."), ("Two dogs play.", "Zwei Hunde spielen.")]
OTHERS = {"id": "7", "source_language": "en", "target_language": "de", "score": "0.5"}


def read(path: Path, *languages: str | None) -> list[tuple[str, str]]:
    source = open_pairs(corpus_of_files([path], *languages), *(language or "" for language in languages))
    return [pair.texts for pair in source]


def write(place: Path, form: str, heads: tuple[str, ...], source: str, target: str) -> Path:
    """Write the pairs under the names `source` and `target`, among other columns."""
    rows = [{**OTHERS, source: one, target: other} for one, other in PAIRS]
    path = place / f"corpus.{form}"
    if form == "jsonl":
        lines = [json.dumps({head: row[head] for head in heads}) for row in rows]
    else:
        lines = ["\t".join(heads), *("\t".join(row[head] for head in heads) for row in rows)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("form", ["tsv", "jsonl", "TSV", "jsonl blank"])
@pytest.mark.parametrize("others", [(), ("id",), ("id", "score"), ("source_language", "target_language")])
def test_the_sides_are_source_and_target_wherever_they_stand(form, others, tmp_path):
    for heads in permutations((*others, "source", "target")):
        path = write(tmp_path, form.split()[0], heads, "source", "target")
        if "blank" in form:
            path.write_text("\n" + path.read_text())
        for languages in [(None, None), ("en", None), (None, "de"), ("en", "de")]:
            assert read(path, *languages) == PAIRS, (heads, languages)


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
@pytest.mark.parametrize("others", [(), ("id",)])
def test_the_sides_are_the_languages_and_one_of_them_is_enough(form, others, tmp_path):
    for heads in permutations((*others, "en", "de")):
        path = write(tmp_path, form, heads, "en", "de")
        for languages in [("en", None), (None, "de"), ("English", "deu")]:
            assert read(path, *languages) == PAIRS, (heads, languages)
        swapped = [pair[::-1] for pair in PAIRS]
        for languages in [("de", None), (None, "en")]:
            assert read(path, *languages) == swapped, (heads, languages)
        first = next(head for head in heads if head != "id")
        assert read(path, None, None) == (PAIRS if first == "en" else swapped)
        with pytest.raises(DataError, match="name the languages of source and target"):
            corpus_of_files([path], "fr", None)


def test_an_empty_table_has_no_pairs(tmp_path):
    for name in ("a.tsv", "a.jsonl"):
        (tmp_path / name).write_text("\n" * 2)
        assert list(open_pairs(corpus_of_files([tmp_path / name], None, None), "en", "de")) == []


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
@pytest.mark.parametrize("heads", [("id", "text", "sentence"), ("en", "de", "fr"), ("id", "index", "en")])
def test_columns_that_may_be_anything_are_refused(form, heads, tmp_path):
    (tmp_path / "x.tsv").write_text("\t".join(heads) + "\n")
    (tmp_path / "x.jsonl").write_text(json.dumps(dict.fromkeys(heads, "A man.")) + "\n")
    with pytest.raises(DataError, match=r"its columns are .*; name the languages of source and target, or rename two"):
        corpus_of_files([tmp_path / f"x.{form}"], None, None)


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
@pytest.mark.parametrize(
    ("heads", "wanted", "found"),
    [
        (("en", "sr_Latn", "sr_Cyrl"), "srp_Cyrl", "sr_Cyrl"),
        (("en", "sr_Latn", "sr_Cyrl"), "srp_Latn", "sr_Latn"),
        (("en", "zh-CN", "zh-TW"), "zh_TW", "zh-TW"),
        (("en", "zh-Hans", "zh-Hant"), "zho_Hant", "zh-Hant"),
        (("en", "pt-PT"), "pt_BR", "pt-PT"),
    ],
)
def test_a_variant_of_a_language_has_its_own_column(form, heads, wanted, found, tmp_path):
    if form == "tsv":
        (tmp_path / "x.tsv").write_text("\t".join(heads) + "\n" + "\t".join(heads) + " text\n")
    else:
        (tmp_path / "x.jsonl").write_text(json.dumps({head: head for head in heads}) + "\n")
    source = open_pairs(SourceConfig(**{form: tmp_path / f"x.{form}"}), "en", wanted)
    assert [pair.target.removesuffix(" text") for pair in source] == [found]
    assert [target.removesuffix(" text") for _, target in read(tmp_path / f"x.{form}", "en", wanted)] == [found]


@pytest.mark.parametrize(("heads", "words"), [
    (("en", "zh-Hans", "zh-Hant"), "several columns mean 'zh': 'zh-Hans', 'zh-Hant'; name one in the config"),
])  # fmt: skip
def test_variants_that_a_language_does_not_tell_apart_are_named(heads, words, tmp_path):
    (tmp_path / "x.tsv").write_text("\t".join(heads) + "\na\tb\tc\n")
    with pytest.raises(DataError, match=words):
        open_pairs(SourceConfig(tsv=tmp_path / "x.tsv"), "en", "zh")


@pytest.mark.parametrize("suffix", ["tsv", "csv"])
def test_a_table_of_one_column_is_refused(suffix, tmp_path):
    (tmp_path / f"x.{suffix}").write_text("de\nHallo\nTag\n")
    for languages in [("de", None), (None, "German"), ("de", "en"), (None, None)]:
        with pytest.raises(DataError):
            read(tmp_path / f"x.{suffix}", *languages)
    with pytest.raises(DataError, match="its only column is de; write the translations in another one"):
        corpus_of_files([tmp_path / f"x.{suffix}"], "de", None)


def test_a_table_without_header_is_read_from_its_first_line(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    assert [read(path, *sides) for sides in [(None, None), ("en", None), ("en", "de")]] == [PAIRS] * 3


def memory(path: Path, *languages: str) -> Path:
    units = [
        "".join(f'<tuv xml:lang="{name}"><seg>{name} {number}</seg></tuv>' for name in languages) for number in range(2)
    ]
    body = "".join(f"<tu>{unit}</tu>" for unit in units)
    path.write_text(f'<tmx version="1.4"><header srclang="en"/><body><tu/>{body}</body></tmx>')
    return path


@pytest.mark.parametrize("order", [("en", "de"), ("de", "en")])
def test_one_language_chooses_the_side_of_a_translation_memory_and_of_an_archive(order, tmp_path):
    path = memory(tmp_path / "x.TMX", *order)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in order:
            archive.writestr(f"c.de-en.{name}", f"{name} 0\n{name} 1\n")
    for languages, sides in [
        (("en", None), "en de"), (("de", None), "de en"), ((None, "de"), "en de"), ((None, "en"), "de en"),
    ]:  # fmt: skip
        expected = [tuple(f"{side} {number}" for side in sides.split()) for number in range(2)]
        found = read(path, *languages)
        assert list(filter(None, found)) == expected
        assert read(tmp_path / "x.zip", *languages) == expected


def test_a_translation_memory_of_several_other_languages_is_refused(tmp_path):
    path = memory(tmp_path / "x.tmx", "en", "de", "fr")
    with pytest.raises(DataError, match="a translation unit has en, de, fr; name the languages of source and target"):
        read(path, "en", None)
    with pytest.raises(DataError, match="no translation unit has 'it' and another language; name languages"):
        read(path, "it", None)


@pytest.mark.parametrize(
    ("names", "languages", "expected"),
    [
        ("train.en train.de test.en test.de", ("en", "de"), r"train\.en, test\.en are in one language; extract two"),
        ("x.en x.de README.de", ("en", "de"), r"x\.de, README\.de are in one language; extract two files"),
        ("x.en x.pt x.pt_BR", ("en", "pt"), ["x.en", "x.pt"]),
        ("x.en x.pt x.pt_BR", ("en", "pt_BR"), ["x.en", "x.pt_BR"]),
        ("x.en x.zh_CN x.zh_TW", ("en", "zh_TW"), ["x.en", "x.zh_TW"]),
        ("x.en x.zh_CN x.zh_TW", ("en", "zh"), "its text files are x.en, x.zh_CN, x.zh_TW; name the languages"),
        ("README LICENSE x.en x.de", ("de", "en"), ["x.de", "x.en"]),
    ],
)
def test_the_two_files_of_an_archive_are_those_that_are_named(names, languages, expected, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in names.split():
            archive.writestr(name, f"{name}\n")
    if isinstance(expected, list):
        assert read(tmp_path / "x.zip", *languages) == [tuple(expected)]
        return
    with pytest.raises(DataError, match=expected):
        read(tmp_path / "x.zip", *languages)
