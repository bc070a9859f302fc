"""The command `s2s plot`: learning curves of a run, attention of its model, or speed and BLEU of students."""

import logging
from pathlib import Path
from typing import Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.cli.outputs import check_output
from seq2seq.config import ranges
from seq2seq.errors import ModelError, counted, some_of
from seq2seq.store.finding import BEST, newest_run

logger = logging.getLogger(__name__)


@click.command(cls=Command, epilog="Example: s2s plot runs/demo --attention 'Where is the station?' -o attention.png")
@click.argument("runs", nargs=-1, type=options.ANY_PATH, metavar="[RUN | STUDENT...]")
@click.option("--attention", "sentence", metavar="SENTENCE", help="Draw the attention of the model for this sentence.")
@click.option("--target", help="With --attention: translation of SENTENCE [default: that of the model].")
@click.option(
    "--layer", type=options.Number(ranges.LAYERS), help="With --attention: layer, from 1 [default: the last]."
)
@options.direction_options
@click.option(
    "-o",
    "--output",
    type=options.NAMED_FILE,
    help="Picture to write [default: curves.png or attention.png in the run; students.png, or attention.png of a model "
    "without a run, in the current folder].",
)
def command(
    runs: tuple[Path, ...],
    sentence: str | None,
    target: str | None,
    layer: int | None,
    source_language: str | None,
    target_language: str | None,
    output: Path | None,
) -> None:
    """Draw the learning curves of RUN, or the attention of its model [default: the newest run].

    If each STUDENT is a folder of s2s distill, draw the speed and BLEU of the students and of their teacher.
    """
    if output is not None:
        check_output(output)
    from seq2seq import plots
    from seq2seq.workflows.distill.figures import is_student, speeds_and_scores

    if any(map(is_student, runs)):
        options.only_for(
            "a RUN; leave out the students", "sentence", "target", "layer", "source_language", "target_language"
        )
        if len({run.resolve() for run in runs}) < len(runs):
            raise click.UsageError("a student is given twice; name each once")
        points = speeds_and_scores(runs, "bleu")
        axes = "speed on a CPU, relative to the teacher in float32", "BLEU"
        click.echo(plots.trade_off(points, output or Path("students.png"), axes))
        return
    if len(runs) > 1:
        raise click.UsageError("name one RUN; s2s compare --html draws the curves of several runs")
    run = runs[0] if runs else None
    if sentence is None:
        options.only_for("--attention SENTENCE", "target", "layer", "source_language", "target_language")
        folder = _run_folder(run)
        records, path = _records(folder / "metrics.jsonl"), output or folder / "curves.png"
        click.echo(plots.learning_curves(records, path, folder.name))
        return
    if not sentence.strip():
        raise click.UsageError("--attention needs a sentence that is not blank")
    from seq2seq.inference.attention import sentence_attention
    from seq2seq.text.direction import Direction

    folder = options.chosen_model(run)
    seen = sentence_attention(folder, sentence, target, layer, Direction(source_language, target_language))
    title = f"{sentence}\nlayer {seen.layer} of {seen.num_layers}"
    path = output or _run_of(folder) / "attention.png"
    axes = "source", "target" if seen.is_translation else "source"
    click.echo(plots.attention_map(seen.weights, seen.source_pieces, seen.target_pieces, path, title, axes))


def _run_of(model: Path) -> Path:
    """Return the run whose best model the folder is; the current folder for a model without a run."""
    run = model.resolve().parent
    return run if model.name == BEST and (run / "metrics.jsonl").is_file() else Path()


def _run_folder(run: Path | None) -> Path:
    """Return the folder with metrics.jsonl: RUN, or the run whose best model RUN is."""
    folder = newest_run(None) if run is None else run
    if run is None:
        logger.info("using %s", folder)
    for candidate in [folder, folder.resolve().parent] if folder.resolve().name == BEST else [folder]:
        if (candidate / "metrics.jsonl").is_file():
            return candidate
    raise ModelError(f"{folder}: not a run folder (metrics.jsonl is missing); name one, such as runs/demo")


def _records(path: Path) -> list[dict[str, Any]]:
    """Return the objects of metrics.jsonl; a warning names broken lines, which are left out, as in `s2s runs`."""
    from seq2seq.lines import read_records

    records, broken = read_records(path)
    if broken:
        numbers = some_of([f"line {number}" for number in broken])
        logger.warning("%s: %s left out (%s)", path, counted(len(broken), "broken line"), numbers)
    return records
