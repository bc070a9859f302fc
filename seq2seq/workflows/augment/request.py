"""The request of a user for pairs: it is checked, becomes a `AugmentJob`, and is carried out by workers.

`cli.augment` and `workflows.distill` make a `Request`.
"""

import functools
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from seq2seq.config import file as config_file
from seq2seq.config.corpora import also_clean
from seq2seq.config.values import PARTS_FILE
from seq2seq.data.directions import open_named
from seq2seq.data.file_facts import combined_fingerprint
from seq2seq.errors import UserError, counted
from seq2seq.executors import LOCAL, open_workers
from seq2seq.inspection.overlap import folded
from seq2seq.interop.ctranslate2 import is_ctranslate2
from seq2seq.languages import check_direction
from seq2seq.lines import read_lines
from seq2seq.store.finding import RUN_CONFIG, find_model, run_of_model
from seq2seq.tasks.run_folder import read_note
from seq2seq.workflows.augment.checks import (
    check_language,
    check_lines,
    check_pipeline,
    check_references,
    check_search,
    check_stored_search,
    held_out_lines,
)
from seq2seq.workflows.augment.job import AugmentJob, Recipe, default_search, make_part, opened
from seq2seq.workflows.augment.shards import TextFacts, named_as, plan
from seq2seq.workflows.parts import (
    NOT_IDENTITY,
    SHARD_LINES,
    PartCounts,
    finish_folder,
    folder_record,
    make_parts,
    open_parts,
    other_lines,
    other_model,
    sharing,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """Everything that a user chooses, except how many workers there are."""

    models: tuple[Path, ...]
    texts: tuple[Path, ...]
    output: Path
    recipe: Recipe = field(default_factory=Recipe)
    loading: Mapping[str, Any] = field(default_factory=dict)
    """Options of `Translator.load`, search settings included."""
    each: bool = False
    """Whether each model translates the text alone; otherwise several models are an ensemble."""
    references: tuple[Path, ...] = ()
    held_out: tuple[Path, ...] = ()
    """Further texts whose lines are left out."""
    shard_lines: int = SHARD_LINES
    limit: int | None = None
    """The number of lines to read."""
    is_forced: bool = False
    """Whether a text in another language, or in another form than lines, is accepted."""
    base: Path | None = None
    """A folder that may be moved: texts in it are named by their relative path, and others by their file name, so that
    the pairs are the same wherever they are."""
    has_sets_of_runs: bool = True
    """Whether lines of the validation and test sets of the models' runs are left out too."""


@dataclass(frozen=True)
class Prepared:
    """A job that passed all checks, and its identity: two jobs of one identity make the same parts."""

    job: AugmentJob
    identity: Mapping[str, Any]
    num_lines: int
    told: Mapping[str, str]
    """The phrases of `open_parts`."""
    defaults: Mapping[str, Any]
    """The defaults of `open_parts`: the search settings of the models."""


def prepare(request: Request) -> Prepared:
    """Check a request, without writing anything.

    Raises:
        DataError: a text cannot be read, has no lines, or is in another language or form.
        ModelError, UserError: the models or settings do not fit.
    """
    if not request.is_forced:
        check_lines((*request.texts, *request.references, *request.held_out))
    facts, shards = plan(request.texts, request.shard_lines, request.limit, request.base)
    noted = read_note(request.output / PARTS_FILE)
    facts = named_as(facts, noted.get("texts"))  # each record has this name, whoever continues the folder
    names = dict(zip(request.texts, (each.name for each in facts), strict=True))
    num_lines = sum(each.lines for each in facts)
    folders = [find_model(model, "translation").resolve() for model in request.models]
    exports = [model for model, folder in zip(request.models, folders, strict=True) if is_ctranslate2(folder)]
    loading = request.loading
    check_search(request.recipe, loading, loading.get("engine", "auto"), exports)
    if len(set(folders)) < len(folders):
        raise UserError("a MODEL is given twice; name each once")
    if len({text.resolve() for text in request.texts}) < len(request.texts):
        raise UserError("a --text is given twice; name each once")
    read, references = plan(request.references, request.shard_lines, request.limit) if request.references else ([], [])
    if references:
        sides = (request.texts, facts), (request.references, read)
        check_references(*(_with_all_lines(files, own, request.limit) for files, own in sides))
    groups = [[folder] for folder in folders] if request.each else [folders]
    held_out = held_out_lines(_held_out(request))
    job = AugmentJob(
        folder=request.output.resolve(),
        models=tuple(map(tuple, groups)),
        fingerprints=tuple(tuple(map(folder_record, group)) for group in groups),
        loading=tuple(sorted(loading.items())),
        recipe=request.recipe,
        shards=tuple(shard._replace(text=shard.text.resolve(), name=names[shard.text]) for shard in shards),
        references=tuple(shard._replace(text=shard.text.resolve()) for shard in references),
        held_out=frozenset(map(folded, held_out)),
    )
    languages, defaults = _checked_models(job, request)
    kept = {key: value for key, value in loading.items() if key not in NOT_IDENTITY}
    identity = {
        "options": {
            **asdict(replace(request.recipe, noise=None)),
            "noise": request.recipe.noise and request.recipe.noise.model_dump(exclude_defaults=True),
            **dict(sorted(kept.items())),
            "shard_lines": request.shard_lines,
        },
        "languages": languages,
        "models": [list(group) for group in job.fingerprints],
        "texts": [asdict(each) for each in facts],
        "references": [asdict(each) for each in named_as(read, noted.get("references"))],
        "held_out": combined_fingerprint(sorted(held_out)),
    }
    _warn_of_unknown_sets(request)
    return Prepared(job, identity, num_lines, _told(request, identity), defaults)


def augment(
    prepared: Prepared,
    where: str = LOCAL,
    workers: int = 1,
    report: Callable[[int, Mapping[str, Any]], None] = lambda number, facts: None,
) -> PartCounts:
    """Make all parts that are missing, and return the counts of all.

    Args:
        prepared: from `prepare`.
        where: executor, as in `open_workers`.
        workers: number of local processes, which share the CPUs.
        report: called with the number and the facts of each part.

    Raises:
        RunError: parts could not be made, or the executor could not be used.
        UserError: the folder has something else.
    """
    job = prepared.job
    job = replace(job, loading=sharing(job.loading, workers))
    if workers > 1 or where != LOCAL:
        opened.cache_clear()  # frees the memory of the models that the checks opened
    engines: defaultdict[int, Counter[str]] = defaultdict(Counter)  # of each group of models

    def note_engine(number: int, facts: Mapping[str, Any]) -> None:
        if "engine" in facts:  # parts of earlier versions have none
            engines[number // len(job.shards)][facts["engine"]] += 1
        report(number, facts)

    with open_parts(job.folder, prepared.identity, prepared.told, defaults=prepared.defaults) as description:
        with open_workers(where, workers) as running:
            counts = make_parts(job.folder, functools.partial(make_part, job), job.num_parts, running, note_engine)
        finish_folder(job.folder, description, job.num_parts, counts)
    for several in engines.values():
        if len(several) > 1:
            made = " and ".join(f"{counted(count, 'part')} with {engine}" for engine, count in sorted(several.items()))
            logger.warning(
                "%s: has %s; their translations may differ. part-*.json names the engine of each; to have one engine, "
                "delete the parts of the other, and repeat the command where it runs", job.folder, made
            )  # fmt: skip
    return counts


def _told(request: Request, identity: Mapping[str, Any]) -> dict[str, str]:
    groups = enumerate(identity["models"])
    places = [f"models.{group}.{index}" for group, models in groups for index in range(len(models))]
    return {
        **{place: other_model(model) for place, model in zip(places, request.models, strict=True)},
        **{
            f"{key}.{index}.sha256": other_lines(each["name"])
            for key in ("texts", "references")
            for index, each in enumerate(identity[key])
        },
        "held_out": "other lines are held out",
    }


def _with_all_lines(files: Sequence[Path], facts: Sequence[TextFacts], limit: int | None) -> list[tuple[Path, int]]:
    """Return the number of lines of each file, also of those after the limit, which tell whether it is parallel."""
    whole = facts if limit is None else plan(files, SHARD_LINES)[0]
    return [(file, each.lines) for file, each in zip(files, whole, strict=True)]


def _checked_models(job: AugmentJob, request: Request) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Return the languages of the pairs, and the search settings that all groups of models have without an option.

    Refuse models that do not fit the request or each other.
    """
    found, searches = [], []
    for group, models in enumerate(job.models):
        pipeline = job.pipeline(group)
        check_pipeline(pipeline, job.recipe, str(request.models[group]))
        is_sampling = pipeline.translator.config.sample
        check_stored_search(job.models[group][0], is_sampling, dict(job.loading).get("engine", "auto"))
        about = pipeline.translator.description
        sides = (about.source_language, about.target_language) if about else (None, None)
        if not request.is_forced and not group:
            check_language(job.shards, sides[0])
        found.append(sides)
        searches.append(default_search(about.search) if about else {})
    for sides, model in zip(found, request.models, strict=False):
        check_direction(model, sides, request.models[0], found[0], "give models of the same direction")
    source, target = found[0] if job.recipe.kind == "forward" else found[0][::-1]
    shared = {key: value for key, value in searches[0].items() if all(each.get(key) == value for each in searches)}
    return {"source": source, "target": target}, shared


def texts_of_runs(models: Iterable[Path], remedy: str) -> Iterator[str]:
    """Yield both sides of the validation and test sets of the runs that models belong to.

    Both sides, because a model of many directions may translate from the language of the targets. If the sets of a run
    cannot be read, a warning ends with the `remedy`.
    """
    for model in models:
        if run := run_of_model(find_model(model)):
            yield from _texts_of_sets(run / RUN_CONFIG, remedy)


def _held_out(request: Request) -> Iterator[str]:
    for path in request.held_out:
        yield from read_lines(path)
    if request.has_sets_of_runs:
        yield from texts_of_runs(request.models, "name them with --held-out")


def _warn_of_unknown_sets(request: Request) -> None:
    """Warn if the held-out sets of a model are not known, unless the user names some."""
    for model in request.models:
        if not request.held_out and run_of_model(find_model(model)) is None:
            logger.warning(
                "%s is not in a run, so its validation and test sets are not known; name them with --held-out to leave "
                "out their lines", model
            )  # fmt: skip
            return


def _texts_of_sets(run_config: Path, remedy: str) -> Iterator[str]:
    try:
        config = config_file.load(run_config, check_files=False)
        sides = config.source_language, config.target_language
        sets = *config.data.valid_sets.items(), *config.data.test.items()
        for name, corpus in [(name, corpus) for name, each in sets for corpus in also_clean([each])]:
            for pair in open_named(corpus, name, config.languages, sides):
                yield from pair.texts
    except UserError as error:
        logger.warning("the held-out sets of %s are not left out: %s; %s", run_config.parent, error, remedy)
