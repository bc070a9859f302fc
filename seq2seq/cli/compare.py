"""The command `s2s compare`: several runs, models or files of translations on one test set.

`cli.test_sets` lets models translate, as for `s2s bleu --model`; `workflows.compare` compares, and this module prints a
table or JSON, and writes a page.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.cli.outputs import check_output, open_output
from seq2seq.cli.test_sets import (
    TestSet,
    TranslatingModels,
    check_scoring,
    given_lines,
    given_references,
    named_metrics,
    warn_of_misleading,
)
from seq2seq.errors import DataError, UserError, counted, did_you_mean
from seq2seq.hub import is_hub_name
from seq2seq.lines import aligned, check_counts, read_lines, shown_json

if TYPE_CHECKING:
    from seq2seq.workflows.compare.comparison import PairTest, SystemComparison
    from seq2seq.workflows.compare.systems import System

logger = logging.getLogger("seq2seq.cli")

DEFAULT_METRICS = ("bleu", "chrf", "ter")


@click.command(cls=Command, epilog="Example: s2s compare runs/base runs/wide --html report.html")
@click.argument("systems", nargs=-1, required=True, type=options.ANY_PATH)
@options.references_option("Reference translation; repeatable [default: a test set of the first run].")
@click.option("--source", type=options.FILE, help="Source text of --reference.")
@click.option(
    "--test-set", "name", help="Test set of the first run, such as news or 'news en-de' [default: its first]."
)
@click.option("--training", type=options.FILE, help="Source side of training data, to group results by rare words.")
@options.scoring_options(",".join(DEFAULT_METRICS))
@click.option("--each-seed", "apart", is_flag=True, help="Show runs that differ only in their seed as separate rows.")
@click.option(
    "-o",
    "--html",
    "output",
    type=options.NAMED_FILE,
    help="HTML page to write, with groups of sentences and single sentences.",
)
@click.option("-f", "--format", "form", type=click.Choice(["table", "json"]), default="table", help="Output format.")
@options.direction_options
@options.search_options
@options.engine_options
@options.computing_options
def command(
    systems: tuple[Path, ...],
    references: tuple[Path, ...],
    source: Path | None,
    name: str | None,
    training: Path | None,
    metrics: str | None,
    tokenize: str | None,
    lowercase: bool,
    apart: bool,
    output: Path | None,
    form: str,
    **modelling: Any,
) -> None:
    """Compare SYSTEMS, each a run, a model or a file of translations, on one test set.

    Every score has a 95 % interval, and all pairs are tested by paired bootstrap with Holm's correction. Systems that
    share a letter do not differ significantly. Runs that differ only in their seed form one row. A file has a
    translation on each line, or is JSON Lines of s2s translate (.jsonl).
    """
    from seq2seq.evaluation.significance import seed
    from seq2seq.workflows.compare.comparison import TestLines, compare
    from seq2seq.workflows.compare.page import page

    folders = [path for path in systems if path.is_dir() or not path.exists()]
    _check_usage(systems, folders, references, source, name)
    check_output(output)
    scoring: dict[str, Any] = {"tokenize": tokenize, "lowercase": lowercase}
    wanted = list(DEFAULT_METRICS) if metrics is None else named_metrics(metrics)
    check_scoring(wanted, tokenize)
    seed()
    models = TranslatingModels.find(folders) if folders else None
    if models is not None:
        defaults = {key: models.scoring[key] for key in ("tokenize", "target_language") if models.scoring.get(key)}
        if modelling["target_language"] is not None:
            defaults["target_language"] = modelling["target_language"]
        scoring = defaults | {key: value for key, value in scoring.items() if value is not None}
    test_set = _test_set(models, references, source, name)
    counted_words = _training_counts(models, training, test_set, modelling["source_language"])
    translated = {path: _file(path, test_set) for path in systems if path not in folders}
    if models is not None:
        models.outputs([test_set], output)  # the page replaces none of its files
        models.translate([test_set], [None], modelling)
        translated |= {path: _translated(path, test_set, modelling) for path in folders}
    scoring = test_set.scoring(scoring)
    lines = [translated[path].translations for path in systems]
    warn_of_misleading(test_set.references, lines, wanted, scoring)
    test = TestLines(test_set.name or str(references[0]), test_set.references, test_set.sources, *counted_words)
    compared = compare([translated[path] for path in systems], test, wanted, apart, **scoring)
    for note in compared.notes:
        logger.warning("%s", note)
    if output is not None:
        with open_output(output) as sink:
            sink.write(page(compared).encode("utf-8", errors="replace"))
    if form == "json":
        click.echo(shown_json(compared.as_json(), indent=1))
        return
    for line in _table(compared):
        click.echo(line)


def _check_usage(
    systems: Sequence[Path],
    folders: Sequence[Path],
    references: Sequence[Path],
    source: Path | None,
    name: str | None,
) -> None:
    """Refuse a command line that lacks an argument, or has an option without effect."""
    if len({path.resolve() for path in systems}) < len(systems):
        raise click.UsageError("a system is given twice; name each once")
    if len(systems) < 2:
        raise click.UsageError("give two systems or more; s2s bleu scores one")
    if source is not None and not references:
        raise click.UsageError("--source and --reference belong together; give both")
    if name is not None and references:
        raise click.UsageError("--test-set names a test set of the first run; leave out --reference")
    for path in folders:
        if not path.exists() and not is_hub_name(path):
            others = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
            raise DataError(f"{path}: no such file or folder{did_you_mean(path.name, others)}")
    if not folders:
        if not references:
            raise click.UsageError("files of translations need --reference FILE")
        options.only_for("runs and models; all SYSTEMS are files", "beam_size", "length_penalty", "batch_tokens")
        options.only_for("runs and models; all SYSTEMS are files", "engine", "quantization", "record", "device")
        options.only_for(
            "runs and models; all SYSTEMS are files", "precision", "threads", "source_language", "target_language"
        )
    elif references and source is None:
        raise click.UsageError("runs and models translate --source FILE; give it next to --reference")
    if source is None and not folders:
        options.only_for("views of source words; give --source too", "training")
    options.refuse_standard_input("s2s compare reads files")


def _test_set(
    models: TranslatingModels | None, references: Sequence[Path], source: Path | None, name: str | None
) -> TestSet:
    if models is None or references:
        test_set = TestSet(None, given_references(references))
        if source is not None:
            test_set.sources = list(read_lines(source, options.warn_invalid(source)))
            check_counts(source, len(test_set.sources), references[0], len(test_set.references[0]))
    else:
        test_set, *others = models.test_sets(None, (), [name] if name else ())
        if others:
            names = " or ".join(other.choice for other in others)
            logger.info("comparing on %s; --test-set chooses %s", test_set.name, names)
    if not test_set.references[0]:
        raise DataError(f"{test_set.name or references[0]} has no lines; there is nothing to compare")
    return test_set


def _file(path: Path, test_set: TestSet) -> "System":
    """Return the translations in a file, whose number of lines is checked before models translate for minutes."""
    from seq2seq.workflows.compare.systems import file_system

    system = file_system(path, given_lines(path))
    count, wanted = len(system.translations), len(test_set.references[0])
    if count != wanted:
        has = f"{counted(count, 'translation')} for {counted(wanted, 'reference')}"
        raise DataError(f"{path} has {has}; give one line for each")
    return system


def _translated(path: Path, test_set: TestSet, modelling: Mapping[str, Any]) -> "System":
    from seq2seq.workflows.compare.systems import System
    from seq2seq.workflows.runs import run_of

    name = str(path)
    given = frozenset(key for key, value in modelling.items() if value is not None)
    return System(name, test_set.translations[name], test_set.flags[name], run_of(path), options=given)


def _training_counts(
    models: TranslatingModels | None, training: Path | None, test_set: TestSet, language: str | None
) -> tuple[Mapping[str, int] | None, str]:
    """Return how often source words occur in training data, and a note; None, with a log line, if it is not available.

    `language` is that of the sources, if the test set has no direction.
    """
    from seq2seq.workflows.compare.systems import training_texts
    from seq2seq.workflows.compare.views import count_training_words

    sources = test_set.sources
    if not sources or (training is None and (models is None or models.config is None)):
        return None, ""
    if training is not None:
        return count_training_words([read_lines(training, options.warn_invalid(training))], sources)
    try:
        language = test_set.direction[0] if test_set.direction else language
        return count_training_words(training_texts(models.config, language), sources)
    except UserError as error:
        logger.info("no view by rare words: %s", error)
        return None, ""


def _table(compared: "SystemComparison") -> Iterator[str]:
    """Yield the comparison as lines for people."""
    from seq2seq.workflows.compare.wording import cell, described, first_seed_note, meaning_of_p

    yield f"{compared.test_set}: {counted(compared.num_lines, 'line')}"
    yield ""
    titles = [f"{title} (± 95 %)" for title in compared.titles.values()]
    rows = [[name, *(cell(row[metric]) for metric in compared.titles)] for name, row in compared.rows.items()]
    yield from aligned([["system", *titles], *rows])
    for name, row in compared.rows.items():
        members = next(iter(row.values())).members
        if len(members) > 1:
            yield f"{name}: {', '.join(members)}"
    yield ""
    if len(compared.rows) > 1:
        yield "Systems that share a letter do not differ significantly: their corrected p is at least 0.05."
        yield from meaning_of_p(compared.pairs)
        yield ""
        yield from aligned([_pair(compared, pair) for pair in compared.pairs])
        yield ""
    if (note := first_seed_note(compared)) and len(compared.rows) > 1:
        yield note
    yield from (line for line in map(described, compared.sentences) if line)
    yield from (f"{compared.titles[metric]}|{text}" for metric, text in compared.signatures.items())


def _pair(compared: "SystemComparison", pair: "PairTest") -> list[str]:
    from seq2seq.workflows.compare.wording import p_of, shown_p, verdict

    return [
        f"{pair.first} - {pair.second}", compared.titles[pair.metric], f"{pair.difference:+.2f}",
        f"p {p_of(pair)}", f"corrected {shown_p(pair.corrected)}", verdict(pair),
    ]  # fmt: skip
