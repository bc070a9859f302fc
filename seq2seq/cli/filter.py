"""The command `s2s filter`: the pairs of a corpus that translate each other, in a folder that `data.train` reads.

`workflows.filter` checks the request and judges the pairs; this module reads the options, and reports.
"""

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.augment import Progress, check_pairs, lines_of_report
from seq2seq.cli.commands import Command
from seq2seq.config import ranges
from seq2seq.config.ranges import Range

if TYPE_CHECKING:
    from seq2seq.workflows.filter.request import Filtered, PreparedFilter

logger = logging.getLogger("seq2seq.cli")

EXAMPLE = "Example: s2s filter crawl.tmx --model runs/en-de --reverse runs/de-en --keep 0.8 -o data/clean"


@click.command(cls=Command, epilog=EXAMPLE)
@click.argument("corpus", nargs=-1, required=True, type=options.ANY_PATH, metavar="CORPUS...")
@click.option(
    "-o", "--output", type=options.NAMED_PLACE, required=True, help="Folder to write; the same command continues it."
)
@click.option(
    "--model", type=options.ANY_PATH, help="Model that translates the source to the target [default: rules alone]."
)
@click.option(
    "--reverse", type=options.ANY_PATH, help="Model of the opposite direction, for scores of both directions."
)
@click.option(
    "--keep", type=options.Number(ranges.SHARE), help="Share of the pairs to keep: those with the lowest scores."
)
@click.option("--max-score", type=options.Number(Range(0.0, 1e6)), help="Highest score of a pair that is kept.")
@click.option(
    "--difference",
    type=options.Number(Range(0.0, 1e6)),
    default=0.0,
    help="Weight of the difference of both cross-entropies in the score; 1 gives the published score.",
)
@click.option(
    "--explain", type=options.Number(ranges.COUNT), metavar="N", help="Print N of the lines left out for each reason."
)
@click.option(
    "--max-length",
    type=options.Number(ranges.COUNT),
    default=1000,
    help="Maximum number of characters of the longer side.",
)
@click.option(
    "--max-ratio",
    type=options.Number(Range(1.0, 1e6)),
    default=3.0,
    help="Maximum ratio of the lengths, for pairs whose longer side has more than 30 characters.",
)
@click.option(
    "--from",
    "source_language",
    type=options.LANGUAGE,
    metavar="LANGUAGE",
    help="Language of the source [default: that of --model, or of a folder of pairs].",
)
@click.option(
    "--to",
    "target_language",
    type=options.LANGUAGE,
    metavar="LANGUAGE",
    help="Language of the target [default: that of --model, or of a folder of pairs].",
)
@options.sharding_options
@click.option("--force", is_flag=True, help="Accept a corpus that is not in the languages of the model.")
@options.batch_tokens_option
@options.computing_options
def command(
    corpus: tuple[Path, ...],
    output: Path,
    model: Path | None,
    reverse: Path | None,
    keep: float | None,
    max_score: float | None,
    difference: float,
    explain: int | None,
    max_length: int,
    max_ratio: float,
    source_language: str | None,
    target_language: str | None,
    shard_lines: int,
    workers: int,
    executor: str,
    force: bool,
    **loading: Any,
) -> None:
    """Keep the pairs of a corpus that translate each other, in a folder that the key data.train reads as jsonl.

    \b
    CORPUS is one of
      SOURCE TARGET   two text files, line by line
      FILE            a .tsv, .csv, .jsonl or .tmx, a .zip of OPUS (Moses), or a folder of s2s augment or filter

    Rules leave out pairs by their text: blank sides, copies, differing numbers, swapped languages and the like.
    The models score the others. With cross-entropies a and b of both directions, in nats per piece, the score is
    (a + b) / 2, plus |a - b| times --difference; 1 gives that of Junczys-Dowmunt (2018). Without --reverse, b is
    not used. Low scores are good.

    Each line is kept, or counted with its reason. If the command was stopped or killed, the same command continues,
    and the folder gets the same bytes. Another --keep, --max-score or --difference uses the same cross-entropies.
    """
    _check_usage(model, reverse, keep, max_score)
    from seq2seq.workflows.filter.job import models_stay_open
    from seq2seq.workflows.filter.request import FilterRequest, filter_corpus, prepare
    from seq2seq.workflows.filter.rules import PairLimits

    languages, limits = (source_language, target_language), PairLimits(max_length, max_ratio)
    given = {key: value for key, value in loading.items() if value is not None}
    request = FilterRequest(
        corpus, output, model, reverse, max_score, keep, difference, languages, limits, given, shard_lines, force
    )
    with models_stay_open():
        prepared = prepare(request)
        for note in prepared.notes:
            logger.warning("%s", note)
        with Progress(prepared.num_lines) as progress:
            filtered = filter_corpus(prepared, executor, workers, progress.report)
        for line in _report(output, prepared, filtered, explain or 0):
            click.echo(line)
        check_pairs(output, filtered.counts)


def _check_usage(model: Path | None, reverse: Path | None, keep: float | None, max_score: float | None) -> None:
    """Refuse options that exclude each other or have no effect."""
    if model is None:
        needs_scores = ("reverse", "keep", "max_score", "difference", "device", "precision", "threads", "batch_tokens")
        options.only_for("scores; add --model", *needs_scores)
    elif keep is None and max_score is None:
        raise click.UsageError("--model needs a threshold; give --keep SHARE or --max-score SCORE")
    elif keep is not None and max_score is not None:
        raise click.UsageError("--keep and --max-score are two thresholds; give one")
    if reverse is None:
        options.only_for("two models; add --reverse", "difference")
    options.check_executor_options()


def _report(folder: Path, prepared: "PreparedFilter", filtered: "Filtered", most: int) -> Iterator[str]:
    """Yield what became of the lines, and at most `most` lines that are left out for each reason."""
    from seq2seq.inspection.blocks import shown
    from seq2seq.inspection.layout import joined
    from seq2seq.workflows.filter.request import left_out_examples, meanings

    yield from lines_of_report(folder, filtered.counts)
    if math.isfinite(filtered.threshold):
        yield f"highest score of a kept pair: at most {filtered.threshold:.4f}"
    if not most:
        return
    why = meanings(prepared.job)
    for reason, lines in left_out_examples(prepared.job, filtered, most).items():
        yield f"{reason} {filtered.counts.left_out[reason]:,}: {why[reason]}"
        for number, pair, score in lines:
            value = "" if score is None else f" ({score:.4f})"
            yield f"  {number:,}{value}" + ("" if pair is None else f": {joined(list(map(shown, pair.texts)))}")
