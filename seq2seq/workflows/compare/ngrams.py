"""The word sequences that one system has right more often than another.

`sentences` takes them for each pair of rows; a sequence counts as right where the reference of the line has it too.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seq2seq.lines import UNWRITABLE
from seq2seq.text.words import character_spans, word_spans

LONGEST, MOST = 4, 10


@dataclass(frozen=True)
class Ngram:
    """A sequence of 1 to 4 words, and how often both systems have it right."""

    text: str
    first: int
    second: int


def matches(translations: Sequence[str], references: Sequence[str]) -> Counter[tuple[str, ...]]:
    """Return how often translations have each sequence of the reference of their line."""
    found: Counter[tuple[str, ...]] = Counter()
    for translation, reference in zip(translations, references, strict=True):
        found.update(_ngrams(translation) & _ngrams(reference))
    return found


def most_different(first: Counter[tuple[str, ...]], second: Counter[tuple[str, ...]]) -> list[Ngram]:
    """Return the sequences that the first has right more often than the second, most first; longer ones before parts.

    A sequence inside a longer one with the same gain is left out.
    """
    gains = {ngram: count - second[ngram] for ngram, count in first.items() if count > second[ngram]}
    inside = {
        part for ngram, gain in gains.items() for part in (ngram[1:], ngram[:-1]) if part and gains.get(part) == gain
    }
    order = sorted(gains.keys() - inside, key=lambda ngram: (-gains[ngram], -len(ngram), ngram))
    return [Ngram(UNWRITABLE.sub("\ufffd", " ".join(ngram)), first[ngram], second[ngram]) for ngram in order[:MOST]]


def _ngrams(text: str) -> Counter[tuple[str, ...]]:
    words = [text[begin:end] for begin, end in word_spans(text, character_spans(text))]
    lengths = range(1, min(LONGEST, len(words)) + 1)
    return Counter(tuple(words[at : at + length]) for length in lengths for at in range(len(words) - length + 1))
