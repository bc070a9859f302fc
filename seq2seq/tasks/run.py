"""One run from a configuration to a trained model: what translation and classification share.

`cli.train` calls `train` and `describe`. What differs between the tasks is a `Work`.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from seq2seq import atomic, config_file, runtime
from seq2seq.config import Config
from seq2seq.data.sampler import TokenBudgetSampler
from seq2seq.data.stream import BatchStream
from seq2seq.description import ModelDescription
from seq2seq.errors import UserError, counted
from seq2seq.runtime import Runtime
from seq2seq.store.model_card import ScoreRecord, model_card
from seq2seq.store.model_folder import CARD, LoadedModel, load_model, save_model, update_settings
from seq2seq.tasks import classification, translation
from seq2seq.tasks.identity import Sources, identity, makes_other_tokenizers, read_noted
from seq2seq.tasks.initial import complete, load_initial
from seq2seq.tasks.run_folder import (
    RunFolder,
    alone_in,
    check_place,
    differences,
    note_tokenizers,
    open_folder,
    refusal,
)
from seq2seq.tasks.task import Work
from seq2seq.training.progress import estimate, waiting_for
from seq2seq.training.signals import leaving_at_once
from seq2seq.training.state import TrainingResult
from seq2seq.training.trainer import SaveBest, Trainer

logger = logging.getLogger(__name__)


def train(
    config: Config,
    path: Path,
    command: str,
    overwrite: bool = False,
    on_validation: Callable[[], None] = lambda: None,
) -> TrainingResult | None:
    """Train, or go on training, in the run folder at `path`; None on other ranks than the main one.

    Args:
        config: resolved and checked.
        path: the run folder.
        command: what the user typed, for the model card.
        overwrite: begin again, deleting the run that is there.
        on_validation: called on the main rank at each validation.

    Raises:
        UserError: something is wrong with the configuration, the data or the folder.
        RunError: training itself failed; the message names the last good checkpoint.
    """
    folder = RunFolder.at(path)
    initial = load_initial(config)
    config = complete(config, initial)
    check_place(folder, config)
    cache = folder.cache(config)
    with contextlib.ExitStack() as stack:
        with contextlib.closing(_started(config)) as here:
            with leaving_at_once(here, "stopping; the same command continues the preparation"):
                sources = Sources.open(config, cache)

                def take() -> None:
                    stack.enter_context(alone_in(folder))
                    open_folder(folder, config, overwrite, identity(config, sources, initial))

                def note() -> None:
                    note_tokenizers(folder, config)
                    update_settings(folder.best, config)

                _on_main(here, take)
                work = _build(config, initial, sources, folder.tokenizer, cache, here)
                _on_main(here, note)
                sampler = training_sampler(config, work, here)
                trainer = _trainer(config, work, sampler, folder, here, command, on_validation)
                if here.is_main:
                    for line in _figures(config, work, sampler, here):
                        logger.info("%s", line)
            result = trainer.run()
        if not here.is_main:
            return None
        if result.status != "stopped" and config.data.test:
            with leaving_at_once(here, f"the test sets are not scored; the model is in {folder.best}"):
                _score_test_sets(config, work, sources, folder, initial, command)
        return result


def describe(config: Config, path: Path) -> str:
    """What `train` would do: the resolved configuration, the figures of model, corpora and batches, and the time.

    The corpora are prepared and cached as for training; a few steps are made, and what they learned is thrown away.
    Where the run in the folder could not go on like this, that is said too.
    """
    folder = RunFolder.at(path)
    initial = load_initial(config)
    config = complete(config, initial)
    check_place(folder, config)
    with contextlib.closing(_started(config)) as here:
        cache = folder.cache(config)
        sources = Sources.open(config, cache)
        changed = differences(folder, config, identity(config, sources, initial))
        if error := refusal(folder, changed):
            logger.warning("training would be refused:\n%s", error)
        is_stale = not folder.tokenizer.is_dir() or any(makes_other_tokenizers(key) for key, _ in changed)
        work = _build(config, initial, sources, None if is_stale else folder.tokenizer, cache, here)
        sampler = training_sampler(config, work, here)
        figures = _figures(config, work, sampler, here)
        with waiting_for("timing a few steps", shown=here.is_main):
            trainer = _trainer(config, work, sampler, folder, here, command="", on_validation=lambda: None)
            with contextlib.closing(trainer.stream):
                a_step = trainer.time_steps()
        figures.append(f"time: {estimate(config.training, *a_step)}")
        return "\n".join([config_file.dump(config), *(f"# {line}" for line in figures)])


def training_sampler(config: Config, work: Work, here: Runtime) -> TokenBudgetSampler:
    """The batches of training, for this rank."""
    corpus, training = work.corpus, config.training
    return TokenBudgetSampler(
        corpus.source_lengths,
        corpus.target_lengths,
        training.batch_tokens,
        batch_sentences=training.batch_sentences,
        seed=config.seed,
        parts=corpus.parts,
        rank=here.rank,
        world_size=here.world_size,
    )


def _started(config: Config) -> Runtime:
    return runtime.start(config.training.device, config.training.precision, config.training.threads)


def _on_main(here: Runtime, action: Callable[[], None]) -> None:
    """Do something on the main rank while the others wait; where it fails, the main one says why and all end."""
    problem = None
    if here.is_main:
        try:
            action()
        except (UserError, OSError) as error:
            problem = error
    if any(here.gather(problem is not None)):
        raise problem or SystemExit(UserError.exit_code)


def _task(config: Config) -> ModuleType:
    return translation if config.task == "translation" else classification


def _build(
    config: Config,
    initial: LoadedModel | None,
    sources: Sources,
    tokenizer_folder: Path | None,
    cache: Path,
    here: Runtime,
) -> Work:
    runtime.seed_everything(config.seed, here.rank)
    return _task(config).build(config, initial, sources, tokenizer_folder, cache, here)


def _trainer(
    config: Config,
    work: Work,
    sampler: TokenBudgetSampler,
    folder: RunFolder,
    here: Runtime,
    command: str,
    on_validation: Callable[[], None],
) -> Trainer:
    def before_validation() -> None:
        if folder.metrics.exists():
            on_validation()

    return Trainer(
        module=work.model.to(here.device),
        stream=BatchStream(sampler, work.make_batch, pin_memory=here.device.type == "cuda"),
        compute_loss=work.compute_loss,
        validate=work.validate,
        save_best=_best_saver(config, work, folder, command),
        config=config.training,
        runtime=here,
        folder=folder.path,
        rehearsal=(work.make_batch(indices, 0) for indices in sampler.largest_batches()),
        measure=work.measure,
        judge_start=work.can_start,
        before_validation=before_validation,
    )


def _best_saver(config: Config, work: Work, folder: RunFolder, command: str) -> SaveBest:
    def save(state: Mapping[str, Tensor], metrics: Mapping[str, float]) -> None:
        folder.test_scores.unlink(missing_ok=True)  # they are the scores of the model that is replaced
        card = _card(config, work, folder, command, metrics)
        description = ModelDescription.of(config, work.labels, dict(metrics))
        save_model(folder.best, state, description, work.tokenizers, card)

    return save


def _card(
    config: Config,
    work: Work,
    folder: RunFolder,
    command: str,
    metrics: Mapping[str, float],
    tests: Sequence[ScoreRecord] = (),
    notes: Sequence[str] = (),
) -> str:
    """The model card of a validation with these metrics, and of test sets where they are scored."""
    return model_card(
        config,
        title=folder.path.name,
        command=command,
        num_parameters=sum(parameter.numel() for parameter in work.model.parameters()),
        step=int(metrics["step"]),
        data=work.data,
        scores=[*work.score_records(metrics), *tests],
        notes=[*work.notes, *notes],
    )


def _score_test_sets(
    config: Config, work: Work, sources: Sources, folder: RunFolder, initial: LoadedModel | None, command: str
) -> None:
    """Score the best model, and beside it the model it started from: told, and written into the model card.

    What was scored already, on the same sets and in the same way, is not scored again.
    """
    tests = {name: source.fingerprint for name, source in sources.tests.items()}
    scored = {"tests": tests, "measure": work.measure, "label_names": dict(config.data.label_names)}
    if read_noted(folder.test_scores).get("scored") == scored:
        return
    logger.info("scoring the test sets: %s", ", ".join(config.data.test))
    try:
        with waiting_for("scoring the test sets"):
            scores = work.score_test_sets(folder.best)
            before = work.score_test_sets(initial.folder) if initial and initial.description.task == config.task else []
    except UserError as error:
        logger.warning("the test sets are not scored: %s", error)
        return
    was = {(score.dataset, score.metric): score.value for score in before}
    for score in scores:
        old = was.get((score.dataset, score.metric))
        change = "" if old is None else f" (initial model {old:.2f}, {score.value - old:+.2f})"
        logger.info("%s: %s %.2f%s", score.dataset, score.metric, score.value, change)
    notes = [f"The initial model on {score.dataset}: {score.metric} {score.value:.2f}." for score in before]
    metrics = load_model(folder.best).description.metrics
    card = _card(config, work, folder, command, metrics, scores, notes)
    atomic.write_file(folder.best / CARD, card.encode())
    noted = {"scored": scored, "scores": [asdict(score) for score in scores]}
    atomic.write_file(folder.test_scores, (json.dumps(noted, indent=1) + "\n").encode())


def _figures(config: Config, work: Work, sampler: TokenBudgetSampler, here: Runtime) -> list[str]:
    """What a person wants to know before training starts."""
    parameters = sum(parameter.numel() for parameter in work.model.parameters())
    batches, sections = len(sampler.plan(0)), sampler.num_sections
    vocabularies = {work.tokenizers.source.vocab_size, work.tokenizers.target.vocab_size}
    corpora = ", ".join(f"{record.role} {record.name} {record.examples:,}" for record in work.data)
    budget = "target" if config.task == "translation" else "source"
    processes = " and process" if here.world_size > 1 else ""
    return [
        f"model: {parameters:,} parameters, vocabulary {' + '.join(f'{size:,}' for size in sorted(vocabularies))}",
        f"data: {corpora}; training corpus: {work.corpus.counts}",
        f"batches: {'about ' if sections > 1 else ''}{sections * batches:,} per epoch{processes}, each up to "
        f"{config.training.batch_tokens:,} {budget} tokens, {100 * sampler.padding(0):.1f} % padding",
        f"device: {here.device}, {str(here.precision).removeprefix('torch.')}, "
        f"{counted(torch.get_num_threads(), 'thread')}, {here.world_size} process{'es' * (here.world_size > 1)}",
    ]
