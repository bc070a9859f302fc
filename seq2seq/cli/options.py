"""The options, inputs and outputs that several commands share, with the same help and behaviour."""

import contextlib
import functools
import logging
import os
import select
import stat
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import click
from click.core import ParameterSource

from seq2seq.cli.outputs import descriptor_of, is_standard
from seq2seq.config import ranges
from seq2seq.config.ranges import QUANTIZATIONS, Range
from seq2seq.errors import ModelError, shown
from seq2seq.executors import LOCAL, check_executor
from seq2seq.lines import UNWRITABLE, OnInvalid

logger = logging.getLogger("seq2seq.cli")

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
ANY_PATH = click.Path(path_type=Path)
WAIT_MILLISECONDS = 100  # time to wait for the first line of a pipe


class _Named(click.Path):
    """The type of a path to write to that cannot be a stream, such as standard output."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if is_standard(value) or descriptor_of(Path(value)) is not None:
            self.fail("this cannot be written to standard output or another stream; give a name", parameter, context)
        return super().convert(value, parameter, context)


NAMED_FILE = _Named(path_type=Path, dir_okay=False)
NAMED_PLACE = _Named(path_type=Path)


class Number(click.ParamType):
    """The type of a number within bounds, with the bounds and error messages of the configuration."""

    def __init__(self, bounds: Range):
        self.bounds = bounds
        self.name = "integer" if bounds.is_whole else "float"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Convert the typed value or the default; click calls this method."""
        try:
            return self.bounds.check(float(value))
        except ValueError:
            self.fail(f"must be {self.bounds}, not {shown(value)}", param, context)


class _Language(click.ParamType):
    """The type of the name of a language."""

    name = "language"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Refuse text that cannot be written into a file; click calls this method."""
        if UNWRITABLE.search(value):
            self.fail(f"{shown(value)} is not a language; give a code or name, such as de", param, context)
        return value


LANGUAGE = _Language()


class RecordChoice(click.Choice):
    """The type of a value of `search.record`, as typed: auto, on or off."""

    def __init__(self) -> None:
        super().__init__(["auto", "on", "off"])

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Convert the typed value to that of the configuration; click calls this method."""
        if isinstance(value, bool):  # click converts a value twice
            return value
        typed = super().convert(value, param, context)
        return typed if typed == "auto" else typed == "on"


def _all(*options: Callable) -> Callable:
    """Return a decorator that adds several options."""
    return lambda command: functools.reduce(lambda command, option: option(command), reversed(options), command)


format_option = click.option(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Output format."
)


def _name_lost_values(
    context: click.Context, parameter: click.Parameter, overrides: tuple[str, ...]
) -> tuple[str, ...]:
    """Warn of a key that is set several times, whose last value counts."""
    for key, count in Counter(override.partition("=")[0].strip() for override in overrides).items():
        if count > 1:
            logger.warning("--set %s is given %d times; the last value counts", key, count)
    return overrides


set_option = click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_name_lost_values,
    help="Override a key of CONFIG; repeatable.",
)
batch_tokens_option = click.option(
    "--batch-tokens", type=Number(ranges.COUNT), help="Tokens per batch [default: 4096, or 65536 on a GPU]."
)
computing_options = _all(
    click.option("--device", default="auto", help="Device: auto, cpu, cuda, cuda:1 or mps."),
    click.option(
        "--precision",
        type=click.Choice(["float32", "bfloat16", "float16"]),
        help="Number format of matrix products [default: float32, or bfloat16 on a GPU that supports it natively].",
    ),
    click.option("--threads", type=Number(ranges.THREADS), help="Number of CPU threads [default: all]."),
)
engine_options = _all(
    click.option(
        "--engine",
        type=click.Choice(["auto", "torch", "ctranslate2"]),
        default="auto",
        help="Engine that runs MODEL. auto: CTranslate2 on a CPU if it supports MODEL and the search, else PyTorch. A "
        "few percent of the translations may differ, because the engines end beam searches by different rules.",
    ),
    click.option(
        "--quantization",
        type=click.Choice(QUANTIZATIONS),
        help="Number format of weights in CTranslate2 [default: that of --precision; on a GPU float16]. On a GPU, beam "
        "searches in bfloat16 are refused, because they cost 2 BLEU. The format of a CTranslate2 folder is fixed.",
    ),
    click.option(
        "--record",
        type=RecordChoice(),
        help="Record the steps of searches as CUDA graphs and replay them, in PyTorch on a CUDA device. auto: record; "
        "on: also read and write other lines during a search [default: that of the model, usually auto].",
    ),
)
direction_options = _all(
    click.option(
        "--from",
        "source_language",
        type=LANGUAGE,
        metavar="LANGUAGE",
        help="Language of the source, for a model of many languages.",
    ),
    click.option(
        "--to",
        "target_language",
        type=LANGUAGE,
        metavar="LANGUAGE",
        help="Language of the translation, for a model of several. s2s info lists the languages.",
    ),
)


def pivot_option(directions: str) -> Callable:
    """Return the option `--pivot`, with a description of the directions that it is for."""
    return click.option(
        "--pivot",
        type=LANGUAGE,
        metavar="LANGUAGE",
        help=f"Translate through this language, in two passes, with a model of many languages; {directions}.",
    )


