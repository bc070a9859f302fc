"""A run from a configuration to a trained model, with its card, curves and scores.

`cli.train` calls `train` and `describe`.
"""

import contextlib
import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from logging import getLogger
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from seq2seq import atomic, runtime
from seq2seq.config import file as config_file
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import Config
from seq2seq.data.stream import BatchStream, read_for
from seq2seq.errors import UserError, counted
from seq2seq.evaluation.text import check_settings
from seq2seq.lines import read_records
from seq2seq.runtime import Runtime
from seq2seq.store.calibration import FILE as CALIBRATION
from seq2seq.store.calibration import read_calibration, summary, write_calibration
from seq2seq.store.finding import CONFIG, GENERATION
from seq2seq.store.model_card import ScoreRecord, model_card, with_license
from seq2seq.store.model_folder import CARD, load_model, load_outline, save_model, update_settings
from seq2seq.store.tuning import is_tuned, report_loss, tuning_note
from seq2seq.tasks.directions import changes
from seq2seq.tasks.effects import without_effect
from seq2seq.tasks.fingerprints import noted_identity, noted_tests
from seq2seq.tasks.inputs import SEARCH_KEYS, Inputs
from seq2seq.tasks.machine import batch_advice, check_memory, feed_advice, started
from seq2seq.tasks.made_with import made_with
from seq2seq.tasks.run_folder import (
    RunFolder,
    began_with_fixed_shapes,
    differences,
    note_beginning,
    open_run,
    read_note,
    refusal,
    stale_tokenizers,
    with_begun_search,
    write_note,
)  # fmt: skip
from seq2seq.tasks.scored import forget_scores, scores_by
from seq2seq.tasks.stages import epochs_of
from seq2seq.tasks.task import Task, prepare_tokenizers
from seq2seq.training.frozen import num_frozen
from seq2seq.training.judged import LOSS
from seq2seq.training.progress import estimate, foreseen_steps, too_long, unreached, waiting_for
from seq2seq.training.recorded import make_recorder
from seq2seq.training.signals import leaving_at_once
from seq2seq.training.state import TrainingResult
from seq2seq.training.trainer import Trainer, Work

logger = getLogger(__name__)

Result = TypeVar("Result")

FEED_SECONDS = 0.5  # how long batches are read for `--dry-run`
# Least seconds between two drawings of the curves while a run trains; a drawing takes as long as many small steps.
CURVE_SECONDS = 30.0


def train(config: Config, path: Path, command: str, overwrite: bool = False) -> TrainingResult | None:
    """Train, or continue to train, in the run folder at `path`; returns None on ranks other than the main one.

    `command` is the command line of the user, for the model card; `overwrite` first deletes an existing run.

    Raises:
        UserError: the configuration, the data or the folder has a problem.
        RunError: training failed; the message names the last good checkpoint.
    """
    folder = RunFolder.at(path)
    _check(config, folder)
    with contextlib.ExitStack() as stack:
        with contextlib.closing(started(config)) as here:
            _warn(here, without_effect(config, here.world_size))
            with leaving_at_once(here, "stopping; the same command continues the preparation"):
                check_memory(config.training, here)
                begun = config if overwrite else with_begun_search(folder, config)
                inputs = Inputs.open(begun, folder.cache(config))
                _on_main(here, lambda: stack.enter_context(folder.locked()))
                _on_main(here, lambda: open_run(folder, inputs.config, overwrite, noted_identity(folder, inputs)))
                _on_main(here, lambda: write_note(folder.identity, read_note(folder.identity) | inputs.identity()))
                is_stale = _on_main(here, lambda: forget_scores(folder, noted_tests(folder, inputs)))
                _on_main(here, lambda: write_note(folder.made_with, made_with(here)))
                _on_main(here, lambda: folder.keep_table(inputs.added_pieces))
                task = build(inputs, folder.tokenizer, here, began_with_fixed_shapes(folder, inputs.config))
                run = _Run(task, folder, here, command)
                search = _initial_search(inputs)
                _on_main(here, lambda: note_beginning(folder, inputs.config, task.has_fixed_shapes, search))
                _on_main(here, lambda: run.renew(is_stale))
                trainer = run.trainer()
                _report_figures(run, config)
            result = trainer.run()
            _on_main(here, folder.note_saved)
        if not here.is_main:
            return None
        run.draw_curves()
        if result.status != "stopped":
            folder.new_limits.unlink(missing_ok=True)
            with leaving_at_once(here, f"the test sets are not scored; the model is in {folder.best}"):
                run.calibrate()
                run.report_directions()
                run.score_test_sets()
        return result


