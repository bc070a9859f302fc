"""Reading lines as they come: every line once, in order, and nobody who waits for an answer is kept waiting."""

import gzip
import io
import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.cli import streaming
from seq2seq.cli.streaming import open_input, read_idle_batches
from seq2seq.errors import DataError


def joined(stream, max_lines=7, **options):
    return [line for batch in read_idle_batches(stream, max_lines, **options) for line in batch]


@given(st.binary(max_size=300), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_every_line_once_in_order(content, max_lines):
    content = b"begins as text does " + content
    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    lines = joined(io.BytesIO(content), max_lines)
    assert lines == [raw.removesuffix(b"\r").decode("utf-8", errors="replace") for raw in expected]


def test_only_a_line_feed_ends_a_line():
    text = "a\u2028b\u0085c\x0cd\x0be\rf"
    assert joined(io.BytesIO(f"{text}\nnext\r\n".encode())) == [text, "next"]


@pytest.mark.parametrize("max_lines", [1, 2, 50, 1000])
def test_a_file_fills_every_batch_but_the_last(max_lines):
    batches = list(read_idle_batches(io.BytesIO(b"x\n" * 205), max_lines, idle_seconds=5.0))
    assert [len(batch) for batch in batches[:-1]] == [max_lines] * (len(batches) - 1)
    assert 1 <= len(batches[-1]) <= max_lines
    assert sum(map(len, batches)) == 205


def test_an_empty_stream_has_no_batches():
    assert list(read_idle_batches(io.BytesIO(b""), 4)) == []


def test_a_line_is_handed_over_while_the_writer_waits_for_its_answer():
    reading, writing = os.pipe()
    with open(reading, "rb") as stream, open(writing, "wb", buffering=0) as writer:
        writer.write(b"erste\n")
        batches = read_idle_batches(stream, 100)
        assert next(batches) == ["erste"]  # the pipe is still open: a reader that waits for more would hang here
        writer.write(b"zweite\ndritte\n")
        assert next(batches)[0] == "zweite"
        writer.close()
        assert [line for batch in batches for line in batch] in ([], ["dritte"])


def test_a_line_in_two_pieces_is_one_line():
    reading, writing = os.pipe()

    def write():
        with open(writing, "wb", buffering=0) as writer:
            for piece in (b"gr\xc3", b"\xbcn", b"e Felder\n"):
                writer.write(piece)
                time.sleep(0.03)

    threading.Thread(target=write).start()
    with open(reading, "rb") as stream:
        assert joined(stream, idle_seconds=0.005) == ["grüne Felder"]


def test_broken_utf8_is_replaced_and_its_line_named():
    numbers = []
    lines = joined(io.BytesIO(b"gut\n\xff\xfe\nauch gut\n\xc3\n"), max_lines=2, on_invalid=numbers.append)
    assert numbers == [2, 4]
    assert lines == ["gut", "\ufffd\ufffd", "auch gut", "\ufffd"]


def test_gzip_is_read_from_a_file_and_from_a_pipe(tmp_path):
    packed = gzip.compress(b"eins\nzwei\n")
    path = tmp_path / "text"  # known by its content, not by its name
    path.write_bytes(packed)
    assert joined(open_input(path)) == ["eins", "zwei"]
    reading, writing = os.pipe()
    with open(writing, "wb") as writer:
        writer.write(packed)
    with open(reading, "rb") as stream:
        assert joined(stream) == ["eins", "zwei"]


def test_a_damaged_gzip_yields_what_it_can_and_then_names_the_file_and_line(tmp_path):
    path = tmp_path / "text.gz"
    text = "".join(f"{number} {os.urandom(8).hex()}\n" for number in range(4000))
    path.write_bytes(gzip.compress(text.encode())[:-2000])
    lines = []

    def read():
        for batch in read_idle_batches(open_input(path), 64):
            lines.extend(batch)

    with pytest.raises(DataError, match=rf"{path}.*line \d+"):
        read()
    assert lines
    assert lines == text.splitlines()[: len(lines)]


def test_an_input_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match="missing"):
        open_input(tmp_path / "missing")
    with pytest.raises(DataError, match=str(tmp_path)):
        open_input(tmp_path)


def test_a_consumer_that_leaves_lets_the_reader_go():
    before = threading.active_count()
    batches = read_idle_batches(io.BytesIO(b"x\n" * 100_000), 10)
    next(batches)
    batches.close()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_memory_is_bounded_by_the_batch():
    # The reader waits for room: it never runs ahead of the consumer by more than a batch or so.
    pulled = 0

    class Endless(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            nonlocal pulled
            pulled += 1
            buffer[:2] = b"x\n"
            return 2

    batches = read_idle_batches(Endless(), 10)
    next(batches)
    time.sleep(0.05)
    assert pulled <= 10 + 10 + 2
    batches.close()


def test_leaving_while_the_input_is_silent_does_not_hang_the_interpreter():
    code = (
        "from seq2seq.cli.streaming import open_input, read_idle_batches\n"
        "print(next(read_idle_batches(open_input(None), 5)), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write(b"hallo\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"['hallo']\n"
        assert process.wait(timeout=10) == 0  # standard input is still open
        assert process.stderr.read() == b""


def test_a_line_without_an_end_is_refused_after_the_lines_before_it(monkeypatch):
    monkeypatch.setattr(streaming, "MAX_LINE_BYTES", 1000)
    longest = b"x" * 999 + b"\n"
    stream = io.BytesIO(b"one\ntwo\n" + longest + b"y" * 1001 + b"\nnever read\n")
    batches = streaming.read_idle_batches(stream, 2)
    assert [next(batches), next(batches)] == [["one", "two"], ["x" * 999]]
    with pytest.raises(DataError, match=r"line 4 has more than 1,000 bytes; give one sentence per line"):
        next(batches)
    with open("/dev/zero", "rb") as endless, pytest.raises(DataError, match="/dev/zero: line 1 has more"):
        list(streaming.read_idle_batches(endless, 2))
