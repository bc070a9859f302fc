"""What a server takes, and the answer to a request that it does not take.

The command line makes `Limits`; every part of the server reads them, and `/v1/models` shows them.
"""

from dataclasses import dataclass

# Room for this many characters in the queue for each sentence of it; ordinary sentences have half as many.
CHARACTERS_PER_SENTENCE = 200


@dataclass(frozen=True)
class Limits:
    """Bounds on everything that a client can make large."""

    body_bytes: int = 2**21
    """Of a request."""
    texts: int = 100
    """In a request."""
    terms: int = 1_000
    """Entries of a glossary that a request holds; those of the server have no such limit."""
    term_forms: int = 5_000
    """Of all these entries together."""
    line_characters: int = 10_000
    """In a line of a text, at the model's own beam; of a larger one fewer: a line is translated in one go."""
    request_characters: int = 200_000
    """In all texts or documents of a request."""
    documents: int = 16
    """Requests of one client for documents at the same time."""
    queue_sentences: int = 1_000
    """Of one client that wait before further requests of it are refused."""
    alternatives: int = 10
    """Of each text, besides the best."""
    beam_size: int = 10
    """That a client may ask for."""
    deadline_seconds: float = 60.0
    """From the last byte of a request to its answer."""
    receive_seconds: float = 20.0
    """From the first byte of a request to the last."""
    drain_seconds: float = 10.0
    """For the answers to what was accepted before the server was told to stop."""
    connections: int = 512
    """At the same time. Above it, the client that has the most loses its oldest one that waits."""
    headers: int = 100
    """Of a request."""
    header_bytes: int = 2**14
    """Of all headers of a request together, with its address."""
    batch_seconds: float = 2.0
    """That a batch takes to compute, about, by the measured rate: where many wait, so long does one that comes."""
    batch_characters: int = 512
    """Of a batch, however slow the machine is; one longer sentence is a batch of its own."""

    @property
    def queue_characters(self) -> int:
        """Of one client that wait."""
        return max(self.request_characters, self.queue_sentences * CHARACTERS_PER_SENTENCE)

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return {**vars(self), "queue_characters": self.queue_characters}


def body_of(characters: int) -> int:
    """Bytes of a body that holds this many characters, each written in up to 9 bytes, as a form writes Chinese."""
    return max(Limits.body_bytes, 10 * characters)


class Refusal(Exception):
    """A request that is not answered, and why: the words are for the client, and hold nothing of the text.

    Args:
        status: of HTTP.
        code: the reason as one word, for programs; also the label of the metric `s2s_refused_total`.
        message: one line for people, with the remedy.
        field: of the request, that the reason lies in.
        retry_after: seconds, when the same request may be taken.
    """

    def __init__(self, status: int, code: str, message: str, field: str | None = None, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


def bad(message: str, field: str | None = None, code: str = "bad_request") -> Refusal:
    """The refusal of a request that is wrong in itself."""
    return Refusal(400, code, message, field)


def unsupported(field: str, message: str) -> Refusal:
    """The refusal of a field, or a value of one, that this server has nothing for."""
    return bad(message, field, "unsupported")
