"""The command `s2s bench`: the speed of training, of its batches, of decoding and of serving on this machine."""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Group
from seq2seq.config import ranges
from seq2seq.config.ranges import QUANTIZATIONS, Range
from seq2seq.lines import shown_json

if TYPE_CHECKING:
    from seq2seq.bench.report import Report
    from seq2seq.config.schema import Config

# The settings without CONFIG: the corpus of the toolkit, with the sizes and batches of a real small model.
DEFAULTS = ("model.preset=small", "tokenizer.vocab_size=3000", "training.batch_tokens=4096", "training.ema=")
NO_PEERS = "none"


def peer_option(*names: str) -> Callable:
    """Return the repeatable option `--peer` with these names."""
    return click.option(
        "--peer", "peers", multiple=True, type=click.Choice([*names, NO_PEERS]),
        help="Other toolkit to measure; repeatable. none: no other toolkit [default: all installed ones].",
    )  # fmt: skip


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog="Example: s2s bench train && s2s bench decode runs/demo",
)
@click.pass_context
def command(context: click.Context) -> None:
    """Measure the speed of training, decoding and serving on this machine, next to other installed toolkits.

    In training and decoding, all systems do the same work in one process, in alternating rounds; ratios are those of
    adjacent rounds. Install the other toolkits with pip install 'seq2seq-toolkit[bench]'."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command(epilog="Example: s2s bench train configs/multi30k-en-de.yaml --batch-tokens 4096 --threads 2")
@click.argument("config", type=options.FILE, required=False)
@options.set_option
@click.option(
    "--batch-tokens",
    type=options.Number(ranges.COUNT),
    help="Target tokens per batch [default: as in CONFIG, or 4096].",
)
@click.option("--seconds", type=options.Number(Range(0.001, 1e6)), default=10.0, help="Seconds per round.")
@click.option("--steps", type=options.Number(ranges.COUNT), help="Updates per round, instead of --seconds.")
@click.option("--rounds", type=options.Number(ranges.COUNT), default=5, help="Number of rounds of each system.")
@peer_option("transformers")
@click.option("--device", help="Device: auto, cpu, cuda, cuda:1 or mps [default: as in CONFIG, or auto].")
@click.option(
    "--precision",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    help="Number format of matrix products [default: as in CONFIG, or auto].",
)
@click.option(
    "--threads", type=options.Number(ranges.THREADS), help="Number of CPU threads [default: as in CONFIG, or all]."
)
@options.format_option
def train(
    config: Path | None,
    overrides: tuple[str, ...],
    seconds: float,
    steps: int | None,
    rounds: int,
    peers: tuple[str, ...],
    form: str,
    **training: Any,
) -> None:
    """Measure the speed of training.

    CONFIG defines data, tokenizer, model and batches [default: a small model on the phrasebook of the toolkit].
    MarianMTModel of transformers trains on the same batches. Of all files, only the tokenised corpus is kept."""
    if steps is not None:
        options.only_for("rounds without --steps; give one of the two", "seconds")
    given = [f"training.{key}={value}" for key, value in training.items() if value is not None]
    for key in training:
        if any(override.partition("=")[0].strip() == f"training.{key}" for override in overrides):
            options.only_for(f"runs without --set training.{key}; give one of the two", key)
    settings = _settings(config, [*overrides, *given])
    from seq2seq.bench.training import PEERS, TrainingRounds, bench_training

    with _cache(config, settings) as cache, _progress() as progress:
        measured = TrainingRounds(rounds, steps, seconds)
        report = bench_training(settings, cache, _chosen(peers, PEERS), measured, progress)
    _show(report, form)


@command.command(epilog="Example: s2s bench feed configs/multi30k-en-de.yaml --set tokenizer.sampling=0.3")
@click.argument("config", type=options.FILE, required=False)
@options.set_option
@click.option("--seconds", type=options.Number(Range(0.001, 1e6)), default=2.0, help="Seconds per round.")
@click.option("--rounds", type=options.Number(ranges.COUNT), default=5, help="Number of rounds.")
@options.format_option
def feed(config: Path | None, overrides: tuple[str, ...], seconds: float, rounds: int, form: str) -> None:
    """Measure the speed at which the batches of CONFIG are made, without a model.

    If a GPU trains faster, it waits for them. CONFIG defines data, tokenizer and batches [default: the phrasebook of
    the toolkit]. Of all files, only the tokenised corpus is kept."""
    settings = _settings(config, overrides)
    from seq2seq.bench.feeding import bench_feed

    with _cache(config, settings) as cache, _progress() as progress:
        report = bench_feed(settings, cache, rounds, seconds, progress)
    _show(report, form)


@command.command(epilog="Example: s2s bench decode runs/demo --input test.en --reference test.de --threads 2")
@click.argument("model", type=options.ANY_PATH, required=False)
@options.input_option("Text to translate [default: the test set of the phrasebook].")
@click.option("--reference", type=options.FILE, help="Reference translation of --input, line by line, for BLEU.")
@click.option("--sentences", type=options.Number(ranges.COUNT), default=1000, help="Number of lines to translate.")
@click.option(
    "--beam-size",
    type=options.Number(Range(2, ranges.BEAM_SIZE.most)),
    default=5,
    help="Beam size, measured in addition to greedy search.",
)
@click.option("--greedy", is_flag=True, help="Measure only greedy search.")
@click.option(
    "--single", type=options.Number(ranges.COUNT), default=50, help="Number of sentences translated one at a time."
)
@click.option(
    "--batch-size", type=options.Number(ranges.COUNT), default=64, help="Sentences per batch of the other toolkits."
)
@click.option("--rounds", type=options.Number(ranges.COUNT), default=3, help="Number of rounds of each system.")
@peer_option("ctranslate2", "transformers")
@click.option(
    "--engine", "engines", multiple=True, type=click.Choice(["auto", "torch", "ctranslate2"]), default=["auto"],
    help="Engine of seq2seq; repeatable.",
)  # fmt: skip
@click.option(
    "--quantization",
    type=click.Choice(QUANTIZATIONS),
    help="Measure CTranslate2 also with weights in this number format.",
)
@click.option(
    "--record",
    multiple=True,
    type=options.RecordChoice(),
    help="Record the steps of searches, in PyTorch on a CUDA device; repeat the option to compare on and off [default: "
    "as in MODEL].",
)
@options.direction_options
@options.computing_options
@options.format_option
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
    record: tuple[bool | str, ...],
    form: str,
    source_language: str | None,
    target_language: str | None,
    **computing: Any,
) -> None:
    """Measure the speed of translation.

    The time is measured from text to text, with greedy search and beam search, in batches and one sentence at a time.

    MODEL is a model folder, a run folder or a Marian folder [default: the newest translation run]. The other systems
    are CTranslate2 alone and, if the model can be exported to a Marian folder, MarianMTModel.generate of transformers.
    """
    if input_path is None:
        options.only_for("the lines of --input; give both", "reference")
    if set(engines) == {"torch"}:
        options.only_for("ctranslate2; add --engine ctranslate2", "quantization")
    if set(engines) == {"ctranslate2"}:
        options.only_for("PyTorch; add --engine torch", "record")
    if greedy:
        options.only_for("beam search; leave out --greedy", "beam_size")
    if NO_PEERS in peers:
        options.only_for("other toolkits; leave out --peer none", "batch_size")
    from seq2seq.bench.decoding import PEERS, DecodingRounds, Engines, bench_decoding
    from seq2seq.evaluation.probe import Probe
    from seq2seq.text.direction import Direction

    probe = Probe.read(input_path, reference)
    direction = Direction(source_language, target_language)
    settings = Engines(engines, quantization, **computing, direction=direction, record=tuple(dict.fromkeys(record)))
    measured = DecodingRounds(rounds, sentences, (1,) if greedy else (1, beam_size), single, batch_size)
    with _progress() as progress:
        report = bench_decoding(
            options.chosen_model(model, "translation"), probe, settings, _chosen(peers, PEERS), measured, progress
        )
    _show(report, form)


@command.command(epilog="Example: s2s bench serve runs/demo --input test.en --clients 64 --seconds 30")
@click.argument("model", type=options.ANY_PATH, required=False)
@options.input_option("Lines that clients send [default: the test set of the phrasebook].")
@click.option(
    "--sentences", type=options.Number(ranges.COUNT), default=1000, help="Number of lines, which are sent in turn."
)
@click.option(
    "--clients",
    type=options.Number(Range(1, 500)),
    multiple=True,
    default=[8, 64, 256],
    help="Number of concurrent clients; repeatable.",
)
@click.option("--seconds", type=options.Number(Range(0.1, 1e6)), default=10.0, help="Seconds per round.")
@click.option(
    "--rounds", type=options.Number(ranges.COUNT), default=1, help="Number of rounds for each number of clients."
)
@click.option("--texts", type=options.Number(Range(1, 100)), default=1, help="Lines per request.")
@options.direction_options
@options.search_options
@options.engine_options
@options.computing_options
@options.format_option
def serve(
    model: Path | None,
    input_path: Path | None,
    sentences: int,
    clients: tuple[int, ...],
    seconds: float,
    rounds: int,
    texts: int,
    form: str,
    **loading: Any,
) -> None:
    """Measure `s2s serve` under load, next to `s2s translate` on the same lines.

    Each client sends one request at a time. The answers are compared with those of s2s translate; wrong and lost
    answers are counted.

    MODEL is a model folder or a run folder [default: the newest translation run]."""
    from seq2seq.bench.serve import LoadRounds, bench_serve
    from seq2seq.evaluation.probe import Probe

    load = LoadRounds(rounds, tuple(dict.fromkeys(clients)), seconds, texts, sentences)
    with _progress() as progress:
        folder = options.chosen_model(model, "translation")
        report = bench_serve(folder, Probe.read(input_path, None), load, loading, progress)
    _show(report, form)


def _settings(config: Path | None, overrides: Sequence[str]) -> "Config":
    """Return the settings of CONFIG, or those of the demonstration with the sizes of `DEFAULTS`."""
    from seq2seq.config import file as config_file
    from seq2seq.files import shipped_folder

    demo = shipped_folder() / "configs" / "demo.yaml"
    return config_file.load(config or demo, [*(() if config else DEFAULTS), *overrides])


@contextlib.contextmanager
def _cache(config: Path | None, settings: "Config") -> Iterator[Path]:
    """Yield the folder of the tokenised corpora of CONFIG, or a temporary one."""
    from seq2seq.tasks.run_folder import RunFolder

    with tempfile.TemporaryDirectory(prefix="s2s-bench-") as temporary:
        yield Path(temporary) if config is None else RunFolder(Path("runs") / config.stem).cache(settings)


def _chosen(peers: tuple[str, ...], known: Iterable[str]) -> tuple[str, ...]:
    if NO_PEERS in peers and len(peers) > 1:
        raise click.UsageError(f"--peer {NO_PEERS} excludes others; leave them out")
    return () if NO_PEERS in peers else tuple(dict.fromkeys(peers or known))


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], object]]:
    """Yield a function that shows on a terminal what is being measured."""
    from tqdm import tqdm

    with tqdm(bar_format="{desc} [{elapsed}]", disable=None, leave=False) as bar:
        yield bar.set_description_str


def _show(report: "Report", form: str) -> None:
    if form == "json":
        click.echo(shown_json(report.as_dict(), indent=1))
        return
    for line in report.lines(shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
        click.echo(line)
