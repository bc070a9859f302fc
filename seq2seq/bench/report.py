"""What a benchmark found, as one JSON document and as a table for people; the table shows what the document says.

`training` and `decoding` make a `Report`, `cli.bench` prints it.
"""

import importlib.metadata
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seq2seq import __version__
from seq2seq.bench.measure import Spread
from seq2seq.runtime import Runtime

NOTHING = "-"


@dataclass(frozen=True)
class Column:
    """One column of the table: a key of each system's figures, and how its numbers look."""

    title: str
    key: str
    form: str = "{}"
    unit: int = 1

    def cell(self, system: Mapping[str, Any]) -> str:
        """The number, or the median with the lowest and the highest round."""
        value = system.get(self.key)
        if value is None:
            return NOTHING
        if isinstance(value, Mapping):
            median, low, high = (self.form.format(value[name]) for name in ("median", "low", "high"))
            return f"{median} ({low}-{high})"
        return self.form.format(value if self.unit == 1 else value / self.unit)


@dataclass(frozen=True)
class LeftOut:
    """A system that was not measured, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Report:
    """Figures of one benchmark, plain values all of them."""

    bench: str
    machine: dict[str, Any]
    work: dict[str, Any]
    """What was done, the same for every system."""
    systems: list[dict[str, Any]]
    """Ours first."""
    left_out: list[LeftOut]
    notes: list[str]
    columns: Sequence[Column]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "bench": self.bench,
            "machine": self.machine,
            "work": self.work,
            "systems": self.systems,
            "left_out": [vars(one) for one in self.left_out],
            "notes": self.notes,
        }

    def lines(self, most_columns: int | None = None) -> Iterator[str]:
        """For people: a table, or where it is wider than `most_columns`, a paragraph for each system."""
        yield f"machine: {_listed(self.machine)}"
        yield f"work: {_listed(self.work)}"
        yield ""
        columns = [column for column in self.columns if any(column.key in system for system in self.systems)]
        rows = [
            [column.title for column in columns],
            *([column.cell(system) for column in columns] for system in self.systems),
        ]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        if most_columns is not None and sum(widths) + 2 * len(widths) > most_columns:
            for name, *cells in rows[1:]:
                yield name
                yield from (f"  {title}: {cell}" for title, cell in zip(rows[0][1:], cells, strict=True))
        else:
            for row in rows:
                name, *cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
                yield "  ".join([name, *(cell.strip().rjust(len(cell)) for cell in cells)]).rstrip()
        yield ""
        yield from (f"not measured: {one.name}: {one.reason}" for one in self.left_out)
        yield from self.notes


def machine(runtime: Runtime, packages: Sequence[str]) -> dict[str, Any]:
    """Where a benchmark ran, and with which versions."""
    device = runtime.device
    described = {"processor": _processor(), "threads": torch.get_num_threads()}
    if device.type == "cuda":
        described["gpu"] = torch.cuda.get_device_name(device)
    versions = {name: importlib.metadata.version(name) for name in packages}
    return described | {
        "device": str(device),
        "precision": str(runtime.precision).removeprefix("torch."),
        "python": platform.python_version(),
        "seq2seq": __version__,
        "torch": torch.__version__,
        **versions,
    }


def rounds_of(spread: Spread | None) -> dict[str, Any] | None:
    """A spread for JSON, or null."""
    return spread and spread.as_dict()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in values.items() if value is not None)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value['median']:,.4g}" if "median" in value else " ".join(f"{k} {v}" for k, v in value.items())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