search_options = _all(
    click.option(
        "--beam-size", type=Number(ranges.BEAM_SIZE), help="Beam size; 1 is greedy search [default: that of the model]."
    ),
    click.option(
        "--length-penalty",
        type=Number(ranges.LENGTH_PENALTY),
        help="Exponent a of score = log-probability / length^a [default: that of the model].",
    ),
    click.option(
        "--batch-tokens",
        type=Number(ranges.COUNT),
        help="Source tokens decoded together [default: 8192, or 65536 on a GPU].",
    ),
)

sampling_options = _all(
    click.option(
        "--sample", is_flag=True, default=None, help="Sample translations at random instead of searching for the best."
    ),
    click.option(
        "--temperature",
        type=Number(ranges.TEMPERATURE),
        help="With --sample: temperature; values below 1 favour likely pieces.",
    ),
    click.option(
        "--top-k", type=Number(ranges.TOP_K), help="With --sample: sample from the K likeliest pieces; 0 means all."
    ),
    click.option(
        "--top-p",
        type=Number(ranges.TOP_P),
        help="With --sample: sample from the likeliest pieces whose probabilities add up to this value.",
    ),
    click.option("--seed", type=Number(ranges.SEED), help="With --sample in PyTorch: seed of the random numbers."),
)

sharding_options = _all(
    click.option("--shard-lines", type=Number(ranges.COUNT), default=20_000, help="Lines of a part."),
    click.option("--workers", type=Number(ranges.COUNT), default=1, help="Number of processes, which share the CPUs."),
    click.option(
        "--executor", default=LOCAL, metavar="NAME", help="local, or dask:ADDRESS of a scheduler (or of its JSON file)."
    ),
)


def check_executor_options() -> None:
    """Refuse values of `sharding_options` that do not go together."""
    executor = click.get_current_context().params["executor"]
    if executor != LOCAL:
        check_executor(executor)
        only_for("--executor local; a cluster has workers of its own", "workers")


def input_option(text: str) -> Callable:
    """Return the option `--input` of a file with this text."""
    return click.option("-i", "--input", "input_path", type=FILE, help=text)


def references_option(purpose: str) -> Callable:
    """Return the repeatable option `--reference`."""
    return click.option("-r", "--reference", "references", type=FILE, multiple=True, help=purpose)


def scoring_options(metrics: str) -> Callable:
    """Return the options of the metrics, with the names of the default ones."""
    return _all(
        click.option(
            "-m", "--metrics", help=f"Metrics, separated by commas: bleu, chrf, chrf++, ter [default: {metrics}]."
        ),
        click.option(
            "--tokenize",
            help="Tokenizer of sacrebleu for BLEU: 13a, intl, zh, char, flores200, ... [default: by language].",
        ),
        click.option("--lowercase", is_flag=True, help="Ignore case in BLEU and chrF; TER always ignores it."),
    )


def only_for(purpose: str, *names: str) -> None:
    """Refuse these parameters of the running command if they were given, because they would have no effect."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in names and context.get_parameter_source(option.name) != ParameterSource.DEFAULT:
            raise click.UsageError(f"{'/'.join(option.opts)} is for {purpose}")


def refuse_standard_input(reason: str) -> None:
    """Refuse text on standard input if the running command does not read it."""
    if _is_waiting(sys.stdin):
        raise click.UsageError(f"there is text on standard input, but {reason} (or give < /dev/null)")


def name_unread_input(reason: str, *read: Path | None) -> None:
    """Warn of text on standard input if the running command does not read it.

    `read` contains the files that it reads, one of which may be `-` or `/dev/stdin`.
    """
    for path in read:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if is_standard(path) or os.path.samestat(os.stat(path), os.fstat(sys.stdin.fileno())):
                return
    if _is_waiting(sys.stdin):
        logger.warning("standard input is not read, because %s", reason)


def warn_invalid(path: Path | None) -> OnInvalid:
    """Return a function that warns of a line by number, which is not UTF-8, in a file or standard input (None, `-`)."""
    name = "standard input" if is_standard(path) else str(path)
    return lambda number: logger.warning(
        "%s: line %d is not UTF-8; bytes that cannot be decoded are replaced", name, number
    )


def chosen_model(path: Path | None, task: str | None = None) -> Path:
    """Return the model folder of MODEL; if it was left out, choose and log the newest run (of a task)."""
    from seq2seq.store.finding import find_model

    folder = find_model(path, task)
    if path is None:
        logger.info("using %s", folder)
    return folder


def newest_models() -> list[Path]:
    """Return the newest translation model and the newest classifier, if they exist; the server logs their names."""
    from seq2seq.store.finding import find_model

    newest = []
    for task in ("translation", "classification"):
        with contextlib.suppress(ModelError):
            newest.append(find_model(None, task))
    return newest or [find_model(None)]


def _is_waiting(stream: TextIO | None) -> bool:
    """Whether a stream that is a file or a pipe has something to read; a terminal does not count."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        descriptor = stream.fileno()
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return status.st_size > os.lseek(descriptor, 0, os.SEEK_CUR)
        if stat.S_ISFIFO(status.st_mode):
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return any(events & select.POLLIN for _, events in poll.poll(WAIT_MILLISECONDS))
    return False
