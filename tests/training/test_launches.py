"""What a training step asks of a GPU, without one: few launches, no reads, and the numbers of a CPU."""

import contextlib

import pytest
import torch
from support.gradient_steps import BATCH, make_step
from support.launches import Launches, as_on_a_gpu

from seq2seq.model import transformer
from seq2seq.model.attention import key_bias
from seq2seq.training import optim

# Of the gradient and of the update, without compiled layers and loss. They may only be lowered.
MOST = {"adamw": (1046, 20), "muon": (1046, 184)}


@pytest.mark.parametrize("optimizer", MOST)
def test_a_step_starts_few_kernels_and_reads_nothing(monkeypatch, optimizer):
    as_on_a_gpu(monkeypatch)
    step, _ = make_step(torch.bfloat16, optimizer=optimizer)
    found = []
    for _ in range(2):  # the first makes the optimiser's moments
        with Launches() as gradient:
            step.compute_gradient([BATCH], BATCH.num_targets)
        with Launches() as update:
            step.update(1e-3)
        found = [gradient, update]
        assert not gradient.reads
        assert not update.reads
    for launches, most in zip(found, MOST[optimizer], strict=True):
        assert launches.calls.total() <= most, launches.calls


def test_what_waits_for_a_gpu_is_counted():
    numbers, mask = torch.ones(3), torch.tensor([True, False, True])
    for read in (lambda: numbers[0].item(), lambda: bool(mask.all()), lambda: numbers[mask], mask.nonzero):
        with Launches() as seen:
            read()
        assert seen.reads.total() == 1
    with Launches() as seen:
        numbers.view(3, 1).add(1.0)
    assert seen.calls == {"add": 1}


@pytest.mark.parametrize("optimizer", MOST)
def test_a_step_runs_without_numbers(monkeypatch, optimizer):
    """On the meta device every read of a number raises, and so does a tensor that was left on the CPU."""
    # fused AdamW has no kernel there, and autocast does not know it
    monkeypatch.setattr(optim, "AdamW", lambda groups, lr, **_: torch.optim.RMSprop(groups, lr, foreach=True))
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    step, module = make_step(device=torch.device("meta"), optimizer=optimizer)
    sums = step.compute_gradient([BATCH], BATCH.num_targets)
    norm = step.update(1e-3)
    assert all(tensor.is_meta for tensor in (*sums, norm, *module.parameters()))
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize("optimizer", MOST)
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_step_of_a_gpu_is_that_of_a_cpu(monkeypatch, positions, optimizer):
    sizes = dict(num_encoder_layers=2, num_decoder_layers=2, dropout=0.0, positions=positions)
    results = []
    for is_gpu in (False, True):
        with monkeypatch.context() as patch:
            if is_gpu:
                as_on_a_gpu(patch)
            step, module = make_step(optimizer=optimizer, **sizes)
            before = {name: weight.detach().clone() for name, weight in module.named_parameters()}
            loss, correct = step.compute_gradient([BATCH], BATCH.num_targets)
            gradients = {f"{name}.grad": weight.grad.clone() for name, weight in module.named_parameters()}
            norm = step.update(1e-2)
            moved = {name: weight.detach() - before[name] for name, weight in module.named_parameters()}
            results.append({"loss": loss, "correct": correct, "norm": norm} | gradients | moved)
    here, there = results
    assert here["loss"] > 100
    for name, found in there.items():
        torch.testing.assert_close(
            found, here[name], rtol=1e-4, atol=1e-5, msg=lambda said, name=name: f"{name}: {said}"
        )


@pytest.mark.parametrize("length", [1, 7, 8, 13])
def test_the_bias_of_a_gpu_needs_no_copy(monkeypatch, length):
    """Kernels take it in the type of the products, with strides that are multiples of 8 and a last one of 1."""
    mask = torch.arange(length) < torch.tensor([[length], [1], [0]])
    expected = key_bias(mask, torch.zeros(1))
    as_on_a_gpu(monkeypatch)
    assert key_bias(mask[:1], torch.zeros(1)) is not None, "whether anything is padded is not asked"
    with torch.autocast("cpu", torch.bfloat16):
        bias = key_bias(mask, torch.zeros(1))
    assert bias.dtype == torch.bfloat16
    assert bias.shape == expected.shape == (3, 1, 1, length)
    assert all(stride % 8 == 0 for stride in bias.stride()[:-1])
    assert bias.stride(-1) == 1
    assert torch.equal(bias, expected.bfloat16())
    assert key_bias(mask, torch.zeros(1, dtype=torch.float16)).dtype == torch.float16


def test_the_bias_is_made_once_a_forward_pass(monkeypatch):
    made = []
    monkeypatch.setattr(transformer, "key_bias", lambda *given: made.append(given) or key_bias(*given))
    step, _ = make_step()
    step.compute_gradient([BATCH], BATCH.num_targets)
    assert len(made) == 1
