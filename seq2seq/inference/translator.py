"""The translation of lines of text, one translation for each line, in order.

Commands, library users and validation in training share `Translator`, so all get the same translations.
"""

import copy
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import DataError, UserError
from seq2seq.inference.degeneration import EMPTY, LANGUAGE, LOST, REPAIRED, SYMPTOMS, line_flags, remedy, symptoms
from seq2seq.inference.engine import Engine, EngineName
from seq2seq.inference.overlap import Work, finish
from seq2seq.inference.prefixes import Prefix, Prefixes, checked_forbidden
from seq2seq.inference.translation import Alternative, PartSpans, Translation, join
from seq2seq.lines import UnequalPrefixes, as_one_line, checked_texts, first_of_each
from seq2seq.search.base import Hypothesis, Sentence
from seq2seq.store.direction import choices, directed, zero_shot
from seq2seq.text.direction import Direction, check_direction_given
from seq2seq.text.identification import Identifier
from seq2seq.text.parts import Part, fitting
from seq2seq.text.tokenizer import TokenizerPair, encodable
from seq2seq.text.untranslatable import VERBATIM, Untranslatable

logger = logging.getLogger(__name__)

MOST_PARTS, MANY_PARTS = 2**20, 8
LINE_ENDS = re.compile("[\n-\r\x1c-\x1e\x85\u2028\u2029]")
# Options of `s2s translate` that `Translator.load` does not have, with their place in the library.
ELSEWHERE = {
    "glossary": "Pipeline.load",
    "pivot": "Pipeline.load",
    "input_format": "Pipeline.load, whose `translate` takes a `form`",
    "each_line": "Pipeline.load, whose `translate` takes several documents",
    "details": "Pipeline.load, whose `translate` takes `details`",
    "prefix_file": "the argument `prefixes` of translate",
    "format": "the fields of Translation",
}


class _Request(NamedTuple):
    """A part of a line, with the sentence to search and its prefix."""

    line: int
    part: Part
    sentence: Sentence
    prefix: Prefix


