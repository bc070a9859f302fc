"""Lines of text to translations, one for each line, in order.

Commands, library users and validation in training share `Translator`, so all see the same translations.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import DataError, UserError
from seq2seq.inference.batching import Engine
from seq2seq.inference.degeneration import EMPTY, LOST, REPAIRED, SYMPTOMS, line_flags, remedy, symptoms
from seq2seq.inference.loading import EngineName, load_engine, override_search
from seq2seq.inference.prefixes import Prefix, Prefixes
from seq2seq.inference.translation import Alternative, PartSpans, Translation, join
from seq2seq.lines import as_one_line, checked_texts, first_of_each
from seq2seq.search.base import Hypothesis, Sentence
from seq2seq.text.direction import Direction
from seq2seq.text.parts import Part, fitting
from seq2seq.text.tokenizer import TokenizerPair, encodable
from seq2seq.text.untranslatable import VERBATIM, Untranslatable

MOST_PARTS, MANY_PARTS = 2**20, 8
LINE_ENDS = re.compile("[\n-\r\x1c-\x1e\x85\u2028\u2029]")
# Options of `s2s translate` that `Translator.load` does not have, and where the library has them.
ELSEWHERE = {
    "glossary": "Pipeline.load",
    "input_format": "Pipeline.load, whose `translate` takes a `form`",
    "each_line": "Pipeline.load, whose `translate` takes several documents",
    "details": "Pipeline.load, whose `translate` takes `details`",
    "prefix_file": "the argument `prefixes` of translate",
    "format": "the fields of Translation",
}


class _Asked(NamedTuple):
    """A part of a line, and what is searched for it."""

    line: int
    part: Part
    sentence: Sentence
    prefix: Prefix


class Translator:
    """An engine, the tokenizers of both sides, and search settings.

    With `repair`, a degenerate translation is searched once more where there is a remedy (`degeneration.remedy`).
    `engine_note` (`note`) names the engine and, where that is PyTorch, gives the reason. `description` is that of the
    model, where it was loaded from a folder.
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
        self._tokenizers = tokenizers
        self._repair = repair
        self.is_untranslatable = Untranslatable(tokenizers.source)
        self._prefixes = Prefixes(tokenizers, description.target_language if description else None)
        # The translation of the longest part has to fit as well: half the positions, with the default ratio of 2.
        room = int((engine.max_length - config.max_length_offset) / max(config.max_length_ratio, 1.0))
        specials = max(len(tokenizers.source.end_ids), len(tokenizers.target.start_ids))
        self._part_length = min(max(room, engine.max_length // 4, 1), engine.max_length - specials)

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
        **search: Any,
    ) -> "Translator":
        """Load a model folder or a run folder (then its best model); several are an ensemble; none is the
        newest translation run.

        `search` overrides keys of the model's own search settings; `engine`, `quantization` and `precision` are those
        of `load_engine`. `source_language` and `target_language` are for models of several languages.

        Raises:
            ModelError: there is no model, it is damaged, is no translation model, or does not fit the others.
            UserError: an engine, device, precision or search setting that does not exist or is not possible.
        """
        if given := [key for key in search if key in ELSEWHERE]:
            raise UserError(f"{given[0]}: not an option of Translator.load; use {ELSEWHERE[given[0]]}")
        direction = Direction(source_language, target_language)
        loaded = load_engine(paths or (None,), engine, quantization, device, precision, threads, search, direction)
        return cls(loaded.engine, loaded.tokenizers, loaded.search, note=loaded.note, description=loaded.description)

    def with_search(self, **changes: Any) -> "Translator":
        """A translator of the same engine with other search settings.

        Raises:
            UserError: a setting that does not exist or is not possible.
        """
        config = override_search(self.config, changes)
        return Translator(self._engine, self._tokenizers, config, self._repair, self.engine_note, self.description)

    def translate(
        self,
        lines: Sequence[str],
        prefixes: Sequence[str] | None = None,
        first_line: int = 0,
        forbidden: Sequence[Collection[str]] = (),
        has_whole_prefixes: bool = False,
    ) -> list[Translation]:
        """Translate each line, whatever the others are.

        A blank line gives an empty translation and never reaches the model. White space at the ends of a line stays,
        unless there is a prefix. A line over the length limit is translated in parts, cut at sentence ends where
        possible, and joined with the white space that was between them. What cannot be translated is copied
        (`text.untranslatable`), unless there is a prefix.

        Args:
            lines: texts; a line feed within one becomes a space.
            prefixes: the text each translation begins with, empty for none; in a line in parts, the first part. It
                may end inside a word.
            first_line: number of the first line, from 0; the random draws of a sample are keyed by line number.
            forbidden: for each line words that its translation does not have, unless its prefix does or the model
                spells them in unusual pieces.
            has_whole_prefixes: the prefixes end with whole words.

        Raises:
            DataError: there is not one prefix for each line, or one is too long for the model.
        """
        lines = checked_texts(lines, "translate")
        prefixes = prefixes if prefixes is None else checked_texts(prefixes, "prefixes")
        if prefixes is not None and len(prefixes) != len(lines):
            raise unequal(len(prefixes), f"{len(lines):,}")
        begun = [
            self._prefix(text, first_line + number, has_whole_prefixes) for number, text in enumerate(prefixes or ())
        ]
        asked = list(self._asked(lines, begun, first_line, forbidden))
        translations = [Translation("", 0.0, 0.0, 0, (EMPTY,) if line.strip() else (), source=line) for line in lines]
        answered = zip(asked, self._answers(asked), strict=True)
        for number, group in groupby(answered, key=lambda pair: pair[0].line):
            translations[number] = self._joined(lines[number], list(group))
        return translations

    def _asked(
        self,
        lines: Sequence[str],
        prefixes: Sequence[Prefix],
        first_line: int,
        forbidden: Sequence[Collection[str]],
    ) -> Iterator[_Asked]:
        """The parts of all lines; a prefix is that of the first part of its line."""
        source = self._tokenizers.source
        stripped = [encodable(as_one_line(line)).strip() for line in lines]
        for number, (text, ids) in enumerate(zip(stripped, source.read_all(stripped), strict=True)):
            if not text:
                continue
            prefix = prefixes[number] if prefixes else Prefix()
            never = self._prefixes.forbidden(forbidden[number]) if forbidden else ()
            known = {text: ids}

            def read(one: str, known: dict[str, list[int]] = known) -> list[int]:
                return known[one] if one in known else source.read(one)

            copied = None if prefix.text else self.is_untranslatable
            parts = fitting(text, lambda one, read=read: len(read(one)), self._part_length, copied)
            begin = len(lines[number]) - len(lines[number].lstrip())
            for index, part in enumerate(parts):
                key = (first_line + number) * MOST_PARTS + index
                own = Prefix() if index else prefix
                ids_of_part = tuple(read(part.tag + part.text))
                sentence = Sentence(ids_of_part, own.ids, key, never, own.opening, self._tokenizers.target.start_ids)
                yield _Asked(number, part._replace(begin=part.begin + begin), sentence, own)

    def takes_prefix(self, text: str) -> bool:
        """Whether the model has room for a translation that begins with this text."""
        return len(self._tokenizers.target.encode(as_one_line(text).strip())) < self._engine.max_length

    def _prefix(self, text: str, number: int, is_whole: bool) -> Prefix:
        prefix = self._prefixes.prefix(text, is_whole)
        if prefix.text and not self.takes_prefix(text):
            count, most = len(self._tokenizers.target.encode(as_one_line(text).strip())), self._engine.max_length - 1
            raise DataError(f"prefix of line {number + 1}: {count} pieces, the model takes {most}; shorten it")
        return prefix

    def _answers(self, asked: Sequence[_Asked]) -> list[Translation]:
        """The translation of each part: searched again where it is degenerate and there is a remedy."""
        answers = self._search(asked, self.config)
        hopeless = _hopeless_lines(asked, answers)
        again: dict[SearchConfig, list[int]] = defaultdict(list)
        for index, (one, answer) in enumerate(zip(asked, answers, strict=True)):
            if one.line in hopeless or not self._repair:
                continue
            if other := remedy(answer.flags, len(one.sentence.source_ids), self.config):
                again[other].append(index)
        for other, indices in again.items():
            second = self._search([asked[index] for index in indices], other)
            for index, answer in zip(indices, second, strict=True):
                if SYMPTOMS.isdisjoint(answer.flags):
                    symptoms_before = (flag for flag in answers[index].flags if flag in SYMPTOMS)
                    answers[index] = replace(answer, flags=(*symptoms_before, REPAIRED, *answer.flags))
        return answers

    def _search(self, asked: Sequence[_Asked], config: SearchConfig) -> list[Translation]:
        """One search; equal parts are searched once, unless they are sampled, and some are copied.

        So a line of 20,000 equal words, whose parts never end, takes no longer than two parts.
        """
        keys: list[Hashable] = [
            one.sentence.key
            if config.sample
            else (one.part.text, one.sentence.source_ids, one.prefix.text, one.sentence.forbidden)
            for one in asked
        ]
        distinct = {key: one for key, one in zip(keys, asked, strict=True) if not one.part.is_copied}
        # Of several spellings of one text the best counts, so a list of n texts may need more than n hypotheses.
        every = config.model_copy(update={} if config.sample or config.n_best == 1 else {"n_best": config.beam_size})
        found = self._engine.translate([one.sentence for one in distinct.values()], every)
        answers = {
            key: self._answer(one, hypotheses) for (key, one), hypotheses in zip(distinct.items(), found, strict=True)
        }
        return [
            Translation(one.part.text, 0.0, 0.0, 0, (VERBATIM,)) if one.part.is_copied else answers[key]
            for key, one in zip(keys, asked, strict=True)
        ]

    def _answer(self, asked: _Asked, hypotheses: Sequence[Hypothesis]) -> Translation:
        texts = [asked.prefix.restored(self._tokenizers.target.decode(one.ids)) for one in hypotheses]
        kept = range(len(texts)) if self.config.sample else list(first_of_each(texts))[: self.config.n_best]
        best, *others = (
            Alternative(texts[index], one.log_prob, one.score, len(one.ids) + one.finished)
            for index, one in ((index, hypotheses[index]) for index in kept)
        )
        flags = self._flags(asked.part.text, asked.sentence.source_ids, texts[0], hypotheses[0])
        return Translation(**vars(best), flags=flags, alternatives=tuple(others))

    def _flags(self, source: str, source_ids: Sequence[int], text: str, hypothesis: Hypothesis) -> tuple[str, ...]:
        is_lost = any(word not in text for word in self.is_untranslatable.foreign_words(source))
        return (*symptoms(source, source_ids, text, hypothesis), *[LOST] * is_lost)

    def flags(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
        """Return the flags of translations that were not made in parts, given as (source, translation)."""
        sources = self._tokenizers.source.read_all([source for source, _ in pairs])
        targets = self._tokenizers.target.encode_all([text for _, text in pairs])
        return [
            self._flags(source, ids, text, Hypothesis(tuple(own), 0.0, 0.0, True))
            for (source, text), ids, own in zip(pairs, sources, targets, strict=True)
        ]

    def _joined(self, line: str, answered: Sequence[tuple[_Asked, Translation]]) -> Translation:
        """The translation of a line, with the white space at its ends; a prefix decides on the beginning."""
        parts = [one.part for one, _ in answered]
        before, after = line[: len(line) - len(line.lstrip())], line[len(line.rstrip()) :]
        begin = "" if answered[0][0].prefix.text else LINE_ENDS.sub("", before)
        answers = [replace(one, parts=(_whole(part, one),)) for part, (_, one) in zip(parts, answered, strict=True)]
        return join(
            line,
            parts,
            answers,
            self.config.length_penalty,
            line_flags([one.flags for one in answers]),
            (begin, LINE_ENDS.sub("", after)),
            self.config.sample,
        )


def _whole(part: Part, answer: Translation) -> PartSpans:
    return PartSpans((0, len(part.text)), (0, len(answer.text)), part.is_copied, answer.flags)


def _hopeless_lines(asked: Sequence[_Asked], answers: Sequence[Translation]) -> set[int]:
    """Lines in many different parts most of which are degenerate: no text that a second search could mend."""
    pairs = zip(asked, answers, strict=True)
    flags = {(one.line, one.part.text): answer.flags for one, answer in pairs if not one.part.is_copied}
    flagged, num_parts = (
        Counter(line for (line, _), found in flags.items() if found),
        Counter(line for line, _ in flags),
    )
    return {line for line, count in flagged.items() if 2 * count > num_parts[line] >= MANY_PARTS}


def unequal(prefixes: int, lines: str) -> DataError:
    """Return the error that there is not one prefix for each line."""
    return DataError(f"prefixes: {prefixes:,}, lines: {lines}; give one prefix for each line, empty for none")
