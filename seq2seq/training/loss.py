"""Losses as sums, never means: the trainer divides once, by the number of targets of all ranks and micro-batches.

`translation_loss` and `classification_loss` are what `tasks` hands to the trainer; `label_smoothed_cross_entropy`
computes the output layer and its loss together, a block of rows at a time.

Shapes: B sentences, T target length, D d_model, V vocabulary, N real target tokens, C labels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.data.collate import ClassificationBatch, TranslationBatch

# Rows of logits held at a time, on a CPU as many as make so many logits: fewer make slow products, all together
# would fill memory.
CPU_ROWS, CPU_LOGITS, GPU_ROWS = 256, 2**23, 8192


@dataclass(frozen=True)
class LossSum:
    """Sums over the targets of a batch."""

    total: Tensor
    """Loss in nats, float32, summed; carries the gradient."""
    count: int
    """Targets summed over."""
    correct: Tensor
    """Targets that got the highest score."""


def translation_loss(model: nn.Module, batch: TranslationBatch, smoothing: float) -> LossSum:
    """Teacher-forced label-smoothed cross entropy of a batch."""
    hidden = model(batch.source_ids, batch.source_mask, batch.target_input)  # (B, T, D)
    real = _positions(batch.target_mask, batch.num_targets)  # (N,)
    hidden = hidden.flatten(0, 1).index_select(0, real)  # (N, D): padding costs no output layer
    targets = batch.target_output.flatten().index_select(0, real)  # (N,)
    return label_smoothed_cross_entropy(hidden, model.output.weight, model.output.bias, targets, smoothing)


def classification_loss(model: nn.Module, batch: ClassificationBatch, smoothing: float) -> LossSum:
    """Label-smoothed cross entropy of a batch of labelled texts."""
    logits = model(batch.source_ids, batch.source_mask).float()  # (B, C)
    total = functional.cross_entropy(logits, batch.labels, reduction="sum", label_smoothing=smoothing)
    return LossSum(total, batch.num_targets, (logits.argmax(dim=1) == batch.labels).sum())


def label_smoothed_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
) -> LossSum:
    """Cross entropy of softmax(hidden weight^T + bias) against smoothed targets (Szegedy et al. 2016, section 7).

    A target distribution gives 1 - smoothing + smoothing / V to the target and smoothing / V to every other id. The
    softmax and the sum are float32 whatever the products are computed in.

    Args:
        hidden: (N, D).
        weight: (V, D).
        bias: (V,) or None.
        targets: (N,).
        smoothing: share of probability that is spread evenly, in [0, 1).

    Returns:
        The sum over the N targets, and how many of them scored highest.
    """
    dtype = torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(hidden.device.type) else None
    with_gradient = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    total, correct = _LinearCrossEntropy.apply(
        hidden, weight, bias, targets, smoothing, dtype or hidden.dtype, with_gradient
    )
    return LossSum(total, targets.numel(), correct)


def _positions(mask: Tensor, count: int) -> Tensor:
    # the count is known, so a GPU need not be waited for to learn the size of the result
    return torch.nonzero_static(mask.flatten(), size=count).squeeze(1)


class _LinearCrossEntropy(torch.autograd.Function):
    """Output layer and loss together.

    All logits would be N x V numbers, several times over. Here a block of rows is turned into its loss and its part of
    both gradients at once, so backward has nothing left to do but scale. The smoothing term needs no pass over the
    vocabulary: the mean logit of a row is its product with the mean of the weights.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, targets, smoothing, dtype, with_gradient):
        with torch.autocast(hidden.device.type, enabled=False):
            total, correct, ctx.gradients = _blocks(hidden, weight, bias, targets, smoothing, dtype, with_gradient)
        ctx.mark_non_differentiable(correct)
        return total, correct

    @staticmethod
    def backward(ctx, total_gradient, _):
        if ctx.gradients is None:
            raise RuntimeError("the gradients of this loss were given away; compute the loss again to go back twice")
        gradients, ctx.gradients = ctx.gradients, None  # scaled in place: as large as the output layer
        return *(None if each is None else each.mul_(total_gradient) for each in gradients), None, None, None, None


def _blocks(hidden, weight, bias, targets, smoothing, dtype, with_gradient):
    states, matrix = hidden.to(dtype), weight.to(dtype)
    mean_row = weight.float().mean(dim=0)  # (D,)
    mean_bias = bias.float().mean() if bias is not None else 0.0
    total = torch.zeros((), dtype=torch.float32, device=hidden.device)
    correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
    hidden_gradient = torch.empty_like(states) if with_gradient else None
    weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if with_gradient else None
    bias_gradient = torch.zeros_like(bias, dtype=torch.float32) if with_gradient and bias is not None else None
    rows = max(CPU_ROWS, CPU_LOGITS // len(weight)) if hidden.device.type == "cpu" else GPU_ROWS
    for start in range(0, hidden.size(0), rows):
        block = states[start : start + rows]  # (n, D)
        target = targets[start : start + rows, None]  # (n, 1)
        logits = torch.mm(block, matrix.t()).float()  # (n, V)
        if bias is not None:
            logits += bias
        highest = logits.amax(dim=1, keepdim=True)
        reached = logits.gather(1, target)
        probabilities = logits.softmax(dim=1)
        # softmax has found the normaliser already; its largest probability gives it back without another exp
        log_normalizer = highest - probabilities.amax(dim=1, keepdim=True).log()
        mean_logit = block.float() @ mean_row + mean_bias
        total += (log_normalizer - (1 - smoothing) * reached).sum() - smoothing * mean_logit.sum()
        correct += (reached >= highest).sum()
        if not with_gradient:
            continue
        probabilities.scatter_add_(1, target, torch.full_like(reached, smoothing - 1))
        if bias_gradient is not None:
            bias_gradient += probabilities.sum(dim=0) - smoothing * len(block) / len(bias)
        probabilities = probabilities.to(dtype)
        torch.mm(probabilities, matrix, out=hidden_gradient[start : start + rows])
        _add_product(weight_gradient, probabilities, block)
    if with_gradient:
        hidden_gradient -= (smoothing * mean_row).to(dtype)
        weight_gradient -= states.sum(dim=0, dtype=torch.float32) * (smoothing / len(weight))
        hidden_gradient, weight_gradient = hidden_gradient.to(hidden.dtype), weight_gradient.to(weight.dtype)
    return total, correct, (hidden_gradient, weight_gradient, bias_gradient)


def _add_product(total: Tensor, probabilities: Tensor, block: Tensor) -> None:
    """total += probabilities^T block, summed in float32."""
    if probabilities.dtype == torch.float32:
        total.addmm_(probabilities.t(), block)
    else:
        total += torch.mm(probabilities.t(), block)
