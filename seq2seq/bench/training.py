"""`s2s bench train`: how fast training is, beside other toolkits that are installed.

Ours is what `s2s train` runs: its corpus, sampler and stream of batches, its gradient step, optimiser and moving
average. Every system gets the same batches in the same order, so that text, ids, padding and budget are the same.
"""

import contextlib
import copy
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from seq2seq import runtime as runtimes
from seq2seq.bench.flops import training_flops
from seq2seq.bench.measure import MATMUL_SIZES, Spread, matmul_rate, peak_memory, seconds_of, significant, speed_ratio
from seq2seq.bench.report import Column, LeftOut, Report, machine, rounds_of
from seq2seq.bench.training_peers import PEERS, open_training_peer
from seq2seq.config import Config, ModelConfig, TrainingConfig
from seq2seq.data.collate import TranslationBatch
from seq2seq.data.stream import BatchStream
from seq2seq.errors import UserError
from seq2seq.runtime import Runtime
from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.run import build
from seq2seq.tasks.task import Task
from seq2seq.training.optim import ExponentialMovingAverage, learning_rate
from seq2seq.training.step import GradientStep

OURS = "seq2seq"
NAMES = {"transformers": "transformers MarianMTModel", "torch": "torch.nn.Transformer"}
PACKAGES = {"transformers": "transformers"}
# Updates of every system before its rounds, after those on the largest batches: the last say how long one takes.
WARM_UP, CALIBRATION = 1, 1

COLUMNS = (
    Column("system", "name"),
    Column("tokens/s", "tokens_per_second", "{:,.0f}"),
    Column("updates/s", "updates_per_second", "{:.3g}"),
    Column("matmul rate", "matmul_share", "{:.0%}"),
    Column("peak MiB", "peak_memory_bytes", "{:,.0f}", 2**20),
    Column("parameters", "parameters", "{:,}"),
    Column("speed ratio", "speed_ratio", "{:.2f}"),
)
NOTES = [
    "tokens/s: source and target tokens without padding, ends included; median of the rounds (lowest-highest)",
    "speed ratio: tokens/s of seq2seq over those of the system, of rounds that stood side by side",
    "matmul rate: the share of the measured rate of one large matrix product that tokens/s times FLOPs a token makes",
    "peak MiB: growth of the one process while a system was built and trained on the largest batches; on a CPU "
    "these are its pages in memory",
    "the allocator keeps large blocks (glibc's mallopt, unless MALLOC_MMAP_THRESHOLD_ is set): for the whole process, "
    "so the other toolkits, which do not ask for it, are faster here than on their own",
]


@dataclass(frozen=True)
class Rounds:
    """How long is measured."""

    rounds: int = 5
    steps: int | None = None
    """Updates a round; None is as many as ours makes in about `seconds`."""
    seconds: float = 10.0
    matmul_size: int | None = None


class TrainingSystem(Protocol):
    """What is measured."""

    module: nn.Module

    def update(self, batches: Sequence[TranslationBatch], rate: float) -> None:
        """One optimiser step over batches on the processor, at this learning rate."""


class OurTraining:
    """The step of `s2s train`."""

    def __init__(self, work: Task, config: TrainingConfig, runtime: Runtime):
        # a copy, so that its weights count as its memory
        self.module = copy.deepcopy(work.model).to(runtime.device).train()
        if config.compile:
            self.module.compile(dynamic=True)
        self._step = GradientStep(self.module, work.compute_loss, config, runtime)
        self._average = ExponentialMovingAverage(self.module, config.ema) if config.ema else None
        self._count = 0

    def update(self, batches: Sequence[TranslationBatch], rate: float) -> None:
        """As `TrainingSystem.update`."""
        self._count += 1
        self._step.compute_gradient(batches, sum(batch.num_targets for batch in batches))
        self._step.update(rate)
        if self._average:
            self._average.update(self._count)


