"""`s2s average`: one model whose weights are the mean of several."""

from pathlib import Path

import click

from seq2seq.cli.options import ANY_PATH, FOLDER


@click.command(
    "average",
    short_help="Average the weights of models or checkpoints.",
    epilog="Example: s2s average runs/demo/checkpoints/step_* -o models/demo",
)
@click.argument("models", nargs=-1, required=True, type=ANY_PATH, metavar="MODEL|CHECKPOINT...")
@click.option("-o", "--output", required=True, type=FOLDER, help="Model folder to write; it must be new or empty.")
def command(models: tuple[Path, ...], output: Path) -> None:
    """Average the weights of models or checkpoints of one shape and one vocabulary.

    Each is a model folder, a run folder (its best model), or a checkpoint (runs/NAME/checkpoints/step_...)."""
    from seq2seq.averaging import average_models

    click.echo(average_models(models, output))
