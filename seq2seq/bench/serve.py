"""`s2s bench serve`: a server under load, beside `s2s translate` on the same lines.

The server is a process of its own. Each client sends one line at a time and waits for the answer, for a given time; its
answers are compared with what the translator gives for all lines at once. Clients and server share the machine.
"""

import contextlib
import http.client
import itertools
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seq2seq.bench.decoding import phrasebook
from seq2seq.bench.measure import Progress, resident, spread
from seq2seq.bench.report import Column, Report, machine
from seq2seq.errors import RunError
from seq2seq.inference.translator import Translator
from seq2seq.runtime import start
from seq2seq.workflows.probe import Probe

COLUMNS = (
    Column("system", "name"),
    Column("sentences/s", "sentences_per_second", "{:,.4g}"),
    Column("of translate", "share", "{:.2f}"),
    Column("p50 ms", "p50_ms", "{:,.4g}"),
    Column("p95 ms", "p95_ms", "{:,.4g}"),
    Column("answers", "answers", "{:,}"),
    Column("wrong", "wrong"),
    Column("lost", "lost"),
    Column("refused", "refused"),
    Column("MiB before", "memory_before_bytes", "{:,.0f}", 2**20),
    Column("MiB after", "memory_after_bytes", "{:,.0f}", 2**20),
)
NOTES = [
    "of translate: sentences/s as a share of the translator's on all lines at once, in adjacent rounds",
    "wrong: answers that are not the translator's; lost: requests without an answer; refused: 429, tried again",
]
WARM_UP_LINES = 16
LONGEST_SECONDS = 120.0  # that a client waits for an answer
ADDRESS = re.compile(r"listening on http://(\S+):(\d+)")


@dataclass
class Tally:
    """What clients saw."""

    seconds: list[float] = field(default_factory=list)
    """Of each answer."""
    counts: Counter[str] = field(default_factory=Counter)


def bench_serve(
    folder: Path,
    probe: Probe,
    most_lines: int = 1000,
    clients: Sequence[int] = (8, 64, 256),
    seconds: float = 10.0,
    rounds: int = 1,
    options: Mapping[str, Any] | None = None,
    progress: Progress = lambda what: None,
) -> Report:
    """Measure a server of one model.

    Args:
        folder: a translation model.
        probe: its lines are what clients send, again and again; the built-in one stands for the test set of the
            phrasebook that comes with the toolkit, for models from English or German.
        most_lines: of those.
        clients: how many ask at the same time.
        seconds: of each round of each number of clients.
        rounds: of translator and clients, one after the other.
        options: of `Translator.load`, and of the server.
        progress: called with a description of the next step.

    Raises:
        ModelError: there is no such model.
        RunError: the server does not start.
    """
    options = {name: value for name, value in (options or {}).items() if value is not None}
    translator = Translator.load(folder, **options)
    given = probe if probe.lines is not None else phrasebook(folder, translator.description)
    lines = given.lines[:most_lines]
    translator.translate(lines[:WARM_UP_LINES])
    rates: list[float] = []
    tallies: dict[int, list[Tally]] = {count: [] for count in clients}
    shares: dict[int, list[float]] = {count: [] for count in clients}
    memory: dict[int, list[int | None]] = {count: [] for count in clients}
    with _server(folder, options, max(clients)) as (address, process):
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}: translate")
            begun = time.perf_counter()
            expected = [translation.text for translation in translator.translate(lines)]
            rates.append(len(lines) / (time.perf_counter() - begun))
            for count in clients:
                progress(f"round {number + 1} of {rounds}: {count} clients")
                memory[count].append(_resident(process.pid))
                tallies[count].append(_load(address, lines, expected, count, seconds))
                memory[count].append(_resident(process.pid))
                shares[count].append(tallies[count][-1].counts["rate"] / 1000 / rates[-1])
    systems = [{"name": "translate", "sentences_per_second": spread(rates), "answers": rounds * len(lines)}]
    for count in clients:
        taken = sorted(itertools.chain.from_iterable(tally.seconds for tally in tallies[count]))
        total = sum((tally.counts for tally in tallies[count]), Counter())
        systems.append(
            {
                "name": f"{count} clients",
                "sentences_per_second": spread([tally.counts["rate"] / 1000 for tally in tallies[count]]),
                "share": spread(shares[count]),
                "p50_ms": 1000 * statistics.median(taken) if taken else None,
                "p95_ms": 1000 * taken[int(0.95 * (len(taken) - 1))] if taken else None,
                "answers": len(taken),
                **{name: total[name] for name in ("wrong", "lost", "refused")},
                "memory_before_bytes": memory[count][0],
                "memory_after_bytes": memory[count][-1],
            }
        )
    work = {"model": str(folder), "engine": translator.engine_note, "lines": len(lines), "seconds": seconds}
    return Report("serve", machine(start("cpu", "float32"), systems), work, systems, {}, NOTES, COLUMNS)


def _load(address: tuple[str, int], lines: Sequence[str], expected: Sequence[str], count: int, seconds: float) -> Tally:
    """So many clients for so long; the count `rate` is sentences per 1,000 seconds, until the last answer."""
    tally, lock, numbers = Tally(), threading.Lock(), itertools.count()
    begun = time.perf_counter()

    def one_client() -> None:
        connection = http.client.HTTPConnection(*address, timeout=LONGEST_SECONDS)
        while time.perf_counter() - begun < seconds:
            with lock:
                index = next(numbers) % len(lines)
            asked = time.perf_counter()
            what, wait = _ask(connection, lines[index], expected[index])
            with lock:
                if what in ("right", "wrong"):
                    tally.seconds.append(time.perf_counter() - asked)
                tally.counts[what] += 1
            time.sleep(wait)
        connection.close()

    threads = [threading.Thread(target=one_client) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tally.counts["rate"] = round(1000 * len(tally.seconds) / (time.perf_counter() - begun))
    return tally


def _ask(connection: http.client.HTTPConnection, line: str, expected: str) -> tuple[str, float]:
    """What came of a request: right, wrong, refused or lost; and the seconds to wait before the next."""
    try:
        body = json.dumps({"text": line}).encode()
        connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        connection.close()
        return "lost", 0.1
    if response.status == 429:
        return "refused", min(float(response.headers["Retry-After"]), 1.0)
    if response.status != 200:
        return "lost", 0.1
    return ("right" if answer["translations"][0]["text"] == expected else "wrong"), 0.0


@contextlib.contextmanager
def _server(folder: Path, options: Mapping[str, Any], clients: int) -> Iterator[tuple[tuple[str, int], Any]]:
    """A server's address and process; it ends with the block."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    queue = f"--max-queue={max(1000, 4 * clients)}"
    command = [sys.executable, "-m", "seq2seq", "serve", str(folder), "--port=0", queue, "--no-page", *given]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            said: list[str] = []
            for line in process.stderr:
                said.append(line.strip())
                if found := ADDRESS.search(line):
                    threading.Thread(target=process.stderr.read, daemon=True).start()  # or it would wait for a reader
                    yield (found.group(1), int(found.group(2))), process
                    break
            else:
                raise RunError(f"the server did not start: {' '.join(said[-1:])}")
        finally:
            process.terminate()
            process.wait(timeout=LONGEST_SECONDS)


def _resident(pid: int) -> int | None:
    """Bytes of a process in memory, where the system says so."""
    with contextlib.suppress(OSError):
        return resident("VmRSS", pid)
    return None
