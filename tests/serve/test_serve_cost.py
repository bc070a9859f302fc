"""What each field of a request costs: eight times as much of it takes no more than its share of time and memory.

Slow: about 20 s.
"""

import json
import time
import tracemalloc
from collections.abc import Callable

import pytest
from support.serving import WORDS, ask_inside, quick_model

from seq2seq.serve.limits import Limits
from seq2seq.serve.models import load
from seq2seq.serve.service import Service

# Linear would be 8; the smallest of several measurements, with room for caches and the machine.
MOST, REPEATS, LEAST_SECONDS = 20, 3, 0.02


def words(count: int) -> str:
    return " ".join(WORDS[index % len(WORDS)] for index in range(count))


def numbered(form: str, count: int) -> str:
    return "".join(form.format(index) for index in range(count))


FIELDS: dict[str, tuple[Callable[[int], dict], int]] = {
    "a line": (lambda n: {"text": words(n)}, 100),
    "a line that is copied, with details": (lambda n: {"text": "7; " * n, "details": ["alignment"]}, 400),
    "an address, with details": (lambda n: {"text": "http://a.b/?" + "x=1&" * n, "details": ["words"]}, 250),
    "lines": (lambda n: {"text": numbered("a man {}\n", n)}, 40),
    "blank lines": (lambda n: {"text": "\n" * n}, 2_000),
    "sentences": (lambda n: {"text": numbered("A man {}. ", n), "split": "sentences"}, 40),
    "marks, as sentences": (lambda n: {"text": "a." * n, "split": "sentences"}, 500),
    "sentences with details": (lambda n: {"text": "a man. " * n, "split": "sentences", "details": ["words"]}, 40),
    "texts": (lambda n: {"text": ["a man"] * n}, 12),
    "a prefix": (lambda n: {"text": "a man", "prefix": words(n)}, 4),
    "terms": (lambda n: {"text": words(12), "glossary": {"entries": [[f"w{i}", "x"] for i in range(n)]}}, 120),
    "terms that match": (
        lambda n: {"text": words(n), "glossary": {"entries": [[one, "x"] for one in WORDS[:3]]}}, 10,
    ),
    "forms": (
        lambda n: {"text": "a dog", "glossary": {"entries": [["dog", "|".join(f"x{i}" for i in range(n))]]}}, 6,
    ),
    "forbidden words": (
        lambda n: {"text": words(6), "glossary": {"entries": [["-", f"w{i}"] for i in range(n)]}}, 120,
    ),
    "html": (lambda n: {"text": numbered("<p>a <b>man</b> {}</p>", n), "format": "html"}, 15),
    "html, one paragraph": (lambda n: {"text": f"<p>{numbered('A <i>man</i> {}. ', n)}</p>", "format": "html"}, 15),
    "html of one paragraph, detected": (
        lambda n: {"text": "<div><b></b></div>" * n + "<p>a man</p>", "format": "html", "source": "auto"}, 300,
    ),
    "xml": (lambda n: {"text": f"<r>{numbered('<p>a man {}</p>', n)}</r>", "format": "xml"}, 15),
    "comments": (lambda n: {"text": "<!-- x -->" * n + "<r>a man</r>", "format": "xml"}, 200),
    "markdown": (lambda n: {"text": numbered("- a *man* {}\n", n), "format": "markdown"}, 15),
    "wrong": (lambda n: {"text": "a", "details": ["x"] * n}, 5_000),
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = quick_model(tmp_path_factory.mktemp("cost") / "model")
    service = Service(load([folder], {"threads": 1}, {"device": "cpu", "threads": 1}), Limits())
    service.start()
    _ = service.models.translators[0].aligner
    yield service
    service.queue.close()


def answered(service: Service, fields: dict) -> int:
    """The status of the answer to a request."""
    return ask_inside(service, "/v1/translate", json.dumps(fields).encode())[0]["status"]


@pytest.mark.slow
@pytest.mark.parametrize("field", FIELDS)
def test_eight_times_as_much_costs_about_eight_times_as_much(service, field):
    make, size = FIELDS[field]
    small, large, statuses = make(size), make(8 * size), set()

    def seconds(fields: dict, tries: int) -> float:
        measured = []
        for _ in range(tries):
            begun = time.process_time()
            statuses.add(answered(service, fields))
            measured.append(time.process_time() - begun)
        return min(measured)

    def peak(fields: dict) -> int:
        tracemalloc.start()
        answered(service, fields)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    long, most = seconds(large, 1), MOST * LEAST_SECONDS
    if long > most:  # else it is short enough however short the small request takes
        most = max(MOST * seconds(small, REPEATS), most)
    if long > most:
        long = seconds(large, REPEATS)
    assert statuses <= {200, 400}, field
    assert long <= most
    assert peak(large) <= MOST * max(peak(small), 2**18)
