"""Weights sharded over two ranks (FSDP2): the training of one process, its checkpoints, and its validation."""

import copy
import functools
import itertools
import json
import os

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from safetensors.torch import load_file
from support import ranks, toy_run

from seq2seq import runtime
from seq2seq.config.schema import ModelConfig, SearchConfig, TokenizerConfig, TrainingConfig
from seq2seq.data.collate import collate_translation
from seq2seq.errors import UserError
from seq2seq.inference.steps import TransformerSteps
from seq2seq.model.transformer import Transformer
from seq2seq.search.base import Sentence
from seq2seq.search.beam import beam_search
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.training.compiling import compile_layers
from seq2seq.training.loss import translation_loss
from seq2seq.training.optim import load_optimizer_tensors, optimizer_tensors
from seq2seq.training.step import GradientStep
from seq2seq.training.weights import Weights

pytestmark = pytest.mark.slow

STEPS = 8
# The gradient of a key's bias is zero but for rounding, which Adam would blow up with a small epsilon.
CONFIG = TrainingConfig(learning_rate=1e-2, clip_norm=0.5, epsilon=1e-4, shard=True)
MODEL = ModelConfig(preset="tiny", d_model=32, num_heads=2, d_ff=48, dropout=0.0)


def sharded_weights():
    """The class. It is imported here because it takes a second, which collection would pay where no test of it runs."""
    from seq2seq.training.sharding import ShardedWeights

    return ShardedWeights


def make_tokenizers():
    words = itertools.product(("one", "two", "three"), ("red", "blue"), ("dogs", "cats", "men"))
    lines = [f"{a} {b} {c} {a[::-1]}{c}" for a, b, c in words]
    shared = Tokenizer.train(lines, TokenizerConfig(vocab_size=280), seed=1)
    return TokenizerPair(shared, shared)


def uneven(tokenizers, step, rank=None):
    """The batches of a step: rank 0 has little, rank 1 much, in two micro-batches each; None is all of them."""
    draw = np.random.default_rng(step)
    parts = []
    for rows in (2, 3, 11, 6):
        sides = [[draw.integers(4, 280, draw.integers(1, 9)).tolist() for _ in range(rows)] for _ in range(2)]
        parts.append(collate_translation(*sides, tokenizers, range(rows)))
    return parts if rank is None else parts[2 * rank : 2 * rank + 2]


def translated(module, tokenizers, rank):
    """What a beam finds for as many sentences as the rank has turns: the ranks do not go in step."""
    steps = TransformerSteps(module.eval(), tokenizers, torch.device("cpu"))
    sentences = [Sentence([5 + index, 9, 30 + index][: 1 + index % 3]) for index in range(3 + 4 * rank)]
    with torch.no_grad():
        found = beam_search(steps, sentences, SearchConfig(beam_size=3, max_length_offset=4 + 5 * rank))
    module.train()
    return torch.tensor([hypotheses[0].log_prob for hypotheses in found])


def take_steps(where, seed, graphs=None):
    tokenizers = make_tokenizers()
    torch.manual_seed(seed)
    module = Transformer(MODEL, 280, 280)
    weights = (sharded_weights() if where.world_size > 1 else Weights)(module, where)
    if where.world_size > 1:
        held = sum(parameter.to_local().numel() for parameter in module.parameters())
        assert held < 0.6 * sum(parameter.numel() for parameter in module.parameters())
        compile_layers(module, must=True)
    loss = functools.partial(translation_loss, smoothing=0.1, compiled=where.world_size > 1)
    step = GradientStep(weights, loss, CONFIG)
    losses, norms = [], []
    for number in range(STEPS):
        batches = uneven(tokenizers, number, where.rank if where.world_size > 1 else None)
        (targets,) = where.all_reduce([float(sum(batch.num_targets for batch in batches))])
        total, _ = step.compute_gradient(batches, targets)
        norms.append(step.update(1e-2).item())
        (sum_of_all,) = where.all_reduce([total.item()])
        losses.append(sum_of_all / targets)
        if number == STEPS // 2:  # what a checkpoint holds brings everything back
            kept = weights.gather(weights.tensors()), weights.gather(optimizer_tensors(module, step.optimizer))
            kept = copy.deepcopy(where.gather(kept)[0])
            zeros = {name: torch.zeros(tensor.shape) for name, tensor in kept[0].items()}
            before = weights.gather(weights.tensors())
            with weights.replaced(zeros):
                assert not any(weights.full(parameter).any() for parameter in module.parameters())
            assert all(torch.equal(before[name], tensor) for name, tensor in weights.gather(weights.tensors()).items())
            weights.load(zeros)
            weights.load(kept[0])
            load_optimizer_tensors(module, step.optimizer, weights.shard_moments(kept[1]))
    with weights.unsharded():
        found = [translated(module, tokenizers, rank) for rank in (range(2) if where.world_size == 1 else [where.rank])]
    final = step.compute_gradient(uneven(tokenizers, 99, where.rank if where.world_size > 1 else None), 100.0)
    if where.world_size > 1:
        assert 0 < graphs.frame_count <= 4 * 2, "in training and validation, for more and for one sentence"
    result = {"loss": torch.tensor(losses), "norm": torch.tensor(norms), **weights.gather(weights.tensors())}
    return result | {f"translated {where.rank + place}": scores for place, scores in enumerate(found)} | {
        "after validation": torch.tensor(where.all_reduce([final[0].item()]))
    }  # fmt: skip


