"""Connections and keys of `s2s serve`: bytes that are not one clear request, too many of one client, odd key files.

About 10 s.
"""

import contextlib
import functools
import json
import socket
import struct
import threading
import time

import pytest
import uvicorn
from starlette.requests import Request
from support.serving import Served, lines, quick_model, serving, until

from seq2seq.errors import UserError
from seq2seq.serve.guard import NO_VALUES, Keys
from seq2seq.serve.http import client_of
from seq2seq.serve.limits import Limits, Refusal
from seq2seq.serve.server import Bounded, bind

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LIMITS = Limits()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(quick_model(tmp_path_factory.mktemp("serve") / "model"), "--max-queue", "10000") as served:
        yield served


def answer_to(server: Served, sent: bytes) -> bytes:
    with socket.create_connection((server.host, server.port), timeout=20) as connection:
        connection.sendall(sent)
        found = b""
        with contextlib.suppress(ConnectionError):
            while more := connection.recv(65536):
                found += more
    return found


def padded(size: int) -> bytes:
    """A request whose headers and address have this many bytes, as `Limits.header_bytes` counts them."""
    own = len("/health") + len("host" + "localhost") + 4 + len("connection" + "close") + 4 + len("x") + 4
    return HEAD + b"Connection: close\r\nX: " + b"x" * (size - own) + b"\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HEAD + b"\r\n",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n" + HEAD + b"\r\n",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + HEAD + b"\r\n",
        POST + b"Content-Length: +5\r\n\r\n12345",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"X: 1\r\n" * LIMITS.headers + b"\r\n",
        padded(LIMITS.header_bytes + 1),
        padded(4 * LIMITS.header_bytes),
        b"GET /" + b"x" * LIMITS.header_bytes + HEAD[11:] + b"\r\n",
    ],
)
def test_a_request_that_may_be_read_in_two_ways_or_is_over_a_limit_ends_the_connection(server, sent):
    """In one piece, so that the whole of it is there when its first line is read."""
    answer = answer_to(server, sent)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "bad_http"


def test_headers_of_the_stated_number_and_size_pass(server):
    assert answer_to(server, padded(LIMITS.header_bytes)).startswith(b"HTTP/1.1 200 ")
    many = HEAD + b"Connection: close\r\n" + b"X: 1\r\n" * (LIMITS.headers - 2) + b"\r\n"
    assert answer_to(server, many).startswith(b"HTTP/1.1 200 ")


def test_half_sent_requests_of_one_client_do_not_refuse_another(server):
    with contextlib.ExitStack() as stack:
        for _ in range(LIMITS.connections + 20):
            one = stack.enter_context(socket.create_connection((server.host, server.port)))
            with contextlib.suppress(ConnectionError):
                one.sendall(POST[:40])
        for _ in range(3):
            other = stack.enter_context(socket.create_connection((server.host, server.port), 20, ("127.0.0.2", 0)))
            other.sendall(HEAD + b"\r\n")
            assert other.recv(100).startswith(b"HTTP/1.1 200 ")
    until(lambda: answer_to(server, padded(1000))[9:12] == b"200")


def test_bytes_that_are_being_received_are_bounded(server):
    """Who sends more at a time than a client may is refused, others are not, and it ends with the requests."""
    body = json.dumps({"text": "a man"}).encode()
    whole = POST + f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    unended = POST + f"Content-Length: {LIMITS.body_bytes}\r\n\r\n".encode() + b" " * (LIMITS.body_bytes - 1)
    refused = 's2s_refused_total{reason="too_many_bytes"}'
    with contextlib.ExitStack() as stack:
        for _ in range(LIMITS.client_bytes // LIMITS.body_bytes + 1):
            one = stack.enter_context(socket.create_connection((server.host, server.port)))
            with contextlib.suppress(ConnectionError):
                one.sendall(unended)
        until(lambda: server.metrics().get(refused, 0) > 0)
        other = stack.enter_context(socket.create_connection((server.host, server.port), 20, ("127.0.0.2", 0)))
        other.sendall(whole)
        assert other.recv(100).startswith(b"HTTP/1.1 200 ")
    until(lambda: answer_to(server, whole).startswith(b"HTTP/1.1 200 "))


def test_streams_that_clients_reset_do_not_fill_the_log(server):
    body = json.dumps({"text": "a man\n" * 900 + "\n".join(lines(100, 2)), "stream": True}).encode()
    before = len(server.log)
    for number in range(15):
        with socket.create_connection((server.host, server.port)) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
            one.sendall(POST + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            one.recv(10)
            time.sleep(0.02 * number)
    assert server.ask("/ready").status == 200
    assert server.log[before:] == []


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.7", "192.0.2.7"), ("::ffff:192.0.2.7", "192.0.2.7"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"), ("fe80::1%eth0", "fe80::"), ("testclient", "testclient"),
    ],
)  # fmt: skip
def test_a_client_is_its_address_or_its_network(host, client):
    assert client_of((host, 1)) == client
    assert client_of(None) == ""