def _initial_search(inputs: Inputs) -> dict[str, Any]:
    """Return the search settings that a run takes from its initial model where they are not written."""
    initial = inputs.initial if inputs.config.task == "translation" else None
    return initial.description.search.model_dump(mode="json", include=SEARCH_KEYS) if initial else {}


def _report_figures(run: "_Run", config: Config) -> None:
    for line in run.figures() if run.here.is_main else ():
        logger.info("%s", line)
    if not config.training.max_minutes:  # with max_minutes the monitor warns, once it knows the pace
        _warn(run.here, _ineffective(run.task, 0.0, run.task.epochs_per_step))


def _ineffective(task: Task, *pace: float) -> Iterator[str]:
    """Yield a line for each setting and stage that training ends before; `pace` is (seconds, epochs) per step."""
    training, stages = task.config.training, task.stages
    yield from too_long(training, foreseen_steps(training, *pace, stages))
    yield from unreached(training, *pace, stages)


def describe(config: Config, path: Path) -> str | None:
    """Return what `train` would do: the resolved configuration, figures of model, corpora and batches, and the time;
    None on ranks other than the main one.

    The corpora are prepared and cached as for training; a few steps are timed and discarded. A warning is logged if the
    run in the folder could not continue with this configuration.

    Raises:
        UserError: the configuration, the data or the folder has a problem.
    """
    folder = RunFolder.at(path)
    _check(config, folder)
    with contextlib.closing(started(config)) as here:
        _warn(here, without_effect(config, here.world_size))
        check_memory(config.training, here)
        inputs = Inputs.open(with_begun_search(folder, config), folder.cache(config))
        changed = differences(folder, inputs.config, noted_identity(folder, inputs))
        if error := refusal(folder, changed):
            _warn(here, [f"training would be refused:\n{error}"])
        tokenizer = folder.tokenizer if folder.tokenizer.is_dir() and not stale_tokenizers(changed) else None
        task = build(inputs, tokenizer, here, began_with_fixed_shapes(folder, inputs.config))
        run = _Run(task, folder, here, command="")
        figures = run.figures()
        with waiting_for("timing a few steps", shown=here.is_main):
            trainer = run.trainer()
            with contextlib.closing(trainer.stream):
                a_step = trainer.time_steps()
                tokens, seconds = read_for(trainer.stream, FEED_SECONDS)
        figures.append(f"time: {estimate(config.training, *a_step, stages=run.task.stages)}")
        of_rank = run.task.tokens_per_epoch / here.world_size
        figures += feed_advice(tokens / seconds, of_rank * a_step[1] / a_step[0])
        _warn(here, _ineffective(run.task, *a_step))
        figures += batch_advice(config.training, here, task.recording.is_on)
        if not here.is_main:
            return None
        return "\n".join([config_file.dump(inputs.config), *(f"# {line}" for line in figures)])


def build(inputs: Inputs, tokenizer_folder: Path | None, here: Runtime, fixed_shapes: bool | None = None) -> Task:
    """Prepare tokenizers, corpora and model.

    `tokenizer_folder` is as in `prepare_tokenizers`, and `fixed_shapes` as in `Task`.

    Raises:
        DataError: a corpus cannot be read, or has no examples left.
        ConfigError: the tokenizer or the labels do not fit the configuration.
    """
    runtime.seed_everything(inputs.config.seed, here.rank)
    tokenizers = prepare_tokenizers(inputs, tokenizer_folder, here)
    if inputs.config.task == "translation":
        from seq2seq.tasks.translation import TranslationTask as Chosen
    else:
        from seq2seq.tasks.classification import ClassificationTask as Chosen
    return Chosen(inputs, tokenizers, here, fixed_shapes)


def _seldom(call: Callable[[], None], seconds: float) -> Callable[[], None]:
    """Return a function that calls `call` unless its creation, or its last call, is less than `seconds` ago."""
    last = time.monotonic()

    def perhaps() -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            call()
            last = time.monotonic()

    return perhaps


