"""The task of a run: its corpora, model, loss, validation and test scores.

`tasks.run` builds a `TranslationTask` or a `ClassificationTask` and trains it.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from functools import cached_property
from itertools import chain
from logging import getLogger
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from seq2seq import atomic
from seq2seq.config.corpora import FilterConfig, held_out_names
from seq2seq.data.corpus import TokenCorpus, prepare_corpus
from seq2seq.data.directions import RowTags, vocabulary_repeats
from seq2seq.data.examples import Source
from seq2seq.data.sampler import TokenBudgetSampler
from seq2seq.data.segmentations import prepare_segmentations
from seq2seq.data.stages import Part, Stages
from seq2seq.data.stream import CorpusBatches, validation_batches
from seq2seq.data.tokenizer_text import TokenizerText
from seq2seq.errors import ModelError
from seq2seq.evaluation.uncertainty import Measured, of_ratio
from seq2seq.inspection.overlap import find_overlap, overlap_warning
from seq2seq.languages import direction_name
from seq2seq.memory import in_parts
from seq2seq.runtime import Runtime
from seq2seq.store.model_card import DataRecord, ScoreRecord
from seq2seq.store.model_folder import LoadedModel
from seq2seq.tasks.held_out import check_held_out
from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.lengths import max_pieces
from seq2seq.tasks.run_folder import read_note, write_note
from seq2seq.tasks.stages import shares_of, stage_title, stages_of, warn_of_empty
from seq2seq.tensors import Uninitialized
from seq2seq.text.stored import load_tokenizers
from seq2seq.text.tagged_tokenizer import Languages, tagged_pair
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair
from seq2seq.training.compiling import Choice, choose_compilation
from seq2seq.training.frozen import freeze
from seq2seq.training.loss import LossSum
from seq2seq.training.progress import foreseen_steps, waiting_for
from seq2seq.training.recorded import choose_recording
from seq2seq.training.state import Sample, Validation

logger = getLogger(__name__)


class Task(ABC):
    """The corpora and the model of one run; subclasses for translation and classification define the methods."""

    examples: ClassVar[str]
    """The name of the training examples in the model card."""
    measure = ""
    """A description of how scores are measured; values with different descriptions cannot be compared."""
    labels: tuple[str, ...] = ()

    def __init__(self, inputs: Inputs, tokenizers: TokenizerPair, runtime: Runtime, fixed_shapes: bool | None = None):
        """Prepare the corpora, and on the CPU the model with its initial weights.

        `fixed_shapes` says whether a run that continues has batches with the shapes of a table; None for a new run.

        Raises:
            DataError: a corpus cannot be read, or has no examples left.
            ConfigError: the labels do not fit the configuration, or `training.freeze` does not fit the model.
        """
        self.inputs, self.config, self.tokenizers, self._runtime = inputs, inputs.config, tokenizers, runtime
        self._fixed_shapes = fixed_shapes
        with Uninitialized("meta"):  # a wrong name ends the run before the corpora are prepared
            freeze(self._new_model(), self.config.training.freeze)
        self.corpus = self._prepare(inputs.train, self.config.data.filters)
        if runtime.is_main:
            warn_of_empty(inputs.train, self.corpus)
        self.labels = self.corpus.labels
        self._valid = list(chain.from_iterable(inputs.valid.values()))
        check_held_out(inputs, self.labels)
        self._check_corpora()
        self._valid_corpus = self._prepare(list(inputs.valid.values()), None)
        sampling, seed = self.config.tokenizer, self.config.seed
        stored = prepare_segmentations(self.corpus, tokenizers, sampling, seed, self.config.data.num_workers)
        most, tags = max_pieces(self.config, tokenizers), self._tags_of_training()
        self.make_batch = CorpusBatches(self.corpus, tokenizers, sampling, seed, most, stored, tags, self.sampler.table)
        tags = self._tags_of_validation()
        self._valid_batches = CorpusBatches(self._valid_corpus, tokenizers, max_pieces=most, tags=tags)
        self.model = self._new_model()
        # Whether the initial weights are those of a model that already does the task.
        self.can_start = inputs.initial is not None and self._load_weights(inputs.initial)
        freeze(self.model, self.config.training.freeze)
        counts = f"Training {self.examples}: {self.corpus.counts}."
        with runtime.main_first(inputs.cache):
            self.notes = (counts, *(overlap_notes(inputs) if runtime.is_main else ()))

    def _prepare(self, sources: Sequence[Source], filters: FilterConfig | None) -> TokenCorpus:
        labels = self.labels if self.config.task == "classification" else None
        workers = self.config.data.num_workers
        return prepare_corpus(sources, self.tokenizers, filters, self.inputs.cache, workers, labels)

    @abstractmethod
    def _check_corpora(self) -> None:
        """Refuse corpora that cannot be learned from, and warn of doubtful ones."""

    @abstractmethod
    def _new_model(self) -> nn.Module:
        """Return a model with random weights."""

    @abstractmethod
    def _load_weights(self, initial: LoadedModel) -> bool:
        """Load the weights that fit, and return whether they are the whole model."""

    @abstractmethod
    def _loss(self, model: nn.Module, batch: Any, smoothing: float, r_drop: float = 0.0) -> LossSum:
        """Return the loss of a batch."""

    @abstractmethod
    def _answers(self, model: nn.Module, examples: Sequence[Any]) -> list[str]:
        """Return the translations or labels that users get for the examples, in `answer_precision`."""

    @abstractmethod
    def _scores(self, answers: Sequence[str], examples: Sequence[Any]) -> dict[str, Measured]:
        """Return the scores of answers, by metric."""

    @abstractmethod
    def score_records(self, dataset: str, scores: Mapping[str, float]) -> list[ScoreRecord]:
        """Return the scores of a set with their signatures; `scores` may contain other figures too."""

    def _tags_of_training(self) -> RowTags | None:
        """Return the tags of the training corpus, if its examples have different directions."""
        return None

    def _tags_of_validation(self) -> RowTags | None:
        """Return the tags of the validation sets, if their examples have different directions."""
        return None

    def _ratio(self, name: str, numerators: np.ndarray, denominators: np.ndarray) -> dict[str, Measured]:
        """Return a ratio of sums over the validation examples, by the name of the metric."""
        return {name: of_ratio(numerators, denominators)}

    def direction_figures(self) -> list[str]:
        """Return a line for each direction of a model of many."""
        return []

    def _weighed(self, parts: list[Part]) -> list[Part]:
        """Return the parts of a stage with their final weights."""
        return parts

    @cached_property
    def stages(self) -> Stages:
        """The stages of training."""
        return stages_of(self.config.data, self._names_of_parts, self.corpus.parts, self._weighed, self._tokens)

    @property
    def _names_of_parts(self) -> list[str | None]:
        return [self.config.data.train[index].name for index in self.inputs.origins]

    def batch_figures(self) -> list[str]:
        """Return a line on the batches of an epoch; with stages, one for each, and its sources with their shares."""
        return list(
            chain.from_iterable([self._batches(index), *self._shares(index)] for index in range(len(self.stages.each)))
        )

    def _batches(self, index: int) -> str:
        sampler, epoch, title = self.sampler, int(self.stages.start(index)), stage_title(self.stages, index)
        sections = sampler.num_sections(epoch)
        count = f"{'about ' if sections > 1 else ''}{sections * len(sampler.plan(epoch)):,}"
        per_epoch = f"{title}: {count} batches per epoch" if title else f"batches: {count} per epoch"
        per_rank = " and rank" if self._runtime.world_size > 1 else ""
        side = "target" if self.config.task == "translation" else "source"
        padding = f"{100 * sampler.padding(epoch):.1f} % padding"
        planned = " before random segmentations" if self.config.tokenizer.sampling else ""
        most = f"{self.config.training.batch_tokens:,} {side} tokens"
        return f"{per_epoch}{per_rank}, each up to {most}, {padding}{planned}"

    def _shares(self, index: int) -> list[str]:
        """Return a line for each source with its share in an epoch of a stage; empty if there is only one stage."""
        if not self.stages.last:
            return []
        parts, names = self.stages.each[index].parts, self._names_of_parts
        shares = shares_of(parts, self.corpus.parts, names, self.examples)
        return [f"  {name}: {share}" for name, share in shares.items()]

    def stage_notes(self, trained: Mapping[int, tuple[float, float]]) -> list[str]:
        """Return a sentence for the model card about each of the stages `trained`, as `epochs_of` returns them."""
        return [
            f"Training, {stage_title(self.stages, index, epochs)}: {'; '.join(map(str.strip, lines))}."
            for index, epochs in trained.items()
            if (lines := self._shares(index))
        ]

    @property
    def answer_precision(self) -> torch.dtype:
        """The number format of inference for scores: float32 on a CPU, and that of training on a GPU."""
        return self._runtime.precision if self._runtime.device.type == "cuda" else torch.float32

    def compute_loss(self, model: nn.Module, batch: Any) -> LossSum:
        """Return the loss of a training batch."""
        training = self.config.training
        return self._loss(model, batch, training.label_smoothing, training.r_drop)

    @torch.no_grad()
    def validate(self, model: nn.Module) -> Validation:
        """Measure `model`, in evaluation mode, on the validation set; the figures are the same on every rank."""
        here, examples = self._runtime, self._valid
        sums = np.zeros((len(examples), 3))  # of each example: loss, correct targets, targets
        make = self._valid_batches

        def measure(batch: Any) -> tuple[np.ndarray, np.ndarray]:
            with here.autocast():
                loss = self._loss(model, batch.to(here.device), smoothing=0.0)
            return batch.indices.cpu().numpy(), loss.each.double().cpu().numpy()

        budget = self.config.training.batch_tokens
        for batch in validation_batches(self._valid_corpus, budget, make, here.rank, here.world_size):
            for indices, sums_of_part in in_parts(measure, batch):
                sums[indices] = sums_of_part
        losses, corrects, counts = np.array(here.all_reduce(sums.flatten().tolist())).reshape(-1, 3).T
        answers = [""] * len(examples)
        for index, part in enumerate(here.gather(self._answers(model, examples[here.rank :: here.world_size]))):
            answers[index :: here.world_size] = part
        scores = {**self._ratio("valid_loss", losses, counts), **self._scores(answers, examples)}
        if "accuracy" not in scores:  # accuracy of tokens; a classifier has one target per text, and `accuracy`
            scores["valid_accuracy"] = of_ratio(corrects, counts)
        shown = zip(examples[: self.config.training.num_samples], answers, strict=False)
        return Validation(
            {name: score.value for name, score in scores.items()},
            [Sample(*astuple(example)[:2], answer) for example, answer in shown],
            {name: score.contributions for name, score in scores.items()},
        )

    def score_test_sets(self, model: nn.Module) -> list[ScoreRecord]:
        """Return the scores of a model on `data.test`; it has the tokenizers and labels of the run.

        Raises:
            DataError: a test set cannot be read, or has other labels.
        """
        model, records = model.to(self._runtime.device), []
        for name, source in self.inputs.tests.items():
            examples = list(source)
            scores = self._scores(self._answers(model, examples), examples)
            records += self.score_records(name, {metric: score.value for metric, score in scores.items()})
        return records

    @cached_property
    def sampler(self) -> TokenBudgetSampler:
        """The batches of training for this rank; cached, so that the first epoch is planned only once."""
        corpus, training, here = self.corpus, self.config.training, self._runtime
        before, after = self.config.languages.num_tags if self.config.languages else (0, 0)
        sampler = TokenBudgetSampler(
            corpus.source_lengths.with_tags(before),
            corpus.target_lengths and corpus.target_lengths.with_tags(after),
            training.batch_tokens,
            batch_sentences=training.batch_sentences,
            seed=self.config.seed,
            stages=self.stages,
            rank=here.rank,
            world_size=here.world_size,
        )
        return sampler.with_table(sampler.shape_table()) if self.has_fixed_shapes else sampler

    @property
    def num_parameters(self) -> int:
        """The number of weights of the model."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def epochs_per_step(self) -> float:
        """The share of an epoch of the first stage that an optimiser step reads."""
        return self.config.training.accumulate / (self.sampler.num_sections(0) * len(self.sampler.plan(0)))

    @property
    def tokens_per_epoch(self) -> int:
        """Tokens of both sides that all ranks read in the first epoch, before random segmentations and special ids."""
        return self._tokens(self.stages.each[0].parts)

    def _tokens(self, parts: Sequence[Part]) -> int:
        sides = [lengths for lengths in (self.corpus.source_lengths, self.corpus.target_lengths) if lengths is not None]
        return sum(int(side[start:stop].sum() * weight) for side in sides for start, stop, weight in parts)

    @cached_property
    def recording(self) -> Choice:
        """Whether steps are recorded, with the reason."""
        is_compiled = self.config.training.compile is True
        return choose_recording(self.config, self._runtime, is_compiled, self._fixed_shapes)

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether batches have the shapes of a table, which recorded steps need."""
        return self.recording.is_on if self._fixed_shapes is None else self._fixed_shapes

    @cached_property
    def compilation(self) -> Choice:
        """Whether layers are compiled, with the reason."""
        training = self.config.training
        steps = foreseen_steps(training, 0.0, self.epochs_per_step, self.stages)
        if self.recording.is_on:
            return Choice(False, "steps are recorded")
        return choose_compilation(training, self._runtime.device, self.num_parameters, steps)

    @property
    def data(self) -> list[DataRecord]:
        """The corpora, for the model card."""
        inputs, sizes = self.inputs, [stop - start for start, stop, _ in self.corpus.parts]
        corpora = [
            ("train", self.config.data.train[index], source, size)
            for index, source, size in zip(inputs.origins, inputs.train, sizes, strict=True)
        ]
        sizes = [stop - start for start, stop, _ in self._valid_corpus.parts]
        held_out = self.config.data.valid_sets.values(), inputs.valid.values(), sizes
        corpora += [("valid", *corpus) for corpus in zip(*held_out, strict=True)]
        records = []
        for role, named, source, examples in corpora:
            path = named.source or named.tsv or named.jsonl or named.tmx  # its name alone enters the card
            name = path.name if path else " ".join(filter(None, (named.dataset, named.subset, named.split)))
            role = f"{role} {direction_name(source.direction)}" if source.direction else role
            records.append(DataRecord(role, name, examples, source.fingerprint[:16]))
        return records


def prepare_tokenizers(inputs: Inputs, folder: Path | None, runtime: Runtime) -> TokenizerPair:
    """Return the tokenizers of a run: those in `folder`, or else the initial model's or new ones, saved to `folder`.

    Without a folder nothing is saved.

    Raises:
        ModelError: the initial model has other tokenizers than those in the folder.
    """
    if folder is None:
        return _new_tokenizers(inputs, runtime)
    with runtime.main_first(inputs.cache):
        if runtime.is_main and not folder.is_dir():
            with atomic.new_folder(folder) as temporary:
                _new_tokenizers(inputs, runtime).save(temporary)
    runtime.barrier()
    tokenizers, initial = load_tokenizers(folder), inputs.initial
    if initial is not None and initial.tokenizers.undirected.fingerprint != tokenizers.fingerprint:
        raise ModelError(
            f"training.init_from: {initial.folder} has another vocabulary than {folder}, with which this run began; "
            "put that model back, or start over with --overwrite"
        )
    return tokenizers if initial is None else initial.tokenizers


def _new_tokenizers(inputs: Inputs, runtime: Runtime) -> TokenizerPair:
    config, settings = inputs.config, inputs.config.tokenizer
    if inputs.initial is not None:
        return inputs.initial.tokenizers
    if inputs.given_tokenizers is not None:
        return inputs.given_tokenizers
    logger.info("training the tokenizer (%s, %s pieces)", settings.kind, f"{settings.vocab_size:,}")
    tags = config.languages.pieces if config.languages else {}
    repeats = vocabulary_repeats(inputs.train) if config.languages else None
    text = TokenizerText(inputs.train, config.data.filters, settings, config.seed, repeats)
    sides = [text.side(0)] if config.task == "classification" else [text.side(0), text.side(1)]
    with waiting_for("training the tokenizer"):
        if settings.shared or len(sides) == 1:
            sides = [chain(*sides)]
        tokenizers = [Tokenizer.train(side, settings, config.seed, list(tags.values())) for side in sides]
    if config.languages is not None:
        languages = Languages(**vars(config.languages), pieces=tags)
        return tagged_pair(tokenizers[0].model_bytes, tokenizers[-1].model_bytes, languages)
    return TokenizerPair(tokenizers[0], tokenizers[-1])


def overlap_notes(inputs: Inputs) -> list[str]:
    """Return a note for the model card on examples shared by training and held-out sets; log a warning if there are.

    The result is cached under the fingerprints of all corpora, so a run that continues does not search again.
    """
    held_out = held_out_names(inputs.valid, inputs.tests)
    known: list[Any] = [[one.fingerprint for one in inputs.train]]
    known += [{name: one.fingerprint for name, one in held_out.items()}]
    known += [one.tag for one in (*inputs.train, *held_out.values()) if one.tag]  # which earlier notes took for text
    path = inputs.cache / f"overlap-{hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]}.json"
    with atomic.locked(path.with_suffix(".lock")):
        overlap = read_note(path)
        if "warning" not in overlap:
            with waiting_for("comparing the training corpus with the validation and test sets"):
                train = chain.from_iterable(one.untagged() for one in inputs.train)
                found = find_overlap(train, {name: one.untagged() for name, one in held_out.items()})
                overlap = {"warning": overlap_warning(found)}
            with suppress(OSError):  # if the cache cannot be written, the next run searches again
                write_note(path, overlap)
    if overlap["warning"]:
        logger.warning("%s", overlap["warning"])
        return [overlap["warning"]]
    return [
        "No training example equals an example of the validation or test sets, ignoring case, punctuation and space."
    ]
