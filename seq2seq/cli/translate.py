"""`s2s translate`: a translation for each line, as text, n-best lists or JSON lines."""

import contextlib
import json
import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from seq2seq import ranges
from seq2seq.cli.options import (
    ANY_PATH,
    EXISTING,
    Number,
    check_output,
    chosen_model,
    computing_options,
    engine_options,
    open_output,
    warn_invalid,
)
from seq2seq.errors import DataError

if TYPE_CHECKING:
    from seq2seq.inference.translator import Translation, Translator

logger = logging.getLogger("seq2seq.cli")

BATCH_LINES = 4096


def search_options(command: Callable) -> Callable:
    """Overrides of the model's own search settings; those that are not given stay as the model has them."""
    for option in (
        click.option("--batch-tokens", type=Number(ranges.COUNT), help="Source tokens decoded together."),
        click.option("--seed", type=Number(ranges.SEED), help="Seed of --sample, in PyTorch."),
        click.option("--top-p", type=Number(ranges.TOP_P), help="Draw from the likeliest pieces of this total."),
        click.option("--top-k", type=Number(ranges.TOP_K), help="Draw from the K likeliest pieces; 0 is all."),
        click.option("--temperature", type=Number(ranges.TEMPERATURE), help="Below 1 favours likely pieces."),
        click.option("--sample", is_flag=True, default=None, help="Draw translations at random instead of searching."),
        click.option("--n-best", type=Number(ranges.N_BEST), help="Translations of each line."),
        click.option(
            "--max-length-ratio",
            type=Number(ranges.MAX_LENGTH_RATIO),
            help="Most target pieces for each source piece.",
        ),
        click.option(
            "--length-penalty", type=Number(ranges.LENGTH_PENALTY), help="a in score = log-probability / length^a."
        ),
        click.option("--beam-size", type=Number(ranges.BEAM_SIZE), help="Hypotheses kept; 1 is greedy."),
    ):
        command = option(command)
    return command


@click.command(
    "translate",
    short_help="Translate lines of text.",
    epilog="Example: s2s translate runs/demo < input.txt > output.txt",
)
@click.argument("models", nargs=-1, type=ANY_PATH, metavar="[MODEL]...")
@click.option("-i", "--input", "input_path", type=EXISTING, help="Text to translate [default: standard input].")
@click.option("-o", "--output", "output_path", type=EXISTING, help="Where translations go [default: standard output].")
@click.option(
    "--prefix-file",
    type=EXISTING,
    help="Text that each translation must begin with: one line for each line of the input.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    show_default=True,
    help="text: one translation per line, or with --n-best 'index ||| translation ||| score', which is log-probability "
    "/ length^a; jsonl: one object per line.",
)
@search_options
@engine_options
@computing_options
def command(
    models: tuple[Path, ...],
    input_path: Path | None,
    output_path: Path | None,
    prefix_file: Path | None,
    form: str,
    **loading: Any,
) -> None:
    """Translate each line of the input: N lines in, N lines out, in order. A blank line gives an empty line.

    MODEL is a model folder or a run folder [default: the newest run]; several with one vocabulary are an ensemble.
    """
    _check_usage(loading)
    check_output(output_path)
    from seq2seq.inference.streaming import count_ahead, open_input, read_idle_batches
    from seq2seq.inference.translator import Translator
    from seq2seq.lines import read_lines

    source = open_input(input_path)
    name = "standard input" if input_path is None else str(input_path)
    total = count_ahead(source) if prefix_file is not None or _is_terminal(sys.stderr) else None
    prefixes = None
    if prefix_file is not None:
        if total is not None and prefix_file.is_file() and (count := sum(1 for _ in read_lines(prefix_file))) != total:
            raise DataError(f"{name} has {total:,} lines and {prefix_file} {count:,}; they must be equal")
        prefixes = read_lines(prefix_file, warn_invalid(prefix_file))
    translator = Translator.load(
        *(models or [chosen_model(None)]), **{key: value for key, value in loading.items() if value is not None}
    )
    batches = read_idle_batches(source, BATCH_LINES, on_invalid=warn_invalid(input_path))
    with open_output(output_path) as sink, _progress(source, total, output_path) as advance:
        _write(translator, translator.translate_stream(batches, prefixes), form, sink, advance)


def _check_usage(loading: dict[str, Any]) -> None:
    if not loading["sample"]:
        for name in ("temperature", "top_k", "top_p", "seed"):
            if loading[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} is for random draws; add --sample")


def _write(
    translator: "Translator",
    stream: Iterable[Sequence["Translation"]],
    form: str,
    sink: BinaryIO,
    advance: Callable[[int], object],
) -> None:
    """Write each batch as it comes, flushed, and say at the end how many translations look degenerate."""
    flags: Counter[tuple[str, ...]] = Counter()
    count = 0
    for translations in stream:
        if not count:
            logger.info("engine: %s", translator.engine_note)
        for index, translation in enumerate(translations, start=count):
            text = _as_json(translation) if form == "jsonl" else _as_text(index, translation, translator.config.n_best)
            sink.write(text.encode("utf-8", errors="replace") + b"\n")
            flags[translation.flags] += 1
        sink.flush()
        count += len(translations)
        advance(len(translations))
    _tell(flags, form)


def _tell(flags: Counter[tuple[str, ...]], form: str) -> None:
    """What became of lines that were too long, and of those that came out degenerate."""
    from seq2seq.inference.degeneration import SPLIT, SYMPTOMS, summary

    if in_parts := sum(count for names, count in flags.items() if SPLIT in names):
        logger.info(
            "%s too long for the model and translated in parts",
            "1 line was" if in_parts == 1 else f"{in_parts:,} lines were",
        )
    if any(SYMPTOMS.intersection(names) for names in flags):
        remedy = "" if form == "jsonl" else "; --format jsonl shows which"
        logger.warning("%s%s", summary(flags), remedy)


def _as_text(index: int, translation: "Translation", n_best: int) -> str:
    if n_best == 1:
        return translation.text
    best = [translation, *translation.alternatives]
    return "\n".join(f"{index} ||| {one.text} ||| {one.normalized_score:.4f}" for one in best)


def _as_json(translation: "Translation") -> str:
    shown = {
        "source": translation.source,
        "translation": translation.text,
        **_scores(translation),
        "flags": translation.flags,
        "alternatives": [{"translation": one.text, **_scores(one)} for one in translation.alternatives],
    }
    return json.dumps(shown, ensure_ascii=False)


def _scores(translation: Any) -> dict[str, Any]:
    numbers = {"score": translation.score, "normalized_score": translation.normalized_score}
    # JSON has no infinity: null stands for a log-probability that is none
    shown = {key: round(value, 6) if math.isfinite(value) else None for key, value in numbers.items()}
    return {**shown, "tokens": translation.tokens}


@contextlib.contextmanager
def _progress(source: BinaryIO, total: int | None, output_path: Path | None) -> Iterator[Callable[[int], object]]:
    """What counts lines that are done: a bar where a person sees it and types nothing, and results go elsewhere."""
    if not _is_terminal(sys.stderr):
        yield lambda count: None
        return
    if source.isatty():
        logger.info("type text; each line is translated when you press Enter; Ctrl-D ends")
    if source.isatty() or (output_path is None and _is_terminal(sys.stdout)):
        yield lambda count: None
        return
    from tqdm import tqdm

    with tqdm(total=total, unit=" lines", dynamic_ncols=True) as bar:
        yield bar.update


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty()
