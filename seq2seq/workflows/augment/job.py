"""The job of `s2s augment`: all that a worker needs to make a part, which can be pickled.

`request` makes a `AugmentJob`. The pair of a line depends on the line, its number, the models and the recipe alone.
"""

import contextlib
import functools
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from seq2seq.config.corpora import NoiseConfig
from seq2seq.config.schema import SearchConfig
from seq2seq.data.examples import Pair
from seq2seq.data.noise import perturbed
from seq2seq.errors import ModelError
from seq2seq.evaluation.selection import consensus, nearest
from seq2seq.inference.degeneration import LANGUAGE, LONG, LOST, REPAIRED, SYMPTOMS
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.translation import Alternative, Translation
from seq2seq.inspection.overlap import folded, normalise
from seq2seq.text.untranslatable import VERBATIM
from seq2seq.workflows.augment.shards import Shard
from seq2seq.workflows.parts import NO_SCORE, NOT_IDENTITY, PartCounts, finished_part, folder_record, write_part

Kind = Literal["back", "forward"]
Keep = Literal["best", "chrf", "mbr"]

# Workers for which sentences are grouped, whatever their number is, so that the bits of scores do not depend on it.
GROUPED_FOR = 4
OWN_SEARCH = {"n_best": 1}  # whatever the search settings of the model are
DRY_SECONDS, DRY_LINES = 5.0, 64


@dataclass(frozen=True)
class Recipe:
    """How a line becomes a pair."""

    kind: Kind = "back"
    """`back`: the translation is the source; `forward`: it is the target."""
    keep: Keep = "best"
    """The candidate that is kept: the first, the nearest to the reference, or the nearest to all others."""
    min_confidence: float | None = None
    """The least probability that a translation is good."""
    skip_long: bool = False
    """Leave out lines that are longer than the model's limit, instead of translating them in parts."""
    tag: str | None = None
    """A piece before each synthetic source (Caswell et al. 2019)."""
    noise: NoiseConfig | None = None
    """Perturbations of the pairs."""

    @property
    def details(self) -> tuple[str, ...]:
        """The details of translations that the recipe needs."""
        return () if self.min_confidence is None else ("confidence",)


