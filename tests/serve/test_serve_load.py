"""`s2s serve` under load and when it is stopped: nothing is lost, nobody holds up the others. About 40 s."""

import contextlib
import json
import os
import select
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.serving import Served, lines, quick_model, serving, slow_model, until

from seq2seq import Translator
from seq2seq.processes import resident_bytes

LONG = 30  # words of a line that takes the slow model half a second


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    return slow_model(tmp_path_factory.mktemp("slow") / "model")


@pytest.fixture(scope="module")
def server(slow):
    with serving(slow, "--max-queue", "40", "--deadline", "6") as served:
        yield served


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = quick_model(tmp_path_factory.mktemp("quick") / "model")
    with serving(folder) as served:
        yield served


def waiting(server: Served) -> float:
    return server.metrics()["s2s_queue_sentences"]


def is_idle(server: Served) -> bool:
    counts = server.counts()
    return counts["accepted"] == counts.get("done", 0) + counts.get("failed", 0) + counts.get("withdrawn", 0)


def assert_answers_again(server: Served) -> None:
    """The batch that was begun is computed to its end, on a busy machine for longer than the deadline of `server`."""
    until(lambda: is_idle(server))
    until(lambda: server.ask("/v1/translate", {"text": "a man"}).status == 200)


def leave(server: Served, **fields) -> None:
    """Ask, and go away once the request has been taken."""
    body = json.dumps(fields).encode()
    before = server.counts().get("accepted", 0)
    with socket.create_connection((server.host, server.port)) as connection:
        head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        until(lambda: server.counts().get("accepted", 0) > before)


@pytest.mark.slow
def test_a_book_does_not_hold_up_a_line(slow):
    """It waits for the batch that is computed, and shares the next one."""
    with serving(slow, "--max-queue", "40") as server, ThreadPoolExecutor(1) as pool:
        book = pool.submit(server.ask, "/v1/translate", {"text": "\n".join(lines(38, 12)), "stream": True})
        until(lambda: waiting(server) > 0)
        assert server.ask("/v1/translate", {"text": "a man"}).status == 200
        assert not book.done()
        assert len(book.result().body.splitlines()) > 8


def test_who_leaves_takes_the_waiting_sentences_out(server):
    before = server.counts().get("withdrawn", 0)
    for stream in (False, True):
        leave(server, text="\n".join(lines(40, LONG)), stream=stream)
        until(lambda: waiting(server) == 0)
    assert server.counts()["withdrawn"] - before > 40
    assert_answers_again(server)


@pytest.mark.slow
def test_a_full_queue_says_when_to_come_again(server):
    with ThreadPoolExecutor(2) as pool:
        # Lines of such length do not fit one batch, however fast the machine is.
        first = pool.submit(server.ask, "/v1/translate", {"text": "\n".join(lines(40, LONG))})
        until(lambda: waiting(server) > 10)
        refused = server.ask("/v1/translate", {"text": lines(35)})
        plain = server.ask("/translate", {"q": lines(35), "source": "en", "target": "de"})
        assert first.result().status in (200, 504)
    for answer in (refused, plain):
        assert answer.status == 429
        assert 1 <= int(answer.headers["Retry-After"]) <= 6  # the deadline, when the queue is empty at the latest
    assert refused.json["error"]["code"] == "queue_full"
    assert isinstance(plain.json["error"], str)
    assert_answers_again(server)


@pytest.mark.slow
def test_a_deadline_is_said_and_frees_the_queue(server):
    begun = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        asked = {"text": lines(18, 50)}  # more than a fast machine answers in 6 s
        whole = pool.submit(server.ask, "/v1/translate", asked)
        streamed = pool.submit(server.ask, "/v1/translate", {**asked, "stream": True})
    assert (whole.result().status, whole.result().json["error"]["code"]) == (504, "deadline")
    *parts, last = map(json.loads, streamed.result().body.splitlines())
    assert last["error"]["code"] == "deadline"
    assert [part["index"] for part in parts] == list(range(len(parts)))
    assert 5 < time.monotonic() - begun < 10
    assert waiting(server) == 0
    until(lambda: is_idle(server))


