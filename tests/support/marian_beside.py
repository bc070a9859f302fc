"""How good MarianMTModel of transformers gets in the time that a run of ours took.

`python tests/support/marian_beside.py CONFIG MINUTES FOLDER` trains it with the corpus, batches, sizes, dropout and
precision of a run of CONFIG: AdamW, 1e-3 after 400 warm-up steps, then falling linearly to 0, label smoothing 0.1. `s2s
bleu --model FOLDER` with a test set scores it. Minutes are of CPU time, over the number of threads, so that what else
runs on the machine gives nobody an advantage; `time s2s train CONFIG` shows ours (user + sys).
"""

import contextlib
import sys
import time
from pathlib import Path

import torch

from seq2seq import runtime
from seq2seq.bench.training_peers import MarianLogits, open_training_peer
from seq2seq.config import file as config_file
from seq2seq.config.description import ModelDescription
from seq2seq.data.stream import BatchStream
from seq2seq.interop.marian import write_marian
from seq2seq.interop.marian_weights import from_marian
from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.run import build

SIZES = ("d_model", "num_heads", "num_encoder_layers", "num_decoder_layers", "d_ff", "dropout", "tied_embeddings")
TRAINING = {
    "optimizer": "adamw", "learning_rate": 1e-3, "warmup_steps": 400, "schedule": "linear", "weight_decay": 0.01,
}  # fmt: skip


def train(path: Path, minutes: float, folder: Path) -> int:
    """Write a Marian folder of a model that was trained so long; returns the number of its steps."""
    ours = config_file.load(path)
    sizes = ", ".join(f"{key}: {getattr(ours.model, key)}" for key in SIZES)
    training = [f"training.{key}={value}" for key, value in TRAINING.items()]
    config = config_file.load(path, [f"model={{preset: marian, {sizes}}}", *training])
    runtime.keep_many_kernels()
    with contextlib.closing(runtime.start("cpu", "auto", None)) as here:
        runtime.seed_everything(config.seed)
        task = build(Inputs.open(config, folder / "cache"), None, here)
        peer = open_training_peer(task.config.model, task.tokenizers, config.training, here)()
        assert isinstance(peer.module, MarianLogits)
        step, budget = 0, minutes * 60 * torch.get_num_threads()
        with contextlib.closing(BatchStream(task.sampler, task.make_batch)) as stream:
            start = time.process_time()
            while (share := (time.process_time() - start) / budget) < 1:
                peer.update([next(stream)], share)
                step += 1
                if step % 200 == 0:
                    print(f"step {step}, {share:.0%}", file=sys.stderr, flush=True)
    problems: list[str] = []
    weights = from_marian(peer.module.model.state_dict(), task.config.model, problems)
    assert not problems, problems
    write_marian(folder, ModelDescription.of(task.config), task.tokenizers, weights)
    return step


if __name__ == "__main__":
    config, minutes, folder = sys.argv[1:]
    print(f"{train(Path(config), float(minutes), Path(folder)):,} steps")
