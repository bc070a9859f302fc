"""Lines of text to translations, one for each line, in order.

Commands, library users and validation in training share `Translator`, so all see the same translations.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.config import SearchConfig
from seq2seq.description import ModelDescription
from seq2seq.errors import DataError, UserError
from seq2seq.inference.batching import Engine
from seq2seq.inference.degeneration import EMPTY, LOST, REPAIRED, SYMPTOMS, line_flags, remedy, symptoms
from seq2seq.inference.loading import EngineName, load_engine, override_search
from seq2seq.inference.prefixes import Prefix, Prefixes
from seq2seq.lines import as_one_line, checked_texts, first_of_each
from seq2seq.search.base import Hypothesis, Sentence, normalized_score
from seq2seq.text.splitting import language_tag, split_text
from seq2seq.text.tokenizer import TokenizerPair, encodable
from seq2seq.text.untranslatable import VERBATIM, Untranslatable

MOST_PARTS, MANY_PARTS = 2**20, 8
LINE_ENDS = re.compile("[\n-\r\x1c-\x1e\x85\u2028\u2029]")
# Options of `s2s translate` that `Translator.load` does not have, and where the library has them.
ELSEWHERE = {
    "glossary": "TermTranslator.load",
    "input_format": "MarkupTranslator.load",
    "each_line": "MarkupTranslator.load",
    "details": "Aligner.load, whose `explain` takes translations",
    "prefix_file": "the argument `prefixes` of translate",
    "format": "the fields of Translation",
}


@dataclass(frozen=True)
class Alternative:
    """One of the n best translations of a line."""

    text: str
    score: float
    """Log-probability of the model."""
    normalized_score: float
    """score / tokens^length_penalty, what alternatives are ranked by."""
    tokens: int
    """Target pieces, ends included."""


@dataclass(frozen=True)
class Translation(Alternative):
    """The best translation of a line; that of a blank line is empty, with score 0."""

    flags: tuple[str, ...]
    """`degeneration.symptoms` of the first search; `repaired` if a second search cured them; `split` for a line
    translated in parts; `verbatim` where a part was copied, because it cannot be translated (`text.untranslatable`);
    `lost` where words or signs that the vocabulary lacks are missing."""
    alternatives: tuple[Alternative, ...]
    """The next best, with `n_best` above 1; for a line in parts, each joins the parts' hypotheses of one rank."""
    source: str
    parts: tuple["PartSpans", ...] = ()
    """Of the best translation."""


class PartSpans(NamedTuple):
    """Where a part of a line, or the whole of it, and its translation are; in code points."""

    source: tuple[int, int]
    target: tuple[int, int]
    is_copied: bool = False
    flags: tuple[str, ...] = ()
    """Flags of the part."""


class _Part(NamedTuple):
    """A line, or a part of one that is too long."""

    line: int
    begin: int
    """Its first code point in the line."""
    before: str
    """White space between this part and the one before."""
    text: str
    sentence: Sentence
    prefix: Prefix
    is_copied: bool
    """Whether the part was copied; it never reaches the model then."""


