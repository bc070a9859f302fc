"""Modules as plain functions: what a step of decoding is put together from.

The layers' `step_function`s, which `transformer.DecoderCache` asks for, call these in place of their modules.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def plain(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """What a module computes, (R, K) -> (R, N), as a function with its weights at hand.

    To call a module and to look its weights up costs more than a small product; a step of decoding has dozens of them.
    The function is good as long as the module keeps its parameters, whatever their values become. Modules other than
    linear layers and norms are their own functions.
    """
    match module:
        case nn.Linear():
            turned, bias = module.weight.t(), module.bias
            if bias is None:
                return lambda inputs: torch.mm(inputs, turned)
            return lambda inputs: torch.addmm(bias, inputs, turned)
        case nn.LayerNorm():
            shape, weight, bias, epsilon = module.normalized_shape, module.weight, module.bias, module.eps
            return lambda inputs: torch.layer_norm(inputs, shape, weight, bias, epsilon)
        case nn.RMSNorm():
            shape, weight, epsilon = module.normalized_shape, module.weight, module.eps
            return lambda inputs: torch.rms_norm(inputs, shape, weight, epsilon)
    return module
