"""`s2s bleu`: translations against references, as files, several systems, or a model's own test sets.

The figures are sacrebleu's (`evaluation.text`); this file reads the lines, translates where a model is given, and
prints.
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq import ranges
from seq2seq.cli.options import (
    ANY_PATH,
    FILE,
    NAMED_FILE,
    Number,
    check_output,
    computing_options,
    engine_options,
    open_output,
    warn_invalid,
)
from seq2seq.errors import DataError, did_you_mean
from seq2seq.lines import read_lines
from seq2seq.ranges import Range

if TYPE_CHECKING:
    from seq2seq.config import Config
    from seq2seq.evaluation.text import Comparison, Score
    from seq2seq.inference.translator import Translation

logger = logging.getLogger("seq2seq.cli")

# A test set: its name (None for files given on the command line), sources and references.
TestSet = tuple[str | None, list[str], list[str]]
# Its name, scores, and what is said of all its translations together, for JSON.
Result = tuple[str | None, "Sequence[Score]", Mapping[str, Any]]


@click.command(
    "bleu",
    short_help="Score translations with BLEU, chrF and TER.",
    epilog="Example: s2s translate < test.en | s2s bleu test.de",
)
@click.argument("reference", required=False, type=FILE)
@click.argument("hypotheses", nargs=-1, type=FILE)
@click.option(
    "--model",
    "models",
    type=ANY_PATH,
    multiple=True,
    help="Translate with this model or run, then score; default: its test sets. Several (repeat it) are compared.",
)
@click.option("--source", type=FILE, help="With --model: text to translate.")
@click.option("--reference", "model_reference", type=FILE, help="With --model: its reference translation.")
@click.option("--test-set", "names", multiple=True, help="With --model: only this test set of the run (repeatable).")
@click.option("-m", "--metrics", help="Any of bleu,chrf,ter [default: bleu,chrf].")
@click.option(
    "--tokenize", help="sacrebleu's tokenizer for BLEU: 13a, intl, zh, char, none, ... [default: by language]."
)
@click.option("--confidence", is_flag=True, help="Add 95 % intervals from 1,000 bootstrap resamples.")
@click.option("-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-w", "--width", type=Number(Range(0, 10)), default=1, show_default=True, help="Decimals.")
@click.option("-b", "--score-only", is_flag=True, help="Print the figures alone.")
@click.option("--beam-size", type=Number(ranges.BEAM_SIZE), help="With --model: hypotheses kept; 1 is greedy.")
@click.option(
    "--length-penalty", type=Number(ranges.LENGTH_PENALTY), help="With --model: a in log-probability / length^a."
)
@click.option("--batch-tokens", type=Number(ranges.COUNT), help="With --model: source tokens decoded together.")
@click.option("-o", "--output", type=NAMED_FILE, help="With --model: keep the translations in this file.")
@engine_options
@computing_options
def command(
    reference: Path | None,
    hypotheses: tuple[Path, ...],
    metrics: str | None,
    tokenize: str | None,
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
    """
    from seq2seq.evaluation.text import check_settings, score_texts

    _check_usage(reference, modelling)
    scoring: dict[str, Any] = {"tokenize": tokenize}
    if metrics is not None:
        scoring["metrics"] = [metric.strip().lower() for metric in metrics.split(",") if metric.strip()]
        if not scoring["metrics"]:
            raise click.UsageError("--metrics names none of bleu,chrf,ter")
    check_settings(scoring.get("metrics", ()), tokenize)
    if modelling["models"]:
        _score_models(scoring, confidence, form, width, score_only, **modelling)
        return
    references = _read(reference)
    if len(hypotheses) > 1:
        _print_comparisons([(None, _compare(hypotheses, references, scoring))], form, width)
        return
    translations = _read(hypotheses[0]) if hypotheses else _read_stdin()
    scores = score_texts(translations, references, confidence=confidence, width=width, **scoring)
    _print_scores([(None, scores, {})], form, width, score_only)


def _check_usage(reference: Path | None, modelling: Mapping[str, Any]) -> None:
    if not modelling["models"]:
        if reference is None:
            raise click.UsageError("give a REFERENCE file, or --model MODEL")
        for name, option in (
            ("source", "--source"), ("model_reference", "--reference"), ("names", "--test-set"), ("output", "-o"),
            ("beam_size", "--beam-size"), ("length_penalty", "--length-penalty"), ("batch_tokens", "--batch-tokens"),
        ):  # fmt: skip
            if modelling[name] not in (None, ()):
                raise click.UsageError(f"{option} belongs to --model MODEL")
    elif reference is not None:
        raise click.UsageError("with --model the reference is given as --reference FILE, beside --source FILE")
    elif (modelling["source"] is None) != (modelling["model_reference"] is None):
        raise click.UsageError(
            "--source and --reference belong together; give both, or neither for the run's test sets"
        )
    elif len(modelling["models"]) > 1 and modelling["output"] is not None:
        raise click.UsageError("-o keeps the translations of one model; give one --model")
    check_output(modelling["output"])