@dataclass(frozen=True)
class _Run:
    """A task in its run folder, and the files there that the trainer does not write."""

    task: Task
    folder: RunFolder
    here: Runtime
    command: str

    def trainer(self) -> Trainer:
        task, sampler = self.task, self.task.sampler
        model, here = task.model.to(self.here.device), self.here
        stream = BatchStream(sampler, task.make_batch, pin_memory=here.device.type == "cuda")
        work = Work(
            compute_loss=task.compute_loss,
            validate=task.validate,
            save_best=self.save_best,
            rehearsal=(task.make_batch(indices, 0) for indices in sampler.largest_batches()),
            measure=task.measure,
            judge_start=task.can_start,
            is_compiled=task.compilation.is_on,
            recorder=make_recorder(task.recording),
            stages=task.stages,
            before_validation=_seldom(self.draw_curves, CURVE_SECONDS),
        )
        return Trainer(model, stream, work, task.config.training, here, self.folder.path)

    def save_best(self, weights: Mapping[str, Tensor], metrics: Mapping[str, float]) -> None:
        """Write the best model. The search settings are those of the configuration, with which it was measured."""
        self.folder.test_scores.unlink(missing_ok=True)  # they belong to the model that is replaced
        report_loss(self.folder.best, read_note(self.folder.best / GENERATION))
        described = ModelDescription.of(self.task.config, self.task.labels, dict(metrics))
        changes = {"license": self.license, "directions": self.task.inputs.known, **self.task.inputs.tagged_languages}
        description = described.model_copy(update=changes)
        save_model(self.folder.best, weights, description, self.task.tokenizers, self.card(metrics))

    def card(self, metrics: Mapping[str, float], tests: Sequence[ScoreRecord] = (), notes: Sequence[str] = ()) -> str:
        """Return the model card with the metrics of a validation, and with scores of test sets if there are any."""
        is_staged = self.task.stages.last and self.folder.metrics.exists()
        records = read_records(self.folder.metrics)[0] if is_staged else []
        stages = self.task.stage_notes(epochs_of(records, int(metrics["step"])))
        card = model_card(
            self.task.config,
            title=self.folder.path.name,
            command=self.command,
            num_parameters=self.task.num_parameters,
            step=int(metrics["step"]),
            data=self.task.data,
            scores=[*self.task.score_records("valid", metrics), *tests],
            notes=[*self.task.notes, *stages, *notes],
        )
        return with_license(card, self.license)

    @property
    def license(self) -> str | None:
        """The licence of the initial model."""
        initial = self.task.inputs.initial
        return initial and initial.description.license

    def calibrate(self) -> None:
        """Calibrate alignments and confidence of the best model of a translation run, unless it was done before."""
        if self.task.config.task != "translation" or (self.folder.best / CALIBRATION).exists():
            return
        with waiting_for("calibrating alignments and confidence"):
            calibration = self.task.calibrate(self.folder.best)
        write_calibration(self.folder.best, calibration)
        for line in summary(calibration):
            logger.info("%s", line)
        self.complete_card()

    def complete_card(self) -> None:
        """Write the card of the best model again, with the measurements made since it was saved."""
        best, scored = self.folder.best, scores_by(self.folder, self._as_tuned().measure)
        tests = [ScoreRecord(**score) for score in scored.get("scores", ())]
        notes = [*scored.get("notes", ()), *(summary(read_calibration(best)) if (best / CALIBRATION).exists() else ())]
        generation = read_note(best / GENERATION)
        notes += [tuning_note(generation)] if is_tuned(generation) else []
        card = self.card(load_model(best).description.metrics, tests, notes)
        atomic.write_file(best / CARD, card.encode())

    def renew(self, is_stale: bool | None) -> None:
        """Bring the settings and label names of the best model in line with the configuration, and its card if they
        changed or the card `is_stale`."""
        if update_settings(self.folder.best, self.task.config) or (is_stale and self.folder.best.is_dir()):
            self.complete_card()

    def report_directions(self) -> None:
        """Log what training changed in each direction of the validation sets, for a model that was trained before."""
        if self.task.config.languages is None or self.task.inputs.initial is None:
            return
        records, _ = read_records(self.folder.metrics)
        if any("measured_anew" in record for record in records):
            return  # the initial model was measured in another way
        before = next((record for record in records if record["step"] == 0 and LOSS in record), {})
        after = read_note(self.folder.best / CONFIG)["metrics"]  # not those after tuning
        for line in changes(before, after):
            logger.info("%s", line)

    def score_test_sets(self) -> None:
        """Score the best and the initial model on the test sets, for log and model card, unless it was done before."""
        config, folder, initial = self.task.config, self.folder, self.task.inputs.initial
        if not config.data.test:
            return
        task = self._as_tuned()
        scored = {"tests": noted_tests(folder, task.inputs), "measure": task.measure}
        if read_note(folder.test_scores).get("scored") == scored:
            return
        logger.info("scoring the test sets: %s", ", ".join(config.data.test))
        is_comparable = initial is not None and initial.description.labels == self.task.labels
        try:
            with waiting_for("scoring the test sets"):
                scores = task.score_test_sets(load_model(folder.best).model)
                initial_scores = task.score_test_sets(initial.model) if is_comparable else []
        except UserError as error:
            logger.warning("the test sets are not scored: %s", error)
            return
        before = {(score.dataset, score.metric): score.value for score in initial_scores}
        for score in scores:
            old = before.get((score.dataset, score.metric))
            change = "" if old is None else f" (initial model {old:.2f}, {score.value - old:+.2f})"
            logger.info("%s: %s %.2f%s", score.dataset, score.metric, score.value, change)
        notes = [f"The initial model on {name}: {metric} {value:.2f}." for (name, metric), value in before.items()]
        shown = {"scored": scored, "scores": [asdict(score) for score in scores], "notes": notes}
        write_note(folder.test_scores, shown)
        self.complete_card()

    def _as_tuned(self) -> Task:
        """Return the task with the search settings of the best model, which `s2s tune` may have changed."""
        task = copy.copy(self.task)
        if is_tuned(read_note(self.folder.best / GENERATION)):
            search = load_outline(self.folder.best).description.search
            task.config = task.config.model_copy(update={"search": search})
        return task

    def draw_curves(self) -> None:
        """Update curves.png; a failure is only logged."""
        from seq2seq.plots import learning_curves

        curves = self.folder.curves
        try:
            learning_curves(read_records(self.folder.metrics)[0], curves, title=self.folder.path.name)
        except UserError:
            pass  # there are no records yet
        except (OSError, ValueError) as error:
            logger.warning("%s: not drawn (%s)", curves, error)

    def figures(self) -> list[str]:
        """Return one line each on model, corpora, batches and device."""
        task, here = self.task, self.here
        vocabularies = {task.tokenizers.source.vocab_size, task.tokenizers.target.vocab_size}
        corpora = ", ".join(f"{record.role} {record.name} {record.examples:,}" for record in task.data)
        frozen = num_frozen(task.model)
        return [
            f"model: {task.num_parameters:,} parameters{f' ({frozen:,} frozen)' if frozen else ''}, "
            f"vocabulary {' + '.join(f'{size:,}' for size in sorted(vocabularies))}",
            f"data: {corpora}; training corpus: {task.corpus.counts}",
            *task.direction_figures(),
            *task.batch_figures(),
            f"device: {here.device}, {str(here.precision).removeprefix('torch.')}, "
            f"{counted(torch.get_num_threads(), 'thread')}, {counted(here.world_size, 'rank')}",
            f"layers: {'compiled' if task.compilation.is_on else 'not compiled'}; {task.compilation.reason}",
            f"steps: {'recorded' if task.recording.is_on else 'not recorded'}; {task.recording.reason}",
        ]


def _check(config: Config, folder: RunFolder) -> None:
    """Refuse what would fail later: a folder that is not a run, or metrics that cannot be computed on this machine."""
    folder.check(config)
    if config.task == "translation":
        check_settings(config.evaluation.metrics, config.evaluation.tokenize)


def _warn(here: Runtime, lines: Iterable[str]) -> None:
    for line in lines if here.is_main else ():
        logger.warning("%s", line)


def _on_main(here: Runtime, action: Callable[[], Result]) -> Result | None:
    """Return the result of `action` on the main rank, and None on the others, which wait; if it fails, the main rank
    raises its error and all end."""
    problem = result = None
    if here.is_main:
        try:
            result = action()
        except (UserError, OSError) as error:
            problem = error
    if any(here.gather(problem is not None)):
        raise problem or SystemExit(UserError.exit_code)
    return result
