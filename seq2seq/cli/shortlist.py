"""`s2s shortlist`: which target pieces each source piece may need, for faster decoding."""

import logging
from pathlib import Path

import click

from seq2seq import ranges
from seq2seq.cli.options import ANY_PATH, EXISTING, Number, check_output

logger = logging.getLogger("seq2seq.cli")


@click.command(
    "shortlist",
    short_help="Learn which target words a source text can need, for faster decoding.",
    epilog="Example: s2s shortlist runs/demo train.en train.de -o demo.shortlist",
)
@click.argument("model", type=ANY_PATH)
@click.argument("source", type=EXISTING)
@click.argument("target", type=EXISTING)
@click.option("-o", "--output", type=EXISTING, required=True, help="File to write.")
@click.option("--candidates", type=Number(ranges.COUNT), help="Target pieces per source piece [default: 100].")
def command(model: Path, source: Path, target: Path, output: Path, candidates: int | None) -> None:
    """Learn from SOURCE and its translation TARGET, line by line, which pieces MODEL's translations may need.

    s2s translate --shortlist computes no others. Text like what will be translated is best, such as the training
    corpus; TARGET may be MODEL's own translation of SOURCE."""
    check_output(output)
    from seq2seq.errors import ModelError
    from seq2seq.lines import readable_again
    from seq2seq.shortlist import CANDIDATES, learn_shortlist, read_pairs
    from seq2seq.store.model_folder import load_model

    loaded = load_model(model)
    if loaded.description.task != "translation":
        raise ModelError(f"{loaded.folder}: a {loaded.description.task} model; shortlists are for translation models")
    with readable_again(source) as first, readable_again(target) as second:
        pairs = read_pairs(first, second, loaded.tokenizers)
    shortlist = learn_shortlist(pairs, loaded.tokenizers, candidates or CANDIDATES)
    shortlist.save(output)
    each = len(shortlist.ids) / loaded.tokenizers.source.vocab_size
    logger.info("from %s pairs of lines: %.0f target pieces for each source piece", f"{len(pairs):,}", each)
    click.echo(output)
