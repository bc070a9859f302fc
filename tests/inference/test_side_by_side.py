"""Laws of text work next to the device: the results, their order and the place of errors are those of one thread, no
result waits for input, and other threads never use the device.
"""

import gzip
import io
import itertools
import os
import threading
import time
from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.echo import TEXTS, EchoEngine, echo, make_transformer, make_translator, tokenizers_of_texts
from support.our_models import make_tiny
from support.search_models import make_steps
from support.toy_run import one_thread

from seq2seq.cli import main, streaming
from seq2seq.cli.streaming import open_input, read_idle_batches
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import DataError, UserError
from seq2seq.inference.overlap import finish, side_by_side
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator

SECONDS = 20  # until a thread that waits in vain gives up


class Text(Exception):
    """An error of text work."""


class Device(Exception):
    """An error of a call that uses the device."""


@pytest.fixture(autouse=True)
def _one_thread():
    yield from one_thread()


@pytest.fixture(scope="module")
def tokenizers():
    return tokenizers_of_texts()


def work(number, calls, fails_in=None, log=None):
    """Work that makes several calls; it fails in the text work before a call, or in a call."""
    log = [] if log is None else log

    def on_device(index):
        log.append(("call", number, threading.current_thread().name))
        if fails_in == ("call", index):
            raise Device(number)
        return number * 100 + index

    found = []
    for index in range(calls):
        log.append(("text", number, threading.current_thread().name))
        if fails_in == ("text", index):
            raise Text(number)
        found.append((yield lambda index=index: on_device(index)))
    return found


def outcome(results):
    """The results up to an error, and the error."""
    found = []
    try:
        for result in results:
            found.append(result)
    except (Text, Device, DataError, KeyboardInterrupt) as error:
        return found, repr(error)
    return found, None


FAILURES = st.one_of(st.none(), st.tuples(st.sampled_from(["text", "call"]), st.integers(0, 2)))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), FAILURES), max_size=6))
def test_results_order_and_errors_are_those_of_one_thread(plans):
    def works():
        return (work(number, calls, fails_in) for number, (calls, fails_in) in enumerate(plans))

    assert outcome(side_by_side(works())) == outcome(map(finish, works()))


def test_the_calling_thread_alone_uses_the_device():
    log = []
    list(side_by_side(work(number, 2, log=log) for number in range(5)))
    here = threading.current_thread().name
    assert {thread for kind, _, thread in log if kind == "call"} == {here}
    assert here not in {thread for kind, _, thread in log if kind == "text"}


def test_text_before_and_after_is_worked_on_while_the_device_computes():
    """A call waits for the first text work of the next group and the last of the one before: in turn, it would wait in
    vain."""
    begun, ended = ([threading.Event() for _ in range(5)] for _ in range(2))

    def group(number):
        begun[number].set()
        events = *begun[number + 1 : number + 2], *ended[max(number - 1, 0) : number]
        found = yield lambda: [event.wait(SECONDS) for event in events]
        ended[number].set()
        return found

    assert list(side_by_side(map(group, range(5)))) == [[True], *[[True, True]] * 3, [True]]


def test_a_line_is_answered_before_the_next_is_sent(tokenizers):
    reading, writing = os.pipe()
    answers = []
    with open(reading, "rb") as stream, open(writing, "wb", buffering=0) as writer:
        writer.write(TEXTS[0].encode() + b"\n")
        for batch in Pipeline(echo(tokenizers)).translate_stream(read_idle_batches(stream), overlaps=True):
            answers += [answer.text for answer in batch]
            if len(answers) == len(TEXTS):
                writer.close()
            else:
                writer.write(TEXTS[len(answers)].encode() + b"\n")
    assert answers == TEXTS


@pytest.mark.slow
@pytest.mark.parametrize("search", [{}, dict(sample=True), dict(n_best=3), dict(beam_size=1)])
def test_a_stream_has_the_same_translations(tokenizers, search):
    translator = make_translator(make_transformer(tokenizers), tokenizers, **search)
    batches = [TEXTS[:2], ["", "12 34"], TEXTS[2:], ["word " * 60], TEXTS]
    prefixes = [""] * 4 + ["Der"] * 9
    for begins in (None, prefixes):
        in_turn, overlapped = (
            list(Pipeline(translator).translate_stream(batches, begins and iter(begins), overlaps=overlaps))
            for overlaps in (False, True)
        )
        assert overlapped == in_turn
    assert [len(batch) for batch in in_turn] == list(map(len, batches))


def test_a_pivot_has_the_same_translations(tokenizers):
    first, second = (make_translator(make_transformer(tokenizers, seed), tokenizers) for seed in (0, 1))
    through, batches = Pipeline(second, first=first), [TEXTS[:2], TEXTS[2:]]
    assert list(through.translate_stream(batches, overlaps=True)) == [through.translate(batch) for batch in batches]


