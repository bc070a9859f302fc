"""What `s2s serve` is made of: the queue, the worker, cutting and joining, and what an error tells. About 3 s."""

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.our_models import make_ours
from support.serving import ask_inside

from seq2seq import Translator
from seq2seq.serve.limits import SHARES, Limits
from seq2seq.serve.metrics import Metrics
from seq2seq.serve.models import Models
from seq2seq.serve.queue import PER_SENTENCE, Full, Job, Queue, Text, Worker
from seq2seq.serve.request import joined
from seq2seq.serve.served import ServedTranslator
from seq2seq.serve.service import Service
from seq2seq.text.parts import cut
from seq2seq.text.splitting import split_sentences

words = st.text(alphabet="ab ", min_size=1, max_size=30)
digits = st.integers(0, 9)
jobs = st.lists(st.tuples(st.sampled_from("xy"), st.lists(words, min_size=1, max_size=12)), min_size=1, max_size=8)


def job(settings: object, texts: list[str]) -> Job:
    return Job(settings, [Text(text) for text in texts], lambda: None)


def asked_by(client: str, settings: object, texts: list[str]) -> Job:
    return Job(settings, [Text(text) for text in texts], lambda: None, client)


# -- queue -----------------------------------------------------------------------------------------


@given(jobs, st.integers(1, 200), st.data())
def test_each_sentence_is_taken_once_in_order_or_withdrawn(given_jobs, room, data):
    queue = Queue(1000, 10**6)
    entered = [job(*one) for one in given_jobs]
    left = []
    for one in entered:
        queue.put(one)
    taken: list[tuple[Job, int]] = []
    while queue.sentences:
        if data.draw(st.booleans()) and len(left) < len(entered):
            one = entered[len(left)]
            left.append((one, queue.withdraw(one)))
            continue
        batch = queue.take(lambda: room)
        assert {member.settings for member, _ in batch.members} == {batch.settings}
        assert len(batch.members) == 1 or batch.characters + PER_SENTENCE * len(batch.members) <= room
        taken += batch.members
    assert queue.characters == 0
    gone = dict(left)
    for one in entered:
        indices = [index for member, index in taken if member is one]
        assert indices == list(range(len(indices)))
        assert len(indices) + gone.get(one, 0) == len(one.texts)
    queue.close()
    assert queue.take(lambda: room) is None


@pytest.mark.parametrize("others", [[], ["a", "b"]])
def test_what_is_withdrawn_before_it_is_put_is_never_taken(others):
    """The sentences of a document are withdrawn at that moment if its client leaves."""
    queue = Queue(1000, 10**6)
    if others:
        queue.put(job("x", others))
    late = job("x", ["late"])
    assert queue.withdraw(late) == 1
    queue.put(late, is_admitted=True)
    assert (queue.sentences, queue.characters) == (len(others), len(others))
    queue.close()
    batch = queue.take(lambda: 100)
    assert (batch and [text.text for text in batch.texts]) == (others or None)


@given(jobs, st.integers(20, 200))
def test_turns_are_fair(given_jobs, room):
    """While two jobs of the same settings wait, neither gets two sentences more than the other."""
    queue = Queue(1000, 10**6)
    entered = [job("x", texts) for _, texts in given_jobs]
    for one in entered:
        queue.put(one)
    had: Counter[Job] = Counter()
    while queue.sentences:
        still = [one for one in entered if one.waiting]
        had.update(member for member, _ in queue.take(lambda: room).members)
        both = [had[one] for one in still if one.waiting]
        assert max(both, default=0) - min(both, default=0) <= 1


def test_no_settings_wait_for_ever():
    queue = Queue(1000, 10**6)
    book = job("x", ["a"] * 500)
    queue.put(book)
    queue.take(lambda: 30)
    queue.put(job("y", ["a"]))
    assert "y" in [queue.take(lambda: 30).settings for _ in range(2)]


