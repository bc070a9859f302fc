"""The sentences in which two systems differ most by chrF, with the words that differ marked.

`comparison` takes a `PairSentences` of each pair of rows; the page and the table show them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations

from seq2seq.lines import UNWRITABLE
from seq2seq.text.words import character_spans, word_spans
from seq2seq.workflows.compare import ngrams
from seq2seq.workflows.compare.systems import Row

LONGEST = 600  # characters of a sentence that are shown


@dataclass(frozen=True)
class ShownSentence:
    """One line of the test set, and what two systems made of it."""

    line: int
    """Its number, from 1."""
    source: str
    reference: str
    scores: tuple[float, float]
    """chrF of both, the mean over seeds."""
    texts: tuple[list[tuple[str, bool]], list[tuple[str, bool]]]
    """Consecutive parts of each translation, and whether the other lacks them."""


@dataclass(frozen=True)
class PairSentences:
    """The sentences that the first row won most, and those that it lost most."""

    first: str
    second: str
    num_different: int
    """Lines in which the texts differ."""
    won: list[ShownSentence]
    lost: list[ShownSentence]
    ngrams_won: list[ngrams.Ngram]
    """Word sequences that the first row has right more often."""
    ngrams_lost: list[ngrams.Ngram]


def most_different(
    rows: Sequence[Row],
    scores: Mapping[str, Sequence[float]],
    references: Sequence[str],
    sources: Sequence[str],
    most: int,
) -> list[PairSentences]:
    """Return at most `most` sentences on each side of each pair; several seeds are shown by the text of the first."""
    found = []
    right = {row.name: ngrams.matches(row.members[0].translations, references) for row in rows}
    for first, second in combinations(rows, 2):
        texts = [row.members[0].translations for row in (first, second)]
        gains = [one - other for one, other in zip(scores[first.name], scores[second.name], strict=True)]
        changed = [line for line, pair in enumerate(zip(*texts, strict=True)) if pair[0].rstrip() != pair[1].rstrip()]
        order = sorted(changed, key=lambda line: (-gains[line], line))

        def shown(
            line: int, pair: tuple[Row, Row] = (first, second), texts: list[Sequence[str]] = texts
        ) -> ShownSentence:
            return ShownSentence(
                line + 1,
                _short(sources[line]) if sources else "",
                _short(references[line]),
                (scores[pair[0].name][line], scores[pair[1].name][line]),
                marked(*(_short(side[line]) for side in texts)),
            )

        won = [shown(line) for line in order if gains[line] > 0][:most]
        lost = [shown(line) for line in reversed(order) if gains[line] < 0][:most]
        if not won and not lost:  # texts that differ without effect on chrF
            won = [shown(line) for line in order[:most]]
        own = [right[first.name], right[second.name]]
        found.append(
            PairSentences(
                first.name, second.name, len(changed), won, lost, ngrams.most_different(*own),
                ngrams.most_different(*own[::-1]),
            )
        )  # fmt: skip
    return found


def marked(first: str, second: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Return both texts in consecutive parts, and whether the other text lacks each; joined, the parts are the text."""
    sides = [_tokens(text) for text in (first, second)]
    parts: tuple[list[tuple[str, bool]], list[tuple[str, bool]]] = ([], [])
    for kind, *places in SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        for side, own, begin, end in zip(sides, parts, places[::2], places[1::2], strict=True):
            if begin < end:
                own.append(("".join(side[begin:end]), kind != "equal"))
    return parts


def _tokens(text: str) -> list[str]:
    """Return the words of a text and what is between them."""
    found, last = [], 0
    for begin, end in word_spans(text, character_spans(text)):
        found += [part for part in (text[last:begin], text[begin:end]) if part]
        last = end
    return found + ([text[last:]] if last < len(text) else [])


def _short(text: str) -> str:
    text = UNWRITABLE.sub("\ufffd", text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
