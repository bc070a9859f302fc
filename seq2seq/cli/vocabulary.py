"""The command `s2s vocabulary trim`: a model with only the pieces that some texts need."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Group
from seq2seq.config import ranges

EXAMPLE = "Example: s2s vocabulary trim models/nllb --languages en,lb --corpus t.en --corpus t.lb -o models/small"


@click.group(cls=Group, epilog=EXAMPLE)
def command() -> None:
    """Change the vocabulary of a model."""


@command.command(epilog=EXAMPLE)
@click.argument("models", nargs=-1, required=True, type=options.ANY_PATH, metavar="MODEL")
@click.option(
    "--corpus",
    "corpora",
    required=True,
    multiple=True,
    type=options.FILE,
    help="Text whose pieces are kept; repeatable: sources first, then targets.",
)
@click.option(
    "--languages",
    metavar="NAMES",
    help="Languages to keep, separated by commas, the source first; for a model with tags of languages.",
)
@click.option(
    "--keep-frequent",
    type=options.Number(ranges.COUNT),
    metavar="N",
    help="Also keep the N most frequent pieces of each tokenizer.",
)
@click.option(
    "-o", "--output", required=True, type=options.NAMED_PLACE, help="Model folder to write; it must be new or empty."
)
@options.format_option
def trim(
    models: tuple[Path, ...],
    corpora: tuple[Path, ...],
    languages: str | None,
    keep_frequent: int | None,
    output: Path,
    form: str,
) -> None:
    """Write MODEL with a smaller vocabulary, which is faster and takes less memory.

    Kept are special pieces, single characters, bytes, the tags of --languages, and every piece that the corpora need.
    Other weights are the same, and text of kept pieces is segmented as before. If source and target have tokenizers of
    their own, a corpus counts for the side whose tokenizer spells it in fewer pieces.

    The report says how probable the removed pieces were, and how many greedy translations of the first 100 lines of
    the sources differ. To keep more pieces, give more text, or --keep-frequent.
    """
    if len(models) != 1:
        raise click.UsageError(
            "name one MODEL; each model of an ensemble is trimmed by its own command, with the same corpora"
        )
    names = [name.strip() for name in languages.split(",") if name.strip()] if languages is not None else []
    if languages is not None and not names:
        raise click.UsageError("--languages names no language")
    from seq2seq.workflows.vocabulary import trim

    trimming = trim(models[0], corpora, output, names, keep_frequent or 0)
    if form == "json":
        click.echo(json.dumps(asdict(trimming), indent=1))
        return
    for line in trimming.lines_of_report():
        click.echo(line)