def rank_of_two(rank, port, folder):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0")
    where = runtime.start("cpu", "float32")
    graphs = CompileCounterWithBackend("eager")
    torch.compile = functools.partial(torch.compile, backend=graphs)
    torch.save(take_steps(where, 7 + rank, graphs), f"{folder}/{rank}.pt")
    dist.barrier()
    where.close()


def test_two_ranks_with_a_share_each_equal_one_process(tmp_path):
    """Over 8 steps of uneven batches, through a checkpoint in their middle, and in what a beam finds: 1e-5.

    The shards' layers are compiled, but for the code that is generated on a GPU.
    """
    sharded_weights()  # imported once, and not in both processes
    processes.start_processes(rank_of_two, start_method="fork", args=(ranks.free_port(), str(tmp_path)), nprocs=2)
    with runtime.same_threads():
        torch.set_num_threads(1)
        alone = take_steps(runtime.Runtime(torch.device("cpu"), torch.float32), seed=7)
    together = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    assert set(together[0]) | set(together[1]) == set(alone)
    for found in together:
        for name, values in found.items():
            torch.testing.assert_close(
                values, alone[name], rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


def test_a_run_with_shares_goes_on_exactly_and_its_checkpoints_are_anyones(tmp_path):
    settings = ["shard=true", "max_steps=24", "dropout=0.1"]
    whole_run = ranks.finish(ranks.start(tmp_path / "whole", 2, *settings))
    assert [code for code, _, _ in whole_run] == [0, 0], whole_run
    part = ranks.finish(ranks.start(tmp_path / "part", 2, "shard=true", "max_steps=10", "dropout=0.1"))
    assert [code for code, _, _ in part] == [0, 0], part
    ranks.finish(ranks.start(tmp_path / "part", 2, *settings))
    one, other = (toy_run.outcome(tmp_path / name) for name in ("whole", "part"))
    # the end at step 10 left a line of its own
    other["metrics"] = [line for line in other["metrics"] if line["step"] != 10 or "loss" not in line]
    assert one == other
    # the same run without shares has the same checkpoints, but for rounding, and goes on from these
    plain = ranks.finish(ranks.start(tmp_path / "plain", 2, "max_steps=24", "dropout=0.1"))
    assert [code for code, _, _ in plain] == [0, 0], plain
    newest = [max((tmp_path / name / "checkpoints").glob("step_*")) for name in ("whole", "plain")]
    for file in ("model.safetensors", "optimizer.safetensors"):
        shared, together = (load_file(folder / file) for folder in newest)
        assert list(shared) == list(together)
        for name, tensor in together.items():
            torch.testing.assert_close(shared[name], tensor, rtol=1e-4, atol=1e-6)
    ((code, output, errors),) = ranks.finish(ranks.start(tmp_path / "whole", 1, "max_steps=30", "dropout=0.1"))
    assert code == 0, errors
    assert json.loads(output)["step"] == 30


def test_what_needs_whole_weights_is_refused():
    with pytest.raises(ValueError, match="shard: not together with ema and optimizer"):
        TrainingConfig(shard=True, ema=0.9, optimizer="muon")
    with pytest.raises(UserError, match="float16"):
        sharded_weights()(torch.nn.Linear(2, 2), runtime.Runtime(torch.device("cpu"), torch.float16, world_size=2))
