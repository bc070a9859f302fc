"""Linear layers with 8-bit weights, for decoding on a CPU: a quarter of the memory to read, and faster products.

`inference.loading` turns a model's linear layers into these where a user asks for int8. Weights have a scale for each
output, found once; inputs have one for each call, found as they come (dynamic quantization). So a row's result depends
a little on the rows beside it, and a translation may differ from one in another batch.

Shapes: K inputs, N outputs.
"""

import copy
import functools
import warnings

import torch
from torch import Tensor, nn

from seq2seq.errors import UserError

LARGEST = 127


class Int8Linear(nn.Module):
    """Computes about what a linear layer does, from a copy of its weights: (..., K) -> (..., N), both float32.

    Raises:
        UserError: this build of torch has no 8-bit products.
    """

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        weight = layer.weight.detach().float()  # (N, K)
        scales = weight.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / LARGEST  # (N,)
        bias = None if layer.bias is None else layer.bias.detach().float()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch announces another interface, which its processors' builds lack
                zeros = torch.zeros(len(scales), dtype=torch.long)
                quantized = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
                self._packed = torch.ops.quantized.linear_prepack(quantized, bias)
        except (AttributeError, RuntimeError) as error:
            raise UserError(
                "quantization int8: this torch has no 8-bit products; use --engine ctranslate2, or leave it out"
            ) from error

    def rows(self, ids: Tensor, shift: Tensor) -> "Int8Linear":
        """The layer with these outputs (N',) alone, from the same 8-bit weights; `shift` (N',) is added to them."""
        weight, scales, zeros, bias = self._unpacked
        chosen = torch._make_per_channel_quantized_tensor(weight[ids], scales[ids], zeros[ids], 0)
        narrow = copy.copy(self)
        del narrow._unpacked  # that of the whole layer
        narrow.out_features = len(ids)
        narrow._packed = torch.ops.quantized.linear_prepack(chosen, shift if bias is None else bias[ids] + shift)
        return narrow

    @functools.cached_property
    def _unpacked(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Weights (N, K) in 8 bits, their scales and zeros (N,), and the bias (N,)."""
        weight, bias = torch.ops.quantized.linear_unpack(self._packed)
        scales, zeros = weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
        return weight.int_repr(), scales, zeros, None if bias is None else bias.detach()

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., K) -> (..., N)."""
        return torch.ops.quantized.linear_dynamic(inputs, self._packed, True)


def quantize(model: nn.Module) -> nn.Module:
    """Put an `Int8Linear` in the place of every linear layer of `model`, which is changed, and return it."""
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, Int8Linear(child))
        else:
            quantize(child)
    return model
