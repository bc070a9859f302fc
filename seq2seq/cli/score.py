"""The command `s2s score`: the log-probability by a model of each translation in a file."""

import contextlib
import logging
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.cli.outputs import check_output, open_output
from seq2seq.cli.streaming import open_pairs

if TYPE_CHECKING:
    from seq2seq.inference.scorer import PairScore

logger = logging.getLogger("seq2seq.cli")

BATCH_LINES = 4096


@click.command(cls=Command, epilog="Example: s2s score runs/demo test.en test.de > scores.tsv")
@click.argument("model", type=options.ANY_PATH)
@click.argument("source", type=options.FILE)
@click.argument("target", type=options.FILE)
@click.option("-o", "--output", type=options.FILE, help="File to write the scores to [default: standard output].")
@options.direction_options
@options.batch_tokens_option
@options.computing_options
def command(model: Path, source: Path, target: Path, output: Path | None, **loading: Any) -> None:
    """Print the log-probability of each line of TARGET, given the same line of SOURCE, and its number of tokens.

    Each line of the answer is the log-probability, a tab, and the number of tokens.

    The tokens are the model's pieces and the end of the sentence. Both sides are read as in training, so white space at
    their ends, no-break spaces and invisible characters change no score. No pair is skipped. Empty sides are scored
    too, and a pair too long for the model is split into equal parts, with a warning. The files must have the same
    number of lines."""
    check_output(output)
    with contextlib.ExitStack() as stack:
        pairs = stack.enter_context(open_pairs(source, target))
        from seq2seq.inference.scorer import Scorer

        scorer, number = Scorer.load(options.chosen_model(model), **loading), 1
        sink = stack.enter_context(open_output(output))
        while batch := list(islice(pairs, BATCH_LINES)):
            scores = scorer.score(batch)
            _warn_of_parts(scores, number)
            sink.writelines(f"{score.log_prob:.6f}\t{score.tokens}\n".encode() for score in scores)
            sink.flush()
            number += len(batch)


def _warn_of_parts(scores: Sequence["PairScore"], first: int) -> None:
    """Warn of each pair that was scored in parts; `first` is the number of the first line."""
    for number, score in enumerate(scores, start=first):
        if score.parts > 1:
            logger.warning("line %d is too long for the model; scored in %d parts", number, score.parts)
