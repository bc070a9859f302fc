"""The weights whose mean is tried at the end of a run: those of its last or its best checkpoints."""

import logging
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from seq2seq import checkpoint as checkpoints
from seq2seq.config import TrainingConfig
from seq2seq.errors import CheckpointError
from seq2seq.training.state import RunState

log = logging.getLogger(__name__)


def states_to_average(
    folder: Path, state: RunState, config: TrainingConfig, own: Mapping[str, Tensor]
) -> list[Mapping[str, Tensor]]:
    """The state dicts that `training.average` asks for, on the device of `own`, which is that of the last step."""
    now = state.step
    saved = [step for step in checkpoints.saved_steps(folder) if step < now]
    if config.average == "last":
        chosen = [*saved[-(config.average_count - 1) :], now]
    else:
        chosen = [step for step in state.best_steps(config.average_count) if step in {*saved, now}]
    states = [own if step == now else _saved_weights(folder, step, own) for step in sorted(chosen)]
    return [state for state in states if state]


def _saved_weights(folder: Path, step: int, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    try:
        tensors = checkpoints.load_checkpoint(checkpoints.step_folder(folder, step)).tensors
    except CheckpointError as error:
        log.warning("not averaged: %s", error)
        return {}
    device = next(iter(own.values())).device
    return {name: tensor.to(device) for name, tensor in {**tensors["model"], **tensors.get("ema", {})}.items()}
