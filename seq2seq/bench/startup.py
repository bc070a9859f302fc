"""`s2s bench startup`: how long each command takes for one line, as a process of its own, and its memory.

A process is started, answers, and ends, in alternating rounds. One round before them fills caches.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from seq2seq.bench.measure import Progress, spread
from seq2seq.bench.report import Column, Report, machine
from seq2seq.errors import RunError
from seq2seq.runtime import start
from seq2seq.store.model_folder import LoadedModel, load_model

# The command, and then the most bytes that its process had in memory.
PROGRAM = """
import sys
from seq2seq.cli import main
from seq2seq.processes import resident_bytes
code = main()
print(resident_bytes(peak=True) or "", file=sys.stderr)
sys.exit(code)
"""
COLUMNS = (
    Column("command", "name"),
    Column("seconds", "seconds", "{:.2f}"),
    Column("peak MiB", "peak_memory_bytes", "{:,.0f}", 2**20),
)
NOTES = ["seconds: from start to end of a process that reads one line; median of the rounds (lowest-highest)"]
TRANSLATION = {
    "translate": ["translate", "{model}"],
    "translate --engine torch": ["translate", "{model}", "--engine", "torch"],
    "score": ["score", "{model}", "{line}", "{line}"],
    "bleu": ["bleu", "{line}"],
}
CLASSIFICATION = {"classify": ["classify", "{model}"]}


def bench_startup(folder: Path, line: str, rounds: int = 5, progress: Progress = lambda what: None) -> Report:
    """Run each command that a model serves.

    Args:
        folder: a model folder, run folder or Marian folder.
        line: what each process reads.
        rounds: how often each command is timed.
        progress: called with a description of the next step.

    Raises:
        ModelError: there is no such model.
        RunError: a command failed.
    """
    model = load_model(folder)
    commands = CLASSIFICATION if model.description.task == "classification" else TRANSLATION
    taken: dict[str, list[tuple[float, int | None]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory(prefix="s2s-bench-") as temporary:
        text = Path(temporary) / "line"
        text.write_text(f"{line}\n", encoding="utf-8")
        for number in range(rounds + 1):
            for name, arguments in commands.items():
                progress(f"round {number} of {rounds}: {name}")
                filled = [one.format(model=model.folder, line=text) for one in arguments]
                measured = _run(filled, text)
                taken[name] += [measured] if number else []
    systems = [
        {
            "name": name,
            "seconds": spread([seconds for seconds, _ in values]),
            "peak_memory_bytes": max((peak for _, peak in values if peak), default=None),
        }
        for name, values in taken.items()
    ]
    return Report("startup", machine(start("cpu"), systems), _work(model, rounds), systems, {}, NOTES, COLUMNS)


def _run(arguments: Sequence[str], text: Path) -> tuple[float, int | None]:
    """Seconds and peak bytes of one process; None where the system does not report them."""
    begun = time.perf_counter()
    with open(text, "rb") as source:
        done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], stdin=source, capture_output=True)
    seconds = time.perf_counter() - begun
    *said, last = done.stderr.decode(errors="replace").splitlines() or [""]
    if done.returncode:
        raise RunError(f"s2s {' '.join(arguments)}: {' '.join([*said, last])}")
    return seconds, int(last) if last.isdigit() else None


def _work(model: LoadedModel, rounds: int) -> dict[str, object]:
    size = sum(weight.numel() for weight in model.model.parameters())
    return {"model": str(model.folder), "parameters": size, "rounds": rounds}