@dataclass
class Entrant:
    """A system with a stream of batches of its own, and what its rounds gave."""

    name: str
    system: TrainingSystem
    stream: BatchStream
    config: TrainingConfig
    peak: int | None = None
    seconds: list[float] = field(default_factory=list)
    shapes: list["Shapes"] = field(default_factory=list)
    count: int = 0

    def run(self, steps: int) -> "Shapes":
        """So many updates; what their batches held."""
        masks = []
        for _ in range(steps):
            batches = [next(self.stream) for _ in range(self.config.accumulate)]
            self.update(batches)
            masks += [(batch.source_mask, batch.target_mask) for batch in batches]
        return Shapes(masks)

    def update(self, batches: Sequence[TranslationBatch]) -> None:
        """One update at the learning rate of the schedule."""
        self.count += 1
        self.system.update(batches, learning_rate(self.count, 0.0, self.config))

    def take_round(self, steps: int, device: torch.device) -> None:
        """So many updates, timed."""
        shapes: list[Shapes] = []
        self.seconds.append(seconds_of(lambda: shapes.append(self.run(steps)), device))
        self.shapes += shapes

    @property
    def tokens(self) -> list[int]:
        """Source and target tokens without padding, by round."""
        return [shapes.tokens for shapes in self.shapes]

    @property
    def rate(self) -> Spread:
        """Tokens a second."""
        return Spread(tuple(tokens / seconds for tokens, seconds in zip(self.tokens, self.seconds, strict=True)))

    @property
    def padding(self) -> float:
        """Its share of the slots of all rounds."""
        return 1 - sum(self.tokens) / sum(shapes.slots for shapes in self.shapes)


class Shapes:
    """How long the sentences of some batches are."""

    def __init__(self, masks: Sequence[tuple[Tensor, Tensor]]):
        self.slots = sum(source.numel() + target.numel() for source, target in masks)
        """Padding counted."""
        lengths = zip(*((source.sum(1), target.sum(1)) for source, target in masks), strict=True)
        self._source, self._target = (torch.cat(side).numpy() for side in lengths)
        self.tokens = int(self._source.sum() + self._target.sum())

    def flops(self, config: ModelConfig, vocab_size: int) -> int:
        """FLOPs of training on them."""
        return training_flops(config, vocab_size, self._source, self._target)


def bench_training(
    config: Config,
    cache: Path,
    peers: Sequence[str] = PEERS,
    rounds: Rounds | None = None,
    progress: Callable[[str], object] = lambda what: None,
) -> Report:
    """Train a little with every system, by turns.

    Args:
        config: of a translation run.
        cache: where its tokenised corpora are kept.
        peers: of `PEERS`; those that are not installed are named in the report.
        rounds: how long.
        progress: told what is about to happen.

    Raises:
        UserError: the configuration is of another task, or something is wrong with it or its data.
    """
    rounds = rounds or Rounds()
    if config.task != "translation":
        raise UserError(f"task {config.task}: bench train measures translation; name a config of that task")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("bench train measures one process; start it without torchrun")
    training = config.training
    here = runtimes.start(training.device, training.precision, training.threads)
    with contextlib.closing(here), contextlib.ExitStack() as stack:
        runtimes.seed_everything(config.seed)
        progress("preparing")
        work = build(Inputs.open(config, cache), None, here)
        config = work.config
        entrants, left_out = _enter(config, work, peers, here, stack, progress)
        steps = _warm_up(entrants, rounds, here, progress)
        rates = []
        for number in range(rounds.rounds):
            rates.append(matmul_rate(here, rounds.matmul_size))
            for entrant in entrants:
                progress(f"round {number + 1} of {rounds.rounds}: {entrant.name}")
                entrant.take_round(steps, here.device)
        return _report(config, work, entrants, left_out, Spread(tuple(rates)), steps, rounds, here)


