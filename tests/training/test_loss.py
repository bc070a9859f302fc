"""The loss and its gradients: those of PyTorch and of the papers, in parts or whole, finite for any logits."""

import pytest
import torch
from torch.nn import functional

from seq2seq.config.schema import ClassifierConfig, ModelConfig
from seq2seq.data.collate import ClassificationBatch, TranslationBatch
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.model.transformer import Transformer
from seq2seq.training import loss
from seq2seq.training.loss import classification_loss, label_smoothed_cross_entropy, translation_loss


def parts(rows=300, width=16, vocab=50, bias=True):
    hidden, weight = torch.randn(rows, width, requires_grad=True), torch.randn(vocab, width, requires_grad=True)
    return hidden, weight, torch.randn(vocab, requires_grad=True) if bias else None, torch.randint(0, vocab, (rows,))


def gradients(total, tensors):
    return torch.autograd.grad(total, [tensor for tensor in tensors if tensor is not None])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 255, 256, 257, 700])
def test_loss_and_gradients_are_those_of_torch(monkeypatch, smoothing, bias, rows):
    hidden, weight, bias, targets = parts(rows=rows, bias=bias)
    monkeypatch.setattr(loss, "CPU_LOGITS", 0)  # so that more than 256 rows take several blocks
    monkeypatch.setattr(loss, "CACHED_LOGITS", 100 * 50)  # and more than 100 several parts of a block
    logits = functional.linear(hidden, weight, bias)
    expected = functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    actual = label_smoothed_cross_entropy(hidden, weight, bias, targets, smoothing)
    torch.testing.assert_close(actual.total, expected)
    assert actual.count == rows
    assert actual.correct == (logits.argmax(1) == targets).sum()
    ours = gradients(actual.total / 7, (hidden, weight, bias))
    torchs = gradients(expected / 7, (hidden, weight, bias))
    for one, other in zip(ours, torchs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_gradient_is_the_slope_of_the_loss():
    hidden, weight, bias, targets = (
        tensor.detach().double() if tensor.is_floating_point() else tensor for tensor in parts(5, 3, 7)
    )
    direction = torch.randn_like(hidden)
    hidden.requires_grad_()
    (gradient,) = torch.autograd.grad(
        functional.cross_entropy(functional.linear(hidden, weight, bias), targets, reduction="sum"), hidden
    )

    def value(offset: float) -> torch.Tensor:
        moved = (hidden + offset * direction).float()
        return label_smoothed_cross_entropy(moved, weight.float(), bias.float(), targets, 0.0).total

    slope = (value(1e-2) - value(-1e-2)) / 2e-2
    assert slope.item() == pytest.approx((gradient * direction).sum().item(), rel=1e-2, abs=1e-3)


def test_smoothing_zero_is_cross_entropy():
    hidden, weight, _, targets = parts(bias=False)
    expected = -functional.linear(hidden, weight).log_softmax(1).gather(1, targets[:, None]).sum()
    torch.testing.assert_close(label_smoothed_cross_entropy(hidden, weight, None, targets, 0.0).total, expected)


def test_two_half_batches_equal_one():
    hidden, weight, bias, targets = parts()
    whole = label_smoothed_cross_entropy(hidden, weight, bias, targets, 0.1)
    halves = [
        label_smoothed_cross_entropy(hidden[rows], weight, bias, targets[rows], 0.1)
        for rows in (slice(0, 100), slice(100, None))
    ]
    torch.testing.assert_close(halves[0].total + halves[1].total, whole.total)
    for mine, other in zip(
        gradients(halves[0].total + halves[1].total, (hidden, weight, bias)),
        gradients(whole.total, (hidden, weight, bias)),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def test_confident_and_huge_logits_stay_finite():
    hidden = torch.tensor([[1e4, 0.0], [-1e4, 0.0]], requires_grad=True)
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    result = label_smoothed_cross_entropy(hidden, weight, None, torch.tensor([0, 0]), 0.1)
    result.total.backward()
    assert torch.isfinite(result.total)
    assert torch.isfinite(hidden.grad).all()


def test_bfloat16_products_keep_a_float32_loss():
    hidden, weight, bias, targets = parts()
    exact = label_smoothed_cross_entropy(hidden, weight, bias, targets, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = label_smoothed_cross_entropy(hidden, weight, bias, targets, 0.1)
    assert rounded.total.dtype == torch.float32
    torch.testing.assert_close(rounded.total, exact.total, rtol=5e-3, atol=0)
    ours, theirs = gradients(rounded.total, (hidden, weight, bias)), gradients(exact.total, (hidden, weight, bias))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == torch.float32
        assert (mine - other).norm() < 0.02 * other.norm()


def test_no_gradient_is_computed_where_none_is_asked_for(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "index_add_", lambda *_: pytest.fail("a gradient was computed"))
    hidden, weight, bias, targets = parts()
    with torch.no_grad():
        label_smoothed_cross_entropy(hidden, weight, bias, targets, 0.1)


def test_a_second_order_gradient_is_refused_rather_than_wrong():
    source, weight, bias, targets = parts()
    total = label_smoothed_cross_entropy(torch.tanh(source), weight, bias, targets, 0.1).total
    with pytest.raises(RuntimeError, match="no second-order gradient"):
        torch.autograd.grad(total, source, create_graph=True)


def test_going_back_twice_is_refused_rather_than_wrong():
    hidden, weight, bias, targets = parts()
    total = label_smoothed_cross_entropy(hidden, weight, bias, targets, 0.1).total
    total.backward(torch.tensor(2.0), retain_graph=True)
    once = hidden.grad.clone()
    with pytest.raises(RuntimeError, match="compute the loss again"):
        total.backward()
    assert torch.equal(hidden.grad, once)


def r_drop_by_torch(hidden, weight, bias, targets, smoothing, weight_of_divergence):
    """The paper's equations, word for word, and half of their sum."""
    one, other = functional.linear(hidden, weight, bias).view(len(targets), 2, -1).unbind(1)
    entropy = sum(
        functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing) for logits in (one, other)
    )
    p, q = one.log_softmax(1), other.log_softmax(1)
    both = (functional.kl_div(a, b, reduction="sum", log_target=True) for a, b in ((p, q), (q, p)))
    return (entropy + weight_of_divergence * sum(both) / 2) / 2


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("count", [1, 128, 201])
def test_r_drop_and_its_gradients_are_the_papers(monkeypatch, bias, count):
    hidden, weight, bias, _ = parts(rows=2 * count, bias=bias)
    targets = torch.randint(0, 50, (count,))
    monkeypatch.setattr(loss, "CPU_LOGITS", 0)
    monkeypatch.setattr(loss, "CACHED_LOGITS", 51 * 50)  # an odd number of rows must not part a pair
    expected = r_drop_by_torch(hidden, weight, bias, targets, 0.1, 3.0)
    actual = label_smoothed_cross_entropy(hidden, weight, bias, targets, 0.1, r_drop=3.0)
    torch.testing.assert_close(actual.total, expected)
    assert actual.count == count
    ours, torchs = (gradients(total / 7, (hidden, weight, bias)) for total in (actual.total, expected))
    for one, other in zip(ours, torchs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def batch_and_model(task, dropout):
    torch.manual_seed(5)
    config = ModelConfig(preset="tiny", num_encoder_layers=1, num_decoder_layers=1, dropout=dropout)
    source = torch.randint(4, 40, (3, 6))
    mask = torch.arange(6) < torch.tensor([[6], [4], [2]])
    if task == "translation":
        batch = TranslationBatch(source, mask, source, source, mask, torch.arange(3), int(mask.sum()), 24)
        return batch, Transformer(config, 40, 40), translation_loss
    batch = ClassificationBatch(source, mask, torch.tensor([0, 1, 1]), torch.arange(3), 3, 12)
    return batch, EncoderClassifier(config, ClassifierConfig(dropout=dropout), 40, 2), classification_loss


@pytest.mark.parametrize("task", ["translation", "classification"])
def test_r_drop_of_equal_draws_is_the_loss_without_it(task):
    batch, model, compute = batch_and_model(task, dropout=0.0)
    plain, doubled = compute(model, batch, 0.1), compute(model, batch, 0.1, r_drop=5.0)
    assert (doubled.count, doubled.correct) == (plain.count, plain.correct)
    torch.testing.assert_close(doubled.total, plain.total)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    for one, other in zip(*(gradients(found.total, weights) for found in (doubled, plain)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("task", ["translation", "classification"])
def test_r_drop_punishes_draws_that_differ(task):
    batch, model, compute = batch_and_model(task, dropout=0.4)

    def total(r_drop):
        torch.manual_seed(6)
        return compute(model, batch, 0.1, r_drop=r_drop).total.item()

    zero, one, two = total(1e-9), total(1.0), total(2.0)
    assert two - one == pytest.approx(one - zero, rel=1e-3)
    assert one > 1.01 * zero