def test_all_or_nothing_is_taken():
    queue = Queue(10, 100)
    queue.put(job("x", ["a" * 10] * 6))
    with pytest.raises(Full) as later:
        queue.put(job("x", ["a"] * 5))
    with pytest.raises(Full) as larger:
        queue.put(job("x", ["a" * 41]))
    with pytest.raises(Full) as never:
        queue.put(job("x", ["a" * 10] * 11))
    with pytest.raises(Full):
        queue.put(job("x", ["a"] * 11))
    assert (later.value.excess, larger.value.excess, never.value.excess) == (10, 1, None)
    assert (queue.sentences, queue.characters) == (6, 60)
    queue.put(job("x", ["a" * 10] * 4))
    other = Queue(10, 100)
    other.put(job("x", ["a"] * 60))  # the number of characters says what a request may hold
    assert other.sentences == 60
    with pytest.raises(Full):
        other.put(job("x", ["a"]))


def test_a_full_queue_of_one_client_has_room_for_others():
    """Up to a bound on all of them together, and whoever they are."""
    queue = Queue(10, 100)
    for number in range(SHARES):
        queue.put(asked_by(str(number), "x", ["a"] * 10))
    with pytest.raises(Full) as full:
        queue.put(asked_by("late", "x", ["a"] * 10))
    assert full.value.excess is not None
    assert queue.sentences == SHARES * 10


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.lists(words, min_size=1, max_size=12)),
                min_size=2, max_size=12), st.integers(20, 200), st.floats(1e-6, 1e-5))  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_time_is_divided_among_clients(given_jobs, room, pace):
    """Whatever their requests are: each batch begins with the client that has had the least time."""
    queue, had = Queue(1000, 10**6), Counter()
    names = sorted({name for name, _, _ in given_jobs})
    for name, kind, texts in given_jobs:
        queue.put(asked_by(name, kind, texts))
    while len({name for name, client in queue._clients.items() if client.jobs}) == len(names):
        batch = queue.take(lambda: room)
        seconds = pace * (batch.characters + PER_SENTENCE * len(batch.members))
        assert had[batch.members[0][0].client] <= min(had[name] for name in names) + 1e-12
        for member, index in batch.members:
            had[member.client] += pace * member.size(index)
        queue.deliver(batch, ["b"] * len(batch.members), seconds)


def test_clients_that_came_once_are_forgotten():
    """However many there are: a server that waits has no records of earlier clients, and all of them are equal."""
    queue = Queue(1000, 10**6)
    for number in range(100):
        queue.put(asked_by(f"client {number}", "x", ["a"]))
        queue.deliver(queue.take(lambda: 100), ["b"], 1.0)
    assert len(queue._used) <= 1
    queue.put(asked_by("client 1", "x", ["a"]))
    queue.put(asked_by("new", "x", ["a"]))
    assert queue._used["client 1"] == queue._used["new"]


def test_who_asks_with_many_settings_waits_for_its_own_requests():
    """200 requests of one client, each of its own kind, and a small one of another: it is in the next batch or two."""
    queue = Queue(1000, 10**6)
    for number in range(200):
        queue.put(asked_by("many", number, ["a"]))
    for _ in range(3):
        queue.deliver(queue.take(lambda: 100), ["b"], 1e-4)
    for number in range(5):
        queue.put(asked_by("one", f"own {number}", ["a"]))
        batch = queue.take(lambda: 100)
        assert batch.members[0][0].client == "one"
        queue.deliver(batch, ["b"], 1e-4)
        queue.deliver(queue.take(lambda: 100), ["b"], 1e-4)


def taken_after(queue: Queue, *steps: Callable[[], object]) -> list[int]:
    """The sizes of the batches that a thread takes until the queue is closed, while the steps are done."""
    sizes: list[int] = []

    def take() -> None:
        while (batch := queue.take(lambda: 1000)) is not None:
            sizes.append(len(batch.members))

    thread = threading.Thread(target=take)
    thread.start()
    for step in steps:
        time.sleep(0.05)  # the thread would take what it does not wait for
        step()
    thread.join(timeout=30)
    assert not thread.is_alive()
    return sizes


def put(queue: Queue, count: int) -> Callable[[], object]:
    return lambda: queue.put(job("x", ["a"] * count))


