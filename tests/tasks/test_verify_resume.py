"""A run that was stopped or killed ends as one that was not: killed between two steps, and by SIGKILL."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from support import many_directions
from support.forked import Forked, s2s
from support.number_words import sentences
from support.ranks import finish, start_work
from support.toy_run import Killed
from support.whole_runs import _compared, corpus, differences, newest

from seq2seq.cli import main
from seq2seq.data.stream import BatchStream
from seq2seq.training import snapshots, trainer
from seq2seq.training.optim import ExponentialMovingAverage
from seq2seq.training.weights import Weights


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    return corpus(tmp_path)


SHORT = (
    "training.max_steps=8",
    "training.checkpoint_every=3",
    "training.validate_every=5",
    "training.log_every=1",
    "training.dropout_epochs=0.5",  # 8 steps are less than half an epoch: dropout has begun when the run is killed
)


# In the second epoch of many directions.
MANY = ("training.max_steps=16", "training.checkpoint_every=11", "training.validate_every=13")
KILLED = 9


def train(run: str, *changes: str) -> int:
    settings = [part for change in (*SHORT, *changes) for part in ("--set", change)]
    return main(["train", "toy.yaml", "--run-dir", f"{run}/runs/toy", *settings])


def whole_and_resumed(*changes: str, newest_step: int = 3) -> list[str]:
    """What differs between 8 steps without a break and a run that is killed at step 5 and continues from step 3."""
    whole_and_killed(*changes, newest_step=newest_step)
    assert train("resumed", *changes) == 0
    return differences(Path("whole/runs/toy"), Path("resumed/runs/toy"))


def whole_and_killed(*changes: str, newest_step: int = 3) -> None:
    assert train("whole", *changes) == 0

    def die(run: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seq2seq.tasks.run.CURVE_SECONDS", 0.0)
        patch.setattr("seq2seq.tasks.run._Run.draw_curves", die)  # before the validation
        assert train("resumed", *changes) == 1
    assert newest(Path("resumed")).endswith(f"{newest_step:08}")


@pytest.mark.slow
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


def write_many_directions(folder: Path) -> None:
    """Write `toy.yaml` for many directions; its epochs have 8 steps on one rank, and each draws its examples anew."""
    many_directions.write_corpora(folder)
    text = many_directions.CONFIG.replace("TAGS", "both")
    for old, new in (
        ("vocab_size: 300", "vocab_size: 300, sampling: 0.5"),
        ("batch_tokens: 256", "batch_tokens: 640"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "toy.yaml").write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_many_directions_too(folder):
    """Killed in the second epoch of a mixture by temperature."""
    write_many_directions(folder)
    assert whole_and_resumed(*MANY, newest_step=11) == []
    records = [json.loads(line) for line in Path("whole/runs/toy/metrics.jsonl").read_text().splitlines()]
    assert 1 < next(record["epoch"] for record in records if record["step"] == 13) < 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_many_directions_on_two_ranks_too(folder):
    write_many_directions(folder)

    def ended(run: str, most: int | None = None) -> set[int]:
        return {code for code, _, _ in finish(start_work(lambda: train_until(run, most, *MANY), 2, folder))}

    assert ended("whole") == {0}
    assert ended("resumed", 14) == {KILLED}
    assert newest(Path("resumed")) > "step_00000009"
    assert ended("resumed") == {0}
    assert differences(Path("whole/runs/toy"), Path("resumed/runs/toy")) == []


def train_until(run: str, most: int | None, *changes: str) -> int:
    """Train in a forked process, which ends without a word in its step number `most`, after its first checkpoint."""
    original = trainer.learning_rate

    def dying(step: int, *others: object) -> float:
        if step == most:
            deadline = time.monotonic() + 60
            while not newest(Path(run)) and time.monotonic() < deadline:
                time.sleep(0.01)
            os._exit(KILLED)
        return original(step, *others)

    trainer.learning_rate = dying
    return train(run, *changes)


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


@pytest.mark.slow
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


def start(folder: Path) -> Forked:
    few = "optimizer=muon", "max_steps=51", "checkpoint_every=3", "validate_every=9", "warmup_steps=5"
    return s2s(folder, "train", "toy.yaml", *(part for one in few for part in ("--set", f"training.{one}")))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
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
