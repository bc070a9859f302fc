"""8-bit weights in torch: near what float32 computes, in every place where a model translates, and refused in words."""

import pytest
import torch
from our_models import make_ours
from torch import nn

from seq2seq.config import ModelConfig, SearchConfig
from seq2seq.errors import UserError
from seq2seq.inference.translator import Translator
from seq2seq.model.int8 import Int8Linear, quantize
from seq2seq.model.transformer import Transformer
from seq2seq.store.model_folder import load_model

LINES = ["a man rides a red bicycle", "two dogs play in the snow", "", "a woman reads a book"] * 3


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return make_ours(tmp_path_factory.mktemp("ours") / "model", ending=4.0, search=SearchConfig(min_length=4)).folder


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7])
def test_it_is_near_the_layer_that_it_is_made_of(rows, bias):
    layer = nn.Linear(64, 130, bias=bias)
    with torch.no_grad():
        layer.weight[3] = 0.0  # a row without a scale
        layer.weight[4] *= 1000.0  # and one that would spoil a scale of all rows
    inputs = torch.randn(2, rows, 64)
    expected, found = layer(inputs), Int8Linear(layer)(inputs)
    assert found.shape == expected.shape
    error = (found - expected).square().mean((0, 1)).sqrt() / layer.weight.square().sum(1).sqrt().clamp(min=1e-9)
    error[3] = (found - expected)[..., 3].abs().max()
    assert 0 < error.max() < 0.03  # 7 bits of input, 8 of weight: about a hundredth


@pytest.mark.parametrize("bias", [True, False])
def test_some_outputs_are_those_of_the_layer(bias):
    layer, inputs = Int8Linear(nn.Linear(64, 130, bias=bias)), torch.randn(7, 64)
    first, then = torch.tensor([90, 3, 41, 7]), torch.tensor([2, 0])
    shift = torch.randn(4)
    some = layer.rows(first, shift)
    torch.testing.assert_close(some(inputs), layer(inputs)[:, first] + shift)
    torch.testing.assert_close(some.rows(then, torch.zeros(2))(inputs), some(inputs)[:, then])


def test_every_linear_layer_is_replaced_and_nothing_else(model_folder):
    model = load_model(model_folder).model
    layers = sum(isinstance(module, nn.Linear) for module in model.modules())
    assert quantize(model) is model
    kinds = [type(module) for module in model.modules()]
    assert (kinds.count(nn.Linear), kinds.count(Int8Linear)) == (0, layers)
    assert nn.Embedding in kinds
    assert nn.LayerNorm in kinds


def test_a_model_computes_about_the_same():
    config = ModelConfig(preset="tiny", d_model=64, max_length=40)
    model = Transformer(config, 300, 300).eval()
    source, target = torch.randint(300, (4, 9)), torch.randint(300, (4, 11))
    arguments = (source, torch.ones_like(source, dtype=torch.bool), target)
    with torch.no_grad():
        exact = model.project(model(*arguments))
        near = quantize(model).project(model(*arguments))
    assert 0 < (near - exact).std() < 0.05 * exact.std()


@pytest.mark.parametrize("search", [dict(beam_size=1), dict(beam_size=4, n_best=3), dict(sample=True, seed=3)])
def test_a_translator_translates_with_it(model_folder, search):
    exact = Translator.load(model_folder, device="cpu", **search).translate(LINES)
    quick = Translator.load(model_folder, device="cpu", quantization="int8", **search)
    found = quick.translate(LINES)
    assert found == quick.translate(LINES)
    assert [bool(one.tokens) for one in found] == [bool(line) for line in LINES]
    assert [one.score for one in found] != [one.score for one in exact], "it computes otherwise"
    assert [len(one.alternatives) for one in found] == [len(one.alternatives) for one in exact]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (dict(quantization="int8_float16"), "torch has int8"),
        (dict(quantization="int8", precision="bfloat16"), "without --precision"),
    ],
)
def test_what_is_not_possible_is_refused(model_folder, settings, said):
    with pytest.raises(UserError, match=said):
        Translator.load(model_folder, device="cpu", **settings)
