"""Losses as sums, never means: the trainer divides once, by the number of targets of all ranks and micro-batches.

`tasks` gives `translation_loss` and `classification_loss` to the trainer. `label_smoothed_cross_entropy` computes the
output layer and its loss together, a block of rows at a time.

Shapes: B sentences, T target length, D d_model, V vocabulary, N real target tokens, C labels.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.data.collate import ClassificationBatch, TranslationBatch
from seq2seq.runtime import on_cpu, product_type

# Rows of a block: fewer rows make products slow, and the logits of all rows would fill the memory. On a CPU a block has
# as many rows as have CPU_LOGITS logits together, but at least CPU_ROWS; softmax and loss process CACHED_LOGITS logits
# at a time, which stay in the cache.
CPU_ROWS, CPU_LOGITS, CACHED_LOGITS, GPU_ROWS = 256, 2**23, 2**19, 8192


@dataclass(frozen=True)
class LossSum:
    """Sums over the targets of a batch."""

    total: Tensor
    """The summed loss in nats, float32; carries the gradient."""
    count: int
    """The number of targets."""
    correct: Tensor
    """The number of targets that have the highest score."""
    each: Tensor | None = None
    """Loss, correct targets and targets of each sentence, (B, 3); only without gradients."""


def translation_loss(
    model: nn.Module, batch: TranslationBatch, smoothing: float, r_drop: float = 0.0, *, compiled: bool = False
) -> LossSum:
    """Return the label-smoothed cross entropy of a batch under teacher forcing.

    `smoothing`, `r_drop` and `compiled` as in `label_smoothed_cross_entropy`.
    """
    inputs = batch.source_ids, batch.source_mask, batch.target_input
    # the size is given, so that the CPU does not have to wait for a GPU to learn it
    real = torch.nonzero_static(batch.target_mask.flatten(), size=batch.num_targets).squeeze(1)  # (N,)
    counted = None
    if batch.has_spare_targets:  # their positions are -1
        counted, real = (real >= 0).float(), real.clamp(min=0)
    if r_drop:
        hidden = model(*(torch.cat([tensor, tensor]) for tensor in inputs))  # (2B, T, D)
        pairs = torch.stack(hidden.flatten(0, 1).chunk(2), dim=1)  # (B T, 2, D)
        hidden = pairs.index_select(0, real).flatten(0, 1)  # (2N, D), without padding
    else:
        hidden = model(*inputs).flatten(0, 1).index_select(0, real)  # (N, D), without padding
    targets = batch.target_output.flatten().index_select(0, real)  # (N,)
    output = model.output
    loss = label_smoothed_cross_entropy(
        hidden, output.weight, output.bias, targets, smoothing, r_drop, compiled=compiled, counted=counted
    )
    if loss.each is None:
        return loss
    sentences = torch.repeat_interleave(batch.target_mask.sum(dim=1))  # (N,)
    sums = torch.zeros(len(batch), 3, device=hidden.device).index_add(0, sentences, loss.each)
    return dataclasses.replace(loss, each=sums)


def classification_loss(model: nn.Module, batch: ClassificationBatch, smoothing: float, r_drop: float = 0.0) -> LossSum:
    """Return the label-smoothed cross entropy of a batch of texts; `r_drop` as in `label_smoothed_cross_entropy`.

    If the batch has probabilities of the labels, they are the targets (soft targets at temperature 1; Hinton et al.
    2015, "Distilling the knowledge in a neural network", section 2). A text then counts as correct if the model's most
    likely label is `batch.labels`.
    """
    inputs = batch.source_ids, batch.source_mask
    targets = batch.labels if batch.probabilities is None else batch.probabilities  # (B,) or (B, C)
    if r_drop:
        inputs, targets = tuple(torch.cat([tensor, tensor]) for tensor in inputs), torch.cat([targets, targets])
    logits = model(*inputs).float()  # (B, C), or (2B, C)
    total = functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    if r_drop:
        log_p, log_q = logits.log_softmax(dim=1).chunk(2)  # (B, C) each
        divergence = 0.5 * ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum()
        total = 0.5 * (total + r_drop * divergence)
    hits = logits[: batch.num_targets].argmax(dim=1) == batch.labels
    each = None
    if not torch.is_grad_enabled() and not r_drop:
        losses = functional.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
        each = torch.stack([losses, hits.float(), torch.ones_like(losses)], dim=1)
    return LossSum(total, batch.num_targets, hits.sum(), each)


def label_smoothed_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    r_drop: float = 0.0,
    *,
    compiled: bool = False,
    counted: Tensor | None = None,
) -> LossSum:
    """Return the cross entropy of softmax(hidden weight^T + bias) with smoothed targets (Szegedy et al. 2016, sec. 7).

    A target distribution gives 1 - smoothing + smoothing / V to the target and smoothing / V to every other id. The
    softmax and the sum are float32 under autocast too. The gradient can be computed once, and has no gradient itself.

    R-Drop (Liang et al. 2021, "R-Drop: regularized dropout for neural networks", section 2.2) lets dropout draw two
    distributions p and q for each target. The loss is then the mean of both cross entropies plus half of r_drop
    (KL(p, q) + KL(q, p)) / 2. This is half of the paper's loss, so that it stays the loss of one target.

    Args:
        hidden: (N, D), or with `r_drop` (2N, D), the two draws of each target one after the other.
        weight: (V, D).
        bias: (V,) or None.
        targets: (N,).
        smoothing: share of probability that is spread evenly, in [0, 1).
        r_drop: weight of the divergence (the paper's alpha); 0 turns R-Drop off.
        compiled: whether softmax and loss are one kernel of torch.compile, which reads the logits twice.
        counted: 1 for each row that counts and 0 for the others (N,), without `bias` and `r_drop`; None if all count.

    Returns:
        The loss summed over the N targets, and the number of targets that have the highest score. Without gradients
        and without `r_drop`, `each` has loss, correct and 1 for each target, (N, 3).

    Raises:
        RuntimeError: in a second backward pass, or in one with `create_graph=True`.
    """
    with_gradient = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    softmax_loss = _compiled_unless_one_row if compiled else _softmax_loss
    count = targets.numel()
    if r_drop:
        targets = targets.repeat_interleave(2)
    if counted is not None:
        assert bias is None
        assert not r_drop
        hidden = hidden * counted[:, None].to(hidden.dtype)  # a row of zeros adds nothing to the other gradients
    settings = _LossSettings(smoothing, r_drop, product_type(hidden), with_gradient, softmax_loss, counted)
    arguments = hidden, weight, bias, targets, settings
    if not with_gradient and not r_drop:
        with torch.autocast(hidden.device.type, enabled=False):
            total, correct, _, each = _blocks(*arguments)
        return LossSum(total, count, correct, torch.cat(each) if each else hidden.new_zeros(0, 3, dtype=torch.float32))
    total, correct = _LinearCrossEntropy.apply(*arguments)
    return LossSum(total / 2, count, correct / 2) if r_drop else LossSum(total, count, correct)


@dataclass(frozen=True)
class _LossSettings:
    """Settings that all blocks share."""

    smoothing: float
    r_drop: float
    dtype: torch.dtype
    """The number format of the products."""
    with_gradient: bool
    softmax_loss: Callable[..., tuple[Tensor, Tensor, Tensor | None]]
    """`_softmax_loss`, or its compiled form."""
    counted: Tensor | None = None


class _LinearCrossEntropy(torch.autograd.Function):
    """The output layer and the loss as one operation.

    All logits at once would be several tensors of N x V numbers. The forward pass turns a block of rows into its loss
    and its part of the gradients; the backward pass only scales them. The smoothing term needs no pass over the
    vocabulary, because the mean logit of a row is the product of its hidden state with the mean row of the weights.
    """

    @staticmethod
    def forward(ctx, hidden, *others):
        with torch.autocast(hidden.device.type, enabled=False):
            total, correct, ctx.gradients, _ = _blocks(hidden, *others)
        ctx.mark_non_differentiable(correct)
        return total, correct

    @staticmethod
    def backward(ctx, total_gradient, _):
        if ctx.gradients is None or torch.is_grad_enabled():  # the latter is create_graph=True
            raise RuntimeError("this loss has one backward pass and no second-order gradient; compute the loss again")
        gradients, ctx.gradients = ctx.gradients, None  # scaled in place: as large as the output layer
        return *(None if each is None else each.mul_(total_gradient) for each in gradients), None, None


def _blocks(hidden, weight, bias, targets, settings):
    smoothing, dtype, with_gradient = settings.smoothing, settings.dtype, settings.with_gradient
    states, matrix = hidden.to(dtype), weight.to(dtype)
    mean_row = weight.float().mean(dim=0)  # (D,)
    mean_bias = bias.float().mean() if bias is not None else 0.0
    total = torch.zeros((), dtype=torch.float32, device=hidden.device)
    correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
    hidden_gradient = torch.empty_like(states) if with_gradient else None
    weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if with_gradient else None
    bias_gradient = torch.zeros_like(bias, dtype=torch.float32) if with_gradient and bias is not None else None
    each: list[Tensor] = []  # without gradient
    rows = part_rows = GPU_ROWS
    if on_cpu(hidden):
        rows = max(CPU_ROWS, CPU_LOGITS // len(weight))
        part_rows = max(1, CACHED_LOGITS // len(weight))
    if settings.r_drop:  # both draws of a target are in one part
        rows, part_rows = rows + rows % 2, part_rows + part_rows % 2
    for start in range(0, hidden.size(0), rows):
        block, block_targets = states[start : start + rows], targets[start : start + rows]  # (n, D), (n,)
        logits = torch.mm(block, matrix.t())  # (n, V)
        means = block.float() @ mean_row + mean_bias  # (n,)
        total -= smoothing * means.sum()
        of_block, offset = [], 0
        for part, part_targets in zip(logits.split(part_rows), block_targets.split(part_rows), strict=True):
            losses, hits, bias_part = settings.softmax_loss(
                part, bias, part_targets, smoothing, settings.r_drop, with_gradient
            )
            if settings.counted is not None:
                part_counts = settings.counted[start : start + rows].narrow(0, offset, len(part))
                losses, hits, offset = losses * part_counts, hits * part_counts.bool(), offset + len(part)
            total += losses.sum()
            correct += hits.sum()
            if not with_gradient:
                of_block.append(torch.stack([losses, hits.float(), torch.ones_like(losses)], dim=1))
            if bias_gradient is not None:
                bias_gradient += bias_part - smoothing * len(part) / len(bias)
        if not with_gradient:
            each.append(torch.cat(of_block))  # (n, 3)
            each[-1][:, 0] -= smoothing * means
            continue
        torch.mm(logits, matrix, out=hidden_gradient[start : start + rows])
        if dtype == torch.float32:
            weight_gradient.addmm_(logits.t(), block)
        else:  # summed in float32
            weight_gradient += torch.mm(logits.t(), block)
    if with_gradient:
        hidden_gradient -= (smoothing * mean_row).to(dtype)
        weight_gradient -= states.sum(dim=0, dtype=torch.float32) * (smoothing / len(weight))
        hidden_gradient, weight_gradient = hidden_gradient.to(hidden.dtype), weight_gradient.to(weight.dtype)
    return total, correct, (hidden_gradient, weight_gradient, bias_gradient), each


def _softmax_loss(logits, bias, targets, smoothing, r_drop, with_gradient):
    """Return each row's loss without its smoothing term (n,), and whether the target has the highest score (n,).

    With gradients, the gradient of the logits replaces `logits` (n, V), and the gradient of the bias (V,) is returned
    too; both lack their smoothing terms.
    """
    scores = logits.float()
    if bias is not None:
        scores = scores + bias
    at_target = torch.arange(len(scores), device=scores.device) * scores.shape[1] + targets  # (n,)
    highest, reached = scores.amax(dim=1), scores.view(-1)[at_target]  # (n,) each
    probabilities = scores.softmax(dim=1)
    # the largest probability gives the normaliser without a second pass of exp
    normalizer = highest - probabilities.amax(dim=1).log()
    losses = normalizer - (1 - smoothing) * reached
    gradient, bias_gradient = probabilities, None
    if r_drop:
        divergence, slope = _divergence(scores - normalizer.unsqueeze(1), probabilities)
        losses = losses + r_drop / 2 * divergence.repeat_interleave(2)
        gradient = probabilities + r_drop * slope
    if with_gradient:
        # in float32, because the gradient at a target that is nearly learned is small
        of_target = gradient.view(-1)[at_target] - (1 - smoothing)  # (n,)
        if bias is not None:
            bias_gradient = gradient.sum(dim=0).index_add(0, targets, torch.full_like(reached, smoothing - 1))
        logits.copy_(gradient)
        logits.view(-1)[at_target] = of_target.to(logits.dtype)
    return losses, reached >= highest, bias_gradient


def _divergence(log_probabilities, probabilities):
    """Return (KL(p, q) + KL(q, p)) / 2 of each pair of rows (n / 2,), and its gradient for all logits (n, V)."""
    logs, values = (part.unflatten(0, (-1, 2)) for part in (log_probabilities, probabilities))  # (n / 2, 2, V) each
    ratio = logs - logs.flip(1)  # log p - log q, and log q - log p
    weighted = values * ratio
    one_way = weighted.sum(dim=2, keepdim=True)  # KL(p, q), and KL(q, p)
    slope = 0.5 * (weighted - values * one_way + values - values.flip(1))
    return 0.5 * one_way.sum(dim=(1, 2)), slope.flatten(0, 1)


def _compiled_unless_one_row(logits, *others):
    """Compute `_softmax_loss`; a single row would need a graph of its own."""
    return (_compiled_softmax_loss() if len(logits) > 1 else _softmax_loss)(logits, *others)


@functools.cache
def _compiled_softmax_loss():
    return torch.compile(_softmax_loss, dynamic=True)