@dataclass(frozen=True)
class AugmentJob:
    """The work of `s2s augment`: one part for each shard and group of models."""

    folder: Path
    models: tuple[tuple[Path, ...], ...]
    """The groups of models; each group is an ensemble that translates the whole text."""
    fingerprints: tuple[tuple[str, ...], ...]
    loading: tuple[tuple[str, Any], ...]
    """Options of `Translator.load`, search settings included."""
    recipe: Recipe
    shards: tuple[Shard, ...]
    references: tuple[Shard, ...] = ()
    """The shards of the references, parallel to `shards`."""
    held_out: frozenset[str] = frozenset()
    """Lines of held-out sets, normalised and `folded`, which are left out."""

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return len(self.models) * len(self.shards)

    def pipeline(self, group: int = 0) -> Pipeline:
        """Return the opened models of a group.

        Raises:
            ModelError: a model cannot be read, or changed since the command started.
        """
        return opened(self.models[group], self.fingerprints[group], self.loading, bool(self.recipe.details))

    def make(self, number: int) -> dict[str, Any]:
        """Write a part, unless it is there, and return its facts.

        Raises:
            DataError: the text cannot be read, or changed.
            ModelError: as `pipeline`.
            OSError: the part cannot be written.
        """
        with _one_at_a_time:
            if (facts := finished_part(self.folder, number)) is not None:
                return facts
            group, index = divmod(number, len(self.shards))
            shard, left_out = self.shards[index], Counter[str]()
            references = self.references[index].lines() if self.references else ()
            pipeline = self.pipeline(group)
            records = list(self.records(pipeline, shard, references, left_out))
            counts = PartCounts(shard.count, len(records), dict(sorted(left_out.items())))
            return write_part(self.folder, number, records, counts, engine=_engine(pipeline))

    def records(
        self, pipeline: Pipeline, shard: Shard, references: Sequence[str | None], left_out: Counter[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield the pairs of a shard; lines without one are counted in `left_out`."""
        lines = shard.lines()
        reasons = [self._unfit(line, pipeline) for line in lines]
        texts = ["" if why else str(line).strip() for line, why in zip(lines, reasons, strict=True)]
        recipe = self.recipe
        answers = pipeline.translate(texts, first_line=shard.before, details=recipe.details)
        languages = pipeline.translator.description
        sides = (languages.source_language, languages.target_language) if languages else (None, None)
        for index, (text, answer, why) in enumerate(zip(texts, answers, reasons, strict=True)):
            chosen, fault = self._kept(pipeline, answer, references[index] if references else None)
            if why := why or fault:
                left_out[why] += 1
                continue
            pair = Pair(text, chosen.text.strip())
            if recipe.kind == "back":
                pair, own_sides = Pair(pair.target, pair.source), sides[::-1]
            else:
                own_sides = sides
            number = shard.before + index + 1
            if recipe.noise is not None:
                pair = perturbed(pair, recipe.noise, random.Random(f"{recipe.noise.seed} {number}"), own_sides)
            source = f"{recipe.tag} {pair.source}" if recipe.tag else pair.source
            record = {"source": source, "target": pair.target, "score": round(chosen.score, 4)}
            confidence = _confidence(answer)
            if confidence is not None:
                record["confidence"] = round(confidence, 4)
            yield {**record, "origin": [shard.name, shard.first + index]}

    def _unfit(self, line: str | None, pipeline: Pipeline) -> str:
        """Return why a line is not translated, or an empty text."""
        if line is None:
            return "not UTF-8"
        if not line.strip():
            return "blank"
        if self.held_out and folded(normalise(line)) in self.held_out:
            return "held out"
        return "too long" if self.recipe.skip_long and not pipeline.translator.takes_whole(line) else ""

    def _kept(self, pipeline: Pipeline, answer: Translation, reference: str | None) -> tuple[Alternative, str]:
        """Return the candidate that is kept, and why it is left out, or an empty text.

        A candidate with a fault is kept only if all have one, and does not count in the choice among the others.
        """
        has_choice = self.recipe.keep != "best" and bool(answer.source)
        candidates = [answer, *answer.alternatives] if has_choice else [answer]
        faults = _faults(pipeline, self.recipe, answer, candidates)
        sound = [index for index, fault in enumerate(faults) if not fault] or list(range(len(candidates)))
        texts = [candidates[index].text for index in sound]
        if len(sound) == 1:
            chosen = sound[0]
        else:
            chosen = sound[consensus(texts) if self.recipe.keep == "mbr" else nearest(texts, reference or "")]
        return candidates[chosen], faults[chosen]

    def seconds_per_line(self, group: int = 0, budget: float = DRY_SECONDS) -> tuple[float, int]:
        """Return the time in which a group of models translates a line, in seconds, and the number of lines measured.

        The measurement takes about `budget` seconds at most.
        """
        pipeline, shard = self.pipeline(group), self.shards[0]
        lines = shard.lines()
        references = self.references[0].lines() if self.references else [None] * len(lines)
        pairs = [pair for pair in zip(lines, references, strict=True) if not self._unfit(pair[0], pipeline)]
        began, done = time.perf_counter(), 0
        while done < len(pairs) and time.perf_counter() - began < budget:
            texts, expected = zip(*pairs[done : done + DRY_LINES], strict=True)
            answers = pipeline.translate(texts, details=self.recipe.details)
            for answer, reference in zip(answers, expected, strict=True):
                self._kept(pipeline, answer, reference)
            done += len(texts)
        return (time.perf_counter() - began) / max(done, 1), done


def make_part(job: AugmentJob, number: int) -> dict[str, Any]:
    """Make a part of a job; workers call it."""
    return job.make(number)


_one_at_a_time = threading.Lock()  # a worker of a cluster may have several threads


@functools.lru_cache(maxsize=1)
def opened(
    models: tuple[Path, ...], fingerprints: tuple[str, ...], loading: tuple[tuple[str, Any], ...], has_aligner: bool
) -> Pipeline:
    """Return the pipeline of an ensemble, which stays open in this process; it is used for many parts.

    Raises:
        ModelError: a model cannot be read, or does not have its fingerprint.
    """
    for model, fingerprint in zip(models, fingerprints, strict=True):
        if folder_record(model) != fingerprint:
            raise ModelError(f"{model}: changed since the command started; start it again in a new folder")
    pipeline = Pipeline.load(*models, with_aligner=has_aligner, **{**OWN_SEARCH, **dict(loading)})
    pipeline.translator = pipeline.translator.grouping_for(GROUPED_FOR)
    return pipeline


def default_search(search: SearchConfig) -> dict[str, Any]:
    """Return the settings with which a model translates without an option, given the search settings of its folder."""
    settings = {**search.model_dump(mode="json"), **OWN_SEARCH}
    return {key: value for key, value in settings.items() if key not in NOT_IDENTITY}


@contextlib.contextmanager
def models_stay_open() -> Iterator[None]:
    """Keep the models of parts in memory inside the block, and free them at its end."""
    try:
        yield
    finally:
        opened.cache_clear()


def _faults(pipeline: Pipeline, recipe: Recipe, answer: Translation, candidates: Sequence[Alternative]) -> list[str]:
    """Return for each candidate of an answer why it is left out, or an empty text."""
    others = [each for each in candidates if each.text != answer.text]
    found = pipeline.translator.flags([(answer.source, each.text) for each in others]) if others else []
    copied, rest = [VERBATIM] * (VERBATIM in answer.flags), iter(found)

    def flags(candidate: Alternative) -> Sequence[str]:
        if candidate.text == answer.text:
            return answer.flags
        return (*copied, *[LONG] * (not candidate.is_finished), *next(rest))

    return [_fault(recipe, answer, each, flags(each)) for each in candidates]


def _engine(pipeline: Pipeline) -> str:
    """Return the engine of a pipeline with its version; translations of two engines may differ."""
    note = pipeline.translator.engine_note
    return f"{note}, version {version('ctranslate2' if note.startswith('CTranslate2') else 'torch')}"


def _confidence(answer: Translation) -> float | None:
    """Return the confidence of a translation, that of its worst part; None if it has none."""
    known = [part.confidence for part in answer.details if part.confidence is not None]
    return min(known, default=None)


def _fault(recipe: Recipe, answer: Translation, candidate: Alternative, flags: Sequence[str]) -> str:
    """Return why a candidate of an answer is left out, or an empty text."""
    if not math.isfinite(candidate.score):  # JSON has no NaN
        return NO_SCORE
    found = [] if REPAIRED in flags else sorted(SYMPTOMS.intersection(flags))
    if VERBATIM in flags and candidate.text.strip() == answer.source.strip():
        return "not language"
    if found:
        return found[0]
    if LOST in flags:
        return "lost words"
    if LANGUAGE in flags:
        return "other language"
    confidence = _confidence(answer)
    if recipe.min_confidence is not None and (confidence is None or confidence < recipe.min_confidence):
        return "low confidence"
    return ""
