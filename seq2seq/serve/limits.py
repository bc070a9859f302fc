"""The limits of a server, and the answer to a request that exceeds them.

The command line makes `Limits`; every part of the server reads them, and `/v1/models` shows them.
"""

from dataclasses import dataclass

# All clients together may have this many times as much waiting, or being received, as a single client.
SHARES = 8
# The queue has room for this many characters per sentence; ordinary sentences have half as many.
CHARACTERS_PER_SENTENCE = 200


@dataclass(frozen=True)
class Limits:
    """The limits on everything that a client can make large."""

    body_bytes: int = 2**21
    """Bytes of a request."""
    client_bytes: int = 2**24
    """Bytes of all requests of one client that are being received; all clients together may have `SHARES` times as
    many. A single request may always have `body_bytes`."""
    texts: int = 100
    """Texts in a request."""
    terms: int = 1_000
    """Entries of a glossary in a request; the server's glossaries have no such limit."""
    term_forms: int = 5_000
    """Forms of all these entries together."""
    line_characters: int = 10_000
    """Characters in a line with the beam size of the model; fewer with a larger one, because lines are not split."""
    request_characters: int = 200_000
    """Characters in all texts or documents of a request."""
    documents: int = 16
    """Requests of one client for documents at the same time."""
    queue_sentences: int = 1_000
    """Waiting sentences of one client; above it, further requests of this client are refused. A client without waiting
    sentences may send more in one request, so that this limits no request."""
    alternatives: int = 10
    """Alternatives of each text, in addition to the best."""
    beam_size: int = 10
    """Beam size that a client may request; that of the model is always allowed."""
    deadline_seconds: float = 60.0
    """Time from the last byte of a request to its answer."""
    receive_seconds: float = 20.0
    """Time from the first byte of a request to the last, and time in which a client must read a part of its answer."""
    drain_seconds: float = 10.0
    """Time for the answers to requests that were accepted before the server had to stop."""
    connections: int = 512
    """Simultaneous connections. Above it, the client with the most loses the oldest one that waits."""
    headers: int = 100
    """Headers of a request."""
    header_bytes: int = 2**14
    """Bytes of all headers of a request together, with its address."""
    batch_seconds: float = 2.0
    """Target compute time of a batch, by the measured rate; under load, about the wait of a new request."""
    batch_characters: int = 512
    """Characters that a batch may have even on a slow machine; a longer sentence forms a separate batch."""

    @property
    def queue_characters(self) -> int:
        """Waiting characters of one client; above it, further requests of this client are refused."""
        return max(self.request_characters, self.queue_sentences * CHARACTERS_PER_SENTENCE)

    def as_dict(self) -> dict[str, float]:
        """Return the limits as plain values for JSON."""
        return {**vars(self), "queue_characters": self.queue_characters}


def body_of(characters: int) -> int:
    """Return the bytes of a body with this number of characters, each in up to 9 bytes, as forms encode Chinese."""
    return max(Limits.body_bytes, 10 * characters)


class Refusal(Exception):
    """A refused request with the reason for the client, which contains nothing of the text.

    Args:
        status: status of HTTP.
        code: reason as one word, for programs; also the label of the metric `s2s_refused_total`.
        message: one line for people, with the remedy.
        field: field of the request that caused the refusal.
        retry_after: seconds after which the same request may be accepted.
    """

    def __init__(self, status: int, code: str, message: str, field: str | None = None, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


def bad(message: str, field: str | None = None, code: str = "bad_request") -> Refusal:
    """Return the refusal (400) of a request that is wrong."""
    return Refusal(400, code, message, field)


def field_of_text(index: int, count: int) -> str:
    """Return the field of one of the texts of a request, whose number is `count`."""
    return f"text.{index}" if count > 1 else "text"


def unsupported(field: str, message: str) -> Refusal:
    """Return the refusal (400) of a field or value that this server does not support."""
    return bad(message, field, "unsupported")
