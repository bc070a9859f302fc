"""The checkpoints of a run folder, and the weights of its best model, as the trainer saves and reads them.

`Trainer` saves and restores through `Snapshots`; `store.checkpoint` makes a checkpoint folder complete or absent. A
checkpoint is copied at its step and written in a thread while training continues, one at a time. Reading checkpoints
and writing `best/` wait for the thread first, so folders appear in the same order as if training had waited.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq import atomic
from seq2seq.config.schema import TrainingConfig
from seq2seq.data.stream import BatchStream
from seq2seq.errors import CheckpointError, counted, reason
from seq2seq.files import DamagedFile
from seq2seq.runtime import random_state, restore_random_state
from seq2seq.store import checkpoint as checkpoints
from seq2seq.store.finding import BEST
from seq2seq.store.model_folder import WEIGHTS
from seq2seq.tensors import read_tensors
from seq2seq.training.monitor import Monitor
from seq2seq.training.optim import ExponentialMovingAverage, load_optimizer_tensors, optimizer_tensors
from seq2seq.training.state import RunState
from seq2seq.training.step import GradientStep
from seq2seq.training.weights import Weights


class Snapshots:
    """The checkpoints of the run in `folder`, and the weights of its best model."""

    def __init__(
        self,
        folder: Path,
        weights: Weights,
        step: GradientStep,
        average: ExponentialMovingAverage | None,
        stream: BatchStream,
        config: TrainingConfig,
        monitor: Monitor,
    ):
        self._run, self.folder = folder, folder / "checkpoints"
        self._weights, self._step, self._average, self._stream = weights, step, average, stream
        self._config, self._runtime, self._monitor = config, weights.runtime, monitor
        self._writing: Future | None = None

    def prepare(self) -> Path | None:
        """Create the folder, delete incomplete files that killed runs left, and return `latest()`.

        Raises:
            RunError: the folder cannot be written.
            CheckpointError: every checkpoint is damaged.
        """
        if self._runtime.is_main:
            checkpoints.prepare(self.folder)
            atomic.remove_leftovers(self._run)
        return self.latest()

    def latest(self) -> Path | None:
        """Return the folder of the newest undamaged checkpoint, the same on every rank; None if there is none."""
        self.finish()
        latest = checkpoints.latest_checkpoint(self.folder) if self._runtime.is_main else None
        return self._runtime.gather(latest)[0]

    def restore(self, folder: Path) -> tuple[RunState, dict[str, int]]:
        """Load a checkpoint, and return the state of the run and the sizes of its files at that step, in bytes.

        Raises:
            CheckpointError: the checkpoint cannot be read, or belongs to another model.
        """
        saved = checkpoints.load_checkpoint(folder, verified=True)
        try:
            self._weights.load(saved.tensors["model"])
            moments = self._weights.shard_moments(saved.tensors["optimizer"])
            load_optimizer_tensors(self._weights.module, self._step.optimizer, moments)
            if self._average:
                self._average.load(saved.tensors.get("ema", saved.tensors["model"]))
            run = dict(saved.state["run"])
            self._step.split_above = run.pop("split_above")
            state = RunState.from_json(run)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{folder}: not a checkpoint of this model ({reason(error)}); choose another --run-dir, or start over "
                "with --overwrite"
            ) from error
        if saved.state["world_size"] != self._runtime.world_size:
            self._monitor.say(
                f"the checkpoint was written by {counted(saved.state['world_size'], 'rank')}, this run has "
                f"{self._runtime.world_size}: no data is lost, but a step has another size",
                logging.WARNING,
            )
        self._stream.load_state_dict(saved.state["stream"])
        if saved.state["scaler"]:
            self._step.scaler.load_state_dict(saved.state["scaler"])
        prefix = f"{self._runtime.rank}."
        states = {name.removeprefix(prefix): value for name, value in saved.tensors["random"].items()}
        if "cpu" in states:  # a new rank keeps the state of its seed
            restore_random_state(states)
        return state, saved.state["files"]

    def save(self, state: RunState, seconds: float) -> None:
        """Begin to write a checkpoint of this step, after which checkpoints that are no longer needed are deleted.

        Every rank must call it; `seconds` is the time of the run on the main rank's clock. Errors as in `finish`.
        """
        self.finish()
        random_states = self._runtime.gather(random_state())
        model = self._weights.gather(self._weights.tensors())
        moments = self._weights.gather(optimizer_tensors(self._weights.module, self._step.optimizer))
        if not self._runtime.is_main:
            return
        tensors = {
            "model": model,
            "optimizer": moments,
            "random": {
                f"{rank}.{kind}": value for rank, states in enumerate(random_states) for kind, value in states.items()
            },
        }
        if self._average:
            tensors["ema"] = self._average.tensors()
        values: dict[str, Any] = {
            "run": {**state.to_json(), "seconds": seconds, "split_above": self._step.split_above},
            "stream": self._stream.state_dict(),
            "scaler": self._step.scaler.state_dict(),
            "files": self._monitor.lengths(),
            "world_size": self._runtime.world_size,
        }
        thread = ThreadPoolExecutor(1, "checkpoint")
        best = state.best_steps(self._config.keep_best)
        self._writing = thread.submit(self._write, state.step, self._copied(tensors), values, best)
        thread.shutdown(wait=False)  # it ends with the checkpoint

    def finish(self, at_once: bool = False) -> None:
        """Wait until the latest checkpoint is on the disk; with `at_once`, only raise the error of one that failed.

        Raises:
            RunError: the checkpoint could not be written.
        """
        if self._writing is not None and (self._writing.done() or not at_once):
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        """Wait for a checkpoint that is being written when another error ends the run; raises nothing."""
        wait([self._writing] if self._writing else [])

    def _copied(self, groups: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
        """Return copies in main memory that later steps do not change (page-locked, if they come from a GPU)."""
        is_cuda = self._runtime.device.type == "cuda"
        copies = {
            group: {name: tensor.to("cpu", non_blocking=is_cuda, copy=True) for name, tensor in named.items()}
            for group, named in groups.items()
        }
        if is_cuda:
            torch.cuda.synchronize(self._runtime.device)
        return copies

    def _write(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], values: Any, best: list[int]) -> None:
        checkpoints.save_checkpoint(self.folder, step, tensors, values)
        self._prune(step, best)

    def prune(self, state: RunState) -> None:
        """Delete checkpoints that are no longer needed, if the run was killed between its last `save` and that."""
        if self._runtime.is_main:
            self._prune(state.step, state.best_steps(self._config.keep_best))

    def _prune(self, step: int, best: list[int]) -> None:
        saved = [other for other in checkpoints.saved_steps(self.folder) if other <= step]
        checkpoints.prune(self.folder, {*saved[-self._config.keep_last :], *best})

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint on the disk, in order."""
        return checkpoints.saved_steps(self.folder)

    def best(self) -> dict[str, Tensor]:
        """Return the weights in `best/`; empty if they cannot be read."""
        try:
            return read_tensors(self._run / BEST / WEIGHTS)
        except DamagedFile:
            return {}
