"""A run that was stopped or killed ends as one that was not: killed between two steps, and by SIGKILL."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
from test_train import WORDS, sentences

from seq2seq.cli import main
from seq2seq.data.stream import BatchStream
from seq2seq.tensors import read_tensors
from seq2seq.training import snapshots
from seq2seq.training.optim import ExponentialMovingAverage
from seq2seq.training.weights import Weights

# What clocks measure, and lengths of files that hold it: not the same in any two runs.
TIMED = frozenset({"seconds", "validation_seconds", "tokens_per_second", "files"})
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
training: {max_steps: 120, batch_tokens: 96, accumulate: 2, warmup_steps: 20, learning_rate: 3.0e-3, ema: 0.95,
  patience: 12, validate_every: 20, checkpoint_every: 7, log_every: 3, keep_best: 2, threads: 1, device: cpu,
  r_drop: 1.0, dropout_epochs: 4}
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


def differences(one: Path, other: Path) -> list[str]:
    """What differs between two run folders beyond what clocks measured: checkpoints, `best/`, metrics and samples."""
    names = sorted({_name(path, folder) for folder in (one, other) for path in _compared(folder)})
    problems = []
    for name in names:
        first, second = one / name, other / name
        if not (first.exists() and second.exists()):
            problems.append(f"{name}: is in one of the two runs only")
        elif first.suffix == ".safetensors":
            problems += _tensor_differences(name, first, second)
        elif first.suffix in (".json", ".jsonl"):
            problems += _record_differences(name, first, second)
        elif first.read_bytes() != second.read_bytes():
            problems.append(f"{name}: differs")
    return problems


def _compared(folder: Path) -> Iterator[Path]:
    for part in ("checkpoints", "best"):
        # the manifest repeats what the files are, times included
        yield from (path for path in (folder / part).rglob("*") if path.is_file() and path.name != "manifest.json")
    yield from (folder / name for name in ("metrics.jsonl", "samples.txt") if (folder / name).exists())


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _tensor_differences(name: str, first: Path, second: Path) -> Iterator[str]:
    one, other = read_tensors(first), read_tensors(second)
    different = [key for key in sorted(one.keys() | other.keys()) if not _equal(one.get(key), other.get(key))]
    if different:
        yield f"{name}: {len(different)} of {len(one)} tensors differ, the first is {different[0]}"


def _equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


def _record_differences(name: str, first: Path, second: Path) -> Iterator[str]:
    """Differences between JSON files, or between JSON Lines files line by line."""
    one, other = (_records(path) for path in (first, second))
    for number, (left, right) in enumerate(zip_longest(one, other, fillvalue={}), start=1):
        line = f"line {number}, " if first.suffix == ".jsonl" else ""
        for key in sorted(left.keys() | right.keys()):
            if left.get(key) != right.get(key):
                yield f"{name}: {line}{key}: {_shown(left.get(key))} without a break, {_shown(right.get(key))} with one"


def _records(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    values = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]
    return [_untimed(value) for value in values]


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _untimed(item) for key, item in value.items() if key not in TIMED}
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


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
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "seq2seq", "train", "toy.yaml", "--set", "training.optimizer=muon"]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def newest(folder: Path) -> str:
    return max((path.name for path in folder.glob("runs/toy/checkpoints/step_*")), default="")


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
