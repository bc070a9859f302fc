"""Translation of documents with markup: sentences become plain text, and their tags and pieces are restored afterwards.

For any output of the model, every tag and every piece is in the result once (formatting may be repeated). The
result is well-formed, because it is rendered from a tree. `inference.pipeline` provides the translations of a model.
"""

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, pairwise

from seq2seq.errors import DataError
from seq2seq.markup import html, markdown, plain, xml
from seq2seq.markup.attributes import UNKNOWN_LANGUAGES, LanguagePair
from seq2seq.markup.document import OBJECT, Document, Segment, Template
from seq2seq.markup.document import join as join_document
from seq2seq.markup.placeholders import CLASSES, MOST, PlaceholderClass, choose, find
from seq2seq.markup.protected import IsTerm, no_term
from seq2seq.markup.render import Answer, written
from seq2seq.text.alignment import Alignment, Link, Term, Word, copied
from seq2seq.text.parts import Part, bounded_sentences, join, stripped
from seq2seq.text.scripts import ends_in_word
from seq2seq.text.splitting import ABBREVIATED, LONGEST_ABBREVIATION
from seq2seq.text.untranslatable import VERBATIM, lacks_letters
from seq2seq.text.words import Span, overlap

FORMATS = {"html": html.segments, "xml": xml.segments, "markdown": markdown.segments, "plain": plain.segments}
PLACEHOLDER = "placeholder"
# Maximum number of placeholder classes tried for a sentence. If all fail, the words aligned with the placeholders are
# replaced; without any, the sentence is split at its pieces.
MOST_TRIES = 3
STOPS = (".", "。", "।", "۔", "።", "។", "။", "։")


_MARKS = re.compile(r"(\W+)")

Translate = Callable[[Sequence[str]], Sequence[Answer]]
"""Function that translates plain texts of one line each."""


class BadDocument(DataError):
    """A document that is not of its format.

    Attributes:
        index: place of the document among those that were translated together.
    """

    def __init__(self, message: str, index: int):
        super().__init__(message)
        self.index = index


@dataclass(frozen=True)
class Marked:
    """The translation of a document."""

    text: str
    segments: int
    sentences: tuple[tuple[str, ...], ...]
    """Flags of each sentence: `placeholder` if the model lost a piece, so that the sentence was split at its pieces, or
    pieces replaced words; `markup` if emphasis of its segment was omitted, or the segment not translated, because the
    format cannot express it; `unchanged` if its segment was not changed, because the translation of the segment is
    empty; `verbatim` if it was copied because it cannot be translated; and flags that `translate` returned."""
    terms: tuple[str, ...] = ()
    """The status of each term of a glossary; translations that were not used do not count."""


def translate_documents(
    texts: Sequence[str],
    form: str,
    translate: Translate,
    classes: Sequence[PlaceholderClass] = CLASSES,
    is_untranslatable: Callable[[str], bool] = lacks_letters,
    languages: tuple[str, str | None] | None = None,
    longest: int = sys.maxsize,
    is_term: IsTerm = no_term,
) -> list[Marked]:
    """Translate documents of a format.

    `translate` is called once for all sentences, and again for each class of placeholders that a sentence lost.
    Sentences that are untranslatable without their pieces are copied, and those of more than `longest` characters,
    without the words of placeholders, are cut. Attributes `lang` with the first of the two
    languages get the tag of the second; elements in other languages than the first are copied. An address
    or a code that is a term (`is_term`) is given to `translate` as text.

    Raises:
        BadDocument: a document is not of the format (`html.segments`, `xml.segments`).
    """
    documents = list(_read(texts, form, LanguagePair(*languages) if languages else UNKNOWN_LANGUAGES, is_term))
    segments = [segment for document in documents for segment in document.segments]
    answers = _of_segments([segment.text for segment in segments], translate, classes, is_untranslatable, longest)
    outputs = iter([_rendered(segment, *answer) for segment, answer in zip(segments, answers, strict=True)])
    return [_joined(document, [next(outputs) for _ in document.segments]) for document in documents]


