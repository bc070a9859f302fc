"""A run small enough to be started, killed and compared many times: a toy task under the real trainer and stream.

Tests import `train`; the ones that kill a process start this file: `python toy_run.py FOLDER key=value ...`.
"""

import dataclasses
import itertools
import json
import logging
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from seq2seq import atomic, runtime
from seq2seq.config.schema import TrainingConfig
from seq2seq.data.sampler import TokenBudgetSampler
from seq2seq.data.stages import ONE_STAGE, Stage, Stages
from seq2seq.data.stream import BatchStream
from seq2seq.tensors import write_tensors
from seq2seq.training.loss import LossSum
from seq2seq.training.state import Sample, Validation
from seq2seq.training.trainer import Trainer, Work

NUM_EXAMPLES, WIDTH, CLASSES = 200, 6, 5
FIRST_PART = 120  # of the examples, where there are stages
DEFAULTS = dict(
    max_steps=40, batch_tokens=64, learning_rate=1e-2, warmup_steps=5, checkpoint_every=7, validate_every=10,
    log_every=4, keep_last=2, keep_best=2,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ToyBatch:
    """Rows of numbers and the class of each."""

    inputs: Tensor  # (B, WIDTH)
    labels: Tensor  # (B,)
    num_targets: int
    num_tokens: int

    def __len__(self):
        return len(self.labels)

    def to(self, device, non_blocking=False):
        return dataclasses.replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))

    def split(self):
        middle = len(self) // 2
        halves = slice(0, middle), slice(middle, len(self))
        return [make_batch(self.inputs[half], self.labels[half]) for half in halves if half.start < half.stop]


class ToyModel(nn.Module):
    """Two layers, the first tied to a second name, with dropout in between."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.first = nn.Linear(WIDTH, 16)
        self.twin = self.first
        self.norm = nn.LayerNorm(16)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, inputs):
        return self.last(self.dropout(self.norm(torch.tanh(self.first(inputs)))))


def one_thread():
    """For a fixture: torch computes on one thread."""
    with runtime.same_threads():
        torch.set_num_threads(1)
        yield


def records(folder):
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def steps_of(folder):
    return [int(path.name.removeprefix("step_")) for path in sorted((Path(folder) / "checkpoints").glob("step_*"))]


def make_batch(inputs, labels):
    return ToyBatch(inputs, labels, len(labels), inputs.numel())


def examples():
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(NUM_EXAMPLES, WIDTH, generator=draw)
    return inputs, (inputs @ torch.randn(WIDTH, CLASSES, generator=draw)).argmax(dim=1)


def toy_loss(module, batch):
    logits = module(batch.inputs)
    total = nn.functional.cross_entropy(logits, batch.labels, reduction="sum")
    return LossSum(total, batch.num_targets, (logits.argmax(dim=1) == batch.labels).sum())


class Killed(BaseException):
    """Stands for SIGKILL inside a process: nothing of ours handles it."""


def killed_at(count):
    """A loss that ends the run after this number of batches."""
    calls = iter(range(count))

    def compute(module, batch):
        if next(calls, None) is None:
            raise Killed
        return toy_loss(module, batch)

    return compute


def poisoned(steps):
    """A loss that is not a number on these micro-batches, counted from 1."""
    count = itertools.count(1)

    def compute(module, batch):
        loss = toy_loss(module, batch)
        return LossSum(loss.total * (math.nan if next(count) in steps else 1), loss.count, loss.correct)

    return compute


def toy_validation(module):
    torch.rand(3)  # what validation draws must not matter
    inputs, labels = examples()
    logits = module(inputs)
    loss = nn.functional.cross_entropy(logits, labels).item()
    hits = (logits.argmax(dim=1) == labels).double()
    accuracy = hits.mean().item()
    samples = [Sample("an input", str(int(labels[0])), str(int(logits[0].argmax())))]
    return Validation({"valid_loss": loss, "accuracy": accuracy}, samples, {"accuracy": hits.numpy()})


def make_stages(rows):
    """Stages over two parts of the examples; a row is the end or null, the two weights, and whether they restart."""
    sizes = FIRST_PART, NUM_EXAMPLES - FIRST_PART
    bounds = (0, FIRST_PART), (FIRST_PART, NUM_EXAMPLES)
    examples = [sum(map(math.prod, zip(sizes, weights, strict=True))) for _, weights, _ in rows]
    return Stages(tuple(
        Stage([(*bound, weight) for bound, weight in zip(bounds, weights, strict=True)],
              end or math.inf, restarts, count / examples[0])
        for (end, weights, restarts), count in zip(rows, examples, strict=True)
    ))  # fmt: skip


def make_stream(config, rank=0, world_size=1, stages=None):
    inputs, labels = examples()
    lengths = np.random.default_rng(0).integers(1, 12, NUM_EXAMPLES).astype(np.int32)
    sampler = TokenBudgetSampler(
        lengths, lengths, config.batch_tokens, seed=3, stages=stages, rank=rank, world_size=world_size
    )
    return BatchStream(sampler, lambda indices, epoch: make_batch(inputs[indices], labels[indices]))


def make_trainer(
    folder,
    compute_loss=toy_loss,
    validate=toy_validation,
    dropout=0.1,
    where=None,
    rehearsal=(),
    stages=(),
    measure="",
    **values,
):
    config = TrainingConfig(**{**DEFAULTS, **values})
    where = where or runtime.Runtime(torch.device("cpu"), torch.float32)
    runtime.seed_everything(1, where.rank)
    module = ToyModel(dropout)

    def save_best(state, metrics):
        with atomic.new_folder(Path(folder) / "best") as temporary:
            write_tensors(temporary / "model.safetensors", state)
            (temporary / "metrics.json").write_text(json.dumps(metrics))

    planned = make_stages(stages) if stages else ONE_STAGE
    stream = make_stream(config, where.rank, where.world_size, planned if stages else None)
    work = Work(compute_loss, validate, save_best, rehearsal, measure, stages=planned)
    return Trainer(module, stream, work, config, where, Path(folder))


def train(folder, **settings):
    trainer = make_trainer(folder, **settings)
    return trainer, trainer.run()


def outcome(folder):
    """Everything a run leaves behind, without what clocks measured; equal for equal runs, bit by bit."""
    folder = Path(folder)
    newest = max((folder / "checkpoints").glob("step_*"))
    files = {path.name: path.read_bytes() for path in newest.glob("*.safetensors")}
    files |= {f"best/{path.name}": path.read_bytes() for path in (folder / "best").iterdir()}
    state = json.loads((newest / "state.json").read_text())
    del state["files"]
    for timed in ("seconds", "validation_seconds", "schedule_seconds"):
        del state["run"][timed]
    del state["run"]["window"]["seconds"]
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        for timed in ("tokens_per_second", "seconds"):
            record.pop(timed, None)
    kept = sorted(path.name for path in (folder / "checkpoints").iterdir())
    return {"files": files, "state": state, "metrics": records, "kept": kept,
            "samples": (folder / "samples.txt").read_text()}  # fmt: skip


def main(folder, *settings):
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    torch.set_num_threads(1)
    values = {key: json.loads(value) for key, value in (setting.split("=", 1) for setting in settings)}
    pause = values.pop("pause", 0.0)

    def slow_loss(module, batch):
        time.sleep(pause)
        return toy_loss(module, batch)

    where = runtime.start("cpu", "float32") if "RANK" in os.environ else None
    _, result = train(folder, compute_loss=slow_loss, where=where, **values)
    print(json.dumps(dataclasses.asdict(result)))
    if where:
        where.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
