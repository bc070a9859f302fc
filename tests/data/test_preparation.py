"""A preparation that is killed goes on where it was, to the same bytes, and is never taken for whole before."""

import contextlib
import functools
import gzip
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.forked import workers_of

from seq2seq import atomic
from seq2seq.config.corpora import FilterConfig, SourceConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.data import building, corpus, examples, hub, text_files
from seq2seq.data.corpus import prepare_corpus
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import DataError
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked and killed")

WORDS = ("the", "a", "man", "woman", "dog", "house", "reads", "writes", "sees", "big", "small", "old", "and", "with")
LOOSE = FilterConfig(max_ratio=100.0)
COUNT = 90


def sentences(count, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) + f" {i % 70}." for i in range(count)]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    shared = Tokenizer.train(sentences(300), TokenizerConfig(vocab_size=300), seed=1)
    return TokenizerPair(shared, shared)


@pytest.fixture(autouse=True)
def noted_at_every_chunk(monkeypatch):
    monkeypatch.setattr(building, "NOTE_SECONDS", 0.0)
    monkeypatch.setattr(text_files, "CHUNK_BYTES", 700)
    monkeypatch.setattr(hub, "CHUNK_ROWS", 20)


def write_lines(path, lines, compress=False):
    raw = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(raw) if compress else raw)
    return path


def rows(start, stop):
    both = list(zip(sentences(COUNT), sentences(COUNT, 2), strict=True))
    return [{"en": source, "de": target} for source, target in both[start:stop]]


def shards(folder, kind):
    """A dataset of four files of unequal size."""
    import datasets

    folder.mkdir()
    for number, (start, stop) in enumerate([(0, 7), (7, 50), (50, 51), (51, COUNT)]):
        name = folder / f"train-{number:05d}-of-00004.{kind}"
        if kind == "parquet":
            with hub._quiet(datasets):
                datasets.Dataset.from_list(rows(start, stop)).to_parquet(name)
        else:
            write_lines(name, map(json.dumps, rows(start, stop)))
    return str(folder)


def make_source(kind, folder):
    sides = sentences(COUNT), sentences(COUNT, 2)
    match kind:
        case "text" | "gzip":
            paths = [write_lines(folder / side, lines, kind == "gzip") for side, lines in zip("st", sides, strict=True)]
            return SourceConfig(source=paths[0], target=paths[1])
        case "tsv":
            return SourceConfig(
                tsv=write_lines(folder / "x.tsv", ["en\tde", *map("\t".join, zip(*sides, strict=True))])
            )
        case "jsonl":
            return SourceConfig(jsonl=write_lines(folder / "x.jsonl", ["", *map(json.dumps, rows(0, COUNT))]))
        case "dataset":
            return SourceConfig(hub=shards(folder / "shards", "parquet"))
        case "stream of parquet":
            return SourceConfig(hub=shards(folder / "shards", "parquet"), streaming=True)
        case "stream of jsonl":
            return SourceConfig(hub=shards(folder / "shards", "jsonl"), streaming=True)


def content(prepared):
    return {path.name: path.read_bytes() for path in prepared.folder.iterdir()}


def whole_folders(cache):
    return [path for path in cache.glob("*") if path.is_dir() and not path.name.startswith(".")]


class Death:
    """Kills this process at the n-th call of whatever brings something to the disk."""

    def __init__(self, number):
        self.left = number

    def __enter__(self):
        for name in ("fsync", "replace", "rename", "unlink", "mkdir"):
            setattr(os, name, self._deadly(getattr(os, name)))

    def __exit__(self, *exception):
        os._exit(0)

    def _deadly(self, call):
        def count_and_call(*arguments, **keywords):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **keywords)

        return count_and_call


