"""The command `s2s`: its verbs, and the reporting of errors.

Each verb has a file with a click `command`, which is imported only for this verb and its help, so that help never waits
for torch. `main` turns exceptions into lines on standard error and an exit code.
"""

import contextlib
import errno
import importlib
import logging
import os
import select
import sys
import traceback
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import TextIO

import click

from seq2seq import __version__
from seq2seq.cli.interrupts import Interrupts
from seq2seq.errors import UserError, did_you_mean

# The lines of `s2s --help`, which imports no verb.
VERBS = {
    "train": "Train a model, or continue a run.",
    "translate": "Translate lines of text.",
    "bleu": "Score translations with BLEU, chrF and TER.",
    "classify": "Label lines of text, or score a classifier.",
    "serve": "Translate and classify over HTTP.",
    "score": "Print the log-probabilities of given translations.",
    "align": "Print word alignments of translations.",
    "glossary": "Check a glossary, and count its terms.",
    "check": "Report problems of corpora before training.",
    "fetch": "Download a public corpus as plain files.",
    "augment": "Translate text in one language into pairs for training.",
    "filter": "Keep the pairs of a corpus that translate each other.",
    "distill": "Train a small, fast student of one or several models.",
    "tune": "Choose search settings of a model on a validation set.",
    "average": "Average the weights of models or checkpoints.",
    "convert": "Convert models from and to other toolkits.",
    "vocabulary": "Trim or extend a model's vocabulary, or replace its tokenizer.",
    "bench": "Measure the speed of training, decoding and serving.",
    "compare": "Compare runs, models or translations on one test set.",
    "runs": "List runs, show how two differ, or delete checkpoints.",
    "plot": "Draw learning curves, attention, or speed and BLEU of students.",
    "info": "Describe a model, or list converted models.",
}

INTERRUPTED = 130
HALF_LINE = 500  # characters
_FULL, _FORBIDDEN = "free some space and run the same command again", "choose a folder that you may write to"
REMEDIES = {
    errno.ENOSPC: _FULL, errno.EDQUOT: _FULL,
    errno.EACCES: _FORBIDDEN, errno.EPERM: _FORBIDDEN, errno.EROFS: _FORBIDDEN,
}  # fmt: skip


