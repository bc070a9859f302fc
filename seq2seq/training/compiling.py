"""The choice whether layers are compiled, and their compilation.

Compilation takes half a minute on a GPU, so that short runs are slower with it, and it makes large batches faster. A
compiled layer serves all shapes of batches and all rates of dropout.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.config.schema import TrainingConfig
from seq2seq.errors import UserError
from seq2seq.training.progress import duration

# Target tokens below which a GPU waits for the CPU: on an H200, the base model uses it 42 % of the time with 4,096 and
# nearly all the time with 25,000.
SMALL_GPU_BATCH = 16_384
# Operations a second that a training step of the base model makes on an H200 with batches of 25,000 target tokens.
GPU_OPERATIONS = 1.6e14
WORTH_SECONDS = 20 * 60.0


@dataclass(frozen=True)
class Choice:
    """A decision, and the reason for it."""

    is_on: bool
    reason: str


def check_compile(config: TrainingConfig, device: torch.device) -> None:
    """Refuse `training.compile: true` on a CPU.

    Raises:
        UserError: a step took 1.5 times as long there (tiny model, float32), because graphs do not use the code that is
            written for CPUs.
    """
    if config.compile is True and device.type == "cpu":
        raise UserError("training.compile: true makes training slower on a CPU; leave it out")


def estimated_seconds(config: TrainingConfig, num_parameters: int, num_steps: float) -> float:
    """Return about how many seconds a large GPU trains, from 6 operations a weight and token (Kaplan et al. 2020,
    section 2.1); a source token passes the encoder alone, and a target token the decoder."""
    a_step = 6 * num_parameters * config.batch_tokens * config.accumulate / GPU_OPERATIONS
    return min(num_steps * a_step, (config.max_minutes or float("inf")) * 60)


def choose_compilation(config: TrainingConfig, device: torch.device, num_parameters: int, num_steps: float) -> Choice:
    """Return whether layers are compiled in a run of about `num_steps` steps."""
    if config.compile != "auto":
        return Choice(config.compile, f"training.compile is {str(config.compile).lower()}")
    if device.type != "cuda":
        return Choice(False, f"it helps only on a GPU, and this is {device.type}")
    if config.batch_tokens < SMALL_GPU_BATCH:
        small = f"training.batch_tokens is below {SMALL_GPU_BATCH:,}"
        return Choice(False, f"{small}, so that the GPU waits for the CPU, which compiled layers do not change")
    seconds = estimated_seconds(config, num_parameters, num_steps)
    length = f"a large GPU trains for about {duration(seconds)} by the number of operations"
    if seconds < WORTH_SECONDS:
        return Choice(False, f"{length}, and compilation pays from {duration(WORTH_SECONDS)} on")
    return Choice(True, length)


def compile_layers(module: nn.Module, must: bool) -> None:
    """Let torch compile each layer at its first call.

    Layers of one kind share graphs for all shapes of batches and all rates of dropout. A size of 1 would need graphs of
    its own, so such calls run uncompiled.

    Unless they `must` be compiled, layers that cannot be (without a C compiler) run uncompiled, and torch warns.
    """
    import torch._dynamo.config as compiler
    import torch.fx.experimental._config as shapes

    shapes.use_duck_shape = False  # sizes that are equal in the first batch may differ in the next
    compiler.recompile_limit = 32  # after the default of 8, layers run uncompiled
    compiler.suppress_errors = not must
    for blocks in module.modules():
        if isinstance(blocks, nn.ModuleList):
            for layer in blocks:
                compiled = torch.compile(layer._call_impl, dynamic=True)
                layer._compiled_call_impl = partial(_call, compiled, layer._call_impl)  # as `Module.compile` sets it


def _call(compiled: Callable[..., Tensor], plain: Callable[..., Tensor], states: Tensor, *others: Any) -> Tensor:
    tensors = [states, *(other for other in others[:1] if other is not None and other.ndim == states.ndim)]
    has_size_of_one = any(1 in tensor.shape for tensor in tensors)  # (B, T, D) of the states, (B, S, D) of a memory
    return (plain if has_size_of_one else compiled)(states, *others)
