"""Batches and training steps on a CPU, for tests of launches and of compiled layers."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import torch

from seq2seq.config.schema import ModelConfig, TrainingConfig
from seq2seq.data.collate import collate_translation
from seq2seq.model.transformer import Transformer
from seq2seq.runtime import Runtime
from seq2seq.training.loss import translation_loss
from seq2seq.training.step import GradientStep
from seq2seq.training.weights import Weights

VOCAB = 300
CPU = torch.device("cpu")


def make_batch(*lengths):
    """Pairs of these (source, target) lengths."""
    draw, side = np.random.default_rng(1), SimpleNamespace(pad_id=0, eos_id=1, start_ids=(2,), end_ids=(1,))
    sides = [[draw.integers(4, VOCAB, length).tolist() for length in one] for one in zip(*lengths, strict=True)]
    return collate_translation(*sides, SimpleNamespace(source=side, target=side), range(len(lengths)))


BATCH = make_batch((10, 8), (7, 8), (3, 2), (10, 1), (5, 5), (1, 1))


def make_step(precision=torch.float32, device=CPU, optimizer="adamw", compiled=False, **model):
    torch.manual_seed(3)
    config = ModelConfig(**{"preset": "base", "d_model": 64, "num_heads": 4, "d_ff": 128, **model})
    with torch.device(device):
        module = Transformer(config, VOCAB, VOCAB)
    weights = Weights(module, Runtime(device, precision))
    # with a small epsilon, AdamW would make a whole step of a gradient that is zero but for rounding
    training = TrainingConfig(optimizer=optimizer, weight_decay=0.1, epsilon=1e-4, compile=compiled)
    loss = partial(translation_loss, smoothing=0.1, compiled=compiled)
    return GradientStep(weights, loss, training, is_compiled=compiled), module