# -- keys ------------------------------------------------------------------------------------------


def admits(keys: Keys, header: bytes | None = None, given: object = None) -> bool:
    headers = [(b"authorization", header)] if header is not None else []
    try:
        keys.admit(Request({"type": "http", "headers": headers}), given)
    except Refusal as refusal:
        return (refusal.status, refusal.code) != (403, "key")
    return True


@pytest.mark.parametrize("value", [*NO_VALUES, "None", "NULL", "'None'", '""'])
def test_a_missing_value_is_not_a_key(tmp_path, value):
    (tmp_path / "keys").write_text(f"{value}\n")
    with pytest.raises(UserError, match="no key in it" if not value else r"line 1: .* missing value"):
        Keys.read(tmp_path / "keys")


@pytest.mark.parametrize(
    "content", [b"a b\n", b"a\xa0b\n".decode("latin-1").encode(), b"k\x00\n", b"a\x7f", b"\xff\n", "k\u200bk".encode(),
                "a\n".encode("utf-16")],
)  # fmt: skip
def test_a_line_that_cannot_be_a_key_is_named(tmp_path, content):
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(UserError) as error:
        Keys.read(tmp_path / "keys")
    assert str(tmp_path / "keys") in str(error.value)
    assert "\n" not in str(error.value)


def test_no_key_and_no_text_is_never_a_key():
    """Whatever the keys are: a request without one is refused before anything is compared."""
    for key in ("None", "null", "False", "0", "[]", "first"):
        keys = Keys([key])
        assert admits(keys, f"Bearer {key}".encode())
        assert admits(keys, given=key)
        for given in (None, "", False, 0, [], [key], {}, b"first"):
            assert not admits(keys, given=given)
        for header in (b"", b"Bearer", b"Bearer ", b"Basic " + key.encode(), key.encode()):
            assert not admits(keys, header)


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
@pytest.mark.parametrize("key", ["first", "schlüssel", "ключ", "鍵", "schlu\u0308ssel"])
def test_keys_fit_in_any_encoding_of_files_and_headers(tmp_path, start, end, key):
    (tmp_path / "keys").write_bytes(start + b"# who\n" + key.encode() + end)
    keys = Keys.read(tmp_path / "keys")
    assert admits(keys, b"Bearer " + key.encode())
    assert admits(keys, given=key)
    if key == "schlüssel":
        assert admits(keys, b"Bearer " + key.encode("latin-1"))
        assert admits(keys, given="schlu\u0308ssel")
    assert not admits(keys, b"Bearer " + start + key.encode() + b"x")


# -- clients that read an answer slowly ------------------------------------------------------------

SIZE = 2**24  # bytes
# The system enlarges the buffers of a fast connection, in some settings above SIZE, unless their size is given.
BUFFER = 2**18  # bytes


@contextlib.contextmanager
def sending(seconds: float):
    """The address of connections of the server that send a large answer, with this limit on time."""

    async def answer(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % SIZE)]})
        await send({"type": "http.response.body", "body": bytes(SIZE)})

    limited = functools.partial(Bounded, Limits(receive_seconds=seconds))
    running = uvicorn.Server(uvicorn.Config(answer, http=limited, lifespan="off", log_config=None, access_log=False))
    bound = bind("127.0.0.1", 0)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)  # for each accepted connection
    thread = threading.Thread(target=running.run, args=([bound],))
    thread.start()
    until(lambda: running.started)
    try:
        yield bound.getsockname()
    finally:
        running.should_exit = True
        thread.join()


def reading(address: tuple[str, int]) -> socket.socket:
    """A client whose received bytes wait in a buffer of fixed size."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)  # before `connect`, which states the window
    connection.settimeout(20)
    connection.connect(address)
    return connection


def test_a_client_that_reads_steadily_gets_all_however_long_it_takes():
    received, begun = 0, time.monotonic()
    with sending(0.5) as address, reading(address) as connection:
        connection.sendall(HEAD + b"\r\n")
        while received < SIZE:
            more = len(connection.recv(2**18))
            assert more, f"cut off after {received:,} bytes"
            received += more
            time.sleep(0.03)
    assert time.monotonic() - begun > 3 * 0.5


@pytest.mark.parametrize("part", [0, SIZE // 4])
def test_a_client_that_stops_reading_is_cut_off(part):
    with sending(0.5) as address, reading(address) as connection:
        connection.sendall(HEAD + b"\r\n")
        received = 0
        while received < part:
            received += len(connection.recv(2**18))
        time.sleep(2.5)  # several times the limit
        with contextlib.suppress(ConnectionError):
            while more := connection.recv(2**20):
                received += len(more)
    assert received < SIZE
