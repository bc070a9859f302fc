"""Attention against formulas written out, and each historic mistake of the architecture pinned by name."""

import math

import pytest
import torch
from torch import nn

from seq2seq.config.schema import ModelConfig
from seq2seq.model import attention
from seq2seq.model.attention import (
    CrossAttention,
    SelfAttention,
    attend,
    attention_weights,
    capture_attention,
    key_bias,
)

TINY = ModelConfig(preset="tiny", dropout=0.0)


def by_loops(query, key, value, mask, causal):
    """Equation 1 of Vaswani et al. 2017, one query at a time."""
    context = torch.zeros(*query.shape[:3], value.size(3))
    for b in range(query.size(0)):
        for h in range(query.size(1)):
            for t in range(query.size(2)):
                seen = [s for s in range(key.size(2)) if mask[b, s] and (not causal or s <= t)]
                scores = torch.tensor([float(query[b, h, t] @ key[b, h, s]) / math.sqrt(query.size(3)) for s in seen])
                for weight, s in zip(scores.softmax(0), seen, strict=True):
                    context[b, h, t] += weight * value[b, h, s]
    return context


@pytest.mark.parametrize("plain_below", [0, 10**9], ids=["fused kernel", "plain products"])
@pytest.mark.parametrize(("causal", "queries", "keys"), [(False, 3, 5), (False, 6, 4), (True, 5, 5)])
def test_attention_is_its_equation(monkeypatch, plain_below, causal, queries, keys):
    monkeypatch.setattr(attention, "PLAIN_BELOW", plain_below)
    query, key, value = torch.randn(2, 3, queries, 8), torch.randn(2, 3, keys, 8), torch.randn(2, 3, keys, 8)
    mask = torch.ones(2, keys, dtype=torch.bool)
    if not causal:
        mask[1, 3:] = False
    expected = by_loops(query, key, value, mask, causal)
    actual = attend(query, key, value, None if causal else key_bias(mask, query), causal)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_mistake_elementwise_scores():
    """`q * k` has no pair of every query with every key; T and S that differ would not even fit."""
    weights = attention_weights(torch.randn(1, 1, 2, 4), torch.randn(1, 1, 7, 4))
    assert weights.shape == (1, 1, 2, 7)


def test_mistake_softmax_over_the_wrong_axis():
    weights = attention_weights(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 6, 4))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 3, 5))
    assert not torch.allclose(weights.sum(dim=-2), torch.full((2, 3, 6), 5 / 6), atol=1e-3)


def test_mistake_heads_merged_without_transposing_back():
    """One head's value at one position must reach that position and that head's columns alone."""
    layer = SelfAttention(TINY)
    with torch.no_grad():
        layer.output.weight.copy_(torch.eye(128))
        layer.output.bias.zero_()
        layer.query_key_value.weight.zero_()
        layer.query_key_value.bias.zero_()
        layer.query_key_value.weight[256:].copy_(torch.eye(128))  # values are the states; uniform weights
    states = torch.zeros(1, 5, 128)
    states[0, 2, 32:64] = 1.0  # the second head's columns, third position
    merged = layer(states).detach()
    torch.testing.assert_close(merged[..., 32:64], torch.full((1, 5, 32), 0.2))
    assert torch.all(merged[..., :32] == 0)
    assert torch.all(merged[..., 64:] == 0)


def test_mistake_query_projected_by_the_key_layer():
    layer = CrossAttention(TINY)
    states, memory = torch.randn(2, 3, 128), torch.randn(2, 6, 128)
    before = layer(states, memory)
    with torch.no_grad():
        layer.query.weight.mul_(-1)
    assert not torch.allclose(layer(states, memory), before, atol=1e-4)
    layer(states, memory).sum().backward()
    assert layer.query.weight.grad.abs().sum() > 0
    assert layer.key_value.weight.grad.abs().sum() > 0


def test_mistake_target_length_taken_as_the_source_length():
    layer = CrossAttention(TINY)
    for queries, keys in ((3, 9), (9, 3), (1, 4)):
        assert layer(torch.randn(2, queries, 128), torch.randn(2, keys, 128)).shape == (2, queries, 128)


def test_mistake_mask_tested_for_truth():
    """A mask of a single False must mask; `if mask:` would skip it (and fail on a larger one)."""
    query, key, value = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4)
    masked = attend(query, key, value, key_bias(torch.tensor([[True, False]]), query))
    torch.testing.assert_close(masked, value[:, :, :1].expand(1, 1, 2, 4))


@pytest.mark.parametrize("plain_below", [0, 10**9], ids=["fused kernel", "plain products"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mistake_all_padding_row_gives_nan(monkeypatch, plain_below, dtype):
    monkeypatch.setattr(attention, "PLAIN_BELOW", plain_below)
    query, key = torch.randn(2, 2, 3, 8, dtype=dtype, requires_grad=True), torch.randn(2, 2, 4, 8, dtype=dtype)
    mask = torch.tensor([[True, True, False, False], [False] * 4])
    context = attend(query, key, key, key_bias(mask, key))
    context.sum().backward()
    assert torch.isfinite(context).all()
    assert torch.isfinite(query.grad).all()


def test_self_attention_agrees_with_torch():
    ours, theirs = SelfAttention(TINY).eval(), nn.MultiheadAttention(128, 4, batch_first=True).eval()
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = (
        ours.query_key_value.weight.data,
        ours.query_key_value.bias.data,
    )
    theirs.out_proj.weight.data, theirs.out_proj.bias.data = ours.output.weight.data, ours.output.bias.data
    states, mask = torch.randn(3, 7, 128), torch.ones(3, 7, dtype=torch.bool)
    mask[1, 4:] = False
    expected, _ = theirs(states, states, states, key_padding_mask=~mask)
    torch.testing.assert_close(ours(states, key_bias(mask, states)), expected, atol=1e-5, rtol=1e-4)


def test_cross_attention_agrees_with_torch():
    ours, theirs = CrossAttention(TINY).eval(), nn.MultiheadAttention(128, 4, batch_first=True).eval()
    theirs.in_proj_weight.data = torch.cat([ours.query.weight.data, ours.key_value.weight.data])
    theirs.in_proj_bias.data = torch.cat([ours.query.bias.data, ours.key_value.bias.data])
    theirs.out_proj.weight.data, theirs.out_proj.bias.data = ours.output.weight.data, ours.output.bias.data
    states, memory = torch.randn(2, 4, 128), torch.randn(2, 9, 128)
    expected, _ = theirs(states, memory, memory)
    torch.testing.assert_close(ours(states, memory), expected, atol=1e-5, rtol=1e-4)


def test_captured_weights_are_distributions_and_capture_ends():
    layer = nn.ModuleDict({"own": SelfAttention(TINY)})
    with capture_attention(layer) as captured:
        layer["own"](torch.randn(2, 5, 128), causal=True)
    weights = captured["own"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5))
    assert torch.all(weights.triu(1) == 0)
    layer["own"](torch.randn(2, 7, 128))
    assert captured == {"own": weights}
