"""The command `s2s augment`: pairs from text in one language, in a folder that `data.train` reads.

`workflows.augment` checks the request and makes the pairs; this module reads the options, and reports.
"""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.config import ranges
from seq2seq.errors import DataError, counted, did_you_mean, shown

if TYPE_CHECKING:
    from seq2seq.config.corpora import NoiseConfig
    from seq2seq.workflows.augment.request import Prepared
    from seq2seq.workflows.parts import PartCounts

logger = logging.getLogger("seq2seq.cli")

EXAMPLE = "Example: s2s augment runs/de-en --text news.de -o data/back"


@click.command(cls=Command, epilog=EXAMPLE)
@click.argument("models", nargs=-1, required=True, type=options.ANY_PATH, metavar="MODEL...")
@click.option(
    "--text", "texts", type=options.FILE, multiple=True, required=True, help="Text, one sentence per line; repeatable."
)
@click.option(
    "-o", "--output", type=options.NAMED_PLACE, required=True, help="Folder to write; the same command continues it."
)
@click.option(
    "--kind",
    type=click.Choice(["back", "forward"]),
    default="back",
    help="back: the translation is the source of a pair, and the text its target. forward: the other way round.",
)
@click.option("--each", is_flag=True, help="Translate the text with each MODEL [default: several form an ensemble].")
@click.option(
    "--keep",
    type=click.Choice(["best", "chrf", "mbr"]),
    default="best",
    help="Translation to keep of --n-best. chrf: the nearest to --reference. mbr: the nearest to the others (minimum "
    "Bayes risk). Both by chrF.",
)
@click.option(
    "--reference",
    "references",
    type=options.FILE,
    multiple=True,
    help="With --keep chrf: translations of --text, line by line; repeatable.",
)
@click.option(
    "--n-best", type=options.Number(ranges.N_BEST), help="Number of translations of a line, from which --keep chooses."
)
@click.option(
    "--min-confidence",
    type=options.Number(ranges.SHARE),
    help="Leave out translations with a lower confidence (probability of chrF 60 or more). This takes a second pass of "
    "MODEL.",
)
@click.option("--skip-long", is_flag=True, help="Leave out lines over the model's limit; else they are split.")
@click.option(
    "--tag",
    metavar="PIECE",
    help="Tag to put before each synthetic source, such as <back>. List it in tokenizer.extra_pieces of the config "
    "that trains on the pairs.",
)
@click.option(
    "--noise", metavar="KIND=SHARE,...", help="Noise of the pairs, such as typos=0.1 (the keys of data.train.noise)."
)
@click.option(
    "--held-out",
    type=options.FILE,
    multiple=True,
    help="Text whose lines are left out, besides the validation and test sets of MODEL's run; repeatable.",
)
@click.option("--limit", type=options.Number(ranges.COUNT), help="Number of lines to read [default: all].")
@options.sharding_options
@click.option(
    "--force",
    is_flag=True,
    help="Accept a text that is not in the source language of MODEL, or does not have one sentence per line.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, estimate the time in 5 seconds, and write nothing.")
@options.direction_options
@options.search_options
@options.sampling_options
@options.engine_options
@options.computing_options
def command(
    models: tuple[Path, ...],
    texts: tuple[Path, ...],
    output: Path,
    kind: str,
    each: bool,
    keep: str,
    references: tuple[Path, ...],
    min_confidence: float | None,
    skip_long: bool,
    tag: str | None,
    noise: str | None,
    held_out: tuple[Path, ...],
    limit: int | None,
    shard_lines: int,
    workers: int,
    executor: str,
    force: bool,
    dry_run: bool,
    **loading: Any,
) -> None:
    """Translate text into pairs for training, in a folder of parts that the key data.train reads as jsonl.

    Lines that are blank or held out, or get a degenerate translation, are counted and give no pair. If the command was
    stopped or killed, the same command continues, and the folder gets the same bytes.

    MODEL translates from the language of --text. Several MODELs with one vocabulary form an ensemble.
    """
    _check_usage(models, kind, keep, references, loading)
    from seq2seq.workflows.augment.job import Recipe, models_stay_open
    from seq2seq.workflows.augment.request import Request, augment, prepare
    from seq2seq.workflows.parts import find_parts

    recipe = Recipe(kind, keep, min_confidence, skip_long, _tag(tag), _noise(noise))  # type: ignore[arg-type]
    given = {key: value for key, value in loading.items() if value is not None}
    request = Request(
        models, texts, output, recipe, given, each, references, held_out, shard_lines, limit, is_forced=force
    )
    with models_stay_open():
        prepared = prepare(request)
        # A folder of something else is refused before any note.
        find_parts(prepared.job.folder, prepared.identity, prepared.told, defaults=prepared.defaults)
        logger.info("engine: %s", prepared.job.pipeline().translator.engine_note)
        if dry_run:
            _estimate(prepared, workers)
            return
        with Progress(prepared.num_lines * len(prepared.job.models)) as progress:
            counts = augment(prepared, executor, workers, progress.report)
    for line in lines_of_report(output, counts):
        click.echo(line)
    check_pairs(output, counts)