def _enter(
    config: Config,
    work: Task,
    peers: Iterable[str],
    here: Runtime,
    stack: contextlib.ExitStack,
    progress: Callable[[str], object],
) -> tuple[list[Entrant], list[LeftOut]]:
    """Build every system, and train it on the batches that take the most memory."""
    sampler = work.sampler
    largest = [work.make_batch(indices, 0) for indices in sampler.largest_batches()]
    makers: dict[str, Callable[[], TrainingSystem]] = {OURS: lambda: OurTraining(work, config.training, here)}
    for peer in peers:
        makers[NAMES[peer]] = lambda peer=peer: open_training_peer(
            peer, config.model, work.tokenizers, config.training, here
        )
    entrants, left_out = [], []
    for name, make in makers.items():
        progress(f"building {name}")
        stream = BatchStream(sampler, work.make_batch, pin_memory=here.device.type == "cuda")
        stack.callback(stream.close)
        try:
            with peak_memory(here.device) as peak:
                entrant = Entrant(name, make(), stream, config.training)
                for batch in [*largest, largest[0]]:  # the first update makes the optimiser's moments at its end
                    entrant.update([batch])
        except UserError as error:
            left_out.append(LeftOut(name, str(error)))
            continue
        entrant.peak = peak.bytes
        entrants.append(entrant)
    return entrants, left_out


def _warm_up(entrants: Sequence[Entrant], rounds: Rounds, here: Runtime, progress: Callable[[str], object]) -> int:
    """The updates of a round, the same for all, after as many first updates of each."""
    seconds = {}
    for entrant in entrants:
        progress(f"warming up {entrant.name}")
        entrant.run(WARM_UP)
        seconds[entrant.name] = seconds_of(lambda entrant=entrant: entrant.run(CALIBRATION), here.device)
    return rounds.steps or max(1, round(rounds.seconds * CALIBRATION / seconds[OURS]))


def _report(
    config: Config,
    work: Task,
    entrants: Sequence[Entrant],
    left_out: list[LeftOut],
    matmul: Spread,
    steps: int,
    rounds: Rounds,
    here: Runtime,
) -> Report:
    ours = entrants[0]
    assert all(entrant.tokens == ours.tokens for entrant in entrants), "every system gets the same batches"
    model, vocab_size = config.model, work.tokenizers.target.vocab_size
    flops = [shapes.flops(model, vocab_size) for shapes in ours.shapes]
    packages = [package for peer, package in PACKAGES.items() if any(e.name == NAMES[peer] for e in entrants)]
    described: dict[str, Any] = {
        "corpus": ", ".join(record.name for record in work.data if record.role == "train"),
        "pairs": len(work.corpus),
        "vocabulary": vocab_size,
        "encoder_layers": model.num_encoder_layers,
        "decoder_layers": model.num_decoder_layers,
        "d_model": model.d_model,
        "num_heads": model.num_heads,
        "d_ff": model.d_ff,
        "batch_tokens": config.training.batch_tokens,
        "batches_an_update": config.training.accumulate,
        "updates_a_round": steps,
        "rounds": rounds.rounds,
        "padding": significant(ours.padding),
        "flops_a_token": significant(sum(flops) / sum(ours.tokens)),
        "matmul_size": rounds.matmul_size or MATMUL_SIZES[here.device.type],
        "matmul_flops_a_second": matmul.as_dict(),
    }
    systems = [_figures(entrant, ours, flops, matmul, steps) for entrant in entrants]
    return Report("train", machine(here, packages), described, systems, left_out, NOTES, COLUMNS)


def _figures(entrant: Entrant, ours: Entrant, flops: list[int], matmul: Spread, steps: int) -> dict[str, Any]:
    shares = [done / seconds / rate for done, seconds, rate in zip(flops, entrant.seconds, matmul.rounds, strict=True)]
    return {
        "name": entrant.name,
        "parameters": sum(weight.numel() for weight in entrant.system.module.parameters() if weight.requires_grad),
        "tokens": sum(entrant.tokens),
        "padding": significant(entrant.padding),
        "tokens_per_second": entrant.rate.as_dict(),
        "updates_per_second": Spread(tuple(steps / seconds for seconds in entrant.seconds)).as_dict(),
        "matmul_share": Spread(tuple(shares)).as_dict(),
        "peak_memory_bytes": entrant.peak,
        "speed_ratio": rounds_of(None if entrant is ours else speed_ratio(ours.rate, entrant.rate)),
    }
