"""Translations that keep to a glossary.

A line is translated freely first, and most terms come out right: nothing is touched then. Where a term is missing, the
words that stand for it are found by alignment, the translation is cut there, and the rest is searched again behind the
term, as a forced prefix (Hokamp and Liu 2017 constrain the search itself; a second search behind a prefix needs no
other search, and batches). One word, such as an article or a preposition, may come between: the model says which.
`Pipeline` calls `GlossaryTranslator` where there is a glossary.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from seq2seq.inference.aligner import Aligner
from seq2seq.inference.degeneration import LOST, line_flags
from seq2seq.inference.translation import PartSpans, Translation
from seq2seq.inference.translator import Translator
from seq2seq.search.base import normalized_score
from seq2seq.text.alignment import Alignment, Status, Term
from seq2seq.text.glossary import Forbidden, Glossary, Match, places
from seq2seq.text.scripts import title
from seq2seq.text.terms import Searchable
from seq2seq.text.words import Span, word_spans

logger = logging.getLogger(__name__)

# So many words before the place of a term are also left out: articles and adjectives agree with what follows.
WORDS_BEFORE = 1
MOST_FORMS = 8
# So many words are tried between a cut and the term.
LEADING_WORDS = 5
# Missing terms of a sentence are put in one after another.
MOST_ROUNDS = 4
HARMLESS = {LOST}  # flags of a translation that may be used


@dataclass
class _Draft:
    """A part of a line, and its translation so far."""

    source: str
    text: str
    matches: list[Match]
    forced: set[Span]
    """Sources of terms that a second search put in."""
    given_up: set[Span]
    avoided: set[Forbidden]
    """What a search was told not to say."""
    known: str
    """The free translation and all forms of the terms; their words evade nothing."""
    prefix: str = ""
    """The required beginning of the translation."""

    @property
    def words_avoided(self) -> list[str]:
        """The words of `avoided`."""
        return sorted(one.words for one in self.avoided)

    def missing(self) -> list[Match]:
        """The terms that the translation lacks and that can still be tried; a form counts once for each match."""
        return [
            match
            for match, place in zip(self.matches, places(self.matches, self.text), strict=True)
            if place is None and match.span not in self.given_up
        ]


class GlossaryTranslator:
    """A translator, the aligner of the same model, and a glossary."""

    def __init__(self, translator: Translator, aligner: Aligner, glossary: Glossary):
        self.translator, self.aligner, self.glossary = translator, aligner, glossary

    def translate(
        self, lines: Sequence[str], prefixes: Sequence[str] | None = None, first_line: int = 0
    ) -> list[Translation]:
        """Translate each line, whatever the others are; arguments as in `Translator.translate`.

        A prefix stays as it is, with or without the terms that belong there.
        """
        translations = self.translator.translate(lines, prefixes, first_line=first_line)
        parts = [[self._draft(one, spans) for spans in one.parts] for one in translations]
        for own, prefix in zip(parts, prefixes or (), strict=prefixes is not None):
            if own:
                own[0].prefix = prefix.rstrip()
        flat = [part for line in parts for part in line]
        for _ in range(MOST_ROUNDS):
            if not (saying := [part for part in flat if self._said(part.text).keys() - part.avoided]):
                break
            self._avoid(saying)
        for _ in range(MOST_ROUNDS):
            waiting = [part for part in flat if part.missing()]
            if not waiting:
                break
            self._force(waiting)
        joined = [self._joined(one, own) for one, own in zip(translations, parts, strict=True)]
        changed = [index for index, one in enumerate(joined) if one.text != translations[index].text]
        scores = self._scores([(joined[index].source, joined[index].text) for index in changed])
        for index, (log_prob, score, tokens) in zip(changed, scores, strict=True):
            joined[index] = replace(joined[index], log_prob=log_prob, score=score, tokens=tokens)
        return joined

    def _draft(self, translation: Translation, spans: PartSpans) -> _Draft:
        source, text = translation.source[slice(*spans.source)], translation.text[slice(*spans.target)]
        matches = self.glossary.matches(source)
        forced: set[Span] = set()
        if spans.is_copied and matches:
            text, forced = _replaced(source, matches), {match.span for match in matches}
        forms = chain.from_iterable(match.forms for match in matches)
        return _Draft(source, text, matches, forced, set(), set(), " ".join([text, *forms]))

    def _scores(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[float, float, int]]:
        """Yield the log-probability, score and tokens of each (source, translation)."""
        penalty = self.translator.config.length_penalty
        for one in self.aligner.score(pairs):
            yield one.log_prob, normalized_score(one.log_prob, one.tokens, penalty), one.tokens

    def _said(self, text: str) -> dict[Forbidden, list[Span]]:
        """Return the forbidden words of a translation, and their places."""
        return self.glossary.said(text)

    def _avoid(self, parts: Sequence[_Draft]) -> None:
        """Search these parts again without what they may not say; one that says no less of it stays as it was."""
        for part in parts:
            part.avoided.update(self._said(part.text))
        found = self.translator.translate(
            [part.source for part in parts],
            [part.prefix for part in parts],
            forbidden=[part.words_avoided for part in parts],
        )
        for part, one in zip(parts, found, strict=True):
            is_usable = HARMLESS.issuperset(one.flags) and not self.glossary.evades(one.text, part.known)
            if is_usable and len(self._said(one.text)) <= len(self._said(part.text)):
                part.text = one.text

    def _force(self, parts: Sequence[_Draft]) -> None:
        """Put the first missing term of each part in, all of them in one search.

        A part has a candidate for each cut of its translation, searched behind the term, another one where the term is
        likelier behind a leading word, and one where the term simply replaces the words that stand for it; the model
        says which is best.
        """
        details = self.aligner.align([(part.source, part.text) for part in parts])
        tries = [(part, part.missing()[0]) for part in parts]
        runs = [_run(match, details[index]) for index, (_, match) in enumerate(tries)]
        cuts = [
            (index, match, before)
            for index, ((part, match), run) in enumerate(zip(tries, runs, strict=True))
            for before in _cuts(part.text, run)
            if len(before) >= len(part.prefix)
        ]
        leading = self.aligner.next_words([(parts[index].source, before) for index, _, before in cuts], LEADING_WORDS)
        choices = [
            (index, _prefixes(before, match, parts[index].text[:1].isupper()), _led_prefixes(before, match, words))
            for (index, match, before), words in zip(cuts, leading, strict=True)
        ]
        asked = [one for one in self._likeliest(parts, choices) if self.translator.takes_prefix(one[1])]
        found = self.translator.translate(
            [parts[index].source for index, _ in asked],
            [prefix for _, prefix in asked],
            forbidden=[parts[index].words_avoided for index, _ in asked],
            has_whole_prefixes=True,
        )
        usable = ((index, one) for (index, _), one in zip(asked, found, strict=True) if HARMLESS.issuperset(one.flags))
        candidates = [(index, one.text) for index, one in usable]
        candidates += [
            (index, prefix + _behind(parts[index].text, runs[index]))
            for index, prefix in dict(reversed(asked)).items()  # the first cut of each part
            if runs[index]
        ]
        scores = self._scores([(parts[index].source, text) for index, text in candidates])
        values: list[dict[str, float]] = [{} for _ in parts]
        for (index, text), (_, score, _) in zip(candidates, scores, strict=True):
            part, match = tries[index]
            is_allowed = self._said(text).keys() <= self._said(part.text).keys()
            if is_allowed and not self.glossary.evades(text, part.known) and _is_better(part, match, text, runs[index]):
                values[index][text] = score
        for (part, match), own in zip(tries, values, strict=True):
            if own:
                part.text = max(own, key=own.__getitem__)
                part.forced.add(match.span)
            else:
                part.given_up.add(match.span)

    def _likeliest(
        self, parts: Sequence[_Draft], choices: Sequence[tuple[int, Sequence[str], Sequence[str]]]
    ) -> list[tuple[int, str]]:
        """The likeliest prefix with a term of each choice for a part, and the likeliest led one if it is likelier."""
        pairs = [(parts[index].source, prefix) for index, *both in choices for prefix in chain(*both)]
        values = (score.log_prob for score in self.aligner.score(pairs, ended=False))
        likeliest = []
        for index, plain, led in choices:
            scored = [[(next(values), prefix) for prefix in own] for own in (plain, led)]
            best, best_led = (max(own, default=(-math.inf, "")) for own in scored)
            likeliest += [(index, best[1]), *[(index, best_led[1])] * (best_led[0] > best[0])]
        return likeliest

    def _joined(self, translation: Translation, parts: Sequence[_Draft]) -> Translation:
        """The line again, with the parts that changed, and the terms in it."""
        text, terms, spans, end = "", [], [], 0
        for part, own in zip(parts, translation.parts, strict=True):
            text += translation.text[end : own.target[0]]
            begin, end = len(text), own.target[1]
            text += part.text
            is_same = part.text == translation.text[slice(*own.target)]
            flags = own.flags if is_same else self.translator.flags([(part.source, part.text)])[0]
            is_copied = own.is_copied and part.text == part.source
            spans.append(PartSpans(own.source, (begin, len(text)), is_copied, flags))
            for match, place in zip(part.matches, places(part.matches, part.text), strict=True):
                status: Status = "missing" if place is None else "forced" if match.span in part.forced else "kept"
                target = place and (place[0] + begin, place[1] + begin)
                source = match.span[0] + own.source[0], match.span[1] + own.source[0]
                terms.append(Term(source, target, status, match.entry.source))
            said = self._said(part.text)
            for one in sorted({*part.avoided, *said}, key=lambda one: one.words):
                if left := said.get(one):
                    terms += [Term(None, (first + begin, last + begin), "present", one.words) for first, last in left]
                else:
                    terms.append(Term(None, None, "avoided", one.words))
        text += translation.text[end:]
        others = tuple(other for other in translation.alternatives if self._keeps(parts, text, other.text))
        flags = translation.flags if text == translation.text else line_flags([one.flags for one in spans])
        return replace(translation, text=text, flags=flags, parts=tuple(spans), alternatives=others, terms=tuple(terms))

    def _keeps(self, parts: Sequence[_Draft], best: str, other: str) -> bool:
        """Whether another translation of a line has all the terms that the best one has, and no forbidden word more."""
        matches = [match for part in parts for match in part.matches]
        pairs = zip(places(matches, best), places(matches, other), strict=True)
        keeps_terms = all(there is not None for here, there in pairs if here is not None)
        return keeps_terms and other != best and self._said(other).keys() <= self._said(best).keys()


def _replaced(source: str, matches: Sequence[Match]) -> str:
    """A copied text with its terms."""
    text, end = "", 0
    for match in sorted(matches, key=lambda match: match.span):
        begin, stop = match.span
        text, end = text + source[end:begin] + match.forms[0], stop
    return text + source[end:]


def read_glossary(path: Path, translator: Translator) -> Glossary:
    """The glossary of a file, with a warning for each line that is left out or doubtful."""
    about = translator.description
    glossary = Glossary.read(path, about and about.target_language, about and about.source_language)
    for problem in glossary.problems:
        logger.warning("%s: %s", path, problem)
    return glossary


def _is_better(part: _Draft, match: Match, text: str, run: Sequence[Span]) -> bool:
    """Whether a translation has the term, not twice in a row, all the terms that were there, and no longer what stood
    for the term."""
    before, after = (places(part.matches, one) for one in (part.text, text))
    had = [place is not None for place in before]
    has = [place is not None for place in after]
    if not has[part.matches.index(match)] or not all(now for was, now in zip(had, has, strict=True) if was):
        return False
    old = part.text[run[0][0] : run[-1][1]] if run else ""
    language = match.language
    own, now, stood = (Searchable(one, language) for one in (part.text, text, old))
    if any(now.occurrences(f"{form} {form}") for form in match.forms):
        return False
    is_form = any(stood.occurrences(form) for form in match.forms)
    return not old or is_form or len(now.occurrences(old)) < len(own.occurrences(old))


def _run(match: Match, details: Alignment) -> list[Span]:
    """The target words that stand for a term: those without a gap around its most certain partner.

    Where it has no partner, none, and the empty span before which the term belongs.
    """
    begin, end = match.span
    words = [word.span for word in details.words]
    links = [link for link in details.links if link.source[0] < end and link.source[1] > begin]
    if not links:
        before = sum(1 for span in details.source_words if span[1] <= begin)
        place = words[before][0] if before < len(words) else details.target[1]
        return [(place, place)]
    partners = {words.index(link.target) for link in links}
    first = last = words.index(max(links, key=lambda link: link.weight).target)
    while first - 1 in partners:
        first -= 1
    while last + 1 in partners:
        last += 1
    return words[first : last + 1]


def _behind(text: str, run: Sequence[Span]) -> str:
    """What follows a run of words; a term that is put before a word is followed by white space."""
    begin, end = run[0][0], run[-1][1]
    return (" " if begin == end and text[end : end + 1].isalnum() and " " in text else "") + text[end:]


def _cuts(text: str, run: Sequence[Span]) -> list[str]:
    """What a translation may keep before a term: all that stands before the run, and less."""
    cuts = [text[: run[0][0]]]
    for _ in range(WORDS_BEFORE):
        cuts += [cuts[-1][:begin] for begin, _ in word_spans(cuts[-1], ())[-1:]]
    if cuts[0] == text and text and not text[-1].isspace():
        cuts[0] += " "
    return cuts


def _prefixes(before: str, match: Match, begins_upper: bool) -> list[str]:
    """What a translation with the term may begin with: the words before it, and each form of the term."""
    begins = begins_upper and not before.strip() and not match.entry.as_written
    return [before + (title(form, match.language) if begins else form) for form in match.forms[:MOST_FORMS]]


def _led_prefixes(before: str, match: Match, leading: Sequence[str]) -> list[str]:
    """`_prefixes` with one of these words before the term; none where the term follows a mark without white space."""
    if before and not before[-1].isspace():
        return []
    return [f"{before}{word} {form}" for word in leading for form in match.forms[:MOST_FORMS]]
