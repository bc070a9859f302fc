"""The command `s2s bleu`: scores of translations, from files or by models.

`evaluation.text` computes scores with sacrebleu; `cli.test_sets` reads the lines or lets models translate them, and
this module prints.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.cli.outputs import check_output
from seq2seq.cli.test_sets import (
    TestSet,
    TranslatingModels,
    check_scoring,
    given_files,
    named_metrics,
    warn_of_misleading,
)
from seq2seq.config.ranges import Range
from seq2seq.lines import aligned, shown_json

logger = logging.getLogger("seq2seq.cli")

DEFAULT_METRICS = ("bleu", "chrf")


@click.command(cls=Command, reads_input=True, epilog="Example: s2s translate < test.en | s2s bleu test.de")
@click.argument("reference", required=False, type=options.FILE)
@click.argument("hypotheses", nargs=-1, type=options.FILE)
@click.option(
    "--model",
    "models",
    type=options.ANY_PATH,
    multiple=True,
    help="Translate with this model or run, then score. Repeatable: several models are compared.",
)
@click.option("--source", type=options.FILE, help="With --model: text to translate [default: the run's test sets].")
@options.references_option(
    "With --model: reference translation of --source. Without --model: a further reference. Repeatable."
)
@click.option(
    "--test-set",
    "names",
    multiple=True,
    help="With --model: only this test set of the run, such as news or 'news en-de'; repeatable.",
)
@options.scoring_options(",".join(DEFAULT_METRICS))
@click.option(
    "--confidence", is_flag=True, help="Print 95 % bootstrap intervals; for several systems they are always printed."
)
@click.option("--sentence-level", "by_line", is_flag=True, help="Print the scores of each line, separated by tabs.")
@options.format_option
@click.option("-w", "--width", type=options.Number(Range(0, 10)), default=1, help="Number of decimals.")
@click.option("-b", "--score-only", is_flag=True, help="Print only the figures.")
@click.option("-o", "--output", type=options.NAMED_FILE, help="With --model: file to write the translations to.")
@options.direction_options
@options.search_options
@options.engine_options
@options.computing_options
def command(
    reference: Path | None,
    hypotheses: tuple[Path, ...],
    models: tuple[Path, ...],
    references: tuple[Path, ...],
    metrics: str | None,
    tokenize: str | None,
    lowercase: bool,
    confidence: bool,
    by_line: bool,
    form: str,
    width: int,
    score_only: bool,
    **modelling: Any,
) -> None:
    """Score translations with BLEU, chrF and TER, computed by sacrebleu.

    \b
    s2s bleu REFERENCE < HYPOTHESIS        score one system
    s2s bleu REFERENCE HYP [HYP...]        compare several systems with the first, in a table
    s2s bleu REFERENCE -r REFERENCE2 < HYPOTHESIS
    s2s bleu --model MODEL                 translate the test sets of the run, then score
    s2s bleu --model MODEL --source FILE --reference FILE
    s2s bleu --model A --model B           translate A's test sets with both, compare them with the first

    -o and the options after it apply only to --model.
    """
    _check_usage(reference, references, models, modelling)
    has_several = len(hypotheses) > 1 or len(models) > 1
    _check_form(has_several, form)
    if has_several or confidence:
        from seq2seq.evaluation.significance import seed

        seed()
    scoring: dict[str, Any] = {"lowercase": lowercase} | ({} if tokenize is None else {"tokenize": tokenize})
    if metrics is not None:
        scoring["metrics"] = named_metrics(metrics)
        check_scoring(scoring["metrics"], tokenize)
    if models:
        translating = TranslatingModels.find(models)
        defaults = translating.scoring
        if (language := modelling["target_language"]) is not None:
            defaults["target_language"] = language
        scoring = defaults | scoring
        check_scoring(scoring.get("metrics", DEFAULT_METRICS), scoring.get("tokenize"))
        source, names, output = (modelling.pop(key) for key in ("source", "names", "output"))
        test_sets = translating.test_sets(source, references, names)
        if by_line and len(test_sets) > 1:
            raise click.UsageError("--sentence-level scores the lines of one test set; choose it with --test-set")
        outputs = translating.outputs(test_sets, output)
        options.name_unread_input("--model translates files", *filter(None, [source]))
        translating.translate(test_sets, outputs, modelling)
    else:
        check_scoring(scoring.get("metrics", DEFAULT_METRICS), tokenize)
        if hypotheses:
            options.refuse_standard_input("the HYPOTHESIS files are scored; leave out one of the two")
        given = [path for path in (reference, *references) if path is not None]
        test_sets = [given_files(given, hypotheses)]
    _print(test_sets, scoring, form, width, confidence, by_line, score_only)


def _check_usage(
    reference: Path | None, references: Sequence[Path], models: Sequence[Path], modelling: Mapping[str, Any]
) -> None:
    """Refuse a command line that lacks an argument, or has one without effect."""
    if not models:
        if reference is None and not references:
            raise click.UsageError("give a REFERENCE file, or --model MODEL")
        options.only_for("--model MODEL", *modelling)
        return
    if reference is not None:
        raise click.UsageError("with --model, give the reference as --reference FILE, together with --source FILE")
    if (modelling["source"] is None) != (not references):
        raise click.UsageError(
            "--source and --reference belong together; give both, or neither for the run's test sets"
        )
    if modelling["source"] is not None and modelling["names"]:
        raise click.UsageError("--test-set names a test set of the run; leave out --source and --reference")
    if len(models) > 1 and modelling["output"] is not None:
        raise click.UsageError("-o writes the translations of one model; give one --model")
    check_output(modelling["output"])


def _check_form(is_table: bool, form: str) -> None:
    """Refuse options of the output format that exclude each other."""
    if is_table:
        options.only_for("one system; several are printed as a table, or with --format json", "score_only", "by_line")
        if form == "json":
            options.only_for("text; the JSON of several systems has all decimals", "width")
    if form == "json":
        options.only_for("text; leave out --format json", "score_only")
    if click.get_current_context().params["by_line"]:
        options.only_for("the scores of a whole text; leave out --sentence-level", "score_only", "confidence")


def _print(
    test_sets: Sequence[TestSet], scoring: Mapping[str, Any], form: str, width: int, confidence: bool, by_line: bool,
    score_only: bool,
) -> None:  # fmt: skip
    """Print the scores of all test sets as text or JSON."""
    records: list[dict[str, Any]] = []
    lines: list[str] = []
    means: dict[str, list[float]] = {}
    for test_set in test_sets:
        own = test_set.scoring(scoring)
        metrics = own.get("metrics", DEFAULT_METRICS)
        warn_of_misleading(test_set.references, test_set.translations.values(), metrics, own)
        named = {} if test_set.name is None else {"test_set": test_set.name}
        if by_line:
            scored, rows = _score_lines(test_set, own, width)
            lines += rows
        elif len(test_set.translations) > 1:
            scored, table = _compare(test_set, own, width, form)
            title = [test_set.name] if test_set.name else []
            lines += ["", *title, *table] if lines else [*title, *table]
        else:
            scored, plain, figures = _score(test_set, own, confidence, width, score_only)
            lines += [f"{test_set.name}: {line}" if test_set.name else line for line in plain]
            for metric, figure in figures.items() if test_set.direction is not None else ():
                means.setdefault(metric, []).append(figure)
        records += [named | record for record in scored]
    for metric, values in means.items():
        if len(values) > 1:
            mean = f"{sum(values) / len(values):.{width}f}"
            lines.append(f"mean of {len(values)}: {mean if score_only else f'{metric} = {mean}'}")
    if form == "json":
        is_one = len(records) == 1 and test_sets[0].name is None and not by_line
        lines = [shown_json(records[0] if is_one else records, indent=1, default=float)]
    for line in lines:
        click.echo(line)


def _score(
    test_set: TestSet, scoring: Mapping[str, Any], confidence: bool, width: int, score_only: bool
) -> tuple[list[dict[str, Any]], list[str], dict[str, float]]:
    """Return the scores of one system, as sacrebleu's JSON, as its lines, and as figures that are not rounded."""
    from seq2seq.evaluation.text import score_texts

    (translations,) = test_set.translations.values()
    first, *others = test_set.references
    scores = score_texts(translations, first, confidence=confidence, other_references=others, **scoring)
    more = {"degenerate": test_set.degenerate} if test_set.degenerate else {}
    if test_set.off_target:
        more["off_target"] = next(iter(test_set.off_target.values()))
    records = [json.loads(score.format(width, is_json=True)) | more for score in scores]
    lines = [f"{score.score:.{width}f}" if score_only else score.format(width) for score in scores]
    return records, lines, {record["name"]: score.score for record, score in zip(records, scores, strict=True)}


