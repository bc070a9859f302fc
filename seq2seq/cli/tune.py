"""The command `s2s tune`: length penalty, beam size and mean of checkpoints, chosen on a validation set."""

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq import atomic
from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.errors import DataError, ModelError, UserError, typed
from seq2seq.lines import aligned, check_counts, read_lines, shown_json, shown_name
from seq2seq.store.finding import check_new

if TYPE_CHECKING:
    from seq2seq.config.corpora import SourceConfig
    from seq2seq.config.schema import Config
    from seq2seq.data.examples import Pair
    from seq2seq.store.model_folder import LoadedModel
    from seq2seq.text.direction import Direction
    from seq2seq.workflows.tune import Trial

logger = logging.getLogger("seq2seq.cli")


@click.command(cls=Command, epilog="Example: s2s tune runs/my -o models/my")
@click.argument("model", required=False, type=options.ANY_PATH)
@click.option("--source", type=options.FILE, help="Text to tune on [default: the validation set of the run].")
@click.option("--reference", type=options.FILE, help="Reference translation of --source.")
@click.option(
    "-m", "--metric", type=click.Choice(["bleu", "chrf", "chrf++"]), default="bleu", help="Metric to maximise."
)
@click.option(
    "-o",
    "--output",
    type=options.NAMED_PLACE,
    help="New folder to write the tuned model to; means of the run's checkpoints are tried too [default: change the "
    "search settings of MODEL].",
)
@options.format_option
@options.direction_options
@options.engine_options
@options.computing_options
def command(
    model: Path | None,
    source: Path | None,
    reference: Path | None,
    metric: str,
    output: Path | None,
    form: str,
    **loading: Any,
) -> None:
    """Choose length penalty and beam size of MODEL [default: the newest translation run] on a validation set.

    The smallest beam less than 0.1 below the best wins. The settings are written to generation_config.json, which every
    command reads, with the scores before and after on the validation set and on the test sets of the run; test sets
    that cannot be read are left out. The validation set is translated about twelve times. MODEL must not change
    meanwhile: a run that is training is refused.

    A model of many languages gets one setting for all directions. In a run of many directions, the mean score over the
    directions of the validation set decides. --from and --to restrict these, or name the direction of --source. The
    settings stay until further training finds a better model, or `search` or `evaluation` of the run's configuration
    changes; the log then says that they are gone. A folder written with -o keeps them.
    """
    from seq2seq.evaluation.text import check_settings
    from seq2seq.inference.conversion_cache import forget
    from seq2seq.store.tuning import SOURCE, VALIDATION
    from seq2seq.text.direction import Direction
    from seq2seq.workflows.tune import Scoring, Tuner, score_changes, translated

    if (source is None) != (reference is None):
        raise click.UsageError(
            "--source and --reference belong together; give both, or neither for the run's validation set"
        )
    folder = _writable(model, output)
    loaded, config = _tunable(folder), _run_config(folder)
    is_of_many = source is None and config is not None and config.languages is not None
    direction = _named(loaded, Direction(loading["source_language"], loading["target_language"]), is_of_many)
    scoring = Scoring(metric, config.evaluation.tokenize if config else None, direction.target)
    check_settings((metric,), scoring.tokenize)
    pairs, tests = _pairs(folder, config, source, reference, direction), _test_sets(config, direction)
    directions = _directions(pairs, direction) if loaded.tokenizers.choices else {}
    loading = {key: value for key, value in loading.items() if value is not None}
    with contextlib.ExitStack() as stack:
        means = {}
        if output is not None:
            means = _means(folder, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="s2s-tune-"))))
            stack.callback(forget, means.values())
        models = {"the model": folder} | means
        tuner = Tuner(pairs, scoring, loading, lambda trial: logger.info("%s", _shown(trial)))
        start, best = tuner.tune(models)
        result: dict[str, Any] = {"metric": metric, "weights": best.weights, **best.search} | directions
        result |= {"signatures": scoring.signatures(pairs)} | ({SOURCE: shown_name(source.name)} if source else {})
        result["scores"] = {VALIDATION: score_changes(start.scores, best.scores)}
        for name, examples in tests.items():
            texts = (translated(models[trial.weights], examples, loading, **trial.search) for trial in (start, best))
            result["scores"][_name_of_test(name)] = score_changes(*(scoring.scores(side, examples) for side in texts))
        place = _keep(models[best.weights], output, best.search, result, tuner.check_unchanged)
    if form == "json":
        trials = [{**vars(trial), "scores": dict(trial.scores)} for trial in tuner.trials.values()]
        click.echo(shown_json({"model": str(place), **result, "trials": trials}, indent=1))
        return
    click.echo("\n".join(_table(place, start, best, result)))


