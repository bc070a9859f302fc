"""The benchmark `s2s bench serve`: a server under load, next to the translator of `s2s translate` on the same lines.

The server is a separate process. For a given time, each client sends a request and waits for the answer, again and
again (closed loop). Answers are compared with those of the translator for all lines together. Clients and server share
the machine.
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
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from seq2seq.bench.decoding import TYPED, phrasebook
from seq2seq.bench.measure import Entrant, Progress, figures, take_rounds
from seq2seq.bench.report import Report, machine
from seq2seq.errors import RunError, counted
from seq2seq.evaluation.probe import Probe
from seq2seq.inference.translator import Translator
from seq2seq.processes import resident_bytes
from seq2seq.runtime import start

WARM_UP_LINES = 16
LONGEST_SECONDS = 120.0  # the time limit of a client for an answer
ADDRESS = re.compile(r"listening on http://(\S+):(\d+)")


@dataclass(frozen=True)
class LoadRounds:
    """The number of rounds, and the load of each round."""

    rounds: int = 1
    clients: tuple[int, ...] = (8, 64, 256)
    """Numbers of concurrent clients, measured one after the other."""
    seconds: float = 10.0
    """Duration of the measurement of each number of clients."""
    texts: int = 1
    """Lines per request."""
    sentences: int = 1000
    """The number of lines of the probe, which are sent in turn."""


@dataclass
class ClientTally:
    """The results of a number of clients, and the memory of the server before and after each of their rounds."""

    seconds: list[float] = field(default_factory=list)
    """The latency of each answer."""
    counts: Counter[str] = field(default_factory=Counter)
    memory: list[int | None] = field(default_factory=list)
    """Resident bytes of the server; None if unknown."""

    def facts(self) -> dict[str, Any]:
        """Return the figures of all rounds together."""
        taken = sorted(self.seconds)
        return {
            "p50_ms": 1000 * statistics.median(taken) if taken else None,
            "p95_ms": 1000 * taken[int(0.95 * (len(taken) - 1))] if taken else None,
            "answers": len(taken),
            **{name: self.counts[name] for name in ("wrong", "lost", "refused")},
            "memory_before_bytes": self.memory[0],
            "memory_after_bytes": self.memory[-1],
        }


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
        probe: lines that clients send. The built-in probe is the test set of the phrasebook of the toolkit, for models
            from English or German.
        load: number of rounds, and the load of each.
        options: options of `Translator.load` and of the server.
        progress: function that is called with a description of the next step.

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
    tallies = {count: ClientTally() for count in load.clients}
    expected: list[str] = []

    def translate() -> dict[str, float]:
        begun = time.perf_counter()
        expected[:] = [translation.text for translation in translator.translate(lines)]
        return {"sentences_per_second": len(lines) / (time.perf_counter() - begun)}

    with _server(folder, options, load.texts * max(load.clients)) as (address, process):

        def ask(count: int) -> dict[str, float]:
            tally = tallies[count]
            tally.memory.append(resident_bytes(process.pid))
            rate = _round_of_clients(address, lines, expected, count, load, tally)
            tally.memory.append(resident_bytes(process.pid))
            return {"sentences_per_second": rate}

        entrants = [Entrant("translate", "", translate, {"answers": load.rounds * len(lines)})]
        entrants += [Entrant(counted(count, "client"), "", partial(ask, count), {}) for count in load.clients]
        take_rounds(entrants, load.rounds, progress)
    for entrant, tally in zip(entrants[1:], tallies.values(), strict=True):
        entrant.facts.update(tally.facts())
    systems = list(figures(entrants))
    work = {"model": str(folder), "engine": translator.engine_note, "lines": len(lines), "seconds": load.seconds}
    work["lines of a request"] = load.texts
    here = start(options.get("device", "auto"), options.get("precision"), options.get("threads"))
    toolkits = [*systems, *({"name": name.lower()} for name in translator.engine_note.split()[:1])]
    return Report("serve", machine(here, toolkits), work, systems, {})


def _round_of_clients(
    address: tuple[str, int],
    lines: Sequence[str],
    expected: Sequence[str],
    count: int,
    load: LoadRounds,
    tally: ClientTally,
) -> float:
    """Let this number of clients send requests for the seconds of a round, add their results to `tally`, and return the
    lines per second until the last answer."""
    lock, numbers, before = threading.Lock(), itertools.count(), len(tally.seconds)
    begun = time.perf_counter()

    def one_client() -> None:
        connection = http.client.HTTPConnection(*address, timeout=LONGEST_SECONDS)
        while time.perf_counter() - begun < load.seconds:
            with lock:
                first = next(numbers) * load.texts
            chosen = [number % len(lines) for number in range(first, first + load.texts)]
            sent = time.perf_counter()
            result, wait = _ask(
                connection, [lines[number] for number in chosen], [expected[number] for number in chosen]
            )
            with lock:
                if result in ("right", "wrong"):
                    tally.seconds.append(time.perf_counter() - sent)
                tally.counts[result] += 1
            time.sleep(wait)
        connection.close()

    threads = [threading.Thread(target=one_client) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return load.texts * (len(tally.seconds) - before) / (time.perf_counter() - begun)


def _ask(connection: http.client.HTTPConnection, lines: Sequence[str], expected: Sequence[str]) -> tuple[str, float]:
    """Send a request, and return its result (right, wrong, refused or lost) and the seconds to wait before the next."""
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
    """Start a server whose queue has room for more than this many sentences; yield its address and process.

    The server ends with the context.

    Raises:
        RunError: the server does not start.
    """
    renamed = {"source_language": "from", "target_language": "to"}
    typed = {name: TYPED[value] if isinstance(value, bool) else value for name, value in options.items()}
    given = [f"--{renamed.get(name, name).replace('_', '-')}={value}" for name, value in typed.items()]
    queue = f"--max-queue={max(1000, 4 * sentences)}"
    command = [sys.executable, "-m", "seq2seq", "serve", str(folder), "--port=0", queue, "--no-page", *given]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            yield _address(process.stderr), process
        finally:
            process.terminate()
            process.wait(timeout=LONGEST_SECONDS)


def _address(log: TextIO) -> tuple[str, int]:
    """Return host and port of a server as soon as they are in its log, which a thread then reads to the end.

    Raises:
        RunError: the log ends before; the message has its last line.
    """
    line = ""
    for line in log:
        if address := ADDRESS.search(line):
            threading.Thread(target=log.read, daemon=True).start()  # so that the pipe never fills
            return address.group(1), int(address.group(2))
    raise RunError(f"the server did not start: {line.strip()}")
