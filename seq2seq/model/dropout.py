"""Dropout that is cheap on a CPU.

torch draws one random number for each element; a byte for each is enough and takes a quarter of the time, which in a
small model is a noticeable part of a training step. Every layer of the model uses this class.

Code that is compiled or recorded once runs with the numbers of that time, so there the rate is read from a tensor.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.model.buffers import Float32Buffers
from seq2seq.runtime import on_cpu


class Dropout(Float32Buffers):
    """Set a share of the elements to zero in training and scale the rest (Srivastava et al. 2014).

    On a CPU the share is `rate` rounded to a multiple of 1/256 (0.1 becomes 26/256), and the rest is scaled by the
    inverse of the share that is kept, so that the expected value is the input.
    """

    def __init__(self, rate: float):
        super().__init__()
        self.full_rate = self.rate = rate
        self.register_buffer("rate_tensor", torch.tensor(rate), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """Drop elements of a tensor of any shape; the shape is unchanged."""
        if not self.training or self.full_rate == 0.0:
            return values
        if reads_tensors():
            return values * (self.kept(values.shape, values.device) / (1 - self.rate_tensor)).to(values.dtype)
        if self.rate == 0.0:
            return values
        if on_cpu(values):
            return _ByteDropout.apply(values, _threshold(self.rate))
        return functional.dropout(values, self.rate)

    def kept(self, shape: torch.Size, device: torch.device) -> Tensor:
        """Return a mask of this shape that is False at a random share of `rate`."""
        return torch.rand(shape, device=device) >= (self.rate_tensor if reads_tensors() else self.rate)

    def extra_repr(self) -> str:
        return f"{self.full_rate}"

    @property
    def drops(self) -> bool:
        """Whether anything may be dropped."""
        return self.training and (self.full_rate if reads_tensors() else self.rate) > 0.0


_recording = False


def reads_tensors() -> bool:
    """Whether rates are read from tensors: in compiled layers, and inside `recorded_rates`."""
    return torch.compiler.is_compiling() or _recording


@contextlib.contextmanager
def recorded_rates() -> Iterator[None]:
    """Let every `Dropout` read its rate from a tensor inside the context, so that a recorded step follows changes."""
    global _recording
    before, _recording = _recording, True
    try:
        yield
    finally:
        _recording = before


@contextlib.contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Set the rate of every `Dropout` of a module to 0 inside the context."""
    layers = [layer for layer in module.modules() if isinstance(layer, Dropout) and layer.full_rate]
    shares = [layer.rate / layer.full_rate for layer in layers]
    scale_dropout(module, 0.0)
    try:
        yield
    finally:
        for layer, share in zip(layers, shares, strict=True):
            scale_dropout(layer, share)


def scale_dropout(module: nn.Module, share: float) -> None:
    """Set the rate of every `Dropout` of a module to this share of its full rate."""
    for layer in module.modules():
        if isinstance(layer, Dropout) and layer.rate != share * layer.full_rate:
            layer.rate = share * layer.full_rate
            layer.rate_tensor.fill_(layer.rate)


def _threshold(rate: float) -> int:
    return min(max(round(rate * 256), 1), 255)


class _ByteDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: Tensor, threshold: int) -> Tensor:
        count = values.numel()
        words = torch.empty((count + 7) // 8, dtype=torch.int64).random_(-(2**63), 2**63 - 1)
        keep = words.view(torch.uint8)[:count].view(values.shape).ge_(threshold)  # torch is slow with bool
        factor = keep.to(values.dtype).mul_(256 / (256 - threshold))
        ctx.save_for_backward(factor)
        return values * factor

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return gradient * factor, None
