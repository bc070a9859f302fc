"""The benchmark `s2s bench train`: the speed of training, next to other installed toolkits.

Our system uses the code of `s2s train`: corpus, sampler, stream of batches, gradient step, optimiser and moving
average. All systems get the same batches in the same order, so that text, ids, padding and budget are the same. Where
our steps are recorded (on a GPU), only our batches are padded to the shapes that this needs.
"""

import contextlib
import copy
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from seq2seq import runtime as runtimes
from seq2seq.bench.measure import (
    OURS,
    Entrant,
    Progress,
    compare,
    forward_flops,
    peak_memory,
    seconds_of,
    significant,
    sizes,
)
from seq2seq.bench.report import Report, machine
from seq2seq.bench.training_peers import PEERS, TrainingSystem, open_training_peer
from seq2seq.config.schema import Config, TrainingConfig
from seq2seq.data.collate import TranslationBatch
from seq2seq.data.stream import BatchStream
from seq2seq.errors import UserError
from seq2seq.runtime import Runtime
from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.run import build
from seq2seq.tasks.task import Task
from seq2seq.training.optim import ExponentialMovingAverage
from seq2seq.training.recorded import check_record, make_recorder, make_step
from seq2seq.training.weights import Weights

REMARK = (
    "seq2seq lets the allocator keep large blocks (glibc's mallopt, unless MALLOC_MMAP_THRESHOLD_ is set), which holds "
    "for the whole process: other toolkits, which do not set it, are faster here than alone"
)
REMARK_ON_SHAPES = (
    "seq2seq has batches of fixed shapes, whose steps are recorded, with more padding; other toolkits have the batches "
    "of ordinary steps, of the same pairs and budget"
)


@dataclass(frozen=True)
class TrainingRounds:
    """The number and length of the rounds."""

    rounds: int = 5
    steps: int | None = None
    """Updates per round; None means as many as our system makes in about `seconds`."""
    seconds: float = 10.0
    matmul_size: int | None = None


class OurTraining(TrainingSystem):
    """The training step of `s2s train`."""

    def __init__(self, task: Task, config: TrainingConfig, runtime: Runtime):
        super().__init__(copy.deepcopy(task.model), config, runtime)  # a copy, so that its memory is counted
        weights, is_compiled = Weights(self.module, runtime), task.compilation.is_on
        self._step = make_step(weights, task.compute_loss, config, is_compiled, make_recorder(task.recording))
        self._average = ExponentialMovingAverage(self.module, config.ema) if config.ema else None

    def _update(self, batches: Sequence[TranslationBatch], rate: float) -> None:
        self._step.compute_gradient(batches, sum(batch.num_targets for batch in batches))
        self._step.update(rate)
        if self._average:
            self._average.update(self._count)


class _TrainingBench:
    """The batches and the number of updates of a round, which are the same for all systems."""

    def __init__(self, task: Task, rounds: TrainingRounds, here: Runtime, stack: contextlib.ExitStack):
        self.updates = rounds.steps or 0
        self.padding: list[float] = []
        """The share of padding in each round of our system."""
        self._task, self._device, self._stack, self._seconds = task, here.device, stack, rounds.seconds

    def entrants(
        self, name: str, task: Task, open_system: Callable[[], Callable[[], TrainingSystem]]
    ) -> Iterator[Entrant]:
        """Yield a system that trains on the batches of `task`, after updates on those that need the most memory and two
        updates of its stream. `open_system` imports what it needs, and returns a function that makes it."""
        make = open_system()
        largest = [task.make_batch(indices, 0) for indices in task.sampler.largest_batches()]
        stream = BatchStream(task.sampler, task.make_batch, pin_memory=self._device.type == "cuda")
        self._stack.callback(stream.close)
        with peak_memory(self._device) as peak:
            system = make()
            for batch in [*largest, largest[0]]:  # the first update creates the optimiser's moments
                system.update([batch])
        seconds = [self._updates(system, stream, 1)[0] for _ in range(2)]
        self.updates = self.updates or max(1, round(self._seconds / seconds[1]))  # our system is the first
        parameters = sum(weight.numel() for weight in system.module.parameters() if weight.requires_grad)
        facts = {"parameters": parameters, "peak_memory_bytes": next(iter(peak), None)}
        yield Entrant(name, "", partial(self._take_round, system, stream, task is self._task), facts)

    def _updates(
        self, system: TrainingSystem, stream: BatchStream, number: int
    ) -> tuple[float, list[TranslationBatch]]:
        """Make `number` updates, and return their seconds and batches."""
        seen: list[TranslationBatch] = []

        def work() -> None:
            for _ in range(number):
                batches = [next(stream) for _ in range(self._task.config.training.accumulate)]
                system.update(batches)
                seen.extend(batches)

        return seconds_of(work, self._device), seen

    def _take_round(self, system: TrainingSystem, stream: BatchStream, is_padded_as_ours: bool) -> dict[str, float]:
        seconds, seen = self._updates(system, stream, self.updates)
        tokens, targets = sum(batch.num_tokens for batch in seen), sum(batch.num_targets for batch in seen)
        if is_padded_as_ours:
            cells = sum(batch.source_ids.numel() + batch.target_input.numel() for batch in seen)
            self.padding.append(1 - tokens / cells)
        flops = 3 * forward_flops(self._task.model, tokens - targets, targets)  # the backward pass is twice as much
        return {
            "tokens_per_second": tokens / seconds,
            "updates_per_second": self.updates / seconds,
            "flops_per_second": flops / seconds,
        }


