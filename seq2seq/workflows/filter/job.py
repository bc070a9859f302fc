"""The job of `s2s filter`: all that a worker needs to score a shard or to write its kept pairs, which can be pickled.

`request` makes a `FilterJob`. The rule or score of a pair depends on the pair and the models alone.
"""

import contextlib
import functools
import gzip
import json
import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq.config.corpora import SourceConfig
from seq2seq.data.examples import Pair, Source
from seq2seq.data.parts import part_path
from seq2seq.data.sources import open_pairs
from seq2seq.errors import DataError, ModelError
from seq2seq.inference.scorer import PairScore, Scorer
from seq2seq.text.direction import Direction
from seq2seq.workflows.filter.rules import PairLimits, PairRules
from seq2seq.workflows.filter.shards import PairShard
from seq2seq.workflows.parts import NO_SCORE, PartCounts, finished_part, folder_record, write_part

SCORES = "scores"  # the folder of the parts with scores, inside that of the kept pairs
NO_PAIR, ABOVE = "no pair", "score"
FORWARD, REVERSE = "forward", "reverse"  # cross-entropies in the objects of scores
DIGITS = 4  # decimals of scores


@dataclass(frozen=True)
class Judge:
    """A model that scores one direction."""

    model: Path
    fingerprint: str
    languages: tuple[str | None, str | None]
    """Source and target, for a model of many languages."""


@dataclass(frozen=True)
class Corpus:
    """A corpus of pairs."""

    source: SourceConfig
    languages: tuple[str, str]
    """The languages of both sides, or empty; they name columns, and the languages of a translation memory."""
    name: str
    """Its name in records."""
    fingerprint: str = ""

    def open(self) -> Source:
        """Open the pairs.

        Raises:
            DataError: they cannot be read, or changed since the command started.
        """
        opened = open_pairs(self.source, *self.languages)
        if self.fingerprint and opened.fingerprint != self.fingerprint:
            raise DataError(f"{opened.name}: changed since the command started; start again in a new folder")
        return opened


@dataclass(frozen=True)
class FilterJob:
    """The work of `s2s filter`: for each shard a part of scores, and then one of kept pairs."""

    folder: Path
    corpus: Corpus
    judges: tuple[Judge, ...]
    """No model, the model of the direction, or this and that of the opposite direction."""
    loading: tuple[tuple[str, Any], ...]
    """Options of `Scorer.load`."""
    languages: tuple[str | None, str | None]
    limits: PairLimits
    shards: tuple[PairShard, ...]
    difference: float
    """Weight of the difference of both cross-entropies in the score."""

    def score(self, number: int) -> dict[str, Any]:
        """Write the part of scores of a shard, unless it is there, and return its facts.

        Each line of the shard has an object: its number, and either why it is left out, or its cross-entropies.

        Raises:
            DataError: the corpus cannot be read, or changed.
            ModelError: a model cannot be read, or changed since the command started.
            OSError: the part cannot be written.
        """
        with _one_at_a_time:
            if (facts := finished_part(self.folder / SCORES, number)) is not None:
                return facts
            shard, rules = self.shards[number], rules_of(self.languages, self.limits)
            corpus = opened_corpus(self.corpus)
            pairs = [pair and pair.without(corpus.tag) for pair in shard.pairs(corpus)]
            reasons = [NO_PAIR if pair is None else rules.rejects(pair) for pair in pairs]
            fit = [pair for pair, why in zip(pairs, reasons, strict=True) if why is None]
            scores = iter(self._scores(fit))
            records = []
            for line, why in enumerate(reasons, start=shard.first):
                found = next(scores) if why is None else {}
                if not all(map(math.isfinite, found.values())):
                    why = NO_SCORE
                records.append({"line": line, **({"left_out": why} if why is not None else found)})
            left_out = Counter(record["left_out"] for record in records if "left_out" in record)
            return write_part(self.folder / SCORES, number, records, _counts(shard.count, left_out))

    def _scores(self, pairs: Sequence[Pair]) -> list[dict[str, float]]:
        """Return the cross-entropies of each pair, in nats per piece, by the direction of the model."""
        if not self.judges:
            return [{} for _ in pairs]
        sides: dict[str, list[Pair]] = {FORWARD: [], REVERSE: []}
        for pair in pairs:
            sides[FORWARD].append(pair)
            sides[REVERSE].append(Pair(pair.target, pair.source))
        found = {
            direction: [round(cross_entropy(each), DIGITS) for each in scorer.score(sides[direction])]
            for direction, scorer in zip(sides, opened_scorers(self.judges, self.loading), strict=False)
        }
        return [dict(zip(found, each, strict=True)) for each in zip(*found.values(), strict=True)]

    def select(self, threshold: float, number: int) -> dict[str, Any]:
        """Write the part of kept pairs of a shard, unless it is there, and return its facts; errors as in `score`.

        Args:
            threshold: the largest score of a pair that is kept.
            number: of the part.
        """
        with _one_at_a_time:
            if (facts := finished_part(self.folder, number)) is not None:
                return facts
            kept, left_out = [], Counter[str]()
            for line, pair, record in self.judged(number):
                if why := reason(record, threshold):
                    left_out[why] += 1
                    continue
                assert pair is not None
                found = {"source": pair.source, "target": pair.target}
                if "score" in record:
                    found["score"] = record["score"]
                kept.append({**found, "origin": [self.corpus.name, line]})
            return write_part(self.folder, number, kept, _counts(self.shards[number].count, left_out))

    def judged(self, number: int) -> Iterator[tuple[int, Pair | None, Mapping[str, Any]]]:
        """Yield number, pair and object of scores of each line of a shard."""
        pairs = self.shards[number].pairs(opened_corpus(self.corpus))
        for pair, record in zip(pairs, self.scores(number), strict=True):
            yield record["line"], pair, record

    def scores(self, number: int) -> list[dict[str, Any]]:
        """Return the objects of a part of scores, with the score that the cross-entropies make."""
        with gzip.open(part_path(self.folder / SCORES, number), "rt", encoding="utf-8") as stream:
            return [self._with_score(json.loads(line)) for line in stream]

    def _with_score(self, record: dict[str, Any]) -> dict[str, Any]:
        if FORWARD not in record:
            return record
        forward = record[FORWARD]
        return {**record, "score": round(dual(forward, record.get(REVERSE, forward), self.difference), DIGITS)}


