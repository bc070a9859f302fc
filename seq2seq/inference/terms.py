"""Translations that keep to a glossary.

A line is translated freely first, and most terms come out right: nothing is touched then. Where a term is missing, the
words that stand for it are found by alignment, the translation is cut there, and the rest is searched again behind the
term, as a forced prefix (Hokamp and Liu 2017 constrain the search itself; a second search behind a prefix needs no
other search, and batches). `TermTranslator` serves `s2s translate --glossary` and the server.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from seq2seq.inference.aligner import Aligner
from seq2seq.inference.details import Details
from seq2seq.inference.translator import PartSpans, Translation, Translator
from seq2seq.search.base import normalized_score
from seq2seq.text.glossary import Glossary, Match, places
from seq2seq.text.words import Span

Status = Literal["kept", "forced", "missing"]
# How many words before the place of a term are left out: articles and adjectives agree with what they stand before.
WORDS_BEFORE = (0, 1)
MOST_FORMS = 8
# Missing terms of a sentence are put in one after another.
MOST_ROUNDS = 4


@dataclass(frozen=True)
class Term:
    """A term of a line, and what became of it."""

    source: Span
    target: Span | None
    status: Status
    entry: str
    """The source term of the glossary."""

    def as_json(self) -> dict[str, Any]:
        """The form of JSON lines and of the server."""
        return {"entry": self.entry, "source": self.source, "target": self.target, "status": self.status}


class TermTranslation(NamedTuple):
    """A translation, and the terms of its line."""

    translation: Translation
    terms: tuple[Term, ...]


@dataclass
class _Part:
    """A part of a line, and its translation so far."""

    source: str
    text: str
    matches: list[Match]
    forced: set[Span]
    """Sources of terms that a second search put in."""
    given_up: set[Span]

    def missing(self) -> list[Match]:
        """The terms that the translation lacks and that can still be tried; a form counts once for each match."""
        return [
            match
            for match, place in zip(self.matches, places(self.matches, self.text), strict=True)
            if place is None and match.span not in self.given_up
        ]


class TermTranslator:
    """A translator, the aligner of the same model, and a glossary."""

    def __init__(self, translator: Translator, aligner: Aligner, glossary: Glossary):
        self.translator, self.aligner, self.glossary = translator, aligner, glossary

    def translate(self, lines: Sequence[str], first_line: int = 0) -> list[TermTranslation]:
        """Translate each line, whatever the others are; arguments as in `Translator.translate`."""
        translations = self.translator.translate(lines, first_line=first_line)
        parts = [[self._part(one, spans) for spans in one.parts] for one in translations]
        flat = [part for line in parts for part in line]
        for _ in range(MOST_ROUNDS):
            waiting = [part for part in flat if part.missing()]
            if not waiting:
                break
            self._force(waiting)
        joined = [_joined(one, own) for one, own in zip(translations, parts, strict=True)]
        changed = [index for index, one in enumerate(joined) if one.translation.text != translations[index].text]
        pairs = [(joined[index].translation.source, joined[index].translation.text) for index in changed]
        penalty = self.translator.config.length_penalty
        for index, score in zip(changed, self.aligner.score(pairs), strict=True):
            value = normalized_score(score.log_prob, score.tokens, penalty)
            scored = replace(
                joined[index].translation, score=score.log_prob, normalized_score=value, tokens=score.tokens
            )
            joined[index] = joined[index]._replace(translation=scored)
        return joined

    def translate_stream(self, batches: Iterable[Sequence[str]]) -> Iterator[list[TermTranslation]]:
        """`translate` for each batch of a stream of lines as it comes."""
        count = 0
        for lines in batches:
            yield self.translate(lines, first_line=count)
            count += len(lines)

    def _part(self, translation: Translation, spans: PartSpans) -> _Part:
        source = translation.source[slice(*spans.source)]
        return _Part(source, translation.text[slice(*spans.target)], self.glossary.matches(source), set(), set())

    def _force(self, parts: Sequence[_Part]) -> None:
        """Put the first missing term of each part in, all of them in one search."""
        details = self.aligner.align([(part.source, part.text) for part in parts])
        tries = [(part, part.missing()[0]) for part in parts]
        cuts = [_prefixes(part.text, match, details[index]) for index, (part, match) in enumerate(tries)]
        asked = [
            (index, prefix) for index, prefix in self._likeliest(parts, cuts) if self.translator.takes_prefix(prefix)
        ]
        sources = [parts[index].source for index, _ in asked]
        found = self.translator.translate(sources, [prefix for _, prefix in asked])
        texts = [one.text for one in found]
        scores = self.aligner.score(list(zip(sources, texts, strict=True)))
        penalty = self.translator.config.length_penalty
        ranked: dict[int, tuple[float, str]] = {}
        for (index, _), text, score, one in zip(asked, texts, scores, found, strict=True):
            part, match = tries[index]
            value = normalized_score(score.log_prob, score.tokens, penalty)
            if _is_better(part, match, text) and not one.flags and value > ranked.get(index, (-float("inf"), ""))[0]:
                ranked[index] = value, text
        for index, (part, match) in enumerate(tries):
            if index in ranked:
                part.text = ranked[index][1]
                part.forced.add(match.span)
            else:
                part.given_up.add(match.span)

    def _likeliest(self, parts: Sequence[_Part], cuts: Sequence[Sequence[Sequence[str]]]) -> list[tuple[int, str]]:
        """For each part and each cut of its translation, the prefix whose form of the term is the likeliest."""
        choices = [(index, prefixes) for index, own in enumerate(cuts) for prefixes in own]
        several = [(parts[index].source, prefix) for index, prefixes in choices for prefix in prefixes]
        values = iter(sum(word.log_prob for word in details.words) for details in self.aligner.align(several))
        return [(index, max(prefixes, key=lambda _: next(values))) for index, prefixes in choices]


def _joined(translation: Translation, parts: Sequence[_Part]) -> TermTranslation:
    """The line again, with the parts that changed, and the terms in it."""
    text, terms, spans, end = "", [], [], 0
    for part, own in zip(parts, translation.parts, strict=True):
        text += translation.text[end : own.target[0]]
        begin, end = len(text), own.target[1]
        text += part.text
        spans.append(PartSpans(own.source, (begin, len(text))))
        for match, place in zip(part.matches, places(part.matches, part.text), strict=True):
            status: Status = "missing" if place is None else "forced" if match.span in part.forced else "kept"
            target = place and (place[0] + begin, place[1] + begin)
            source = match.span[0] + own.source[0], match.span[1] + own.source[0]
            terms.append(Term(source, target, status, match.entry.source))
    text += translation.text[end:]
    return TermTranslation(replace(translation, text=text, parts=tuple(spans)), tuple(terms))


def _is_better(part: _Part, match: Match, text: str) -> bool:
    """Whether a translation has the term, and all the terms that were there."""
    before, after = (places(part.matches, one) for one in (part.text, text))
    had = [place is not None for place in before]
    has = [place is not None for place in after]
    return has[part.matches.index(match)] and all(now for was, now in zip(had, has, strict=True) if was)


def _prefixes(text: str, match: Match, details: Details) -> list[list[str]]:
    """What translations with the term may begin with, for each cut: the words before it, and each form of the term."""
    words = [word.span for word in details.words]
    place = _place(match, details)
    prefixes = []
    for start in dict.fromkeys(max(place - count, 0) for count in WORDS_BEFORE):
        before = text[: words[start][0]] if start < len(words) else text
        begins = not before.strip() and text[:1].isupper() and not match.entry.as_written
        forms = [form[0].upper() + form[1:] if begins else form for form in match.forms[:MOST_FORMS]]
        prefixes.append([before + form for form in forms])
    return prefixes


def _place(match: Match, details: Details) -> int:
    """The number of the target word that a term begins at: the first of the run around its most certain partner."""
    begin, end = match.span
    words = [word.span for word in details.words]
    partners = {
        words.index(link.target): link.weight
        for link in details.links
        if link.source[0] < end and link.source[1] > begin
    }
    if not partners:
        return min(len(words), sum(1 for span in details.source_words if span[1] <= begin))
    place = max(partners, key=partners.__getitem__)
    while place - 1 in partners:
        place -= 1
    return place
