"""Dropout that is cheap on a CPU.

torch draws one random number for each element; a byte for each is enough and takes a quarter of the time, which in a
small model is a noticeable part of a training step. Every layer of the model uses this class.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.runtime import on_cpu


class Dropout(nn.Module):
    """Set a share of the elements to zero in training and scale the rest (Srivastava et al. 2014).

    On a CPU the share is `rate` rounded to a multiple of 1/256 (0.1 becomes 26/256), and the rest is scaled by the
    inverse of the share that is kept, so that the expected value is the input.
    """

    def __init__(self, rate: float):
        super().__init__()
        self.full_rate = self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """Drop elements of a tensor of any shape; the shape is unchanged."""
        if not self.training or self.rate == 0.0:
            return values
        if on_cpu(values):
            return _ByteDropout.apply(values, _threshold(self.rate))
        return functional.dropout(values, self.rate)

    def extra_repr(self) -> str:
        return f"{self.full_rate}"


def scale_dropout(module: nn.Module, share: float) -> None:
    """Set the rate of every `Dropout` of a module to this share of its full rate."""
    for layer in module.modules():
        if isinstance(layer, Dropout):
            layer.rate = share * layer.full_rate


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