class Translator:
    """A translator of lines: an engine, the tokenizers of both sides, and search settings.

    With `repair`, a degenerate translation is decoded once more if there is a remedy (`degeneration.remedy`).
    `engine_note` (`note`) names the engine and, if it is PyTorch, gives the reason. `description` is that of the model
    if it was loaded from a folder.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizers: TokenizerPair,
        config: SearchConfig,
        repair: bool = True,
        note: str = "",
        description: ModelDescription | None = None,
    ):
        self.config = config
        self.engine_note = note
        self.description = description
        self._engine = engine
        self.tokenizers = tokenizers
        self._repair = repair
        self._is_open = False  # whether `directed` has to choose languages first
        self.is_untranslatable = Untranslatable(tokenizers.source)
        self._prefixes = Prefixes(tokenizers, self._target_language)
        self._identifier = Identifier(self._possible_languages)
        self._typed: set[str] = set()  # languages in place of the target, of which a warning was logged

    @property
    def overlaps(self) -> bool:
        """Whether text work overlaps with searches: the engine leaves the CPUs idle, and `search.record` is true."""
        return self._engine.leaves_cpus_idle and self.config.record is True  # not with auto: not measured on a GPU

    @property
    def _target_language(self) -> str | None:
        return self.description.target_language if self.description else None

    @property
    def has_many_targets(self) -> bool:
        """Whether the model has several target languages, so that a translation may be in a wrong one."""
        return self.description is not None and len(self.tokenizers.source.tags) > 1

    @property
    def _possible_languages(self) -> set[str]:
        """The languages that a translation may be in; only with several targets does their identification cost time."""
        about = self.description
        names = {about.source_language, *self.tokenizers.source.tags} if about and self.has_many_targets else set()
        return {name for name in (*names, self._target_language) if name}

    @property
    def _part_length(self) -> int:
        """The most pieces of a part of a line."""
        # The translation of the longest part must fit too, so a part gets half the positions with the default ratio 2.
        longest, config = self._engine.max_length, self.config
        room = int((longest - config.max_length_offset) / max(config.max_length_ratio, 1.0))
        specials = max(len(self.tokenizers.source.end_ids), len(self.tokenizers.target.start_ids))
        return min(max(room, longest // 4, 1), longest - specials)

    @classmethod
    def load(
        cls,
        *paths: str | Path,
        engine: EngineName = "auto",
        quantization: str | None = None,
        device: str = "auto",
        precision: str | None = None,
        threads: int | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        all_languages: bool = False,
        **search: Any,
    ) -> "Translator":
        """Load model folders or run folders (then their best models); without a path, the newest translation run.

        Several models form an ensemble. `search` overrides search settings of the model; the other options are those
        of `load_engine`. `source_language` and `target_language` are for multilingual models. With `all_languages`, a
        model of many languages is loaded without one, and `directed` chooses among its `choices` before it translates.

        Raises:
            ModelError: there is no model, it is damaged or not a translation model, or it does not fit the others.
            UserError: an engine, device, precision, language or search setting does not exist or is not possible.
        """
        if given := [key for key in search if key in ELSEWHERE]:
            raise UserError(f"{given[0]}: not an option of Translator.load; use {ELSEWHERE[given[0]]}")
        from seq2seq.inference.loading import load_engine  # validation in training has an engine of its own

        direction = None if all_languages else Direction(source_language, target_language)
        loaded = load_engine(paths or (None,), engine, quantization, device, precision, threads, search, direction)
        if warning := zero_shot(loaded.description, loaded.tokenizers):
            logger.warning("%s", warning)
        found = cls(loaded.engine, loaded.tokenizers, loaded.search, note=loaded.note, description=loaded.description)
        found._is_open = all_languages and found.tokenizers.needs_direction and bool(found.choices)
        return found

    def with_search(self, **changes: Any) -> "Translator":
        """Return a translator with the same engine and other search settings.

        Raises:
            UserError: a setting does not exist, or is not possible with the engine.
        """
        from seq2seq.inference.loading import changed_search

        other = copy.copy(self)
        other.config = changed_search(self._engine, self.config, changes)
        return other

    def grouping_for(self, workers: int) -> "Translator":
        """Return a translator with the same weights and another grouping of sentences (`Engine.grouping_for`)."""
        other = copy.copy(self)
        other._engine = self._engine.grouping_for(workers)
        return other

    @property
    def choices(self) -> dict[str, list[str]]:
        """The languages to choose from, by side (`store.direction.choices`); empty for a model with one direction."""
        return {} if self.description is None else choices(self.description, self.tokenizers)

    def directed(self, direction: Direction) -> "Translator":
        """Return a translator with the same engine and weights for one direction of a multilingual model.

        Raises:
            UserError: the model does not have a language, or needs languages that are not named.
        """
        check_direction_given(direction)
        assert self.description is not None
        described, tokenizers = directed("the model", self.description, self.tokenizers.undirected, direction)
        other = copy.copy(self)
        other._is_open = False
        other.description, other.tokenizers = described, tokenizers
        other._engine = self._engine.directed(tokenizers)
        other._prefixes = Prefixes(tokenizers, described.target_language)
        other._identifier, other._typed = Identifier(other._possible_languages), set()
        return other

    def translate(
        self,
        lines: Sequence[str],
        prefixes: Sequence[str] | None = None,
        first_line: int = 0,
        forbidden: Sequence[Mapping[str, bool]] = (),
        has_whole_prefixes: bool = False,
    ) -> list[Translation]:
        """Translate each line independently.

        A blank line has an empty translation and does not reach the model. White space at the ends of a line is kept,
        except at its beginning if there is a prefix. A line longer than the model's limit is split, if possible at
        sentence ends, translated in parts, and joined with the original white space. Text that is not language is
        copied (`text.untranslatable`), unless there is a prefix.

        Args:
            lines: texts; a line feed in a text becomes a space.
            prefixes: required beginning of each translation, empty for none; in a line in parts, that of the first
                part. It may end inside a word.
            first_line: number of the first line, from 0; the random numbers of a sample depend on the line number.
            forbidden: words for each line to suppress in its translation, except in its prefix, and whether to suppress
                longer words that begin with them. The model may still spell them with unusual pieces.
            has_whole_prefixes: whether the prefixes end with whole words.

        Raises:
            TypeError: `lines` or `prefixes` is not a list of texts.
            DataError: the numbers of prefixes and lines differ, or a prefix is too long for the model.
            UserError: the languages are not chosen yet (`directed`).
        """
        return finish(self.work(lines, prefixes, first_line, forbidden, has_whole_prefixes))

    def work(
        self,
        lines: Sequence[str],
        prefixes: Sequence[str] | None = None,
        first_line: int = 0,
        forbidden: Sequence[Mapping[str, bool]] = (),
        has_whole_prefixes: bool = False,
    ) -> Work[list[Translation]]:
        """Do what `translate` does, and yield each search (`overlap`)."""
        if self._is_open:
            raise UserError("the model needs languages; translate with directed(Direction(source, target))")
        lines = checked_texts(lines, "translate")
        prefixes = prefixes if prefixes is None else checked_texts(prefixes, "prefixes")
        if prefixes is not None and len(prefixes) != len(lines):
            raise UnequalPrefixes(len(prefixes), f"{len(lines):,}")
        forbidden = checked_forbidden(forbidden, len(lines))
        begun = [
            self._prefix(text, first_line + number, has_whole_prefixes) for number, text in enumerate(prefixes or ())
        ]
        requests = list(self._requests(lines, begun, first_line, forbidden))
        translations = [Translation("", 0.0, 0.0, 0, (EMPTY,) if line.strip() else (), source=line) for line in lines]
        answered = zip(requests, (yield from self._answers(requests)), strict=True)
        for number, group in groupby(answered, key=lambda pair: pair[0].line):
            translations[number] = self._joined(lines[number], list(group))
        return translations

    def _requests(
        self,
        lines: Sequence[str],
        prefixes: Sequence[Prefix],
        first_line: int,
        forbidden: Sequence[Mapping[str, bool]],
    ) -> Iterator[_Request]:
        """Yield the requests of the parts of all lines; a prefix belongs to the first part of its line."""
        source = self.tokenizers.source
        stripped = [encodable(as_one_line(line)).strip() for line in lines]
        if source.tag_ids:
            self._name_typed_tags(stripped)
        for number, (text, ids) in enumerate(zip(stripped, source.read_all(stripped), strict=True)):
            if not text:
                continue
            prefix = prefixes[number] if prefixes else Prefix()
            never = self._prefixes.forbidden(forbidden[number]) if forbidden else ()
            known = {text: ids}

            def read(words: str, known: dict[str, list[int]] = known) -> list[int]:
                return known[words] if words in known else source.read(words)

            copied, tag = None if prefix.text else self.is_untranslatable, source.typed_tag(text)
            is_spelled = source.language_named(tag) is None
            parts = fitting(text, lambda words, read=read: len(read(words)), self._part_length, copied, tag, is_spelled)
            begin = len(lines[number]) - len(lines[number].lstrip())
            for index, part in enumerate(parts):
                key, first = (first_line + number) * MOST_PARTS + index, Prefix() if index else prefix
                ids_of_part, starts = tuple(read(part.tag + part.text)), self.tokenizers.target.start_ids
                sentence = Sentence(ids_of_part, first.ids, key, never, first.opening, starts)
                yield _Request(number, part._replace(begin=part.begin + begin), sentence, first)

    def _name_typed_tags(self, texts: Sequence[str]) -> None:
        """Warn of texts that begin with a tag of another language than the target, once for each language."""
        named = (self.tokenizers.source.language_named(text) for text in texts if text.startswith(">>"))
        for language in {name for name in named if name} - self._typed - {self._target_language or ""}:
            self._typed.add(language)
            place = f"it is translated into {language}, not {self._target_language}"
            logger.warning("a text begins with >>%s<<, so %s; remove the tag if this is wrong", language, place)

    def takes_whole(self, line: str) -> bool:
        """Whether a line fits the model, so that it is not split for its length."""
        return len(self.tokenizers.source.read(encodable(as_one_line(line)).strip())) <= self._part_length

    def takes_prefix(self, text: str) -> bool:
        """Whether a translation that begins with this text fits the model."""
        return len(self._prefixes.ids(text)) < self._engine.max_length

    def _prefix(self, text: str, number: int, is_whole: bool) -> Prefix:
        prefix = self._prefixes.prefix(text, is_whole, self._engine.max_length)
        if prefix.text and not self.takes_prefix(text):
            count, most = len(self._prefixes.ids(text)), self._engine.max_length - 1
            raise DataError(
                f"prefix of line {number + 1}: {count} pieces, but the model has room for {most}; shorten it"
            )
        return prefix

    def _answers(self, requests: Sequence[_Request]) -> Work[list[Translation]]:
        """Return the translation of each part; a degenerate one is decoded again if there is a remedy."""
        answers = yield from self._search(requests, self.config)
        hopeless = _hopeless_lines(requests, answers)
        again: dict[SearchConfig, dict[int, _Request]] = defaultdict(dict)
        for index, (request, answer) in enumerate(zip(requests, answers, strict=True)):
            if request.line in hopeless or not self._repair:
                continue
            if better := remedy(answer.flags, request.sentence, self.config):
                again[better[1]][index] = request._replace(sentence=better[0])
        for config, second in again.items():
            found = yield from self._search(list(second.values()), config)
            for index, answer in zip(second, found, strict=True):
                if SYMPTOMS.isdisjoint(answer.flags):
                    symptoms_before = (flag for flag in answers[index].flags if flag in SYMPTOMS)
                    answers[index] = replace(answer, flags=(*symptoms_before, REPAIRED, *answer.flags))
        return answers

    def _search(self, requests: Sequence[_Request], config: SearchConfig) -> Work[list[Translation]]:
        """Search once; equal parts are searched only once, unless they are sampled, and copied parts are not.

        Thus a line of 20,000 equal words, whose translations never end, takes no longer than two parts.
        """
        keys: list[Hashable] = [
            request.sentence.key
            if config.sample
            else (request.part.text, request.sentence.source_ids, request.prefix.text, request.sentence.forbidden)
            for request in requests
        ]
        distinct = {key: each for key, each in zip(keys, requests, strict=True) if not each.part.is_copied}
        # Of several spellings of a text only the best counts, so n distinct texts may need more than n hypotheses.
        every = config.model_copy(update={} if config.sample or config.n_best == 1 else {"n_best": config.beam_size})
        results = yield partial(self._engine.translate, [request.sentence for request in distinct.values()], every)
        answers = {
            key: self._answer(request, hypotheses)
            for (key, request), hypotheses in zip(distinct.items(), results, strict=True)
        }
        return [
            Translation(request.part.text, 0.0, 0.0, 0, (VERBATIM,)) if request.part.is_copied else answers[key]
            for key, request in zip(keys, requests, strict=True)
        ]

    def _answer(self, request: _Request, hypotheses: Sequence[Hypothesis]) -> Translation:
        texts = [request.prefix.restored(self.tokenizers.target.decode(each.ids)) for each in hypotheses]
        kept = range(len(texts)) if self.config.sample else list(first_of_each(texts))[: self.config.n_best]
        best, *others = (
            Alternative(
                texts[index], each.log_prob, each.score, len(each.ids) + each.finished, is_finished=each.finished
            )
            for index, each in ((index, hypotheses[index]) for index in kept)
        )
        flags = self._flags(request.part, request.sentence.source_ids, texts[0], hypotheses[0])
        return Translation(**vars(best), flags=flags, alternatives=tuple(others))

    def _flags(self, part: Part, source_ids: Sequence[int], text: str, hypothesis: Hypothesis) -> tuple[str, ...]:
        is_lost = any(word not in text for word in self.is_untranslatable.foreign_words(part.text))
        language = self.tokenizers.source.language_named(part.tag or part.text) or self._target_language
        is_other = language is not None and self._identifier.is_other(text, language)
        found = symptoms(part.text, source_ids, text, hypothesis)
        return (*found, *[LOST] * is_lost, *[LANGUAGE] * is_other)

    def flags(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
        """Return the flags of translations that were not made in parts, given as (source, translation)."""
        sources = self.tokenizers.source.read_all([source for source, _ in pairs])
        targets = self.tokenizers.target.encode_targets([text for _, text in pairs])
        return [
            self._flags(Part(0, "", source), ids, text, Hypothesis(tuple(target_ids), 0.0, 0.0, True))
            for (source, text), ids, target_ids in zip(pairs, sources, targets, strict=True)
        ]

    def _joined(self, line: str, answered: Sequence[tuple[_Request, Translation]]) -> Translation:
        """Return the translation of a line with its white space; a prefix replaces that at the beginning."""
        parts = [request.part for request, _ in answered]
        before, after = line[: len(line) - len(line.lstrip())], line[len(line.rstrip()) :]
        begin = "" if answered[0][0].prefix.text else LINE_ENDS.sub("", before)
        answers = [replace(answer, parts=(_whole(request.part, answer),)) for request, answer in answered]
        flags, ends = line_flags([answer.flags for answer in answers]), (begin, LINE_ENDS.sub("", after))
        return join(line, parts, answers, self.config.length_penalty, flags, ends, self.config.sample)


def _whole(part: Part, answer: Translation) -> PartSpans:
    return PartSpans((0, len(part.text)), (0, len(answer.text)), part.is_copied, answer.flags)


def _hopeless_lines(requests: Sequence[_Request], answers: Sequence[Translation]) -> set[int]:
    """Return the lines with many different parts that are mostly degenerate: a second search would not help."""
    pairs = zip(requests, answers, strict=True)
    flags = {(request.line, request.part.text): answer.flags for request, answer in pairs if not request.part.is_copied}
    flagged, num_parts = (
        Counter(line for (line, _), names in flags.items() if SYMPTOMS.intersection(names)),
        Counter(line for line, _ in flags),
    )
    return {line for line, count in flagged.items() if 2 * count > num_parts[line] >= MANY_PARTS}
