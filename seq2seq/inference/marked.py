"""Translations of documents with markup: a model translates, its attention says where tags belong.

`MarkupTranslator` serves `s2s translate --input-format` and the server; `markup` knows what tags and documents are.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Protocol

from seq2seq.inference.aligner import Aligner
from seq2seq.inference.terms import TermTranslator
from seq2seq.inference.translator import Translation
from seq2seq.markup.standins import CLASSES, StandIns
from seq2seq.markup.translation import Marked, Translated, translate_documents


class PlainTranslator(Protocol):
    """A `Translator`, or what keeps to a glossary with one."""

    def translate(self, lines: Sequence[str]) -> Sequence[Translation]:
        """A translation for each line."""


class WithTerms:
    """A translator that keeps to a glossary; `statuses` counts what became of its terms."""

    def __init__(self, keeper: TermTranslator):
        self._keeper = keeper
        self.statuses: Counter[str] = Counter()

    def translate(self, lines: Sequence[str]) -> list[Translation]:
        """As `Translator.translate`."""
        found = self._keeper.translate(lines)
        self.statuses.update(term.status for one in found for term in one.terms)
        return [one.translation for one in found]


class MarkupTranslator:
    """A translator of plain text, and the aligner of the same model."""

    def __init__(self, translator: PlainTranslator, aligner: Aligner):
        self._translator, self._aligner = translator, aligner
        known = [StandIns(one.name, one.words, one.answers) for one in aligner.calibration.stand_ins] or CLASSES
        # Where one word of the best class was lost, another one may not be.
        self._classes = [known[0], known[0].turned(), *known[1:]]

    def translate(self, texts: Sequence[str], form: str) -> list[Marked]:
        """Translate each document of a format (`markup.translation.FORMATS`), whatever the others are.

        Raises:
            DataError: a document is not of the format.
        """
        return translate_documents(texts, form, self._plain, self._classes)

    def _plain(self, texts: Sequence[str]) -> list[Translated]:
        found = self._translator.translate(texts)
        explained = self._aligner.explain(found, probabilities=False)
        return [
            Translated(
                one.text,
                list(chain.from_iterable(part.source_words for part in parts)),
                [word.span for part in parts for word in part.words],
                [(link.source, link.target, link.weight) for part in parts for link in part.links],
            )
            for one, parts in zip(found, explained, strict=True)
        ]
