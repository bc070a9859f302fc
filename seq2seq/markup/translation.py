"""Translation of documents with markup: sentences become plain text, and their tags and pieces are restored afterwards.

For any output of the model, every tag and every piece is in the result once (formatting may be repeated). The
result is well-formed, because it is rendered from a tree. `inference.pipeline` provides the translations of a model.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from seq2seq.markup import html, markdown, plain, xml
from seq2seq.markup.document import OBJECT, Document, Template, join
from seq2seq.markup.standins import CLASSES, MOST, StandIns, choose, find
from seq2seq.markup.tags import relabelled
from seq2seq.markup.writing import Answer, written
from seq2seq.text.scripts import ends_in_word
from seq2seq.text.splitting import ABBREVIATED, LONGEST_ABBREVIATION, split_sentences
from seq2seq.text.untranslatable import VERBATIM, lacks_letters
from seq2seq.text.words import Span, word_spans

FORMATS = {"html": html.segments, "xml": xml.segments, "markdown": markdown.segments, "plain": plain.segments}
PLACEHOLDER = "placeholder"
# Maximum number of placeholder classes tried for a sentence. If all fail, the words aligned with the placeholders are
# replaced; without any, the sentence is split at its pieces.
MOST_TRIES = 3
STOPS = (".", "。", "।", "۔", "።", "។", "။", "։")


@dataclass(frozen=True)
class LinkedTranslation:
    """The translation of a plain text, with the words and links of both texts in code points."""

    text: str
    source_words: Sequence[Span] = ()
    words: Sequence[Span] = ()
    links: Sequence[tuple[Span, Span, float]] = ()
    """Links as (source word, target word, weight)."""
    flags: Sequence[str] = ()
    """Flags of the translation."""


_MARKS = re.compile(r"(\W+)")

Translate = Callable[[Sequence[str]], Sequence[LinkedTranslation]]
"""Function that translates plain texts of one line each."""


@dataclass(frozen=True)
class Marked:
    """The translation of a document."""

    text: str
    segments: int
    flags: tuple[str, ...]
    """Flags of all segments: `placeholder` if a sentence was split at its pieces, because the model lost one; `markup`
    if emphasis was omitted, or the text not translated, because the format cannot express it; `empty` if the text was
    not changed because its translation is empty; `verbatim` if text was copied because it cannot be translated; and
    flags that `translate` returned."""


def translate_documents(
    texts: Sequence[str],
    form: str,
    translate: Translate,
    classes: Sequence[StandIns] = CLASSES,
    is_untranslatable: Callable[[str], bool] = lacks_letters,
    languages: tuple[str, str] | None = None,
) -> list[Marked]:
    """Translate documents of a format.

    `translate` is called once for all sentences, and again for each class of placeholders that a sentence lost.
    Sentences that are untranslatable without their pieces are copied. Attributes `lang` with the first of the two
    languages are set to the second.

    Raises:
        DataError: a document is not of the format (`html.segments`, `xml.segments`).
    """
    documents = [FORMATS[form](text) for text in texts]
    segments = [segment for document in documents for segment in document.segments]
    answers = _of_segments([segment.text for segment in segments], translate, classes, is_untranslatable)
    outputs = iter([written(segment, answer) for segment, answer in zip(segments, answers, strict=True)])
    joined = [_joined(document, [next(outputs) for _ in document.segments]) for document in documents]
    if form in ("markdown", "plain") or languages is None:
        return joined
    read = html.lexemes if form == "html" else xml.lexemes
    return [replace(marked, text=relabelled(read(marked.text), form == "html", *languages)) for marked in joined]


def _joined(document: Document, outputs: Sequence[tuple[Template | None, frozenset[str]]]) -> Marked:
    text = join(document, [output for output, _ in outputs])
    flags = chain.from_iterable(sorted(flags) for _, flags in outputs)
    return Marked(text, len(outputs), tuple(flags))


# -- plain text ------------------------------------------------------------------------------------


def _of_segments(
    texts: Sequence[str], translate: Translate, classes: Sequence[StandIns], is_untranslatable: Callable[[str], bool]
) -> list[Answer]:
    """Translate segments sentence by sentence, and keep the white space between sentences."""
    sentences = [split_sentences(text) or [text] for text in texts]
    cores = [sentence.strip() for sentence in chain.from_iterable(sentences)]
    copied = {core for core in set(cores) if is_untranslatable(core.replace(OBJECT, " ").strip())}
    translated = iter(_answers([core for core in cores if core not in copied], translate, classes))
    answers = iter([_verbatim(core) if core in copied else next(translated) for core in cores])
    return [_concatenated([(sentence, next(answers)) for sentence in group]) for group in sentences]


def _concatenated(parts: Iterable[tuple[str, Answer]]) -> Answer:
    """Join the answers of source texts, given as texts with white space around them and answers to their stripped
    cores."""
    text, source, pieces = "", 0, 0
    moved = []
    for part, answer in parts:
        core = part.strip()
        before, after = (part[: part.index(core)], part[part.index(core) + len(core) :]) if core else (part, "")
        moved.append(answer.shifted(source + len(before), len(text) + len(before), pieces))
        text += before + answer.text + after
        source, pieces = source + len(part), pieces + part.count(OBJECT)
    return Answer(
        text,
        tuple(chain.from_iterable(part.order for part in moved)),
        tuple(chain.from_iterable(part.source_words for part in moved)),
        tuple(chain.from_iterable(part.words for part in moved)),
        tuple(chain.from_iterable(part.links for part in moved)),
        frozenset(chain.from_iterable(part.flags for part in moved)),
    )


def _answers(texts: Sequence[str], translate: Translate, classes: Sequence[StandIns]) -> list[Answer]:
    """Return the answer to each text, whose pieces are OBJECTs; a text whose placeholders were all lost is split at its
    pieces."""
    answers: dict[int, Answer] = {index: _verbatim(text) for index, text in enumerate(texts) if lacks_letters(text)}
    lost: dict[int, list[tuple[_Filled, LinkedTranslation]]] = defaultdict(list)
    for stand_ins in classes[:MOST_TRIES]:
        asked = {}
        for index, text in enumerate(texts):
            pieces = text.count(OBJECT)
            pairs = choose(stand_ins, pieces, text) if pieces <= MOST else None
            if index not in answers and pairs is not None:
                asked[index] = _Filled(text, pairs)
        found = translate([filled.text for filled in asked.values()]) if asked else ()
        for (index, filled), said in zip(asked.items(), found, strict=True):
            translated = _without_added_stop(filled.text, said)
            if (answer := filled.restored(translated, filled.said(translated))) is not None:
                answers[index] = answer
            else:
                lost[index].append((filled, translated))
    for index, tries in lost.items():
        linked = (filled.restored(translated, filled.linked(translated)) for filled, translated in tries)
        if index not in answers and (answer := next(filter(None, linked), None)) is not None:
            answers[index] = answer
    left = [index for index in range(len(texts)) if index not in answers]
    cut = [list(_around_pieces(texts[index])) for index in left]
    cores = [part.strip() for part in chain.from_iterable(cut) if OBJECT not in part]
    parts = iter(_answers(cores, translate, classes) if cores else ())
    for index, own in zip(left, cut, strict=True):
        whole = _concatenated([(part, _copied(part.strip()) if OBJECT in part else next(parts)) for part in own])
        answers[index] = replace(whole, flags=whole.flags | {PLACEHOLDER})
    return [answers[index] for index in range(len(texts))]


def _verbatim(text: str) -> Answer:
    """Return a text that was copied as untranslatable, with its flag."""
    return replace(_copied(text), flags=frozenset({VERBATIM} if text else ()))


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
    words = tuple(word_spans(text, ()))
    return Answer(text, tuple(range(text.count(OBJECT))), words, words, tuple((word, word, 1.0) for word in words))


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

    def said(self, translated: LinkedTranslation) -> list[Span]:
        """Return the spans of the placeholders that the translation contains exactly once."""
        text = _without_objects(translated)
        found = [find(word, text, glued) for word, glued in zip(self._answers, self._glued, strict=True)]
        return [spans[0] for spans in found if len(spans) == 1]

    def linked(self, translated: LinkedTranslation) -> list[Span]:
        """Return, for each placeholder with links, the word of the translation with the strongest link."""
        found = []
        for begin, end in self._spans:
            links = [link for link in translated.links if link[0][0] < end and link[0][1] > begin]
            found += [max(links, key=lambda link: link[2])[1]] if links else []
        return found

    def restored(self, translated: LinkedTranslation, found: Sequence[Span]) -> Answer | None:
        """Return the answer with pieces at the spans `found`; None if their number is not that of the pieces, or they
        overlap."""
        text = _without_objects(translated)
        if len(found) < len(self._spans):
            return None
        places = sorted((span, number) for number, span in enumerate(found))
        spans = [span for span, _ in places]
        if any(span[1] > following[0] for span, following in pairwise(spans)):
            return None
        source_at, target_at = _Objects(self.text, self._spans), _Objects(text, spans)
        links = [(source_at.span(word), target_at.span(other), weight) for word, other, weight in translated.links]
        links += [(source_at.span(self._spans[number]), target_at.span(span), 1.0) for span, number in places]
        return Answer(
            target_at.text,
            tuple(number for _, number in places),
            source_at.words(translated.source_words),
            target_at.words(translated.words),
            tuple(links),
            frozenset(translated.flags),
        )


def _without_added_stop(source: str, translated: LinkedTranslation) -> LinkedTranslation:
    """Return a translation without the full stop that models of sentences add to a title or a table cell."""
    text, end = translated.text, len(translated.text) - 1
    is_added = ends_in_word(source) and text.endswith(STOPS) and ends_in_word(text[:-1])
    if not is_added or ABBREVIATED.search(text[max(0, end - LONGEST_ABBREVIATION) : end]):
        return translated
    words = [word for word in translated.words if word[1] <= end]
    links = [link for link in translated.links if link[1][1] <= end]
    return replace(translated, text=text[:end], words=words, links=links)


def _without_objects(translated: LinkedTranslation) -> str:
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

    def span(self, span: Span) -> Span:
        """Return the new span of a span of the text; a span within a replaced one becomes the whole OBJECT."""
        begin, end = (self._place(place, is_end) for place, is_end in zip(span, (False, True), strict=True))
        return begin, end

    def _place(self, place: int, is_end: bool) -> int:
        shift = 0
        for begin, end in self._spans:
            if end <= place:
                shift += end - begin - 1
            elif begin < place:
                return begin - shift + is_end
        return place - shift

    def words(self, words: Sequence[Span]) -> tuple[Span, ...]:
        """Return the new spans of words, in order and without overlaps; each OBJECT is a word or part of one."""
        found: list[Span] = []
        for begin, end in sorted({self.span(word) for word in [*words, *self._spans]}):
            if found and begin < found[-1][1]:
                found[-1] = (found[-1][0], max(end, found[-1][1]))
            elif begin < end:
                found.append((begin, end))
        return tuple(found)
