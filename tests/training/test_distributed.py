"""Two processes over gloo: the same training as one, the same checkpoints, and an end in words when one dies."""

import itertools
import json
import os
import signal

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from safetensors.torch import load_file
from support import toy_run
from support.ranks import finish, free_port, start, wait_for
from support.toy_run import ToyModel, make_batch, toy_loss

from seq2seq import runtime
from seq2seq.config.schema import TrainingConfig
from seq2seq.training.step import GradientStep
from seq2seq.training.weights import Weights

pytestmark = pytest.mark.slow

STEPS = 20
CONFIG = TrainingConfig(learning_rate=1e-2, clip_norm=0.5)


def uneven(step, rank=None):
    """The rows of a step: rank 0 has few, rank 1 many, in two micro-batches each; None is all of them."""
    inputs, labels = toy_run.examples()
    first = (step * 9) % 150
    cuts = [first, first + 2, first + 5, first + 21, first + 40]
    parts = [make_batch(inputs[a:b], labels[a:b]) for a, b in itertools.pairwise(cuts)]
    return parts if rank is None else parts[2 * rank : 2 * rank + 2]


def fails_once_on_rank_1(rank):
    failed = []

    def compute(module, batch):
        if rank == 1 and len(batch) > 10 and not failed:
            failed.append(True)
            raise torch.OutOfMemoryError("out of memory")
        return toy_loss(module, batch)

    return compute


def take_steps(where, seed, compute_loss):
    torch.manual_seed(seed)
    module = ToyModel(dropout=0.0)
    step = GradientStep(Weights(module, where), compute_loss, CONFIG)
    losses, gradients = [], []
    for number in range(STEPS):
        batches = uneven(number, where.rank if where.world_size > 1 else None)
        (targets,) = where.all_reduce([float(sum(batch.num_targets for batch in batches))])
        total, _ = step.compute_gradient(batches, targets)
        gradients.append(torch.cat([parameter.grad.flatten().clone() for parameter in module.parameters()]))
        step.update(1e-2)
        (loss,) = where.all_reduce([total.item()])
        losses.append(loss / targets)
    return {
        "loss": torch.tensor(losses),
        "gradients": torch.stack(gradients),
        "weights": torch.cat([parameter.detach().flatten() for parameter in module.parameters()]),
    }


def rank_of_two(rank, port, folder):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0")
    where = runtime.start("cpu", "float32")
    torch.save(take_steps(where, seed=7 + rank, compute_loss=fails_once_on_rank_1(rank)), f"{folder}/{rank}.pt")
    dist.barrier()
    where.close()


def test_two_ranks_with_uneven_batches_equal_one(tmp_path):
    """Also where rank 1 alone runs out of memory in a step: 20 steps, 1e-5."""
    processes.start_processes(rank_of_two, start_method="fork", args=(free_port(), str(tmp_path)), nprocs=2)
    with runtime.same_threads():
        torch.set_num_threads(1)
        alone = take_steps(runtime.Runtime(torch.device("cpu"), torch.float32), seed=7, compute_loss=toy_loss)
    for rank in range(2):
        together = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, values in alone.items():
            torch.testing.assert_close(together[name], values, rtol=1e-5, atol=1e-5)


def test_a_run_of_two_ranks_goes_on_exactly(tmp_path):
    settings = ["ema=0.9", "max_steps=24", "dropout=0.1"]
    whole = finish(start(tmp_path / "whole", 2, *settings))
    assert [code for code, _, _ in whole] == [0, 0], whole
    assert [json.loads(output)["status"] for _, output, _ in whole] == ["finished", "finished"]
    part = finish(start(tmp_path / "part", 2, "ema=0.9", "max_steps=10", "dropout=0.1"))
    assert [code for code, _, _ in part] == [0, 0], part
    finish(start(tmp_path / "part", 2, *settings))
    one, other = (toy_run.outcome(tmp_path / name) for name in ("whole", "part"))
    assert one["files"] == other["files"]


def test_another_number_of_ranks_goes_on_and_says_so(tmp_path):
    finish(start(tmp_path, 2, "max_steps=10"))
    ((code, output, errors),) = finish(start(tmp_path, 1, "max_steps=20"))
    assert code == 0, errors
    assert "written by 2 ranks, this run has 1:" in errors
    assert json.loads(output)["step"] == 20


@pytest.mark.parametrize(
    ("before", "after", "limit"),
    [
        (1, 2, "max_epochs=0.5"),
        (2, 1, "max_epochs=1.3"),
        (3, 2, "max_epochs=1.3"),
        (2, 1, "max_epochs=1"),
        (1, 2, "max_steps=9"),
        (3, 2, "patience=1"),
    ],
)
def test_a_finished_run_stays_finished_with_another_number_of_ranks(tmp_path, before, after, limit):
    """Also a run that another number of ranks stopped before its end and that these ranks finished."""
    settings = ["max_steps=60", "validate_every=2", limit]
    for name, starts in {"whole": [(before, [])], "stopped": [(after, ["max_steps=2"]), (before, [])]}.items():
        folder = tmp_path / name
        for number, more in starts:
            ended = finish(start(folder, number, *settings, *more))
            assert [code for code, _, _ in ended] == [0] * number, ended
        result, done = json.loads(ended[0][1]), toy_run.outcome(folder)
        assert result["status"] == "finished"
        again = finish(start(folder, after, *settings))
        assert [code for code, _, _ in again] == [0] * after, again
        same = ("reason", "step", "best_step", "epoch")
        for _, output, errors in again:
            found = json.loads(output)
            assert found["status"] == "already finished"
            assert [found[key] for key in same] == [result[key] for key in same]
            assert "seen again" not in errors
        assert toy_run.outcome(folder) == done


def test_a_signal_to_one_rank_stops_all_with_a_checkpoint(tmp_path):
    started = start(tmp_path, 2, "max_steps=5000", "pause=0.02")
    wait_for(tmp_path / "checkpoints" / "step_00000007", started)
    started[1].send_signal(signal.SIGTERM)
    results = finish(started)
    assert [code for code, _, _ in results] == [0, 0], results
    statuses = [json.loads(output) for _, output, _ in results]
    assert {status["status"] for status in statuses} == {"stopped"}
    assert (tmp_path / "checkpoints" / f"step_{statuses[0]['step']:08d}").is_dir()


@pytest.mark.parametrize(("victim", "words"), [(1, "rank 1 of 2 ended without a report"), (0, "rank 0")])
def test_the_others_name_a_rank_that_died(tmp_path, victim, words):
    started = start(tmp_path, 2, "max_steps=5000", "pause=0.02")
    wait_for(tmp_path / "checkpoints" / "step_00000007", started)
    started[victim].kill()
    code, _, errors = finish(started)[1 - victim]
    assert code != 0
    last = errors.strip().splitlines()[-1]
    assert words in last
    assert "last checkpoint" in last
    newest = max((tmp_path / "checkpoints").glob("step_*"))
    assert load_file(newest / "model.safetensors")
