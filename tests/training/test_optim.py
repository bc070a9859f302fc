"""The optimiser: schedules are pure and continuous, decay spares what it should, the average is one."""

import copy
import inspect
import itertools
import math
import sys

import pytest
import torch
from support.gradient_steps import BATCH, make_step
from torch import nn

from seq2seq.config.schema import ModelConfig, TrainingConfig
from seq2seq.model.transformer import Transformer
from seq2seq.training.muon import Muon, orthogonalized
from seq2seq.training.optim import (
    ExponentialMovingAverage,
    build_optimizer,
    learning_rate,
    load_optimizer_tensors,
    optimizer_tensors,
)

SIZES = ModelConfig(
    preset=None, d_model=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, d_ff=16, dropout=0.0
)
OPTIMIZERS = ("adamw", "muon")
SCHEDULES = ("inverse_sqrt", "cosine", "linear", "constant")


def config(**values):
    return TrainingConfig(**{"learning_rate": 0.01, "warmup_steps": 100, **values})


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warm_up_is_linear_and_the_peak_is_never_passed(schedule):
    rates = [learning_rate(step, 0.0, config(schedule=schedule)) for step in range(1, 400)]
    assert rates[49] == pytest.approx(0.005)
    assert rates[99] == pytest.approx(0.01)
    assert max(rates) <= 0.01 * (1 + 1e-12)
    assert all(later >= earlier for earlier, later in itertools.pairwise(rates[:100]))


def test_inverse_sqrt_halves_when_the_steps_are_four_times_as_many():
    assert learning_rate(400, 0.0, config(schedule="inverse_sqrt")) == pytest.approx(0.005)
    assert learning_rate(1600, 0.9, config(schedule="inverse_sqrt")) == pytest.approx(0.0025)


@pytest.mark.parametrize(("schedule", "half"), [("cosine", 0.55), ("linear", 0.55)])
def test_cosine_and_linear_follow_progress_to_the_final_rate(schedule, half):
    section = config(schedule=schedule, final_learning_rate=0.1)
    assert learning_rate(1000, 0.5, section) == pytest.approx(0.01 * half)
    assert learning_rate(1000, 1.0, section) == pytest.approx(0.001)
    assert learning_rate(10, 0.5, section) == pytest.approx(0.001 * half)  # warm-up is cut into the envelope


def test_constant_stays_and_no_warm_up_begins_at_the_peak():
    assert learning_rate(1, 0.0, config(schedule="constant", warmup_steps=0)) == 0.01
    assert learning_rate(10**6, 1.0, config(schedule="constant")) == 0.01
    assert learning_rate(1, 0.0, config(schedule="inverse_sqrt", warmup_steps=0)) == 0.01


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weight_decay_is_for_linear_matrices_alone(optimizer):
    model = Transformer(SIZES, 20, 20)
    optimizer = build_optimizer(model, config(weight_decay=0.1, optimizer=optimizer))
    decay = {parameter: group["weight_decay"] for group in optimizer.param_groups for parameter in group["params"]}
    assert set(decay) == set(model.parameters())
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and "tokens" not in name
        assert decay[parameter] == (0.1 if is_matrix else 0.0), name


def test_steps_equal_torchs_plain_adamw():
    torch.manual_seed(0)
    ours, theirs = nn.Linear(5, 3), nn.Linear(5, 3)
    theirs.load_state_dict(ours.state_dict())
    section = config(weight_decay=0.1)
    mine = build_optimizer(ours, section)
    plain = torch.optim.AdamW(
        [{"params": [theirs.weight], "weight_decay": 0.1}, {"params": [theirs.bias], "weight_decay": 0.0}],
        lr=0.01, betas=section.betas, eps=section.epsilon, foreach=False,
    )  # fmt: skip
    for _ in range(5):
        inputs = torch.randn(4, 5)
        for module, optimizer in ((ours, mine), (theirs, plain)):
            optimizer.zero_grad()
            module(inputs).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight)
    torch.testing.assert_close(ours.bias, theirs.bias)


def translate_once(model):
    """A gradient for every weight of a Transformer."""
    ids = torch.arange(4, 16).view(2, 6)
    model.project(model(ids, torch.ones_like(ids, dtype=torch.bool), ids)).square().sum().backward()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_moments_come_back_by_name_and_the_steps_go_on_as_they_would_have(kind):
    model = Transformer(SIZES, 20, 20)
    optimizer = build_optimizer(model, config(optimizer=kind))
    translate_once(model)
    optimizer.step()
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    twin = copy.deepcopy(model)
    fresh = build_optimizer(twin, config(optimizer=kind))
    load_optimizer_tensors(twin, fresh, saved)
    again = optimizer_tensors(twin, fresh)
    assert set(again) == set(saved)
    assert {name.rpartition(".")[0] for name in saved} == {name for name, _ in model.named_parameters()}
    assert all(torch.equal(again[name], saved[name]) for name in saved)
    for module, its_own in ((model, optimizer), (twin, fresh)):
        module.zero_grad()
        translate_once(module)
        its_own.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_moments_of_another_shape_are_refused():
    model = nn.Linear(4, 4)
    optimizer = build_optimizer(model, config())
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    saved = optimizer_tensors(model, optimizer)
    saved["weight.exp_avg"] = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="weight"):
        load_optimizer_tensors(model, build_optimizer(model, config()), saved)