def _read(texts: Sequence[str], form: str, languages: LanguagePair, is_term: IsTerm) -> Iterator[Document]:
    read = partial(FORMATS[form], is_term=is_term)
    read = read if form == "plain" else partial(read, languages=languages)
    for index, text in enumerate(texts):
        try:
            yield read(text)
        except DataError as error:
            raise BadDocument(str(error), index) from error


_Rendered = tuple[Template | None, list[frozenset[str]], tuple[Term, ...]]


def _rendered(segment: Segment, answer: Answer, sentences: Sequence[frozenset[str]]) -> _Rendered:
    """Return the output for a segment, the flags of its sentences, and the terms of the output.

    The flags of the rendering apply to all sentences.
    """
    output, flags = written(segment, answer)
    is_used = output is not None or answer.text == segment.text
    return output, [sentence | flags for sentence in sentences], answer.terms if is_used else ()


def _joined(document: Document, outputs: Sequence[_Rendered]) -> Marked:
    text = join_document(document, [output for output, *_ in outputs])
    sentences = chain.from_iterable(sentences for _, sentences, _ in outputs)
    statuses = tuple(term.status for *_, terms in outputs for term in terms)
    return Marked(text, len(outputs), tuple(tuple(sorted(flags)) for flags in sentences), statuses)


# -- plain text ------------------------------------------------------------------------------------


def _of_segments(
    texts: Sequence[str],
    translate: Translate,
    classes: Sequence[PlaceholderClass],
    is_untranslatable: Callable[[str], bool],
    longest: int,
) -> list[tuple[Answer, list[frozenset[str]]]]:
    """Return the answer to each segment, and the flags of its sentences. Segments are translated sentence by sentence,
    and keep the white space between them."""
    cut = [stripped(bounded_sentences(text, longest)) for text in texts]
    cores = [part.text for parts, _ in cut for part in parts]
    kept = {core for core in set(cores) if is_untranslatable(_around(core))}
    translated = iter(_answers([core for core in cores if core not in kept], translate, classes, is_untranslatable))
    answers = iter([_verbatim(core) if core in kept else next(translated) for core in cores])
    found = []
    for parts, end in cut:
        own = [next(answers) for _ in parts]
        found.append((_concatenated(parts, own, end), [answer.flags for answer in own]))
    return found


def _concatenated(parts: Sequence[Part], answers: Sequence[Answer], end: str) -> Answer:
    """Return the answer to a text from those of its parts."""
    text, places = join(parts, [one.text for one in answers], ("", end))
    pieces = accumulate((part.text.count(OBJECT) for part in parts), initial=0)
    moved = [one.alignment.shifted(part.begin, at) for part, one, at in zip(parts, answers, places, strict=True)]
    return Answer(
        text,
        Alignment.joined(moved),
        frozenset(chain.from_iterable(one.flags for one in answers)),
        tuple(number + before for one, before in zip(answers, pieces, strict=False) for number in one.order),
        tuple(
            term.shifted(part.begin, at)
            for part, one, at in zip(parts, answers, places, strict=True)
            for term in one.terms
        ),
    )


def _answers(
    texts: Sequence[str],
    translate: Translate,
    classes: Sequence[PlaceholderClass],
    is_untranslatable: Callable[[str], bool],
) -> list[Answer]:
    """Return the answer to each text, whose pieces are OBJECTs; a text whose placeholders were all lost is split at its
    pieces, and the text between them, which needs no placeholders, is translated."""
    answers = _with_placeholders(texts, translate, classes, is_untranslatable)
    left = [index for index in range(len(texts)) if index not in answers]
    cut = [stripped(_around_pieces(texts[index])) for index in left]
    cores = [part.text for parts, _ in cut for part in parts if OBJECT not in part.text]
    found = _with_placeholders(cores, translate, classes, is_untranslatable)
    between = iter([found[index] for index in range(len(cores))])
    for index, (parts, end) in zip(left, cut, strict=True):
        own = [_copied(part.text) if OBJECT in part.text else next(between) for part in parts]
        whole = _concatenated(parts, own, end)
        answers[index] = replace(whole, flags=whole.flags | {PLACEHOLDER})
    return [answers[index] for index in range(len(texts))]