def _score_lines(test_set: TestSet, scoring: Mapping[str, Any], width: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the scores of each line of one system, as JSON and as lines; log the signatures."""
    from seq2seq.evaluation.text import score_sentences

    (translations,) = test_set.translations.values()
    first, *others = test_set.references
    scores, signatures = score_sentences(translations, first, other_references=others, **scoring)
    for metric, signature in signatures.items():
        logger.info("%s|%s", metric, signature)
    rows = list(zip(*scores.values(), strict=True))
    records = [dict(zip(scores, (round(value, width) for value in row), strict=True)) for row in rows]
    return records, ["\t".join(f"{value:.{width}f}" for value in row) for row in rows]


def _compare(
    test_set: TestSet, scoring: Mapping[str, Any], width: int, form: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the comparison of several systems, as sacrebleu's JSON and as a table; log the signatures of JSON."""
    from seq2seq.evaluation.text import compare_systems

    first, *others = test_set.references
    results, signatures = compare_systems(test_set.translations, first, other_references=others, **scoring)
    of_scores = [f"{metric}|{text}" for metric, text in signatures.items()]
    for each in of_scores if form == "json" else ():  # sacrebleu's JSON of several systems has no place for them
        logger.info("%s", each)
    baseline, *others = test_set.translations
    systems = [f"Baseline: {baseline}", *others]
    rows = [["system", *(f"{metric} (mean ± 95 %)" for metric in results)]]
    records = []
    for system, *row in zip(systems, *results.values(), strict=True):
        cells = [f"{each.score:.{width}f} ({each.mean:.{width}f} ± {each.ci:.{width}f})" for each in row]
        if system is not systems[0]:
            p_values = (f"p = {each.p_value:.4f}{'*' if each.p_value < 0.05 else ' '}" for each in row)
            cells = [f"{cell} {p_value}" for cell, p_value in zip(cells, p_values, strict=True)]
        rows.append([system, *cells])
        of_model = test_set.off_target.get(system.removeprefix("Baseline: "))
        more = {"off_target": of_model} if of_model else {}
        records.append({"system": system, **dict(zip(results, map(vars, row), strict=True)), **more})
    notes = ["", "* differs from the baseline (paired bootstrap, p < 0.05)", ""]
    return records, [*aligned(rows), *notes, *of_scores]