def _read(path: Path) -> list[str]:
    return _with_its_bom(list(read_lines(path, warn_invalid(path), keeps_bom=True)), str(path))


def _read_stdin() -> list[str]:
    from seq2seq.inference.streaming import open_input, read_idle_batches

    batches = read_idle_batches(open_input(None), max_lines=4096, on_invalid=warn_invalid(None), keeps_bom=True)
    return _with_its_bom([line for batch in batches for line in batch], "standard input")


def _with_its_bom(lines: list[str], name: str) -> list[str]:
    """The lines, of which the first keeps a byte order mark: sacrebleu counts it as text, and its figures are ours."""
    if lines and lines[0].startswith("\ufeff"):
        logger.warning("%s: begins with a byte order mark, which sacrebleu counts as text; remove it", name)
    return lines


def _compare(hypotheses: Sequence[Path], references: Sequence[str], scoring: Mapping[str, Any]) -> "Comparison":
    from seq2seq.evaluation.text import compare_systems

    if len(set(hypotheses)) < len(hypotheses):
        raise click.UsageError("a system is given twice; name each file once")
    return compare_systems({str(path): _read(path) for path in hypotheses}, references, **scoring)


def _score_models(
    scoring: dict[str, Any],
    confidence: bool,
    form: str,
    width: int,
    score_only: bool,
    *,
    models: Sequence[Path],
    source: Path | None,
    model_reference: Path | None,
    names: Sequence[str],
    output: Path | None,
    **loading: Any,
) -> None:
    """Translate each test set, and score with what the first run was validated with, unless options say otherwise."""
    from seq2seq.evaluation.text import compare_systems, score_texts
    from seq2seq.store.finding import find_model

    folders = {str(model): find_model(model) for model in models}
    if len({folder.resolve() for folder in folders.values()}) < len(models):
        raise click.UsageError("a model is given twice; name each once")
    first = next(iter(folders.values()))
    config = _run_config(first)
    if source is not None:
        sources = list(read_lines(source, warn_invalid(source)))
        test_sets = [(None, sources, _read(model_reference))]
        _check_counts(source, model_reference, test_sets[0])
    else:
        test_sets = _test_sets(first, config, names)
    outputs = _outputs(output, [name for name, _, _ in test_sets])
    for path in outputs:
        check_output(path, _files_of(config))
    scoring["target_language"] = _target_language(first) if config is None else config.target_language
    if config is not None:
        evaluation = {"metrics": config.evaluation.metrics, "tokenize": config.evaluation.tokenize}
        scoring = {**evaluation, **{key: value for key, value in scoring.items() if value is not None}}
    answers = {model: _translate(folder, test_sets, outputs, loading) for model, folder in folders.items()}
    results, comparisons = [], []
    for number, (name, _, references) in enumerate(test_sets):
        systems = {model: [answer.text for answer in sets[number]] for model, sets in answers.items()}
        if len(systems) > 1:
            comparisons.append((name, compare_systems(systems, references, **scoring)))
            for model, sets in answers.items():
                _degenerate(f"{model}: {name}" if name else model, sets[number])
        else:
            (sets,) = answers.values()
            scores = score_texts(*systems.values(), references, confidence=confidence, width=width, **scoring)
            results.append((name, scores, _degenerate(name, sets[number])))
    if comparisons:
        _print_comparisons(comparisons, form, width)
    else:
        _print_scores(results, form, width, score_only)


def _translate(
    folder: Path, test_sets: Sequence[TestSet], outputs: Sequence[Path | None], loading: Mapping[str, Any]
) -> "list[list[Translation]]":
    """The translations of each test set, kept where they are asked for."""
    from seq2seq.inference.translator import Translator

    translator = Translator.load(folder, **{key: value for key, value in loading.items() if value is not None})
    logger.info("%s: engine: %s", folder, translator.engine_note)
    translated = []
    for (_, sources, _), output in zip(test_sets, outputs, strict=True):
        translated.append(translator.translate(sources))
        if output is not None:
            with open_output(output) as sink:
                for answer in translated[-1]:
                    sink.write(f"{answer.text}\n".encode("utf-8", errors="replace"))
    return translated


