"""The command `s2s fetch`: a public corpus as plain files, in the place from which the configs read it."""

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
    help="Folder to write to [default: $S2S_DATA/NAME, or data/NAME if S2S_DATA is not set].",
)
@click.option("--from", "dataset_path", help="Dataset to read instead: a name on the hub, or a local folder.")
def command(name: str, output: Path | None, dataset_path: str | None) -> None:
    """Download the public corpus NAME as plain files.

    NAME is multi30k, small_enja, tatoeba, sst2, opus100-en-de, wmt14-en-de or wmt16-en-de. The files have the names
    that the configs read. They come from the Hugging Face hub, through the package datasets. The whole of small_enja,
    and the French and test_2017_flickr of multi30k, come from GitHub."""
    from seq2seq.data.fetch import fetch

    folder = output or Path(os.environ.get("S2S_DATA") or "data").expanduser() / name
    for path in fetch(name, folder, dataset_path=dataset_path):
        click.echo(path)
