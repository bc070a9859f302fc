"""A folder of parts belongs to one command and one process at a time; training reads only parts that were written."""

import gzip
import multiprocessing
import os
from pathlib import Path

import pytest

from seq2seq.config.corpora import SourceConfig
from seq2seq.data.sources import open_pairs
from seq2seq.errors import DataError, UserError
from seq2seq.workflows.parts import PartCounts, finish_folder, open_parts, write_part

IDENTITY = {"languages": {"source": "en", "target": "de"}, "options": {"beam_size": 4, "seed": 1}, "texts": ["a"]}
TEXTS = [("A dog.", "Ein Hund."), ("A man.", "Ein Mann."), ("A cat.", "Eine Katze.")]


def make(folder: Path) -> None:
    with open_parts(folder, IDENTITY, {}) as description:
        for number, (source, target) in enumerate(TEXTS):
            write_part(folder, number, [{"source": source, "target": target}], PartCounts(1, 1))
        finish_folder(folder, description, len(TEXTS), PartCounts(len(TEXTS), len(TEXTS)))


def pairs(folder: Path) -> list[tuple[str, ...]]:
    return [pair.texts for pair in open_pairs(SourceConfig(jsonl=folder), "en", "de")]


def opens(folder: Path) -> None:
    with open_parts(folder, IDENTITY, {}):
        pass


def test_another_identity_is_refused_with_the_difference(tmp_path):
    for _ in range(2):
        opens(tmp_path / "made")
    other = {**IDENTITY, "options": {"beam_size": 5, "seed": 1}}
    said = r"options.beam_size 4 there, 5 here; name another folder, or repeat that command"
    with pytest.raises(UserError, match=said), open_parts(tmp_path / "made", other, {}):
        pass


@pytest.mark.skipif(os.name == "nt", reason="no locks on Windows")
def test_a_second_process_is_refused_and_changes_nothing(tmp_path):
    folder = tmp_path / "made"
    with open_parts(folder, IDENTITY, {}):
        write_part(folder, 0, [{"source": "a", "target": "b"}], PartCounts(1, 1))
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        other = multiprocessing.get_context("spawn").Process(target=opens, args=(folder,))
        other.start()
        other.join()
        assert other.exitcode == 1
        with pytest.raises(UserError, match="another process writes into it; wait for it, or name another folder"):
            opens(folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    opens(folder)


def test_nothing_is_made_in_a_folder_of_something_else(tmp_path):
    (tmp_path / "letter").write_text("Dear Sir")
    with pytest.raises(UserError, match=r"exists already, and has no augment\.json"):
        opens(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_a_part_of_another_folder_is_not_read(tmp_path, number):
    """Such a folder remains where an older version is copied over a newer one."""
    make(tmp_path / "made")
    assert pairs(tmp_path / "made") == TEXTS
    path = tmp_path / "made" / f"part-0000{number}.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"source": "Another.", "target": "Anderes."}\n'))
    with pytest.raises(DataError, match=rf"{path.name}: is not the file that was written with part-0000{number}.json"):
        pairs(tmp_path / "made")
    path.with_name(f"part-0000{number}.json").unlink()  # facts that were not copied
    assert len(pairs(tmp_path / "made")) == len(TEXTS)