def test_moving_average_is_the_weighted_sum_of_past_weights():
    model = nn.Linear(1, 1, bias=False)
    average = ExponentialMovingAverage(model, decay=0.3)
    expected = model.weight.item()
    for step in range(1, 20):
        with torch.no_grad():
            model.weight.fill_(step)
        average.update(step)
        decay = min(0.3, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert average.tensors()["weight"].item() == pytest.approx(expected, rel=1e-5)


def test_moving_average_stands_in_and_leaves_without_a_trace():
    model = nn.Linear(3, 3)
    average = ExponentialMovingAverage(model, decay=0.5)
    before = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.add_(1.0)
    average.update(1)
    trained, averaged = model.weight.detach().clone(), average.tensors()["weight"].clone()
    with average.applied():
        assert torch.equal(model.weight, averaged)
    assert torch.equal(model.weight, trained)
    assert torch.equal(average.tensors()["weight"], averaged)
    assert not torch.equal(averaged, before)
    assert not torch.equal(averaged, trained)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_step_that_is_not_finite_changes_nothing(kind):
    model = Transformer(SIZES, 20, 20)
    optimizer = build_optimizer(model, config(optimizer=kind, weight_decay=0.1))
    translate_once(model)
    optimizer.step()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    moments = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    for parameter in model.parameters():
        parameter.grad.fill_(math.nan)
    optimizer.found_inf = torch.tensor(1.0)
    optimizer.step()
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert all(torch.equal(moments[name], now) for name, now in optimizer_tensors(model, optimizer).items())


def test_orthogonalizing_keeps_the_singular_vectors_and_evens_the_values():
    torch.manual_seed(1)
    for shape, parts in (((48, 16), 1), ((16, 48), 1), ((24, 16), 1), ((96, 32), 3)):
        matrix = torch.randn(shape) @ torch.diag(torch.logspace(0, -1.5, shape[1]))
        for block, result in zip(matrix.chunk(parts), orthogonalized(torch.stack(matrix.chunk(parts))), strict=True):
            u, values, v = torch.linalg.svd(block, full_matrices=False)
            inside = u.T @ result @ v.T
            kept = values > values.norm() * 0.01
            assert kept.sum() > kept.numel() // 2
            assert torch.allclose(inside, torch.diag(inside.diagonal()), atol=2e-3)
            assert (inside.diagonal()[kept] > 0.72).all()
            assert (inside.diagonal() < 1.28).all()


def muon_moves(matrices, parts):
    """What two steps with these gradients change."""
    weights = [nn.Parameter(torch.zeros_like(matrix)) for matrix in matrices]
    other = nn.Parameter(torch.zeros(1))
    muon = Muon(dict(zip(weights, parts, strict=True)), torch.optim.AdamW([other], lr=1.0, fused=True), 0.1)
    for factor in (1.0, 2.0):
        for weight, matrix in zip(weights, matrices, strict=True):
            weight.grad = factor * matrix
        muon.step()
    return weights


def test_the_order_and_company_of_matrices_do_not_matter():
    torch.manual_seed(1)
    shapes, parts = [(12, 4), (4, 4), (4, 8), (8, 4), (8, 4), (4, 8)], [3, 1, 1, 2, 1, 1]
    matrices = [torch.randn(shape) for shape in shapes]
    for matrix, part, found in zip(matrices, parts, muon_moves(matrices, parts), strict=True):
        torch.testing.assert_close(muon_moves([matrix], [part])[0], found)
    backwards = muon_moves(matrices[::-1], parts[::-1])[::-1]
    for one, other in zip(muon_moves(matrices, parts), backwards, strict=True):
        torch.testing.assert_close(one, other)


def test_muon_is_for_the_layers_and_leaves_embeddings_output_norms_and_biases_to_adamw():
    model = Transformer(SIZES.model_copy(update={"tied_embeddings": "none"}), 20, 20)
    optimizer = build_optimizer(model, config(optimizer="muon"))
    translate_once(model)
    optimizer.step()
    tensors = optimizer_tensors(model, optimizer)
    for name, parameter in model.named_parameters():
        is_hidden = ".layers." in name and parameter.ndim == 2
        assert (f"{name}.momentum" in tensors) == is_hidden, name
        assert (f"{name}.exp_avg" in tensors) != is_hidden, name


def test_muon_moves_every_matrix_by_the_same_root_mean_square():
    model = Transformer(SIZES, 20, 20)
    section = config(optimizer="muon")
    optimizer = build_optimizer(model, section)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    translate_once(model)
    optimizer.step()
    for name, parameter in model.named_parameters():
        if f"{name}.momentum" in optimizer_tensors(model, optimizer):
            moved = (parameter.detach() - before[name]).square().mean().sqrt().item()
            assert 0.5 < moved / (0.2 * section.learning_rate) < 1.3, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_muon_in_sixteen_bits_keeps_small_gradients_and_skips_steps(dtype):
    torch.manual_seed(1)
    model = Transformer(SIZES, 20, 20)
    optimizer = build_optimizer(model, config(optimizer="muon"), dtype)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, math.inf)
    optimizer.found_inf = torch.tensor(1.0)
    optimizer.step()  # the first step of float16 is often one that is skipped, with momentum 0
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * 1e-9
    optimizer.found_inf = torch.tensor(0.0)
    optimizer.step()
    for name, parameter in model.named_parameters():
        if f"{name}.momentum" in optimizer_tensors(model, optimizer):
            moved = (parameter.detach() - before[name]).square().mean().sqrt().item()
            assert 0.5 < moved / (0.2 * 0.01) < 1.3, name


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_imports_no_compiler(name, monkeypatch):
    """Importing torch's compiler takes as long as importing torch."""
    for method in ("add_param_group", "zero_grad"):  # torch keeps what it asked the compiler for
        imported = inspect.unwrap(getattr(torch.optim.Optimizer, method))
        monkeypatch.delattr(imported, "__dynamo_disable", raising=False)
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # an import raises
    step, _ = make_step(optimizer=name)
    step.compute_gradient([BATCH], BATCH.num_targets)
    step.update(1e-3)
