"""The command `s2s classify`: a label with its probability for each line, or the scores on labelled text."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.cli.outputs import check_output, open_output
from seq2seq.errors import DataError, shown, some_of
from seq2seq.lines import aligned, readable_again

if TYPE_CHECKING:
    from seq2seq.evaluation.classification import ClassificationReport
    from seq2seq.inference.classifier import Classification, Classifier


@click.command(cls=Command, reads_input=True, epilog="Example: s2s classify runs/sst2 < reviews.txt > labels.tsv")
@click.argument("models", nargs=-1, type=options.ANY_PATH, metavar="[MODEL]...")
@options.input_option("Text to label [default: standard input].")
@click.option("-o", "--output", type=options.FILE, help="File to write the answers to [default: standard output].")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "jsonl", "json"]),
    default="text",
    help="text: label, tab, probability. jsonl: one object per line, with the probabilities of all labels. json: the "
    "scores of --gold.",
)
@click.option(
    "--gold",
    type=options.FILE,
    help="Score on this file instead: TSV, CSV or .jsonl with the columns sentence (or text) and label. Without a "
    "header, the first column is the text.",
)
@options.batch_tokens_option
@options.computing_options
def command(
    models: tuple[Path, ...], input_path: Path | None, output: Path | None, form: str, gold: Path | None, **loading: Any
) -> None:
    """Label each line of the input: `label<TAB>probability`. A blank line gives an empty line.

    MODEL is a model folder or a run folder [default: the newest classification run]. Several MODELs with the same
    labels form an ensemble, whose probabilities are averaged. To distil an ensemble into one model, train on its output
    with --format jsonl."""
    if gold and form == "jsonl":
        raise click.UsageError("--format jsonl is for labelling; with --gold use text or json")
    if not gold and form == "json":
        raise click.UsageError("--format json is for the scores of --gold; use text or jsonl")
    if gold and input_path:
        raise click.UsageError("--gold FILE contains the text to label; leave out -i")
    check_output(output)
    if gold or input_path:
        options.name_unread_input(f"{'--gold' if gold else '-i'} names a file", gold or input_path)
    from seq2seq.cli.streaming import open_input, read_idle_batches
    from seq2seq.inference.classifier import Classifier

    source = None if gold else open_input(input_path)
    classifier = Classifier.load(*(models or [options.chosen_model(None, "classification")]), **loading)
    with open_output(output) as sink:
        if gold is not None:
            report = _score(classifier, gold)
            text = json.dumps(report.as_dict(), ensure_ascii=False) if form == "json" else _as_text(report)
            sink.write(f"{text}\n".encode())
            return
        for lines in read_idle_batches(source, on_invalid=options.warn_invalid(input_path)):
            for line, answer in zip(lines, classifier.classify(lines), strict=True):
                sink.write(f"{_as_line(line, answer, form)}\n".encode())
            sink.flush()


def _score(classifier: "Classifier", gold: Path) -> "ClassificationReport":
    from seq2seq.config.corpora import SourceConfig
    from seq2seq.data.sources import open_labelled
    from seq2seq.evaluation.classification import classification_report

    kind = "jsonl" if gold.name.lower().removesuffix(".gz").endswith(".jsonl") else "tsv"
    with readable_again(gold) as path:
        names = classifier.description.label_names
        examples = list(open_labelled(SourceConfig(**{kind: path}), label_names=names))
    if not examples:
        raise DataError(f"{gold}: no texts with labels; there is nothing to score")
    labels = classifier.names_of([example.label for example in examples])
    known = classifier.labels
    if wrong := next((pair for pair in zip(labels, examples, strict=True) if pair[0] not in known), None):
        label, example = wrong
        problem = f"the model has no label {shown(label)}, which the text {shown(example.text)} has"
        raise DataError(f"{gold}: {problem}; its labels are {some_of(known)}")
    answers = classifier.classify([example.text for example in examples])
    return classification_report(labels, [answer.label for answer in answers], classifier.labels)


def _as_line(line: str, answer: "Classification", form: str) -> str:
    if form == "jsonl":
        return json.dumps({"text": line, **vars(answer)}, ensure_ascii=False)
    return f"{answer.label}\t{answer.probability:.4f}" if answer.label else ""


def _as_text(report: "ClassificationReport") -> str:
    def row(name: str, shares: Any, count: int) -> list[str]:
        return [name, *(f"{100 * share:.2f}" for share in (shares.precision, shares.recall, shares.f1)), str(count)]

    scores = [["", "precision", "recall", "F1", "texts"]]
    scores += [row(label, shares, shares.support) for label, shares in report.classes.items()]
    scores.append(row("macro mean", report, report.total))
    confusion = [["gold \\ predicted", *(label or "(none)" for label in report.labels)]]
    rows = zip(report.labels, report.confusion, strict=True)
    confusion += [[label, *map(str, counts)] for label, counts in rows if label in report.classes]
    accuracy = f"accuracy {100 * report.accuracy:.2f} %"
    return "\n".join([accuracy, "", *aligned(scores, ">"), "", *aligned(confusion, ">")])