def test_a_batch_waits_for_as_many_as_the_one_before_had():
    """Not for ever: for a part of the time that one took, and not once the queue is closed. 1 s."""
    queue = Queue(1000, 10**6)
    put(queue, 4)()
    queue.deliver(queue.take(lambda: 1000), ["a"] * 4, seconds=1000)
    assert taken_after(queue, put(queue, 1), put(queue, 2), put(queue, 2), queue.close) == [5]
    for seconds, sizes in ((1000, [3]), (0, [1, 2])):
        queue = Queue(1000, 10**6)
        put(queue, 4)()
        queue.deliver(queue.take(lambda: 1000), ["a"] * 4, seconds)
        assert taken_after(queue, put(queue, 1), put(queue, 2), queue.close) == sizes


def test_those_that_leave_meanwhile_are_not_waited_for():
    queue = Queue(1000, 10**6)
    put(queue, 4)()
    queue.deliver(queue.take(lambda: 1000), ["a"] * 4, seconds=1000)
    left = job("x", ["a"])
    assert taken_after(queue, lambda: queue.put(left), lambda: queue.withdraw(left), put(queue, 5), queue.close) == [5]


# -- worker ----------------------------------------------------------------------------------------


@given(st.lists(st.lists(digits, min_size=1, max_size=9), min_size=1, max_size=8), st.sets(st.integers(0, 9)))
def test_a_sentence_that_fails_fails_its_own_request(given_jobs, failing):
    """And everybody else has the answers of their own texts."""

    def compute(settings, texts):
        if any(int(text.text) in failing for text in texts):
            raise RuntimeError("no")
        return [2 * int(text.text) for text in texts]

    queue, metrics = Queue(1000, 10**6), Metrics()
    worker = Worker(queue, compute, metrics, 1.0, 100)
    entered = [job("x", list(map(str, numbers))) for numbers in given_jobs]
    for one in entered:
        queue.put(one)
    queue.close()
    worker.run()
    for numbers, one in zip(given_jobs, entered, strict=True):
        if failing.isdisjoint(numbers):
            assert (one.failure, one.results) == (None, [2 * number for number in numbers])
        else:
            assert isinstance(one.failure, RuntimeError)


def test_batches_take_about_the_time_that_is_wanted():
    """A machine that computes 1,000 characters in 10 ms, and needs 1 ms for each batch."""
    sizes = []

    def compute(settings, texts):
        count = sum(len(text.text) for text in texts)
        sizes.append(count)
        threading.Event().wait(0.001 + count * 1e-5)
        return texts

    queue = Queue(10**6, 10**9)
    worker = Worker(queue, compute, Metrics(), 0.02, 100)
    queue.put(job("x", ["a" * 50] * 1000))
    queue.close()
    worker.run()
    assert 1000 < sizes[-2] < 3000
    assert 10**4 < worker.characters_per_second < 2 * 10**5


# -- cutting and joining ---------------------------------------------------------------------------

SENTENCES = [
    ("A man rides. Two dogs play! Who? Me.", 4),
    ("Mr. Smith met Dr. Jones at 5 p.m. on May 3. They talked.", 1),  # what is doubtful stays together
    ("Das kostet ca. 5 Euro, z. B. hier. Am 3. Mai kommt J. S. Bach.", 2),
    ("He said: “Come.” Then he left.", 2),
    ("Wait... what? no", 1),
    ("今日は。明日は？はい！", 3),
    ("Version 3.11 is out. See example.com for more.", 2),
    ("", 0),
    ("no end", 1),
]


@pytest.mark.parametrize(("text", "count"), SENTENCES)
def test_sentences_end_where_they_end(text, count):
    found = split_sentences(text)
    assert "".join(found) == text
    assert len(found) == count, found


@given(st.text(alphabet="ab. \n\r\t!A。1", max_size=60), st.sampled_from(["lines", "sentences", "none"]))
def test_pieces_stand_where_they_say(text, split):
    pieces = cut(text, split)
    end = 0
    for piece in pieces:
        assert text[piece.begin : piece.begin + len(piece.text)] == piece.text
        assert not text[end : piece.begin].strip()
        end = piece.begin + len(piece.text)
    assert not text[end:].strip()
    assert sum(piece.before.count("\n") for piece in pieces) == (0 if split == "none" else text.count("\n"))


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    make_ours(folder, ending=4.0, d_model=32)
    return Translator.load(folder, engine="torch", threads=1)


