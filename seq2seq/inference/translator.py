"""Lines of text to translations, one for each line, in the order of the lines.

`Translator` is loaded by `s2s translate`, by `s2s bleu --model` and by library users, and made from the model in
training for validation, so that all of them see the same translations. What it answers with is a `Translation`.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from seq2seq.config import SearchConfig
from seq2seq.errors import DataError
from seq2seq.inference.batching import Engine
from seq2seq.inference.degeneration import EMPTY, REPAIRED, line_flags, remedy, symptoms
from seq2seq.inference.loading import EngineName, load_engine
from seq2seq.lines import as_one_line
from seq2seq.search.base import Hypothesis, Sentence, normalized_score
from seq2seq.text.splitting import language_tag, split_text
from seq2seq.text.tokenizer import SURROGATES, TokenizerPair

MOST_PARTS = 2**20


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
class Translation:
    """The best translation of a line; that of a blank line is empty, with score 0."""

    text: str
    score: float
    normalized_score: float
    tokens: int
    flags: tuple[str, ...]
    """Symptoms of `degeneration.symptoms`, of what was found first; `repaired` where searching again cured them;
    `split` for a line that was translated in parts."""
    alternatives: tuple[Alternative, ...]
    """The next best, where `n_best` asks for more than one; each of a line in parts joins the parts' of one rank."""
    source: str


@dataclass(frozen=True)
class _Part:
    """A line, or a part of one that is too long."""

    line: int
    before: str
    """White space between this part and the one before."""
    text: str
    sentence: Sentence


@dataclass(frozen=True)
class _Answer:
    """What was found for a part."""

    hypotheses: Sequence[Hypothesis]
    texts: Sequence[str]
    """Of the hypotheses."""
    flags: tuple[str, ...]


