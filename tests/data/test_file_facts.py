"""What is remembered of a file is what is in it: any change is noticed, and nothing is remembered too early."""

import gzip
import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from seq2seq.config.corpora import SourceConfig
from seq2seq.data import file_facts as facts_module
from seq2seq.data.file_facts import check_unchanged, file_facts
from seq2seq.data.sources import open_pairs
from seq2seq.errors import DataError


@pytest.fixture
def reads(monkeypatch):
    """The files that were read for their facts."""
    read, plain = [], facts_module._read
    monkeypatch.setattr(facts_module, "_read", lambda path, is_text: read.append(path.name) or plain(path, is_text))
    return read


@pytest.fixture
def settled(monkeypatch):
    """Files count as settled as soon as they are written."""
    monkeypatch.setattr(facts_module, "SETTLED_SECONDS", -10.0)


@pytest.mark.parametrize(
    ("content", "lines"), [(b"", 0), (b"\n", 1), (b"a\nb", 2), (b"a\r\nb\n", 2), (b"a\xe2\x80\xa8b\n", 1)]
)
def test_the_facts_are_those_of_the_content(content, lines, tmp_path):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    for path in (plain, packed):
        facts = file_facts(path)
        assert (facts.lines, facts.sha256) == (lines, hashlib.sha256(path.read_bytes()).hexdigest())


def test_a_file_is_read_once_while_it_stays_the_same(tmp_path, reads, settled, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(b"one\ntwo\n")
    first = file_facts(path, tmp_path / "cache")
    assert file_facts(path, tmp_path / "cache") == first
    monkeypatch.chdir(tmp_path)
    assert file_facts(path.relative_to(tmp_path), tmp_path / "cache") == first
    assert reads == ["x"]
    assert file_facts(path) == first  # without a cache it is read again
    assert reads == ["x", "x"]


def written_over(path, other):
    path.write_bytes(other)


def patched(path, other):
    with open(path, "r+b") as file:
        file.write(other)


def replaced(path, other):
    beside = path.with_suffix(".new")
    beside.write_bytes(other)
    os.replace(beside, path)


@pytest.mark.parametrize("change", [written_over, patched, replaced])
def test_a_change_of_the_same_length_under_the_same_date_is_noticed(change, tmp_path, settled):
    path = tmp_path / "x"
    path.write_bytes(b"one\ntwo\n")
    status, first = path.stat(), file_facts(path, tmp_path / "cache")
    time.sleep(0.02)  # longer than a step of the file system's clock
    change(path, b"one\nTWO\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    with pytest.raises(DataError, match="changed while it was read"):
        check_unchanged(path, first)
    assert file_facts(path, tmp_path / "cache").sha256 == hashlib.sha256(b"one\nTWO\n").hexdigest()


def test_a_file_that_was_just_written_is_not_remembered(tmp_path, reads):
    path = tmp_path / "x"
    path.write_bytes(b"one\n")
    for _ in range(2):
        file_facts(path, tmp_path / "cache")
    assert len(reads) == 2


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"sha256": 1', json.dumps({"lines": 3}).encode()])
def test_a_damaged_note_is_not_believed(damage, tmp_path, settled):
    path = tmp_path / "x"
    path.write_bytes(b"one\n")
    first = file_facts(path, tmp_path / "cache")
    (note,) = (tmp_path / "cache").rglob("*.json")
    note.write_bytes(damage)
    assert file_facts(path, tmp_path / "cache") == first


def test_a_cache_that_cannot_be_written_changes_nothing(tmp_path, settled):
    (tmp_path / "cache").write_text("in the way")
    (tmp_path / "x").write_bytes(b"one\n")
    assert file_facts(tmp_path / "x", tmp_path / "cache") == file_facts(tmp_path / "x")


@pytest.mark.parametrize("kind", ["text", "jsonl"])
def test_a_corpus_that_changes_while_it_is_read_is_an_error(kind, tmp_path):
    paths = [tmp_path / "en", tmp_path / "de"]
    for path in paths:
        path.write_bytes((b"a line\n" if kind == "text" else b'{"en": "a", "de": "b"}\n') * 9)
    config = SourceConfig(source=paths[0], target=paths[1]) if kind == "text" else SourceConfig(jsonl=paths[0])
    source = open_pairs(config, "en", "de")
    chunks = source.chunks()
    next(chunks)
    with open(paths[0], "ab") as file:
        file.write(b" ")
    with pytest.raises(DataError, match=r"en.* changed while (it was|they were) read; start again"):
        list(chunks)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_once(tmp_path, monkeypatch, packed):
    path, content = tmp_path / "corpus", b"a line of text\n" * 300_000
    path.write_bytes(gzip.compress(content) + b"\0" * 5_000_000 if packed else content)  # gzip may be padded
    before = int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])
    facts = file_facts(path)
    after = int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])
    assert (facts.lines, facts.sha256) == (300_000, hashlib.sha256(path.read_bytes()).hexdigest())
    assert path.stat().st_size <= after - before < 1.2 * path.stat().st_size