def test_what_came_before_an_error_is_answered(tokenizers, tmp_path):
    path = tmp_path / "text.gz"
    text = "".join(f"{TEXTS[number % 5]} {os.urandom(4).hex()}\n" for number in range(400))
    path.write_bytes(gzip.compress(text.encode())[:-400])

    def answered(overlaps):
        batches = read_idle_batches(open_input(path), 16)
        return outcome(chain.from_iterable(Pipeline(echo(tokenizers)).translate_stream(batches, overlaps=overlaps)))

    answers, message = answered(True)
    assert (answers, message) == answered(False)
    found = [answer.source for answer in answers]
    assert f"line {len(found)}" in message
    assert found == text.splitlines()[: len(found)]
    assert len(found) > 16


@pytest.mark.parametrize("given", [["a"] * 3, ["a"] * 6, ["a", "b", "", "x" * 900]])
def test_errors_of_prefixes_come_where_they_came(tokenizers, given):
    batches = [["a man", "dogs"], ["the", "station"]]

    in_turn, overlapped = (
        outcome(Pipeline(echo(tokenizers)).translate_stream(batches, iter(given), overlaps=overlaps))
        for overlaps in (False, True)
    )
    assert overlapped == in_turn
    assert "prefix" in in_turn[1]


def test_an_interrupt_comes_after_the_answers_before_it(tokenizers):
    def interrupted(number):
        if number == 2:
            raise KeyboardInterrupt
        return number

    def group(number):
        return (yield lambda: interrupted(number))

    expected = outcome(map(finish, map(group, range(5))))
    assert expected == ([0, 1], "KeyboardInterrupt()")
    assert outcome(side_by_side(map(group, range(5)))) == expected


@pytest.mark.parametrize("after", [1, 3])
def test_a_consumer_that_leaves_lets_the_threads_go(tokenizers, after):
    before = set(threading.enumerate())  # some of an earlier test may end meanwhile, so their number is not compared
    pipeline, stream = Pipeline(echo(tokenizers)), io.BytesIO(b"a man\n" * 5000)
    answers = pipeline.translate_stream(read_idle_batches(stream, 10), overlaps=True)
    for _ in range(after):
        next(answers)
    assert set(threading.enumerate()) - before
    answers.close()
    deadline = time.monotonic() + SECONDS
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


def test_few_batches_are_read_ahead(tokenizers):
    read = []

    def batches():
        for number in range(50):
            read.append(number)
            yield ["a man"]

    answers = Pipeline(echo(tokenizers)).translate_stream(batches(), overlaps=True)
    for number, _ in enumerate(answers):
        time.sleep(0.001)
        assert len(read) <= number + 5


def test_an_engine_on_another_device_leaves_the_cpus_idle(tokenizers):
    steps = make_steps()
    assert not TorchEngine(steps).leaves_cpus_idle
    steps.device = torch.device("cuda")
    assert TorchEngine(steps).leaves_cpus_idle


@pytest.mark.parametrize(("is_idle", "record"), list(itertools.product([False, True], ["auto", True, False])))
def test_the_engine_and_the_setting_decide(tokenizers, is_idle, record):
    engine, here = EchoEngine(), threading.current_thread()
    engine.leaves_cpus_idle = is_idle
    threads = []

    def batches():
        for text in TEXTS:
            threads.append(threading.current_thread())
            yield [text]

    list(Pipeline(echo(tokenizers, engine, record=record)).translate_stream(batches()))
    assert all((thread is here) != (is_idle and record is True) for thread in threads)


def test_a_request_without_an_aligner_is_refused_at_once(tokenizers):
    with pytest.raises(UserError, match="no aligner"):
        Pipeline(echo(tokenizers)).translate_stream([TEXTS], details=["words"])


def test_the_command_writes_the_same(tmp_path, monkeypatch, capfdbinary):
    model = make_tiny(
        tmp_path / "best", TEXTS * 10, 320, SearchConfig(max_length_ratio=1.0), lambda *_: None, max_length=64
    )
    (tmp_path / "in").write_bytes(
        "\n".join([*TEXTS, "", "bad \udcff byte", "12", *TEXTS]).encode("utf-8", "surrogateescape")
    )
    batches = streaming.read_idle_batches
    monkeypatch.setattr(streaming, "read_idle_batches", lambda *given, **named: batches(*given, max_lines=3, **named))
    written = []
    capfdbinary.readouterr()  # what the training of the tokenizers said
    for overlaps in (False, True):
        monkeypatch.setattr(Translator, "overlaps", overlaps)
        for form in ("text", "jsonl"):
            assert main(["translate", str(model), "-i", str(tmp_path / "in"), "--format", form, "--device", "cpu"]) == 0
            out, err = capfdbinary.readouterr()
            assert b"in: line 7 is not UTF-8" in err
            assert out.count(b"\n") == 2 * len(TEXTS) + 3
            written.append((out, sorted(err.splitlines())))
    assert written[:2] == written[2:]
