"""The command file of a recipe: if a training is stopped, it ends there, and the same command continues to the end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.cluster import command_settings
from support.number_words import WORDS, sentences

CONFIGS = Path(__file__).parents[2] / "configs"
SHORT = ["model.preset=tiny", "model.d_model=32", "model.d_ff=64", "model.num_encoder_layers=1",
         "model.num_decoder_layers=1", "model.max_length=32", "training.max_steps=25", "training.max_epochs=null",
         "training.batch_tokens=256", "training.log_every=1"]  # fmt: skip
SETS = {"train": 60, "val": 5, "test_2016_flickr": 5, "test_2017_flickr": 5}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc names the training")
def test_one_command_file_makes_the_model_that_learns_from_an_ensemble(tmp_path):
    data, programs = tmp_path / "data" / "multi30k", tmp_path / "bin"
    data.mkdir(parents=True)
    for name, count in SETS.items():
        rows = sentences(count, count)
        (data / f"{name}.en").write_text("".join(f"{' '.join(row)}\n" for row in rows))
        (data / f"{name}.de").write_text("".join(f"{' '.join(map(WORDS.get, row))}\n" for row in rows))
    programs.mkdir()
    (programs / "s2s").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m seq2seq "$@"\n')
    (programs / "s2s").chmod(0o755)
    settings = {name: value for name, value in command_settings().items() if name != "S2S_DATA"}
    settings["PATH"] = f"{programs}:{os.environ['PATH']}"
    command = ["sh", CONFIGS / "multi30k-en-de-diverse.sh", *(part for each in SHORT for part in ("--set", each))]
    begun = subprocess.Popen(command, cwd=tmp_path, env=settings, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 240
    while not (tmp_path / "runs/en-de-2/metrics.jsonl").exists():
        assert time.monotonic() < deadline
        assert begun.poll() is None, begun.stderr.read().decode()
        time.sleep(0.02)
    (training,) = Path(f"/proc/{begun.pid}/task/{begun.pid}/children").read_text().split()
    os.kill(int(training), signal.SIGTERM)  # the training alone
    said = begun.communicate()[1].decode()
    assert begun.returncode == 1, said
    assert said.splitlines()[-1] == "runs/en-de-2 was stopped; the same command continues"
    assert not (tmp_path / "runs/en-de-3").exists()
    assert not (tmp_path / "runs/en-de-2/best").exists(), "it was stopped before its end"
    again = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("already finished at step 25") == 1
    assert (tmp_path / "runs/en-de-diverse/best/model.safetensors").is_file()
    assert "train forward" in again.stderr
    assert "train backward" in again.stderr
