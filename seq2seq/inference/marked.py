"""Translations of documents with markup: a model translates, its attention says where tags belong.

`MarkupTranslator` serves `s2s translate --input-format` and the server; `markup` knows what tags and documents are.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, Self

from seq2seq.errors import UserError, did_you_mean
from seq2seq.inference.aligner import Aligner, load_both
from seq2seq.inference.degeneration import LOST
from seq2seq.inference.terms import TermTranslator
from seq2seq.inference.translator import Translation
from seq2seq.lines import checked_texts
from seq2seq.markup.standins import CLASSES, StandIns
from seq2seq.markup.translation import FORMATS, LinkedTranslation, Marked, translate_documents
from seq2seq.text.glossary import Glossary
from seq2seq.text.untranslatable import VERBATIM


class PlainTranslator(Protocol):
    """A `Translator`, or what keeps to a glossary with one."""

    def is_untranslatable(self, text: str) -> bool:
        """Whether a text is copied."""

    def translate(self, lines: Sequence[str]) -> Sequence[Translation]:
        """A translation for each line."""


class WithTerms:
    """A translator that keeps to a glossary; `statuses` counts what became of its terms."""

    def __init__(self, keeper: TermTranslator):
        self._keeper = keeper
        self.statuses: Counter[str] = Counter()

    def is_untranslatable(self, text: str) -> bool:
        """Whether a text is copied: it cannot be translated and has no term."""
        return self._keeper.translator.is_untranslatable(text) and not self._keeper.glossary.matches(text)

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

    @classmethod
    def load(cls, path: str | Path | None, glossary: str | Path | Glossary | None = None, **options: Any) -> Self:
        """Load a model folder or a run folder; None is the newest translation run.

        Args:
            path: the MODEL.
            glossary: a file, as `Glossary.read` takes it, or a glossary; None is none.
            options: those of `Translator.load`.

        Raises:
            DataError: the glossary cannot be read.
            ModelError, UserError: as `Translator.load`.
        """
        if glossary is None:
            return cls(*load_both(path, **options))
        keeper = TermTranslator.load(path, glossary, **options)
        return cls(WithTerms(keeper), keeper.aligner)

    def translate(self, texts: Sequence[str], form: str) -> list[Marked]:
        """Translate each document of a format (`markup.translation.FORMATS`), whatever the others are.

        Raises:
            DataError: a document is not of the format.
            UserError: there is no such format.
        """
        if form not in FORMATS:
            raise UserError(f"format {form!r}: not one of {', '.join(FORMATS)}{did_you_mean(form, FORMATS)}")
        texts, is_untranslatable = checked_texts(texts, "translate"), self._translator.is_untranslatable
        described = self._aligner.description
        languages = described.source_language, described.target_language
        known = (languages[0], languages[1]) if all(languages) else None
        return translate_documents(texts, form, self._plain, self._classes, is_untranslatable, known)

    def _plain(self, texts: Sequence[str]) -> list[LinkedTranslation]:
        found = self._translator.translate(texts)
        explained = self._aligner.explain(found, probabilities=False)
        return [
            LinkedTranslation(
                one.text,
                list(chain.from_iterable(part.source_words for part in parts)),
                [word.span for part in parts for word in part.words],
                [(link.source, link.target, link.weight) for part in parts for link in part.links],
                [flag for flag in one.flags if flag in (VERBATIM, LOST)],
            )
            for one, parts in zip(found, explained, strict=True)
        ]
