"""The metrics of the server for Prometheus: `Service` has one `Metrics`, and `/metrics` shows it.

Labels never contain data from clients. Any thread may count.
"""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    exposition,
)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTENT_TYPE = exposition.CONTENT_TYPE_PLAIN_0_0_4

disable_created_metrics()  # a second series for each counter


class Metrics:
    """The counters, gauges and histograms of one service, and the system's figures of the process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "s2s_requests_total", "Requests answered; status 499 means that the client left.", ["route", "status"],
            registry=registry,
        )  # fmt: skip
        self.refused = Counter("s2s_refused_total", "Requests refused, by reason.", ["reason"], registry=registry)
        self.sentences = Counter(
            "s2s_sentences_total",
            "Sentences and documents accepted, and their outcome: done (the result was sent), failed, or withdrawn "
            "(the client left, or the deadline passed).",
            ["state"],
            registry=registry,
        )
        self.tokens = Counter("s2s_tokens_total", "Target pieces of translations that were sent.", registry=registry)
        self.characters = Counter(
            "s2s_characters_total", "Characters of sentences that were answered.", registry=registry
        )
        self.flags = Counter("s2s_flags_total", "Translations with a flag.", ["flag"], registry=registry)
        self.terms = Counter(
            "s2s_terms_total", "Terms of glossaries: kept, forced or missing.", ["status"], registry=registry
        )
        self.request_seconds = Histogram(
            "s2s_request_seconds", "From the first line of a request to the end of its answer.", buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self.wait_seconds = Histogram(
            "s2s_queue_wait_seconds", "From the arrival of a sentence's request to the batch that it is computed in.",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.batch_seconds = Histogram(
            "s2s_batch_seconds", "Time to compute a batch.", buckets=SECONDS, registry=registry
        )
        self.batch_sentences = Histogram(
            "s2s_batch_sentences", "Sentences per batch.", buckets=SIZES, registry=registry
        )
        self.waiting_sentences = Gauge("s2s_queue_sentences", "Waiting sentences.", registry=registry)
        self.waiting_characters = Gauge("s2s_queue_characters", "Characters of waiting sentences.", registry=registry)

    @property
    def done(self) -> int:
        """The number of sentences that were answered."""
        return round(self.registry.get_sample_value("s2s_sentences_total", {"state": "done"}) or 0)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return exposition.generate_latest(self.registry)
