"""Translations with a glossary, by forced decoding.

A line is first translated without constraints, and a translation that already contains its terms is kept. If a term is
missing, the words in its place are found by alignment, the translation is cut there, and the rest is decoded again
with the term as a forced prefix (Hokamp and Liu 2017 constrain the beam search itself; a second search with a prefix
needs no special search, and can be batched). One word that the model chooses, such as an article or a preposition, may
precede the term. `Pipeline` uses `GlossaryTranslator` if there is a glossary.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from seq2seq.errors import UserError, shown
from seq2seq.inference.aligner import Aligner
from seq2seq.inference.degeneration import LANGUAGE, LOST, line_flags
from seq2seq.inference.translation import PartSpans, Translation
from seq2seq.inference.translator import Translator
from seq2seq.search.base import normalized_score
from seq2seq.text.alignment import Alignment, Status, Term
from seq2seq.text.glossary import Forbidden, Glossary, Match, places
from seq2seq.text.terms import Searchable
from seq2seq.text.words import Span, overlap, word_spans

logger = logging.getLogger(__name__)

# The number of words before the place of a term that are also translated again, because articles and adjectives agree
# with the words after them.
WORDS_BEFORE = 1
MOST_FORMS = 8
# The number of candidate words between the kept text and the term.
LEADING_WORDS = 5
# The largest number of second searches of a sentence; each forces one missing term.
MOST_ROUNDS = 4
HARMLESS = {LOST, LANGUAGE}  # flags that a usable translation may have


@dataclass
class _Draft:
    """A part of a line, and its translation so far."""

    source: str
    text: str
    free: str
    """The first translation, without constraints."""
    flags: tuple[str, ...]
    """The flags of the translation."""
    matches: list[Match]
    forced: set[Span]
    """The source spans of terms that were forced."""
    given_up: set[Span]
    avoided: set[Forbidden]
    """The forbidden words that were suppressed in a search."""
    known: str
    """The free translation and all forms of the terms; their words do not count as evasions."""
    prefix: str = ""
    """The required beginning of the translation."""
    tag: str = ""
    """The language tag that the part is translated with, and does not contain."""

    @property
    def tagged(self) -> str:
        """The source with its tag, as the model reads it."""
        return self.tag + self.source

    def places(self) -> list[Span | None]:
        """Return the place of each term in the translation; each occurrence of a form counts for one match only."""
        return places(self.matches, self.text)

    def missing(self) -> list[Match]:
        """Return the terms that the translation lacks and that can still be tried."""
        found = zip(self.matches, self.places(), strict=True)
        return [match for match, place in found if place is None and match.span not in self.given_up]


class GlossaryTranslator:
    """A translator with a glossary, and the aligner of the same model."""

    def __init__(self, translator: Translator, aligner: Aligner, glossary: Glossary):
        self.translator, self.aligner, self.glossary = translator, aligner, glossary

    def translate(
        self, lines: Sequence[str], prefixes: Sequence[str] | None = None, first_line: int = 0
    ) -> list[Translation]:
        """Translate each line independently; arguments and errors as in `Translator.translate`.

        A prefix is kept unchanged, even if terms are missing from it.
        """
        translations = self.translator.translate(lines, prefixes, first_line=first_line)
        parts = [[self._draft(answer, spans) for spans in answer.parts] for answer in translations]
        for of_line, prefix in zip(parts, prefixes or (), strict=prefixes is not None):
            if of_line:
                of_line[0].prefix = prefix
        flat = [part for line in parts for part in line]
        for _ in range(MOST_ROUNDS):
            if not (offending := [part for part in flat if self._forbidden_in(part.text).keys() - part.avoided]):
                break
            self._avoid(offending)
        for _ in range(MOST_ROUNDS):
            waiting = [part for part in flat if part.missing()]
            if not waiting:
                break
            self._force(waiting)
        self._flag([part for part in flat if part.text != part.free])
        joined = [self._joined(answer, of_line) for answer, of_line in zip(translations, parts, strict=True)]
        changed = [index for index, answer in enumerate(joined) if answer.text != translations[index].text]
        scores = self._scores([(joined[index].source, joined[index].text) for index in changed])
        for index, (log_prob, score, tokens) in zip(changed, scores, strict=True):
            joined[index] = replace(joined[index], log_prob=log_prob, score=score, tokens=tokens)
        return joined

    def _flag(self, changed: Sequence[_Draft]) -> None:
        """Set the flags of parts whose translation has changed."""
        flags = self.translator.flags([(part.tagged, part.text) for part in changed])
        for part, of_part in zip(changed, flags, strict=True):
            part.flags = of_part

    def _draft(self, translation: Translation, spans: PartSpans) -> _Draft:
        source, free = translation.source[slice(*spans.source)], translation.text[slice(*spans.target)]
        matches = self.glossary.matches(source)
        text, forced = free, set[Span]()
        if spans.is_copied and matches:
            text, forced = _replaced(source, matches), {match.span for match in matches}
        forms = chain.from_iterable(match.forms for match in matches)
        known, tag = " ".join([text, *forms]), translation.tag_of_parts
        return _Draft(source, text, free, spans.flags, matches, forced, set(), set(), known, tag=tag)

    def _scores(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[float, float, int]]:
        """Yield the log-probability, score and tokens of each (source, translation)."""
        penalty = self.translator.config.length_penalty
        for score in self.aligner.score(pairs):
            yield score.log_prob, normalized_score(score.log_prob, score.tokens, penalty), score.tokens

    def _forbidden_in(self, text: str) -> dict[Forbidden, list[Span]]:
        """Return the forbidden words in a translation, with their places."""
        return self.glossary.said(text)

    def _suppressed(self, part: _Draft) -> dict[str, bool]:
        """Return the words to suppress, and for each whether longer words that begin with it are suppressed too."""
        found = {one.words: self.glossary.suppresses_longer(one, part.known) for one in part.avoided}
        return dict(sorted(found.items()))

    def _avoid(self, parts: Sequence[_Draft]) -> None:
        """Decode these parts again with their forbidden words suppressed, and keep usable translations.

        A translation with more forbidden words than before is not used.
        """
        for part in parts:
            part.avoided.update(self._forbidden_in(part.text))
        answers = self.translator.translate(
            [part.tagged for part in parts],
            [part.prefix for part in parts],
            forbidden=[self._suppressed(part) for part in parts],
        )
        for part, answer in zip(parts, answers, strict=True):
            is_usable = HARMLESS.issuperset(answer.flags) and not self.glossary.evades(answer.text, part.known)
            if is_usable and len(self._forbidden_in(answer.text)) <= len(self._forbidden_in(part.text)):
                part.text = answer.text

    def _force(self, parts: Sequence[_Draft]) -> None:
        """Force the first missing term of each part, in one search for all parts.

        A part has several candidates, of which the one with the best score of the model is used. For each cut of its
        translation, one is decoded after the term, and another after a leading word and the term if that is likelier.
        In one more, the term replaces the words in its place.
        """
        details = self.aligner.align([(part.tagged, part.text) for part in parts])
        tries = [(part, part.missing()[0]) for part in parts]
        runs = [
            _run(match, whole.without_begin(len(part.tag)), [place for place in part.places() if place is not None])
            for (part, match), whole in zip(tries, details, strict=True)
        ]
        cuts = [
            (index, match, before)
            for index, ((part, match), run) in enumerate(zip(tries, runs, strict=True))
            for before in _cuts(part.text, run)
            if len(before) >= len(part.prefix.rstrip())
        ]
        leading = self.aligner.next_words([(parts[index].tagged, before) for index, _, before in cuts], LEADING_WORDS)
        choices = [
            (index, _prefixes(before, match, _begins_upper(parts[index].text)), _led_prefixes(before, match, words))
            for (index, match, before), words in zip(cuts, leading, strict=True)
        ]
        requests = [choice for choice in self._likeliest(parts, choices) if self.translator.takes_prefix(choice[1])]
        answers = self.translator.translate(
            [parts[index].tagged for index, _ in requests],
            [prefix for _, prefix in requests],
            forbidden=[self._suppressed(parts[index]) for index, _ in requests],
            has_whole_prefixes=True,
        )
        candidates = [
            (index, answer.text)
            for (index, _), answer in zip(requests, answers, strict=True)
            if HARMLESS.issuperset(answer.flags)
        ]
        candidates += [
            (index, prefix + _after(parts[index].text, runs[index]))
            for index, prefix in dict(reversed(requests)).items()  # the first cut of each part
            if runs[index]
        ]
        scores = self._scores([(parts[index].tagged, text) for index, text in candidates])
        values: list[dict[str, float]] = [{} for _ in parts]
        for (index, text), (_, score, _) in zip(candidates, scores, strict=True):
            part, match = tries[index]
            is_allowed = self._forbidden_in(text).keys() <= self._forbidden_in(part.text).keys()
            if is_allowed and not self.glossary.evades(text, part.known) and _is_better(part, match, text, runs[index]):
                values[index][text] = score
        for (part, match), score_of in zip(tries, values, strict=True):
            if score_of:
                part.text = max(score_of, key=score_of.__getitem__)
                part.forced.add(match.span)
            else:
                part.given_up.add(match.span)

    def _likeliest(
        self, parts: Sequence[_Draft], choices: Sequence[tuple[int, Sequence[str], Sequence[str]]]
    ) -> list[tuple[int, str]]:
        """Return for each choice the likeliest prefix without a leading word, and with one if that is likelier."""
        pairs = [(parts[index].tagged, prefix) for index, *both in choices for prefix in chain(*both)]
        values = (score.log_prob for score in self.aligner.score(pairs, ended=False))
        likeliest = []
        for index, plain, led in choices:
            scored = [[(next(values), prefix) for prefix in prefixes] for prefixes in (plain, led)]
            best, best_led = (max(of_kind, default=(-math.inf, "")) for of_kind in scored)
            likeliest += [(index, best[1]), *[(index, best_led[1])] * (best_led[0] > best[0])]
        return likeliest

    def _joined(self, translation: Translation, parts: Sequence[_Draft]) -> Translation:
        """Return the translation of a line with its changed parts, and with its terms."""
        text, terms, spans, end = "", [], [], 0
        for part, before in zip(parts, translation.parts, strict=True):
            text += translation.text[end : before.target[0]]
            begin, end = len(text), before.target[1]
            text += part.text
            is_copied = before.is_copied and part.text == part.source
            spans.append(PartSpans(before.source, (begin, len(text)), is_copied, part.flags))
            for match, place in zip(part.matches, part.places(), strict=True):
                status: Status = "missing" if place is None else "forced" if match.span in part.forced else "kept"
                target = place and (place[0] + begin, place[1] + begin)
                source = match.span[0] + before.source[0], match.span[1] + before.source[0]
                terms.append(Term(source, target, status, match.entry.source))
            present = self._forbidden_in(part.text)
            for words in sorted({*part.avoided, *present}, key=lambda forbidden: forbidden.words):
                if left := present.get(words):
                    terms += [Term(None, (first + begin, last + begin), "present", words.words) for first, last in left]
                else:
                    terms.append(Term(None, None, "avoided", words.words))
        text += translation.text[end:]
        others = tuple(other for other in translation.alternatives if self._keeps(parts, text, other.text))
        flags = translation.flags if text == translation.text else line_flags([part.flags for part in spans])
        return replace(translation, text=text, flags=flags, parts=tuple(spans), alternatives=others, terms=tuple(terms))

    def _keeps(self, parts: Sequence[_Draft], best: str, other: str) -> bool:
        """Whether another translation of a line has all terms of the best one, and no additional forbidden words."""
        matches = [match for part in parts for match in part.matches]
        pairs = zip(places(matches, best), places(matches, other), strict=True)
        keeps_terms = all(in_other is not None for in_best, in_other in pairs if in_best is not None)
        is_allowed = self._forbidden_in(other).keys() <= self._forbidden_in(best).keys()
        return keeps_terms and other != best and is_allowed


def _replaced(source: str, matches: Sequence[Match]) -> str:
    """Return a copied text in which the first form of each term replaces its source words."""
    text, end, searchable = "", 0, Searchable(source)
    for match in sorted(matches, key=lambda match: match.span):
        begin, stop = match.span
        has_capital = source[begin].isupper() and searchable.begins_sentence(begin)
        form = match.begun(match.forms[0]) if has_capital else match.forms[0]
        text, end = text + source[end:begin] + form, stop
    return text + source[end:]


def open_glossary(given: str | Path | Glossary, translator: Translator) -> Glossary:
    """Return a glossary, or that of a file, for the languages of a model; it keeps languages that it names itself.

    A warning is logged for each line of a file that is left out or doubtful.

    Raises:
        DataError: the file cannot be read.
        UserError: `given` is neither a path nor a glossary.
    """
    about = translator.description
    source, target = (about.source_language, about.target_language) if about else (None, None)
    if isinstance(given, Glossary):
        source, target = given.source_language or source, given.target_language or target
        return Glossary(given.entries, target, given.problems, given.forbidden, source)
    if not isinstance(given, str | Path):
        raise UserError(f"glossary {shown(given)}: must be a path, or a glossary that Glossary.read returns")
    glossary = Glossary.read(given, target, source)
    for problem in glossary.problems:
        logger.warning("%s: %s", given, problem)
    return glossary


def _is_better(part: _Draft, match: Match, text: str, run: Sequence[Span]) -> bool:
    """Whether a translation contains the term, not twice in a row, keeps all terms found before, and drops the words
    that the term replaces."""
    old_places, new_places = (places(part.matches, each) for each in (part.text, text))
    had = [place is not None for place in old_places]
    has = [place is not None for place in new_places]
    if not has[part.matches.index(match)] or not all(now for was, now in zip(had, has, strict=True) if was):
        return False
    old = part.text[run[0][0] : run[-1][1]] if run else ""
    language = match.language
    before, after, replaced = (Searchable(each, language) for each in (part.text, text, old))
    if any(after.occurrences(f"{form} {form}") for form in match.forms):
        return False
    is_form = any(replaced.occurrences(form) for form in match.forms)
    return not old or is_form or _times(after, old, match.forms) < _times(before, old, match.forms)


def _times(text: Searchable, words: str, forms: Sequence[str]) -> int:
    """Return how often a text has these words outside the forms of a term, which may contain them."""
    terms = [span for form in forms for span in text.occurrences(form)]
    return sum(
        not any(first <= begin and end <= last for first, last in terms) for begin, end in text.occurrences(words)
    )


def _run(match: Match, details: Alignment, taken: Sequence[Span]) -> list[Span]:
    """Return the target words in the place of a term: consecutive partners around its most certain partner.

    Words of other terms (`taken`) are partners only if there are no others. Without a partner, this is an empty span at
    which the term should be inserted.
    """
    begin, end = match.span
    words = [word.span for word in details.words]
    links = [link for link in details.links if link.source[0] < end and link.source[1] > begin]
    links = [link for link in links if not any(overlap(link.target, other) for other in taken)] or links
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


def _after(text: str, run: Sequence[Span]) -> str:
    """Return the text after a run of words; it begins with a space if a term is inserted before a word."""
    begin, end = run[0][0], run[-1][1]
    return (" " if begin == end and text[end : end + 1].isalnum() and " " in text else "") + text[end:]


def _cuts(text: str, run: Sequence[Span]) -> list[str]:
    """Return the beginnings of a translation that may precede a term: the text before the run, and a shorter one."""
    cuts = [text[: run[0][0]]]
    for _ in range(WORDS_BEFORE):
        cuts += [cuts[-1][:begin] for begin, _ in word_spans(cuts[-1], ())[-1:]]
    if cuts[0] == text and text and not text[-1].isspace():
        cuts[0] += " "
    return cuts


def _prefixes(before: str, match: Match, begins_upper: bool) -> list[str]:
    """Return forced prefixes: the text before the term, followed by each form of the term.

    A form that begins a sentence has a capital if the translation begins with one.
    """
    begins = begins_upper and Searchable(before).begins_sentence(len(before))
    return [before + (match.begun(form) if begins else form) for form in match.forms[:MOST_FORMS]]


def _begins_upper(text: str) -> bool:
    return next(filter(str.isalpha, text), "").isupper()


def _led_prefixes(before: str, match: Match, leading: Sequence[str]) -> list[str]:
    """Return prefixes with a leading word before each form; none if the term follows a mark without white space."""
    if before and not before[-1].isspace():
        return []
    return [f"{before}{word} {form}" for word in leading for form in match.forms[:MOST_FORMS]]
