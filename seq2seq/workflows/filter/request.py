"""The request of a user to filter a corpus: it is checked, becomes a `FilterJob`, and is carried out by workers.

`cli.filter` makes a `FilterRequest`. The pairs are scored first; the threshold of `keep` needs the scores of all.
"""

import array
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq import atomic
from seq2seq.config.values import FILTER_FILE
from seq2seq.data.corpus_files import corpus_of_files
from seq2seq.data.examples import Pair
from seq2seq.data.parts import languages_of_parts, parts_file
from seq2seq.errors import DataError, ModelError
from seq2seq.executors import LOCAL, Workers, open_workers
from seq2seq.files import json_text
from seq2seq.inspection.line_languages import other_language
from seq2seq.languages import are_other, known_language, language_name
from seq2seq.lines import check_readable_again, shown_name
from seq2seq.store.direction import OPTIONS
from seq2seq.store.finding import find_model
from seq2seq.store.model_folder import load_outline
from seq2seq.tasks.run_folder import read_note
from seq2seq.text.direction import Direction
from seq2seq.workflows.filter.job import (
    ABOVE,
    NO_PAIR,
    SCORES,
    Corpus,
    FilterJob,
    Judge,
    opened_scorers,
    reason,
    rules_of,
    score_part,
    select_part,
)
from seq2seq.workflows.filter.rules import PairLimits
from seq2seq.workflows.filter.shards import plan
from seq2seq.workflows.parts import (
    NO_SCORE,
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

SIDES = ("source", "target")

Report = Callable[[int, Mapping[str, Any]], None]


@dataclass(frozen=True)
class FilterRequest:
    """Everything that a user chooses, except how many workers there are."""

    files: tuple[Path, ...]
    """The corpus: two text files, or one file or folder."""
    output: Path
    model: Path | None = None
    """The model of the direction of the corpus; without it, only the rules apply."""
    reverse: Path | None = None
    """The model of the opposite direction."""
    max_score: float | None = None
    """The largest score of a pair that is kept."""
    keep: float | None = None
    """The share of the pairs of the corpus to keep at most."""
    difference: float = 0.0
    """Weight of the difference of both cross-entropies in the score."""
    languages: tuple[str | None, str | None] = (None, None)
    """Source and target, if the model has several directions or there is no model."""
    limits: PairLimits = field(default_factory=PairLimits)
    loading: Mapping[str, Any] = field(default_factory=dict)
    """Options of `Scorer.load`."""
    shard_lines: int = SHARD_LINES
    is_forced: bool = False
    """Whether a corpus in other languages is accepted."""


@dataclass(frozen=True)
class PreparedFilter:
    """A job that passed all checks, its identity, and its selection.

    Two jobs of one identity make the same cross-entropies; with one selection, they keep the same pairs.
    """

    job: FilterJob
    identity: Mapping[str, Any]
    selection: Mapping[str, float | None]
    num_lines: int
    told: Mapping[str, str]
    """The phrases of `open_parts`."""
    notes: tuple[str, ...] = ()
    """Limits of the judgement, for the user."""


@dataclass(frozen=True)
class Filtered:
    """The result of a filter."""

    counts: PartCounts
    threshold: float
    """The largest score of a pair that is kept; infinite if the score leaves nothing out."""


def prepare(request: FilterRequest) -> PreparedFilter:
    """Check a request, without writing anything.

    Raises:
        DataError: the corpus cannot be read, has no lines, or is in other languages.
        ModelError, UserError: the models or settings do not fit.
    """
    for path in request.files:
        if not parts_file(path).is_file():
            check_readable_again(path)
    judges, languages = _judges(request)
    languages = _with_those_of_the_folder(request, languages)
    named = languages[0] or "", languages[1] or ""
    config = corpus_of_files(request.files, *languages)
    if config.label_column is not None:
        raise DataError(f"{request.files[0]}: texts with labels, not pairs")
    config = config.model_copy(update={key: path.absolute() for key, path in config.files()})  # for other machines
    corpus = Corpus(config, named, shown_name(str(request.files[0])))
    source = corpus.open()
    noted = read_note(request.output / FILTER_FILE).get("corpus")
    if isinstance(noted, dict) and noted.get("sha256") == source.fingerprint:
        corpus = replace(corpus, name=str(noted.get("name")))  # each record has this name, whoever continues the folder
    shards = plan(source, request.shard_lines)
    loading = dict(sorted(request.loading.items()))
    job = FilterJob(
        folder=request.output.resolve(),
        corpus=replace(corpus, fingerprint=source.fingerprint),
        judges=judges,
        loading=tuple(loading.items()),
        languages=languages,
        limits=request.limits,
        shards=tuple(shards),
        difference=request.difference,
    )
    if not request.is_forced:
        _check_languages(job, list(islice(source.untagged(), SHARD_LINES)))
    num_lines = shards[-1].first + shards[-1].count - 1
    identity = {
        "languages": dict(zip(SIDES, languages, strict=True)),
        "corpus": {"name": corpus.name, "lines": num_lines, "sha256": source.fingerprint},
        "models": [judge.fingerprint for judge in judges],
        "options": {
            **asdict(request.limits),
            **{key: value for key, value in loading.items() if key not in NOT_IDENTITY},
            "shard_lines": request.shard_lines,
            "tag": source.tag,  # for the training that reads the folder
        },
    }
    selection = {"keep": request.keep, "max_score": request.max_score, "difference": request.difference}
    given = [model for model in (request.model, request.reverse) if model is not None]
    told = {f"models.{index}": other_model(model) for index, model in enumerate(given)}
    told["corpus.sha256"] = other_lines(" or ".join(shown_name(str(path)) for path in request.files))
    return PreparedFilter(job, identity, selection, num_lines, told, tuple(_notes(request, languages)))


def filter_corpus(
    prepared: PreparedFilter, where: str = LOCAL, workers: int = 1, report: Report = lambda number, facts: None
) -> Filtered:
    """Make all parts that are missing, and return the counts of all.

    If the folder has pairs of the same identity and another selection, they are selected anew from the same scores.

    Args:
        prepared: from `prepare`.
        where: executor, as in `open_workers`.
        workers: number of local processes, which share the CPUs.
        report: called with the number and the facts of each part of scores.

    Raises:
        RunError: parts could not be made, or the executor could not be used.
        UserError: the folder has something else.
    """
    job, num_parts = prepared.job, len(prepared.job.shards)
    scores = job.folder / SCORES
    with open_parts(job.folder, prepared.identity, prepared.told, FILTER_FILE) as description:
        scores.mkdir(exist_ok=True)
        atomic.remove_leftovers(scores)
        job = replace(job, loading=sharing(job.loading, workers))
        if workers > 1 or where != LOCAL:
            opened_scorers.cache_clear()  # frees the memory of the models that the checks opened
        with open_workers(where, workers) as running:
            make_parts(scores, functools.partial(score_part, job), num_parts, running, report)
            threshold = _threshold(job, prepared.selection)
            counts = _select(job, description, prepared.selection, threshold, running)
        finish_folder(job.folder, description, num_parts, counts, FILTER_FILE)
    return Filtered(counts, threshold)


def meanings(job: FilterJob) -> dict[str, str]:
    """Return what each reason for which a line is left out means."""
    rules = {rule.name: rule.meaning for rule in rules_of(job.languages, job.limits).all}
    return {
        NO_PAIR: "a header, a blank row, or a unit without both languages",
        **rules,
        NO_SCORE: "the model has no finite score for it",
        ABOVE: "the score is above the threshold",
    }


def left_out_examples(
    job: FilterJob, filtered: Filtered, most: int
) -> dict[str, list[tuple[int, Pair | None, float | None]]]:
    """Return the first lines that are left out for each reason: at most `most` of (number, pair, score).

    The pair is None for a line without one, and the score None for a pair that has none.
    """
    wanted = {why: min(count, most) for why, count in filtered.counts.left_out.items()}
    found: dict[str, list[tuple[int, Pair | None, float | None]]] = {why: [] for why in wanted}
    for number in range(len(job.shards)):
        if all(len(lines) == wanted[why] for why, lines in found.items()):
            break
        for line, pair, record in job.judged(number):
            why = reason(record, filtered.threshold)
            if why and len(found[why]) < wanted[why]:
                found[why].append((line, pair, record.get("score")))
    return found


def _select(
    job: FilterJob,
    description: dict[str, Any],
    selection: Mapping[str, float | None],
    threshold: float,
    running: Workers,
) -> PartCounts:
    if description.get("selection") != selection:
        path = job.folder / FILTER_FILE
        for key in ("counts", "selection"):
            description.pop(key, None)
        atomic.write_file(path, json_text(description).encode())  # parts of two selections are never together
        for part in job.folder.glob("part-*"):
            part.unlink()
        description["selection"] = dict(selection)
        atomic.write_file(path, json_text(description).encode())
    return make_parts(job.folder, functools.partial(select_part, job, threshold), len(job.shards), running)


def _threshold(job: FilterJob, selection: Mapping[str, float | None]) -> float:
    """Return the largest score of a pair that is kept."""
    keep, max_score = selection["keep"], selection["max_score"]
    if keep is None:
        return math.inf if max_score is None else max_score
    scores, num_pairs = array.array("d"), 0
    for number in range(len(job.shards)):
        records = job.scores(number)
        num_pairs += sum(record.get("left_out") != NO_PAIR for record in records)
        scores.extend(record["score"] for record in records if "score" in record)
    return threshold_of(np.array(scores), math.floor(keep * num_pairs + 1e-6))


def threshold_of(scores: np.ndarray, most: int) -> float:
    """Return the largest threshold at which at most `most` scores, (N,), are kept; infinite if all are.

    Equal scores are kept together or left out together, so that the order of the pairs does not matter.
    """
    if most >= len(scores):
        return math.inf
    ordered = np.sort(scores)
    below = ordered[ordered < ordered[most]]
    return float(below[-1]) if len(below) else -math.inf


def _judges(request: FilterRequest) -> tuple[tuple[Judge, ...], tuple[str | None, str | None]]:
    """Return the judges, which are opened, and the languages of the corpus.

    Raises:
        ModelError, UserError: the models do not fit.
    """
    named, options = (
        (request.languages, request.languages[::-1]),
        (OPTIONS, dict(zip(SIDES, ("--to", "--from"), strict=True))),
    )
    given = [model for model in (request.model, request.reverse) if model is not None]
    folders = [find_model(model, "translation").resolve() for model in given]
    judges = tuple(Judge(folder, folder_record(folder), sides) for folder, sides in zip(folders, named, strict=False))
    if not judges:
        return (), request.languages
    for judge, named_with in zip(judges, options, strict=False):
        load_outline(judge.model).directed(Direction(*judge.languages), named_with)
    found = [each.description for each in opened_scorers(judges, tuple(sorted(request.loading.items())))]
    languages, *others = ((about.source_language, about.target_language) for about in found)
    for sides in others:
        if are_other(sides, languages[::-1]):
            there, wanted = ("-".join(str(side) for side in each) for each in (sides, languages[::-1]))
            raise ModelError(f"{request.reverse}: translates {there}, but --reverse must translate {wanted}")
    return judges, languages


def _with_those_of_the_folder(
    request: FilterRequest, languages: tuple[str | None, str | None]
) -> tuple[str | None, str | None]:
    """Return the given languages of the corpus; a folder of pairs describes the missing ones.

    Raises:
        DataError: the folder has other languages.
    """
    folder = request.files[0]
    if len(request.files) > 1 or not parts_file(folder).is_file():
        return languages
    there = languages_of_parts(folder)
    if are_other(languages, there, only_recognised=True):
        found, wanted = ("-".join(side or "?" for side in sides) for sides in (there, languages))
        remedy = "leave out --from and --to" if request.model is None else "name models of its direction"
        raise DataError(f"{folder}: its pairs are {found}, not {wanted}; {remedy}")
    source, target = (given or known for given, known in zip(languages, there, strict=True))
    return source, target


def _notes(request: FilterRequest, languages: tuple[str | None, str | None]) -> Iterator[str]:
    if request.model is not None and request.reverse is None:
        yield "no --reverse: the score is the cross-entropy of one direction, which is low for fluent wrong targets"
    if unknown := [side for side, name in zip(SIDES, languages, strict=True) if known_language(name) is None]:
        yield f"the language of the {' and '.join(unknown)} is not known (--from, --to), so it is not judged"


def _check_languages(job: FilterJob, pairs: list[Pair]) -> None:
    """Refuse a corpus whose sides are in other languages, judged by a sample.

    Raises:
        DataError: a side has hardly any line in its language, and many in another one.
    """
    for side, language in zip(SIDES, job.languages, strict=True):
        if found := other_language([getattr(pair, side) for pair in pairs], language):
            raise DataError(
                f"{job.corpus.name}: {100 * found[1]:.0f} % of the clear {side}s of a sample are "
                f"{language_name(found[0])}, not {language_name(language or '')}; swap the sides, give another corpus "
                "or model, or --force"
            )
