"""`s2s classify`: a label with its probability for each line, or the scores of a classifier on labelled text."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seq2seq import ranges
from seq2seq.cli.options import (
    ANY_PATH,
    EXISTING,
    Number,
    check_output,
    chosen_model,
    computing_options,
    open_output,
    warn_invalid,
)
from seq2seq.errors import DataError, some_of
from seq2seq.lines import readable_again

if TYPE_CHECKING:
    from seq2seq.evaluation.classification import ClassificationReport
    from seq2seq.inference.classifier import Classification, Classifier

BATCH_LINES = 4096


@click.command(
    "classify",
    short_help="Label lines of text, or score a classifier.",
    epilog="Example: s2s classify runs/sst2 < reviews.txt > labels.tsv",
)
@click.argument("model", required=False, type=ANY_PATH)
@click.option("-i", "--input", "input_path", type=EXISTING, help="Text to label [default: standard input].")
@click.option("-o", "--output", type=EXISTING, help="Where the answers go [default: standard output].")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "jsonl", "json"]),
    default="text",
    show_default=True,
    help="text: label, tab, probability; jsonl: all classes, one object per line; json: the scores of --gold.",
)
@click.option(
    "--gold",
    type=EXISTING,
    help="Score on this file instead: TSV or CSV with the columns sentence (or text) and label; without a header the "
    "text is first.",
)
@click.option("--batch-tokens", type=Number(ranges.COUNT), default=4096, show_default=True, help="Tokens per batch.")
@computing_options
def command(
    model: Path | None,
    input_path: Path | None,
    output: Path | None,
    form: str,
    gold: Path | None,
    batch_tokens: int,
    **computing,
) -> None:
    """Label each line of the input: `label<TAB>probability`. A blank line gives an empty line.

    MODEL is a model folder or a run folder [default: the newest run]."""
    if form == ("jsonl" if gold else "json"):
        raise click.UsageError(
            "--format jsonl is for labelling; with --gold use text or json"
            if gold
            else "--format json is for the scores of --gold; use text or jsonl"
        )
    if gold and input_path:
        raise click.UsageError("--gold brings its own text; leave out -i")
    check_output(output)
    from seq2seq.inference.classifier import Classifier
    from seq2seq.inference.streaming import open_input, read_idle_batches

    source = None if gold else open_input(input_path)
    classifier = Classifier.load(chosen_model(model), batch_tokens=batch_tokens, **computing)
    with open_output(output) as sink:
        if gold is not None:
            report = _score(classifier, gold)
            text = json.dumps(report.as_dict(), ensure_ascii=False) if form == "json" else _as_text(report)
            sink.write(f"{text}\n".encode())
            return
        for lines in read_idle_batches(source, BATCH_LINES, on_invalid=warn_invalid(input_path)):
            for line, answer in zip(lines, classifier.classify(lines), strict=True):
                sink.write(f"{_as_json(line, answer) if form == 'jsonl' else _as_line(answer)}\n".encode())
            sink.flush()


def _as_line(answer: "Classification") -> str:
    return f"{answer.label}\t{answer.probability:.4f}" if answer.label else ""


def _as_json(line: str, answer: "Classification") -> str:
    return json.dumps({"text": line, **vars(answer)}, ensure_ascii=False)


def _score(classifier: "Classifier", gold: Path) -> "ClassificationReport":
    from seq2seq.config import SourceConfig
    from seq2seq.data.sources import open_labelled
    from seq2seq.evaluation.classification import classification_report

    with readable_again(gold) as path:
        examples = list(open_labelled(SourceConfig(tsv=path)))
    labels = [classifier.name_of(example.label) for example in examples]
    _check_labels(gold, labels, classifier.labels)
    answers = classifier.classify([example.text for example in examples])
    return classification_report(labels, [answer.label for answer in answers], classifier.labels)


def _check_labels(gold: Path, labels: Sequence[str], known: Sequence[str]) -> None:
    if unknown := sorted(set(labels) - set(known)):
        raise DataError(f"{gold}: the model has no label {some_of(unknown[:1])!r}; its labels are {some_of(known)}")


def _as_text(report: "ClassificationReport") -> str:
    rows = [("", "precision", "recall", "F1", "texts")]
    for label, scores in report.classes.items():
        rows.append((label, *_percent(scores.precision, scores.recall, scores.f1), str(scores.support)))
    rows.append(("macro mean", *_percent(report.precision, report.recall, report.f1), str(report.total)))
    confusion = [("gold \\ predicted", *report.labels)]
    for label, counts in zip(report.labels, report.confusion, strict=True):
        confusion.append((label, *map(str, counts)))
    return f"accuracy {100 * report.accuracy:.2f} %\n\n{_aligned(rows)}\n\n{_aligned(confusion)}"


def _percent(*shares: float) -> Iterable[str]:
    return (f"{100 * share:.2f}" for share in shares)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"{row[0]:<{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    )