def _outputs(output: Path | None, names: Sequence[str | None]) -> list[Path | None]:
    """The file of each test set: the one that was asked for, or several beside it with the names of the test sets."""
    if output is None or len(names) == 1:
        return [output] * len(names)
    return [output.with_stem(f"{output.stem}.{name}") for name in names]


def _files_of(config: "Config | None") -> dict[str, Path]:
    """The files of a run's test sets, by the key that names each."""
    if config is None:
        return {}
    return {
        f"data.test.{name}.{side}": path for name, source in config.data.test.items() for side, path in source.files()
    }


def _target_language(folder: Path) -> str | None:
    from seq2seq.interop.ctranslate2 import is_ctranslate2, read_description
    from seq2seq.store.model_folder import load_model

    description = read_description(folder)[0] if is_ctranslate2(folder) else load_model(folder).description
    return description.target_language


def _degenerate(name: str | None, translations: Sequence["Translation"]) -> dict[str, Any]:
    """How many translations came out degenerate and still are: told, and returned for JSON."""
    from seq2seq.inference.degeneration import summary, symptom_counts

    flags = [translation.flags for translation in translations]
    flagged, counts = symptom_counts(flags)
    logger.info("%s%s", f"{name}: " if name else "", summary(Counter(flags)))
    return {"degenerate": {"lines": flagged, "rate": flagged / len(translations), **counts}}


def _run_config(folder: Path) -> "Config | None":
    """The configuration of the run that the model folder belongs to; None for a model folder on its own."""
    from seq2seq.config_file import load

    path = folder.resolve().parent / "config.yaml"
    return load(path, check_files=False) if path.is_file() else None


def _test_sets(folder: Path, config: "Config | None", names: Sequence[str]) -> list[TestSet]:
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
        test_sets.append((name, [pair.source for pair in pairs], [pair.target for pair in pairs]))
    return test_sets


def _check_counts(source: Path, reference: Path, test_set: TestSet) -> None:
    # before the translating, which may take long
    _, sources, references = test_set
    if len(sources) != len(references):
        raise DataError(f"{source} has {len(sources):,} lines and {reference} {len(references):,}; they must be equal")


def _print_scores(results: Sequence[Result], form: str, width: int, score_only: bool) -> None:
    """One line a score as `sacrebleu` prints it, behind the test set's name where there is one."""
    if form == "json":
        records = [
            {**({"test_set": name} if name else {}), **score.record, **said}
            for name, scores, said in results
            for score in scores
        ]
        single = len(records) == 1 and results[0][0] is None
        click.echo(json.dumps(records[0] if single else records, indent=1, ensure_ascii=False))
        return
    for name, scores, _ in results:
        for score in scores:
            text = f"{score.score:.{width}f}" if score_only else score.line
            click.echo(f"{name}: {text}" if name else text)


def _print_comparisons(comparisons: "Sequence[tuple[str | None, Comparison]]", form: str, width: int) -> None:
    """A table for each test set; its name stands above it where there is one."""
    if form == "json":
        records = [
            {
                **({"test_set": name} if name else {}),
                "system": system,
                **{metric: _as_record(column[row]) for metric, column in comparison.scores.items()},
            }
            for name, comparison in comparisons
            for row, system in enumerate(_shown_systems(comparison))
        ]
        click.echo(json.dumps(records, indent=4, ensure_ascii=False))
        return
    for number, (name, comparison) in enumerate(comparisons):
        if name:
            click.echo(f"{chr(10) if number else ''}{name}")
        _print_comparison(comparison, width)


def _print_comparison(comparison: "Comparison", width: int) -> None:
    rows = [["system", *(f"{metric} (mean ± 95 %)" for metric in comparison.scores)]]
    for row, name in enumerate(_shown_systems(comparison)):
        cells = []
        for column in comparison.scores.values():
            result = column[row]
            cell = f"{result.score:.{width}f} ({result.mean:.{width}f} ± {result.interval:.{width}f})"
            if result.p_value is not None:
                cell += f" p = {result.p_value:.4f}{'*' if result.p_value < 0.05 else ' '}"
            cells.append(cell)
        rows.append([name, *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True)).rstrip())
    click.echo("\n* differs from the baseline (paired bootstrap, p < 0.05)\n")
    for metric, signature in comparison.signatures.items():
        click.echo(f"{metric}|{signature}")


def _shown_systems(comparison: "Comparison") -> list[str]:
    baseline, *others = comparison.systems
    return [f"Baseline: {baseline}", *others]


def _as_record(result: Any) -> dict[str, float | None]:
    """In sacrebleu's own form."""
    return {"score": result.score, "p_value": result.p_value, "mean": result.mean, "ci": result.interval}