class _Verbs(click.Group):
    """A group whose subcommands are imported on use."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        return importlib.import_module(f"seq2seq.cli.{name}").command

    def resolve_command(self, context: click.Context, arguments: list[str]):
        if (name := arguments[0]) not in VERBS and not name.startswith("-"):
            raise click.UsageError(f"{name!r} is not a command{did_you_mean(name, VERBS)}", context)
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    epilog="Example: s2s train && echo 'Where is the station?' | s2s translate",
)
@click.version_option(__version__, prog_name="s2s", message="%(prog)s %(version)s")
@click.option(
    "--debug", is_flag=True, expose_value=False, help="Show tracebacks of errors; allowed before and after the command."
)
@click.pass_context
def group(context: click.Context) -> None:
    """Train, run, score and serve Transformers for translation and classification."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `s2s` and return its exit code.

    0 success, 1 the run failed, 2 wrong usage, configuration or input, 130 interrupted. Without `arguments`, those of
    the process are used, and the process must end when the function returns.
    """
    exit_code: int | None = None  # while the command runs
    interrupts, debug = None, False

    def interrupt(number: int, frame: FrameType | None) -> None:
        if exit_code is None:
            raise KeyboardInterrupt

    try:
        interrupts = Interrupts(interrupt)
        typed, debug = _without_debug(sys.argv[1:] if arguments is None else arguments)
        _fill_closed_streams()
        _set_up_streams(debug)
        _wait_briefly()
        exit_code = _invoke(typed)
    except BaseException as error:
        exit_code = 1  # first of all, so that a second interrupt does not stop the report
        exit_code = _report(error, debug)
    if interrupts is not None:
        interrupts.end(exit_code, is_process=arguments is None)
    return exit_code


def _without_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Return the arguments without `--debug`, which is allowed everywhere, and whether it was among them."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [argument for argument in arguments[:end] if argument != "--debug"]
    return [*options, *arguments[end:]], "--debug" in arguments[:end]


def _invoke(arguments: list[str]) -> int:
    if "_S2S_COMPLETE" in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(group, {}, "s2s", "_S2S_COMPLETE", os.environ["_S2S_COMPLETE"])
    try:
        with group.make_context("s2s", arguments) as context:
            group.invoke(context)
    except click.exceptions.Exit as finished:
        return finished.exit_code
    sys.stdout.flush()
    return 0


def _report(error: BaseException, debug: bool) -> int:
    """Print what went wrong, one line for each problem, and return the exit code."""
    if debug and not isinstance(error, (KeyboardInterrupt, SystemExit)):
        traceback.print_exception(error)
    message, exit_code = _explain(error)
    for line in message.splitlines():
        if len(line) > 2 * HALF_LINE:
            line = f"{line[:HALF_LINE]} ... {line[-HALF_LINE:]}"
        _print_error(f"s2s: {line}")
    return exit_code


def _explain(error: BaseException) -> tuple[str, int]:
    """Return the message of an error, one line for each problem, and the exit code."""
    match error:
        case KeyboardInterrupt() | click.Abort():
            return "", INTERRUPTED
        case SystemExit(code=int(code)):
            return "", code
        case click.ClickException():
            context = getattr(error, "ctx", None)
            command = context.command_path if context is not None else "s2s"
            return f"{' '.join(error.format_message().split()).rstrip('.')} (see {command} --help)", 2
        case UserError():
            return str(error), error.exit_code
        case BrokenPipeError() if _reader_is_gone():
            _abandon(sys.stdout)
            return "", 0
        case OSError() if error.errno is not None:
            if error.filename is None:
                _abandon(sys.stdout)  # the rest of its buffer cannot be written either
            name = "" if error.filename is None else f"{error.filename}: "
            remedy = f"; {REMEDIES[error.errno]}" if error.errno in REMEDIES else ""
            return f"{name}{(error.strerror or str(error)).lower()}{remedy}", 1
        case _ if _is_out_of_memory(error):
            return "out of memory; use smaller batches (training.batch_tokens, --batch-tokens) or shorter lines", 1
    first_line = (str(error).strip().splitlines() or [""])[0]
    return f"internal error: {type(error).__name__}: {first_line} (run with --debug for the traceback)", 1


def _print_error(text: str) -> None:
    """Print a line on standard error, above a progress bar; a failure to write is ignored."""
    try:
        if "tqdm" in sys.modules:
            sys.modules["tqdm"].tqdm.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr)
        sys.stderr.flush()
    except OSError:
        _abandon(sys.stderr)


def _is_out_of_memory(error: BaseException) -> bool:
    if "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from seq2seq.memory import is_out_of_memory

    return is_out_of_memory(error)


def _reader_is_gone() -> bool:
    """Whether the reader of standard output has ended; a broken pipe may also be one between our own processes."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError, AttributeError):
        return True
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _abandon(stream: TextIO) -> None:
    """Redirect a stream to the null device, so that the rest of its buffer can be flushed."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


def _fill_closed_streams() -> None:
    """Open the null device in place of closed standard streams.

    Otherwise the next opened file gets the descriptor, and output of libraries is written to that file. Also, `print`
    to a standard error that is None writes to standard output.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))


def _set_up_streams(debug: bool) -> None:
    # A file name may have bytes that are not UTF-8, which are printed unchanged.
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")
    logging.basicConfig(handlers=[_StderrHandler()], level=logging.WARNING, force=True)
    logging.getLogger("seq2seq").setLevel(logging.INFO)
    if not debug and not sys.warnoptions:
        warnings.simplefilter("ignore")  # warnings of libraries; ours go through logging


def _wait_briefly() -> None:
    """Let torch's threads sleep after a short wait for the next operation; must be called before torch is imported.

    By default they busy-wait for milliseconds (GNU OpenMP, Linux) on CPUs that other processes could use: a training
    next to a translation loses two thirds of its share. A wait of about 0.1 ms is as fast if the process runs alone,
    because the next operation comes sooner. Values that the user set are kept.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")


class _StderrHandler(logging.Handler):
    """A handler that prints `s2s: message` or `s2s: warning: message` on the current standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        _print_error("\n".join(f"s2s: {level}{line}" for line in record.getMessage().splitlines()))
