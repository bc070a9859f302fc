"""Muon: an optimiser that turns the momentum of each hidden matrix into the nearest orthogonal matrix.

`optim.build_optimizer` makes it. Other weights (embeddings, output layer, norms, biases) are left to fused AdamW, which
shares this optimiser's groups and state, so that the rest of training sees one optimiser.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

# Lower than the usual 0.95, which learns more slowly in the first few hundred steps (on Multi30k).
MOMENTUM = 0.9
# Of an update's root mean square, so that one learning rate suits these matrices and AdamW's weights (Liu et al. 2025,
# "Muon is scalable for LLM training", section 2.2).
UPDATE_RMS = 0.2
# A polynomial a x + b x^3 + c x^5 for each step of the iteration, the closest to 1 on the image of [0.01, 1] under the
# ones before (Amsel et al. 2025, "The Polar Express", section 3). Three bring singular values of at least a hundredth
# of the norm to between 0.73 and 1.27.
POLYNOMIALS = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))
# From this ratio of the longer side to the shorter, the iteration is faster on the product of the matrix with itself.
LONG = 2


class Muon(torch.optim.Optimizer):
    """Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"."""

    _step_supports_amp_scaling = True  # as fused AdamW: `found_inf` skips a step on the device

    def __init__(
        self,
        matrices: Mapping[nn.Parameter, int],
        adamw: torch.optim.AdamW,
        weight_decay: float,
        dtype: torch.dtype = torch.float32,
    ):
        """Join `adamw`, which owns all other weights, in one optimiser.

        Args:
            matrices: each hidden matrix, (out, in), and of how many stacked matrices it consists; each of them is
                made orthogonal by itself.
            adamw: its groups become this optimiser's too.
            weight_decay: decoupled, for the matrices.
            dtype: of the iteration; bfloat16 is precise enough, and takes the place of float16, whose range is not.
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
        group = self.param_groups[0]
        weights = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        parts = [self._parts_of[weight] for weight in weights]
        directions = orthogonalized(self._directions(weights), parts, self._dtype)
        counts = 1.0 if self.found_inf is None else 1.0 - self.found_inf.to(weights[0].device)
        if self.found_inf is not None:  # 0 times a direction that is not finite is not 0
            directions = [torch.where(counts.bool(), direction, 0.0) for direction in directions]
        if group["weight_decay"]:
            for weight in weights:
                weight.mul_(1.0 - group["lr"] * group["weight_decay"] * counts)
        for weight, count, direction in zip(weights, parts, directions, strict=True):
            scale = UPDATE_RMS * max(weight.shape[0] // count, weight.shape[1]) ** 0.5
            weight.sub_(direction.mul_(group["lr"] * scale))

    def _directions(self, weights: Sequence[nn.Parameter]) -> list[Tensor]:
        """Nesterov's momentum of each gradient; where `found_inf` is 1 the momentum stays."""
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum"] for weight in weights]
        gradients = [weight.grad for weight in weights]
        if self.found_inf is not None:
            bad = self.found_inf.to(momenta[0].device).bool()
            gradients = [torch.where(bad, *pair) for pair in zip(momenta, gradients, strict=True)]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        return list(torch._foreach_lerp(gradients, momenta, MOMENTUM))


def orthogonalized(
    matrices: Sequence[Tensor], parts: Sequence[int], dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """U V^T, nearly, of each matrix's singular value decomposition U S V^T.

    Matrices of one shape are computed together.

    Args:
        matrices: (out, in) each.
        parts: of how many stacked matrices each consists; each is treated by itself.
        dtype: of the computation.

    Returns:
        As many matrices of the same shapes and types.
    """
    shapes: dict[tuple[int, int], list[int]] = {}
    blocks = [matrix.view(count, -1, matrix.shape[1]) for matrix, count in zip(matrices, parts, strict=True)]
    for index, block in enumerate(blocks):
        shapes.setdefault((block.shape[1], block.shape[2]), []).append(index)
    results = list(matrices)
    for indices in shapes.values():
        group = torch.cat([blocks[index] for index in indices])  # (N, out, in)
        # of small numbers, 16 bits would leave nothing before they are normalised
        group = group.to(torch.promote_types(group.dtype, torch.float32))
        group = group / (torch.linalg.matrix_norm(group, keepdim=True) + 1e-20)
        found = _iterated(group.to(dtype)).to(matrices[indices[0]].dtype)
        for index, block in zip(indices, found.split([parts[index] for index in indices]), strict=True):
            results[index] = block.reshape(matrices[index].shape)
    return results


def _iterated(x: Tensor) -> Tensor:
    """Drive the singular values of each matrix of (N, R, C), whose norm is one, towards one."""
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT.contiguous()  # the products below are of the shorter side
    # 16 bits are too few for the square, and so are the 19 in which GPUs multiply float32
    if x.shape[2] >= LONG * x.shape[1] and x.dtype == torch.float32 and x.device.type == "cpu":
        x = _polynomials_of(x @ x.mT) @ x
    else:
        for a, b, c in POLYNOMIALS:
            square = x @ x.mT  # (N, R, R)
            x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def _polynomials_of(square: Tensor) -> Tensor:
    """All polynomials as one factor, from x x^T (N, R, R), which commutes with them: x is multiplied only once."""
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
