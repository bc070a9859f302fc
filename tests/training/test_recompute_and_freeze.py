"""Layers that are computed again give the same gradients in less memory; frozen weights stay the same bits."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from support.gradient_steps import BATCH, CPU, VOCAB

from seq2seq.config.schema import ModelConfig, TrainingConfig
from seq2seq.errors import ConfigError
from seq2seq.model.transformer import Transformer
from seq2seq.runtime import Runtime
from seq2seq.training.frozen import freeze, num_frozen
from seq2seq.training.loss import translation_loss
from seq2seq.training.optim import ExponentialMovingAverage, optimizer_tensors
from seq2seq.training.step import GradientStep
from seq2seq.training.weights import Weights

ROOT = Path(__file__).parents[2]
SIZES = dict(preset=None, d_model=16, num_heads=2, d_ff=24, num_encoder_layers=2, num_decoder_layers=2)
DROPPED = dict(dropout=0.2, attention_dropout=0.1, activation_dropout=0.1)


def make(r_drop=0.0, frozen=(), recompute=False, **training):
    torch.manual_seed(3)
    config = ModelConfig(**SIZES, **DROPPED)
    module = Transformer(config, VOCAB, VOCAB).train()
    freeze(module, frozen)
    training = TrainingConfig(compile=False, recompute=recompute, warmup_steps=0, weight_decay=0.1, **training)
    loss = partial(translation_loss, smoothing=0.1, r_drop=r_drop)
    return GradientStep(Weights(module, Runtime(CPU, torch.float32)), loss, training), module


@pytest.mark.slow  # torch imports its compiler, which takes seconds
@pytest.mark.parametrize("settings", [{}, {"r_drop": 1.0}, {"frozen": ["encoder"]}], ids=["plain", "r-drop", "frozen"])
def test_gradients_and_random_numbers_are_the_same_bits(settings):
    gradients, after = [], []
    for recompute in (False, True):
        step, module = make(recompute=recompute, **settings)
        torch.manual_seed(5)
        step.compute_gradient([BATCH, BATCH], 2 * BATCH.num_targets)
        gradients.append([weight.grad for weight in module.parameters() if weight.requires_grad])
        after.append(torch.rand(3))
    assert gradients[0]
    assert all(map(torch.equal, *gradients))
    assert torch.equal(*after)


PEAK = """
from seq2seq import runtime
from seq2seq.processes import resident_bytes
from support.gradient_steps import make_batch, make_step
step, module = make_step(d_model=64, d_ff=256, num_encoder_layers=4, num_decoder_layers=4, dropout=0.1)
for recompute, sentences in ((True, 1), (True, 72), (False, 72)):
    runtime.keep_large_blocks(2**20 if recompute else 2**30)
    for layer in (*module.encoder.layers, *module.decoder.layers):
        layer.recompute = recompute
    batch = make_batch(*[(64, 64)] * sentences)
    step.compute_gradient([batch], batch.num_targets)
    print(resident_bytes(peak=True))  # ru_maxrss would include the process that started this one
"""


@pytest.mark.slow
def test_a_step_takes_less_than_half_of_the_memory():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    printed = subprocess.check_output([sys.executable, "-c", PEAK], text=True, env=environment)
    idle, again, at_once = map(int, printed.split())  # each the peak of all until then
    assert again - idle < 0.5 * (at_once - idle)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(
    "frozen",
    [
        ["encoder.embedding", "decoder.layers.*.feed_forward"],
        ["encoder", "decoder.*norm*"],
        ["*embedding*", "*norm*", "*bias"],
    ],
)
def test_frozen_weights_stay_and_have_no_state(frozen, optimizer):
    step, module = make(frozen=frozen, optimizer=optimizer, learning_rate=0.01)
    average = ExponentialMovingAverage(module, 0.9)
    before = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    for number in (1, 2):
        step.compute_gradient([BATCH], BATCH.num_targets)
        step.update(0.01)
        average.update(number)
    still = {name for name, weight in module.named_parameters() if not weight.requires_grad}
    assert 0 < len(still) < len(before)
    assert num_frozen(module) == sum(before[name].numel() for name in still)
    for name, weight in module.named_parameters():
        assert torch.equal(weight, before[name]) == (name in still), name
    of_state = {name.rpartition(".")[0] for name in optimizer_tensors(module, step.optimizer)}
    assert of_state == before.keys() - still == average.tensors().keys()
    with average.applied():
        assert all(torch.equal(dict(module.named_parameters())[name], before[name]) for name in still)


def test_a_tied_weight_is_frozen_under_any_of_its_names():
    for name in ("output", "decoder.embedding", "encoder.embedding.tokens.weight"):
        _, module = make(frozen=[name])
        assert not module.encoder.embedding.tokens.weight.requires_grad


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("encodr", "no weight is called 'encodr'; did you mean 'encoder'?"),
        ("decoder.layers.9", "no weight is called 'decoder.layers.9'; did you mean 'decoder.layers."),
        ("xyz", "no weight is called 'xyz'; there are encoder, decoder, output"),
        ("encoder.embeding", "no weight is called 'encoder.embeding'; did you mean 'encoder.embedding'?"),
        ("*", "no weight is left to train"),
        ("", "no weight is called ''; there are"),
    ],
)
def test_names_that_freeze_nothing_or_everything_are_refused(pattern, said):
    with pytest.raises(ConfigError, match="freeze") as error:
        make(frozen=[pattern])
    assert said in str(error.value)
