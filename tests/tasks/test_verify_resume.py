"""A run that was stopped or killed ends as one that was not: killed between two steps, and by SIGKILL."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.number_words import sentences
from support.whole_runs import _compared, corpus, differences, newest

from seq2seq.cli import main
from seq2seq.data.stream import BatchStream
from seq2seq.training import snapshots
from seq2seq.training.optim import ExponentialMovingAverage
from seq2seq.training.weights import Weights


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    return corpus(tmp_path)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours handles it."""


SHORT = (
    "training.max_steps=8",
    "training.checkpoint_every=3",
    "training.validate_every=5",
    "training.log_every=1",
    "training.dropout_epochs=0.5",  # 8 steps are less than half an epoch: dropout has begun when the run is killed
)


def train(run: str, *changes: str) -> int:
    settings = [part for change in (*SHORT, *changes) for part in ("--set", change)]
    return main(["train", "toy.yaml", "--run-dir", f"{run}/runs/toy", *settings])


def whole_and_resumed(*changes: str) -> list[str]:
    """What differs between 8 steps without a break and a run that is killed at step 5 and continues from step 3."""
    whole_and_killed(*changes)
    assert train("resumed", *changes) == 0
    return differences(Path("whole/runs/toy"), Path("resumed/runs/toy"))


def whole_and_killed(*changes: str) -> None:
    assert train("whole", *changes) == 0

    def die(run: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seq2seq.tasks.run.CURVE_SECONDS", 0.0)
        patch.setattr("seq2seq.tasks.run._Run.draw_curves", die)  # before the validation
        assert train("resumed", *changes) == 1
    assert newest(Path("resumed")).endswith("3")


def test_a_run_that_was_killed_and_resumed_ends_in_the_same_bits(folder):
    assert whole_and_resumed() == []
    compared = {path.name for path in _compared(Path("whole/runs/toy"))}
    assert {
        "model.safetensors",
        "optimizer.safetensors",
        "ema.safetensors",
        "random.safetensors",
        "metrics.jsonl",
    } <= compared


@pytest.mark.parametrize("train", ["tsv: train.tsv", "jsonl: soft.jsonl"], ids=["labels", "probabilities"])
def test_a_classifier_too(folder, train):
    texts = sentences(200, 5)
    rows = [f"{' '.join(row)}\t{len(row) % 2}\n" for row in texts]
    (folder / "train.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    soft = [{"text": " ".join(row), "label": {"0": 1 / len(row), "1": 1 - 1 / len(row)}} for row in texts]
    (folder / "soft.jsonl").write_text("".join(json.dumps(record) + "\n" for record in soft))
    (folder / "toy.yaml").write_text(
        f"task: classification\ndata: {{train: {{{train}}}, valid: {{tsv: train.tsv}}, num_workers: 1}}\n"
        "tokenizer: {vocab_size: 300}\nmodel: {preset: tiny, d_model: 32, d_ff: 64, num_encoder_layers: 1}\n"
        "training: {batch_tokens: 64, threads: 1, device: cpu}\n"
    )
    assert whole_and_resumed() == []


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """A folder with a run without a break, and with one that was killed."""
    with pytest.MonkeyPatch.context() as patch:
        folder = corpus(tmp_path_factory.mktemp("killed"))
        patch.chdir(folder)
        patch.delenv("S2S_DATA", raising=False)
        whole_and_killed()
    return folder


def nothing(*_: object) -> None:
    """What a part of the restoration does when it is broken."""


@pytest.mark.parametrize(
    ("module", "name", "found"),
    [
        (snapshots, "load_optimizer_tensors", "optimizer.safetensors"),
        (snapshots, "restore_random_state", "random.safetensors"),
        (Weights, "load", "model.safetensors"),
        (BatchStream, "load_state_dict", "metrics.jsonl"),
        (ExponentialMovingAverage, "load", "ema.safetensors"),
    ],
)
def test_what_is_not_restored_is_found(killed, monkeypatch, module, name, found):
    monkeypatch.chdir(killed)
    monkeypatch.delenv("S2S_DATA", raising=False)
    run = Path(found).stem
    shutil.copytree("resumed", run)
    monkeypatch.setattr(module, name, nothing)
    assert train(run) == 0
    assert any(found in problem for problem in differences(Path("whole/runs/toy"), Path(f"{run}/runs/toy")))


def start(folder: Path) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "seq2seq", "train", "toy.yaml", "--set", "training.optimizer=muon"]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
def test_the_command_killed_at_random_moments_ends_in_the_same_bits(tmp_path):
    """With Muon, and all else at once, by the same command; `test_kills.py` has AdamW."""
    whole, killed = corpus(tmp_path / "whole"), corpus(tmp_path / "killed")
    process = start(whole)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    draw, kills = random.Random(4), 0
    for _ in range(30):
        before, process = newest(killed), start(killed)
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