def killed_at(number, prepare):
    """Whether a forked process that dies at the n-th call did so before it was done with `prepare`."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException), Death(number):
            prepare()
        os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pairs", "labels", "probabilities"])
def test_a_kill_at_any_write_costs_nothing_but_time(kind, tmp_path, tokenizers, caplog, monkeypatch):
    """At every single one in turn: what is there is never taken for whole, and it is finished to the same bytes."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(text_files, "CHUNK_BYTES", 1500)
    labels = [(text, 9 - place % 5) for place, text in enumerate(sentences(60) + sentences(20))]
    lines = [f"{text}\t{label}" for text, label in labels]
    if kind == "pairs":
        sources = [open_pairs(make_source(kind, tmp_path), "en", "de") for kind in ("text", "jsonl")]
    else:
        sources = [open_labelled(SourceConfig(tsv=write_lines(tmp_path / "x.tsv", ["text\tlabel", *lines])))]
    if kind == "probabilities":
        shares = [(text, {other: 0.6 if other == label else 0.1 for other in range(5, 10)}) for text, label in labels]
        lines = [json.dumps({"text": f"Soft: {text}", "label": share}) for text, share in shares]
        sources.append(open_labelled(SourceConfig(jsonl=write_lines(tmp_path / "x.jsonl", lines))))

    def prepare(cache):
        if kind != "pairs":
            return prepare_corpus(sources, tokenizers, LOOSE, cache, num_workers=1, labels=())
        return prepare_corpus(sources, tokenizers, LOOSE, cache, num_workers=1)

    expected = prepare(tmp_path / "whole")
    assert expected.counts.dropped["duplicate"] > 0
    number, cache = 1, tmp_path / "1"
    while killed_at(number, functools.partial(prepare, cache)):
        for folder in whole_folders(cache):  # killed after it was finished
            assert corpus.read_manifest(folder)
        again = prepare(cache)
        assert content(again) == content(expected), f"killed at write {number}"
        assert again.counts == expected.counts
        assert sorted(path.name for path in cache.iterdir()) == [again.folder.name, f"{again.folder.name}.lock"]
        number += 1
        cache = tmp_path / f"{number}"
    assert number > 15
    assert caplog.text.count("continuing there") > number / 2


