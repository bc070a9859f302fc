"""`s2s bench`: how fast training and decoding are on this machine, beside other toolkits that are installed."""

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seq2seq import ranges
from seq2seq.cli.options import ANY_PATH, FILE, Number, chosen_model, computing_options
from seq2seq.ranges import QUANTIZATIONS, Range

if TYPE_CHECKING:
    from seq2seq.bench.report import Report

# Without CONFIG: the corpus that comes with the toolkit, and the sizes and batches of a small model in earnest.
DEFAULTS = ("model.preset=small", "tokenizer.vocab_size=3000", "training.batch_tokens=4096", "training.ema=")
NO_PEERS = "none"

format_option = click.option(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)


def peer_option(*names: str) -> Callable:
    """`--peer`, repeatable."""
    return click.option(
        "--peer", "peers", multiple=True, type=click.Choice([*names, NO_PEERS]),
        help="Other toolkit to measure; repeatable [default: all that are installed].",
    )  # fmt: skip


@click.group(
    "bench",
    short_help="Measure training and decoding beside other toolkits.",
    invoke_without_command=True,
    epilog="Example: s2s bench train && s2s bench decode runs/demo",
)
@click.pass_context
def command(context: click.Context) -> None:
    """Measure how fast training and decoding are on this machine, beside other toolkits that are installed.

    All do the same work in one process, in alternating rounds; ratios are of adjacent rounds.
    The others come with pip install 'seq2seq[bench]'."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command(epilog="Example: s2s bench train configs/multi30k-en-de.yaml --batch-tokens 4096 --threads 2")
@click.argument("config", type=FILE, required=False)
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override one key; repeatable.")
@click.option("--batch-tokens", type=Number(ranges.COUNT), help="Target tokens per batch [default: CONFIG's, or 4096].")
@click.option("--seconds", type=Number(Range(0.001, 1e6)), help="Seconds per round [default: 10].")
@click.option("--steps", type=Number(ranges.COUNT), help="Updates per round, instead of --seconds.")
@click.option("--rounds", type=Number(ranges.COUNT), default=5, show_default=True, help="Rounds of each system.")
@peer_option("transformers", "torch")
@click.option("--device", help="auto, cpu, cuda, cuda:1 or mps [default: CONFIG's, or auto].")
@click.option(
    "--precision",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    help="Number format of matrix products [default: CONFIG's, or auto].",
)
@click.option("--threads", type=Number(ranges.THREADS), help="CPU threads.")
@format_option
def train(
    config: Path | None,
    overrides: tuple[str, ...],
    batch_tokens: int | None,
    seconds: float | None,
    steps: int | None,
    rounds: int,
    peers: tuple[str, ...],
    device: str | None,
    precision: str | None,
    threads: int | None,
    form: str,
) -> None:
    """Measure training as CONFIG describes it: its data, tokenizer, sizes and batches. Nothing is kept but the
    tokenised corpus.

    Without CONFIG, a small model on the phrasebook that comes with the toolkit. Beside it: MarianMTModel of
    transformers, and torch.nn.Transformer, each in a loop over the same batches."""
    if seconds is not None and steps is not None:
        raise click.UsageError("--seconds and --steps exclude each other; give one")
    from seq2seq import config_file
    from seq2seq.files import shipped_folder

    given = {"batch_tokens": batch_tokens, "device": device, "precision": precision, "threads": threads}
    settings = config_file.load(
        config or shipped_folder() / "configs" / "demo.yaml",
        [
            *(DEFAULTS if config is None else ()),
            *overrides,
            *(f"training.{key}={value}" for key, value in given.items() if value is not None),
        ],
    )
    from seq2seq.bench.training import PEERS, Rounds, bench_training
    from seq2seq.tasks.run_folder import RunFolder

    with tempfile.TemporaryDirectory(prefix="s2s-bench-") as temporary, _progress() as progress:
        cache = Path(temporary) if config is None else RunFolder(Path("runs") / config.stem).cache(settings)
        measured = Rounds(rounds, steps, seconds or Rounds.seconds)
        report = bench_training(settings, cache, _chosen(peers, PEERS), measured, progress)
    _show(report, form)


@command.command(epilog="Example: s2s bench decode runs/demo --input test.en --reference test.de --threads 2")
@click.argument("model", type=ANY_PATH, required=False)
@click.option("-i", "--input", "input_path", type=FILE, help="Sentences [default: the phrasebook's test set].")
@click.option("--reference", type=FILE, help="Their translations, line by line, for BLEU.")
@click.option("--sentences", type=Number(ranges.COUNT), default=1000, show_default=True, help="The first so many.")
@click.option(
    "--beam-size",
    type=Number(Range(2, ranges.BEAM_SIZE.most)),
    default=5,
    show_default=True,
    help="Beside greedy search.",
)
@click.option("--greedy", is_flag=True, help="Greedy search alone.")
@click.option(
    "--single", type=Number(ranges.COUNT), default=50, show_default=True, help="Sentences translated one at a time."
)
@click.option(
    "--batch-size", type=Number(ranges.COUNT), default=64, show_default=True, help="Sentences in the others' batches."
)
@click.option("--rounds", type=Number(ranges.COUNT), default=3, show_default=True, help="Rounds of each system.")
@peer_option("ctranslate2", "transformers")
@click.option(
    "--engine", "engines", multiple=True, type=click.Choice(["auto", "torch", "ctranslate2"]),
    help="What computes in seq2seq; repeatable [default: auto].",
)  # fmt: skip
@click.option("--quantization", type=click.Choice(QUANTIZATIONS), help="Measure ctranslate2 with such weights too.")
@computing_options
@format_option
def decode(
    model: Path | None,
    input_path: Path | None,
    reference: Path | None,
    sentences: int,
    beam_size: int,
    greedy: bool,
    single: int,
    batch_size: int,
    rounds: int,
    peers: tuple[str, ...],
    engines: tuple[str, ...],
    quantization: str | None,
    device: str,
    precision: str | None,
    threads: int | None,
    form: str,
) -> None:
    """Measure how fast MODEL translates, from text to text, greedily and with a beam, and one sentence at a time.

    MODEL is a model folder, a run folder or a Marian folder [default: the newest run]. Beside it: CTranslate2 alone,
    and, where the model can be written as a Marian folder, MarianMTModel.generate of transformers."""
    if reference is not None and input_path is None:
        raise click.UsageError("--reference is for the lines of --input; give both")
    if quantization is not None and set(engines) == {"torch"}:
        raise click.UsageError("--quantization is for ctranslate2; add --engine ctranslate2")
    from seq2seq.bench.decoding import PEERS, Engines, Lines, Rounds, bench_decoding

    lines = None if input_path is None else Lines.read(input_path, reference)
    computing = Engines(engines or ("auto",), quantization, device, precision, threads)
    beams = (1,) if greedy else (1, beam_size)
    measured = Rounds(rounds, sentences, beams, single, batch_size)
    with _progress() as progress:
        report = bench_decoding(chosen_model(model), lines, computing, _chosen(peers, PEERS), measured, progress)
    _show(report, form)


def _chosen(peers: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    if NO_PEERS in peers and len(peers) > 1:
        raise click.UsageError(f"--peer {NO_PEERS} stands alone; leave out the others")
    return () if NO_PEERS in peers else tuple(dict.fromkeys(peers)) or known


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], object]]:
    """Shows what is being measured, on a terminal."""
    from tqdm import tqdm

    with tqdm(bar_format="{desc} [{elapsed}]", disable=None, leave=False) as bar:
        yield bar.set_description_str


def _show(report: "Report", form: str) -> None:
    if form == "json":
        click.echo(json.dumps(report.as_dict(), indent=1, ensure_ascii=False))
        return
    for line in report.lines(shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
        click.echo(line)
