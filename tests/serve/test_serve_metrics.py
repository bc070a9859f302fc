"""`/metrics` counts as done what was sent to a client, however a request ends. About 10 s."""

import json
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest
from support.serving import ask_inside, quick_model

from seq2seq.inference.translator import Translator
from seq2seq.serve.limits import Limits
from seq2seq.serve.models import Models
from seq2seq.serve.served import ServedTranslator
from seq2seq.serve.service import Service

SENTENCES = ["A man rides.", "Two dogs play.", "A woman reads.", "The dog rides."]
FORM = "application/x-www-form-urlencoded"
TEXT, PAGE = "\n".join(SENTENCES), "".join(f"<p>{one}</p>" for one in SENTENCES)
# How a request is made: path, fields, and the number of what `s2s_sentences_total` counts.
WAYS: dict[str, tuple[str, dict, int]] = {
    "joined": ("/v1/translate", {"text": TEXT}, 4),
    "streamed": ("/v1/translate", {"text": SENTENCES, "stream": True}, 4),
    "documents": ("/v1/translate", {"text": [PAGE, PAGE], "format": "html"}, 2),
    "documents, streamed": ("/v1/translate", {"text": [PAGE, PAGE], "format": "html", "stream": True}, 2),
    "the other API": ("/translate", {"q": SENTENCES, "source": "en", "target": "de"}, 4),
    "its documents": ("/translate", {"q": PAGE, "source": "en", "target": "de", "format": "html"}, 1),
    "the form": ("/", {"text": " ".join(SENTENCES), "direction": 0}, 4),
}
ENDS = {"answered": 200, "too late": 504, "gone": 499, "stopped": 503, "failed": 500}
READY = 2  # sentences that are computed before a request ends in another way


class Halting(ServedTranslator):
    """A model that computes the first sentences at once, and waits for an event before it computes the rest."""

    def begin(self, fails: bool, is_free: bool) -> None:
        self.computed, self.fails, self.free = 0, fails, threading.Event()
        if is_free:
            self.free.set()

    def compute(self, texts, settings):
        if self.computed >= READY and not self.free.is_set():
            if self.fails:
                raise RuntimeError("no")
            self.free.wait(60)
        found = super().compute(texts, settings)
        self.computed += len(texts)
        return found


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Halting:
    folder = quick_model(tmp_path_factory.mktemp("model") / "model")
    return Halting("one", folder, Translator.load(folder, threads=1), {"device": "cpu", "threads": 1})


@pytest.fixture
def service(model, end) -> Iterator[Service]:
    """A server that computes sentence by sentence."""
    seconds = 0.5 if end == "too late" else 60
    service = Service(Models([model]), Limits(batch_seconds=0, batch_characters=1, deadline_seconds=seconds))
    service.worker.start()
    _ = model.aligner
    yield service
    model.free.set()
    service.queue.close()


def counts(service: Service) -> Callable[[str], int]:
    values = {
        "".join([sample.name, *sample.labels.values()]): round(sample.value)
        for metric in service.metrics.registry.collect()
        for sample in metric.samples
    }
    return lambda name: values.get(f"s2s_{name}", 0)


def lines_of(messages: list[dict]) -> list[dict]:
    """The parts of a stream that were sent."""
    found = b"".join(one.get("body", b"") for one in messages).splitlines()
    return [line for line in map(json.loads, found) if "index" in line]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", WAYS)
def test_what_was_sent_is_done_and_nothing_else(service, model, way, end):
    """Neither are its characters and tokens."""
    path, fields, number = WAYS[way]
    is_form = path == "/"
    body = urlencode(fields) if is_form else json.dumps(fields)
    model.begin(end == "failed", end == "answered")

    def leaves() -> bool:
        if end == "stopped" and model.computed >= READY:
            service.give_up()
        return end == "gone" and model.computed >= READY

    messages = ask_inside(service, path, body.encode(), leaves=leaves, kind=FORM if is_form else "application/json")
    model.free.set()
    count, is_streamed = counts(service), "streamed" in way
    if messages and not is_streamed:
        assert messages[0]["status"] == ENDS[end]
    parts = lines_of(messages) if is_streamed else []
    if end == "answered":
        assert count("sentences_totaldone") == number == count("sentences_totalaccepted")
        assert count("tokens_total") > 0
        assert count("characters_total") >= sum(map(len, SENTENCES))
    else:
        assert count("sentences_totaldone") in {max(len(parts) - 1, 0), len(parts)}  # the last may have met nobody
        assert (count("tokens_total") > 0) is (count("characters_total") > 0) is (count("sentences_totaldone") > 0)
        assert count("sentences_totaldone") < number
    states = [count(f"sentences_total{state}") for state in ("done", "failed", "withdrawn")]
    assert sum(states) == count("sentences_totalaccepted") == number
    assert (states[1] > 0) is (end in ("failed", "stopped"))