class _Answer(NamedTuple):
    """The hypotheses for a part, their texts, and the flags of the best."""

    hypotheses: Sequence[Hypothesis]
    texts: Sequence[str]
    flags: tuple[str, ...]


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
        self._part_length = min(max(room, engine.max_length // 4, 1), engine.max_length - 1)

    @classmethod
    def load(
        cls,
        *paths: str | Path,
        engine: EngineName = "auto",
        quantization: str | None = None,
        device: str = "auto",
        precision: str | None = None,
        threads: int | None = None,
        **search: Any,
    ) -> "Translator":
        """Load a model folder or a run folder (then its best model); several are an ensemble; none is the
        newest translation run.

        `search` overrides keys of the model's own search settings; `engine`, `quantization` and `precision` are those
        of `load_engine`.

        Raises:
            ModelError: there is no model, it is damaged, is no translation model, or does not fit the others.
            UserError: an engine, device, precision or search setting that does not exist or is not possible.
        """
        if given := [key for key in search if key in ELSEWHERE]:
            raise UserError(f"{given[0]}: not an option of Translator.load; use {ELSEWHERE[given[0]]}")
        loaded = load_engine(paths or (None,), engine, quantization, device, precision, threads, search)
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
            raise _unequal(len(prefixes), f"{len(lines):,}")
        begun = [
            self._prefix(text, first_line + number, has_whole_prefixes) for number, text in enumerate(prefixes or ())
        ]
        parts = list(self._parts(lines, begun, first_line, forbidden))
        translations = [Translation("", 0.0, 0.0, 0, (EMPTY,) if line.strip() else (), (), line) for line in lines]
        answered = zip(parts, self._answers(parts), strict=True)
        for number, group in groupby(answered, key=lambda pair: pair[0].line):
            translations[number] = self._join(lines[number], list(group))
        return translations

    def translate_stream(
        self, batches: Iterable[Sequence[str]], prefixes: Iterator[str] | None = None
    ) -> Iterator[list[Translation]]:
        """`translate` for each batch of a stream of lines as it comes; memory does not grow with the stream.

        Raises:
            DataError: `prefixes`, an iterator beside the lines, has fewer or more lines than the batches.
        """
        count = 0
        for lines in batches:
            beside = None if prefixes is None else list(islice(prefixes, len(lines)))
            if beside is not None and len(beside) < len(lines):
                raise _unequal(count + len(beside), f"more than {count + len(beside):,}")
            yield self.translate(lines, beside, first_line=count)
            count += len(lines)
        if prefixes is not None and (extra := sum(1 for _ in prefixes)):
            raise _unequal(count + extra, f"{count:,}")

    def _parts(
        self,
        lines: Sequence[str],
        prefixes: Sequence[Prefix],
        first_line: int,
        forbidden: Sequence[Collection[str]],
    ) -> Iterator[_Part]:
        read = self._tokenizers.source.read
        stripped = [encodable(as_one_line(line)).strip() for line in lines]
        for number, (text, ids) in enumerate(zip(stripped, self._tokenizers.source.read_all(stripped), strict=True)):
            if not text:
                continue
            prefix = prefixes[number] if prefixes else Prefix()
            never = self._prefixes.forbidden(forbidden[number]) if forbidden else ()
            tag, parts = self._cut(text, len(ids), may_copy=not prefix.text)
            line, before = lines[number], ""
            begin = len(line) - len(line.lstrip()) + len(tag)
            for index, (part, is_copied) in enumerate(parts):
                core = part.strip()
                before += part[: len(part) - len(part.lstrip())]
                if core:
                    part_ids = ids if len(parts) == 1 and not tag else read(tag + core)
                    key = (first_line + number) * MOST_PARTS + index
                    sentence = Sentence(tuple(part_ids), prefix.ids, key, never, prefix.opening)
                    yield _Part(number, begin + part.index(core), before, core, sentence, prefix, is_copied)
                    prefix, before = Prefix(), part[len(part.rstrip()) :]
                begin += len(part)

    def _cut(self, text: str, num_pieces: int, may_copy: bool) -> tuple[str, list[tuple[str, bool]]]:
        """The language tag that each part of a text begins with, and the parts, each with whether it is copied."""
        read = self._tokenizers.source.read
        tag, rest = language_tag(text, lambda tag: len(read(tag)) <= self._part_length // 2)
        stretches = self.is_untranslatable.stretches(rest) if may_copy else [(rest, False)]
        if stretches == [(rest, False)] and num_pieces <= self._part_length:
            return "", [(text, False)]

        def copies(part: str) -> bool:
            return may_copy and self.is_untranslatable(part)

        def fits(part: str) -> bool:
            return len(read(tag + part)) <= self._part_length or copies(part)

        parts = []
        for stretch, is_copied in stretches:
            cut = [stretch] if is_copied else split_text(stretch, fits)
            parts += [(part, is_copied or copies(part)) for part in cut]
        return tag, parts

    def takes_prefix(self, text: str) -> bool:
        """Whether the model has room for a translation that begins with this text."""
        return len(self._tokenizers.target.encode(as_one_line(text).strip())) < self._engine.max_length

    def _prefix(self, text: str, number: int, is_whole: bool) -> Prefix:
        prefix = self._prefixes.prefix(text, is_whole)
        if prefix.text and not self.takes_prefix(text):
            count, most = len(self._tokenizers.target.encode(as_one_line(text).strip())), self._engine.max_length - 1
            raise DataError(f"prefix of line {number + 1}: {count} pieces, the model takes {most}; shorten it")
        return prefix

    def _answers(self, parts: Sequence[_Part]) -> list[_Answer]:
        """The answer for each part: searched again where it is degenerate and there is a remedy."""
        answers = self._search(parts, self.config)
        hopeless = _hopeless_lines(parts, answers)
        again: dict[SearchConfig, list[int]] = defaultdict(list)
        for index, (part, answer) in enumerate(zip(parts, answers, strict=True)):
            if part.line in hopeless or not self._repair:
                continue
            if other := remedy(answer.flags, len(part.sentence.source_ids), self.config):
                again[other].append(index)
        for other, indices in again.items():
            second = self._search([parts[index] for index in indices], other)
            for index, answer in zip(indices, second, strict=True):
                if SYMPTOMS.isdisjoint(answer.flags):
                    symptoms_before = (flag for flag in answers[index].flags if flag in SYMPTOMS)
                    answers[index] = answer._replace(flags=(*symptoms_before, REPAIRED, *answer.flags))
        return answers

    def _search(self, parts: Sequence[_Part], config: SearchConfig) -> list[_Answer]:
        """One search; equal parts are searched once, unless they are sampled, and some are copied.

        So a line of 20,000 equal words, whose parts never end, takes no longer than two parts.
        """
        keys: list[Hashable] = [
            part.sentence.key
            if config.sample
            else (part.text, part.sentence.source_ids, part.prefix.text, part.sentence.forbidden)
            for part in parts
        ]
        distinct = {key: part for key, part in zip(keys, parts, strict=True) if not part.is_copied}
        # Of several spellings of one text the best counts, so a list of n texts may need more than n hypotheses.
        every = config.model_copy(update={} if config.sample or config.n_best == 1 else {"n_best": config.beam_size})
        found = self._engine.translate([part.sentence for part in distinct.values()], every)
        answers = {
            key: self._answer(part, hypotheses) for (key, part), hypotheses in zip(distinct.items(), found, strict=True)
        }
        return [
            _Answer([Hypothesis((), 0.0, 0.0, False)], [part.text], (VERBATIM,)) if part.is_copied else answers[key]
            for key, part in zip(keys, parts, strict=True)
        ]

    def _answer(self, part: _Part, hypotheses: Sequence[Hypothesis]) -> _Answer:
        texts = [part.prefix.restored(self._tokenizers.target.decode(hypothesis.ids)) for hypothesis in hypotheses]
        kept = range(len(texts)) if self.config.sample else list(first_of_each(texts))[: self.config.n_best]
        flags = self._flags(part.text, part.sentence.source_ids, texts[0], hypotheses[0])
        return _Answer([hypotheses[index] for index in kept], [texts[index] for index in kept], flags)

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

    def _join(self, line: str, answered: Sequence[tuple[_Part, _Answer]]) -> Translation:
        count = max(len(answer.hypotheses) for _, answer in answered)
        ranks = [self._alternative(line, answered, rank) for rank in range(count)]
        kept = range(count) if self.config.sample else first_of_each([one.text for one in ranks])
        best, *others = (ranks[index] for index in kept)
        # The best translations of the parts make the best one of the line, even if another rank scores higher.
        others.sort(key=lambda alternative: -alternative.normalized_score)
        flags = line_flags([answer.flags for _, answer in answered])
        spans = tuple(_spans(answered, len(_ends(line, answered)[0])))
        return Translation(**vars(best), flags=flags, alternatives=tuple(others), source=line, parts=spans)

    def _alternative(self, line: str, answered: Sequence[tuple[_Part, _Answer]], rank: int) -> Alternative:
        """The translation of a line from the hypothesis of this rank, or else the last, of each part."""
        (text, end), score, tokens = _ends(line, answered), 0.0, 0
        for part, answer in answered:
            rank_here = min(rank, len(answer.hypotheses) - 1)
            hypothesis = answer.hypotheses[rank_here]
            text += part.before + answer.texts[rank_here]
            score += hypothesis.log_prob
            tokens += len(hypothesis.ids) + hypothesis.finished
        return Alternative(text + end, score, normalized_score(score, tokens, self.config.length_penalty), tokens)


def _ends(line: str, answered: Sequence[tuple[_Part, _Answer]]) -> tuple[str, str]:
    """The white space at the ends of a line, without characters that end lines; a prefix decides on the beginning."""
    before, after = line[: len(line) - len(line.lstrip())], line[len(line.rstrip()) :]
    has_prefix = bool(answered[0][0].prefix.text)
    return "" if has_prefix else LINE_ENDS.sub("", before), LINE_ENDS.sub("", after)


def _spans(answered: Sequence[tuple[_Part, _Answer]], position: int) -> Iterator[PartSpans]:
    for part, answer in answered:
        position += len(part.before)
        end = position + len(answer.texts[0])
        spans = (part.begin, part.begin + len(part.text)), (position, end)
        yield PartSpans(*spans, part.is_copied, answer.flags)
        position = end


def _hopeless_lines(parts: Sequence[_Part], answers: Sequence[_Answer]) -> set[int]:
    """Lines in many different parts most of which are degenerate: no text that a second search could mend."""
    pairs = zip(parts, answers, strict=True)
    flags = {(part.line, part.text): answer.flags for part, answer in pairs if not part.is_copied}
    flagged, num_parts = (
        Counter(line for (line, _), found in flags.items() if found),
        Counter(line for line, _ in flags),
    )
    return {line for line, count in flagged.items() if 2 * count > num_parts[line] >= MANY_PARTS}


def _unequal(prefixes: int, lines: str) -> DataError:
    return DataError(f"prefixes: {prefixes:,}, lines: {lines}; give one prefix for each line, empty for none")