def bench_training(
    config: Config,
    cache: Path,
    peers: Sequence[str] = PEERS,
    rounds: TrainingRounds | None = None,
    progress: Progress = lambda what: None,
) -> Report:
    """Train a little with every system, in alternating rounds.

    Args:
        config: configuration of a translation run.
        cache: folder of its tokenised corpora.
        peers: names from `PEERS`; the report names those that are not installed.
        rounds: number and length of the rounds.
        progress: function that is called with a description of the next step.

    Raises:
        UserError: the configuration is for another task or does not fit the device, or it or its data have a problem.
    """
    rounds = rounds or TrainingRounds()
    if config.task != "translation":
        raise UserError(f"task {config.task}: bench train measures translation; name a config of that task")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("bench train measures one process; start it without torchrun")
    training = config.training
    runtimes.keep_many_kernels()
    here = runtimes.start(training.device, training.precision, training.threads)
    with contextlib.closing(here), contextlib.ExitStack() as stack:
        check_record(training, here.device)
        runtimes.seed_everything(config.seed)
        progress("preparing")
        task = build(Inputs.open(config, cache), None, here)
        bench = _TrainingBench(task, rounds, here, stack)
        ordinary = _unrecorded(task, config, cache, here) if peers else task
        peers_too = training.model_copy(update={"compile": ordinary.compilation.is_on})
        shape = (task.config.model, task.tokenizers, peers_too, here)
        entering = [(OURS, task, lambda: partial(OurTraining, task, training, here))]
        entering += [(f"{peer} MarianMTModel", ordinary, partial(open_training_peer, *shape)) for peer in peers]
        openings = [(name, partial(bench.entrants, name, *one)) for name, *one in entering]
        systems, left_out, rounds_taken = compare(openings, rounds.rounds, here, rounds.matmul_size, progress)
        work = {
            "corpus": ", ".join(record.name for record in task.data if record.role == "train"),
            "pairs": len(task.corpus),
            "vocabulary": task.tokenizers.target.vocab_size,
            **sizes(task.config.model),
            "batch_tokens": training.batch_tokens,
            "batches_an_update": training.accumulate,
            "updates_a_round": bench.updates,
            "padding": significant(statistics.mean(bench.padding)),
            **rounds_taken,
        }
        remarks = (REMARK,) if ordinary is task else (REMARK, REMARK_ON_SHAPES)
        return Report("train", machine(here, systems), work, systems, left_out, remarks)


def _unrecorded(task: Task, config: Config, cache: Path, here: Runtime) -> Task:
    """Return the task as it is without recorded steps, whose batches other toolkits get."""
    if not task.recording.is_on:
        return task
    without = config.model_copy(update={"training": config.training.model_copy(update={"record": False})})
    return build(Inputs.open(without, cache), None, here)
