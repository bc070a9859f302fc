"""Positions: the published sinusoids in both layouts, and rotary products that depend on distance alone."""

import math

import pytest
import torch

from seq2seq.config.schema import ModelConfig
from seq2seq.model.positions import RotaryPositions, sinusoids
from seq2seq.model.transformer import Transformer

# From the tutorials that this architecture is known by: 5 positions, d_model 4.
ORACLE = [
    [0, 1, 0, 1],
    [0.8415, 0.5403, 0.0100, 0.9999],
    [0.9093, -0.4161, 0.0200, 0.9998],
    [0.1411, -0.9900, 0.0300, 0.9996],
    [-0.7568, -0.6536, 0.0400, 0.9992],
]


def test_interleaved_sinusoids_are_the_published_figures():
    torch.testing.assert_close(sinusoids(5, 4), torch.tensor(ORACLE), atol=6e-5, rtol=0)


def test_halves_hold_the_same_numbers_sines_first():
    interleaved, halves = sinusoids(7, 10), sinusoids(7, 10, "halves")
    assert torch.equal(halves[:, :5], interleaved[:, 0::2])
    assert torch.equal(halves[:, 5:], interleaved[:, 1::2])


def test_sinusoids_of_fairseq_are_those_of_transformers():
    pytest.importorskip("transformers")
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding as Theirs

    theirs = Theirs(40, 12, padding_idx=1).weights[2:]
    torch.testing.assert_close(sinusoids(40, 12, "halves", "fairseq", 2), theirs, atol=1e-5, rtol=0)


def test_an_offset_is_the_number_of_the_first_position():
    for formula in ("paper", "fairseq"):
        assert torch.equal(sinusoids(5, 8, "halves", formula, 3), sinusoids(8, 8, "halves", formula)[3:])


def test_far_positions_keep_their_precision():
    position, width = 1023, 512
    expected = [math.sin(position / 10000 ** (2 * i / width)) for i in range(width // 2)]
    torch.testing.assert_close(sinusoids(1024, width)[position, 0::2], torch.tensor(expected), atol=1e-6, rtol=0)


def test_rotary_products_depend_on_distance_alone():
    rotary = RotaryPositions(ModelConfig(preset="tiny", positions="rotary"))
    query, key = torch.randn(1, 32), torch.randn(1, 32)

    def product(query_position: int, key_position: int) -> torch.Tensor:
        return (rotary(query, query_position) * rotary(key, key_position)).sum()

    torch.testing.assert_close(product(5, 2), product(105, 102), atol=1e-4, rtol=1e-4)
    assert not torch.isclose(product(5, 2), product(5, 4), atol=1e-3)


def test_rotary_keeps_lengths_and_position_zero():
    rotary = RotaryPositions(ModelConfig(preset="tiny", positions="rotary"))
    vectors = torch.randn(2, 4, 9, 32)
    torch.testing.assert_close(rotary(vectors).norm(dim=-1), vectors.norm(dim=-1))
    torch.testing.assert_close(rotary(vectors)[:, :, 0], vectors[:, :, 0])


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_positions_are_distinct(layout):
    table = sinusoids(512, 64, layout)
    distances = torch.cdist(table, table) + torch.eye(512) * 10
    assert distances.min() > 0.1


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_tables_stay_float32_in_a_model_of_sixteen_bits(positions):
    config = ModelConfig(preset="tiny", d_model=32, num_heads=2, positions=positions)
    model = Transformer(config, 20, 20).eval()
    before = dict(model.named_buffers())
    model = model.to(torch.bfloat16)
    assert all(torch.equal(table, before[name]) for name, table in model.named_buffers())
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    ids = torch.arange(4, 14).view(2, 5)
    assert model.project(model(ids, ids > 0, ids)).dtype == torch.bfloat16
    assert all(table.is_meta for table in model.to("meta").buffers())
