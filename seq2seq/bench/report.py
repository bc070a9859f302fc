"""The report of a benchmark, as a JSON document and as a table with the same figures.

The benchmarks make it, and `cli.bench` prints it.
"""

import importlib.metadata
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seq2seq import __version__
from seq2seq.lines import aligned
from seq2seq.runtime import Runtime

# Other toolkits whose version is reported; the name of a system begins with the name of its toolkit.
PACKAGES = ("ctranslate2", "transformers")


@dataclass(frozen=True)
class Column:
    """A column of the table: a key of each system's figures, and the format of its numbers."""

    title: str
    key: str
    form: str = "{}"
    note: str = ""
    """The definition of the figure, for a line below the table."""
    unit: int = 1

    def cell(self, system: Mapping[str, Any]) -> str:
        """Return the number, or the median with the lowest and the highest round; `-` without a value."""
        value = system.get(self.key)
        if value is None:
            return "-"
        if isinstance(value, Mapping):
            median, low, high = (self.form.format(value[name]) for name in ("median", "low", "high"))
            return f"{median} ({low}-{high})"
        return self.form.format(value if self.unit == 1 else value / self.unit)


# The columns of all benchmarks, in order; a table has those whose figures it contains.
COLUMNS = (
    Column("system", "name"),
    Column("search", "work"),
    Column("sentences/s", "sentences_per_second", "{:,.1f}",
           "text to text, including tokenizers; median of the rounds (lowest-highest)"),
    Column("tokens/s", "tokens_per_second", "{:,.0f}",
           "source and target tokens without padding, ends included; median of the rounds (lowest-highest)"),
    Column("tokens per CPU second", "tokens_per_cpu_second", "{:,.0f}",
           "the same for a second of computation of the whole process"),
    Column("tokens/s", "output_tokens_per_second", "{:,.0f}", "output pieces, including ends of sentences"),
    Column("updates/s", "updates_per_second", "{:.3g}"),
    Column("one at a time/s", "single_sentences_per_second", "{:.1f}",
           "from the median time of the single sentences of a round"),
    Column("p50 ms", "p50_ms", "{:,.4g}"),
    Column("p95 ms", "p95_ms", "{:,.4g}"),
    Column("answers", "answers", "{:,}"),
    Column("wrong", "wrong", note="answers that differ from the translator's"),
    Column("lost", "lost", note="requests without an answer"),
    Column("refused", "refused", note="429, then sent again"),
    Column("MiB before", "memory_before_bytes", "{:,.0f}", unit=2**20),
    Column("MiB after", "memory_after_bytes", "{:,.0f}", unit=2**20),
    Column("BLEU", "bleu", "{:.2f}"),
    Column("same text", "same_text", "{:.1%}",
           "share of the lines with the same translation as the first system in the same search"),
    Column("matmul rate", "matmul_share", "{:.0%}",
           "FLOP/s of the products with weights, as a share of the FLOP/s of one large matrix product"),
    Column("peak MiB", "peak_memory_bytes", "{:,.0f}",
           "growth of the process while a system was opened and did the work once (training: largest batches)", 2**20),
    Column("parameters", "parameters", "{:,}"),
    Column("junk page", "junk_cost", "{:.1f}",
           "seconds per character of a page of codes and repeated words, divided by those of the sentences"),
    Column("speed ratio", "tokens_per_second_ratio", "{:.2f}",
           "tokens/s of the first system divided by those of this system, in adjacent rounds"),
    Column("speed ratio", "sentences_per_second_ratio", "{:.2f}",
           "sentences/s of the first system divided by those of this system, in adjacent rounds"),
    Column("ratio for one", "single_sentences_per_second_ratio", "{:.2f}",
           "the same for sentences translated one at a time"),
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """The figures of one benchmark, all plain values."""

    bench: str
    machine: dict[str, Any]
    work: dict[str, Any]
    """The work, which was the same for every system."""
    systems: list[dict[str, Any]]
    """The figures of each system, ours first."""
    left_out: dict[str, str]
    """The systems that were not measured, with the reason."""
    remarks: tuple[str, ...] = ()
    """Notes that are not about a column."""

    @property
    def columns(self) -> list[Column]:
        """The columns of the table."""
        return [column for column in COLUMNS if any(system.get(column.key) is not None for system in self.systems)]

    @property
    def notes(self) -> list[str]:
        """The definitions of the columns, and the remarks."""
        return [*(f"{column.title}: {column.note}" for column in self.columns if column.note), *self.remarks]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {name: value for name, value in vars(self).items() if name != "remarks"} | {"notes": self.notes}

    def lines(self, most_columns: int | None = None) -> Iterator[str]:
        """Yield the lines of a table, or of a paragraph per system if the table is wider than `most_columns`."""
        yield f"machine: {_listed(self.machine)}"
        yield f"work: {_listed(self.work)}"
        yield ""
        titles = [column.title for column in self.columns]
        rows = [[column.cell(system) for column in self.columns] for system in self.systems]
        table = aligned([titles, *rows], ">")
        if most_columns is None or max(map(len, table)) <= most_columns:
            yield from table
        else:
            for name, *cells in rows:
                yield name
                yield from (f"  {title}: {cell}" for title, cell in zip(titles[1:], cells, strict=True))
        yield ""
        yield from (f"not measured: {name}: {reason}" for name, reason in self.left_out.items())
        yield from self.notes


def machine(runtime: Runtime, systems: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the machine and the versions with which a benchmark of these systems ran."""
    device = runtime.device
    described = {"cpu": _cpu_name(), "threads": torch.get_num_threads(), "device": str(device)}
    if device.type == "cuda":
        described["gpu"] = torch.cuda.get_device_name(device)
    packages = [name for name in PACKAGES if any(system["name"].startswith(name) for system in systems)]
    return described | {
        "precision": str(runtime.precision).removeprefix("torch."),
        "python": platform.python_version(),
        "seq2seq": __version__,
        "torch": torch.__version__,
        **{name: importlib.metadata.version(name) for name in packages},
    }


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in values.items() if value is not None)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value['median']:,.4g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
