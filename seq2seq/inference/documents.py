"""The translation of documents with markup by a translator of lines, for `Pipeline` and the server.

`markup` knows no model: it is given the translations of sentences with their alignments, and the placeholders that the
calibration of the model found. This module does not import torch.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from math import nan
from typing import TYPE_CHECKING

from seq2seq.arguments import checked_names
from seq2seq.inference.degeneration import text_flags
from seq2seq.inference.translation import Translation
from seq2seq.lines import checked_texts
from seq2seq.markup import translation as markup
from seq2seq.markup.placeholders import CLASSES, PlaceholderClass
from seq2seq.markup.protected import IsTerm, no_term
from seq2seq.markup.render import Answer
from seq2seq.text.alignment import Alignment

if TYPE_CHECKING:
    from seq2seq.inference.aligner import Aligner


def check_form(form: str) -> None:
    """Refuse a format that no document can have.

    Raises:
        UserError: there is no such format; the message names those that there are.
    """
    checked_names((form,), tuple(markup.FORMATS), "format")


def translate_documents(
    texts: Sequence[str],
    form: str,
    translate: Callable[[Sequence[str]], Sequence[Translation]],
    aligner: "Aligner",
    is_untranslatable: Callable[[str], bool],
    statuses: Counter[str] | None = None,
    longest: int = sys.maxsize,
    is_term: IsTerm = no_term,
) -> list[Translation]:
    """Translate each document of a format independently.

    Args:
        texts: documents.
        form: format of `markup.translation.FORMATS`.
        translate: function that translates lines, with their alignments as `details`.
        aligner: aligner of the model, for its calibration and description.
        is_untranslatable: function that returns whether a line is copied.
        statuses: the numbers of terms by status, to which those of the documents are added.
        longest: number of characters above which a sentence is cut.
        is_term: function that returns whether an address, a mention or a code is a term, and so not copied.

    Raises:
        DataError: a document is not in the format.
        UserError: there is no such format.
    """
    check_form(form)
    known = [PlaceholderClass(each.name, each.words, each.answers) for each in aligner.calibration.stand_ins] or CLASSES
    # If a word of the best class was lost, another word of it may be kept.
    classes = [known[0], known[0].turned(), *known[1:]]
    about = aligner.description
    languages = about.source_language, about.target_language

    def plain(lines: Sequence[str]) -> list[Answer]:
        return [
            Answer(each.text, Alignment.joined(each.details), frozenset(each.flags), terms=each.terms)
            for each in translate(lines)
        ]

    texts = checked_texts(texts, "translate")
    named = (languages[0], languages[1]) if languages[0] else None
    answers = markup.translate_documents(texts, form, plain, classes, is_untranslatable, named, longest, is_term)
    if statuses is not None:
        statuses.update(chain.from_iterable(answer.terms for answer in answers))
    return [
        Translation(answer.text, nan, nan, 0, text_flags(answer.sentences), source=text, sentences=answer.sentences)
        for text, answer in zip(texts, answers, strict=True)
    ]
