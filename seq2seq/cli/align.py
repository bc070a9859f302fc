"""The command `s2s align`: word alignments of given translations, from a model's attention."""

import contextlib
import json
import logging
import os
from itertools import islice
from pathlib import Path
from typing import Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.cli.outputs import check_output, open_output
from seq2seq.cli.streaming import open_pairs
from seq2seq.errors import DataError, ModelError

logger = logging.getLogger("seq2seq.cli")

BATCH_LINES = 1024


@click.command(cls=Command, epilog="Example: s2s align runs/demo test.en test.de > links.txt")
@click.argument("model", type=options.ANY_PATH)
@click.argument("source", type=options.FILE)
@click.argument("target", type=options.FILE)
@click.option("-o", "--output", type=options.FILE, help="File to write the alignments to [default: standard output].")
@click.option(
    "--format",
    "form",
    type=click.Choice(["pharaoh", "jsonl"]),
    default="pharaoh",
    help="pharaoh: links 'source-target' between words separated by white space, counted from 0. jsonl: spans of words "
    "and punctuation marks, weights, log-probabilities and confidence.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Find the attention heads of MODEL that align these pairs best, fit its confidence, and write both to the "
    "folder of MODEL.",
)
@options.direction_options
@options.batch_tokens_option
@options.computing_options
def command(
    model: Path, source: Path, target: Path, output: Path | None, form: str, calibrate: bool, **loading: Any
) -> None:
    """Print the word alignment of each line of SOURCE with the same line of TARGET, from the attention of MODEL.

    Both sides are read as in training, so white space at their ends, no-break spaces and invisible characters change no
    link. Training ends with a calibration on the validation set. Calibrate a model of another toolkit with --calibrate
    and a few hundred pairs. Without calibration, all attention heads count equally, and alignments are rough.
    """
    if calibrate:
        options.only_for("alignments; leave out --calibrate", "output", "form", "batch_tokens")
    check_output(output)
    with contextlib.ExitStack() as stack:
        pairs = stack.enter_context(open_pairs(source, target))
        folder = options.chosen_model(model)
        if calibrate:
            _calibrate(folder, list(islice(pairs, BATCH_LINES)), source, loading)
            return
        from seq2seq.inference.aligner import Aligner
        from seq2seq.text.alignment import pharaoh

        aligner = Aligner.load(folder, **loading)
        if not aligner.calibration.heads:
            logger.warning(
                "%s is not calibrated, so alignments are rough; calibrate it with s2s align --calibrate", folder
            )
        sink, is_plain = stack.enter_context(open_output(output)), form == "pharaoh"
        while batch := list(islice(pairs, BATCH_LINES)):
            for details in aligner.align(batch, spaced=is_plain, probabilities=not is_plain):
                shown = pharaoh(details) if is_plain else json.dumps(details.as_json(), ensure_ascii=False)
                sink.write(f"{shown}\n".encode())
            sink.flush()


def _calibrate(folder: Path, pairs: list[tuple[str, str]], source: Path, loading: dict[str, Any]) -> None:
    from seq2seq.inference.calibrating import LEAST_ANCHORS, calibrate_folder
    from seq2seq.store.calibration import FILE, summary, write_calibration

    if not os.access(folder, os.W_OK):
        raise ModelError(f"{folder}: permission denied; calibrate a copy that you may write to")
    pairs = [pair for pair in pairs if all(map(str.strip, pair))]
    loading = {key: value for key, value in loading.items() if key != "batch_tokens"}
    calibration = calibrate_folder(folder, pairs, **loading)
    if calibration.accuracy is None:
        needed = f"{calibration.anchors} words have a certain partner, at least {LEAST_ANCHORS} are needed"
        raise DataError(f"{source}: {needed}; give more pairs")
    write_calibration(folder, calibration)
    for line in summary(calibration):
        logger.info("%s", line)
    logger.info("written to %s", folder / FILE)
