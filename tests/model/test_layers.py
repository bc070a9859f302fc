"""Norms, activations, gates, dropout and embeddings: each is its formula, and dropout keeps expected values."""

import pytest
import torch

from seq2seq.config.schema import ModelConfig
from seq2seq.model.dropout import Dropout, scale_dropout
from seq2seq.model.layers import FeedForward, Residual, TokenEmbedding, make_norm
from seq2seq.model.transformer import Transformer


def config(**values) -> ModelConfig:
    return ModelConfig(preset="tiny", **values)


def test_mistake_epsilon_outside_the_root_and_unbiased_deviation():
    """Layer norm is (x - mean) / sqrt(biased variance + epsilon); a large epsilon and a short row tell them apart."""
    norm = make_norm(config(d_model=4, norm_epsilon=0.5))
    row = torch.tensor([[1.0, 2.0, 3.0, 6.0]])
    expected = (row - 3.0) / (3.5 + 0.5) ** 0.5  # biased variance (4 + 1 + 0 + 9) / 4
    torch.testing.assert_close(norm(row), expected)


def test_rms_norm_is_its_formula():
    norm = make_norm(config(d_model=4, norm="rms", norm_epsilon=0.5))
    row = torch.tensor([[1.0, 2.0, 3.0, 6.0]])
    torch.testing.assert_close(norm(row), row / (12.5 + 0.5) ** 0.5)


def test_pre_norm_leaves_the_residual_untouched_and_post_norm_normalises_the_sum():
    states = torch.randn(2, 3, 128) * 5
    pre, post = Residual(config(norm_position="pre")).eval(), Residual(config(norm_position="post")).eval()
    torch.testing.assert_close(pre(states, torch.zeros_like), states)
    torch.testing.assert_close(post(states, torch.zeros_like), post.norm(states))
    torch.testing.assert_close(pre(states, lambda inner: inner), states + pre.norm(states))


@pytest.mark.parametrize(
    ("activation", "formula"),
    [
        ("relu", lambda x: x.clamp(min=0)),
        ("silu", lambda x: x / (1 + torch.exp(-x))),
        ("gelu", lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2),
    ],
)
def test_activations_are_their_formulas(activation, formula):
    layer, states = FeedForward(config(activation=activation)).eval(), torch.randn(3, 128)
    torch.testing.assert_close(layer(states), layer.output(formula(layer.inner(states))))


def test_swiglu_gates_one_half_by_the_other():
    layer, states = FeedForward(config(activation="swiglu")).eval(), torch.randn(3, 128)
    gate, values = layer.inner(states)[:, :512], layer.inner(states)[:, 512:]
    torch.testing.assert_close(layer(states), layer.output(gate / (1 + torch.exp(-gate)) * values))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_keeps_the_expected_value_and_its_gradient(rate):
    values = torch.ones(400_000, requires_grad=True)
    dropped = Dropout(rate).train()(values)
    share = (dropped == 0).float().mean().item()
    assert share == pytest.approx(rate, abs=0.004)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)
    dropped.sum().backward()
    assert torch.equal(values.grad, dropped.detach()), "what was dropped must get no gradient, the rest the same scale"


def test_dropout_does_nothing_when_evaluating_and_repeats_under_a_seed():
    values, dropout = torch.randn(7, 13), Dropout(0.3)
    assert dropout.eval()(values) is values
    torch.manual_seed(5)
    first = dropout.train()(values)
    second = dropout(values)
    torch.manual_seed(5)
    assert torch.equal(dropout(values), first)
    assert not torch.equal(first, second)


def test_word_dropout_removes_tokens_but_not_positions():
    embedding = TokenEmbedding(config(word_dropout=0.5, dropout=0.0), 20).train()
    embedded = embedding(torch.randint(0, 20, (1, 200)))
    bare = (embedded[0] - embedding.positions(200)).abs().sum(dim=1) < 1e-4
    assert 60 < bare.sum() < 140


def test_every_kind_of_dropout_is_scaled_and_none_is_lost():
    rates = dict(dropout=0.4, attention_dropout=0.2, activation_dropout=0.3, word_dropout=0.5)
    layers = [layer for layer in Transformer(config(**rates), 20, 20).modules() if isinstance(layer, Dropout)]
    full = [layer.rate for layer in layers]
    assert set(full) == set(rates.values())
    whole = torch.nn.ModuleList(layers)
    scale_dropout(whole, 0.5)
    assert [layer.rate for layer in layers] == [rate / 2 for rate in full]
    scale_dropout(whole, 0.0)
    values = torch.randn(5, 8)
    assert all(layer.train()(values) is values for layer in layers)
    scale_dropout(whole, 1.0)
    assert [layer.rate for layer in layers] == full


def test_embeddings_are_scaled():
    ids = torch.arange(10)[None]
    plain, scaled = (TokenEmbedding(config(scale_embedding=scale), 10).eval() for scale in (False, True))
    plain.tokens.weight.data = scaled.tokens.weight.data
    position = plain.positions(10)
    torch.testing.assert_close((scaled(ids) - position), (plain(ids) - position) * 128**0.5, atol=1e-5, rtol=1e-4)