def _with_placeholders(
    texts: Sequence[str],
    translate: Translate,
    classes: Sequence[PlaceholderClass],
    is_untranslatable: Callable[[str], bool],
) -> dict[int, Answer]:
    """Return the answers by text; texts that lost the placeholders of all classes have none."""
    answers: dict[int, Answer] = {
        index: _verbatim(text)
        for index, text in enumerate(texts)
        if lacks_letters(text) and is_untranslatable(_around(text))
    }
    lost: dict[int, list[tuple[_Filled, Answer]]] = defaultdict(list)
    for placeholders in classes[:MOST_TRIES]:
        filled_texts = {}
        for index, text in enumerate(texts):
            pieces = text.count(OBJECT)
            pairs = choose(placeholders, pieces, text) if pieces <= MOST else None
            if index not in answers and pairs is not None:
                filled_texts[index] = _Filled(text, pairs)
        found = translate([filled.text for filled in filled_texts.values()]) if filled_texts else ()
        for (index, filled), said in zip(filled_texts.items(), found, strict=True):
            translated = _without_added_stop(filled.text, filled.without_own_terms(said))
            if (answer := filled.restored(translated, filled.said(translated))) is not None:
                answers[index] = answer
            else:
                lost[index].append((filled, translated))
    for index, tries in lost.items():
        linked = (filled.restored(translated, filled.linked(translated)) for filled, translated in tries)
        if index not in answers and (answer := next(filter(None, linked), None)) is not None:
            answers[index] = replace(answer, flags=answer.flags | {PLACEHOLDER})
    return answers


def _around(text: str) -> str:
    """Return a text without its pieces."""
    return text.replace(OBJECT, " ").strip()


def _verbatim(text: str) -> Answer:
    """Return a text that was copied as untranslatable, with its flag."""
    return replace(_copied(text), flags=frozenset({VERBATIM}))


def _around_pieces(text: str) -> Iterator[str]:
    """Yield a text in parts: pieces with the marks next to them, and the text between them."""
    words: list[str] = []
    for part in _MARKS.split(text):
        if OBJECT not in part:
            words.append(part)
            continue
        yield from filter(None, ("".join(words), part))
        words = []
    yield from filter(None, ["".join(words)])


def _copied(text: str) -> Answer:
    """Return a text as its own translation, with its pieces."""
    return Answer(text, copied(text), order=tuple(range(text.count(OBJECT))))


class _Filled:
    """A text with a placeholder word in place of each OBJECT."""

    def __init__(self, text: str, pairs: Sequence[tuple[str, str]]):
        words = [word for word, _ in pairs]
        self._answers = [said for _, said in pairs]
        parts = text.split(OBJECT)
        self.text = "".join(chain.from_iterable(zip(parts, [*words, ""], strict=True)))
        self._spans, position = [], 0
        for part, word in zip(parts, words, strict=False):
            self._spans.append((position + len(part), position + len(part) + len(word)))
            position = self._spans[-1][1]
        neighbours = [(text[:place][-1:], text[place + 1 :][:1]) for place, char in enumerate(text) if char == OBJECT]
        self._glued = [(before.isalnum(), after.isalnum()) for before, after in neighbours]

    def without_own_terms(self, translated: Answer) -> Answer:
        """Return a translation without the terms of the placeholders, which the text does not have."""
        return replace(translated, terms=tuple(term for term in translated.terms if not self._holds(term.source)))

    def said(self, translated: Answer) -> list[Span]:
        """Return the spans of the placeholders that the translation contains exactly once, terms apart."""
        text = _without_objects(translated)
        found = [find(word, text, glued) for word, glued in zip(self._answers, self._glued, strict=True)]
        outside = [[span for span in spans if not _is_of_term(translated, span)] for spans in found]
        return [spans[0] for spans in outside if len(spans) == 1]

    def linked(self, translated: Answer) -> list[Span]:
        """Return, for each placeholder, the word of the translation with the strongest link to it.

        Marks, words of terms, and words with a stronger link to another source word do not count.
        """
        strongest = dict[Span, Link]()  # by target word
        for link in sorted(translated.alignment.links, key=lambda link: link.weight):
            strongest[link.target] = link
        free = [
            link
            for (begin, end), link in strongest.items()
            if any(map(str.isalnum, translated.text[begin:end])) and not _is_of_term(translated, (begin, end))
        ]
        own = ([link for link in free if overlap(link.source, span)] for span in self._spans)
        return [max(links, key=lambda link: link.weight).target for links in own if links]

    def restored(self, translated: Answer, found: Sequence[Span]) -> Answer | None:
        """Return the answer with pieces at the spans `found`; None if their number is not that of the pieces, or they
        overlap."""
        text = _without_objects(translated)
        if not self._spans:
            return replace(translated, text=text)
        if len(found) < len(self._spans):
            return None
        places = sorted((span, number) for number, span in enumerate(found))
        spans = [span for span, _ in places]
        if any(span[1] > following[0] for span, following in pairwise(spans)):
            return None
        source_at, target_at = _Objects(self.text, self._spans), _Objects(text, spans)
        own = translated.alignment
        links = [Link(source_at.span(one), target_at.span(other), weight) for one, other, weight in own.links]
        links += [Link(source_at.span(self._spans[number]), target_at.span(span), 1.0) for span, number in places]
        source_words = source_at.words(own.source_words)
        words = [Word(span) for span in target_at.words([word.span for word in own.words])]
        whole = (0, len(source_at.text)), (0, len(target_at.text))
        return Answer(
            target_at.text,
            Alignment(*whole, source_words, tuple(words), tuple(links)),
            translated.flags,
            tuple(number for _, number in places),
            tuple(
                replace(term, source=source_at.span_or_none(term.source), target=target_at.span_or_none(term.target))
                for term in translated.terms
            ),
        )

    def _holds(self, span: Span | None) -> bool:
        """Whether a span of the filled text has a placeholder or a part of one."""
        return span is not None and any(overlap(span, own) for own in self._spans)


