"""`s2s bench serve`: a server under load, beside `s2s translate` on the same lines.

The server is a process of its own. Each client sends one request at a time and waits for the answer, for a given time;
its answers are compared with what the translator gives for all lines at once. Clients and server share the machine.
Another server, which speaks LibreTranslate's dialect, can be measured beside it.
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
from urllib.parse import urlsplit

from seq2seq.bench.decoding import phrasebook
from seq2seq.bench.measure import Progress, spread
from seq2seq.bench.report import Column, Report, machine
from seq2seq.errors import RunError, UserError
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


@dataclass
class Tally:
    """What clients saw."""

    seconds: list[float] = field(default_factory=list)
    """Of each answer."""
    counts: Counter[str] = field(default_factory=Counter)
    rate: float = 0.0
    """Lines a second, until the last answer."""


@dataclass(frozen=True)
class Target:
    """A server that clients ask: this toolkit's in its own dialect, or another in LibreTranslate's."""

    name: str
    address: tuple[str, int]
    languages: tuple[str, str] | None = None
    """Source and target, for LibreTranslate's dialect."""

    def request(self, lines: Sequence[str]) -> tuple[str, dict[str, Any]]:
        """The path and the body."""
        if self.languages is None:
            return "/v1/translate", {"text": lines}
        source, target = self.languages
        return "/translate", {"q": lines, "source": source, "target": target, "format": "text"}

    def is_right(self, answer: Any, expected: Sequence[str]) -> bool:
        """Whether the translations are the expected ones; those of another server have their number alone to show."""
        if self.languages is None:
            return [one["text"] for one in answer["translations"]] == expected
        return len(answer["translatedText"]) == len(expected)


def bench_serve(
    folder: Path,
    probe: Probe,
    most_lines: int = 1000,
    clients: Sequence[int] = (8, 64, 256),
    seconds: float = 10.0,
    rounds: int = 1,
    texts: int = 1,
    beside: str | None = None,
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
        texts: lines of a request.
        beside: the URL of a server with LibreTranslate's dialect, which the same clients ask in turn.
        options: of `Translator.load`, and of the server.
        progress: called with a description of the next step.

    Raises:
        ModelError: there is no such model.
        RunError: the server does not start.
        UserError: `beside` is no address.
    """
    options = {name: value for name, value in (options or {}).items() if value is not None}
    translator = Translator.load(folder, **options)
    others = _others(beside, translator)
    given = probe if probe.lines is not None else phrasebook(folder, translator.description)
    lines = given.lines[:most_lines]
    translator.translate(lines[:WARM_UP_LINES])
    rates: list[float] = []
    measured: dict[tuple[str, int], list[Tally]] = {}
    memory: dict[tuple[str, int], list[int | None]] = {}
    with _server(folder, options, texts * max(clients)) as (address, process):
        targets = [Target("seq2seq", address), *others]
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}: translate")
            begun = time.perf_counter()
            expected = [translation.text for translation in translator.translate(lines)]
            rates.append(len(lines) / (time.perf_counter() - begun))
            for count, target in itertools.product(clients, targets):
                progress(f"round {number + 1} of {rounds}: {count} clients, {target.name}")
                key = (target.name, count)
                memory.setdefault(key, []).append(resident_bytes(process.pid))
                measured.setdefault(key, []).append(_load(target, lines, expected, count, texts, seconds))
                memory[key].append(resident_bytes(process.pid))
    systems = [{"name": "translate", "sentences_per_second": spread(rates), "answers": rounds * len(lines)}]
    for (name, count), tallies in measured.items():
        taken = sorted(itertools.chain.from_iterable(tally.seconds for tally in tallies))
        total = sum((tally.counts for tally in tallies), Counter())
        before, *_, after = memory[name, count] if name == "seq2seq" else (None, None)
        systems.append(
            {
                "name": f"{name}, {count} clients",
                "sentences_per_second": spread([tally.rate for tally in tallies]),
                "share": spread([tally.rate / rate for tally, rate in zip(tallies, rates, strict=True)]),
                "p50_ms": 1000 * statistics.median(taken) if taken else None,
                "p95_ms": 1000 * taken[int(0.95 * (len(taken) - 1))] if taken else None,
                "answers": len(taken),
                **{name: total[name] for name in ("wrong", "lost", "refused")},
                "memory_before_bytes": before,
                "memory_after_bytes": after,
            }
        )
    work = {"model": str(folder), "engine": translator.engine_note, "lines": len(lines), "seconds": seconds}
    work["lines of a request"] = texts
    return Report("serve", machine(start("cpu", "float32"), systems), work, systems, {}, NOTES, COLUMNS)


def _others(url: str | None, translator: Translator) -> list[Target]:
    """The server beside, if there is one.

    Raises:
        UserError: this is no address, or the model does not say its languages.
    """
    if url is None:
        return []
    try:
        parts = urlsplit(url)
        address = (parts.hostname or "", parts.port or 80)
    except ValueError:
        address = ("", 0)
    if not address[0] or parts.scheme != "http":
        raise UserError(f"{url}: no address of a server; an example is http://127.0.0.1:5000")
    languages = (translator.description.source_language, translator.description.target_language)
    if None in languages:
        raise UserError("the model does not say its languages, which the other server needs")
    return [Target(url, address, languages)]


def _load(
    target: Target, lines: Sequence[str], expected: Sequence[str], count: int, texts: int, seconds: float
) -> Tally:
    """So many clients for so long."""
    tally, lock, numbers = Tally(), threading.Lock(), itertools.count()
    begun = time.perf_counter()

    def one_client() -> None:
        connection = http.client.HTTPConnection(*target.address, timeout=LONGEST_SECONDS)
        while time.perf_counter() - begun < seconds:
            with lock:
                first = next(numbers) * texts
            chosen = [number % len(lines) for number in range(first, first + texts)]
            asked = time.perf_counter()
            what, wait = _ask(
                connection, target, [lines[number] for number in chosen], [expected[number] for number in chosen]
            )
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
    tally.rate = texts * len(tally.seconds) / (time.perf_counter() - begun)
    return tally


def _ask(
    connection: http.client.HTTPConnection, target: Target, lines: Sequence[str], expected: Sequence[str]
) -> tuple[str, float]:
    """What came of a request: right, wrong, refused or lost; and the seconds to wait before the next."""
    path, fields = target.request(lines)
    try:
        connection.request("POST", path, json.dumps(fields).encode(), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        connection.close()
        return "lost", 0.1
    if response.status == 429:
        return "refused", min(float(response.headers.get("Retry-After", 1)), 1.0)
    if response.status != 200:
        return "lost", 0.1
    return ("right" if target.is_right(answer, expected) else "wrong"), 0.0


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
