"""`s2s bleu`: scores of translations, from files or by models.

The figures are sacrebleu's (`evaluation.text`); this module reads the lines or lets models translate them, and prints.
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.errors import DataError, did_you_mean
from seq2seq.lines import aligned, check_counts, read_lines
from seq2seq.ranges import Range

if TYPE_CHECKING:
    from seq2seq.config import Config

logger = logging.getLogger("seq2seq.cli")


@dataclass
class TestSet:
    """References, and the translations of each system."""

    name: str | None
    """None for files given on the command line."""
    references: list[str]
    sources: list[str] = field(default_factory=list)
    translations: dict[str, list[str]] = field(default_factory=dict)
    """By system."""
    degenerate: dict[str, Any] = field(default_factory=dict)
    """How many lines a model translated into something degenerate."""


@click.command(epilog="Example: s2s translate < test.en | s2s bleu test.de")
@click.argument("reference", required=False, type=options.FILE)
@click.argument("hypotheses", nargs=-1, type=options.FILE)
@click.option(
    "--model",
    "models",
    type=options.ANY_PATH,
    multiple=True,
    help="Translate with this model or run, then score. Repeatable: several are compared.",
)
@click.option("--source", type=options.FILE, help="With --model: text to translate [default: the run's test sets].")
@click.option("--reference", "model_reference", type=options.FILE, help="With --model: its reference translation.")
@click.option("--test-set", "names", multiple=True, help="With --model: only this test set of the run; repeatable.")
@click.option("-m", "--metrics", help="Any of bleu,chrf,ter [default: bleu,chrf].")
@click.option(
    "--tokenize", help="sacrebleu's tokenizer for BLEU: 13a, intl, zh, char, none, ... [default: by language]."
)
@click.option("--lowercase", is_flag=True, help="Ignore case in BLEU and chrF; TER always does.")
@click.option("--confidence", is_flag=True, help="Add 95 % bootstrap intervals; several systems always have them.")
@options.format_option
@click.option("-w", "--width", type=options.Number(Range(0, 10)), default=1, help="Decimals.")
@click.option("-b", "--score-only", is_flag=True, help="Print the figures alone.")
@click.option("-o", "--output", type=options.NAMED_FILE, help="Write the translations to this file.")
@options.search_options
@options.engine_options
@options.computing_options
def command(
    reference: Path | None,
    hypotheses: tuple[Path, ...],
    metrics: str | None,
    tokenize: str | None,
    lowercase: bool,
    confidence: bool,
    form: str,
    width: int,
    score_only: bool,
    **modelling: Any,
) -> None:
    """Score translations.

    \b
    s2s bleu REFERENCE < HYPOTHESIS        one system
    s2s bleu REFERENCE HYP [HYP...]        several: a table, each tested against the first
    s2s bleu --model MODEL                 translate the run's test sets, then score
    s2s bleu --model MODEL --source FILE --reference FILE
    s2s bleu --model A --model B           both translate A's test sets, each model tested against the first

    The options from -o on are for --model.
    """
    from seq2seq.evaluation.text import check_settings

    _check_usage(reference, modelling)
    if score_only and max(len(hypotheses), len(modelling["models"])) > 1:
        raise click.UsageError("--score-only prints the figures of one system; several are a table, or --format json")
    scoring: dict[str, Any] = {"lowercase": lowercase} | ({} if tokenize is None else {"tokenize": tokenize})
    if metrics is not None:
        scoring["metrics"] = [metric.strip().lower() for metric in metrics.split(",") if metric.strip()]
        if not scoring["metrics"]:
            raise click.UsageError("--metrics names none of bleu,chrf,ter")
    check_settings(scoring.get("metrics", ()), tokenize)
    if modelling["models"]:
        test_sets, defaults = _translate(**modelling)
        scoring = defaults | scoring
    else:
        if len(set(hypotheses)) < len(hypotheses):
            raise click.UsageError("a system is given twice; name each file once")
        test_sets = [TestSet(None, _read(reference))]
        test_sets[0].translations = {str(path): _read(path) for path in hypotheses or (None,)}
    records: list[dict[str, Any]] = []
    lines: list[str] = []
    for test_set in test_sets:
        named = {} if test_set.name is None else {"test_set": test_set.name}
        if len(test_set.translations) > 1:
            found, table = _compare(test_set, scoring, width)
            title = [test_set.name] if test_set.name else []
            lines += ["", *title, *table] if lines else [*title, *table]
        else:
            found, plain = _score(test_set, scoring, confidence, width, score_only)
            lines += [f"{test_set.name}: {line}" if test_set.name else line for line in plain]
        records += [named | record for record in found]
    if form == "json":
        is_one = len(records) == 1 and test_sets[0].name is None
        lines = [json.dumps(records[0] if is_one else records, indent=1, ensure_ascii=False, default=float)]
    for line in lines:
        click.echo(line)


def _check_usage(reference: Path | None, modelling: Mapping[str, Any]) -> None:
    if not modelling["models"]:
        if reference is None:
            raise click.UsageError("give a REFERENCE file, or --model MODEL")
        options.only_for("--model MODEL", *modelling)
    elif reference is not None:
        raise click.UsageError("with --model the reference is given as --reference FILE, beside --source FILE")
    elif (modelling["source"] is None) != (modelling["model_reference"] is None):
        raise click.UsageError(
            "--source and --reference belong together; give both, or neither for the run's test sets"
        )
    elif modelling["source"] is not None and modelling["names"]:
        raise click.UsageError("--test-set names a test set of the run; leave out --source and --reference")
    elif len(modelling["models"]) > 1 and modelling["output"] is not None:
        raise click.UsageError("-o keeps the translations of one model; give one --model")
    options.check_output(modelling["output"])


def _score(
    test_set: TestSet, scoring: Mapping[str, Any], confidence: bool, width: int, score_only: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """The scores of one system: as sacrebleu's JSON, and as its lines."""
    from seq2seq.evaluation.text import score_texts

    (translations,) = test_set.translations.values()
    scores = score_texts(translations, test_set.references, confidence=confidence, **scoring)
    more = {"degenerate": test_set.degenerate} if test_set.degenerate else {}
    records = [json.loads(score.format(width, is_json=True)) | more for score in scores]
    return records, [f"{score.score:.{width}f}" if score_only else score.format(width) for score in scores]


