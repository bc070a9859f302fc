"""The command `s2s average`: a model whose weights are the mean of several models or checkpoints."""

from pathlib import Path

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command


@click.command(cls=Command, epilog="Example: s2s average runs/general runs/tuned --weights 0.3,0.7 -o models/between")
@click.argument("models", nargs=-1, required=True, type=options.ANY_PATH, metavar="MODEL|CHECKPOINT...")
@click.option(
    "-o", "--output", required=True, type=options.NAMED_PLACE, help="Model folder to write; it must be new or empty."
)
@click.option("--weights", metavar="W,W,...", help="Relative weight of each model, such as 0.3,0.7 [default: equal].")
def command(models: tuple[Path, ...], output: Path, weights: str | None) -> None:
    """Average the weights of models or checkpoints with the same architecture and vocabulary.

    Each is a model folder, a run folder (then its best model), or a checkpoint (runs/NAME/checkpoints/step_...).

    For a model and its fine-tuned version, --weights chooses how much of each is kept. s2s bleu shows the effect on
    each domain."""
    shares = None if weights is None else _numbers(weights)
    from seq2seq.store.averaging import average_models

    click.echo(average_models(models, output, shares))


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise click.UsageError(f"--weights {text}: give numbers separated by commas, such as 0.3,0.7") from error
