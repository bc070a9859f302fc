"""A real `s2s serve` process, and a plain client; tests of the server start one and ask it."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from support import wrong_files
from support.forked import Forked, typed_in_a_shell
from support.our_models import make_ours

from seq2seq.config.schema import SearchConfig
from seq2seq.serve.server import Access, application
from seq2seq.serve.service import Service

ROOT = Path(__file__).parents[2]
SLOW = dict(d_model=256, num_heads=4, d_ff=1024, num_encoder_layers=3, num_decoder_layers=3, max_length=400)
WORDS = "a man rides red bicycle two dogs play in the snow der hund schläft old woman reads".split()  # noqa: SIM905


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A running server."""

    process: "subprocess.Popen | Started"
    host: str
    port: int
    log: list[str]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self, timeout: float = 60) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def ask(self, path: str, body: Any = None, *, method: str | None = None, **headers: str) -> Answer:
        """GET, or POST of a body: bytes as they are, anything else as JSON."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            body, named = json.dumps(body).encode(), {"Content-Type": "application/json", **named}
        with contextlib.closing(self.connect()) as connection:
            connection.request(method or ("GET" if body is None else "POST"), path, body, named)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def form(self, path: str, **fields: Any) -> Answer:
        content = urlencode(fields, doseq=True).encode()
        return self.ask(path, content, Content_Type="application/x-www-form-urlencoded")

    def translations(self, texts: list[str], **fields: Any) -> list[str]:
        answer = self.ask("/v1/translate", {"text": texts, **fields})
        assert answer.status == 200, answer.body
        return [one["text"] for one in answer.json["translations"]]

    def metrics(self) -> dict[str, float]:
        lines = self.ask("/metrics").body.decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def counts(self) -> dict[str, float]:
        """Sentences by what became of them."""
        states = re.compile(r's2s_sentences_total\{state="(\w+)"\}')
        return {found.group(1): value for name, value in self.metrics().items() if (found := states.fullmatch(name))}

    def stop(self, number: int = signal.SIGTERM, timeout: float = 30) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout)


class Started(Forked):
    """`s2s serve` in a forked process, which starts in a tenth of the time of a new one; `stderr` is a pipe."""

    modules = ("seq2seq.inference.translator", "seq2seq.serve.server")

    def __init__(self, *typed: str):
        reading, writing = os.pipe()

        def work() -> int:
            os.dup2(writing, 2)
            os.closerange(3, 4096)  # among them pipes to a browser, which waits until all their ends are closed
            asyncio._set_running_loop(None)  # the browser's
            sys.stderr = open(2, "w", buffering=1, closefd=False)
            return typed_in_a_shell(*typed)

        super().__init__(work)
        os.close(writing)
        self.stderr = open(reading)


def new_process(*typed: str) -> subprocess.Popen:
    """`s2s serve` as it is started from a shell."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-m", "seq2seq", *typed], env=environment, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, text=True)  # fmt: skip


@contextlib.contextmanager
def serving(*typed: str | Path, port: int = 0, start: Callable = Started) -> Iterator[Served]:
    """`s2s serve` with these arguments, until the block ends; with `new_process`, in a new interpreter."""
    process = start("serve", *map(str, typed), f"--port={port}", "--threads=1")
    log: list[str] = []
    reader = threading.Thread(target=lambda: log.extend(process.stderr), daemon=True)
    reader.start()
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"listening on http://(\S+):(\d+)", "".join(log))):
            assert process.poll() is None, log
            assert time.monotonic() < deadline, log
            time.sleep(0.02)
        yield Served(process, found.group(1).strip("[]"), int(found.group(2)), log)
    finally:
        process.kill()
        process.wait()
        reader.join(10)
        process.stderr.close()


def ask_inside(
    service: Service, path: str, body: bytes, told: Callable[[dict], object] = lambda message: None,
    access: Access | None = None, kind: str = "application/json", host: str = "localhost",
    leaves: Callable[[], bool] = lambda: False,
) -> list[dict]:  # fmt: skip
    """The messages of an answer that is asked for without a socket; `told` is called with each when it is sent, and
    the client is gone when `leaves` is true."""
    parts: list[dict] = []

    async def ask() -> None:
        sent = [body]

        async def receive():
            if sent:
                return {"type": "http.request", "body": sent.pop(), "more_body": False}
            while not leaves():
                await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        async def send(message):
            parts.append(message)
            told(message)

        scope = {
            "type": "http", "method": "POST", "path": path, "query_string": b"", "root_path": "", "scheme": "http",
            "headers": [(b"host", host.encode()), (b"content-type", kind.encode())],
            "server": ("localhost", 1), "client": ("127.0.0.1", 1),
        }  # fmt: skip
        await application(service, access or Access())(scope, receive, send)

    asyncio.run(ask())
    return parts


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition; the bound is that of a test that hangs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def quick_model(folder: Path, seed: int = 1) -> Path:
    """A model whose translations differ."""
    make_ours(folder, ending=4.0, seed=seed, d_model=32, search=SearchConfig(beam_size=3, max_length_ratio=1.5))
    return folder


def models_and_keys(folder: Path) -> Path:
    """Fill a folder with two translators, `one` (en-de) and `two` (en-pt_BR), the classifier `labels`, and `keys`."""
    quick_model(folder / "one")
    quick_model(folder / "two", seed=4)
    config = folder / "two" / "config.json"
    config.write_text(config.read_text().replace('"target_language": "de"', '"target_language": "pt_BR"'))
    wrong_files.save(folder / "labels", task="classification")
    (folder / "keys").write_text("# who\nfirst-key\nsecond-key\n")
    return folder


def with_a_key(folder: Path) -> contextlib.AbstractContextManager[Served]:
    """A server of one direction that wants a key, with models of `models_and_keys`."""
    return serving(folder / "one", "--key-file", folder / "keys", "--no-page", "--cors-origin", "https://a.example",
                   "--allow-host", "t.example", "--max-characters", "9999", "--max-body", "20000")  # fmt: skip


def slow_model(folder: Path) -> Path:
    """A model that takes about 0.1 s for a line of 6 words and 0.6 s for one of 30, and never ends a translation."""
    search = SearchConfig(beam_size=4, max_length_ratio=1.0)
    make_ours(folder, ending=-100.0, search=search, **SLOW)
    return folder


def lines(count: int, words: int = 6) -> list[str]:
    """Different lines."""
    return [" ".join(WORDS[(index * 7 + place * (1 + index % 5)) % len(WORDS)] for place in range(words))
            + f" {index}" for index in range(count)]  # fmt: skip
