"""The pipeline from texts to finished translations, which `s2s translate`, `bleu --model`, `tune` and the server share.

A `Pipeline` has a translator and, on request, the aligner of the same model, a glossary, and formats of documents. A
new feature of translations is added here once. Without an aligner, this module does not import torch.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from seq2seq.arguments import checked_names
from seq2seq.errors import UserError
from seq2seq.inference.overlap import Work, finish, side_by_side
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.lines import UnequalPrefixes, checked_texts, in_order
from seq2seq.text.alignment import KINDS

if TYPE_CHECKING:
    from seq2seq.inference.aligner import Aligner
    from seq2seq.text.glossary import Glossary

TEXT = "text"


class Pipeline:
    """A translator with a glossary, the details of its translations, and documents.

    Args:
        translator: translator of lines.
        aligner: aligner of the same model; a glossary, details and documents need it.
        glossary: terms that translations must contain, and forbidden words.
        first: translator into the language from which `translator` translates; None translates directly.
    """

    def __init__(
        self,
        translator: Translator,
        aligner: "Aligner | None" = None,
        glossary: "Glossary | None" = None,
        first: Translator | None = None,
    ):
        self.translator, self.aligner, self.glossary, self.first = translator, aligner, glossary, first
        self.statuses: Counter[str] = Counter()
        """The number of terms of each status in all lines so far, including those of documents."""

    @classmethod
    def load(
        cls,
        *paths: str | Path | None,
        glossary: "str | Path | Glossary | None" = None,
        with_aligner: bool = False,
        pivot: str | None = None,
        **options: Any,
    ) -> Self:
        """Load the pipeline of a model, or of an ensemble of several models.

        Args:
            paths: model folders or run folders (then their best models); without one, the newest translation run.
            glossary: path of a file for `Glossary.read`, or a glossary; languages that it lacks are those of the model.
            with_aligner: load the aligner, for details and documents; a glossary always loads it.
            pivot: language through which a model of many languages translates, in two passes.
            options: options of `Translator.load`.

        Raises:
            DataError: the glossary cannot be read.
            ModelError, UserError: as in `Translator.load`; or an ensemble needs an aligner, which it cannot have.
        """
        if pivot is not None:
            if glossary is not None or with_aligner:
                raise UserError("a glossary, details and documents need one pass; leave out the pivot")
            from seq2seq.inference.pivot import load_pivot

            first, second = load_pivot(pivot, *(path for path in paths if path is not None), **options)
            return cls(second, first=first)
        if glossary is None and not with_aligner:
            return cls(Translator.load(*(path for path in paths if path is not None), **options))
        if len(paths) > 1:
            raise UserError("a glossary, details and documents need one model; an ensemble has several")
        from seq2seq.inference.aligner import load_both
        from seq2seq.inference.glossary_translator import open_glossary

        translator, aligner = load_both(paths[0] if paths else None, **options)
        return cls(translator, aligner, None if glossary is None else open_glossary(glossary, translator))

    def is_untranslatable(self, text: str) -> bool:
        """Whether a text is copied, because it is not language (`text.untranslatable`) and contains no term."""
        return self.translator.is_untranslatable(text) and not (self.glossary and self.glossary.matches(text))

    def is_term(self, text: str) -> bool:
        """Whether a text, such as an address, is a term with another translation than itself."""
        return self.glossary is not None and self.glossary.is_term(text)

    def translate(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        first_line: int = 0,
        details: str | Collection[str] = (),
        form: str = TEXT,
    ) -> list[Translation]:
        """Translate each text independently.

        Args:
            texts: lines, or documents of a format.
            prefixes: as in `Translator.translate`; documents have none.
            first_line: as in `Translator.translate`.
            details: any of `alignment.KINDS`; with one, translations have `details`. Documents have none.
            form: `text`, or a format of `markup.translation.FORMATS`.

        Raises:
            DataError: as in `Translator.translate`; or a document is not in the format.
            UserError: there is no such format, documents are given details or prefixes, or the request needs an aligner
                that the pipeline does not have.
            TypeError: `texts` or `prefixes` is not a list of texts.
        """
        texts = checked_texts(texts, "translate")
        prefixes = prefixes if prefixes is None else checked_texts(prefixes, "prefixes")
        details = self._checked_details(details, form)
        if form != TEXT:
            if details or prefixes is not None:
                raise UserError("documents have no details and no prefixes; leave them out, or translate lines")
            from seq2seq.inference.documents import translate_documents

            functions = self._aligned, self.aligner, self.is_untranslatable
            return translate_documents(texts, form, *functions, self.statuses, is_term=self.is_term)
        return finish(self._work(texts, prefixes, first_line, details))

    def _work(
        self, texts: Sequence[str], prefixes: Sequence[str] | None, first_line: int, details: Collection[str]
    ) -> Work[list[Translation]]:
        """Translate lines, and count the statuses of their terms (`overlap`)."""
        answers = yield from self._uncounted(texts, prefixes, first_line, details)
        self.statuses.update(term.status for answer in answers for term in answer.terms)
        return answers

    def _uncounted(
        self, texts: Sequence[str], prefixes: Sequence[str] | None, first_line: int, details: Collection[str]
    ) -> Work[list[Translation]]:
        if self.first is not None:
            from seq2seq.inference.pivot import through_pivot

            return (yield from through_pivot(self.first, self.translator, texts, prefixes, first_line))
        if self.glossary is None:
            answers = yield from self.translator.work(texts, prefixes, first_line)
        else:
            from seq2seq.inference.glossary_translator import GlossaryTranslator

            keeper = GlossaryTranslator(self.translator, self.aligner, self.glossary)
            answers = yield partial(keeper.translate, texts, prefixes, first_line)  # text work and searches mixed
        if details:
            answers = yield partial(self.aligner.explain, answers, set(details) != {"alignment"})
        return answers

    def translate_stream(
        self,
        batches: Iterable[Sequence[str]],
        prefixes: Iterable[str] | None = None,
        details: str | Collection[str] = (),
        overlaps: bool | None = None,
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each batch of a stream of lines; memory does not grow with the stream.

        Args:
            batches: lines.
            prefixes: as in `Translator.translate`, one for each line of the stream.
            details: as in `translate`.
            overlaps: whether other batches are read, tokenised and detokenised while one is searched; this changes no
                result. None means that they are with `search.record: true`, if the engine leaves the CPUs idle.

        Raises:
            DataError: `prefixes` has fewer or more lines than the batches together.
            UserError, TypeError: as in `translate`.
        """
        details = self._checked_details(details, TEXT)
        begins = prefixes if prefixes is None else in_order(prefixes, "prefixes")
        works = self._works(batches, begins, details)
        if self.translator.overlaps if overlaps is None else overlaps:
            return side_by_side(works)
        return map(finish, works)

    def _works(
        self, batches: Iterable[Sequence[str]], prefixes: Iterator[str] | None, details: Collection[str]
    ) -> Iterator[Work[list[Translation]]]:
        count = 0
        for batch in batches:
            lines = checked_texts(batch, "each batch of translate_stream")
            begins = None if prefixes is None else list(islice(prefixes, len(lines)))
            if begins is not None and len(begins) < len(lines):
                raise UnequalPrefixes(count + len(begins), f"more than {count + len(begins):,}")
            yield self._work(lines, begins, count, details)
            count += len(lines)
        if prefixes is not None and (extra := sum(1 for _ in prefixes)):
            raise UnequalPrefixes(count + extra, f"{count:,}")

    def _checked_details(self, details: str | Collection[str], form: str) -> tuple[str, ...]:
        kinds = checked_names(details, KINDS, "details")
        if form != TEXT:
            from seq2seq.inference.documents import check_form

            check_form(form)
        if self.aligner is None and (self.glossary or kinds or form != TEXT):
            remedy = "load one model, without a pivot, with the argument with_aligner=True"
            raise UserError(f"this pipeline has no aligner, which a glossary, details and documents need; {remedy}")
        return kinds

    def _aligned(self, lines: Sequence[str]) -> list[Translation]:
        return finish(self._uncounted(lines, None, 0, ("alignment",)))  # documents count those that they use