def test_a_text_of_one_piece_is_that_piece_and_alternatives_keep_their_rank(translator):
    found = translator.with_search(n_best=3).translate(["a man", "two dogs"])
    penalty = translator.config.length_penalty
    for one, line in zip(found, ("a man", "two dogs"), strict=True):
        whole = joined(cut(line, "lines"), [one], penalty)
        assert (whole.text, whole.score, whole.flags) == (one.text, pytest.approx(one.score), one.flags)
        assert whole.log_prob == one.log_prob
        assert [other.text for other in whole.alternatives] == [other.text for other in one.alternatives]
    both = joined(cut("a man\ntwo dogs", "lines"), found, penalty)
    assert both.text == f"{found[0].text}\n{found[1].text}"
    assert both.log_prob == pytest.approx(found[0].log_prob + found[1].log_prob)
    assert "split" not in both.flags
    ranks = sorted(other.score for other in both.alternatives)[::-1]
    assert ranks == [other.score for other in both.alternatives]


# -- errors ----------------------------------------------------------------------------------------


def test_an_internal_error_tells_nothing_but_its_id(translator, tmp_path, caplog):
    """Neither the client nor the log sees its message, which may hold text."""

    class Broken(ServedTranslator):
        def compute(self, texts, settings):
            raise RuntimeError(f"cannot translate {texts[0].text}")

    (tmp_path / "config.json").write_text("{}")
    service = Service(Models([Broken("broken", tmp_path, translator, {})]), Limits())
    service.worker.start()
    answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
    sent = {"/v1/translate": {"text": "Geheimnis"}, "/translate": {"q": "Geheimnis", "source": "en", "target": "de"}}
    with caplog.at_level(logging.INFO, "seq2seq"):
        for path, fields in sent.items():
            first, *parts = ask_inside(service, path, json.dumps(fields).encode())
            headers = {name.decode(): value.decode() for name, value in first["headers"]}
            answers[path] = first["status"], headers, b"".join(part.get("body", b"") for part in parts)
    service.queue.close()
    for path, (status, headers, body) in answers.items():
        assert status == 500
        assert b"Geheimnis" not in body
        assert headers["x-request-id"] in caplog.text
        assert isinstance(json.loads(body)["error"], dict if path.startswith("/v1") else str)
    assert "RuntimeError" in caplog.text
    assert "Geheimnis" not in caplog.text
    assert 's2s_sentences_total{state="failed"} 2' in service.metrics.text().decode()


def test_lines_are_streamed_as_they_are_done(translator, tmp_path):
    """The worker begins with a line when the one before has been sent, and not earlier."""

    class Waiting(ServedTranslator):
        def compute(self, texts, settings):
            assert sent[len(started)].wait(60), "the line before was not sent"
            started.append(texts[0].text)
            return super().compute(texts, settings)

    lines = [f"two dogs {number}" for number in range(5)]
    sent, started, shown = [threading.Event() for _ in range(7)], [], []

    def told(message: dict) -> None:
        if message["type"] == "http.response.start":
            assert (b"content-type", b"application/x-ndjson") in message["headers"]
        elif message["body"]:
            shown.append(json.loads(message["body"]))
            sent[len(shown)].set()

    (tmp_path / "config.json").write_text("{}")
    service = Service(Models([Waiting("one", tmp_path, translator, {})]), Limits(batch_seconds=0, batch_characters=1))
    service.worker.start()
    sent[0].set()
    ask_inside(service, "/v1/translate", json.dumps({"text": "\n".join(lines), "stream": True}).encode(), told)
    service.queue.close()
    *parts, last = shown
    assert (started, [part["source"][0] for part in parts]) == (lines, [11 * number for number in range(5)])
    assert last["usage"]["sentences"] == 5
