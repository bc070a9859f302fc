"""`s2s bench serve`: a server under load, beside `s2s translate` on the same lines.

The server is a process of its own. Each client sends one request at a time and waits for the answer, for a given time;
its answers are compared with what the translator gives for all lines at once. Clients and server share the machine.
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
from seq2seq.bench.measure import Progress, spread
from seq2seq.bench.report import Column, Report, machine
from seq2seq.errors import RunError
from seq2seq.inference.translator import Translator
from seq2seq.processes import resident_bytes
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


@dataclass(frozen=True)
class LoadRounds:
    """How many rounds, and what clients ask in each."""

    rounds: int = 1
    clients: tuple[int, ...] = (8, 64, 256)
    """Numbers of clients that ask at the same time, in turn."""
    seconds: float = 10.0
    """Of each number of clients."""
    texts: int = 1
    """Lines of a request."""
    sentences: int = 1000
    """How many lines of the probe are sent, again and again."""


@dataclass
class ClientTally:
    """What clients saw in one round, and the bytes of the server before and after it."""

    seconds: list[float] = field(default_factory=list)
    """Of each answer."""
    counts: Counter[str] = field(default_factory=Counter)
    rate: float = 0.0
    """Lines a second, until the last answer."""
    memory: tuple[int | None, int | None] = (None, None)


def bench_serve(
    folder: Path,
    probe: Probe,
    load: LoadRounds | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Progress = lambda what: None,
) -> Report:
    """Measure a server of one model.

    Args:
        folder: a translation model.
        probe: its lines are what clients send; the built-in one is the test set of the phrasebook that comes with the
            toolkit, for models from English or German.
        load: the rounds of translator and clients, one after the other.
        options: of `Translator.load`, and of the server.
        progress: called with a description of the next step.

    Raises:
        ModelError: there is no such model.
        RunError: the server does not start.
    """
    load = load or LoadRounds()
    options = {name: value for name, value in (options or {}).items() if value is not None}
    translator = Translator.load(folder, **options)
    given = probe if probe.lines is not None else phrasebook(folder, translator.description)
    lines = given.lines[: load.sentences]
    translator.translate(lines[:WARM_UP_LINES])
    rates: list[float] = []
    tallies: dict[int, list[ClientTally]] = {count: [] for count in load.clients}
    with _server(folder, options, load.texts * max(load.clients)) as (address, process):
        for number in range(load.rounds):
            progress(f"round {number + 1} of {load.rounds}: translate")
            begun = time.perf_counter()
            expected = [translation.text for translation in translator.translate(lines)]
            rates.append(len(lines) / (time.perf_counter() - begun))
            for count in load.clients:
                progress(f"round {number + 1} of {load.rounds}: {count} clients")
                before = resident_bytes(process.pid)
                tally = _round_of_clients(address, lines, expected, count, load)
                tally.memory = before, resident_bytes(process.pid)
                tallies[count].append(tally)
    systems = [{"name": "translate", "sentences_per_second": spread(rates), "answers": load.rounds * len(lines)}]
    systems += [_figures(count, found, rates) for count, found in tallies.items()]
    work = {"model": str(folder), "engine": translator.engine_note, "lines": len(lines), "seconds": load.seconds}
    work["lines of a request"] = load.texts
    return Report("serve", machine(start("cpu", "float32"), systems), work, systems, {}, NOTES, COLUMNS)


def _figures(count: int, tallies: Sequence[ClientTally], rates: Sequence[float]) -> dict[str, Any]:
    """The figures of a number of clients, whose rounds are next to those of the translator with these rates."""
    taken = sorted(itertools.chain.from_iterable(tally.seconds for tally in tallies))
    total = sum((tally.counts for tally in tallies), Counter())
    return {
        "name": f"{count} clients",
        "sentences_per_second": spread([tally.rate for tally in tallies]),
        "share": spread([tally.rate / rate for tally, rate in zip(tallies, rates, strict=True)]),
        "p50_ms": 1000 * statistics.median(taken) if taken else None,
        "p95_ms": 1000 * taken[int(0.95 * (len(taken) - 1))] if taken else None,
        "answers": len(taken),
        **{name: total[name] for name in ("wrong", "lost", "refused")},
        "memory_before_bytes": tallies[0].memory[0],
        "memory_after_bytes": tallies[-1].memory[1],
    }


def _round_of_clients(
    address: tuple[str, int], lines: Sequence[str], expected: Sequence[str], count: int, load: LoadRounds
) -> ClientTally:
    """Let this number of clients ask for the seconds of a round."""
    tally, lock, numbers = ClientTally(), threading.Lock(), itertools.count()
    begun = time.perf_counter()

    def one_client() -> None:
        connection = http.client.HTTPConnection(*address, timeout=LONGEST_SECONDS)
        while time.perf_counter() - begun < load.seconds:
            with lock:
                first = next(numbers) * load.texts
            chosen = [number % len(lines) for number in range(first, first + load.texts)]
            asked = time.perf_counter()
            what, wait = _ask(connection, [lines[number] for number in chosen], [expected[number] for number in chosen])
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
    tally.rate = load.texts * len(tally.seconds) / (time.perf_counter() - begun)
    return tally


def _ask(connection: http.client.HTTPConnection, lines: Sequence[str], expected: Sequence[str]) -> tuple[str, float]:
    """What came of a request: right, wrong, refused or lost; and the seconds to wait before the next."""
    body = json.dumps({"text": lines}).encode()
    try:
        connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        connection.close()
        return "lost", 0.1
    if response.status == 429:
        return "refused", min(float(response.headers.get("Retry-After", 1)), 1.0)
    if response.status != 200:
        return "lost", 0.1
    is_right = [translation["text"] for translation in answer["translations"]] == expected
    return ("right" if is_right else "wrong"), 0.0


@contextlib.contextmanager
def _server(folder: Path, options: Mapping[str, Any], sentences: int) -> Iterator[tuple[tuple[str, int], Any]]:
    """A server's address and process, with room for more than so many sentences; it ends with the block."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    queue = f"--max-queue={max(1000, 4 * sentences)}"
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