def reason(record: Mapping[str, Any], threshold: float) -> str:
    """Return why a line is left out, or an empty text."""
    return record.get("left_out") or (ABOVE if record.get("score", -math.inf) > threshold else "")


def cross_entropy(score: PairScore) -> float:
    """Return the cross-entropy of a target, in nats per piece."""
    return -score.log_prob / score.tokens


def dual(forward: float, reverse: float, difference: float) -> float:
    """Return the dual conditional cross-entropy: the mean of both, and `difference` times |forward - reverse|.

    With a `difference` of 1 it is that of Junczys-Dowmunt (2018, eq. 2).
    """
    return difference * abs(forward - reverse) + (forward + reverse) / 2


def score_part(job: FilterJob, number: int) -> dict[str, Any]:
    """Make a part of scores; workers call it."""
    return job.score(number)


def select_part(job: FilterJob, threshold: float, number: int) -> dict[str, Any]:
    """Make a part of kept pairs; workers call it."""
    return job.select(threshold, number)


_one_at_a_time = threading.Lock()  # a worker of a cluster may have several threads


@functools.lru_cache(maxsize=1)
def opened_corpus(corpus: Corpus) -> Source:
    """Return the opened corpus, which stays open in this process."""
    return corpus.open()


@functools.lru_cache(maxsize=1)
def rules_of(languages: tuple[str | None, str | None], limits: PairLimits) -> PairRules:
    """Return the rules, which are made once in this process."""
    return PairRules(languages, limits)


@functools.lru_cache(maxsize=1)
def opened_scorers(judges: tuple[Judge, ...], loading: tuple[tuple[str, Any], ...]) -> tuple[Scorer, ...]:
    """Return the scorers, which stay open in this process.

    Raises:
        ModelError: a model cannot be read, or changed since the command started.
    """
    loaded: dict[Path, Scorer] = {}  # a model of many languages may judge both directions
    for judge in judges:
        if folder_record(judge.model) != judge.fingerprint:
            raise ModelError(f"{judge.model}: changed since the command started; start it again in a new folder")
        if judge.model not in loaded:
            source, target = judge.languages
            loaded[judge.model] = Scorer.load(
                judge.model, source_language=source, target_language=target, **dict(loading)
            )
    return tuple(loaded[judge.model].directed(Direction(*judge.languages)) for judge in judges)


@contextlib.contextmanager
def models_stay_open() -> Iterator[None]:
    """Keep the models and the corpus of parts open inside the block, and free them at its end."""
    try:
        yield
    finally:
        opened_scorers.cache_clear()
        opened_corpus.cache_clear()


def _counts(lines: int, left_out: Counter[str]) -> PartCounts:
    return PartCounts(lines, lines - left_out.total(), dict(sorted(left_out.items())))