def _without_added_stop(source: str, translated: Answer) -> Answer:
    """Return a translation without the full stop that models of sentences add to a title or a table cell."""
    text, end = translated.text, len(translated.text) - 1
    is_added = ends_in_word(source) and text.endswith(STOPS) and ends_in_word(text[:-1])
    is_added = is_added and not _is_of_term(translated, (end, len(text)))
    if not is_added or ABBREVIATED.search(text[max(0, end - LONGEST_ABBREVIATION) : end]):
        return translated
    own = translated.alignment
    words = tuple(word for word in own.words if word.span[1] <= end)
    links = tuple(link for link in own.links if link.target[1] <= end)
    return replace(translated, text=text[:end], alignment=replace(own, words=words, links=links))


def _is_of_term(translated: Answer, span: Span) -> bool:
    return any(term.target is not None and overlap(term.target, span) for term in translated.terms)


def _without_objects(translated: Answer) -> str:
    return translated.text.replace(OBJECT, " ")


class _Objects:
    """A text in which OBJECTs replace some spans, and the new places of its words."""

    def __init__(self, text: str, spans: Sequence[Span]):
        parts, end = [], 0
        for begin, stop in spans:
            parts += [text[end:begin], OBJECT]
            end = stop
        self.text = "".join([*parts, text[end:]])
        self._spans = list(spans)
        self._ends = [stop for _, stop in spans]
        self._shifts = list(accumulate((stop - begin - 1 for begin, stop in spans), initial=0))

    def span(self, span: Span) -> Span:
        """Return the new span of a span of the text; a span within a replaced one becomes the whole OBJECT."""
        return self._place(span[0], False), self._place(span[1], True)

    def span_or_none(self, span: Span | None) -> Span | None:
        """Return the new span of a span; None for None."""
        return None if span is None else self.span(span)

    def _place(self, place: int, is_end: bool) -> int:
        """Return the new place of a begin or an end; within a replaced span it is before or after the OBJECT."""
        number = bisect_right(self._ends, place)  # of spans before it
        if number < len(self._spans) and self._spans[number][0] < place:
            place = self._spans[number][0] + is_end
        return place - self._shifts[number]

    def words(self, words: Sequence[Span]) -> tuple[Span, ...]:
        """Return the new spans of words, in order and without overlaps; each OBJECT is a word or part of one."""
        found: list[Span] = []
        for begin, end in sorted({self.span(word) for word in [*words, *self._spans]}):
            if found and begin < found[-1][1]:
                found[-1] = (found[-1][0], max(end, found[-1][1]))
            elif begin < end:
                found.append((begin, end))
        return tuple(found)
