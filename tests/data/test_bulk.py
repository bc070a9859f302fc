"""Many files at once, as the README of the bench shows it: one process a shard, and a map over a dataset."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.foreign_models import SOURCE
from support.our_models import make_ours

from seq2seq.config.schema import SearchConfig
from seq2seq.inference.translator import Translator

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="a shell's commands")]

SHARDS = """
split -l 20 --additional-suffix=.en big.en shard.
printf '%s\\n' shard.*.en | sed 's/\\.en$//' |
  xargs -P 2 -I{} s2s translate model --threads 1 -i {}.en -o {}.de
cat shard.*.de > big.de
"""

MAP = """
from functools import cache

from datasets import load_dataset
from seq2seq import Translator


@cache
def translator():  # loaded once in each process
    return Translator.load("model", threads=1)


def translate(batch):
    return {"de": [translation.text for translation in translator().translate(batch["text"])]}


if __name__ == "__main__":
    pages = load_dataset("text", data_files="big.en", split="train")
    pages.map(translate, batched=True, batch_size=20, num_proc=2).to_json("big.jsonl")
"""


@pytest.fixture
def folder(tmp_path):
    search = SearchConfig(beam_size=3, max_length_ratio=1.5)  # of a model that is converted, which starts quickly
    make_ours(tmp_path / "model", ending=4.0, search=search)
    words = " ".join(SOURCE).split()
    lines = [" ".join(words[place % 20 : place % 20 + 1 + place % 6]) for place in range(50)]
    (tmp_path / "big.en").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "s2s").write_text(f'#!/bin/sh\nexec {sys.executable} -m seq2seq "$@"\n')
    (commands / "s2s").chmod(0o755)
    return tmp_path


def environment(folder):
    root = str(Path(__file__).parents[2])
    return {
        **os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": root, "OMP_NUM_THREADS": "1",
        "HF_HOME": str(folder / "hf"),
    }  # fmt: skip


def expected(folder):
    lines = (folder / "big.en").read_text(encoding="utf-8").split("\n")[:-1]
    return [translation.text for translation in Translator.load(folder / "model").translate(lines)]


def test_shards_in_parallel_processes_are_the_whole(folder):
    alone = expected(folder)  # which converts the model
    done = subprocess.run(
        ["sh", "-euc", SHARDS], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert len(list(folder.glob("shard.*.de"))) == 3
    assert (folder / "big.de").read_text(encoding="utf-8").split("\n")[:-1] == alone


def test_a_dataset_is_translated_by_a_map_in_parallel_processes(folder):
    import json

    alone = expected(folder)
    (folder / "bulk.py").write_text(MAP)
    done = subprocess.run(
        [sys.executable, "bulk.py"], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "big.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["de"] for row in rows] == alone
