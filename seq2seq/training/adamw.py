"""AdamW and the base of other optimisers, which work without torch's compiler.

Those of `torch.optim` import it, which takes as long as importing torch, in order to keep their methods out of compiled
code. Here only layers and the loss are compiled (`compiling`).
"""

import inspect

import torch


class Optimizer(torch.optim.Optimizer):
    """An optimiser of torch whose beginning and `zero_grad` import no compiler."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class AdamW(Optimizer, torch.optim.AdamW):
    """The AdamW of torch (Loshchilov and Hutter 2019), without `differentiable`."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
