"""The commands `s2s vocabulary trim`, `extend` and `transplant`: a model with another vocabulary."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Group
from seq2seq.config import ranges
from seq2seq.lines import shown_json

OF_EXTEND = "Example: s2s vocabulary extend models/small --corpus t.lb --tag ltz_Latn --like deu_Latn -o models/larger"
OF_TRANSPLANT = "Example: s2s vocabulary transplant models/old runs/new/tokenizer/source.spm -o models/new"
EXAMPLE = "Example: s2s vocabulary trim models/nllb --languages en,lb --corpus t.en --corpus t.lb -o models/small"

_model_argument = click.argument("models", nargs=-1, required=True, type=options.ANY_PATH, metavar="MODEL")
_output_option = click.option(
    "-o", "--output", required=True, type=options.NAMED_PLACE, help="Model folder to write; it must be new or empty."
)


@click.group(cls=Group, epilog=EXAMPLE)
def command() -> None:
    """Change the vocabulary of a model."""


@command.command(epilog=EXAMPLE)
@_model_argument
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
@_output_option
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

    The command keeps special pieces, single characters, bytes, the tags of --languages, and every piece that the
    corpora need. Other weights are the same, and text of kept pieces is segmented as before. If source and target have
    tokenizers of their own, a corpus counts for the side whose tokenizer knows its characters and spells it in fewer
    pieces, or for both. A warning names each corpus that is in none of the languages of the new model.

    The report says how probable the removed pieces were, and how many greedy translations of the first 100 lines of
    the sources differ. To keep more pieces, give more text, or --keep-frequent.
    """
    model = _only(models)
    names = [name.strip() for name in languages.split(",") if name.strip()] if languages is not None else []
    if languages is not None and not names:
        raise click.UsageError("--languages names no language")
    from seq2seq.workflows.vocabulary import trim

    trimming = trim(model, corpora, output, names, keep_frequent or 0)
    _print(trimming.lines_of_report(), asdict(trimming), form)


@command.command(epilog=OF_EXTEND)
@_model_argument
@click.option(
    "--corpus",
    "corpora",
    required=True,
    multiple=True,
    type=options.FILE,
    help="Text whose characters and pieces are added; repeatable.",
)
@click.option(
    "--pieces",
    type=options.Number(ranges.COUNT_OR_NONE),
    default=2000,
    show_default=True,
    metavar="N",
    help="Maximum number of pieces that each tokenizer learns in addition to characters.",
)
@click.option(
    "--side",
    type=click.Choice(["source", "target"]),
    help="The only side to extend, if each has its own tokenizer [default: for each corpus, the side whose "
    "tokenizer knows its characters and spells it in fewer pieces, or both].",
)
@click.option("--tag", type=options.LANGUAGE, metavar="LANGUAGE", help="New language, whose tag is added; with --like.")
@click.option(
    "--like",
    type=options.LANGUAGE,
    metavar="LANGUAGE",
    help="Language of MODEL; the new tag begins as a copy of its tag.",
)
@_output_option
@options.format_option
def extend(
    models: tuple[Path, ...],
    corpora: tuple[Path, ...],
    pieces: int,
    side: Literal["source", "target"] | None,
    tag: str | None,
    like: str | None,
    output: Path,
    form: str,
) -> None:
    """Write MODEL with a larger vocabulary, to be fine-tuned on new text or a new language.

    The command adds the characters of the corpora that MODEL has no piece for, and up to N sequences of its pieces that
    occur 5 times or more within words. The embedding rows of a new piece begin as the mean of those of the pieces that
    spelled it, and those of a character as the mean of its parts or of its script. Text without a new piece is
    segmented as before.

    The report shows the most frequent new pieces, their counts, and in brackets the old pieces; added-pieces.tsv in the
    new folder lists all. At most 1,000,000 lines are read: an even share of each corpus, and more where others are
    small.
    """
    model = _only(models)
    if (tag is None) != (like is None):
        raise click.UsageError("--tag and --like belong together: a new language, and one of MODEL whose tag is copied")
    from seq2seq.workflows.extension import extend

    chosen = (tag, like) if tag is not None and like is not None else None
    extension = extend(model, corpora, output, pieces, side, chosen)
    _print(extension.lines_of_report(), extension.as_json(), form)


@command.command(epilog=OF_TRANSPLANT)
@click.argument("model", type=options.ANY_PATH)
@click.argument("tokenizer", type=options.ANY_PATH)
@_output_option
@options.format_option
def transplant(model: Path, tokenizer: Path, output: Path, form: str) -> None:
    """Write MODEL with another TOKENIZER, to be fine-tuned.

    TOKENIZER is a .spm file of SentencePiece, for both sides, or a model. A piece that MODEL has keeps its embedding
    rows; those of another piece begin as the mean of those of the old pieces that spell it. Tags of languages stay.
    """
    from seq2seq.workflows.extension import transplant

    result = transplant(model, tokenizer, output)
    _print(result.lines_of_report(), result.as_json(), form)


def _only(models: Sequence[Path]) -> Path:
    if len(models) != 1:
        raise click.UsageError(
            "name one MODEL; each model of an ensemble is changed by its own command, with the same corpora"
        )
    return models[0]


def _print(lines: Iterable[str], values: Mapping[str, object], form: str) -> None:
    if form == "json":
        click.echo(shown_json(values, indent=1))
        return
    for line in lines:
        click.echo(line)
