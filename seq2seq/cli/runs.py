"""The command `s2s runs`: the runs of a folder as a table, the differences of two, and the deletion of checkpoints.

`workflows.runs` reads the run folders; this module selects, sorts and prints.
"""

import json
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import GroupWithDefault
from seq2seq.errors import DataError, UserError, counted, did_you_mean, some_of
from seq2seq.lines import UNWRITABLE, aligned, shown_json

if TYPE_CHECKING:
    from seq2seq.workflows.cleaning import Removal
    from seq2seq.workflows.runs import RunRecord

logger = logging.getLogger("seq2seq.cli")

LONGEST_CELL = 32
FIRST, LAST = ("name", "state"), ("hours", "machine", "size", "note")
_BETWEEN = re.compile(r",(?![^(]*\))")  # names of test sets have commas in brackets: zero (de-fr, zero-shot) bleu


@click.group(cls=GroupWithDefault, epilog="Example: s2s runs --sort bleu --where model.dropout=0.1")
def command() -> None:
    """List runs, show how two differ, or delete checkpoints.

    \b
    s2s runs [FOLDER]     the same as s2s runs list
    """


@command.command("list", epilog="Example: s2s runs list runs --sort bleu --where model.dropout=0.1")
@click.argument("folder", required=False, type=options.ANY_PATH)
@click.option(
    "--where",
    "conditions",
    metavar="KEY=VALUE",
    multiple=True,
    help="List only runs with this setting or state; repeatable.",
)
@click.option(
    "--sort",
    "order",
    metavar="COLUMN",
    help="Sort by this column: scores from the best, other columns from the lowest [default: name].",
)
@click.option("--columns", metavar="NAMES", help="Columns to show, separated by commas [default: all that differ].")
@click.option(
    "-f", "--format", "form", type=click.Choice(["table", "tsv", "jsonl"]), default="table", help="Output format."
)
def list_runs(
    folder: Path | None, conditions: tuple[str, ...], order: str | None, columns: str | None, form: str
) -> None:
    """List the runs in FOLDER, one line for each run [default: runs].

    Columns are the state, the settings in which the runs differ, the step, the validation and test scores of the best
    model, hours, machine and size. With --format jsonl, each run is an object with all its settings.
    """
    from seq2seq.workflows.comparable import scored_differently
    from seq2seq.workflows.runs import find_runs, varying

    if form == "jsonl":
        options.only_for("tables; the objects of jsonl have all columns", "columns")
    runs = find_runs(folder or Path("runs"))
    for condition in conditions:
        runs = _selected(runs, condition)
    rows = {run.name: _row(run) for run in runs}
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    shown = [name for name in names if not _is_setting(name, runs) or name in varying(runs)]
    shown = [name for name in shown if name not in LAST or any(row.get(name) for row in rows.values())]
    if columns is not None:
        shown = [_known(name.strip(), names, "--columns") for name in _BETWEEN.split(columns) if name.strip()]
        if not shown:
            raise click.UsageError("--columns names no column")
    if order is not None:
        runs = _sorted(runs, rows, _known(order, names, "--sort"))
    if form == "jsonl":
        for run in runs:
            click.echo(shown_json(run.as_json()))
        return
    for kind, columns_of_kind in scored_differently(runs).items():
        if own := [column for column in columns_of_kind if column in shown]:
            logger.warning(
                "%s: the runs have different %s, so these scores cannot be compared; s2s compare scores runs on "
                "one test set",
                ", ".join(own), kind,
            )  # fmt: skip
    columns_of_cells = [_column(runs, [rows[run.name].get(name) for run in runs], name, form) for name in shown]
    table = [shown, *(list(row) for row in zip(*columns_of_cells, strict=True))]
    for line in aligned(table) if form == "table" else map("\t".join, table):
        click.echo(line)


@command.command(epilog="Example: s2s runs diff runs/base runs/wide")
@click.argument("first", type=options.ANY_PATH)
@click.argument("second", type=options.ANY_PATH)
@options.format_option
def diff(first: Path, second: Path, form: str) -> None:
    """Show how the runs FIRST and SECOND differ: settings, tuned search, data, test sets, code, packages, machine."""
    from seq2seq.workflows.runs import differences

    changes = differences(*map(_one_run, (first, second)))
    if form == "json":
        click.echo(shown_json(changes, indent=1, default=lambda missing: None))
        return
    rows = [
        (key if subject == "config" else f"{subject}: {key}", *(_side(value) for value in sides))
        for subject, changed in changes.items()
        for key, sides in changed.items()
    ]
    for line in aligned([("", str(first), str(second)), *rows]) if rows else ["no difference"]:
        click.echo(line)


@command.command(epilog="Example: s2s runs clean runs --keep best --yes")
@click.argument("folder", required=False, type=options.ANY_PATH)
@click.option(
    "--keep",
    type=click.Choice(["best"]),
    required=True,
    help="What to keep. best: best models, metrics and settings; the checkpoints of finished runs are deleted.",
)
@click.option("--yes", "is_agreed", is_flag=True, help="Delete; otherwise only show what would be deleted.")
def clean(folder: Path | None, keep: str, is_agreed: bool) -> None:
    """Delete checkpoints of the runs in FOLDER [default: runs].

    A run cannot continue without its checkpoints, so those of unfinished runs are kept.
    """
    from seq2seq.workflows.cleaning import removals
    from seq2seq.workflows.runs import find_runs

    candidates = removals(find_runs(folder or Path("runs")))
    for kept in (removal for removal in candidates if removal.reason):
        logger.info("%s is kept unchanged: %s", kept.run.name, kept.reason)
    chosen = [removal for removal in candidates if removal.folders]
    number = total = 0
    for removal in chosen:
        if is_agreed and not _remove(removal):
            continue
        number, total = number + len(removal.folders), total + removal.num_bytes
        for path in removal.folders:
            click.echo(path)
    remedy = "" if is_agreed or not chosen else "; to delete them, add --yes"
    verb, what = "deleted" if is_agreed else "would delete", counted(number, "checkpoint")
    logger.info("%s %s, %s%s", verb, what, _mebibytes(total), remedy)


