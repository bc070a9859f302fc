"""The two files of a source are of one corpus: relative names of one folder are found in one place."""

import gzip
from pathlib import Path

import pytest

from seq2seq.config import file as config_file
from seq2seq.errors import ConfigError

SOURCES = {
    "data.train": "data: {{train: {0}, valid: {{tsv: table.tsv}}}}",
    "data.valid": "data: {{train: {{tsv: table.tsv}}, valid: {0}}}",
    "data.test.news": "data: {{train: {{tsv: table.tsv}}, valid: {{tsv: table.tsv}}, test: {{news: {0}}}}}",
}


@pytest.fixture
def folders(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """The folder of the configuration, with a whole corpus; and $S2S_DATA, with one side of another of that name."""
    own, named = tmp_path / "own", tmp_path / "named"
    for folder in (own / "set", named / "set", tmp_path / "here"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("S2S_DATA", str(named))
    (own / "table.tsv").write_text("a\tb\n")
    for side in ("en", "de"):
        (own / "set" / f"t.{side}").write_text("x\n")
    return own.resolve(), named.resolve()


def source_of(own: Path, key: str, source: object, target: object) -> Path:
    """The target that a configuration finds."""
    text = SOURCES[key].format(f"{{source: '{source}', target: '{target}'}}")
    data = config_file.parse(f"source_language: en\ntarget_language: de\n{text}", folder=own).data
    return {"data.train": data.train[0], "data.valid": data.valid, "data.test.news": data.test.get("news")}[key].target


@pytest.mark.parametrize("key", SOURCES)
def test_a_pair_from_two_folders_is_refused_with_both(folders, key):
    own, named = folders
    (named / "set" / "t.de.gz").write_bytes(gzip.compress(b"y\n"))
    with pytest.raises(ConfigError) as caught:
        source_of(own, key, "set/t.en", "set/t.de")
    assert str(caught.value) == (
        f"config: {key}: source set/t.en is found in {own}, and target set/t.de in {named}; put both into one folder, "
        "or write their full paths"
    )


def test_files_that_are_meant_are_taken(folders):
    own, named = folders
    (named / "set" / "t.de").write_text("y\n")
    (named / "other.de").write_text("y\n")
    assert source_of(own, "data.train", own / "set" / "t.en", named / "set" / "t.de") == named / "set" / "t.de"
    assert source_of(own, "data.train", "set/t.en", "other.de") == named / "other.de", "of another folder"
    (named / "set" / "t.en").write_text("y\n")
    assert source_of(own, "data.train", "set/t.en", "set/t.de") == named / "set" / "t.de"