def _check_usage(
    models: tuple[Path, ...], kind: str, keep: str, references: tuple[Path, ...], loading: Mapping[str, Any]
) -> None:
    """Refuse options that exclude each other."""
    given = click.get_current_context().params
    if loading["sample"]:
        options.only_for("a search; leave out --sample", "beam_size")
    else:
        options.only_for("random draws; add --sample", "temperature", "top_k", "top_p", "seed")
    if len(models) == 1:
        options.only_for("several MODELs", "each")
    elif given["min_confidence"] is not None and not given["each"]:
        raise click.UsageError("--min-confidence needs the attention of one MODEL; an ensemble has several")
    if (keep == "chrf") != bool(references):
        raise click.UsageError("--keep chrf and --reference belong together; give both")
    if kind == "forward":
        options.only_for("synthetic sources; leave out --kind forward", "tag")
    options.check_executor_options()


def _tag(text: str | None) -> str | None:
    """Return the value of --tag; refuse text that cannot be a piece of a tokenizer."""
    from seq2seq.config.values import as_piece

    try:
        return None if text is None else as_piece(text)
    except ValueError as error:
        raise click.UsageError(f"--tag: {error}") from error


def _noise(text: str | None) -> "NoiseConfig | None":
    """Return the noise in the value of --noise."""
    if text is None:
        return None
    from pydantic import ValidationError

    from seq2seq.config.corpora import NoiseConfig

    values: dict[str, float] = {}
    for each in text.split(","):
        name, _, value = (part.strip() for part in each.partition("="))
        if name not in NoiseConfig.model_fields:
            hint = did_you_mean(name, NoiseConfig.model_fields) or f"; it is one of {', '.join(NoiseConfig.kinds)}"
            raise click.UsageError(f"--noise: {shown(name)} is not a kind of noise{hint}")
        if name in values:
            raise click.UsageError(f"--noise {name}: given twice; give it once")
        try:
            values[name] = int(value) if name == "seed" else float(value)
            NoiseConfig(**{name: values[name]})
        except (ValueError, ValidationError) as error:
            wanted = str(ranges.SEED) if name == "seed" else "a share from 0 to 1"
            raise click.UsageError(f"--noise {name}: must be {wanted}, not {shown(value)}") from error
    return NoiseConfig(**values)


def lines_of_report(folder: Path, counts: "PartCounts") -> list[str]:
    """Return what became of the lines, for people."""
    rows = [f"{counted(counts.pairs, 'pair')} of {counted(counts.lines, 'line')} in {folder}"]
    if counts.left_out:
        rows.append(f"left out: {counts.reasons}")
    return rows


def check_pairs(folder: Path, counts: "PartCounts") -> None:
    """Fail if a finished folder has no pairs, because no training can read it.

    Raises:
        DataError: the folder has no pairs.
    """
    if not counts.pairs:
        raise DataError(f"{folder}: has no pairs, so no training can read it; change the text or the options")


def _estimate(prepared: "Prepared", workers: int) -> None:
    from seq2seq.workflows.augment.job import DRY_SECONDS
    from seq2seq.workflows.parts import written_parts

    job, groups, per_group = prepared.job, range(len(prepared.job.models)), len(prepared.job.shards)
    written = [written_parts(job.folder, range(group * per_group, (group + 1) * per_group)) for group in groups]
    made = sum(parts for parts, _ in written)
    there = f", of which {made:,} {'is' if made == 1 else 'are'} there" if made else ""
    whole = prepared.num_lines * len(groups)
    click.echo(f"{counted(whole, 'line')} in {counted(job.num_parts, 'part')}{there}; nothing is written")
    left = {group: prepared.num_lines - lines for group, (_, lines) in enumerate(written) if lines < prepared.num_lines}
    if not left:
        return
    measured = {group: job.seconds_per_line(group, DRY_SECONDS / len(left)) for group in left}
    if not all(lines for _, lines in measured.values()):
        click.echo("the first part has no line to translate, so the time is not known")
        return
    seconds = sum(left[group] * each for group, (each, _) in measured.items())
    done = sum(lines for _, lines in measured.values())
    rest = " for the others" if made else ""
    others = f", with {workers} workers that share the CPUs" if workers > 1 else ""
    click.echo(
        f"{sum(left.values()) / seconds:,.1f} lines per second over {counted(done, 'line')}: about "
        f"{seconds / 60:,.1f} minutes{rest}{others}"
    )


class Progress:
    """A progress bar of lines on a terminal, and a log line for each part elsewhere."""

    def __init__(self, total: int | None):
        from tqdm import tqdm

        self._has_bar = sys.stderr is not None and sys.stderr.isatty()
        self._bar = tqdm(total=total, unit=" lines", dynamic_ncols=True, disable=not self._has_bar)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def report(self, number: int, facts: Mapping[str, Any]) -> None:
        self._bar.update(facts["lines"])
        if not self._has_bar:
            log_part(number, facts)


def log_part(number: int, facts: Mapping[str, Any]) -> None:
    """Log the facts of a part."""
    logger.info("part %d: %s of %s", number, counted(facts["pairs"], "pair"), counted(facts["lines"], "line"))
