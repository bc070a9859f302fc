"""The optimiser: learning rate, AdamW or Muon, and an exponential moving average of the weights.

The learning rate is a pure function of step and progress, so a run that continues restores only the optimiser's
moments, which are stored by the names of the weights.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from seq2seq.config.schema import TrainingConfig
from seq2seq.training.adamw import AdamW


def learning_rate(step: int, progress: float, config: TrainingConfig) -> float:
    """Return the learning rate of a step, counted from 1; that of step 1 for 0, where a schedule has just begun.

    The rate rises linearly over `warmup_steps` to `learning_rate`. After that, inverse_sqrt falls with the square root
    of the step (Vaswani et al. 2017, section 5.3); cosine (Loshchilov and Hutter 2017) and linear fall with `progress`,
    the share of training that is done, to the share `final_learning_rate` of the peak. Warm-up is a factor on cosine
    and linear rather than a phase before them, because with a limit in minutes its share of training is not known.
    """
    step = max(1, step)
    warmup = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
    final = config.final_learning_rate
    progress = min(max(progress, 0.0), 1.0)
    match config.schedule:
        case "inverse_sqrt":
            share = min(1.0, math.sqrt(max(1, config.warmup_steps) / step))
        case "cosine":
            share = final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))
        case "linear":
            share = final + (1 - final) * (1 - progress)
        case "constant":
            share = 1.0
    return config.learning_rate * warmup * share


def build_optimizer(
    module: nn.Module, config: TrainingConfig, dtype: torch.dtype = torch.float32
) -> torch.optim.Optimizer:
    """Return fused AdamW (Loshchilov and Hutter 2019), with Muon for the layers' matrices if the config requests it.

    Only the matrices of linear layers have weight decay. Norms and biases need none. The embedding of a rare token
    would decay with few updates against it, so embeddings and an output layer tied to them have none. Muon computes
    in `dtype`.
    """
    hidden = _hidden_matrices(module) if config.optimizer == "muon" else {}
    matrices = {layer.weight for layer in module.modules() if isinstance(layer, nn.Linear)}
    matrices -= {layer.weight for layer in module.modules() if isinstance(layer, nn.Embedding)}
    decayed, free = [], []
    for _, parameter in _trained(module):
        if parameter not in hidden:
            (decayed if parameter in matrices else free).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": free, "weight_decay": 0.0}]
    adamw = AdamW(
        [group for group in groups if group["params"]] or groups[:1],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        fused=True,
    )
    if not hidden:
        return adamw
    from seq2seq.training.muon import Muon

    return Muon(hidden, adamw, config.weight_decay, dtype)


def _hidden_matrices(module: nn.Module) -> dict[nn.Parameter, int]:
    """Return the trained matrices of the layers, with the number of stacked matrices in each."""
    return {
        layer.weight: getattr(layer, "parts", 1)
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear) and ".layers." in name and layer.weight.requires_grad
    }


def optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the moments of every trained weight, by `<name>.<moment>`."""
    return {
        f"{name}.{moment}": tensor
        for name, parameter in _trained(module)
        if parameter in optimizer.state
        for moment, tensor in optimizer.state[parameter].items()
    }


def load_optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the moments that `optimizer_tensors` returned; a weight without moments starts without them.

    Raises:
        ValueError: a moment and its weight differ in shape.
    """
    trained = dict(_trained(module))
    optimizer.state.clear()
    for key, tensor in tensors.items():
        name, _, moment = key.rpartition(".")
        if name in trained:
            parameter = trained[name]
            if moment != "step" and tensor.shape != parameter.shape:
                raise ValueError(f"the optimiser's state of {name} has another shape than the weight")
            optimizer.state[parameter][moment] = tensor.to(parameter.device, copy=True)


class ExponentialMovingAverage:
    """An exponential moving average of the trained weights (Polyak and Juditsky 1992).

    The decay grows with the steps up to `decay`, so that the initial weights soon have no influence.
    """

    def __init__(self, module: nn.Module, decay: float):
        self.decay = decay
        self._names, self._weights = (list(part) for part in zip(*_trained(module), strict=True))
        self._averages = [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the averages towards the weights, after optimiser step `step`, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._averages, self._weights, 1 - decay)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Put the averages into the module inside the context, and its own weights back afterwards, without copying."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def tensors(self) -> dict[str, Tensor]:
        """Return the averages by the names of the weights."""
        return dict(zip(self._names, self._averages, strict=True))

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the averages that `tensors` returned."""
        for name, average in zip(self._names, self._averages, strict=True):
            average.copy_(tensors[name])

    def _exchange(self) -> None:
        for index, weight in enumerate(self._weights):
            weight.data, self._averages[index] = self._averages[index], weight.data


def _trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return each trained weight once, under its first name."""
    return [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