@pytest.mark.parametrize("kind", ["text", "gzip", "tsv", "jsonl", "dataset", "stream of parquet", "stream of jsonl"])
def test_every_kind_of_source_is_gone_on_with_in_its_middle(kind, tmp_path, tokenizers, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    config = make_source(kind, tmp_path)
    expected = prepare_corpus([open_pairs(config, "en", "de")], tokenizers, LOOSE, tmp_path / "whole", num_workers=1)
    assert [tokenizers.source.decode(expected.ids("source", [i])[0]) for i in range(70)] == sentences(COUNT)[:70]

    class Stopped(BaseException):
        pass

    def write(builder, chunk, origin):
        if builder._progress.counts.total >= 40:
            raise Stopped
        return plain(builder, chunk, origin)

    plain = building.CorpusBuilder._write
    with monkeypatch.context() as patch:
        patch.setattr(building.CorpusBuilder, "_write", write)
        with pytest.raises(Stopped):
            prepare_corpus([open_pairs(config, "en", "de")], tokenizers, LOOSE, tmp_path / "part", num_workers=1)
    assert not whole_folders(tmp_path / "part")
    read = []
    parsed = examples.Chunk.examples
    monkeypatch.setattr(examples.Chunk, "examples", lambda chunk: read.append(parsed(chunk)) or read[-1])
    source = open_pairs(config, "en", "de")
    read.clear()
    again = prepare_corpus([source], tokenizers, LOOSE, tmp_path / "part", num_workers=1)
    assert content(again) == content(expected)
    assert sum(map(len, read)) <= COUNT - 40
    assert "interrupted after" in caplog.text


def test_what_is_noted_beyond_the_files_is_not_believed(tmp_path, tokenizers):
    """A power cut may keep the note and lose what it speaks of."""
    source = open_pairs(make_source("text", tmp_path), "en", "de")
    expected = prepare_corpus([source], tokenizers, LOOSE, tmp_path / "whole", num_workers=1)
    cache = tmp_path / "part"
    number = 1
    while not list(cache.glob(".*/progress.json")):
        assert killed_at(number, functools.partial(prepare_corpus, [source], tokenizers, LOOSE, cache, 1))
        number += 1
    (ids,) = cache.glob(".*/source.ids")
    os.truncate(ids, 3)
    assert content(prepare_corpus([source], tokenizers, LOOSE, cache, num_workers=1)) == content(expected)


def test_a_mistake_in_the_data_leaves_nothing_behind(tmp_path, tokenizers):
    path = write_lines(tmp_path / "x.jsonl", [*map(json.dumps, rows(0, 50)), "{"])
    with pytest.raises(DataError, match="line 51"):
        prepare_corpus([open_pairs(SourceConfig(jsonl=path), "en", "de")], tokenizers, LOOSE, tmp_path / "cache")
    assert not [entry for entry in (tmp_path / "cache").iterdir() if entry.is_dir()]


def test_what_nobody_goes_on_with_is_deleted_after_a_day(tmp_path, tokenizers):
    cache = tmp_path / "cache"
    source = open_pairs(make_source("text", tmp_path), "en", "de")
    names = [letter * 32 for letter in "abc"]
    left = [atomic.unfinished(cache / name) for name in names]
    for folder in left:
        folder.mkdir(parents=True)
        (folder / "source.ids").write_bytes(b"1234")
    for folder in left[:2]:
        os.utime(folder, (time.time() - 2 * 24 * 3600,) * 2)
    with atomic.locked(cache / f"{names[1]}.lock"):
        prepare_corpus([source], tokenizers, LOOSE, cache)
    assert [folder.exists() for folder in left] == [False, True, True]


SCRIPT = """
import logging, sys, time
from pathlib import Path
from seq2seq.config.corpora import FilterConfig, SourceConfig
from seq2seq.data import building, text_files
from seq2seq.data.corpus import prepare_corpus
from seq2seq.data.sources import open_pairs
from seq2seq.text.stored import load_tokenizers

def slow(builder, chunk, origin):
    plain(builder, chunk, origin)
    print("written", flush=True)
    time.sleep(0.01)

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    folder, workers = Path(sys.argv[1]), int(sys.argv[2])
    building.NOTE_SECONDS, text_files.CHUNK_BYTES, building.CHUNKS_WORTH_A_POOL = 0.05, 700, 5
    plain, building.CorpusBuilder._write = building.CorpusBuilder._write, slow
    source = open_pairs(SourceConfig(source=folder / "train.en", target=folder / "train.de"), "en", "de")
    prepare_corpus([source], load_tokenizers(folder), FilterConfig(max_ratio=100.0), folder / "cache", workers)
"""


def start(folder, workers):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    (folder / "prepare.py").write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(folder / "prepare.py"), str(folder), str(workers)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def make_files(folder, tokenizers, count):
    tokenizers.save(folder)
    paths = [write_lines(folder / f"train.{side}", sentences(count, seed)) for seed, side in enumerate(("en", "de"))]
    return open_pairs(SourceConfig(source=paths[0], target=paths[1]), "en", "de")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_killed_at_random_moments_ends_as_if_it_had_not_been(workers, tmp_path, tokenizers):
    source = make_files(tmp_path, tokenizers, 2400)
    expected = prepare_corpus([source], tokenizers, LOOSE, tmp_path / "whole", num_workers=1)
    draw, kills, gone_on = random.Random(workers), 0, 0
    while True:
        process = start(tmp_path, workers)
        if kills < 5:
            process.stdout.readline()
            time.sleep(draw.uniform(0.0, 0.5))
            process.kill()
        errors = process.communicate()[1]
        gone_on += "continuing there" in errors
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, errors
        kills += 1
        assert not whole_folders(tmp_path / "cache")
    assert kills >= 3
    assert gone_on >= 2
    (folder,) = whole_folders(tmp_path / "cache")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content(expected)


def test_workers_end_with_a_parent_that_was_killed(tmp_path, tokenizers):
    make_files(tmp_path, tokenizers, 2000)
    process = start(tmp_path, 2)
    assert process.stdout.readline() == "written\n"
    if not Path(f"/proc/{process.pid}/task/{process.pid}/children").exists():
        process.kill()
        process.wait()
        pytest.skip("needs /proc to see child processes")
    workers = workers_of(process.pid)
    assert len(workers) >= 2
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    while any(_runs(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(process_id):
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
