"""The command `s2s convert`: import from folders of transformers, export to them, CTranslate2 and Argos Translate."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.config.ranges import QUANTIZATIONS

if TYPE_CHECKING:
    from seq2seq.evaluation.probe import Comparison

logger = logging.getLogger("seq2seq.cli")

# Exports whose translations are compared with those of the model.
VERIFIED = ("ctranslate2", "argos")


@click.command(
    cls=Command, epilog="Example: s2s convert --to ctranslate2 runs/demo -o models/demo-int8 --quantization int8"
)
@click.argument("model", type=options.ANY_PATH)
@click.option(
    "--from",
    "from_",
    type=click.Choice(["marian", "m2m100", "nllb", "mbart"]),
    help="Format of MODEL, a folder of transformers or owner/name on the hub, to import.",
)
@click.option(
    "--to",
    type=click.Choice(["marian", "m2m100", "ctranslate2", "argos"]),
    help="Format to export MODEL to, a model of this toolkit.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=options.NAMED_PLACE,
    help="Folder or .argosmodel file to write; it must be new.",
)
@click.option(
    "--quantization",
    type=click.Choice(QUANTIZATIONS),
    help="Number format of weights [default: ctranslate2 float32, argos int8].",
)
@click.option(
    "--probe",
    type=options.FILE,
    help="Probe sentences for the comparison, one per line [default: a few built-in ones].",
)
@click.option("--reference", type=options.FILE, help="Reference translations of --probe, one per line.")
@click.option("--force", is_flag=True, help="Keep an export even if its translations differ too much.")
@click.option(
    "--pickle", is_flag=True, help="With --from: allow pytorch_model.bin, a pickle, of which only tensors are loaded."
)
@click.option("--source-language", help="With --to argos: two-letter code of the source [default: as in MODEL].")
@click.option("--target-language", help="With --to argos: two-letter code of the target [default: as in MODEL].")
def command(
    model: Path,
    from_: str | None,
    to: str | None,
    output: Path,
    quantization: str | None,
    probe: Path | None,
    reference: Path | None,
    force: bool,
    pickle: bool,
    source_language: str | None,
    target_language: str | None,
) -> None:
    """Convert MODEL from or to another format, and check the result.

    An export to CTranslate2 or Argos is compared with the original on probe sentences, and is kept only if its
    translations are similar enough. In float32 they differ in a few percent of the lines, because CTranslate2 ends beam
    searches by another rule; with fewer bits in more lines. With 100 or more probe sentences, the speed of both is
    measured too.

    MODEL is a model folder, a run folder, a folder of transformers (Marian, M2M-100, NLLB, mBART), or the name of one
    on the hub."""
    if from_ is not None and to is not None:
        raise click.UsageError("give one of --from and --to; to convert twice, run the command twice")
    if from_ is None and to is None:
        raise click.UsageError(
            "give --from marian, m2m100, nllb or mbart to read a foreign model, or --to marian, m2m100, ctranslate2 "
            "or argos"
        )
    if to not in VERIFIED:
        options.only_for("--to ctranslate2 and --to argos", "quantization", "probe", "reference", "force")
    if probe is None:
        options.only_for("the lines of --probe; give both", "reference")
    if from_ is None:
        options.only_for("--from", "pickle")
    if to != "argos":
        options.only_for("--to argos", "source_language", "target_language")
    from seq2seq.workflows import convert as conversion

    sample = conversion.Probe.read(probe, reference)
    if from_ is not None:
        conversion.import_foreign(model, output, pickle, from_)
    match to:
        case "marian":
            conversion.export_marian(model, output)
        case "m2m100":
            conversion.export_m2m(model, output)
        case "ctranslate2":
            _report(conversion.export_ctranslate2(model, output, quantization or "float32", sample, force))
        case "argos":
            languages = (source_language, target_language)
            _report(conversion.export_argos(model, output, quantization or "int8", languages, sample, force))
    click.echo(output)


def _report(comparison: "Comparison") -> None:
    for line in (*comparison.lines_of_report(), comparison.speed()):
        if line is not None:
            logger.info("%s", line)
    if not comparison.is_good:
        logger.warning(
            "the translations of the export differ too much from those of the original; kept because of --force"
        )