def test_the_server_lives_with_clients_that_are_slow_or_gone(quick):
    """1,000 connect and leave; some never finish their request; meanwhile others are answered."""
    open_files = len(os.listdir(f"/proc/{quick.process.pid}/fd"))
    memory = resident_bytes(quick.process.pid)
    slow_ones = [socket.create_connection((quick.host, quick.port)) for _ in range(50)]
    for number, one in enumerate(slow_ones):
        one.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n"[: 10 + number])
    for _ in range(1000):
        with socket.create_connection((quick.host, quick.port)) as one:
            one.sendall(b"GET /health HTTP/1.1\r\n")
    for _ in range(100):
        leave_at_once(quick)
    until(lambda: ready(quick))  # for a moment there may have been more connections than the limit
    assert quick.ask("/v1/translate", {"text": "a man"}).status == 200
    for one in slow_ones:
        one.close()
    until(lambda: len(os.listdir(f"/proc/{quick.process.pid}/fd")) <= open_files + 5)
    until(lambda: is_idle(quick))
    assert resident_bytes(quick.process.pid) - memory < 50 * 2**20


def leave_at_once(server: Served) -> None:
    body = b'{"text": "a man rides"}'
    head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n".encode()
    with socket.create_connection((server.host, server.port)) as one:
        one.sendall(head + b"Content-Type: application/json\r\n\r\n" + body)


@pytest.mark.slow
def test_a_request_that_never_ends_is_cut_off(quick):
    """After 20 s: half a head, half a body, half a second request."""
    whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    half = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        ones = [stack.enter_context(socket.create_connection((quick.host, quick.port), 40)) for _ in range(4)]
        for one, sent in zip(ones, (b"", half, half + b"\r\n{", whole + half), strict=True):
            one.sendall(sent)
        while not select.select([ones[2]], [], [], 1)[0]:
            ones[2].sendall(b" ")  # a byte now and then does not help
        answers = [read_to_end(one) for one in ones]
    assert 15 < time.monotonic() - begun < 30
    assert answers[:2] == [b"", b""]
    assert answers[2].startswith(b"HTTP/1.1 408 ")
    assert answers[3].count(b"HTTP/1.1") == 1


def read_to_end(one: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while more := one.recv(65536):
            found += more
    return found


def test_more_connections_than_the_limit_are_told(quick):
    with contextlib.ExitStack() as stack:
        for _ in range(512):
            stack.enter_context(socket.create_connection((quick.host, quick.port)))
        with socket.create_connection((quick.host, quick.port), 20) as one:
            answer = read_to_end(one)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after" in answer
    until(lambda: ready(quick))


def ready(server: Served) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return server.ask("/ready").status == 200
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_taken_is_answered_when_it_is_stopped(slow, number):
    """16 clients ask again and again until nobody listens; each request that was taken has its answer."""
    expected = [one.text for one in Translator.load(slow, threads=1).translate(lines(8, 3))]
    with serving(slow) as server:
        answered, cut_off = [0] * 16, []

        def client(number: int) -> None:
            for index in range(1000):
                try:
                    answer = server.ask("/v1/translate", {"text": lines(8, 3)[index % 8]})
                except ConnectionError:
                    return
                except Exception as error:
                    cut_off.append(error)
                    return
                assert answer.status == 200
                assert answer.json["translations"][0]["text"] == expected[index % 8]
                answered[number] += 1

        with ThreadPoolExecutor(16) as pool:
            clients = [pool.submit(client, number) for number in range(16)]
            until(lambda: sum(answered) > 20)
            code = server.stop(number)
            for one in clients:
                one.result()
        assert (code, cut_off) == (0, [])
        until(lambda: any("stopped" in line for line in server.log))
        done = next(line for line in server.log if "stopped" in line)
        assert f"stopped; {sum(answered)} sentences done" in done


@pytest.mark.slow
def test_it_stops_in_bounded_time_and_says_what_it_gives_up(slow):
    with serving(slow, "--max-queue", "500") as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.ask, "/v1/translate", {"text": lines(100, LONG)})
        until(lambda: waiting(server) > 0)
        begun = time.monotonic()
        assert server.stop() == 0
        assert 8 < time.monotonic() - begun < 20
        answer = asked.result()
    assert (answer.status, answer.json["error"]["code"]) == (503, "stopping")
    assert answer.headers["Retry-After"]


@pytest.mark.slow
def test_a_killed_server_starts_again_on_its_port(quick, tmp_path):
    folder = quick_model(tmp_path / "model")
    with serving(folder) as server:
        server.ask("/v1/translate", {"text": "a man"})
        server.process.kill()
        server.process.wait()
        with serving(folder, port=server.port) as again:
            assert again.ask("/v1/translate", {"text": "a man"}).status == 200
            assert again.stop() == 0