def _compare(test_set: TestSet, scoring: Mapping[str, Any], width: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Several systems: as sacrebleu's JSON, and as a table."""
    from seq2seq.evaluation.text import compare_systems

    results, signatures = compare_systems(test_set.translations, test_set.references, **scoring)
    baseline, *others = test_set.translations
    systems = [f"Baseline: {baseline}", *others]
    rows = [["system", *(f"{metric} (mean ± 95 %)" for metric in results)]]
    records = []
    for system, *row in zip(systems, *results.values(), strict=True):
        cells = [f"{one.score:.{width}f} ({one.mean:.{width}f} ± {one.ci:.{width}f})" for one in row]
        if system is not systems[0]:
            p_values = (f"p = {one.p_value:.4f}{'*' if one.p_value < 0.05 else ' '}" for one in row)
            cells = [f"{cell} {p_value}" for cell, p_value in zip(cells, p_values, strict=True)]
        rows.append([system, *cells])
        records.append({"system": system, **dict(zip(results, map(vars, row), strict=True))})
    notes = ["", "* differs from the baseline (paired bootstrap, p < 0.05)", ""]
    return records, [*aligned(rows), *notes, *(f"{metric}|{text}" for metric, text in signatures.items())]


def _read(path: Path | None) -> list[str]:
    """The lines of a file, or of standard input; a byte order mark stays, because sacrebleu counts it as text."""
    if path is None:
        from seq2seq.inference.streaming import open_input, read_idle_batches

        batches = read_idle_batches(open_input(None), on_invalid=options.warn_invalid(None), keeps_bom=True)
        lines = list(chain.from_iterable(batches))
    else:
        lines = list(read_lines(path, options.warn_invalid(path), keeps_bom=True))
    if lines and lines[0].startswith("\ufeff"):
        name = path or "standard input"
        logger.warning("%s: begins with a byte order mark, which sacrebleu counts as text; remove it", name)
    return lines


def _translate(
    *,
    models: Sequence[Path],
    source: Path | None,
    model_reference: Path | None,
    names: Sequence[str],
    output: Path | None,
    **loading: Any,
) -> tuple[list[TestSet], dict[str, Any]]:
    """The test sets with the translations of each model, and the first model's defaults for `score_texts`."""
    from seq2seq.config_file import load
    from seq2seq.inference.degeneration import summary, symptom_counts
    from seq2seq.inference.translator import Translator
    from seq2seq.store.finding import find_model

    folders = {str(model): find_model(model) for model in models}
    if len({folder.resolve() for folder in folders.values()}) < len(models):
        raise click.UsageError("a model is given twice; name each once")
    first = folders[str(models[0])]
    run_config = first.resolve().parent / "config.yaml"
    config = load(run_config, check_files=False) if run_config.is_file() else None
    test_sets = _run_test_sets(first, config, names) if source is None else [_given_test_set(source, model_reference)]
    if empty := [test_set.name or model_reference for test_set in test_sets if not test_set.references]:
        raise DataError(f"{empty[0]} has no lines; there is nothing to score")
    outputs = [output] * len(test_sets)
    if output is not None and len(test_sets) > 1:  # a file for each
        outputs = [output.with_stem(f"{output.stem}.{test_set.name}") for test_set in test_sets]
    inputs = config.data.test.items() if config is not None else ()
    also = {f"data.test.{name}.{side}": path for name, files in inputs for side, path in files.files()}
    for path in outputs:
        options.check_output(path, also)
    for model, folder in folders.items():
        translator = Translator.load(folder, **{key: value for key, value in loading.items() if value is not None})
        logger.info("%s: engine: %s", folder, translator.engine_note)
        for test_set, path in zip(test_sets, outputs, strict=True):
            translations = translator.translate(test_set.sources)
            texts = test_set.translations[model] = [translation.text for translation in translations]
            if path is not None:
                with options.open_output(path) as sink:
                    sink.writelines(f"{text}\n".encode("utf-8", errors="replace") for text in texts)
            flags = [translation.flags for translation in translations]
            num_lines, counts = symptom_counts(flags)
            test_set.degenerate = {"lines": num_lines, "rate": num_lines / len(flags), **counts}
            about = [model] * (len(models) > 1) + [test_set.name] * (test_set.name is not None)
            logger.info("%s", ": ".join([*about, summary(Counter(flags))]))
    if config is None:
        return test_sets, {"target_language": _target_language(first)}
    evaluation = {"metrics": config.evaluation.metrics, "tokenize": config.evaluation.tokenize}
    return test_sets, evaluation | {"target_language": config.target_language}


def _given_test_set(source: Path, reference: Path) -> TestSet:
    test_set = TestSet(None, _read(reference), list(read_lines(source, options.warn_invalid(source))))
    check_counts(source, len(test_set.sources), reference, len(test_set.references))
    return test_set


def _run_test_sets(folder: Path, config: "Config | None", names: Sequence[str]) -> list[TestSet]:
    from seq2seq.data.sources import open_pairs

    if config is None:
        raise DataError(f"{folder}: a model without its run has no test sets; give --source FILE and --reference FILE")
    if not config.data.test:
        raise DataError(f"{folder}: its config names no test sets (data.test); give --source FILE and --reference FILE")
    for name in names:
        if name not in config.data.test:
            known = ", ".join(config.data.test)
            raise DataError(f"--test-set {name}: the run has {known}{did_you_mean(name, config.data.test)}")
    test_sets = []
    for name in names or config.data.test:
        pairs = list(open_pairs(config.data.test[name], config.source_language, config.target_language))
        test_sets.append(TestSet(name, [pair.target for pair in pairs], [pair.source for pair in pairs]))
    return test_sets


def _target_language(folder: Path) -> str | None:
    from seq2seq.interop.ctranslate2 import is_ctranslate2, read_description
    from seq2seq.store.model_folder import load_model

    description = read_description(folder)[0] if is_ctranslate2(folder) else load_model(folder).description
    return description.target_language
