"""Muon: an optimiser that turns the momentum of each hidden matrix into the nearest orthogonal matrix.

`optim.build_optimizer` makes it. Other weights (embeddings, output layer, norms, biases) are left to fused AdamW, which
shares this optimiser's groups and state, so that the rest of training sees one optimiser.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from seq2seq.training.adamw import AdamW, Optimizer

# Lower than the usual 0.95, which learns more slowly in the first few hundred steps (on Multi30k).
MOMENTUM = 0.9
# The root mean square of an update, so that one learning rate suits these matrices and AdamW's weights (Liu et al.
# 2025, "Muon is scalable for LLM training", section 2.2).
UPDATE_RMS = 0.2
# A polynomial a x + b x^3 + c x^5 for each step of the iteration: the closest to 1 on the image of [0.01, 1] under the
# previous polynomials (Amsel et al. 2025, "The Polar Express", section 3). Three steps bring singular values of at
# least a hundredth of the norm to between 0.73 and 1.27.
POLYNOMIALS = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))
# From this ratio of the longer to the shorter side on, the iteration is faster on the matrix times its transpose.
LONG = 2


class Muon(Optimizer):
    """The optimiser of Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"."""

    _step_supports_amp_scaling = True  # like fused AdamW, `found_inf` skips a step on the device

    def __init__(
        self,
        matrices: Mapping[nn.Parameter, int],
        adamw: AdamW,
        weight_decay: float,
        dtype: torch.dtype = torch.float32,
    ):
        """Join `adamw`, which owns all other weights, in one optimiser.

        Args:
            matrices: hidden matrices (out, in), with the number of stacked matrices in each; these are made orthogonal
                separately.
            adamw: optimiser whose groups become groups of this optimiser too.
            weight_decay: decoupled weight decay of the matrices.
            dtype: number format of the iteration. bfloat16 is precise enough, and replaces float16, whose range is too
                small.
        """
        rate = adamw.defaults["lr"]
        super().__init__([{"params": list(matrices), "weight_decay": weight_decay}], {"lr": rate})
        self._parts_of, self._adamw = dict(matrices), adamw
        self._dtype = torch.bfloat16 if dtype == torch.float16 else dtype
        self.param_groups += adamw.param_groups
        adamw.state = self.state
        self.found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Change the weights, unless `found_inf` is 1."""
        self._adamw.grad_scale, self._adamw.found_inf = getattr(self, "grad_scale", None), self.found_inf
        self._adamw.step()
        groups: dict[tuple[int, int], list[nn.Parameter]] = {}
        for weight, parts in self._parts_of.items():
            if weight.grad is not None:
                groups.setdefault((weight.shape[0] // parts, weight.shape[1]), []).append(weight)
        for shape, weights in groups.items():
            self._change(weights, shape)

    def _change(self, weights: Sequence[nn.Parameter], shape: tuple[int, int]) -> None:
        """Change the matrices whose parts have this shape, in a few calls of torch, because many calls slow a GPU."""
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum"] for weight in weights]
        parts = [self._parts_of[weight] for weight in weights]
        found_inf = weights[0].new_zeros(()) if self.found_inf is None else self.found_inf.to(weights[0].device)
        is_bad, group = found_inf.bool(), self.param_groups[0]
        matrices = weights[0].new_empty(sum(parts), *shape)  # (N, out, in)
        updates = [part.view_as(weight) for part, weight in zip(matrices.split(parts), weights, strict=True)]
        for update, momentum, weight in zip(updates, momenta, weights, strict=True):
            torch.where(is_bad, momentum, weight.grad, out=update)  # a bad gradient leaves the momentum unchanged
        torch._foreach_lerp_(momenta, updates, 1 - MOMENTUM)
        torch._foreach_lerp_(updates, momenta, MOMENTUM)  # Nesterov momentum
        # 0 times a direction that is not finite is not 0
        torch.where(is_bad, matrices.new_zeros(()), orthogonalized(matrices, self._dtype), out=matrices)
        matrices.mul_(group["lr"] * (UPDATE_RMS * max(shape) ** 0.5))
        if group["weight_decay"]:
            torch._foreach_mul_(weights, 1.0 - group["lr"] * group["weight_decay"] * (1.0 - found_inf))
        torch._foreach_sub_(weights, updates)


def orthogonalized(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return nearly U V^T, computed in `dtype`, of the singular value decomposition U S V^T of each matrix.

    The shape of `matrices` and of the result is (N, out, in).
    """
    # in 16 bits, small numbers would become 0 before they are normalised
    x = matrices.to(torch.promote_types(matrices.dtype, torch.float32))
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-20)
    return _iterated(x.to(dtype)).to(matrices.dtype)


def _iterated(x: Tensor) -> Tensor:
    """Drive the singular values of each matrix of (N, R, C), whose norm is 1, towards 1."""
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT.contiguous()  # so that the products below have the size of the shorter side
    if x.shape[2] >= LONG * x.shape[1] and x.dtype == torch.float32:  # 16 bits are too few for the square
        x = _polynomials_of(x @ x.mT) @ x
    else:
        for a, b, c in POLYNOMIALS:
            square = x @ x.mT  # (N, R, R)
            x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def _polynomials_of(square: Tensor) -> Tensor:
    """Return the factor (N, R, R) that applies all polynomials to x, from x x^T (N, R, R).

    The polynomials commute with x x^T, so x is multiplied only once.
    """
    first, *others = POLYNOMIALS
    factor = step = _polynomial_of(square, *first)
    for coefficients in others:
        square = step @ square @ step  # of x after this step
        step = _polynomial_of(square, *coefficients)
        factor = step @ factor
    return factor


def _polynomial_of(square: Tensor, a: float, b: float, c: float) -> Tensor:
    step = torch.baddbmm(square, square, square, beta=b, alpha=c)  # (N, R, R)
    step.diagonal(dim1=1, dim2=2).add_(a)
    return step
