"""A run that was stopped or killed ends as one that was not: `--verify-resume`, and SIGKILL to the real command."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_train import WORDS, sentences

from seq2seq.cli import main
from seq2seq.data.stream import BatchStream
from seq2seq.tasks.verify import differences
from seq2seq.training import snapshots
from seq2seq.training.optim import ExponentialMovingAverage

# Everything that a run has to remember at once.
CONFIG = """
source_language: en
target_language: de
data:
  train:
    - {source: train.en, target: train.de, weight: 2.5}
    - {source: more.en, target: more.de}
  valid: {source: valid.en, target: valid.de}
  num_workers: 1
tokenizer: {vocab_size: 300, sampling: 0.5}
model: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1, num_decoder_layers: 1, max_length: 64, dropout: 0.2,
  attention_dropout: 0.1, word_dropout: 0.1}
training: {max_steps: 240, batch_tokens: 96, accumulate: 2, warmup_steps: 20, learning_rate: 3.0e-3, ema: 0.95,
  patience: 12, validate_every: 20, checkpoint_every: 7, log_every: 3, keep_best: 2, threads: 1, device: cpu,
  average: last, average_count: 3}
search: {beam_size: 2}
"""


def corpus(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, count, seed in (("train", 300, 1), ("more", 200, 2), ("valid", 20, 3)):
        rows = sentences(count, seed)
        (folder / f"{name}.en").write_text("".join(" ".join(row) + "\n" for row in rows), encoding="utf-8")
        translated = [" ".join(WORDS[word] for word in reversed(row)) for row in rows]
        (folder / f"{name}.de").write_text("".join(f"{row}\n" for row in translated), encoding="utf-8")
    (folder / "toy.yaml").write_text(CONFIG, encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    return corpus(tmp_path)


def verify(*arguments: str) -> int:
    return main(["train", "toy.yaml", "--verify-resume", *arguments])


def test_it_is_shown_in_one_line_and_the_run_is_left_alone(folder, capfd):
    assert main(["train", "toy.yaml", "--set", "training.max_steps=4"]) == 0
    before = {path: path.read_bytes() for path in (folder / "runs" / "toy").rglob("*") if path.is_file()}
    capfd.readouterr()
    assert verify() == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert len(out.splitlines()) == 1
    for word in ("bit by bit", "weights", "optimizer", "moving average", "metrics"):
        assert word in out
    assert before == {path: path.read_bytes() for path in (folder / "runs" / "toy").rglob("*") if path.is_file()}


def test_a_classifier_is_shown_too(folder, capfd):
    rows = [f"{' '.join(row)}\t{len(row) % 2}\n" for row in sentences(200, 5)]
    (folder / "train.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    (folder / "toy.yaml").write_text(
        "task: classification\ndata: {train: {tsv: train.tsv}, valid: {tsv: train.tsv}, num_workers: 1}\n"
        "tokenizer: {vocab_size: 300}\nmodel: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1}\n"
        "training: {batch_tokens: 64, threads: 1, device: cpu}\n"
    )
    assert verify() == 0
    assert "bit by bit" in capfd.readouterr().out
    assert not (folder / "runs" / "toy").exists()


def nothing(*_: object) -> None:
    """What a part of going on does when it is broken."""


@pytest.mark.parametrize(
    ("place", "name", "found"),
    [
        (snapshots, "load_optimizer_tensors", "optimizer.safetensors"),
        (snapshots, "restore_random_state", "random.safetensors"),
        (snapshots, "load_weights", "model.safetensors"),
        (BatchStream, "load_state_dict", "metrics.jsonl"),
        (ExponentialMovingAverage, "load", "ema.safetensors"),
    ],
)
def test_what_is_not_restored_is_found_and_exits_1(folder, capfd, monkeypatch, place, name, found):
    monkeypatch.setattr(place, name, nothing)
    monkeypatch.setattr("seq2seq.tasks.verify.MOST_SHOWN", 1000)
    assert verify("--set", "training.average=none") == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "is not the uninterrupted one" in err
    assert found in err
    assert "Traceback" not in err
    assert not (folder / "runs" / "toy").exists()


@pytest.mark.parametrize("other", ["--dry-run", "--overwrite"])
def test_flags_that_do_not_go_together_are_one_line(folder, capfd, other):
    assert verify(other) == 2
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_several_processes_are_refused_in_words(folder, capfd, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert verify() == 2
    assert "without torchrun" in capfd.readouterr().err


def start(folder: Path, optimizer: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "seq2seq", "train", "toy.yaml", "--set", f"training.optimizer={optimizer}"]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def newest(folder: Path) -> str:
    return max((path.name for path in folder.glob("runs/toy/checkpoints/step_*")), default="")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_command_killed_at_random_moments_ends_in_the_same_bits(tmp_path, optimizer):
    """Subword sampling, dropout, accumulation, EMA, early stopping, averaging and a mixture; by the same command."""
    whole, killed = corpus(tmp_path / "whole"), corpus(tmp_path / "killed")
    process = start(whole, optimizer)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    draw, kills = random.Random(4), 0
    for _ in range(30):
        before, process = newest(killed), start(killed, optimizer)
        if kills < 5:
            deadline = time.monotonic() + 60
            while newest(killed) == before and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(draw.uniform(0, 0.1))
            process.kill()
        _, err = process.communicate(timeout=120)
        kills += process.returncode == -signal.SIGKILL
        assert process.returncode in (0, -signal.SIGKILL), err
        if process.returncode == 0:
            break
    assert kills >= 4
    assert differences(whole / "runs" / "toy", killed / "runs" / "toy") == []