class Translator:
    """An engine, the tokenizers around it, and how it searches.

    Args:
        engine: what searches.
        tokenizers: of the two sides.
        config: how it searches.
        repair: search once more where a translation is degenerate and there is a remedy (`degeneration.remedy`).
    """

    engine_note = ""
    """Which engine `load` took and, where that is PyTorch, why."""

    def __init__(self, engine: Engine, tokenizers: TokenizerPair, config: SearchConfig, repair: bool = True):
        self.config = config
        self._engine = engine
        self._tokenizers = tokenizers
        self._repair = repair
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
        """Load a model folder or a run folder (then its best model); several are an ensemble; none is the newest run.

        `precision` None computes in float32; `search` overrides keys of the model's own search settings; `engine`
        and `quantization` are those of `load_engine`.

        Raises:
            ModelError: there is no model, it is damaged, is no translation model, or does not fit the others.
            UserError: an engine, device, precision or search setting that does not exist or is not possible.
        """
        loaded = load_engine(paths or (None,), engine, quantization, device, precision, threads, search)
        translator = cls(loaded.engine, loaded.tokenizers, loaded.search)
        translator.engine_note = loaded.note
        return translator

    def translate(
        self, lines: Sequence[str], prefixes: Sequence[str] | None = None, first_line: int = 0
    ) -> list[Translation]:
        """Translate each line, whatever the others are.

        A blank line gives an empty translation and never reaches the model. A line over the length limit is translated
        in parts, cut at sentence ends where possible, and put together with the white space that stood between them.

        Args:
            lines: texts; a line feed within one becomes a space.
            prefixes: what each translation begins with; empty for no such wish. That of a line in parts is for the
                first part.
            first_line: number of the first line, from 0, in what random draws of samples are keyed by.

        Raises:
            DataError: there is not one prefix for each line, or one is too long for the model.
        """
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines; put a single line into a list")
        given, lines = lines, [SURROGATES.sub("\ufffd", as_one_line(line)) for line in lines]
        if prefixes is not None and len(prefixes) != len(lines):
            raise _unequal(len(prefixes), len(lines))
        parts = list(self._parts(lines, prefixes, first_line))
        answered = zip(parts, self._answers(parts), strict=True)
        translations = [Translation("", 0.0, 0.0, 0, (EMPTY,) if line.strip() else (), (), line) for line in given]
        for number, group in groupby(answered, key=lambda pair: pair[0].line):
            translations[number] = self._join(given[number], list(group))
        return translations

    def translate_stream(
        self, batches: Iterable[Sequence[str]], prefixes: Iterator[str] | None = None
    ) -> Iterator[list[Translation]]:
        """`translate` for each batch of a stream of lines as it comes, so that memory does not grow with the stream.

        Raises:
            DataError: `prefixes`, an iterator beside the lines, has fewer or more lines than they.
        """
        count = 0
        for lines in batches:
            beside = None if prefixes is None else list(islice(prefixes, len(lines)))
            if beside is not None and len(beside) < len(lines):
                raise DataError(
                    f"prefixes: {count + len(beside):,}, but the input has a line {count + len(beside) + 1:,}; "
                    "give one prefix for each line, empty for none"
                )
            yield self.translate(lines, beside, first_line=count)
            count += len(lines)
        if prefixes is not None and (behind := sum(1 for _ in prefixes)):
            raise _unequal(count + behind, count)

    def _parts(self, lines: Sequence[str], prefixes: Sequence[str] | None, first_line: int) -> Iterator[_Part]:
        stripped = [line.strip() for line in lines]
        for number, (text, ids) in enumerate(zip(stripped, self._tokenizers.source.encode_all(stripped), strict=True)):
            if not text:
                continue
            prefix = self._prefix(prefixes[number], first_line + number) if prefixes is not None else ()
            tag, texts = ("", [text]) if len(ids) <= self._part_length else self._cut(text)
            before = ""
            for index, part in enumerate(texts):
                core = part.strip()
                part_ids = ids if len(texts) == 1 else self._tokenizers.source.encode(core)
                if tag and part_ids:
                    part_ids = self._tokenizers.source.encode(tag + core)
                before += part[: len(part) - len(part.lstrip())]
                if part_ids:
                    key = (first_line + number) * MOST_PARTS + index
                    yield _Part(number, before, core, Sentence(tuple(part_ids), prefix, key))
                    prefix, before = (), ""
                before += part[len(part.rstrip()) :] if core else ""

    def _cut(self, text: str) -> tuple[str, list[str]]:
        """The language tag that each part of a text that is too long begins with, and the parts."""
        encode = self._tokenizers.source.encode
        tag, rest = language_tag(text)
        if len(encode(tag)) > self._part_length // 2:
            tag, rest = "", text
        return tag, split_text(rest, lambda part: len(encode(tag + part.strip())) <= self._part_length)

    def _prefix(self, text: str, number: int) -> tuple[int, ...]:
        ids = tuple(self._tokenizers.target.encode(as_one_line(text).rstrip()))
        if len(ids) >= self._engine.max_length:
            most = self._engine.max_length - 1
            raise DataError(f"prefix of line {number + 1}: {len(ids)} pieces, the model takes {most}; shorten it")
        return ids

    def _answers(self, parts: Sequence[_Part]) -> list[_Answer]:
        """The answer for each part; equal parts are searched once, unless they are sampled.

        So a line of 20,000 equal characters, whose parts never end, takes no longer than two parts.
        """

        def identity(part: _Part) -> Hashable:
            return (
                part.sentence.key if self.config.sample else (part.text, part.sentence.source_ids, part.sentence.prefix)
            )

        distinct = {identity(part): part for part in parts}
        answers = dict(zip(distinct, self._search(list(distinct.values())), strict=True))
        return [answers[identity(part)] for part in parts]

    def _search(self, parts: Sequence[_Part]) -> list[_Answer]:
        """Search, judge what was found, and search once more where that may help."""
        answers = self._ask(parts, self.config)
        again: dict[SearchConfig, list[int]] = defaultdict(list)
        for index, (part, answer) in enumerate(zip(parts, answers, strict=True)):
            other = remedy(answer.flags, len(part.sentence.source_ids), self.config) if answer.flags else None
            if other and self._repair:
                again[other].append(index)
        for other, indices in again.items():
            for index, second in zip(indices, self._ask([parts[index] for index in indices], other), strict=True):
                if not second.flags:
                    answers[index] = replace(second, flags=(*answers[index].flags, REPAIRED))
        return answers

    def _ask(self, parts: Sequence[_Part], config: SearchConfig) -> list[_Answer]:
        """What the engine finds, decoded and judged."""
        answers = []
        for part, hypotheses in zip(
            parts, self._engine.translate([part.sentence for part in parts], config), strict=True
        ):
            texts = [self._tokenizers.target.decode(hypothesis.ids) for hypothesis in hypotheses]
            flags = symptoms(part.text, part.sentence.source_ids, texts[0], hypotheses[0])
            answers.append(_Answer(hypotheses, texts, flags))
        return answers

    def _join(self, line: str, answered: Sequence[tuple[_Part, _Answer]]) -> Translation:
        count = max(len(answer.hypotheses) for _, answer in answered)
        best, *others = (self._alternative(answered, rank) for rank in range(count))
        # The best translations of the parts make the best one of the line, whatever the others score when joined.
        others.sort(key=lambda alternative: -alternative.normalized_score)
        flags = line_flags([answer.flags for _, answer in answered])
        return Translation(**vars(best), flags=flags, alternatives=tuple(others), source=line)

    def _alternative(self, answered: Sequence[tuple[_Part, _Answer]], rank: int) -> Alternative:
        """The translation of a line from the hypotheses of this rank, or the last, of each of its parts."""
        text, score, tokens = "", 0.0, 0
        for part, answer in answered:
            rank_here = min(rank, len(answer.hypotheses) - 1)
            hypothesis = answer.hypotheses[rank_here]
            text += part.before + answer.texts[rank_here]
            score += hypothesis.log_prob
            tokens += len(hypothesis.ids) + hypothesis.finished
        return Alternative(text, score, normalized_score(score, tokens, self.config.length_penalty), tokens)


def _unequal(prefixes: int, lines: int) -> DataError:
    return DataError(f"prefixes: {prefixes:,}, lines: {lines:,}; give one prefix for each line, empty for none")