def _writable(model: Path | None, output: Path | None) -> Path:
    """Return the folder of the model.

    Raises:
        ModelError: there is no such model, a process trains in its run, or the result cannot be written.
    """
    if output is not None:
        check_new(output)
    folder = options.chosen_model(model, "translation")
    if output is None and model is not None and not model.exists():
        raise ModelError(f"{model}: a model in the cache of the hub; write the tuned model to another folder with -o")
    changed = folder if output is None else next(path for path in output.resolve().parents if path.exists())
    if not changed.is_dir():
        raise ModelError(f"{output}: {changed} is a file; name another folder with -o")
    if not os.access(changed, os.W_OK):
        raise ModelError(f"{changed}: permission denied; name a folder that you may write to with -o")
    _check_not_training(folder)
    return folder


def _check_not_training(folder: Path) -> None:
    """Refuse the best model of a run that is training: training replaces it, and deletes checkpoints, at any moment."""
    from seq2seq.store.finding import run_of_model
    from seq2seq.tasks.run_folder import RunFolder

    path = run_of_model(folder)
    if path is not None and (run := RunFolder.at(path)).is_training():
        raise ModelError(
            f"{run.path}: another process trains in this run; wait for it, stop it, or tune a copy of {run.best} with "
            "--source and --reference"
        )


def _tunable(folder: Path) -> "LoadedModel":
    """Return the model, without its weights.

    Raises:
        ModelError: the folder has no search settings that can be changed.
    """
    from seq2seq.files import read_object
    from seq2seq.interop.architectures import KINDS
    from seq2seq.interop.ctranslate2 import is_ctranslate2
    from seq2seq.store.finding import CONFIG
    from seq2seq.store.model_folder import GENERATION, load_outline

    if is_ctranslate2(folder):
        raise ModelError(
            f"{folder}: a CTranslate2 folder; tune the model that it was converted from, then convert it again"
        )
    model = load_outline(folder)
    if model.description.task != "translation":
        raise ModelError(f"{folder}: a classifier has no search settings; name a translation model")
    settings = folder / GENERATION  # which other programs may leave out
    if "search" not in (read_object(settings) if settings.exists() else {}):
        kinds = " or ".join(kind for kind, name in KINDS.items() if name == read_object(folder / CONFIG)["model_type"])
        raise ModelError(
            f"{folder}: a folder of transformers; import it first: s2s convert {typed(folder)} --from {kinds} -o MODEL"
        )
    return model


def _named(model: "LoadedModel", direction: "Direction", is_of_many: bool) -> "Direction":
    """Return the named languages, under the model's names. A run of many directions (`is_of_many`) needs none."""
    from seq2seq.store.direction import OPTIONS
    from seq2seq.text.direction import Direction, find_language

    if not is_of_many:
        described = model.directed(direction).description
        return Direction(described.source_language, described.target_language)
    choices = model.tokenizers.choices
    named = {side: name for side, name in vars(direction).items() if name is not None}
    return Direction(**{side: find_language(name, choices[side], OPTIONS[side]) for side, name in named.items()})


def _directions(pairs: "Sequence[Pair]", direction: "Direction") -> dict[str, list[str]]:
    """Return the directions on which a model of many languages is tuned, for the result, and log them."""
    from seq2seq.languages import direction_name

    found = dict.fromkeys(pair.direction or (direction.source, direction.target) for pair in pairs)
    names = [direction_name(filter(None, sides)) for sides in found]
    logger.info("tuning on %s; the settings apply to all directions of the model", ", ".join(names))
    return {"directions": names}


def _run_config(folder: Path) -> "Config | None":
    from seq2seq.config.file import load
    from seq2seq.store.finding import RUN_CONFIG, run_of_model

    run = run_of_model(folder)
    return load(run / RUN_CONFIG, check_files=False) if run is not None else None