def _remove(removal: "Removal") -> int:
    """Delete the checkpoints of a run, and return their number; a run that has changed is kept, with a warning."""
    from seq2seq.workflows.cleaning import remove

    try:
        number = remove(removal)
    except UserError as error:
        logger.warning("%s is kept unchanged: %s", removal.run.name, error)
        return 0
    if not number:
        logger.warning("%s: nothing is deleted, because the run has changed since it was read", removal.run.name)
    return number


def _one_run(path: Path) -> "RunRecord":
    from seq2seq.workflows.runs import run_of

    if (run := run_of(path)) is None:
        raise DataError(f"{path}: not a run folder (metrics.jsonl is missing); name one, such as runs/demo")
    return run


def _row(run: "RunRecord") -> dict[str, Any]:
    """Return the values of a run by column, in order."""
    last = {"hours": run.hours, "machine": run.machine, "size": run.num_bytes, "note": run.note}
    return {"name": run.name, "state": run.state, **run.settings, "step": run.step, **run.figures, **last}


def _is_setting(name: str, runs: Sequence["RunRecord"]) -> bool:
    return name not in (*FIRST, *LAST) and any(name in run.settings for run in runs)


def _selected(runs: Sequence["RunRecord"], condition: str) -> list["RunRecord"]:
    key, separator, wanted = condition.partition("=")
    if not separator or not key:
        raise click.UsageError(f"--where {condition}: write KEY=VALUE, such as model.dropout=0.1")
    names = list(dict.fromkeys(name for run in runs for name in _row(run)))
    key = _known(key, names, "--where")
    values = [(run, _row(run).get(key)) for run in runs]
    selected = [run for run, value in values if _equals(value, wanted)]
    if not selected:
        others = list(dict.fromkeys(_cell(value, key) for _, value in values))
        raise DataError(f"--where {condition}: no run; {key} is {some_of(others)}")
    return selected


def _known(name: str, names: Sequence[str], option: str) -> str:
    """Return the column with this name; the last parts of a key are enough if they are unique."""
    if name in names:
        return name
    ends = [other for other in names if other.endswith(f".{name}")]
    ends = ends or [other for other in names if _of_set(other) == name]
    if len(ends) == 1:
        return ends[0]
    hint = f"; it may be {' or '.join(ends)}" if ends else did_you_mean(name, names)
    scores = [other for other in names if "." not in other]
    raise click.UsageError(f"{option} {name}: not a column{hint or f'; there are {some_of(scores, 12)}'}")


def _of_set(column: str) -> str:
    """Return the name of a column of scores as a user types it: `news bleu` for `news (de-fr, zero-shot) bleu`."""
    return re.sub(r" \([^()]*\) ", " ", column)


def _equals(value: Any, wanted: str) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value) == float(wanted)
        except ValueError:
            return False
    return _plain(value) == wanted


def _sorted(runs: Sequence["RunRecord"], rows: Mapping[str, Mapping[str, Any]], column: str) -> list["RunRecord"]:
    """Return the runs sorted by a column: scores from the best, others from the lowest; runs without a value last."""
    from seq2seq.workflows.runs import LOWER_IS_BETTER

    is_score = any(column in run.figures for run in runs)
    sign = -1 if is_score and column.split()[-1] not in LOWER_IS_BETTER else 1

    def order(run: "RunRecord") -> tuple[int, float, str]:
        value = rows[run.name].get(column)
        if value is None:
            return 2, 0.0, ""
        if isinstance(value, int | float):
            return 0, sign * value, ""
        return 1, 0.0, _plain(value)

    return sorted(runs, key=order)


def _plain(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return UNWRITABLE.sub("\ufffd", text)


def _cell(value: Any, column: str, form: str = "table") -> str:
    """Return the text of a value: shortened in a table, complete in TSV."""
    formats: dict[str, Callable[[Any], str]] = {"hours": "{:.2f}".format, "size": _mebibytes}
    if value is not None and form == "table" and column in formats:
        return formats[column](value)
    if isinstance(value, float) and not isinstance(value, bool) and math.isfinite(value):
        return f"{value:.4g}" if form == "table" else f"{value!r}"
    text = _plain(value)
    return (
        f"…{text[-LONGEST_CELL + 1 :]}" if form == "table" and len(text) > LONGEST_CELL and column != "note" else text
    )


def _column(runs: Sequence["RunRecord"], values: Sequence[Any], name: str, form: str) -> list[str]:
    """Return the cells of a column; those of a setting are complete if different values would look equal."""
    cells = [_cell(value, name, form) for value in values]
    if _is_setting(name, runs) and len(set(cells)) < len({_cell(value, name, "complete") for value in values}):
        return [_cell(value, name, "complete") for value in values]
    return cells


def _side(value: Any) -> str:
    from seq2seq.workflows.runs import NOT_RECORDED

    return "not recorded" if value is NOT_RECORDED else "unset" if value is None else _cell(value, "", "complete")


def _mebibytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"
