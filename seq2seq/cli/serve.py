"""The command `s2s serve`: translation and classification over HTTP."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.config import ranges
from seq2seq.config.ranges import Range

logger = logging.getLogger("seq2seq.cli")

# Ports from which browsers load no page (https://fetch.spec.whatwg.org/#port-blocking).
REFUSED_PORTS = frozenset(
    (1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
     110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
     532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
     5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080)
)  # fmt: skip


@click.command(cls=Command, epilog="Example: s2s serve runs/demo --port 5000")
@click.argument("models", nargs=-1, type=options.ANY_PATH, metavar="[MODEL]...")
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on; an address other than localhost needs --key-file or --open.",
)
@click.option(
    "--port", type=options.Number(Range(0, 65535)), default=5000, help="Port to listen on; 0 chooses a free port."
)
@click.option("--key-file", type=options.FILE, help="File of API keys, one per line. Clients must send one of them.")
@click.option(
    "--open", "is_open", is_flag=True, help="Accept requests without a key from everyone who can reach --host."
)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    help="Host name to accept in requests, such as that of a proxy; repeatable.",
)
@click.option(
    "--cors-origin",
    "origins",
    multiple=True,
    help="Origin of web pages that may send requests, such as https://example.org; repeatable.",
)
@click.option("--no-page", is_flag=True, help="Do not serve the page at /.")
@click.option(
    "--max-queue",
    type=options.Number(Range(1, 10**6)),
    default=1000,
    help="Maximum number of waiting sentences of one client. Its further requests are refused; a single request may "
    "have more.",
)
@click.option(
    "--max-texts", type=options.Number(Range(1, 10**6)), default=100, help="Maximum number of texts in a request."
)
@click.option(
    "--max-characters",
    type=options.Number(Range(1, 10**8)),
    default=200_000,
    help="Maximum number of characters in the texts or documents of a request.",
)
@click.option(
    "--max-body",
    type=options.Number(Range(100, 10**9)),
    help="Maximum size of a request, in bytes [default: enough for --max-characters].",
)
@click.option(
    "--max-beam",
    type=options.Number(ranges.BEAM_SIZE),
    default=10,
    help="Maximum beam size that a client may request; the model's own is always allowed.",
)
@click.option(
    "--deadline",
    type=options.Number(Range(0.1, 86400.0)),
    default=60.0,
    help="Time limit for one request, in seconds.",
)
@click.option(
    "--glossary",
    "glossaries",
    metavar="[NAME=]FILE",
    multiple=True,
    help="Glossary for all requests that name no glossary, if the server has one language pair; with a pair, such as "
    "en-de=FILE, for such requests of this pair; with another NAME=, only for requests that name it. Repeatable "
    "(format: s2s glossary check --help).",
)
@options.direction_options
@options.pivot_option("not for pairs with this language, or that MODEL is known to be trained for")
@options.search_options
@options.engine_options
@options.computing_options
def command(
    models: tuple[Path, ...],
    host: str,
    port: int,
    key_file: Path | None,
    is_open: bool,
    names: tuple[str, ...],
    origins: tuple[str, ...],
    no_page: bool,
    max_queue: int,
    max_texts: int,
    max_characters: int,
    max_body: int | None,
    max_beam: int,
    deadline: float,
    glossaries: tuple[str, ...],
    pivot: str | None,
    **loading: Any,
) -> None:
    """Translate and classify over HTTP, with the API /v1, the API of LibreTranslate, and a page.

    MODEL is a model folder or a run folder [default: the newest translation run and the newest classification run].
    Several MODELs serve several language pairs or classifiers. If several translate the same pair, requests choose one
    by name. A multilingual MODEL serves all its languages, which requests name; --from and --to restrict it to one
    pair. GET /v1/models lists the models; /openapi.json describes requests. On SIGTERM the server answers the
    requests that it has accepted, then exits.
    """
    if is_open and key_file:
        raise click.UsageError(
            "--open accepts requests from everyone, --key-file only those with a key; leave out one of them"
        )
    from seq2seq.errors import UserError
    from seq2seq.serve.guard import Keys, host_name, is_loopback, origin_of
    from seq2seq.serve.limits import Limits, body_of

    if not is_loopback(host) and not is_open and not key_file:
        raise UserError(
            f"--host {host}: other machines could use this server; give --key-file FILE, or --open to allow it"
        )
    keys = Keys.read(key_file) if key_file else Keys()
    from seq2seq.serve import models as served
    from seq2seq.serve.glossaries import Glossaries
    from seq2seq.serve.server import Access, bind, serve

    limits = dataclasses.replace(
        Limits(), queue_sentences=max_queue, texts=max_texts, request_characters=max_characters,
        body_bytes=max_body or body_of(max_characters), beam_size=max_beam, deadline_seconds=deadline,
    )  # fmt: skip
    terms = Glossaries.read(glossaries)
    if port in REFUSED_PORTS and not no_page:
        logger.warning("browsers refuse port %d, so the page cannot be opened; choose another --port", port)
    access = Access(host, keys, [*map(host_name, names)], [*map(origin_of, origins)], page=not no_page)
    bound = bind(host, port)
    translating = {key: value for key, value in loading.items() if value is not None}
    computing = {key: loading[key] for key in ("device", "precision", "threads")}
    loaded = served.load(models or options.newest_models(), translating, computing, pivot)
    if glossaries and not loaded.translators:
        raise click.UsageError("--glossary: there is no translation model; name one, or leave the glossary out")
    serve(loaded, limits, access, bound, terms)
