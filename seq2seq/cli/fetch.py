"""`s2s fetch`: a named public corpus, as plain files where the configs look for it."""

import os
from pathlib import Path

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command


@click.command(cls=Command, epilog="Example: s2s fetch multi30k -o data/multi30k")
@click.argument("name")
@click.option(
    "-o",
    "--output",
    type=options.NAMED_PLACE,
    help="Folder to write to [default: $S2S_DATA/NAME, or data/NAME where it is unset].",
)
@click.option(
    "--from", "dataset_path", help="Dataset to read instead: another name on the hub, or a folder on this machine."
)
def command(name: str, output: Path | None, dataset_path: str | None) -> None:
    """Download the public corpus NAME (multi30k, sst2, wmt14-en-de, ...) as plain files.

    It comes from the hub of the package datasets; the files have the names that the configs read."""
    from seq2seq.data.fetch import fetch

    folder = output or Path(os.environ.get("S2S_DATA") or "data").expanduser() / name
    for path in fetch(name, folder, dataset_path=dataset_path):
        click.echo(path)