def _pairs(
    folder: Path, config: "Config | None", source: Path | None, reference: Path | None, direction: "Direction"
) -> "list[Pair]":
    from seq2seq.data.examples import Pair

    if source is not None and reference is not None:
        sides = [list(read_lines(path, options.warn_invalid(path))) for path in (source, reference)]
        check_counts(source, len(sides[0]), reference, len(sides[1]))
        pairs = [Pair(*sides) for sides in zip(*sides, strict=True)]
    elif config is None:
        raise DataError(f"{folder}: a model without its run has no validation set; give --source and --reference")
    else:
        try:
            pairs = _of_the_run(config, config.data.valid_sets, direction)
        except DataError as error:
            raise DataError(f"{error}; give --source and --reference") from error
    if not pairs and source is None and config is not None and config.languages is not None:
        named = " ".join(
            f"{word} {name}" for word, name in zip(("from", "to"), vars(direction).values(), strict=True) if name
        )
        raise DataError(f"data.valid has no pairs {named}; give --source and --reference")
    if not pairs:
        raise DataError(f"{source or 'data.valid'} has no lines; there is nothing to tune on")
    return pairs


def _test_sets(config: "Config | None", direction: "Direction") -> "dict[str, list[Pair]]":
    """Return the test sets of the run that can be read."""
    if config is None:
        return {}
    found = {}
    for name, source in config.data.test.items():
        try:
            found[name] = _of_the_run(config, {name: source}, direction)
        except UserError as error:
            logger.warning("test set %s is left out: %s", name, error)
    return {name: pairs for name, pairs in found.items() if pairs or config.languages is None}


def _of_the_run(config: "Config", sets: "Mapping[str, SourceConfig]", direction: "Direction") -> "list[Pair]":
    """Return the pairs of sets of the run; if it has many directions, only those of the named languages."""
    from seq2seq.data.directions import open_named

    sides = config.source_language, config.target_language
    pairs = chain.from_iterable(open_named(source, name, config.languages, sides) for name, source in sets.items())
    wanted = direction.source, direction.target
    return [
        pair
        for pair in pairs
        if pair.direction is None or all(name in (None, own) for name, own in zip(wanted, pair.direction, strict=True))
    ]


def _means(folder: Path, temporary: Path) -> dict[str, Path]:
    """Return models that are the mean of the last two checkpoints of the run, of the last three, and so on, by name."""
    from seq2seq.store.averaging import average_models
    from seq2seq.store.checkpoint import saved_steps, step_folder

    checkpoints = folder.resolve().parent / "checkpoints"
    if not checkpoints.is_dir():
        return {}
    last = [step_folder(checkpoints, step) for step in sorted(saved_steps(checkpoints))]
    return {
        f"mean of {count}": average_models(last[-count:], temporary / str(count)) for count in range(2, len(last) + 1)
    }


def _keep(
    model: Path, output: Path | None, search: Mapping[str, Any], found: Mapping[str, Any], check: Callable[[], None]
) -> Path:
    """Write the search settings into the model, or a copy of it in `output`, and return its folder.

    `check` raises an error if what was measured is no longer what is written.
    """
    from seq2seq.store.model_folder import update_search

    if output is None:
        check()
        update_search(model, search, found)
        return model
    with atomic.new_folder(output) as temporary:
        atomic.copy_folder(model, temporary)
        update_search(temporary, search, found)
        check()
    return output


def _shown(trial: "Trial") -> str:
    scores = "  ".join(f"{name} {value:.2f}" for name, value in trial.scores.items() if "." not in name)
    settings = f"beam {trial.beam_size}, length penalty {trial.length_penalty:g}"
    return f"{trial.weights}, {settings}: {scores}  ({trial.seconds:.1f} s)"


def _name_of_test(name: str) -> str:
    """Return the key of the scores of a test set; `validation` is that of the validation set."""
    from seq2seq.store.tuning import VALIDATION

    return f"test set {name}" if name == VALIDATION else name


def _table(place: Path, start: "Trial", best: "Trial", result: Mapping[str, Any]) -> Sequence[str]:
    rows = [["", "before", "after"], ["weights", start.weights, best.weights]]
    rows += [["beam size", str(start.beam_size), str(best.beam_size)]]
    rows += [["length penalty", f"{start.length_penalty:g}", f"{best.length_penalty:g}"]]
    for name, scores in result["scores"].items():
        rows += [
            [f"{name} {metric}", *(f"{value:.2f}" for value in change.values())] for metric, change in scores.items()
        ]
    notes = [f"{metric}|{signature}" for metric, signature in result["signatures"].items()]
    if directions := result.get("directions"):
        notes.append(f"tuned on {', '.join(directions)}, for all directions of the model")
    return [*aligned(rows), "", *notes, f"written to {place}"]
