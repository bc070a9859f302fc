"""From texts to finished translations: the one way that `s2s translate`, `bleu --model`, `tune` and the server take.

A `Pipeline` is a translator and, where they are requested, the aligner of the same model, a glossary, and the formats
of documents. An ability of translations is added here once. Without them, nothing here imports torch.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from seq2seq.errors import UserError, did_you_mean
from seq2seq.inference.degeneration import text_flags
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator, unequal
from seq2seq.lines import checked_texts
from seq2seq.text.glossary import Glossary

if TYPE_CHECKING:
    from seq2seq.inference.aligner import Aligner

TEXT = "text"


class Pipeline:
    """A translator with a glossary, the details of its translations, and documents.

    Args:
        translator: translates lines.
        aligner: that of the same model; a glossary, details and documents need it.
        glossary: terms that translations must contain.
    """

    def __init__(self, translator: Translator, aligner: "Aligner | None" = None, glossary: Glossary | None = None):
        self.translator, self.aligner, self.glossary = translator, aligner, glossary
        self.statuses: Counter[str] = Counter()
        """The number of terms of each status in the lines so far, those of documents too."""

    @classmethod
    def load(
        cls,
        *paths: str | Path | None,
        glossary: str | Path | Glossary | None = None,
        with_aligner: bool = False,
        **options: Any,
    ) -> Self:
        """Load a model folder or a run folder (then its best model); several are an ensemble; none is the newest
        translation run.

        Args:
            paths: the MODELs.
            glossary: a file, as `Glossary.read` takes it, or a glossary.
            with_aligner: load what details and documents need; a glossary needs it too.
            options: those of `Translator.load`.

        Raises:
            DataError: the glossary cannot be read.
            ModelError, UserError: as `Translator.load`; or an ensemble, which has no aligner.
        """
        if glossary is None and not with_aligner:
            return cls(Translator.load(*(path for path in paths if path is not None), **options))
        if len(paths) > 1:
            raise UserError("a glossary, details and documents need one model; an ensemble has several")
        from seq2seq.inference.aligner import load_both
        from seq2seq.inference.glossary_translator import read_glossary

        translator, aligner = load_both(paths[0] if paths else None, **options)
        if glossary is not None and not isinstance(glossary, Glossary):
            glossary = read_glossary(Path(glossary), translator)
        return cls(translator, aligner, glossary)

    def is_untranslatable(self, text: str) -> bool:
        """Whether a text is copied: it cannot be translated and contains no term."""
        return self.translator.is_untranslatable(text) and not (self.glossary and self.glossary.matches(text))

    def translate(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        first_line: int = 0,
        details: Collection[str] = (),
        form: str = TEXT,
    ) -> list[Translation]:
        """Translate each text, whatever the others are.

        Args:
            texts: lines, or documents of a format.
            prefixes: as of `Translator.translate`; documents have none.
            first_line: as of `Translator.translate`.
            details: any of `alignment.KINDS`; translations have `details` then.
            form: `text`, or a format of `markup.translation.FORMATS`.

        Raises:
            DataError: as `Translator.translate`; or a document is not of the format.
            UserError: there is no such format, or the pipeline has no aligner, which the request needs.
        """
        if self.aligner is None and (self.glossary or details or form != TEXT):
            raise UserError("this pipeline has no aligner; load it with_aligner=True")
        if form != TEXT:
            return translate_documents(texts, form, self._aligned, self.aligner, self.is_untranslatable)
        if self.glossary is None:
            found = self.translator.translate(texts, prefixes, first_line)
        else:
            from seq2seq.inference.glossary_translator import GlossaryTranslator

            keeper = GlossaryTranslator(self.translator, self.aligner, self.glossary)
            found = keeper.translate(texts, prefixes, first_line)
            self.statuses.update(term.status for one in found for term in one.terms)
        return self.aligner.explain(found, set(details) != {"alignment"}) if details else found

    def translate_stream(
        self, batches: Iterable[Sequence[str]], prefixes: Iterator[str] | None = None, details: Collection[str] = ()
    ) -> Iterator[list[Translation]]:
        """`translate` for each batch of a stream of lines as it comes; memory does not grow with the stream.

        Raises:
            DataError: `prefixes`, an iterator beside the lines, has fewer or more lines than the batches.
        """
        count = 0
        for lines in batches:
            own = None if prefixes is None else list(islice(prefixes, len(lines)))
            if own is not None and len(own) < len(lines):
                raise unequal(count + len(own), f"more than {count + len(own):,}")
            yield self.translate(lines, own, count, details)
            count += len(lines)
        if prefixes is not None and (extra := sum(1 for _ in prefixes)):
            raise unequal(count + extra, f"{count:,}")

    def _aligned(self, lines: Sequence[str]) -> list[Translation]:
        return self.translate(lines, details=("alignment",))


def translate_documents(
    texts: Sequence[str],
    form: str,
    translate: Callable[[Sequence[str]], Sequence[Translation]],
    aligner: "Aligner",
    is_untranslatable: Callable[[str], bool],
) -> list[Translation]:
    """Translate each document of a format, whatever the others are.

    Args:
        texts: the documents.
        form: a format of `markup.translation.FORMATS`.
        translate: translates lines, with their alignments as `details`.
        aligner: whose calibration and description are those of the model.
        is_untranslatable: whether a line is copied.

    Raises:
        DataError: a document is not of the format.
        UserError: there is no such format.
    """
    from seq2seq.markup import translation as markup
    from seq2seq.markup.placeholders import CLASSES, PlaceholderClass
    from seq2seq.markup.render import Answer
    from seq2seq.text.alignment import Alignment

    if form not in markup.FORMATS:
        raise UserError(f"format {form!r}: not one of {', '.join(markup.FORMATS)}{did_you_mean(form, markup.FORMATS)}")
    known = [PlaceholderClass(one.name, one.words, one.answers) for one in aligner.calibration.stand_ins] or CLASSES
    # Where one word of the best class was lost, another one may not be.
    classes = [known[0], known[0].turned(), *known[1:]]
    about = aligner.description
    languages = about.source_language, about.target_language

    def plain(lines: Sequence[str]) -> list[Answer]:
        return [Answer(one.text, Alignment.joined(one.details), frozenset(one.flags)) for one in translate(lines)]

    texts = checked_texts(texts, "translate")
    named = (languages[0], languages[1]) if languages[0] and languages[1] else None
    found = markup.translate_documents(texts, form, plain, classes, is_untranslatable, named)
    return [
        Translation(one.text, nan, nan, 0, text_flags(one.sentences), source=text, sentences=one.sentences)
        for text, one in zip(texts, found, strict=True)
    ]
